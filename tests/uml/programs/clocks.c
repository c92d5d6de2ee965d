/*
 * Test whether the vDSO and the system calls read the same clocks: many processes and threads read
 * each clock by vDSO, by system call and by vDSO again, after sleeps of various lengths.
 * Prints "compared N different N wrong N", and then "busy waits N N": how often each of two busy
 * waits read the clock until its time was over. The second one also makes failing system calls.
 *
 * The three readings must not go backwards, and the reading by system call must equal one of those
 * by vDSO, because time advances only when a process enters the kernel.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 40
#define THREADS 3
#define ROUNDS 150
#define BUSY_WAIT_NS 200000000L

static const clockid_t clocks[] = {
    CLOCK_REALTIME,        CLOCK_MONOTONIC,        CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE,
    CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_TAI,
};

static long compared, different, wrong;

static long long ns(struct timespec t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }

static void judge(long long before, long long called, long long after)
{
    __sync_fetch_and_add(&compared, 1);
    if (before != called)
        __sync_fetch_and_add(&different, 1);
    if (before > called || called > after || (before != called && called != after))
        __sync_fetch_and_add(&wrong, 1);
}

static void compare(void)
{
    struct timeval u[3];
    time_t s[3];

    for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
        struct timespec t[3];
        clock_gettime(clocks[i], &t[0]);
        syscall(SYS_clock_gettime, clocks[i], &t[1]);
        clock_gettime(clocks[i], &t[2]);
        judge(ns(t[0]), ns(t[1]), ns(t[2]));
    }
    gettimeofday(&u[0], NULL);
    syscall(SYS_gettimeofday, &u[1], NULL);
    gettimeofday(&u[2], NULL);
    for (int i = 0; i < 3; i++)
        u[i].tv_usec += 1000000 * (u[i].tv_sec - 946684800);
    judge(u[0].tv_usec, u[1].tv_usec, u[2].tv_usec);
    s[0] = time(NULL);
    s[1] = syscall(SYS_time, NULL);
    s[2] = time(NULL);
    judge(s[0], s[1], s[2]);
}

static void *sleeper(void *seed)
{
    unsigned int state = (unsigned int)(long)seed;

    for (int i = 0; i < ROUNDS; i++) {
        struct timespec pause = {0, rand_r(&state) % (rand_r(&state) % 3 ? 3000000 : 900)};
        nanosleep(&pause, NULL);
        compare();
    }
    return NULL;
}

static void wall_clock_setter(void)
{
    struct timespec moments[] = {{1000000000, 5}, {946684900, 0}};

    for (int i = 0; i < 2; i++) {
        clock_settime(CLOCK_REALTIME, &moments[i]);
        compare();
    }
}

static long busy_wait(int by_failing_calls)
{
    struct timespec start, now;
    long rounds = 0;
    char byte;

    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        rounds++;
        if (by_failing_calls && read(-1, &byte, 1) != -1)
            return -1;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (ns(now) - ns(start) < BUSY_WAIT_NS);
    return rounds;
}

int main(void)
{
    int results[2];
    long sums[3] = {0}, values[3];
    FILE *input;

    if (pipe(results))
        return 1;
    for (int i = 0; i < PROCESSES; i++) {
        if (fork())
            continue;
        if (i == 1) {
            wall_clock_setter();
        } else if (i % 4 == 0) {
            pthread_t threads[THREADS];
            for (long k = 0; k < THREADS; k++)
                pthread_create(&threads[k], NULL, sleeper, (void *)(k + i * 7));
            for (int k = 0; k < THREADS; k++)
                pthread_join(threads[k], NULL);
        } else {
            sleeper((void *)(long)i);
        }
        dprintf(results[1], "%ld %ld %ld\n", compared, different, wrong);
        _exit(0);
    }
    while (wait(NULL) > 0)
        ;
    close(results[1]);
    input = fdopen(results[0], "r");
    while (fscanf(input, "%ld %ld %ld", &values[0], &values[1], &values[2]) == 3)
        for (int i = 0; i < 3; i++)
            sums[i] += values[i];
    printf("compared %ld different %ld wrong %ld\n", sums[0], sums[1], sums[2]);
    printf("busy waits %ld %ld\n", busy_wait(0), busy_wait(1));
    return 0;
}
