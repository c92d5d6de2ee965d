/*
 * System calls of the embedded engine's programs as calls of a function
 *
 * In a guest the kernel lies in each process (patches/0009, 0010), and can be
 * called without the host's signal that the instruction syscall costs there.
 * Every program of a guest is started with this library before its others
 * (LD_PRELOAD). It stands for the C library's functions that event-driven
 * programs call most; all others, and all where the kernel tells no address,
 * are the instruction syscall as ever.
 */

#include <errno.h>
#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* As in the kernel's asm/clock-page.h, two pages below the vDSO */
#define CLOCKS 12
#define BELOW_VDSO (2 * 4096)

struct clock_page {
	struct timespec clock[CLOCKS];
	unsigned int free_reads;
	unsigned long call_kernel;
};

static const struct clock_page *page;

__attribute__((constructor)) static void find_page(void)
{
	unsigned long vdso = getauxval(AT_SYSINFO_EHDR);

	if (vdso)
		page = (const struct clock_page *) (vdso - BELOW_VDSO);
}

/*
 * The kernel goes on at 1, or at the instruction before it where a call begins
 * again after a signal.
 */
asm(
".text\n"
".type call_kernel, @function\n"
"call_kernel:\n"
"	lea 1f(%rip), %rcx\n"
"	jmp *%r11\n"
"	syscall\n"
"1:	ret\n"
".size call_kernel, . - call_kernel\n"
);

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	unsigned long kernel = page ? page->call_kernel : 0;
	register unsigned long r11 asm("r11") = kernel;
	register long r10 asm("r10") = d;
	register long r8 asm("r8") = e;
	register long r9 asm("r9") = f;
	long result;

	if (kernel)
		asm volatile("call call_kernel"
			     : "=a" (result), "+D" (a), "+S" (b), "+d" (c),
			       "+r" (r10), "+r" (r8), "+r" (r9), "+r" (r11)
			     : "0" (number) : "rcx", "cc", "memory");
	else
		asm volatile("syscall"
			     : "=a" (result), "+r" (r11)
			     : "0" (number), "D" (a), "S" (b), "d" (c),
			       "r" (r10), "r" (r8), "r" (r9)
			     : "rcx", "cc", "memory");
	if ((unsigned long) result > -4096UL) {
		errno = -result;
		return -1;
	}
	return result;
}

#define CALL3(name, a, b, c) \
	call(SYS_##name, (long) (a), (long) (b), (long) (c), 0, 0, 0)
#define CALL6(name, a, b, c, d, e, f) \
	call(SYS_##name, (long) (a), (long) (b), (long) (c), (long) (d), \
	     (long) (e), (long) (f))

ssize_t read(int fd, void *to, size_t count)
{
	return CALL3(read, fd, to, count);
}

ssize_t write(int fd, const void *from, size_t count)
{
	return CALL3(write, fd, from, count);
}

ssize_t readv(int fd, const struct iovec *to, int count)
{
	return CALL3(readv, fd, to, count);
}

ssize_t writev(int fd, const struct iovec *from, int count)
{
	return CALL3(writev, fd, from, count);
}

ssize_t recv(int fd, void *to, size_t count, int flags)
{
	return CALL6(recvfrom, fd, to, count, flags, 0, 0);
}

ssize_t send(int fd, const void *from, size_t count, int flags)
{
	return CALL6(sendto, fd, from, count, flags, 0, 0);
}

int getsockopt(int fd, int level, int name, void *to, socklen_t *size)
{
	return CALL6(getsockopt, fd, level, name, to, size, 0);
}

int setsockopt(int fd, int level, int name, const void *from, socklen_t size)
{
	return CALL6(setsockopt, fd, level, name, from, size, 0);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list rest;
	void *argument;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	return CALL3(ioctl, fd, request, argument);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
	return CALL6(epoll_ctl, epoll, operation, fd, event, 0, 0);
}

int epoll_wait(int epoll, struct epoll_event *events, int count, int timeout)
{
	return CALL6(epoll_wait, epoll, events, count, timeout, 0, 0);
}

pid_t getpid(void)
{
	return CALL3(getpid, 0, 0, 0);
}
