// Touches as many pages of its heap as its first argument says, a secret, each for the first time;
// then ends as the second one says, if there is one.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGES = 256, PAGE = 4096 };

int main(int count, char **arguments) {
    int secret = count > 1 ? atoi(arguments[1]) : 0;
    const char *end = count > 2 ? arguments[2] : "";
    volatile unsigned char *pages = malloc(PAGES * PAGE);
    if (!pages) return 2;
    for (int touch = 0; touch < secret; touch++) pages[touch % PAGES * PAGE] += 1;
    if (!strcmp(end, "killed")) raise(SIGKILL);
    if (!strcmp(end, "at-once")) _exit(3);
    return 0;
}
