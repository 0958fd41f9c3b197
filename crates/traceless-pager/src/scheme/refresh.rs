//! Refreshes that several workers do: threads of one process, or processes that share memory.
//!
//! All of them take the refreshes that are due from one [`RefreshQueue`], one refresh at a time, in
//! the order of their numbers.

use super::Areas;
use crate::slots::Buffer;
use core::borrow::Borrow;
#[cfg(feature = "std")]
use core::sync::atomic::AtomicI32;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use traceless::error::{Error, Place, Result};

/// A value on cache lines of its own: one worker writes it often, and other ones read it often.
#[repr(align(128))]
#[derive(Default)]
pub struct PaddedLine<T>(pub T);

/// Which refreshes are due, which are taken, and how many are done. Zeros are right for areas that
/// nothing was written to. It may lie in memory that several processes map.
#[repr(C)]
#[derive(Default)]
pub struct RefreshQueue {
    /// All refreshes below this number are due.
    goal: PaddedLine<AtomicU64>,
    /// The next refresh that no worker has taken.
    next: PaddedLine<AtomicU64>,
    /// How many refreshes are done.
    done: PaddedLine<AtomicU64>,
    /// One more than the refresh that failed; 0 while none has.
    failed: AtomicU64,
    /// The error of the operating system that made it fail; 0 if another cause did.
    #[cfg(feature = "std")]
    errno: AtomicI32,
}

impl RefreshQueue {
    /// Sets the number of refreshes that are done, with none due.
    fn reset(&self, done: u64) {
        for word in [&self.goal, &self.next, &self.done] {
            word.0.store(done, Relaxed);
        }
    }

    fn fail(&self, refresh: u64, error: &Error) {
        #[cfg(feature = "std")]
        self.errno.store(errno_of(error), Relaxed);
        #[cfg(not(feature = "std"))]
        let _ = error;
        self.failed.store(refresh + 1, Release);
    }
}

/// Records of one worker's refresh, from which another process goes on if the worker is killed.
pub trait Journal {
    /// Notes the refresh that is about to be taken.
    fn begin(&self, refresh: u64);

    /// Notes the sealed page that is about to be written.
    fn seal(&self, sealed: &[u8]);

    /// Notes that no refresh is under way.
    fn clear(&self);
}

/// The journal of a worker that is not killed alone, for example a thread.
pub struct NoJournal;

impl Journal for NoJournal {
    fn begin(&self, _: u64) {}
    fn seal(&self, _: &[u8]) {}
    fn clear(&self) {}
}

/// Areas, and the queue of their refreshes.
pub struct RefreshPool<Q = RefreshQueue> {
    areas: Areas,
    queue: Q,
}

impl<Q: Borrow<RefreshQueue>> RefreshPool<Q> {
    /// A pool for areas with all their refreshes done.
    pub fn new(areas: Areas, queue: Q) -> Self {
        queue.borrow().reset(areas.due());
        Self { areas, queue }
    }

    /// The pages.
    pub fn areas(&self) -> &Areas {
        &self.areas
    }

    /// The queue, with what is stored beside it.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Lets workers begin with all refreshes that are due.
    pub fn begin(&self) {
        self.queue.borrow().goal.0.store(self.areas.due(), SeqCst);
    }

    /// All refreshes below this number were begun.
    pub fn goal(&self) -> u64 {
        self.queue.borrow().goal.0.load(Relaxed)
    }

    /// How many refreshes no worker has taken.
    pub fn waiting(&self) -> u64 {
        let queue = self.queue.borrow();
        queue.goal.0.load(SeqCst).saturating_sub(queue.next.0.load(SeqCst))
    }

    /// How many refreshes are done.
    pub fn done(&self) -> u64 {
        self.queue.borrow().done.0.load(Relaxed)
    }

    /// Whether all refreshes that were begun are done.
    pub fn is_done(&self) -> bool {
        self.queue.borrow().done.0.load(Acquire) == self.goal()
    }

    /// Counts all refreshes that were begun as done, also the ones of a worker that was killed.
    pub fn complete(&self) {
        self.queue.borrow().done.0.store(self.goal(), SeqCst);
    }

    /// Does one refresh that is due, if there is one that no worker has taken, and returns whether
    /// there was one. Any number of workers may call this at once. [`Self::check`] reports whether
    /// it failed.
    pub fn refresh_one(&self, journal: &impl Journal, buffer: &mut Buffer) -> bool {
        let queue = self.queue.borrow();
        let mut nth = queue.next.0.load(Relaxed);
        loop {
            // `Acquire`: what the page's slot follows from was written before the goal was set.
            if nth >= queue.goal.0.load(Acquire) {
                return false;
            }
            // The note comes before the refresh is taken, so that no refresh is taken without one.
            journal.begin(nth);
            match queue.next.0.compare_exchange(nth, nth + 1, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(newer) => {
                    journal.clear();
                    nth = newer;
                }
            }
        }
        if let Err(error) = self.refresh(nth, journal, buffer) {
            queue.fail(nth, &error);
        }
        queue.done.0.fetch_add(1, Release);
        journal.clear();
        true
    }

    fn refresh(&self, nth: u64, journal: &impl Journal, buffer: &mut Buffer) -> Result {
        self.areas.prepare(nth, buffer)?;
        journal.seal(buffer.bytes());
        self.areas.publish(nth, buffer.bytes())
    }

    /// Fails if a refresh has failed.
    pub fn check(&self) -> Result {
        match self.queue.borrow().failed.load(Acquire).checked_sub(1) {
            Some(refresh) => Err(self.failure(refresh)),
            None => Ok(()),
        }
    }

    /// Why a refresh failed: the store did; or its own page, or the newest copy of it, was changed.
    /// `Tampered` also stands for any error that is not the operating system's: of
    /// [`Error::Store`], for example.
    pub fn failure(&self, refresh: u64) -> Error {
        #[cfg(feature = "std")]
        if let errno @ 1.. = self.queue.borrow().errno.load(Relaxed) {
            return Error::Io(std::io::Error::from_raw_os_error(errno));
        }
        let place = self.areas.place_of(refresh);
        Error::Tampered { place: Place { area: "pages", slot: place, block: Some(place) } }
    }
}

/// The error of the operating system, or 0 if another cause failed. A file that ends too early has
/// no number: it counts as `EIO`.
#[cfg(feature = "std")]
fn errno_of(error: &Error) -> i32 {
    match error {
        Error::Io(e) => e.raw_os_error().unwrap_or(libc::EIO),
        _ => 0,
    }
}
