// A program that is linked statically, and what its own system calls do: each line that it prints
// is the same with and without paging. With an argument, it is a program that another one runs.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = 1 << 18, THREADS = 6, COPIES = 5 };

static uint32_t zeros[WORDS];
static uint32_t values[WORDS] = {7, 11, 13};

static void fail(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static uint32_t sum(const uint32_t *all, size_t count) {
    uint32_t sum = 0;
    for (size_t at = 0; at < count; at++) sum = sum * 31 + all[at];
    return sum;
}

static void fill(uint32_t *all, size_t count, uint32_t seed) {
    for (size_t at = 0; at < count; at++) all[at] = seed += 2654435769u;
}

static void heap_of_old(void) {
    uint32_t *start = sbrk(0);
    if (sbrk(1 << 20) != start) fail("sbrk");
    fill(start, WORDS, 3);
    printf("brk: %u\n", sum(start, WORDS));
    if (sbrk(-(1 << 19)) == (void *)-1 || sbrk(1 << 19) == (void *)-1) fail("sbrk");
    uint32_t first = sum(start, WORDS / 2), second = sum(start + WORDS / 2, WORDS / 2);
    printf("brk, half of it zeros: %u %u\n", first, second);
    if (brk(start)) fail("brk");
}

static void mappings(void) {
    const int usable = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;
    uint32_t *area = mmap(NULL, 1 << 20, usable, private, -1, 0);
    if (area == MAP_FAILED) fail("mmap");
    fill(area, WORDS, 5);
    area = mremap(area, 1 << 20, 2 << 20, MREMAP_MAYMOVE);
    if (area == MAP_FAILED) fail("mremap");
    fill(area + WORDS, WORDS, 9);
    printf("mremap: %u\n", sum(area, 2 * WORDS));
    if (madvise(area, 1 << 20, MADV_DONTNEED)) fail("madvise");
    printf("discarded: %u %u\n", sum(area, WORDS), sum(area + WORDS, WORDS));
    if (mprotect(area, PAGE, PROT_READ)) fail("mprotect");
    printf("no write: %d\n", read(-1, area, 1) == -1 && errno == EBADF);
    printf("munmap: %d %d\n", munmap(area, 2 << 20), munmap((char *)area + 1, PAGE));
    void *reserved = mmap(NULL, 1 << 30, PROT_NONE, private | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) fail("reserve");
    uint32_t *part = (uint32_t *)((char *)reserved + (1 << 29));
    if (mmap(part, 1 << 20, usable, private | MAP_FIXED, -1, 0) != part) fail("fixed");
    fill(part, WORDS, 17);
    printf("reserved: %u\n", sum(part, WORDS));
    munmap(reserved, 1 << 30);
}

static volatile sig_atomic_t came;

static void count(int signal) {
    came += signal;
    // Memory from within an action whose mask has all signals.
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = 1;
    munmap(page, PAGE);
}

static void signals(void) {
    struct sigaction action = {.sa_handler = count}, before;
    sigset_t all, old;
    sigfillset(&action.sa_mask);
    if (sigaction(SIGUSR1, &action, NULL) || sigaction(SIGSYS, &action, NULL)) fail("sigaction");
    if (sigaction(SIGSYS, NULL, &before)) fail("sigaction");
    printf("the action for SIGSYS: %d\n", before.sa_handler == count);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    raise(SIGUSR1);
    printf("blocked: %d\n", came);
    free(malloc(1 << 20));
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("came: %d\n", came == SIGUSR1);
    raise(SIGSYS);
    printf("came: %d\n", came == SIGUSR1 + SIGSYS);
    // Actions while another mask is in force, until one has run.
    came = 0;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    sigdelset(&all, SIGUSR1);
    raise(SIGUSR1);
    printf("waited: %d\n", sigsuspend(&all) == -1 && errno == EINTR && came == SIGUSR1);
    raise(SIGUSR1);
    struct timespec second = {.tv_sec = 1};
    printf("waited: %d\n", ppoll(NULL, 0, &second, &all) == -1 && came == 2 * SIGUSR1);
    raise(SIGUSR1);
    printf("waited: %d\n", pselect(0, NULL, NULL, NULL, &second, &all) && came == 3 * SIGUSR1);
    sigprocmask(SIG_SETMASK, &old, NULL);
    action.sa_handler = SIG_DFL;
    sigaction(SIGSYS, &action, NULL);
    errno = 0;
    long done = syscall(SYS_rt_sigprocmask, 0, &all, NULL, 4);
    printf("a mask of another length: %ld %d\n", done, errno);
}

static void *thread(void *argument) {
    uint32_t seed = (uint32_t)(uintptr_t)argument;
    uint32_t result = 0;
    for (int round = 0; round < 20; round++) {
        // Large ones are mapped and unmapped.
        size_t words = (round % 5 + 1) * 40000;
        uint32_t *all = malloc(words * sizeof *all);
        fill(all, words, seed);
        result += sum(all, words);
        free(all);
    }
    return (void *)(uintptr_t)result;
}

static void threads(void) {
    pthread_t all[THREADS];
    uint32_t result = 0;
    for (uintptr_t nth = 0; nth < THREADS; nth++)
        if (pthread_create(&all[nth], NULL, thread, (void *)nth)) fail("pthread_create");
    for (int nth = 0; nth < THREADS; nth++) {
        void *one;
        pthread_join(all[nth], &one);
        result = result * 31 + (uint32_t)(uintptr_t)one;
    }
    printf("threads: %u\n", result);
}

// A thread unmaps its own stack as it ends, as a thread of musl does.
static int leave(void *stack) {
    __asm__ volatile("syscall\n\tmov $60, %%eax\n\txor %%edi, %%edi\n\tsyscall"
                     :
                     : "a"(SYS_munmap), "D"(stack), "S"(1 << 20)
                     : "rcx", "r11", "memory");
    return 0;
}

static void stacks(void) {
    void *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int nth = 0; nth < 20; nth++) {
        const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK;
        char *stack = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, kind, -1, 0);
        // The C library keeps what it knows of its own threads on their stacks.
        const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                          CLONE_SYSVSEM;
        if (clone(leave, stack + (1 << 20), flags, stack) < 0) fail("clone");
        // It is gone in the end.
        for (int round = 0; msync(stack, PAGE, MS_ASYNC) == 0; round++) {
            if (round == 5000) fail("a stack stays");
            usleep(1000);
            mprotect(page, PAGE, PROT_READ);
        }
    }
    printf("stacks are gone\n");
}

// Copies of the process, while another thread allocates.
static void copies(void) {
    pthread_t other;
    pthread_create(&other, NULL, thread, (void *)99);
    for (int nth = 0; nth < COPIES; nth++) {
        fflush(stdout);
        pid_t copy = fork();
        if (copy < 0) fail("fork");
        if (copy == 0) {
            zeros[nth] = 1;
            values[nth] += nth;
            if (nth == 3) threads();
            printf("copy %d: %u %u\n", nth, sum(values, WORDS), sum(zeros, WORDS));
            if (nth == 2) execl("/proc/self/exe", "static", "again", "2", (char *)NULL);
            exit(nth);
        }
        int status;
        if (waitpid(copy, &status, 0) != copy) fail("waitpid");
        printf("it ends with %d\n", WEXITSTATUS(status));
    }
    pthread_join(other, NULL);
    printf("the program: %u %u\n", sum(values, WORDS), sum(zeros, WORDS));
}

static void programs(void) {
    char path[4096], again[8];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path);
    if (len < 0) fail("readlink");
    printf("it is %.*s\n", (int)len, path);
    path[len] = 0;
    for (int nth = 0; nth < 20; nth++) {
        fflush(stdout);
        pid_t child = vfork();
        if (child == 0) {
            snprintf(again, sizeof again, "%d", nth);
            if (nth == 0) execl("/no/such/program", "none", (char *)NULL);
            execl(path, "static", "again", again, (char *)NULL);
            _exit(99);
        }
        int status;
        if (waitpid(child, &status, 0) != child) fail("waitpid");
        if (WEXITSTATUS(status) != nth) printf("it ended with %x\n", status);
    }
    fflush(stdout);
    printf("a command: %d\n", WEXITSTATUS(system("echo from a shell; exit 6")));
}

int main(int number, char **arguments) {
    if (number > 1) {
        fill(values, WORDS, 1);
        printf("%s %s: %u\n", arguments[0], arguments[1], sum(values, WORDS));
        return atoi(arguments[2]);
    }
    char name[16];
    prctl(PR_GET_NAME, name);
    printf("%s, %s, %d\n", arguments[0], name, getenv("HOME") != NULL);
    printf("static: %u %u\n", sum(values, WORDS), sum(zeros, WORDS));
    fill(zeros, WORDS, 23);
    printf("static: %u\n", sum(zeros, WORDS));
    heap_of_old();
    mappings();
    signals();
    threads();
    copies();
    programs();
    stacks();
    for (int file = 3; file < 1100; file++) close(file);
    printf("files: %d\n", close_range(3, ~0U, 0) == 0 && dup2(1, 950) == 950 && close(950) == 0);
    fill(zeros, WORDS, 24);
    printf("static: %u\n", sum(zeros, WORDS));
    return 0;
}
