//! The configuration of a pager.

use super::counters::Counters;
use super::error::Error;
use super::faults::frames::Policy;
use super::faults::pace::Pace;
use super::kernel::evict::EvictMethod;
use super::kernel::locking::Lock;
use std::ops::Deref;
use std::sync::Arc;
use traceless::activity::SharedActivity;

/// The counters to use: in memory of this process alone, or in memory that another one maps, too.
pub type SharedCounters = Arc<dyn Deref<Target = Counters> + Send + Sync>;

/// [`Config::pin_threads`] for unmodified programs. The library that is preloaded into them can
/// unpin their threads in time only where this is true.
pub const PIN_PROGRAM_THREADS: bool = cfg!(target_arch = "x86_64");

/// The configuration of a pager.
pub struct Config {
    /// Resident pages. If threads need more, there are more: four a thread, and four.
    pub frames: usize,
    /// Which page leaves.
    pub policy: Policy,
    /// Pages that may be resident in addition while other pages are pinned.
    pub overflow: usize,
    /// How pages are evicted; the best method that the kernel has, if it is not given.
    pub evict_method: Option<EvictMethod>,
    /// The address of the first page, if it is to be the same in each run; else the kernel chooses
    /// an address that cannot be guessed.
    pub start: Option<usize>,
    /// Whether this process has reserved the memory at `start`, which is replaced.
    pub is_start_reserved: bool,
    /// Whether resident pages are locked in memory.
    pub lock: Lock,
    /// The seed of random choices of victims.
    pub seed: u64,
    /// Whether a thread that faults often may be pinned to the handler's processor while it does: a
    /// fault is several times faster. Threads and processes that it starts meanwhile inherit that
    /// limit for good, unless [`Pager::unpin_thread`](super::Pager::unpin_thread) is called right
    /// before.
    pub pin_threads: bool,
    /// The rate of accesses to the store, if it is to be constant. For schemes that hide something.
    pub pace: Option<Pace>,
    /// A planted fault: ticks that no fault uses make no access.
    #[cfg(test)]
    pub(super) skips_idle_ticks: bool,
    /// The counters to use.
    pub counters: SharedCounters,
    /// Where faults, and pages that leave, are recorded for a live page.
    pub activity: Option<SharedActivity>,
    /// Called first in each thread of the pager.
    pub on_thread: fn(),
    /// Called when a page cannot be brought: the threads that wait for it cannot go on.
    pub on_failure: fn(&Error) -> !,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            frames: 256,
            policy: Policy::default(),
            overflow: 4096,
            evict_method: None,
            start: None,
            is_start_reserved: false,
            lock: Lock::default(),
            seed: 0,
            pin_threads: false,
            pace: None,
            #[cfg(test)]
            skips_idle_ticks: false,
            counters: Arc::new(Box::<Counters>::default()),
            activity: None,
            on_thread: || {},
            on_failure: abort,
        }
    }
}

/// Prints the error and ends the process: a thread that waits for its page can get neither an error
/// nor other contents.
pub fn abort(error: &Error) -> ! {
    eprintln!("traceless: paging cannot go on: {error}");
    std::process::abort()
}
