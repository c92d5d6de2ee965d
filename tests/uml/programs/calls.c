/*
 * Test whether the functions by which the engine's library (configs/uml/calls.c) replaces those of
 * the C library keep the registers that a function has to keep. Other threads use all registers at
 * the same time, and signals, restarts, errors and forks occur in between.
 * Prints "calls N signals N interrupted N wrong N".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 6
#define PAIRS 3
#define ROUNDS 150
#define KEPT 6

static volatile long calls, signals, interrupted, wrong;
static const unsigned int usual_mode = 0x1f80;
static const unsigned short usual_word = 0x37f;

struct checked {
    void *function;
    long a, b, c, d;
    unsigned long in[KEPT], out[KEPT];
    unsigned int mode, mode_after;
    unsigned short word, word_after;
    long result;
};

_Static_assert(offsetof(struct checked, out) == 88 && offsetof(struct checked, result) == 152, "");

long call_checked(struct checked *it);
asm(".globl call_checked\n"
    "call_checked:\n"
    "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; push %rdi\n"
    "ldmxcsr 136(%rdi)\n"
    "fldcw 144(%rdi)\n"
    "mov 40(%rdi), %rbx\n"
    "mov 48(%rdi), %rbp\n"
    "mov 56(%rdi), %r12\n"
    "mov 64(%rdi), %r13\n"
    "mov 72(%rdi), %r14\n"
    "mov 80(%rdi), %r15\n"
    "mov 0(%rdi), %rax\n"
    "mov 16(%rdi), %rsi\n"
    "mov 24(%rdi), %rdx\n"
    "mov 32(%rdi), %rcx\n"
    "mov 8(%rdi), %rdi\n"
    "call *%rax\n"
    "mov (%rsp), %rdi\n"
    "mov %rbx, 88(%rdi)\n"
    "mov %rbp, 96(%rdi)\n"
    "mov %r12, 104(%rdi)\n"
    "mov %r13, 112(%rdi)\n"
    "mov %r14, 120(%rdi)\n"
    "mov %r15, 128(%rdi)\n"
    "stmxcsr 140(%rdi)\n"
    "fnstcw 146(%rdi)\n"
    "mov %rax, 152(%rdi)\n"
    "pop %rdi; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
    "ret\n");

static long call(void *function, long a, long b, long c, long d, unsigned long pattern)
{
    struct checked it = {.function = function, .a = a, .b = b, .c = c, .d = d};

    for (int i = 0; i < KEPT; i++)
        it.in[i] = pattern * 2654435761UL + i;
    it.mode = usual_mode | (pattern & 3) << 13;
    it.word = (usual_word & ~(3 << 10)) | (pattern & 3) << 10;
    call_checked(&it);
    asm volatile("ldmxcsr %0\nfldcw %1" ::"m"(usual_mode), "m"(usual_word));
    if (memcmp(it.in, it.out, sizeof(it.in)) || (it.mode_after & ~0x3fU) != it.mode ||
        it.word_after != it.word)
        wrong++;
    calls++;
    return it.result;
}

#define CALL(function, a, b, c, d, pattern) \
    call(function, (long)(a), (long)(b), (long)(c), (long)(d), pattern)

#define ALL_REGISTERS(DO) \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) \
    DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define LOAD(n) "movdqu " #n "*16(%[in]), %%xmm" #n "\n"
#define STORE(n) "movdqu %%xmm" #n ", " #n "*16(%[out])\n"

/*
 * Sleep by the instruction syscall. It must keep the vector registers too, whatever other threads
 * call meanwhile.
 */
static void pause_with_registers(unsigned long pattern)
{
    struct timespec pause = {0, 1 + pattern % 900000};
    unsigned long in[32], out[32];
    long result;

    for (int i = 0; i < 32; i++)
        in[i] = pattern * 2654435761UL + i;
    asm volatile(ALL_REGISTERS(LOAD) "syscall\n" ALL_REGISTERS(STORE)
                 : "=a"(result)
                 : "a"(SYS_nanosleep), "D"(&pause), "S"(0L), "d"(0L), [in] "r"(in), [out] "r"(out)
                 : "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                   "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    if (memcmp(in, out, sizeof(in)))
        wrong++;
}

static void handler(int number)
{
    unsigned long ones[2] = {~0UL, ~0UL};
    int save_errno = errno;
    char byte;

    signals++;
    asm volatile("movdqu %0, %%xmm0\nmovdqu %0, %%xmm15\n" ::"m"(ones) : "xmm0", "xmm15");
    if (CALL(read, -1, &byte, 1, 0, number + signals) != -1 || errno != EBADF)
        wrong++;
    errno = save_errno;
}

struct pair {
    int ends[2];
    unsigned int seed;
};

/* Read each byte when it arrives. Wait for it by read, recv or epoll, as programs do. */
static void *reader(void *argument)
{
    struct pair *pair = argument;
    struct epoll_event event = {EPOLLIN, {0}};
    int end = pair->ends[0], epoll = epoll_create1(0);

    if (CALL(epoll_ctl, epoll, EPOLL_CTL_ADD, end, &event, pair->seed))
        wrong++;
    for (int i = 0; i < ROUNDS;) {
        unsigned long pattern = pair->seed + i;
        unsigned char byte = 0;
        int there = 0;
        long found;

        if (i % 3 == 1) {
            found = (int)CALL(epoll_wait, epoll, &event, 1, -1, pattern);
            if (found == -1 && errno == EINTR) {
                interrupted++;
                continue;
            }
            CALL(ioctl, end, FIONREAD, &there, 0, pattern);
            if (found != 1 || there < 1)
                wrong++;
        }
        found = i % 2 ? CALL(recv, end, &byte, 1, 0, pattern) : CALL(read, end, &byte, 1, 0, pattern);
        if (found == -1 && errno == EINTR) {
            interrupted++;
            continue;
        }
        if (found != 1 || byte != (unsigned char)i)
            wrong++;
        i++;
    }
    close(epoll);
    return NULL;
}

static void *writer(void *argument)
{
    struct pair *pair = argument;

    for (int i = 0; i < ROUNDS; i++) {
        unsigned char byte = i;

        pause_with_registers(pair->seed * 7919 + i * 104729);
        if ((i % 2 ? CALL(send, pair->ends[1], &byte, 1, 0, i)
                   : CALL(write, pair->ends[1], &byte, 1, 0, i)) != 1)
            wrong++;
        if (i % 50 == 9) {
            pid_t child = fork();

            if (child == 0) {
                CALL(getpid, 0, 0, 0, 0, i);
                _exit(wrong != 0);
            }
            int status = 1;
            while (waitpid(child, &status, 0) == -1 && errno == EINTR)
                ;
            if (status)
                wrong++;
        }
    }
    return NULL;
}

static void process(int index)
{
    pthread_t threads[2 * PAIRS];
    struct pair pairs[PAIRS];
    sigset_t alarm;

    for (int i = 0; i < PAIRS; i++) {
        pairs[i].seed = index * 31 + i;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i].ends))
            wrong++;
        pthread_create(&threads[2 * i], NULL, reader, &pairs[i]);
        pthread_create(&threads[2 * i + 1], NULL, writer, &pairs[i]);
    }
    /* Block the signal here, so that the other threads get it, also while they wait for a byte. */
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    for (int i = 0; i < 2 * PAIRS; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    struct itimerval interval = {{0, 700}, {0, 700}}, off = {{0, 0}, {0, 0}};
    long sums[4] = {0}, values[4];
    int results[2];
    FILE *input;

    if (pipe(results))
        return 1;
    for (int i = 0; i < PROCESSES; i++) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = i % 2 ? SA_RESTART : 0};

        if (fork())
            continue;
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &interval, NULL);
        process(i);
        setitimer(ITIMER_REAL, &off, NULL);
        dprintf(results[1], "%ld %ld %ld %ld\n", calls, signals, interrupted, wrong);
        _exit(0);
    }
    while (wait(NULL) > 0)
        ;
    close(results[1]);
    input = fdopen(results[0], "r");
    while (fscanf(input, "%ld %ld %ld %ld", &values[0], &values[1], &values[2], &values[3]) == 4)
        for (int i = 0; i < 4; i++)
            sums[i] += values[i];
    printf("calls %ld signals %ld interrupted %ld wrong %ld\n", sums[0], sums[1], sums[2], sums[3]);
    return 0;
}
