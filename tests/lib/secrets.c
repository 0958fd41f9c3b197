/* Plants a secret many times in its memory, and then waits, or ends with a core dump. Paged or not.
 *
 *   secrets OWNER ACTION...
 *
 * OWNER is `malloc` or `mmap`. Actions, in order: `lock`, `lockall`, `unlockall`, `mark` (leave it
 * out of core dumps), `restore` (take that back), `pageout` (ask the kernel to swap all of it out),
 * `wait` (until standard input ends), `dump` (end with a core dump). What each returns is printed.
 *
 * The secret stands nowhere else in the program: it is made byte by byte where it is planted. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 80, SECRET = 32 };

static void plant(volatile unsigned char *area) {
    for (int at = 0; at < PAGES * PAGE; at++)
        area[at] = (unsigned char)(at % SECRET * 167 + 91) ^ 0x5c;
}

static int is_whole(const volatile unsigned char *area) {
    for (int at = 0; at < PAGES * PAGE; at++)
        if (area[at] != ((unsigned char)(at % SECRET * 167 + 91) ^ 0x5c))
            return 0;
    return 1;
}

static int act(char *area, const char *action) {
    if (!strcmp(action, "lock"))
        return mlock(area, PAGES * PAGE);
    if (!strcmp(action, "lockall"))
        return mlockall(MCL_CURRENT | MCL_FUTURE);
    if (!strcmp(action, "unlockall"))
        return munlockall();
    if (!strcmp(action, "mark"))
        return madvise(area, PAGES * PAGE, MADV_DONTDUMP);
    if (!strcmp(action, "restore"))
        return madvise(area, PAGES * PAGE, MADV_DODUMP);
    if (!strcmp(action, "pageout")) {
        /* Past the C library. It fails where memory is locked. */
        syscall(SYS_madvise, area, PAGES * PAGE, MADV_PAGEOUT);
        return 0;
    }
    if (!strcmp(action, "wait")) {
        while (getchar() != EOF) {
        }
        return is_whole((unsigned char *)area) ? 0 : -2;
    }
    if (!strcmp(action, "dump"))
        raise(SIGABRT);
    return -3;
}

int main(int count, char **arguments) {
    char *area;
    if (count > 1 && !strcmp(arguments[1], "malloc"))
        area = aligned_alloc(PAGE, PAGES * PAGE);
    else
        area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    plant((unsigned char *)area);
    for (int nth = 2; nth < count; nth++) {
        errno = 0;
        int done = act(area, arguments[nth]);
        printf("%s: %d %s\n", arguments[nth], done, done < 0 ? strerror(errno) : "");
        fflush(stdout);
    }
    return 0;
}
