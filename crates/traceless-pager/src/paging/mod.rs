//! Memory with pages that come and go, by userfaultfd.
//!
//! | module | what it holds |
//! |---|---|
//! | `kernel` | system calls: userfaultfd, mappings, locks, threads |
//! | `faults` | answering faults: which page comes, and which leaves for it |
//! | `refresh` | `DetWoORAM` with refreshes that helper processes do |
//! | `store` | where sealed pages lie: shared memory, a file, or a network block device |
//! | `pager` | paging by a thread of the program |
//! | `copy` | a copy of the pages for a copy of the program, which a thread of it pages
//! | `process` | paging by another process: the keys are not in the program, and it may fork |
//! | `region` | paged memory as a slice |
//! | `heap` | which object has which paged memory |
//! | `ranges` | sets of addresses, as of memory that is paged beside the heap |
//! | `config` | the configuration of a pager |
//! | `settings` | the configuration that a program gets in its environment |
//! | `construction` | the scheme and the store that the settings describe |
//! | `wrapper` | whether the process that started the program was killed |
//! | `counters` | what is counted |
//! | `program` | finding a program, and checking whether it can be paged |
//! | `program_counters` | the counters of all programs that are paged together |
//! | `stats_socket` (feature) | a socket that says what paging does |
//! | `unpaged` | what of a process's memory is not paged |
//! | `number_file` | counters, and what a live page shows, in files that several processes map |
//! | `elf` | the headers of programs' files |
//! | `error` | what can go wrong |

mod config;
mod construction;
mod copy;
mod counters;
mod elf;
mod error;
mod faults;
mod heap;
mod kernel;
mod number_file;
mod pager;
mod process;
mod program;
mod program_counters;
mod ranges;
mod refresh;
mod region;
mod settings;
#[cfg(feature = "stats-socket")]
mod stats_socket;
mod store;
#[cfg(test)]
mod tests;
mod unpaged;
mod wrapper;

pub use config::{Config, PIN_PROGRAM_THREADS, SharedCounters, abort};
pub use construction::Recording;
pub use copy::PagesCopy;
pub use counters::{CounterFile, Counters, Summary};
pub use elf::{ElfHeaders, Segment};
pub use error::{Error, Result};
pub use faults::frames::Policy;
pub use faults::pace::{Pace, TICKS_PER_SECOND_MAX, Ticks};
pub use faults::service::FRAMES_MIN;
pub use heap::{Heap, Pages};
pub use kernel::evict::EvictMethod;
pub use kernel::go_runtime::{go_code, has_go_runtime, note_program_trapped};
pub use kernel::locking::{Lock, lock, lock_this_process, may_lock, may_lock_all};
pub use kernel::memory::{Mapping, SharedNumbers, fix_addresses};
pub use kernel::own_files::own_files;
pub use kernel::threads::{SignalsBlocked, spawn, without_signals};
pub use number_file::{ActivityFile, AtomicNumbers, NumberFile};
pub use pager::{Pager, PagerThread};
pub use process::{Client, Exit, Forking, PagerProcess, serve};
pub use program::{PageableProgram, ProgramError, StaticProgram, find_program};
pub use program_counters::ProgramCounters;
pub use ranges::Ranges;
pub use refresh::scheme::{HelperDetWo, RefreshMode};
pub use region::PagedRegion;
pub use settings::{Scheme, Settings, VARIABLE};
#[cfg(feature = "stats-socket")]
pub use stats_socket::StatsSocket;
pub use store::nbd_address::{NbdAddress, NbdPlace};
pub use store::shared::SharedMemory;
pub use traceless_sys::{LargeMemoryHooks, set_large_memory_hooks};
pub use unpaged::{Unpaged, mapped_range};
pub use wrapper::{ALIVE, Wrapper};
