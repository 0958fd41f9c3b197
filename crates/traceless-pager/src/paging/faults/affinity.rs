//! Pins the program's thread to the processor that serves its faults.
//!
//! The handler follows the thread. But where processors share a cache the scheduler wakes a thread
//! on an idle one: then each fault wakes a thread on another processor twice, and each page that
//! moves interrupts both processors. So a thread that faults often may run on the handler's
//! processor only, until it stops faulting, or queries where it may run.

use crate::paging::kernel::threads::{SchedTimes, TargetProcess};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use rustix::time::Timespec;

/// A thread is unpinned after so long without a fault.
pub const UNPIN_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Faults are frequent if the average time between them is shorter.
const FREQUENT_NS: u64 = 200_000;

/// No thread is pinned for so many faults after one was unpinned on request: what that thread is
/// about to do may fault, too.
const SUSPENDED_FAULTS: u64 = 256;

/// How often to check whether other threads want the processor.
const CONTENTION_INTERVAL_NS: u64 = 1_000_000_000;

/// A processor is contended if, for one part in so many of its time, other threads run on it while
/// the pinned thread or the handler waits.
const CONTENDED_PART: u64 = 4;

/// Which thread is pinned, and which ones may be.
pub struct ThreadPinning {
    allowed: bool,
    pin: Option<AffinityPin>,
    /// Threads with processors that the program itself has set.
    excluded: Vec<u32>,
    /// Faults until a thread may be pinned.
    suspended_faults: u64,
    last_check_ns: Option<u64>,
}

struct AffinityPin {
    thread: u32,
    id: Pid,
    cpu: usize,
    previous_cpus: CpuSet,
    /// How long it and the handler ran and waited up to `measured_at_ns`, where that is known.
    times: Option<SchedTimes>,
    measured_at_ns: u64,
}

impl ThreadPinning {
    /// No thread is pinned so far, and none ever is unless `allowed`.
    pub fn new(allowed: bool) -> Self {
        Self { allowed, pin: None, excluded: Vec::new(), suspended_faults: 0, last_check_ns: None }
    }

    /// Whether a thread is pinned.
    pub fn is_active(&self) -> bool {
        self.pin.is_some()
    }

    /// Whether `thread` is pinned.
    pub fn is_pinned(&self, thread: u32) -> bool {
        self.pin.as_ref().is_some_and(|pin| pin.thread == thread)
    }

    /// To be called after `faults` faults. Returns whether they were frequent.
    pub fn record_faults(&mut self, now: u64, faults: u64) -> bool {
        self.suspended_faults = self.suspended_faults.saturating_sub(faults);
        let last = self.last_check_ns.replace(now);
        last.is_some_and(|last| now.saturating_sub(last) < faults * FREQUENT_NS)
    }

    /// Pins a thread of the program to this processor, and unpins the one that was pinned before.
    pub fn pin(&mut self, target: TargetProcess, thread: u32, cpu: usize, now: u64) {
        if self.pin.as_ref().is_some_and(|pin| (pin.thread, pin.cpu) == (thread, cpu)) {
            return;
        }
        self.unpin();
        let may = self.allowed && self.suspended_faults == 0 && !self.excluded.contains(&thread);
        // A program may number its threads otherwise: check that it has this one.
        if !may || !target.has(thread) {
            return;
        }
        let Some(id) = i32::try_from(thread).ok().and_then(Pid::from_raw) else { return };
        let Ok(previous_cpus) = sched_getaffinity(Some(id)) else { return };
        // A thread that may not be pinned is only slower.
        if previous_cpus.count() > 1
            && previous_cpus.is_set(cpu)
            && sched_setaffinity(Some(id), &only(cpu)).is_ok()
        {
            let times = SchedTimes::with_this(target, thread);
            self.pin =
                Some(AffinityPin { thread, id, cpu, previous_cpus, times, measured_at_ns: now });
        }
    }

    /// Whether other threads want the processor to which a thread is pinned. They may be pinned
    /// there themselves, by other pagers: then none of them would ever move to an idle processor.
    /// The handler calls this. It waits while the thread runs, and sleeps while helpers do: so two
    /// conditions count, that these two wait, and that other threads have the processor.
    pub fn is_contended(&mut self, target: TargetProcess, now: u64) -> bool {
        let Some(pin) = &mut self.pin else { return false };
        let elapsed = now.saturating_sub(pin.measured_at_ns);
        if elapsed < CONTENTION_INTERVAL_NS {
            return false;
        }
        let before = pin.times;
        (pin.times, pin.measured_at_ns) = (SchedTimes::with_this(target, pin.thread), now);
        let part = elapsed / CONTENDED_PART;
        pin.times.zip(before).is_some_and(|(now, before)| {
            now.wait_ns.saturating_sub(before.wait_ns) > part
                && now.run_ns.saturating_sub(before.run_ns) < elapsed - part
        })
    }

    /// Lets the thread run where it could before. If the program has set its processors meanwhile,
    /// they stay.
    pub fn unpin(&mut self) {
        let Some(AffinityPin { thread, id, cpu, previous_cpus, .. }) = self.pin.take() else {
            return;
        };
        match sched_getaffinity(Some(id)) {
            Ok(now) if now == only(cpu) => {
                // It fails only if these processors are gone.
                let _ = sched_setaffinity(Some(id), &previous_cpus);
            }
            Ok(_) => self.excluded.push(thread),
            // The thread has ended.
            Err(_) => {}
        }
    }

    /// Unpins the thread, and pins none for some faults.
    pub fn suspend(&mut self) {
        self.unpin();
        self.suspended_faults = SUSPENDED_FAULTS;
    }

    /// Never pins this thread again: the program itself has set its processors.
    pub fn exclude(&mut self, target: TargetProcess, thread: u32) {
        self.excluded.retain(|&other| other != thread && target.has(other));
        self.excluded.push(thread);
    }

    /// Unpins the thread, and never pins one again.
    pub fn disable(&mut self) {
        self.unpin();
        self.allowed = false;
    }
}

impl Drop for ThreadPinning {
    fn drop(&mut self) {
        self.unpin();
    }
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This thread, its processors, and the last one of these; if there are several.
    fn this() -> Option<(u32, CpuSet, usize)> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let may = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU).rfind(|&cpu| may.is_set(cpu))?;
        (may.count() > 1).then_some((thread, may, cpu))
    }

    fn now() -> CpuSet {
        sched_getaffinity(None).unwrap()
    }

    #[test]
    fn a_pinned_thread_is_unpinned() {
        let Some((thread, may, cpu)) = this() else { return };
        let mut pinning = ThreadPinning::new(true);
        pinning.pin(TargetProcess::Own, thread, cpu, 0);
        assert!(pinning.is_pinned(thread) && now() == only(cpu));
        pinning.unpin();
        assert!(!pinning.is_active() && now() == may);
        pinning.pin(TargetProcess::Own, thread, cpu, 0);
        pinning.suspend();
        pinning.pin(TargetProcess::Own, thread, cpu, 0);
        assert_eq!(now(), may, "it is about to do something");
        assert!(!pinning.record_faults(0, SUSPENDED_FAULTS) && pinning.record_faults(1, 1));
        assert!(!pinning.record_faults(1 + FREQUENT_NS, 1));
        pinning.pin(TargetProcess::Own, thread, cpu, 0);
        assert_eq!(now(), only(cpu));
        drop(pinning);
        assert_eq!(now(), may);
    }

    #[test]
    fn affinity_that_the_program_sets_stays() {
        let Some((thread, may, cpu)) = this() else { return };
        let other = (0..cpu).rfind(|&cpu| may.is_set(cpu)).unwrap();
        let mut pinning = ThreadPinning::new(true);
        pinning.pin(TargetProcess::Own, thread, cpu, 0);
        sched_setaffinity(None, &only(other)).unwrap();
        pinning.unpin();
        assert_eq!(now(), only(other));
        sched_setaffinity(None, &may).unwrap();
        pinning.pin(TargetProcess::Own, thread, cpu, 0);
        assert_eq!(now(), may, "the program has set its processors");
    }

    #[test]
    fn threads_of_other_processes_are_not_pinned() {
        let Some((thread, may, cpu)) = this() else { return };
        ThreadPinning::new(false).pin(TargetProcess::Own, thread, cpu, 0);
        let mut pinning = ThreadPinning::new(true);
        for missing in [0, u32::MAX] {
            pinning.pin(TargetProcess::Own, missing, cpu, 0);
        }
        pinning.pin(TargetProcess::Other(1), thread, cpu, 0);
        assert!(!pinning.is_active() && now() == may);
        pinning.exclude(TargetProcess::Own, thread);
        pinning.pin(TargetProcess::Own, thread, cpu, 0);
        assert!(!pinning.is_active() && now() == may);
    }
}
