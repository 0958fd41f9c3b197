/*
 * Stands in for Eyrie, to try the glue without an enclave: it asks where pages may go, and lets
 * pages leave and come, in the way of its mm/paging.c. A page table entry holds the address of a
 * frame, or that of a backing page.
 */
#include "eyrie.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, FRAMES = 15, PAGES = 300, STEPS = 3000, SHARED = 8 << 20 };

static uint8_t shared[SHARED] __attribute__((aligned(2 << 20)));
static uint8_t before[2 << 20];
static uint8_t frames[FRAMES][PAGE] __attribute__((aligned(PAGE)));
static uintptr_t region, region_size;

uintptr_t shared_buffer = (uintptr_t)shared;
uintptr_t shared_buffer_size = SHARED;

/* In the linker's eyes these are Eyrie's own, which find no memory on most machines. */
uintptr_t sbi_query_multimem(size_t *size);
uintptr_t sbi_query_multimem_addr(uintptr_t *addr);

uintptr_t paging_backing_region(void) {
    return region;
}

uintptr_t paging_backing_region_size(void) {
    return region_size;
}

uintptr_t translate(uintptr_t va) {
    return va;
}

static uint64_t state = 88172645463325252u;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

size_t rt_util_getrandom(void *vaddr, size_t buflen) {
    for (size_t i = 0; i < buflen; i++)
        ((uint8_t *)vaddr)[i] = (uint8_t)(draw() >> 32);
    return buflen;
}

void sbi_exit_enclave(uint64_t retval) {
    printf("the enclave has ended: %d\n", (int)retval);
    exit(2);
}

static struct entry {
    uint8_t *frame;
    uintptr_t back_page;
} entries[PAGES];
static uint8_t truth[PAGES];
static unsigned used;

static unsigned someone_in_a_frame(void) {
    for (;;) {
        unsigned page = (unsigned)(draw() % PAGES);
        if (entries[page].frame)
            return page;
    }
}

/* One leaves, and what was at `swap` comes to its frame. */
static uint8_t *evict_and_free_one(uintptr_t swap) {
    unsigned victim = someone_in_a_frame();
    uintptr_t back_page = swap ? swap : paging_alloc_backing_page();
    uint8_t *frame = entries[victim].frame;
    if (!back_page) {
        puts("there are no more backing pages");
        exit(1);
    }
    page_swap_epm(back_page, (uintptr_t)frame, swap);
    entries[victim] = (struct entry){NULL, back_page};
    return frame;
}

static uint8_t *touch(unsigned page) {
    struct entry *entry = &entries[page];
    if (!entry->frame && entry->back_page) {
        entry->frame = evict_and_free_one(entry->back_page);
    } else if (!entry->frame) {
        entry->frame = used < FRAMES ? frames[used++] : evict_and_free_one(0);
        memset(entry->frame, 0, PAGE);
    }
    return entry->frame;
}

int main(void) {
    memset(shared, 0x5a, sizeof shared);
    memcpy(before, shared, sizeof before);
    size_t size = 0;
    if (sbi_query_multimem(&size) || sbi_query_multimem_addr(&region))
        return puts("there is no backing store"), 1;
    region_size = size;
    pswap_init();
    unsigned remaining = paging_remaining_pages();
    for (int step = 0; step < STEPS; step++) {
        unsigned page = (unsigned)(draw() % PAGES);
        uint8_t *frame = touch(page);
        for (int at = 0; at < PAGE; at += 511)
            if (frame[at] != truth[page])
                return printf("page %u holds something else in step %d\n", page, step), 1;
        truth[page] = (uint8_t)step;
        memset(frame, truth[page], PAGE);
    }
    if (remaining - paging_remaining_pages() != PAGES - FRAMES)
        return puts("a page has more than one backing page"), 1;
    if (memcmp(before, shared, sizeof before) != 0)
        return puts("what is for calls was written to"), 1;
    while (paging_alloc_backing_page())
        remaining--;
    if (remaining != PAGES - FRAMES)
        return puts("backing pages were miscounted"), 1;
    printf("%d steps, %zu MiB: all is well\n", STEPS, size >> 20);
    return 0;
}
