//! Loaded before a program, this library puts its heap and its anonymous mappings under the
//! pager. The program is not changed, and not asked.
//!
//! It takes the place of malloc and of mmap. The pager's own memory, and what was asked for before
//! it began, is never paged: the thread that serves page faults must not wait for one.
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
static OURS: trusted::Trusted = trusted::Trusted;
