// Touches pages of its heap in an order that follows from its first argument, a secret: as many
// touches whatever it is, and each of them a page that was not touched for long.
#include <stdlib.h>

enum { PAGES = 256, PAGE = 4096, ROUNDS = 20 };

int main(int count, char **arguments) {
    unsigned secret = count > 1 ? (unsigned)atoi(arguments[1]) : 0;
    volatile unsigned char *pages = malloc(PAGES * PAGE);
    unsigned sum = 0;
    if (!pages) return 2;
    for (unsigned touch = 0; touch < PAGES * ROUNDS; touch++) {
        unsigned page = (touch * (2 * secret + 1) + secret) % PAGES;
        sum += pages[page * PAGE];
        pages[page * PAGE] = (unsigned char)(sum + secret);
    }
    return 0;
}
