//! What the kernel does for paging: page faults, mappings, locks, threads.
//!
//! | module | what it holds |
//! |---|---|
//! | `uffd` | system calls of userfaultfd |
//! | `memory` | mappings |
//! | `arena`, `own_pages`, `evict` | how a page leaves the program's memory and comes back |
//! | `locking` | what never reaches a swap device or a core dump |
//! | `own_files` | the library's files in a program that may close all files |
//! | `go_runtime` | whether a runtime is there that discards pages by system calls of its own |
//! | `threads` | the library's threads, and where the program's threads run |

pub mod arena;
pub mod evict;
pub mod go_runtime;
pub mod locking;
pub mod memory;
pub mod own_files;
mod own_pages;
pub mod threads;
pub mod uffd;
