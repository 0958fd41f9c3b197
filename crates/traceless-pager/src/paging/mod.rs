//! Memory whose pages come and go, by userfaultfd.
//!
//! | module | what it holds |
//! |---|---|
//! | `uffd` | the kernel's orders |
//! | `memory`, `shared` | mappings; a store that others see |
//! | `arena` | how a page leaves and comes back |
//! | `frames` | which pages are resident, and which leaves next |
//! | `pager` | serving faults, in a thread of its own |
//! | `region` | paged memory as a slice |
//! | `stats` | what is counted |
//! | `error` | what can go wrong |

mod arena;
mod error;
mod frames;
mod memory;
mod pager;
mod region;
mod shared;
mod stats;
#[cfg(test)]
mod tests;
mod uffd;

pub use arena::Way;
pub use error::{Error, Result};
pub use frames::Policy;
pub use memory::Mapping;
pub use pager::{Config, FRAMES_MIN, Pager, abort};
pub use region::PagedRegion;
pub use shared::SharedMemory;
pub use stats::{Counters, Summary};
