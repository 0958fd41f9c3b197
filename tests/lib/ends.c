// Ends, or forbids itself what it does not need, as its first argument says, and uses its heap
// meanwhile: some of its pages are always away.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEN = 1 << 20, PAGE = 4096 };

static volatile unsigned char *heap;

static void use_heap(void) {
    unsigned sum = 0;
    for (int round = 0; round < 3; round++)
        for (int at = 0; at < LEN; at += PAGE) sum += heap[at]++;
    char text[32];
    int len = snprintf(text, sizeof text, "%u\n", sum);
    if (write(1, text, len) != len) abort();
}

static void at_end(void) { use_heap(); }

static void *go_on(void *_) {
    usleep(50000);
    use_heap();
    return _;
}

// Until somebody ends it: each byte must be what was written there in the round before.
static void use_heap_for_ever(void) {
    for (unsigned char round = 1;; round++) {
        for (int at = 0; at < LEN; at += PAGE) {
            if (heap[at] != round) puts("wrong data");
            heap[at] = (unsigned char)(round + 1);
        }
        puts("round");
        fflush(stdout);
    }
}

// All threads may read and write, and end; all else fails.
static void forbid(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)) abort();
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "";
    heap = malloc(LEN);
    if (!heap) return 2;
    memset((char *)heap, 1, LEN);
    if (!strcmp(how, "never")) use_heap_for_ever();
    if (!strcmp(how, "last-thread")) {
        pthread_t thread;
        atexit(at_end);
        pthread_create(&thread, NULL, go_on, NULL);
        pthread_detach(thread);
        pthread_exit(NULL);
    }
    if (!strcmp(how, "strict") && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 3;
    if (!strcmp(how, "filter")) forbid();
    use_heap();
    syscall(strcmp(how, "strict") ? SYS_exit_group : SYS_exit, 7);
}
