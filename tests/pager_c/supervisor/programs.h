#ifndef PROGRAMS_H
#define PROGRAMS_H

#include <stdint.h>

/* Each works on `pages` pages of zeros at `memory`, and returns what it has found. */
uint64_t random_writes(uint8_t *memory, uint64_t pages, uint64_t writes);
uint64_t sha_256(uint8_t *memory, uint64_t pages, uint64_t times);
uint64_t avl_tree(uint8_t *memory, uint64_t pages, uint64_t keys);

#endif
