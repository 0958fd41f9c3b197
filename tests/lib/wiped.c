/* Pages that are to be zeros in copies of the process, paged or not. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };

static char *area;

static void say(const char *who) {
    printf("%s: %d %d %d %d\n", who, area[0], area[PAGE], area[2 * PAGE], area[3 * PAGE]);
    fflush(stdout);
}

/* Tells what a copy has, and a copy of the copy. */
static void copy(int depth) {
    if (fork() == 0) {
        say(depth ? "copy of a copy" : "copy");
        area[0] = 9;
        if (!depth)
            copy(1);
        _exit(0);
    }
    wait(NULL);
}

int main(int count, char **arguments) {
    area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < PAGES; page++)
        memset(area + page * PAGE, 1 + page % 7, PAGE);
    madvise(area, 2 * PAGE, MADV_WIPEONFORK);
    madvise(area + PAGE, PAGE, MADV_KEEPONFORK);
    if (count > 1 && !strcmp(arguments[1], "apart")) {
        /* Natively a copy that touched this page would end. */
        madvise(area + 2 * PAGE, PAGE, MADV_DONTFORK);
        madvise(area + 3 * PAGE, PAGE, MADV_DONTFORK);
        madvise(area + 3 * PAGE, PAGE, MADV_DOFORK);
    }
    copy(0);
    say("program");
    return 0;
}
