/*
 * Oblivious demand paging, for runtimes that handle their own page faults: which pages leave and
 * come cannot be told from what is written to untrusted memory. docs/paging.md says what each
 * scheme hides, and from whom.
 *
 * The library allocates nothing: a pager lives in memory that its caller gives, from
 * traceless_pager_init to traceless_pager_destroy. That memory must be trusted. Where pages go is
 * the caller's, too, and is not trusted: it is read and written by the functions of a table.
 *
 * Functions return TRACELESS_PAGER_OK, or a number above it that they tell of, or an error.
 */
#ifndef TRACELESS_PAGER_H
#define TRACELESS_PAGER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a page. */
#define TRACELESS_PAGER_PAGE_LEN 4096

/* No page: nothing leaves, or nothing comes. */
#define TRACELESS_PAGER_NONE UINT64_MAX

/* The memory of a pager begins at a multiple of it. */
#define TRACELESS_PAGER_ALIGN 16

/* Pages, and threads that may refresh at the same time, at most. */
#define TRACELESS_PAGER_PAGES_MAX UINT64_C(4294967296)
#define TRACELESS_PAGER_HELPERS_MAX 64

#define TRACELESS_PAGER_OK 0
/* A null pointer, a page that there is not, a configuration that cannot be. Nothing was done. */
#define TRACELESS_PAGER_INVALID (-1)
/* The memory is smaller than traceless_pager_state_size says. Nothing was done. */
#define TRACELESS_PAGER_TOO_SMALL (-2)
/* The store does not hold what was written there last: damaged, or put back. End the program. */
#define TRACELESS_PAGER_TAMPERED (-3)
/* A function of the table failed, or the key has sealed as many pages as it may. */
#define TRACELESS_PAGER_STORE (-4)
/* An earlier call failed. Nothing is left but to destroy the pager. */
#define TRACELESS_PAGER_FAILED (-5)
/* Another call is under way, in another thread or below this one. Nothing was done: try again. */
#define TRACELESS_PAGER_BUSY (-6)
/* In a tree: a page leaves that is not in a frame, or one comes that is. Nothing was done. */
#define TRACELESS_PAGER_MISPLACED (-7)
/* In a tree: too many pages wait for a slot. With honest randomness this never happens. */
#define TRACELESS_PAGER_STASH_FULL (-8)
/* There is no randomness. Nothing was made. */
#define TRACELESS_PAGER_RANDOM (-9)

/* Schemes. */
/* Insecure: each page has a place of its own. */
#define TRACELESS_PAGER_PLAIN 0
/* DetWoORAM. It hides writes, and needs reads that nobody sees. */
#define TRACELESS_PAGER_DETWO 1
/* The same; refreshes wait for traceless_pager_eager_step and traceless_pager_refresh_one. What is
 * left of them is done by the next swap. */
#define TRACELESS_PAGER_EAGER 2
/* Path ORAM, two accesses a fault. Trees hide reads, too. */
#define TRACELESS_PAGER_PATH 3
/* Path ORAM, one access a fault. */
#define TRACELESS_PAGER_PATH_FUSED 4
/* Ring ORAM, one access a fault. */
#define TRACELESS_PAGER_RING 5
/* OPAM. Insecure: which visits of a page belong together can be seen. */
#define TRACELESS_PAGER_OPAM 6

/* Ciphers: AEGIS-256; AES-256-GCM; ChaCha20 with HMAC-SHA-256, the fastest of them on a processor
 * without instructions for AES. */
#define TRACELESS_PAGER_AEGIS 0
#define TRACELESS_PAGER_GCM 1
#define TRACELESS_PAGER_CHACHA20_HMAC 2

/* What a pager is to be. */
typedef struct traceless_pager_config {
    /* Number of pages. */
    uint64_t pages;
    /* One of the schemes, and one of the ciphers. */
    uint32_t scheme;
    uint32_t cipher;
    /* DETWO, EAGER: pages refreshed for each that leaves, at most `pages`. */
    uint32_t refresh;
    /* EAGER: threads that may call traceless_pager_refresh_one at the same time. */
    uint32_t helpers;
    /* Trees: uppermost levels that are kept in trusted memory; fewer than there are. */
    uint32_t cached;
    /* Zero. */
    uint32_t reserved;
} traceless_pager_config;

/*
 * Where pages go, and a source of randomness. Each function gets the context, and returns 0 if it
 * went well. They may be called on any thread that calls functions of this library, and must not
 * call these themselves. `into` and `from` are trusted memory: bytes are sealed before they are
 * written, and opened only after they were read.
 */
typedef struct traceless_pager_store {
    void *context;
    /* Fills `into` with `len` bytes of the store, from byte `at` on. */
    int (*read)(void *context, uint64_t at, uint8_t *into, size_t len);
    /* Writes them. All of this is what an adversary may see. */
    int (*write)(void *context, uint64_t at, const uint8_t *from, size_t len);
    /* Fills `into` with bytes that nobody can know. Called by traceless_pager_init, and for eight
     * of them whenever pages are sealed, on any of those threads. Where it fails then, or gives
     * two copies of a pager's memory the same, as a virtual machine that is resumed twice, what
     * both seal from then on is hidden and protected no more. While the memory is not copied, as
     * that of an enclave is not, nothing depends on these. */
    int (*random)(void *context, uint8_t *into, size_t len);
    /* Told why, when a bug of this library was met: end the program. NULL if nobody is to be told;
     * the call that met it never returns. */
    void (*halt)(void *context, const char *why);
} traceless_pager_store;

/* Tells how many bytes of memory a pager takes. */
int traceless_pager_state_size(const traceless_pager_config *config, size_t *size);

/* Tells how many bytes of store a pager takes. What they hold at first does not matter. */
int traceless_pager_store_size(const traceless_pager_config *config, uint64_t *size);

/* Makes a pager in `len` bytes of memory, under a key drawn at random. All pages are zeros. */
int traceless_pager_init(void *memory, size_t len, const traceless_pager_config *config,
                         const traceless_pager_store *store);

/*
 * A page fault: the page `out` leaves `frame`, and then the page `wanted` comes there. Either may
 * be TRACELESS_PAGER_NONE. A page that never left is zeros. After an error `frame` is of no use,
 * but after those that say that nothing was done.
 */
int traceless_pager_swap(void *memory, uint64_t out, uint64_t wanted, uint8_t *frame);

/* The page's contents do not matter any more: it is zeros when it comes next. Writes nothing. */
int traceless_pager_forget(void *memory, uint64_t page);

/*
 * EAGER: does refreshes that wait, `at_most` so many, and returns how many it did: when there is
 * nothing else to do, or from a timer.
 */
int traceless_pager_eager_step(void *memory, uint32_t at_most);

/*
 * EAGER: does one refresh that waits, as thread number `helper` of those that the configuration
 * allows; returns 1 if there was one, 0 if there was none. It may run beside any other call but
 * traceless_pager_destroy, each helper for itself.
 */
int traceless_pager_refresh_one(void *memory, uint32_t helper);

/* Ends a pager that nobody uses any more: its keys, and all else in its memory, become zeros. */
int traceless_pager_destroy(void *memory);

/* The most bytes of its memory that a pager has used so far; 0 if there is none. */
size_t traceless_pager_state_used(void *memory);

#ifdef __cplusplus
}
#endif

#endif
