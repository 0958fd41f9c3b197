/*
 * A supervisor that pages obliviously, without an operating system: what the runtime of an enclave
 * does, on QEMU's machine `virt`. It runs programs on memory of which few pages are in frames; the
 * rest is sealed in memory that it takes for untrusted.
 *
 * Programs run in the same mode. They have no stack and no code in paged memory, so that a fault
 * never comes while another one is served.
 */
#include "programs.h"
#include "traceless_pager.h"

#include <stddef.h>
#include <stdint.h>

#define PAGE TRACELESS_PAGER_PAGE_LEN
#define NONE TRACELESS_PAGER_NONE

/* Pages of a program, and frames for them, as in the paper; and how much a program does. */
#ifndef PAGES
#define PAGES 1024
#endif
#define FRAMES 15
#ifndef RANDOM_WRITES
#define RANDOM_WRITES 10000
#endif
#ifndef AVL_KEYS
#define AVL_KEYS 10000
#endif

/* Paged memory, as programs see it; memory of others; and what is the same without paging. */
#define PAGED UINT64_C(0x100000000)
#define UNTRUSTED ((uint8_t *)0x88000000)
#define UNPAGED ((uint8_t *)0x87000000)

/* Page tables for them. */
#define TABLES ((PAGES + 511) / 512)

#define STATE_MAX (4u << 20)

#define VALID 1u
#define READ_WRITE_EXECUTE (7u << 1)
#define READ_WRITE (3u << 1)
#define ACCESSED_DIRTY (3u << 6)

static uint64_t top_table[512] __attribute__((aligned(PAGE)));
static uint64_t middle_table[512] __attribute__((aligned(PAGE)));
static uint64_t last_tables[TABLES][512] __attribute__((aligned(PAGE)));
static uint8_t frames[FRAMES][PAGE] __attribute__((aligned(PAGE)));
static uint8_t state[STATE_MAX] __attribute__((aligned(PAGE)));

/* Which page is in each frame, and whose frame is next: first come, first to go. */
static uint64_t resident[FRAMES];
static unsigned turn;
static uint64_t faults;
static uint64_t store_len;

static long firmware(long extension, long function, long a, long b) {
    register long a0 __asm__("a0") = a;
    register long a1 __asm__("a1") = b;
    register long a6 __asm__("a6") = function;
    register long a7 __asm__("a7") = extension;
    __asm__ volatile("ecall" : "+r"(a0), "+r"(a1) : "r"(a6), "r"(a7) : "memory");
    return a0;
}

static void say(const char *text) {
    for (; *text; text++)
        firmware(1, 0, *text, 0);
}

static void say_number(uint64_t number) {
    char digits[21], *first = digits + 20;
    *first = 0;
    do
        *--first = (char)('0' + number % 10);
    while (number /= 10);
    say(first);
}

static _Noreturn void stop(const char *why) {
    say(why);
    say("\n");
    firmware(0x53525354, 0, 0, 0);
    for (;;)
        __asm__ volatile("wfi");
}

static uint64_t ticks(void) {
    uint64_t now;
    __asm__ volatile("rdtime %0" : "=r"(now));
    return now;
}

static int read_bytes(void *context, uint64_t at, uint8_t *into, size_t len) {
    (void)context;
    if (at + len > store_len)
        return -1;
    __builtin_memcpy(into, UNTRUSTED + at, len);
    return 0;
}

static int write_bytes(void *context, uint64_t at, const uint8_t *from, size_t len) {
    (void)context;
    if (at + len > store_len)
        return -1;
    __builtin_memcpy(UNTRUSTED + at, from, len);
    return 0;
}

/* This machine has no source of randomness: what follows can be guessed, and is for tests. The
 * runtime of an enclave asks its firmware. */
static int random_bytes(void *context, uint8_t *into, size_t len) {
    static uint64_t seed = 88172645463325252u;
    (void)context;
    for (size_t i = 0; i < len; i++) {
        seed = (seed ^ ticks()) * 6364136223846793005u + 1442695040888963407u;
        into[i] = (uint8_t)(seed >> 56);
    }
    return 0;
}

static void halt(void *context, const char *why) {
    (void)context;
    stop(why);
}

static const traceless_pager_store store = {NULL, read_bytes, write_bytes, random_bytes, halt};

static uint64_t entry(const void *frame, uint64_t rights) {
    return (uint64_t)frame >> 12 << 10 | rights | VALID;
}

static void forget_translations(void) {
    __asm__ volatile("sfence.vma" ::: "memory");
}

/* All of memory as it is, and paged memory behind it, none of which is there. */
static void map_memory(void) {
    uint64_t rights = READ_WRITE_EXECUTE | ACCESSED_DIRTY;
    top_table[2] = entry((void *)0x80000000, rights);
    top_table[PAGED >> 30] = entry(middle_table, 0);
    for (unsigned i = 0; i < TABLES; i++)
        middle_table[i] = entry(last_tables[i], 0);
    uint64_t table = UINT64_C(8) << 60 | (uint64_t)top_table >> 12;
    __asm__ volatile("csrw satp, %0" ::"r"(table));
    forget_translations();
}

static uint64_t *entry_of(uint64_t page) {
    return &last_tables[page / 512][page % 512];
}

/* A page that is not there was touched: one goes, it comes. */
static void fault(uint64_t page) {
    uint64_t out = resident[turn];
    uint8_t *frame = frames[turn];
    if (out != NONE) {
        *entry_of(out) = 0;
        forget_translations();
    }
    int code = traceless_pager_swap(state, out, page, frame);
    if (code != TRACELESS_PAGER_OK)
        stop("a page fault cannot be served");
    resident[turn] = page;
    turn = (turn + 1) % FRAMES;
    *entry_of(page) = entry(frame, READ_WRITE | ACCESSED_DIRTY);
    forget_translations();
    faults++;
}

void trapped(uint64_t cause, uint64_t address, uint64_t at) {
    int is_page_fault = cause == 13 || cause == 15;
    if (is_page_fault && address >= PAGED && address < PAGED + (uint64_t)PAGES * PAGE) {
        fault((address - PAGED) / PAGE);
        return;
    }
    say("cause ");
    say_number(cause);
    say(", address ");
    say_number(address);
    say(", at ");
    say_number(at);
    stop(": this must not be");
}

typedef uint64_t program(uint8_t *memory, uint64_t pages, uint64_t size);

static const struct {
    const char *name;
    program *run;
    uint64_t size;
} programs[] = {{"random_writes", random_writes, RANDOM_WRITES},
                {"sha_256", sha_256, 1},
                {"avl_tree", avl_tree, AVL_KEYS}};

static const struct {
    const char *name;
    uint32_t scheme, refresh;
} schemes[] = {{"plain", TRACELESS_PAGER_PLAIN, 1},      {"detwo-k3", TRACELESS_PAGER_DETWO, 3},
               {"detwo-k7", TRACELESS_PAGER_DETWO, 7},   {"detwo-k15", TRACELESS_PAGER_DETWO, 15},
               {"opam", TRACELESS_PAGER_OPAM, 1},        {"path", TRACELESS_PAGER_PATH, 1},
               {"path-fused", TRACELESS_PAGER_PATH_FUSED, 1}};

#define COUNT(of) (sizeof(of) / sizeof(of)[0])

/* Runs a program under a scheme, and tells how long it took. */
static uint64_t paged(unsigned nth, unsigned under, uint64_t expected) {
    traceless_pager_config config = {
        .pages = PAGES,
        .scheme = schemes[under].scheme,
        .cipher = TRACELESS_PAGER_CHACHA20_HMAC,
        .refresh = schemes[under].refresh};
    size_t len;
    if (traceless_pager_state_size(&config, &len) ||
        traceless_pager_store_size(&config, &store_len))
        stop("no such configuration");
    if (len > STATE_MAX)
        stop("there is not as much memory");
    if (traceless_pager_init(state, len, &config, &store) != TRACELESS_PAGER_OK)
        stop("no pager can be made");
    for (unsigned i = 0; i < FRAMES; i++)
        resident[i] = NONE;
    turn = 0;
    faults = 0;
    uint64_t begun = ticks();
    uint64_t found = programs[nth].run((uint8_t *)PAGED, PAGES, programs[nth].size);
    uint64_t took = ticks() - begun;
    for (uint64_t page = 0; page < PAGES; page++)
        *entry_of(page) = 0;
    forget_translations();
    if (traceless_pager_destroy(state) != TRACELESS_PAGER_OK)
        stop("the pager cannot be ended");
    if (found != expected)
        stop("the program has found something else");
    return took;
}

/* One line for each program and scheme: faults, ticks, and a hundred times plain paging. */
void supervise(void) {
    map_memory();
    for (unsigned nth = 0; nth < COUNT(programs); nth++) {
        __builtin_memset(UNPAGED, 0, (size_t)PAGES * PAGE);
        uint64_t expected = programs[nth].run(UNPAGED, PAGES, programs[nth].size);
        uint64_t plain = 0;
        for (unsigned under = 0; under < COUNT(schemes); under++) {
            uint64_t took = paged(nth, under, expected);
            plain = under == 0 ? took : plain;
            say(programs[nth].name);
            say(" ");
            say(schemes[under].name);
            say(" ");
            say_number(faults);
            say(" ");
            say_number(took);
            say(" ");
            say_number(took * 100 / plain);
            say("\n");
        }
    }
    stop("all is well");
}
