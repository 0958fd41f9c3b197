/* Closes all files but the first three, in each way there is, and uses its memory in between.
 * Prints the same, paged or not. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEN = 4 << 20, STEP = 4096, FILES = 4096 };

static unsigned char *memory;

static void use(const char *when) {
    unsigned sum = 0;
    for (int at = 0; at < LEN; at += STEP)
        sum = sum * 31 + ++memory[at];
    printf("%s: %u\n", when, sum);
    fflush(stdout);
}

int main(void) {
    memory = malloc(LEN);
    memset(memory, 1, LEN);
    use("at first");
    int closed = 0;
    for (int file = 3; file < FILES; file++)
        closed += close(file) == 0;
    printf("%d closed\n", closed);
    use("after close");
    for (int file = 3; file < FILES; file++)
        dup2(0, file);
    use("after dup2");
    printf("%d\n", close_range(3, ~0U, 0));
    use("after close_range");
    printf("%d %d\n", close_range(5, 4, 0), close_range(3, 3, 0));
    closefrom(3);
    use("after closefrom");
    printf("%d\n", dup(0));
    free(memory);
    return 0;
}
