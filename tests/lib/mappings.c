/* Mappings as programs in C ask for them, paged or not: both print the same. With an argument it
 * asks for what paged memory refuses, and prints what it was told. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };

#define SAY(what) printf("%s: %d\n", #what, (int)(what))

static char *map(void *at, size_t pages, int protection, int flags) {
    return mmap(at, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void fill(char *area) {
    for (int page = 0; page < PAGES; page++)
        memset(area + page * PAGE, page + 1, PAGE);
}

static int is_filled(const char *area, int page) {
    return area[page * PAGE] == page + 1 && area[page * PAGE + PAGE - 1] == page + 1;
}

/* Fresh memory over pages, some of which are in memory when it comes, and some are not. */
static void map_over(char *area) {
    int right = 1;
    for (int page = 0; page < PAGES; page += 4) {
        fill(area);
        char *at = area + page * PAGE;
        right &= map(at, 2, PROT_READ | PROT_WRITE, MAP_FIXED) == at;
        area[page * PAGE + 1] = 7;
        for (int other = 0; other < PAGES; other++)
            right &= is_filled(area, other) == (other != page && other != page + 1);
        right &= area[page * PAGE] == 0 && area[page * PAGE + 1] == 7;
    }
    SAY(right);
}

static void advise(char *area) {
    fill(area);
    SAY(madvise(area, PAGE, MADV_SEQUENTIAL));
    SAY(madvise(area, PAGE, MADV_PAGEOUT));
    SAY(madvise(area, PAGE, 9999));
    SAY(madvise(area + 1, PAGE, MADV_DONTNEED));
    SAY(is_filled(area, 0));
    SAY(madvise(area, 2 * PAGE, MADV_DONTNEED));
    SAY(area[0] + area[PAGE]);
    SAY(is_filled(area, 2));
}

/* What is locked may not leave, and nothing is lost. */
static void lock(char *area) {
    SAY(mlockall(0));
    SAY(mlockall(MCL_CURRENT | MCL_FUTURE));
    SAY(mlock2(area, PAGE, 0));
    fill(area);
    int right = 1;
    for (int page = 0; page < PAGES; page++)
        right &= is_filled(area, page);
    SAY(right);
    free(malloc(PAGES * PAGE));
    SAY(munlockall());
}

/* The heap of old, beside that of malloc. */
static void move_the_break(void) {
    char *old = sbrk(PAGES * PAGE);
    memset(old, 3, PAGES * PAGE);
    SAY(old[PAGES * PAGE - 1]);
    SAY(sbrk(-PAGES * PAGE) == old + PAGES * PAGE);
}

/* Whoever has its own allocator counts on large alignments, and finds its records by them. */
static void align(void) {
    int right = 1;
    for (size_t align = 16; align <= 1 << 21; align *= 2) {
        char *object = aligned_alloc(align, 3 * align);
        right &= object != NULL && (size_t)object % align == 0;
        memset(object, 1, 3 * align);
        free(object);
    }
    SAY(right);
}

static char *touched;
static volatile sig_atomic_t signals;

static void on_signal(int number) {
    char local[2 * PAGE];
    memset(local, number, sizeof local);
    touched[signals % PAGES * PAGE] += local[PAGE] == number;
    signals++;
}

/* A handler whose stack is paged memory, and that touches paged memory, wherever it comes. */
static void be_interrupted(char *area) {
    stack_t stack = {.ss_sp = malloc(16 * PAGE), .ss_size = 16 * PAGE};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    touched = map(NULL, PAGES, PROT_READ | PROT_WRITE, 0);
    SAY(sigaltstack(&stack, NULL));
    SAY(sigaction(SIGUSR1, &action, NULL));
    int sum = 0;
    for (int nth = 0; nth < PAGES; nth++) {
        area[nth * PAGE] = (char)nth;
        raise(SIGUSR1);
    }
    for (int nth = 0; nth < PAGES; nth++)
        sum += touched[nth * PAGE] + area[nth * PAGE];
    SAY(sum);
}

static void ask_for_too_much(char *area) {
    int file = open("/proc/self/exe", O_RDONLY);
    char *other = map(NULL, 4, PROT_READ | PROT_WRITE, 0);
    fill(area);
    SAY(mmap(area, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED);
    SAY(mmap(area - PAGE, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED);
    SAY(mremap(other, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area) == MAP_FAILED);
    SAY(madvise(area, (size_t)1 << 50, MADV_DONTNEED) == -1 && errno == ENOMEM);
    int right = 1;
    for (int page = 0; page < PAGES; page++)
        right &= is_filled(area, page);
    SAY(right);
}

int main(int count, char **arguments) {
    char *area = map(NULL, PAGES, PROT_READ | PROT_WRITE, 0);
    (void)arguments;
    if (count > 1) {
        ask_for_too_much(area);
        return 0;
    }
    map_over(area);
    advise(area);
    align();
    lock(area);
    move_the_break();
    be_interrupted(area);
    return 0;
}
