// Starts others in all ways that the C library has, right after many page faults: each says where
// it may run, as the kernel knows it.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 1 << 20, PAGE = 4096 };

// More arguments than there are registers for.
#define SAYS "grep", "-h", "-s", "-i", "-E", "-e", "Cpus_allowed_list", "/proc/self/status"

static char *const says[] = {SAYS, NULL};
static volatile unsigned char *heap;

static void fault(void) {
    for (int round = 0; round < 20; round++)
        for (int at = 0; at < LEN; at += PAGE) heap[at]++;
}

static void ends_well(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, __WALL) != child || status) printf("failed\n");
    fflush(stdout);
}

static int in_clone(void *argument) {
    execv("/bin/grep", argument);
    return 9;
}

static void *in_thread(void *_) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    printf("%d processors\n", CPU_COUNT(&set));
    return _;
}

// The same in a child of vfork, which must not return.
#define CHILD(what)                     \
    do {                                \
        fault();                        \
        pid_t child = vfork();          \
        if (child == 0) {               \
            what;                       \
            _exit(9);                   \
        }                               \
        ends_well(child);               \
    } while (0)

int main(void) {
    extern char **environ;
    heap = calloc(LEN, 1);
    if (!heap) return 2;

    CHILD(execl("/bin/grep", SAYS, NULL));
    CHILD(execle("/bin/grep", SAYS, NULL, environ));
    CHILD(execlp("grep", SAYS, NULL));
    CHILD(execv("/bin/grep", says));
    CHILD(execve("/bin/grep", says, environ));
    CHILD(execvp("grep", says));
    CHILD(execvpe("grep", says, environ));

    pid_t child;
    fault();
    ends_well(posix_spawn(&child, "/bin/grep", NULL, NULL, says, environ) ? -1 : child);
    fault();
    ends_well(posix_spawnp(&child, "grep", NULL, NULL, says, environ) ? -1 : child);
    fault();
    if (system("exec grep Cpus_allowed_list /proc/self/status")) printf("failed\n");

    fault();
    char line[100];
    FILE *pipe = popen("exec grep Cpus_allowed_list /proc/self/status", "r");
    while (pipe && fgets(line, sizeof line, pipe)) fputs(line, stdout);
    if (!pipe || pclose(pipe)) printf("failed\n");
    fflush(stdout);

    static _Alignas(16) char stack[1 << 16];
    fault();
    ends_well(clone(in_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD,
                    (void *)says, NULL, NULL, NULL));

    pthread_t thread;
    fault();
    if (pthread_create(&thread, NULL, in_thread, NULL) || pthread_join(thread, NULL)) return 3;
    fault();
    cpu_set_t set;
    if (pthread_getaffinity_np(pthread_self(), sizeof set, &set)) return 4;
    printf("%d processors\n", CPU_COUNT(&set));
    fflush(stdout);

    fault();
    execl("/bin/grep", SAYS, NULL);
    return 9;
}
