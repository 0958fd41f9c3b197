/* What may come while the pager's records are in use: a stack that is paged memory itself, and is
 * away; and a signal whose handler touches paged memory. Prints the same, paged or not. */
#define _GNU_SOURCE
#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

enum { PAGE = 4096, STACKS = 100, STACK_LEN = 8 * PAGE, TOUCHED = 66 };

static ucontext_t all, one[STACKS];
static char *given_up;

/* Calls that change paged memory, from any depth of the stack. */
static __attribute__((noinline)) void deep(int depth) {
    volatile char *room = alloca(depth * 16 + 16);
    room[0] = 1;
    madvise(given_up, PAGE, MADV_DONTNEED);
    room[1] = 1;
}

static void body(int number) {
    for (int round = 0;; round++) {
        deep((round * 7 + number) % 256);
        swapcontext(&one[number], &all);
    }
}

static void on_stacks(void) {
    given_up = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int number = 0; number < STACKS; number++) {
        getcontext(&one[number]);
        one[number].uc_stack = (stack_t){.ss_sp = malloc(STACK_LEN), .ss_size = STACK_LEN};
        makecontext(&one[number], (void (*)(void))body, 1, number);
    }
    for (int round = 0; round < 200; round++)
        for (int number = 0; number < STACKS; number++)
            swapcontext(&all, &one[number]);
    puts("stacks");
}

static char *touched;
static unsigned delay = 1;

static void again(void) {
    delay = delay * 1103515245 + 12345;
    struct itimerval soon = {.it_value.tv_usec = 20 + (delay >> 16) % 200};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void on_signal(int number) {
    (void)number;
    for (int page = 0; page < TOUCHED; page++)
        touched[page * PAGE]++;
    again();
}

static void among_signals(void) {
    touched = malloc(TOUCHED * PAGE);
    signal(SIGALRM, on_signal);
    again();
    for (int round = 0; round < 30000; round++) {
        char *other = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(other, PAGE);
    }
    signal(SIGALRM, SIG_IGN);
    puts("signals");
}

int main(void) {
    on_stacks();
    among_signals();
    return 0;
}
