// Writes to so many pages in turn, so many times in all: distinct PAGES WRITES. Each page is
// checked before it is written again.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    long pages = atol(argv[1]), writes = atol(argv[2]);
    long *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    if (memory == MAP_FAILED) {
        return 3;
    }
    for (long nth = 0; nth < writes; nth++) {
        long *page = memory + nth % pages * (PAGE / sizeof(long));
        long before = nth < pages ? 0 : nth - pages + 1;
        if (page[0] != before || page[PAGE / sizeof(long) - 1] != before) {
            puts("wrong data");
            return 1;
        }
        page[0] = page[PAGE / sizeof(long) - 1] = nth + 1;
    }
    puts("right");
}
