//! Memory with pages that come and go, by userfaultfd.
//!
//! | module | what it holds |
//! |---|---|
//! | `uffd` | system calls of userfaultfd |
//! | `memory`, `shared` | mappings; a store in shared memory |
//! | `backing` | a file that pages go to |
//! | `ocalls` | a store behind a host that copies once more: to be compared with |
//! | `arena`, `way` | how a page leaves and comes back |
//! | `files` | the library's files in a program that may close all files |
//! | `frames` | which pages are resident, and which leaves next |
//! | `helped`, `crew`, `helper` | `DetWoORAM` with refreshes that helper processes do |
//! | `holding` | keeps the program's thread on the processor that serves its faults |
//! | `locking` | what never reaches a swap device or a core dump |
//! | `parked` | the standby list: pages that may come back before they leave |
//! | `serving` | answering faults: which page comes, and which leaves for it |
//! | `config` | the configuration of a pager |
//! | `pager` | paging by a thread of the program |
//! | `process` | paging by another process: the keys are not in the program, and it may fork |
//! | `region` | paged memory as a slice |
//! | `heap` | which object has which paged memory |
//! | `settings` | the configuration that a program gets in its environment |
//! | `threads` | the library's threads, and where the program's threads run |
//! | `wrapper` | whether the process that started the program was killed |
//! | `stats` | what is counted |
//! | `error` | what can go wrong |

mod arena;
mod backing;
mod config;
mod crew;
mod error;
mod files;
mod frames;
mod heap;
mod helped;
mod helper;
mod holding;
mod lines;
mod locking;
mod memory;
mod ocalls;
mod pager;
mod parked;
mod process;
mod region;
mod serving;
mod settings;
mod shared;
mod stats;
#[cfg(test)]
mod tests;
mod threads;
mod uffd;
mod way;
mod wrapper;

pub use config::{Config, HOLDS_PROGRAMS, SharedCounters, abort};
pub use error::{Error, Result};
pub use files::own_files;
pub use frames::Policy;
pub use heap::{Heap, Pages};
pub use helped::{Help, HelpedDetWo};
pub use locking::{Lock, lock, lock_this_process, may_lock, may_lock_all};
pub use memory::{Mapping, SharedNumbers, fix_addresses};
pub use pager::Pager;
pub use process::{Client, Exit, Forking, PagerProcess, serve};
pub use region::PagedRegion;
pub use serving::FRAMES_MIN;
pub use settings::{Recording, Scheme, Settings, VARIABLE};
pub use shared::SharedMemory;
pub use stats::{CounterFile, Counters, Summary};
pub use threads::spawn;
pub use traceless_sys::{Keeper, keep_large_memory};
pub use way::Way;
pub use wrapper::{ALIVE, Wrapper};
