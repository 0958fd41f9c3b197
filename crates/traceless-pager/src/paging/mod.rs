//! Memory whose pages come and go, by userfaultfd.
//!
//! | module | what it holds |
//! |---|---|
//! | `uffd` | the kernel's orders |
//! | `memory`, `shared` | mappings; a store that others see |
//! | `arena` | how a page leaves and comes back |
//! | `frames` | which pages are resident, and which leaves next |
//! | `helped`, `helper` | `DetWoORAM` whose refreshes other processes do |
//! | `parked` | pages that may be missed before they leave |
//! | `pager` | serving faults, in a thread of its own |
//! | `region` | paged memory as a slice |
//! | `heap` | who has which paged memory |
//! | `settings` | how a program is to be paged, as it is told to it |
//! | `threads` | threads of our own in somebody's program |
//! | `stats` | what is counted |
//! | `error` | what can go wrong |

mod arena;
mod error;
mod frames;
mod heap;
mod helped;
mod helper;
mod memory;
mod pager;
mod parked;
mod region;
mod settings;
mod shared;
mod stats;
#[cfg(test)]
mod tests;
mod threads;
mod uffd;

pub use arena::Way;
pub use error::{Error, Result};
pub use frames::Policy;
pub use heap::{Heap, Pages};
pub use helped::{Help, Helped};
pub use memory::{Mapping, SharedNumbers};
pub use pager::{Config, FRAMES_MIN, Pager, SharedCounters, abort};
pub use region::PagedRegion;
pub use settings::{Recording, Scheme, Settings, VARIABLE};
pub use shared::SharedMemory;
pub use stats::{CounterFile, Counters, Summary};
