//! How to page.

use super::error::Error;
use super::frames::Policy;
use super::locking::Lock;
use super::stats::Counters;
use super::way::Way;
use std::ops::Deref;
use std::sync::Arc;

/// Where to count: of our own, or in memory that somebody else maps.
pub type SharedCounters = Arc<dyn Deref<Target = Counters> + Send + Sync>;

/// [`Config::holds`] for programs that nobody changed. The library that is loaded before them lets
/// their threads go in time where this holds.
pub const HOLDS_PROGRAMS: bool = cfg!(target_arch = "x86_64");

/// How to page.
pub struct Config {
    /// Resident pages. More than that where threads need them: four each, and four more.
    pub frames: usize,
    /// Who leaves.
    pub policy: Policy,
    /// Pages that may be resident besides for as long as others are pinned.
    pub overflow: usize,
    /// How pages leave; the best way that the kernel has, if it is not given.
    pub way: Option<Way>,
    /// The address of the first page, where the same ones are wanted in each run; else the kernel
    /// chooses, and nobody can guess it.
    pub start: Option<usize>,
    /// Whether resident pages are locked in memory.
    pub lock: Lock,
    /// What random choices of victims follow from.
    pub seed: u64,
    /// Whether a thread that faults often may run on the handler's processor only, while it does:
    /// a fault is several times faster. Threads and processes that it starts meanwhile inherit that
    /// for good, unless [`Pager::let_go`](super::Pager::let_go) is called right before.
    pub holds: bool,
    /// Where to count.
    pub counters: SharedCounters,
    /// What each thread of the pager does first.
    pub on_thread: fn(),
    /// What to do when a page cannot be brought: whoever waits for it cannot go on.
    pub on_failure: fn(&Error) -> !,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            frames: 256,
            policy: Policy::default(),
            overflow: 4096,
            way: None,
            start: None,
            lock: Lock::default(),
            seed: 0,
            holds: false,
            counters: Arc::new(Box::<Counters>::default()),
            on_thread: || {},
            on_failure: abort,
        }
    }
}

/// Says why, and ends the process: the thread that waits for its page could neither be told of a
/// failure nor be given anything else.
pub fn abort(error: &Error) -> ! {
    eprintln!("traceless: paging cannot go on: {error}");
    std::process::abort()
}
