//! Refreshes done by several processes: the one that serves faults, and helpers.
//!
//! All take the refreshes that are due from one [`RefreshQueue`] in memory that they share.
//!
//! A helper may be killed at any moment. Each helper has a [`WorkerJournal`] in shared memory:
//! there it notes the refresh that it is about to do, and leaves the bytes that it is about to
//! write. So another process can repeat a refresh that a helper had begun, and write the same
//! bytes.

use super::helper::Parent;
use crate::paging::error::Result;
use crate::paging::kernel::memory::Mapping;
use crate::paging::kernel::threads::{self, ThreadAffinity};
use crate::scheme::{Journal, NoJournal, PaddedLine, RefreshPool, RefreshQueue};
use crate::slots::{Buffer, SEALED_LEN};
use core::borrow::Borrow;
use core::ops::{Deref, Range};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use rustix::thread::futex;
use traceless::clock::{Clock, Monotonic};

/// How long a helper without work stays awake.
const AWAKE_NS: u64 = 50_000;

/// How long a helper then sleeps, at most, before it checks that the program still runs.
const ASLEEP_S: i64 = 1;

/// Pauses between two checks for work: the program may run on the other half of the same core.
const PAUSES: u32 = 8;

/// Checks for work between two readings of the clock.
const CHECKS: u32 = 16;

/// Refreshes after which a helper publishes its processor time.
const CPU_INTERVAL: u64 = 64;

/// The pool that the process which serves faults shares with its helpers.
pub type SharedPool = RefreshPool<SharedQueue>;

/// The state that all processes share. It begins as all zeros.
#[repr(C)]
pub struct SharedState {
    queue: RefreshQueue,
    /// Helpers that sleep, or are about to.
    asleep: PaddedLine<AtomicU32>,
    /// Changes when sleeping helpers are to check again.
    wakeups: AtomicU32,
    /// Not 0 when helpers are to end.
    ends: AtomicU32,
    /// One more than the processor that helpers leave to the program; 0 is none.
    avoided_cpu: AtomicU64,
    /// One more than the refresh that no helper completes; 0 is none.
    #[cfg(test)]
    pub stuck_in: AtomicU64,
}

/// The shared state, in memory that helpers inherit.
pub struct SharedQueue(Mapping);

impl SharedQueue {
    /// A queue without refreshes.
    pub fn new() -> Result<Self> {
        Mapping::shared_with_forks(size_of::<SharedState>()).map(Self)
    }

    /// Wakes sleeping helpers.
    pub fn wake_helpers(&self) {
        self.wakeups.fetch_add(1, SeqCst);
        // If it fails, sleeping helpers check again within a second in any case.
        let _ = futex::wake(&self.wakeups, futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Whether any helper sleeps.
    pub fn has_sleepers(&self) -> bool {
        self.asleep.0.load(SeqCst) > 0
    }

    /// Ends all helpers once they have completed what they do.
    pub fn end_helpers(&self) {
        self.ends.store(1, SeqCst);
        self.wake_helpers();
    }

    /// Keeps helpers off a processor, or off none.
    pub fn avoid_cpu(&self, cpu: Option<usize>) {
        self.avoided_cpu.store(cpu.map_or(0, |cpu| cpu as u64 + 1), Relaxed);
    }
}

impl Deref for SharedQueue {
    type Target = SharedState;
    fn deref(&self) -> &SharedState {
        // SAFETY: a mapping of that size, aligned to a page, that lives as long as this; all of it
        // is atomic, and zeros are values of it.
        unsafe { &*self.0.at(0).cast() }
    }
}

impl Borrow<RefreshQueue> for SharedQueue {
    fn borrow(&self) -> &RefreshQueue {
        &self.queue
    }
}

/// Where a helper notes its work, in memory that it shares with the other processes.
pub struct WorkerJournal(Mapping);

/// The notes of a journal. They begin as all zeros.
#[repr(C)]
struct Notes {
    /// One more than the refresh that is under way; 0 is none.
    refresh: AtomicU64,
    /// Not 0 once the page of that refresh is sealed: the journal holds it, and the helper is
    /// writing it.
    is_sealed: AtomicU32,
    /// The processor time of the helper.
    cpu_ns: AtomicU64,
}

/// Where the sealed page begins in the journal.
const SEALED_AT: usize = 64;

impl WorkerJournal {
    /// A journal without notes.
    pub fn new() -> Result<Self> {
        Ok(Self(Mapping::shared_with_forks(SEALED_AT + SEALED_LEN)?))
    }

    fn notes(&self) -> &Notes {
        // SAFETY: a mapping that is longer, aligned to a page, and lives as long as this; all of
        // it is atomic, and zeros are values of it.
        unsafe { &*self.0.at(0).cast() }
    }

    /// The refresh that is under way.
    pub fn refresh(&self) -> Option<u64> {
        self.notes().refresh.load(SeqCst).checked_sub(1)
    }

    /// The sealed page of the refresh that is under way, which may be written in part. For the
    /// other processes, once the helper has ended.
    pub fn sealed(&self) -> Option<&[u8]> {
        let is_sealed = self.notes().is_sealed.load(SeqCst) != 0;
        // SAFETY: that many bytes of the mapping, which no process changes any more.
        is_sealed.then(|| unsafe { core::slice::from_raw_parts(self.0.at(SEALED_AT), SEALED_LEN) })
    }

    /// Nanoseconds of processor time of the helper, up to when it published it last.
    pub fn cpu_ns(&self) -> u64 {
        self.notes().cpu_ns.load(Relaxed)
    }

    /// Publishes the processor time of this process, which is the helper.
    fn publish_cpu(&self) {
        self.notes().cpu_ns.store(threads::cpu_ns(), Relaxed);
    }
}

impl Journal for WorkerJournal {
    fn begin(&self, refresh: u64) {
        self.notes().refresh.store(refresh + 1, SeqCst);
    }

    fn seal(&self, sealed: &[u8]) {
        // SAFETY: as many bytes of the mapping, which no process reads before the flag is set.
        unsafe {
            core::ptr::copy_nonoverlapping(sealed.as_ptr(), self.0.at(SEALED_AT), SEALED_LEN);
        }
        self.notes().is_sealed.store(1, SeqCst);
    }

    fn clear(&self) {
        self.notes().is_sealed.store(0, SeqCst);
        self.notes().refresh.store(0, SeqCst);
    }
}

/// The journal of a helper that does not get past the refresh which a test names.
#[cfg(test)]
struct StuckJournal<'a>(&'a WorkerJournal, &'a SharedState);

#[cfg(test)]
impl Journal for StuckJournal<'_> {
    fn begin(&self, refresh: u64) {
        self.0.begin(refresh);
    }

    fn seal(&self, sealed: &[u8]) {
        self.0.seal(sealed);
        while self.0.refresh().is_some_and(|nth| self.1.stuck_in.load(SeqCst) == nth + 1) {
            core::hint::spin_loop();
        }
    }

    fn clear(&self) {
        self.0.clear();
    }
}

impl SharedPool {
    /// The loop of a helper: refreshes until it is to end.
    pub fn help(&self, parent: &Parent, journal: &WorkerJournal, buffer: &mut Buffer) {
        let (clock, state) = (Monotonic::start(), &**self.queue());
        let (mut affinity, mut avoided) = (ThreadAffinity::unrestricted(), 0);
        let (mut idle_since, mut checks, mut refreshes) = (clock.now(), 0, 0_u64);
        while state.ends.load(Relaxed) == 0 {
            if avoided != state.avoided_cpu.load(Relaxed) {
                avoided = state.avoided_cpu.load(Relaxed);
                affinity.avoid(avoided.checked_sub(1).map(|cpu| cpu as usize));
            }
            if self.refresh_as_helper(journal, buffer) {
                checks = 0;
                refreshes += 1;
                if refreshes.is_multiple_of(CPU_INTERVAL) {
                    journal.publish_cpu();
                }
                continue;
            }
            for _ in 0..PAUSES {
                core::hint::spin_loop();
            }
            checks += 1;
            if checks == 1 {
                idle_since = clock.now();
            } else if checks % CHECKS == 0 && clock.now() - idle_since > AWAKE_NS {
                journal.publish_cpu();
                self.sleep();
                checks = 0;
                if !parent.is_running() {
                    return;
                }
            }
        }
    }

    fn refresh_as_helper(&self, journal: &WorkerJournal, buffer: &mut Buffer) -> bool {
        #[cfg(test)]
        return self.refresh_one(&StuckJournal(journal, self.queue()), buffer);
        #[cfg(not(test))]
        self.refresh_one(journal, buffer)
    }

    /// Sleeps until there is work, or for a second.
    fn sleep(&self) {
        let state = &**self.queue();
        let wakeup = state.wakeups.load(SeqCst);
        state.asleep.0.fetch_add(1, SeqCst);
        // The process that sets the goal reads `asleep` afterwards, so it finds this helper there,
        // or this helper finds the goal.
        if self.waiting() == 0 && state.ends.load(SeqCst) == 0 {
            let second = rustix::time::Timespec { tv_sec: ASLEEP_S, tv_nsec: 0 };
            // However the wait ends, the helper checks for work next.
            let _ = futex::wait(&state.wakeups, futex::Flags::empty(), wakeup, Some(&second));
        }
        state.asleep.0.fetch_sub(1, SeqCst);
    }

    /// Does all refreshes that are due and not taken, in the process that serves faults.
    pub fn refresh_all(&self, buffer: &mut Buffer) {
        while self.refresh_one(&NoJournal, buffer) {}
    }

    /// Repeats the refresh that an ended helper had begun, if it is one of `due` and is not done.
    pub fn take_over(
        &self,
        journal: &WorkerJournal,
        due: &Range<u64>,
        buffer: &mut Buffer,
    ) -> traceless::Result {
        let Some(nth) = journal.refresh().filter(|nth| due.contains(nth)) else { return Ok(()) };
        if self.areas().is_published(nth, buffer) {
            return Ok(());
        }
        match journal.sealed() {
            Some(sealed) => self.areas().publish(nth, sealed),
            // The helper had written nothing before it sealed the page.
            None => self.areas().refresh(nth, buffer),
        }
    }
}
