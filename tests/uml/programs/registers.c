/*
 * Test whether each thread keeps its vector registers and rounding mode over system calls, page
 * faults, signals and forks while other threads run in the same process and in other processes.
 * Prints "rounds N signals N wrong N".
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 8
#define THREADS 6
#define ROUNDS 100
#define PAGES 16

static volatile long rounds, signals, wrong;
static const unsigned int usual_mode = 0x1f80;

#define ALL_REGISTERS(DO) \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) \
    DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define LOAD(n) "movdqu " #n "*16(%[in]), %%xmm" #n "\n"
#define STORE(n) "movdqu %%xmm" #n ", " #n "*16(%[out])\n"

/* Fill the registers, make a system call, and check that the registers have kept their values. */
static long call(unsigned long pattern, long number, unsigned long a, unsigned long b)
{
    unsigned long in[32], out[32];
    unsigned int mode = usual_mode | (pattern & 3) << 13, mode_after = 0;
    long result;

    for (int i = 0; i < 32; i++)
        in[i] = pattern * 2654435761UL + i;
    asm volatile("ldmxcsr %[mode]\n" ALL_REGISTERS(LOAD) "syscall\n" ALL_REGISTERS(STORE)
                 "stmxcsr %[after]\n"
                 : "=a"(result), [after] "=m"(mode_after)
                 : "a"(number), "D"(a), "S"(b), "d"(0L), [in] "r"(in), [out] "r"(out),
                   [mode] "m"(mode)
                 : "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                   "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    asm volatile("ldmxcsr %0" ::"m"(usual_mode));
    if (memcmp(in, out, sizeof(in)) || (mode_after & ~0x3fU) != mode)
        wrong++;
    rounds++;
    return result;
}

static void handler(int number)
{
    unsigned long ones[2] = {~0UL, ~0UL};

    (void)number;
    signals++;
    asm volatile("movdqu %0, %%xmm0\nmovdqu %0, %%xmm15\n" ::"m"(ones) : "xmm0", "xmm15");
    getppid();
}

static void *worker(void *seed)
{
    unsigned int state = (unsigned int)(long)seed;

    for (int i = 0; i < ROUNDS; i++) {
        struct timespec pause = {0, 1 + rand_r(&state) % 2000000};
        call(state + i, SYS_nanosleep, (unsigned long)&pause, 0);
        call(state - i, SYS_sched_yield, 0, 0);
        if (i % 20 == 7) {
            char *memory = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            double product = 1;
            for (int page = 0; page < PAGES; page++) {
                call(state + page, SYS_getrandom, (unsigned long)(memory + page * 4096), 8);
                /* This byte is 0. Reading it is a page fault amid a computation. */
                product *= 2 + memory[page * 4096 + 64];
            }
            if (product != 65536)
                wrong++;
            munmap(memory, PAGES * 4096);
        }
    }
    return NULL;
}

static void *short_lived(void *unused)
{
    call(1, SYS_getppid, 0, 0);
    return unused;
}

static void process(int index)
{
    pthread_t threads[THREADS];
    long child;

    for (long k = 0; k < THREADS; k++)
        pthread_create(&threads[k], NULL, worker, (void *)(k * 13 + index));
    for (int k = 0; k < THREADS; k++)
        pthread_join(threads[k], NULL);
    for (int i = 0; i < 100; i++) {
        pthread_create(&threads[0], NULL, short_lived, NULL);
        pthread_join(threads[0], NULL);
        call(i, SYS_getppid, 0, 0);
    }
    child = call(4242, SYS_fork, 0, 0);
    if (child == 0)
        _exit(wrong != 0);
    int status = 1;
    waitpid(child, &status, 0);
    if (status)
        wrong++;
}

int main(void)
{
    struct itimerval interval = {{0, 700}, {0, 700}}, off = {{0, 0}, {0, 0}};
    long sums[3] = {0}, values[3];
    int results[2];
    FILE *input;

    if (pipe(results))
        return 1;
    signal(SIGALRM, handler);
    for (int i = 0; i < PROCESSES; i++) {
        if (call(i * 77 + 5, SYS_fork, 0, 0))
            continue;
        rounds = signals = 0;
        setitimer(ITIMER_REAL, &interval, NULL);
        process(i);
        setitimer(ITIMER_REAL, &off, NULL);
        dprintf(results[1], "%ld %ld %ld\n", rounds, signals, wrong);
        _exit(0);
    }
    while (wait(NULL) > 0)
        ;
    close(results[1]);
    input = fdopen(results[0], "r");
    while (fscanf(input, "%ld %ld %ld", &values[0], &values[1], &values[2]) == 3)
        for (int i = 0; i < 3; i++)
            sums[i] += values[i];
    printf("rounds %ld signals %ld wrong %ld\n", sums[0], sums[1], sums[2] + wrong);
    return 0;
}
