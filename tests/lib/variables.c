// Variables of a program and of its library: initialised ones, zeros, pointers that the loader has
// relocated, and ones that are read only since then. Paged, it prints the same as natively. With
// LIBRARY defined it is the library; with OWN_MALLOC the program has a malloc of its own, which is
// locked while the process is copied.
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 1 << 18 };

struct variables {
    const char *name;
    uint32_t *values, *zeros;
    void *(*allocate)(size_t);
};

#ifdef LIBRARY
#define NAME library
#else
#define NAME program
#endif
#define JOINED(first, second) first##second
#define JOIN(first, second) JOINED(first, second)
#define TEXT(name) #name
#define TEXT_OF(name) TEXT(name)

static uint32_t values[WORDS] = {1, 2, 3, [WORDS - 1] = 4};
static uint32_t zeros[WORDS];
// It is made read only once it is relocated.
static const struct variables own = {TEXT_OF(NAME), values, zeros, malloc};

const struct variables *JOIN(variables_of_, NAME)(void) {
    return &own;
}

#ifndef LIBRARY
#ifdef OWN_MALLOC
static char area[1 << 24];
static size_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *malloc(size_t size) {
    pthread_mutex_lock(&lock);
    size_t *object = (size_t *)(area + used);
    used += (size + 31) / 16 * 16;
    pthread_mutex_unlock(&lock);
    *object = size;
    return object + 2;
}

void free(void *object) {
    (void)object;
}

void *calloc(size_t count, size_t size) {
    return malloc(count * size);
}

void *realloc(void *object, size_t size) {
    void *new = malloc(size);
    if (object) memcpy(new, object, ((size_t *)object)[-2] < size ? ((size_t *)object)[-2] : size);
    return new;
}

static void take(void) {
    pthread_mutex_lock(&lock);
}

static void give(void) {
    pthread_mutex_unlock(&lock);
}
#endif

const struct variables *variables_of_library(void);

static uint32_t sum(const struct variables *all) {
    uint32_t sum = 0;
    for (size_t at = 0; at < WORDS; at++) sum = sum * 31 + all->values[at] + all->zeros[at] * 7;
    return sum;
}

static void change(const struct variables *all) {
    for (size_t at = 0; at < WORDS; at++) all->zeros[at] = all->values[at] += (uint32_t)at * 977;
}

int main(void) {
#ifdef OWN_MALLOC
    pthread_atfork(take, give, give);
#endif
    const struct variables *both[] = {variables_of_program(), variables_of_library()};
    for (int nth = 0; nth < 2; nth++) {
        printf("%s: %u", both[nth]->name, sum(both[nth]));
        change(both[nth]);
        printf(" %u %d\n", sum(both[nth]), both[nth]->allocate == malloc);
    }
    fflush(stdout);
    pid_t copy = fork();
    if (copy < 0) {
        printf("fork fails: %s\n", strerror(errno));
        return 3;
    }
    for (int nth = 0; nth < 2; nth++) {
        if (copy == 0) change(both[nth]);
        if (copy > 0 && nth == 0) wait(NULL);
        printf("%s: %u\n", copy ? "the program" : "the copy", sum(both[nth]));
    }
    return 0;
}
#endif
