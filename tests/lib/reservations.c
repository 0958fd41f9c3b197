/* Memory that programs reserve, place and protect as runtimes of languages do, paged or not: both
 * print the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, RESERVED = 1 << 18 };
enum { READ_WRITE = PROT_READ | PROT_WRITE, ALL = READ_WRITE | PROT_EXEC };

#define SAY(what) printf("%s: %d\n", #what, (int)(what))

static char *map(void *at, size_t pages, int protection, int flags) {
    return mmap(at, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void fill(char *area, int from) {
    for (int page = 0; page < PAGES; page++)
        memset(area + page * PAGE, from + page, PAGE);
}

/* How many pages are as `fill` left them. */
static int filled(const char *area, int from) {
    int sum = 0;
    for (int page = 0; page < PAGES; page++) {
        char first = area[page * PAGE], last = area[page * PAGE + PAGE - 1];
        sum += first == (char)(from + page) && last == first;
    }
    return sum;
}

/* How many pages hold zeros. */
static int zeros(const char *area) {
    int sum = 0;
    for (int page = 0; page < PAGES; page++)
        sum += area[page * PAGE] == 0 && area[page * PAGE + PAGE - 1] == 0;
    return sum;
}

/* A gigabyte is reserved, and parts of it are used, as heaps of Go, Java and JavaScript do. */
static void reserve(void) {
    char *area = map(NULL, RESERVED, PROT_NONE, MAP_NORESERVE);
    char *far = area + (size_t)(RESERVED - PAGES) * PAGE;
    SAY(mprotect(area, PAGES * PAGE, READ_WRITE));
    SAY(mprotect(far, PAGES * PAGE, READ_WRITE));
    fill(area, 1);
    fill(far, 7);
    SAY(filled(area, 1) + filled(far, 7));
    SAY(map(area, PAGES, READ_WRITE, MAP_FIXED) == area);
    SAY(zeros(area) + filled(far, 7));
    fill(area, 2);
    SAY(madvise(area, PAGES * PAGE, MADV_HUGEPAGE));
    SAY(madvise(area, PAGES * PAGE, MADV_DONTNEED));
    SAY(madvise(far, PAGES * PAGE, MADV_FREE));
    fill(far, 8);
    SAY(zeros(area) + filled(far, 8));
    fill(area, 3);
    SAY(map(area, PAGES, PROT_NONE, MAP_FIXED) == area);
    SAY(mprotect(area, PAGES * PAGE, READ_WRITE));
    SAY(zeros(area));
    /* The middle is given back. */
    SAY(munmap(area + PAGES * PAGE, (size_t)(RESERVED - 2 * PAGES) * PAGE));
    fill(area, 4);
    SAY(madvise(area, 2 * PAGES * PAGE, MADV_DONTNEED) == -1 && errno == ENOMEM);
    SAY(zeros(area));
    SAY(filled(far, 8));
    SAY(munmap(far, PAGES * PAGE) + munmap(area, PAGES * PAGE));
}

static void place(void) {
    char *near = map(NULL, 4 * PAGES, PROT_NONE, 0);
    SAY(munmap(near, 4 * PAGES * PAGE));
    SAY(map(near, PAGES, READ_WRITE, 0) == near);
    fill(near, 1);
    SAY(map(near, PAGES, READ_WRITE, MAP_FIXED_NOREPLACE) == MAP_FAILED && errno == EEXIST);
    char *next = near + PAGES * PAGE;
    SAY(map(next, PAGES, READ_WRITE, MAP_FIXED_NOREPLACE) == next);
    fill(next, 5);
    SAY(filled(near, 1) + filled(next, 5));
    /* A file in the place of some of it, and memory in the place of the file. */
    int file = open("/proc/self/exe", O_RDONLY);
    char head[4] = {0};
    SAY(mmap(next, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == next);
    SAY(pread(file, head, sizeof head, 0) == 4 && memcmp(head, next, sizeof head) == 0);
    SAY(mmap(next, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED);
    SAY(map(next, 1, READ_WRITE, MAP_FIXED) == next && *next == 0);
    SAY(filled(near, 1) + filled(next, 5));
    munmap(near, 2 * PAGES * PAGE);
}

/* A private mapping of a file, which the program changes, and the file does not. */
static void copy_file(void) {
    char name[] = "copied.XXXXXX", *page = malloc(PAGE);
    int file = mkstemp(name);
    for (int nth = 0; nth < PAGES; nth++) {
        memset(page, nth + 1, PAGE);
        if (write(file, page, nth < PAGES - 1 ? PAGE : 100) < 0)
            SAY(errno);
    }
    size_t len = (PAGES - 4) * PAGE + 100;
    char *area = mmap(NULL, len, READ_WRITE, MAP_PRIVATE, file, 3 * PAGE);
    SAY(area[0] + area[(PAGES - 4) * PAGE] + area[(PAGES - 4) * PAGE + 100]);
    memset(area, 99, len);
    SAY(pread(file, page, PAGE, 3 * PAGE) == PAGE && page[7] == 4);
    SAY(area[40 * PAGE]);
    SAY(munmap(area, len));
    area = mmap(NULL, PAGE, READ_WRITE, MAP_SHARED, file, 0);
    area[5] = 77;
    SAY(pread(file, page, PAGE, 0) == PAGE && page[5] == 77);
    SAY(mmap(NULL, PAGE, READ_WRITE, MAP_PRIVATE, file, 1) == MAP_FAILED && errno == EINVAL);
    munmap(area, PAGE);
    unlink(name);
    close(file);
    free(page);
}

static void resize(void) {
    char *area = map(NULL, PAGES, PROT_NONE, 0);
    mprotect(area, PAGES * PAGE, READ_WRITE);
    fill(area, 1);
    char *longer = mremap(area, PAGES * PAGE, 4 * PAGES * PAGE, MREMAP_MAYMOVE);
    SAY(filled(longer, 1) + zeros(longer + 3 * PAGES * PAGE));
    fill(longer + 3 * PAGES * PAGE, 9);
    SAY(mremap(longer, 4 * PAGES * PAGE, PAGES * PAGE, 0) == longer);
    char *elsewhere = map(NULL, PAGES, PROT_NONE, 0);
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    SAY(mremap(longer, PAGES * PAGE, PAGES * PAGE, flags, elsewhere) == elsewhere);
    SAY(filled(elsewhere, 1));
    flags = MREMAP_MAYMOVE | MREMAP_DONTUNMAP;
    char *other = mremap(elsewhere, PAGES * PAGE, PAGES * PAGE, flags, NULL);
    SAY(filled(other, 1) + zeros(elsewhere));
    fill(elsewhere, 4);
    SAY(filled(other, 1) + filled(elsewhere, 4));
    munmap(other, PAGES * PAGE);
    munmap(elsewhere, PAGES * PAGE);
}

static sigjmp_buf back;
static char *barrier;
static volatile sig_atomic_t writes;

static void on_fault(int number, siginfo_t *info, void *context) {
    char *at = info->si_addr;
    (void)number;
    (void)context;
    if (barrier != NULL && at >= barrier && at < barrier + PAGES * PAGE) {
        /* A collector notes which page is written to, and lets it be. */
        writes++;
        mprotect(barrier + (at - barrier) / PAGE * PAGE, PAGE, READ_WRITE);
        return;
    }
    siglongjmp(back, 1);
}

/* Whether a byte can be read, and written. */
static int access_to(volatile char *at) {
    volatile int may = 0;
    if (sigsetjmp(back, 1) == 0) {
        (void)*at;
        may = 1;
    }
    if (sigsetjmp(back, 1) == 0) {
        *at = *at;
        may += 2;
    }
    return may;
}

static void *use(void *area) {
    for (int round = 0; round < 20; round++)
        fill(area, round);
    return NULL;
}

/* What guards, collectors and compilers do with memory, wherever it is from. */
static void protect(char *area) {
    static const int kinds[] = {PROT_NONE, PROT_READ, READ_WRITE, PROT_READ | PROT_EXEC, ALL};
    char *other = map(NULL, PAGES, PROT_READ | PROT_WRITE, 0);
    fill(area, 1);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        SAY(mprotect(area + PAGE, (PAGES - 2) * PAGE, kinds[kind]));
        fill(other, 1);
        SAY(access_to(area) + 10 * access_to(area + PAGE) + 100 * access_to(area + 40 * PAGE));
        SAY(access_to(area + (PAGES - 1) * PAGE));
        SAY(write(open("/dev/null", O_WRONLY), area + 5 * PAGE, 1));
        SAY(read(open("/dev/zero", O_RDONLY), area + 6 * PAGE, 0));
    }
    SAY(filled(area, 1));
    SAY(mprotect(area, PAGES * PAGE, PROT_NONE));
    fill(other, 2);
    SAY(read(open("/dev/zero", O_RDONLY), area, 1) == -1 && errno == EFAULT);
    SAY(mprotect(area, PAGES * PAGE, READ_WRITE));
    SAY(filled(area, 1));
    for (int round = 0; round < 4; round++) {
        pthread_t thread;
        mprotect(area, PAGES * PAGE, PROT_READ);
        barrier = area;
        pthread_create(&thread, NULL, use, other);
        for (int page = 0; page < PAGES; page += 3)
            area[page * PAGE] = (char)(page + 1);
        pthread_join(thread, NULL);
        barrier = NULL;
        mprotect(area, PAGES * PAGE, READ_WRITE);
    }
    SAY(writes);
    writes = 0;
    SAY(filled(area, 1));
#ifdef __x86_64__
    /* mov eax, n; ret */
    int sum = 0;
    for (int page = 0; page < PAGES; page++) {
        memcpy(area + page * PAGE, (char[]){(char)0xb8, (char)page, 0, 0, 0, (char)0xc3}, 6);
        mprotect(area + page * PAGE, PAGE, page % 2 ? ALL : PROT_READ | PROT_EXEC);
    }
    fill(other, 3);
    for (int page = 0; page < PAGES; page++) {
        int (*code)(void) = (int (*)(void))(area + page * PAGE);
        sum += code();
        if (page % 2)
            area[page * PAGE + 1]++;
        sum += code();
    }
    SAY(sum);
    mprotect(area, PAGES * PAGE, READ_WRITE);
#endif
    munmap(other, PAGES * PAGE);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    reserve();
    place();
    copy_file();
    resize();
    char *area = map(NULL, PAGES, READ_WRITE, 0);
    protect(area);
    SAY(mprotect(area, PAGES * PAGE, PROT_NONE) + munmap(area, PAGES * PAGE));
    area = map(NULL, PAGES, PROT_NONE, MAP_NORESERVE | MAP_STACK);
    SAY(mprotect(area, PAGES * PAGE, READ_WRITE));
    protect(area);
    SAY(munmap(area, PAGES * PAGE));
    area = aligned_alloc(PAGE, PAGES * PAGE);
    protect(area);
    free(area);
    area = aligned_alloc(PAGE, PAGES * PAGE);
    memset(area, 0, PAGES * PAGE);
    SAY(zeros(area));
    free(area);
    return 0;
}
