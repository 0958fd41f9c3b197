//! Memory whose pages come and go, by userfaultfd.
//!
//! | module | what it holds |
//! |---|---|
//! | `uffd` | the kernel's orders |
//! | `memory`, `shared` | mappings; a store that others see |
//! | `backing` | a file that pages go to |
//! | `ocalls` | the same, copied once more by a host: to be compared with |
//! | `arena`, `way` | how a page leaves and comes back |
//! | `files` | files of ours in somebody's program |
//! | `frames` | which pages are resident, and which leaves next |
//! | `helped`, `crew`, `helper` | `DetWoORAM` whose refreshes other processes do |
//! | `holding` | the program's thread, kept where its faults are served |
//! | `locking` | what never reaches a swap device or a core dump |
//! | `parked` | pages that may be missed before they leave |
//! | `serving` | answering faults: which page comes, and who leaves for it |
//! | `config` | how to page |
//! | `pager` | all of it in a thread of the program |
//! | `process` | all of it in another process: the keys are not in the program, and it may fork |
//! | `region` | paged memory as a slice |
//! | `heap` | who has which paged memory |
//! | `settings` | how a program is to be paged, as it is told to it |
//! | `threads` | threads of our own in somebody's program |
//! | `wrapper` | whether whoever started the program was killed |
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
