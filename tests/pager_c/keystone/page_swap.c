/*
 * In the place of Eyrie's mm/page_swap.c: pages go to memory that the operating system sees, and
 * what is written there tells nothing. The rest of Eyrie stays as it is.
 */
#include "eyrie.h"
#include "traceless_pager.h"

#define PAGE TRACELESS_PAGER_PAGE_LEN
#define MEGAPAGE ((uintptr_t)2 << 20)

/* Pages of all programs, at most, and the memory of the enclave that DetWoORAM takes for them. */
#ifndef PAGES_MAX
#define PAGES_MAX 16384
#endif
#define STATE_LEN (8 * PAGES_MAX + (32 << 10))

/* What is left of the shared buffer for calls to the host. */
#define CALLS_LEN MEGAPAGE

static uint8_t state[STATE_LEN] __attribute__((aligned(TRACELESS_PAGER_ALIGN)));

/*
 * Eyrie calls a page by an address of the backing region, and gives that of the page that comes to
 * the one that leaves. Here a page has its number as long as it is away, one number is always
 * spare, and this is the number behind each address. What lies at the address is another matter.
 */
static uint32_t page_of[PAGES_MAX];
static uint32_t spare;
static uint32_t pages;
static uint32_t given;

static void fail(void) {
    for (;;)
        sbi_exit_enclave(1);
}

static uint8_t *backing(uint64_t at, size_t len) {
    uint64_t size = paging_backing_region_size();
    return at > size || len > size - at ? NULL : (uint8_t *)(paging_backing_region() + at);
}

static int read_bytes(void *context, uint64_t at, uint8_t *into, size_t len) {
    const uint8_t *from = backing(at, len);
    (void)context;
    if (!from)
        return -1;
    __builtin_memcpy(into, from, len);
    return 0;
}

static int write_bytes(void *context, uint64_t at, const uint8_t *from, size_t len) {
    uint8_t *into = backing(at, len);
    (void)context;
    if (!into)
        return -1;
    __builtin_memcpy(into, from, len);
    return 0;
}

static int random_bytes(void *context, uint8_t *into, size_t len) {
    (void)context;
    return rt_util_getrandom(into, len) == len ? 0 : -1;
}

static void halt(void *context, const char *why) {
    (void)context;
    (void)why;
    fail();
}

static const traceless_pager_store store = {NULL, read_bytes, write_bytes, random_bytes, halt};

static traceless_pager_config config_for(uint32_t wanted) {
    return (traceless_pager_config){.pages = wanted,
                                    .scheme = TRACELESS_PAGER_DETWO,
                                    .cipher = TRACELESS_PAGER_CHACHA20_HMAC,
                                    .refresh = 3};
}

static int has_room_for(uint32_t wanted) {
    traceless_pager_config config = config_for(wanted);
    uint64_t size;
    return traceless_pager_store_size(&config, &size) == TRACELESS_PAGER_OK &&
           size <= paging_backing_region_size();
}

/* As many pages as the backing region has room for. */
void pswap_init(void) {
    uint32_t fit = 3, too_many = PAGES_MAX + 1;
    while (too_many - fit > 1) {
        uint32_t middle = fit + (too_many - fit) / 2;
        if (has_room_for(middle))
            fit = middle;
        else
            too_many = middle;
    }
    traceless_pager_config config = config_for(fit);
    if (traceless_pager_init(state, sizeof state, &config, &store) != TRACELESS_PAGER_OK)
        fail();
    pages = fit;
    spare = fit - 1;
    given = 0;
    for (uint32_t page = 0; page < fit; page++)
        page_of[page] = page;
}

unsigned int paging_remaining_pages(void) {
    return pages - 1 - given;
}

/* An address for a page that has none yet; 0 if there are no more. */
uintptr_t paging_alloc_backing_page(void) {
    if (paging_remaining_pages() == 0)
        return 0;
    return paging_backing_region() + (uintptr_t)given++ * PAGE;
}

/* The page in the frame leaves, and is what `back_page` names from now on. What `swap_page` named,
 * the same address, comes; nothing if it is 0. */
void page_swap_epm(uintptr_t back_page, uintptr_t epm_page, uintptr_t swap_page) {
    uintptr_t name = (back_page - paging_backing_region()) / PAGE;
    if (back_page < paging_backing_region() || name >= given ||
        (swap_page && swap_page != back_page))
        fail();
    uint64_t leaves = page_of[name], comes = TRACELESS_PAGER_NONE;
    if (swap_page) {
        comes = page_of[name];
        leaves = spare;
        page_of[name] = spare;
        spare = (uint32_t)comes;
    }
    /* Whatever it says: the enclave must not go on. */
    if (traceless_pager_swap(state, leaves, comes, (uint8_t *)epm_page) != TRACELESS_PAGER_OK)
        fail();
}

/* The shared buffer without what calls take, in whole megapages, which is how Eyrie maps it. */
static uintptr_t shared_for_pages(size_t *size) {
    uintptr_t start = translate(shared_buffer) + CALLS_LEN;
    uintptr_t end = translate(shared_buffer) + shared_buffer_size;
    start = (start + MEGAPAGE - 1) / MEGAPAGE * MEGAPAGE;
    *size = start < end ? (end - start) / MEGAPAGE * MEGAPAGE : 0;
    return start;
}

uintptr_t __wrap_sbi_query_multimem(size_t *size) {
    shared_for_pages(size);
    return *size == 0;
}

uintptr_t __wrap_sbi_query_multimem_addr(uintptr_t *addr) {
    size_t size;
    *addr = shared_for_pages(&size);
    return size == 0;
}
