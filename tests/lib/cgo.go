// With this file words.go has code in C: memory of the C library's, threads of its that call Go,
// masks and actions for signals that block all of them, and copies of the process.
package main

/*
#cgo CFLAGS: -D_GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern int goSum(int);

enum { THREADS = 4, ROUNDS = 20, LEN = 1 << 20 };

static void *thread(void *nth) {
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) abort();
    long sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char *memory = malloc(LEN);
        memset(memory, (int)(long)nth + round, LEN);
        sum += goSum(round) + memory[round * 4096];
        free(memory);
    }
    if (sigprocmask(SIG_SETMASK, &before, NULL) != 0) abort();
    return (void *)sum;
}

static long run_threads(void) {
    pthread_t threads[THREADS];
    long sum = 0;
    for (long nth = 0; nth < THREADS; nth++)
        if (pthread_create(&threads[nth], NULL, thread, (void *)nth) != 0) abort();
    for (int nth = 0; nth < THREADS; nth++) {
        void *of_thread;
        if (pthread_join(threads[nth], &of_thread) != 0) abort();
        sum += (long)of_thread;
    }
    return sum;
}

static volatile sig_atomic_t caught;
static void catch(int number) { caught = number; }

// The program's action for the signal by which system calls are trapped.
static int catch_bad_call(void) {
    struct sigaction action = {.sa_handler = catch}, before, after;
    sigfillset(&action.sa_mask);
    if (sigaction(SIGSYS, &action, &before) != 0) return -1;
    raise(SIGSYS);
    if (sigaction(SIGSYS, &before, &after) != 0 || after.sa_handler != catch) return -2;
    if (signal(SIGSYS, catch) == SIG_ERR || signal(SIGSYS, SIG_DFL) != catch) return -3;
    return sigaction(SIGSYS, &before, NULL) == 0 ? caught : -4;
}

// A Go function is called by an action while all other signals are blocked.
static volatile int sum_in_action;
static void call_go(int number) { sum_in_action = goSum(number); }

static int wait_for_signals(void) {
    struct sigaction action = {.sa_handler = call_go}, before;
    sigset_t one, all, mask;
    sigfillset(&action.sa_mask);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigfillset(&all);
    sigdelset(&all, SIGUSR1);
    if (sigaction(SIGUSR1, &action, &before) != 0) return -1;
    int sum = 0;
    for (int nth = 0; nth < 2; nth++) {
        pthread_sigmask(SIG_BLOCK, &one, &mask);
        pthread_kill(pthread_self(), SIGUSR1);
        int waited = nth ? ppoll(NULL, 0, NULL, &all) : sigsuspend(&all);
        if (waited != -1 || errno != EINTR) return -2;
        pthread_sigmask(SIG_SETMASK, &mask, NULL);
        sum += sum_in_action;
    }
    return sigaction(SIGUSR1, &before, NULL) == 0 ? sum : -3;
}

static int copy(const char *memory) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int sum = 0;
        for (int at = 0; at < LEN; at += 4096) sum += memory[at];
        _exit(sum % 100);
    }
    int status;
    return child < 0 || waitpid(child, &status, 0) != child ? -1 : WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}
*/
import "C"

import (
	"fmt"
	"runtime/debug"
	"unsafe"
)

//export goSum
func goSum(round C.int) C.int {
	all := make([]int, 1<<16)
	for nth := range all {
		all[nth] = nth * int(round)
	}
	debug.FreeOSMemory()
	sum := 0
	for _, one := range all {
		sum += one
	}
	return C.int(sum % 1000)
}

func init() {
	inC = runC
}

func runC() {
	fmt.Println("threads", C.run_threads())
	fmt.Println("signal", C.catch_bad_call())
	fmt.Println("waits", C.wait_for_signals())
	memory := (*[1 << 20]byte)(C.malloc(1 << 20))
	for at := range memory {
		memory[at] = byte(at >> 12)
	}
	fmt.Println("copy", C.copy((*C.char)(unsafe.Pointer(memory))))
	C.free(unsafe.Pointer(memory))
}
