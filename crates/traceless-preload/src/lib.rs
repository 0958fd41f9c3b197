//! Loaded before a program, this library puts its heap and its anonymous mappings under the pager.
//! The program needs no change.
//!
//! It replaces malloc and mmap. The pager's own memory, and memory that was allocated before paging
//! began, is never paged: the thread that serves page faults must not wait for one.
//!
//! File by file: `begin`: from loading to paging; `paged`: the paged memory; `own`: which threads
//! are the pager's; `report`: messages, and the exit after a failure; `theirs`: the C library's own
//! functions, all looked up at the beginning; `ending`: when only the pager's threads are left, or
//! `traceless run` was killed; `heap`, `mappings`, `locking`: the replaced calls; `kept`: trusted
//! memory off swap devices and out of core dumps; `refusals`: system calls that the kernel refuses
//! where pages cannot be pinned; `files`: the pager's own, which the program cannot close;
//! `loading`: libraries that would bypass this one; `fork`: copies of the process, or why there are
//! none; `direct`: direct I/O; `place`: the processors of threads, and their inheritance;
//! `trusted`: memory that is never paged.
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
