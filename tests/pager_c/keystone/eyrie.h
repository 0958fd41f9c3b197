/* What the glue needs of Eyrie, Keystone's runtime, as its headers declare it: mm/page_swap.h,
 * mm/paging.h, mm/mm.h, mm/vm.h, call/sbi.h and util/rt_util.h. In Eyrie these take its place. */
#ifndef EYRIE_H
#define EYRIE_H

#include <stddef.h>
#include <stdint.h>

/* What Eyrie calls, and the glue has. */
void pswap_init(void);
uintptr_t paging_alloc_backing_page(void);
unsigned int paging_remaining_pages(void);
void page_swap_epm(uintptr_t back_page, uintptr_t epm_page, uintptr_t swap_page);

/* What Eyrie has. */
uintptr_t paging_backing_region(void);
uintptr_t paging_backing_region_size(void);
uintptr_t translate(uintptr_t va);
size_t rt_util_getrandom(void *vaddr, size_t buflen);
void sbi_exit_enclave(uint64_t retval);
extern uintptr_t shared_buffer;
extern uintptr_t shared_buffer_size;

/* In the place of Eyrie's sbi_query_multimem and sbi_query_multimem_addr, by the linker's --wrap:
 * they return 0 if there is memory for pages that have no frame. */
uintptr_t __wrap_sbi_query_multimem(size_t *size);
uintptr_t __wrap_sbi_query_multimem_addr(uintptr_t *addr);

#endif
