//! Loaded before a program, this library puts its heap and its anonymous mappings under the pager.
//! The program needs no change.
//!
//! It replaces malloc and mmap. The pager's own memory, and memory that was allocated before paging
//! began, is never paged: the thread that serves page faults must not wait for one.
//!
//! File by file: `startup`: from loading to paging; `own_pager`: starting a pager that is a thread
//! here; `paged_memory`; `own_threads`: which threads are the pager's; `report`: messages, and the
//! exit after a failure; `libc_functions`: the C library's own functions, all looked up at the
//! beginning; `shutdown`: when only the pager's threads are left, or `traceless run` was killed;
//! `malloc`, `mappings`, `program_break`, `advice`, `locking`: the replaced calls; `protected`:
//! trusted memory off swap devices and out of core dumps; `syscall_filter`: system calls that the
//! kernel refuses where pages cannot be pinned; `files`: the pager's own, which the program cannot
//! close; `loader`: libraries that would bypass this one; `fork`: copies of the process, or why
//! there are none; `segv_action`: pages that are missing in a copy; `thread_table`: what the C
//! library reads there; `direct_io`; `affinity`: the processors of threads; `spawners`: functions
//! that start threads and programs; `loader_command`: how programs that load no library are run;
//! `trusted_heap`: memory that is never paged; `static_program`: programs that load no library;
//! `stand_in`: whether this process's is one; `go_program`: programs of Go that load libraries;
//! `system_calls`: what programs of both kinds request past the C library.
#![deny(unsafe_op_in_unsafe_fn)]

mod advice;
mod affinity;
mod direct_io;
mod files;
mod fork;
#[cfg(target_arch = "x86_64")]
mod go_program;
mod libc_functions;
mod loader;
#[cfg(target_arch = "x86_64")]
mod loader_command;
mod locking;
mod malloc;
mod mappings;
mod own_pager;
mod own_threads;
mod paged_memory;
mod program_break;
mod protected;
mod report;
mod segv_action;
mod shutdown;
#[cfg(target_arch = "x86_64")]
mod spawners;
mod stand_in;
mod startup;
mod static_data;
#[cfg(target_arch = "x86_64")]
mod static_program;
mod syscall_filter;
#[cfg(target_arch = "x86_64")]
mod system_calls;
mod thread_table;
mod trusted_heap;

#[global_allocator]
static OURS: trusted_heap::TrustedAllocator = trusted_heap::TrustedAllocator;
