//! Loaded before a program, this library puts its heap and its anonymous mappings under the
//! pager. The program is not changed, and not asked.
//!
//! It takes the place of malloc and of mmap. The pager's own memory, and what was asked for before
//! it began, is never paged: the thread that serves page faults must not wait for one.
//!
//! File by file: `begin`: from loading to paging; `paged`: the paged memory; `own`: which threads
//! are the pager's; `report`: what is said when it fails; `theirs`: the C library's own functions,
//! all found then; `ending`: when only our own threads are left, or `traceless run` was killed;
//! `heap`, `mappings`, `locking`: the calls it answers; `kept`: trusted memory off swap devices and
//! out of core dumps; `refusals`: what the kernel refuses where pages cannot be pinned; `files`:
//! the pager's own, which the program cannot close; `loading`: libraries that would not see it;
//! `fork`: copies of the process, or why there are none; `direct`: direct I/O; `place`: where
//! threads run, and what inherits it; `trusted`: memory that is never paged.
#![deny(unsafe_op_in_unsafe_fn)]

mod begin;
mod direct;
mod ending;
mod files;
mod fork;
mod heap;
mod kept;
mod loading;
mod locking;
mod mappings;
mod own;
mod paged;
mod place;
mod refusals;
mod report;
mod theirs;
mod trusted;

#[global_allocator]
static OURS: trusted::TrustedAllocator = trusted::TrustedAllocator;
