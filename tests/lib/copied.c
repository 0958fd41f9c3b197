/* Copies of a process that has memory of each protection at addresses of its choice, files that
   are open, a locale, and other threads: paged or not it prints the same. */
#define _GNU_SOURCE
#include <locale.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 32 };

static char *area, *readable, *hidden, *heap_part;
static volatile int is_done;
static FILE *open_file;

/* Words in memory that is paged and in memory that is not: at any moment the first is as large as
   the second, or larger by one. */
static volatile unsigned long *paged_word, static_word;

static void *count(void *unused) {
    for (unsigned long number = 1; !is_done; number++) {
        *paged_word = number;
        static_word = number;
    }
    return unused;
}

/* Whether copies that are made meanwhile are of one moment. */
static int are_of_one_moment(void) {
    int right = 1, status;
    for (int nth = 0; nth < 30; nth++) {
        pid_t child = fork();
        if (!child)
            _exit(*paged_word - static_word > 1);
        waitpid(child, &status, 0);
        right = right && status == 0;
    }
    return right;
}

static char *map(int protection) {
    char *at = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at, PAGES * PAGE, PROT_READ | PROT_WRITE);
    for (int page = 0; page < PAGES; page++)
        memset(at + page * PAGE, page + 1, PAGE);
    mprotect(at, PAGES * PAGE, protection);
    return at;
}

/* Memory whose former mapping was to be zeros in copies is not. */
static int is_kept_after_remap(void) {
    char *at = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at, PAGES * PAGE, PROT_READ | PROT_WRITE);
    madvise(at, PAGES * PAGE, MADV_WIPEONFORK);
    char *again = map(PROT_READ | PROT_WRITE);
    munmap(at, PAGES * PAGE);
    char *moved = mremap(again, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    pid_t child = fork();
    if (!child)
        _exit(moved != at || at[PAGE] != 2);
    int status;
    waitpid(child, &status, 0);
    return status == 0;
}

/* Whether the kernel may write to a byte for this process. */
static int is_writable(char *at) {
    int ends[2];
    if (pipe(ends) || write(ends[1], "x", 1) != 1)
        return -1;
    int got = read(ends[0], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return got;
}

static long sum(const char *of) {
    long all = 0;
    for (int at = 0; at < PAGES * PAGE; at += 64)
        all += of[at];
    return all;
}

static void on_segv(int number) {
    (void)number;
    write(STDOUT_FILENO, "the program's own action\n", 25);
    _exit(7);
}

static int in_copy(int depth) {
    fprintf(open_file, "copy %d\n", depth);
    fflush(open_file);
    printf("%d: %ld %ld", depth, sum(area), sum(readable));
    printf(" %d %d %d", is_writable(area + 1), is_writable(readable), is_writable(hidden));
    mprotect(hidden, PAGES * PAGE, PROT_READ);
    printf(" %ld %s\n", sum(hidden), heap_part);
    fflush(stdout);
    /* Its address is what it was, and what is new is elsewhere. */
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *new = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    memset(new, 9, PAGES * PAGE);
    memset(area, 3, PAGES * PAGE);
    int right = sum(new) == 9L * PAGES * PAGE / 64 && sum(area) == 3L * PAGES * PAGE / 64;
    if (depth < 3) {
        int status;
        pid_t child = fork();
        if (!child)
            _exit(in_copy(depth + 1));
        waitpid(child, &status, 0);
        right = right && status == 0 && sum(new) == 9L * PAGES * PAGE / 64;
    }
    return !right;
}

/* Copies that another thread makes, whose variables the C library finds by a table on the heap. */
static void *copy_in_thread(void *right) {
    static __thread int number = 5;
    for (int nth = 0; nth < 20; nth++) {
        int status;
        pid_t child = fork();
        if (!child)
            _exit(number++ != 5 + nth || heap_part[5] != 't' || in_copy(3));
        waitpid(child, &status, 0);
        *(int *)right += status == 0 && number++ == 5 + nth;
    }
    return NULL;
}

int main(void) {
    setlocale(LC_ALL, "C.UTF-8");
    /* From now on fork itself uses memory from malloc. */
    getpwnam("root");
    signal(SIGSEGV, on_segv);
    area = map(PROT_READ | PROT_WRITE);
    readable = map(PROT_READ);
    hidden = map(PROT_NONE);
    heap_part = strdup("from the heap");
    char *break_part = sbrk(3 * PAGE);
    memset(break_part, 5, 3 * PAGE);
    open_file = fopen("copied.out", "w");
    pthread_t thread;
    paged_word = malloc(PAGE);
    *paged_word = 0;
    pthread_create(&thread, NULL, count, NULL);
    for (int nth = 0; nth < 3; nth++) {
        int status;
        pid_t child = fork();
        if (!child)
            _exit(in_copy(0) || break_part[2 * PAGE] != 5);
        memset(heap_part, '0' + nth, 4);
        waitpid(child, &status, 0);
        printf("copy %d: %d\n", nth, status);
    }
    fflush(stdout);
    /* As a daemon does, which touches nothing of its own in between. */
    int status;
    pid_t child = fork();
    if (!child) {
        setsid();
        child = fork();
        if (!child)
            _exit(strcmp(heap_part + 4, " the heap"));
        waitpid(child, &status, 0);
        _exit(status != 0);
    }
    waitpid(child, &status, 0);
    printf("a daemon: %d\n", status);
    fflush(stdout);
    child = fork();
    if (!child)
        *(volatile char *)8 = 1;
    waitpid(child, &status, 0);
    printf("a copy that touches nothing of its own: %d\n", WEXITSTATUS(status));
    printf("kept: %d, moments: %d\n", is_kept_after_remap(), are_of_one_moment());
    is_done = 1;
    pthread_join(thread, NULL);
    int copies = 0;
    pthread_create(&thread, NULL, copy_in_thread, &copies);
    pthread_join(thread, NULL);
    printf("copies of a thread: %d\n", copies);
    printf("program: %ld %ld %s\n", sum(area), sum(readable), heap_part);
    fclose(open_file);
    return 0;
}
