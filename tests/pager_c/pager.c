/* What the pager does for C: each scheme keeps pages, in exactly the memory that it asks for; what
 * is wrong is told by a code; what a write-only scheme writes does not depend on the pages. */
#include "traceless_pager.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE TRACELESS_PAGER_PAGE_LEN
#define NONE TRACELESS_PAGER_NONE
#define FRAMES 4
#define GUARD 64

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            printf("line %d, %s, %lu pages: %s\n", __LINE__, name, (unsigned long)pages, \
                   #what);                                                               \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

static const char *const names[] = {"plain",      "detwo", "eager", "path",
                                    "path-fused", "ring",  "opam"};

/* The untrusted side: bytes, a hash of what was done with them, and a time to fail. */
struct untrusted {
    uint8_t *bytes;
    uint64_t len;
    uint64_t writes;
    uint64_t places;
    uint64_t state;
    int fails;
};

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int read_bytes(void *context, uint64_t at, uint8_t *into, size_t len) {
    struct untrusted *store = context;
    if (store->fails || at + len > store->len)
        return -1;
    memcpy(into, store->bytes + at, len);
    return 0;
}

static int write_bytes(void *context, uint64_t at, const uint8_t *from, size_t len) {
    struct untrusted *store = context;
    if (store->fails || at + len > store->len)
        return -1;
    memcpy(store->bytes + at, from, len);
    store->writes++;
    store->places = (store->places ^ (at + len)) * UINT64_C(1099511628211);
    return 0;
}

/* Good enough for a test, and for nothing else. */
static int random_bytes(void *context, uint8_t *into, size_t len) {
    struct untrusted *store = context;
    if (store->fails)
        return -1;
    for (size_t i = 0; i < len; i++)
        into[i] = (uint8_t)(draw(&store->state) >> 32);
    return 0;
}

static void halt(void *context, const char *why) {
    (void)context;
    printf("%s\n", why);
    exit(3);
}

/* A pager in memory that is as long as it has to be, with guards around it. */
struct subject {
    struct untrusted store;
    traceless_pager_store table;
    traceless_pager_config config;
    size_t len;
    uint8_t *allocated;
    void *memory;
};

static struct subject begin(const char *name, traceless_pager_config config) {
    struct subject it;
    uint64_t pages = config.pages;
    memset(&it, 0, sizeof it);
    it.config = config;
    CHECK(traceless_pager_state_size(&config, &it.len) == TRACELESS_PAGER_OK);
    CHECK(traceless_pager_store_size(&config, &it.store.len) == TRACELESS_PAGER_OK);
    it.store.bytes = malloc(it.store.len);
    it.store.state = 88172645463325252u;
    it.allocated = aligned_alloc(TRACELESS_PAGER_ALIGN, (it.len + 2 * GUARD + 15) / 16 * 16);
    CHECK(it.store.bytes && it.allocated);
    memset(it.allocated, 0xa5, it.len + 2 * GUARD);
    it.memory = it.allocated + GUARD;
    return it;
}

static int make(struct subject *it) {
    traceless_pager_store table = {&it->store, read_bytes, write_bytes, random_bytes, halt};
    it->table = table;
    return traceless_pager_init(it->memory, it->len, &it->config, &it->table);
}

static void end(const char *name, struct subject *it) {
    uint64_t pages = it->config.pages;
    CHECK(traceless_pager_destroy(it->memory) == TRACELESS_PAGER_OK);
    for (size_t i = 0; i < it->len; i++)
        CHECK(it->allocated[GUARD + i] == 0);
    for (size_t i = 0; i < GUARD; i++)
        CHECK(it->allocated[i] == 0xa5 && it->allocated[GUARD + it->len + i] == 0xa5);
    uint8_t frame[PAGE];
    CHECK(traceless_pager_swap(it->memory, NONE, 0, frame) == TRACELESS_PAGER_INVALID);
    CHECK(traceless_pager_destroy(it->memory) == TRACELESS_PAGER_INVALID);
    free(it->allocated);
    free(it->store.bytes);
}

/* Pages that come and go through a few frames are as they were left. */
static void keeps_pages(const char *name, traceless_pager_config config, unsigned faults) {
    uint64_t pages = config.pages, state = 1234567;
    struct subject it = begin(name, config);
    CHECK(make(&it) == TRACELESS_PAGER_OK);
    /* The first bytes of each page, which the rest follows from. */
    uint64_t *truth = calloc(pages, sizeof *truth);
    uint64_t resident[FRAMES] = {NONE, NONE, NONE, NONE};
    static uint8_t frames[FRAMES][PAGE];
    for (unsigned fault = 0; fault < faults; fault++) {
        uint64_t wanted = draw(&state) % pages;
        int here = 0;
        for (int i = 0; i < FRAMES; i++)
            here |= resident[i] == wanted;
        if (here)
            continue;
        int f = (int)(draw(&state) % FRAMES);
        CHECK(traceless_pager_swap(it.memory, resident[f], wanted, frames[f]) ==
              TRACELESS_PAGER_OK);
        resident[f] = wanted;
        uint64_t word;
        for (size_t i = 0; i < PAGE; i += sizeof word) {
            memcpy(&word, frames[f] + i, sizeof word);
            CHECK(word == (truth[wanted] ? truth[wanted] + i : 0));
        }
        truth[wanted] = draw(&state);
        for (size_t i = 0; i < PAGE; i += sizeof word) {
            word = truth[wanted] + i;
            memcpy(frames[f] + i, &word, sizeof word);
        }
        if (fault % 3 == 0)
            traceless_pager_eager_step(it.memory, 2);
        if (fault % 5 == 0 && config.helpers > 0)
            while (traceless_pager_refresh_one(it.memory, 0) > 0)
                ;
        if (fault % 41 == 40) {
            CHECK(traceless_pager_forget(it.memory, wanted) == TRACELESS_PAGER_OK);
            truth[wanted] = 0;
            resident[f] = NONE;
        }
    }
    size_t used = traceless_pager_state_used(it.memory);
    CHECK(used > 0 && used <= it.len);
    printf("%s, %lu pages: %lu bytes of %lu used\n", name, (unsigned long)pages,
           (unsigned long)used, (unsigned long)it.len);
    /* What is asked for is not much more than what is used. */
    CHECK(it.len - used < 32 * 1024 + used / 16);
    free(truth);
    end(name, &it);
}

/* What a program that touches pages in some order has written, as a hash of places. */
static uint64_t places(uint32_t scheme, uint64_t pages, uint64_t step, unsigned faults) {
    const char *name = names[scheme];
    traceless_pager_config config = {pages, scheme, 0, 3, 0, 0, 0};
    struct subject it = begin(name, config);
    CHECK(make(&it) == TRACELESS_PAGER_OK);
    uint8_t frame[PAGE] = {0};
    uint64_t resident = 0;
    for (unsigned fault = 0; fault < faults; fault++) {
        uint64_t wanted = (resident + step) % pages;
        CHECK(traceless_pager_swap(it.memory, resident, wanted, frame) == TRACELESS_PAGER_OK);
        resident = wanted;
    }
    uint64_t hash = it.store.places;
    CHECK(it.store.writes >= faults);
    end(name, &it);
    return hash;
}

static void tells_nothing(unsigned faults) {
    const char *name = "detwo";
    uint64_t pages = 64;
    uint32_t equal[] = {TRACELESS_PAGER_DETWO, TRACELESS_PAGER_EAGER};
    for (int i = 0; i < 2; i++)
        CHECK(places(equal[i], pages, 1, faults) == places(equal[i], pages, 17, faults));
    CHECK(places(TRACELESS_PAGER_PLAIN, pages, 1, faults) !=
          places(TRACELESS_PAGER_PLAIN, pages, 17, faults));
}

static void refuses(void) {
    const char *name = "refusals";
    uint64_t pages = 64, size;
    size_t len;
    traceless_pager_config good = {64, TRACELESS_PAGER_DETWO, 0, 3, 0, 0, 0}, bad;
#define REFUSED(field, value)                                                            \
    bad = good;                                                                          \
    bad.field = value;                                                                   \
    CHECK(traceless_pager_state_size(&bad, &len) == TRACELESS_PAGER_INVALID);            \
    CHECK(traceless_pager_store_size(&bad, &size) == TRACELESS_PAGER_INVALID)
    REFUSED(pages, 0);
    REFUSED(pages, 2);
    REFUSED(pages, TRACELESS_PAGER_PAGES_MAX + 1);
    REFUSED(scheme, 7);
    REFUSED(cipher, 9);
    REFUSED(refresh, 0);
    REFUSED(helpers, TRACELESS_PAGER_HELPERS_MAX + 1);
    REFUSED(reserved, 1);
    good.scheme = TRACELESS_PAGER_PATH_FUSED;
    REFUSED(cached, 40);
    good.scheme = TRACELESS_PAGER_DETWO;
    CHECK(traceless_pager_state_size(NULL, &len) == TRACELESS_PAGER_INVALID);
    CHECK(traceless_pager_state_size(&good, NULL) == TRACELESS_PAGER_INVALID);

    uint8_t frame[PAGE] = {1};
    struct subject it = begin(name, good);
    it.len--;
    CHECK(make(&it) == TRACELESS_PAGER_TOO_SMALL);
    it.len++;
    it.memory = it.allocated + 1;
    CHECK(make(&it) == TRACELESS_PAGER_INVALID);
    it.memory = it.allocated + GUARD;
    it.store.fails = 1;
    CHECK(make(&it) == TRACELESS_PAGER_RANDOM);
    it.store.fails = 0;
    it.table.write = NULL;
    CHECK(traceless_pager_init(it.memory, it.len, &it.config, &it.table) ==
          TRACELESS_PAGER_INVALID);
    CHECK(traceless_pager_init(NULL, it.len, &it.config, &it.table) == TRACELESS_PAGER_INVALID);
    CHECK(traceless_pager_swap(NULL, 0, 1, frame) == TRACELESS_PAGER_INVALID);
    CHECK(make(&it) == TRACELESS_PAGER_OK);
    CHECK(traceless_pager_swap(it.memory, 64, 1, frame) == TRACELESS_PAGER_INVALID);
    CHECK(traceless_pager_swap(it.memory, 1, 1, frame) == TRACELESS_PAGER_INVALID);
    CHECK(traceless_pager_swap(it.memory, 0, 1, NULL) == TRACELESS_PAGER_INVALID);
    CHECK(traceless_pager_forget(it.memory, 64) == TRACELESS_PAGER_INVALID);
    CHECK(traceless_pager_refresh_one(it.memory, 0) == TRACELESS_PAGER_INVALID);
    CHECK(traceless_pager_eager_step(it.memory, 1) == 0);
    CHECK(traceless_pager_swap(it.memory, 0, 1, frame) == TRACELESS_PAGER_OK);
    /* A changed byte is an error, and so is all that comes after it. */
    for (uint64_t i = 0; i < it.store.len; i++)
        it.store.bytes[i] ^= 1;
    CHECK(traceless_pager_swap(it.memory, 1, 0, frame) == TRACELESS_PAGER_TAMPERED);
    CHECK(traceless_pager_swap(it.memory, NONE, 1, frame) == TRACELESS_PAGER_FAILED);
    CHECK(traceless_pager_forget(it.memory, 1) == TRACELESS_PAGER_FAILED);
    end(name, &it);

    it = begin(name, good);
    CHECK(make(&it) == TRACELESS_PAGER_OK);
    it.store.fails = 1;
    CHECK(traceless_pager_swap(it.memory, 0, 1, frame) == TRACELESS_PAGER_STORE);
    end(name, &it);

    good.scheme = TRACELESS_PAGER_RING;
    it = begin(name, good);
    CHECK(make(&it) == TRACELESS_PAGER_OK);
    CHECK(traceless_pager_swap(it.memory, 0, 1, frame) == TRACELESS_PAGER_OK);
    CHECK(traceless_pager_swap(it.memory, 0, NONE, frame) == TRACELESS_PAGER_MISPLACED);
    CHECK(traceless_pager_swap(it.memory, 1, 0, frame) == TRACELESS_PAGER_OK);
    end(name, &it);
}

int main(int argc, char **argv) {
    unsigned faults = argc > 1 ? (unsigned)atoi(argv[1]) : 2000;
    for (uint32_t cipher = 0; cipher < 3; cipher++) {
        for (uint32_t scheme = 0; scheme < 7; scheme++) {
            traceless_pager_config config = {100, scheme, cipher, 3, 1, 0, 0};
            keeps_pages(names[scheme], config, faults);
            config.pages = 1000;
            config.refresh = 15;
            config.cached = scheme >= TRACELESS_PAGER_PATH ? 2 : 0;
            config.helpers = 3;
            keeps_pages(names[scheme], config, faults / 4);
        }
    }
    tells_nothing(faults / 2);
    refuses();
    printf("all is well\n");
    return 0;
}
