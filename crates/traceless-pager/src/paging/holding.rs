//! Holding the program's thread on the processor that serves its faults.
//!
//! The handler follows the thread. But where processors share a cache the scheduler wakes a thread
//! on an idle one: then each fault wakes a thread on another processor twice, and each page that
//! moves interrupts both processors. So a thread that faults often may run on the handler's
//! processor only, until it stops faulting, or queries where it may run.

use super::threads::{TargetProcess, Times};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use rustix::time::Timespec;

/// A thread is let go after so long without a fault.
pub const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Faults are frequent if the average time between them is shorter.
const FREQUENT_NS: u64 = 200_000;

/// No thread is held for so many faults after one was let go on purpose: what that thread is about
/// to do may fault, too.
const FREE_FAULTS: u64 = 256;

/// How often to check whether other threads want the processor.
const CROWD_INTERVAL_NS: u64 = 1_000_000_000;

/// A processor is crowded if, for one part in so many of its time, other threads run on it while
/// the held thread or the handler waits.
const CROWDED_PART: u64 = 4;

/// Which thread is held, and which ones may be.
pub struct Holding {
    allowed: bool,
    held: Option<AffinityPin>,
    /// Threads that the program itself has placed on processors.
    placed: Vec<u32>,
    /// Faults until a thread may be held.
    free_faults: u64,
    looked_at: Option<u64>,
}

struct AffinityPin {
    thread: u32,
    id: Pid,
    cpu: usize,
    former: CpuSet,
    /// How long it and the handler ran and waited, where that is known, at `timed_at`.
    times: Option<Times>,
    timed_at: u64,
}

impl Holding {
    /// No thread is held so far, and none ever is unless `allowed`.
    pub fn new(allowed: bool) -> Self {
        Self { allowed, held: None, placed: Vec::new(), free_faults: 0, looked_at: None }
    }

    /// Whether a thread is held.
    pub fn is_on(&self) -> bool {
        self.held.is_some()
    }

    /// Whether `thread` is held.
    pub fn is_held(&self, thread: u32) -> bool {
        self.held.as_ref().is_some_and(|held| held.thread == thread)
    }

    /// To be called after `faults` faults. Returns whether they were frequent.
    pub fn look(&mut self, now: u64, faults: u64) -> bool {
        self.free_faults = self.free_faults.saturating_sub(faults);
        let last = self.looked_at.replace(now);
        last.is_some_and(|last| now.saturating_sub(last) < faults * FREQUENT_NS)
    }

    /// Holds a thread of the program on this processor, and lets go the one that was held before.
    pub fn hold(&mut self, whose: TargetProcess, thread: u32, cpu: usize, now: u64) {
        if self.held.as_ref().is_some_and(|held| (held.thread, held.cpu) == (thread, cpu)) {
            return;
        }
        self.let_go();
        let may = self.allowed && self.free_faults == 0 && !self.placed.contains(&thread);
        // A program may number its threads otherwise: check that it has this one.
        if !may || !whose.has(thread) {
            return;
        }
        let Some(id) = i32::try_from(thread).ok().and_then(Pid::from_raw) else { return };
        let Ok(former) = sched_getaffinity(Some(id)) else { return };
        // A thread that may not be held is only slower.
        if former.count() > 1
            && former.is_set(cpu)
            && sched_setaffinity(Some(id), &only(cpu)).is_ok()
        {
            let times = Times::with_this(whose, thread);
            self.held = Some(AffinityPin { thread, id, cpu, former, times, timed_at: now });
        }
    }

    /// Whether other threads want the processor on which a thread is held, too. These may be held
    /// themselves, by pagers of their own: then none of them would ever move to an idle processor.
    /// The handler calls this. It waits while the thread runs, and sleeps while helpers do: so two
    /// conditions count, that these two wait, and that other threads have the processor.
    pub fn is_crowded(&mut self, whose: TargetProcess, now: u64) -> bool {
        let Some(held) = &mut self.held else { return false };
        let elapsed = now.saturating_sub(held.timed_at);
        if elapsed < CROWD_INTERVAL_NS {
            return false;
        }
        let before = held.times;
        (held.times, held.timed_at) = (Times::with_this(whose, held.thread), now);
        let part = elapsed / CROWDED_PART;
        held.times.zip(before).is_some_and(|(now, before)| {
            now.waited.saturating_sub(before.waited) > part
                && now.ran.saturating_sub(before.ran) < elapsed - part
        })
    }

    /// Lets the thread run where it could before. If the program has placed it meanwhile, that
    /// stays.
    pub fn let_go(&mut self) {
        let Some(AffinityPin { thread, id, cpu, former, .. }) = self.held.take() else { return };
        match sched_getaffinity(Some(id)) {
            Ok(now) if now == only(cpu) => {
                // It fails only if these processors are gone.
                let _ = sched_setaffinity(Some(id), &former);
            }
            Ok(_) => self.placed.push(thread),
            // The thread has ended.
            Err(_) => {}
        }
    }

    /// Lets the thread go, and holds none for some faults.
    pub fn pause(&mut self) {
        self.let_go();
        self.free_faults = FREE_FAULTS;
    }

    /// Notes that the program itself has placed this thread.
    pub fn is_placed(&mut self, whose: TargetProcess, thread: u32) {
        self.placed.retain(|&other| other != thread && whose.has(other));
        self.placed.push(thread);
    }

    /// Lets the thread go, and never holds one again.
    pub fn end(&mut self) {
        self.let_go();
        self.allowed = false;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.let_go();
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
    fn who_is_held_is_let_go() {
        let Some((thread, may, cpu)) = this() else { return };
        let mut holding = Holding::new(true);
        holding.hold(TargetProcess::Own, thread, cpu, 0);
        assert!(holding.is_held(thread) && now() == only(cpu));
        holding.let_go();
        assert!(!holding.is_on() && now() == may);
        holding.hold(TargetProcess::Own, thread, cpu, 0);
        holding.pause();
        holding.hold(TargetProcess::Own, thread, cpu, 0);
        assert_eq!(now(), may, "it is about to do something");
        assert!(!holding.look(0, FREE_FAULTS) && holding.look(1, 1));
        assert!(!holding.look(1 + FREQUENT_NS, 1));
        holding.hold(TargetProcess::Own, thread, cpu, 0);
        assert_eq!(now(), only(cpu));
        drop(holding);
        assert_eq!(now(), may);
    }

    #[test]
    fn what_the_program_says_stays() {
        let Some((thread, may, cpu)) = this() else { return };
        let other = (0..cpu).rfind(|&cpu| may.is_set(cpu)).unwrap();
        let mut holding = Holding::new(true);
        holding.hold(TargetProcess::Own, thread, cpu, 0);
        sched_setaffinity(None, &only(other)).unwrap();
        holding.let_go();
        assert_eq!(now(), only(other));
        sched_setaffinity(None, &may).unwrap();
        holding.hold(TargetProcess::Own, thread, cpu, 0);
        assert_eq!(now(), may, "it says where it runs");
    }

    #[test]
    fn threads_of_others_are_not_held() {
        let Some((thread, may, cpu)) = this() else { return };
        Holding::new(false).hold(TargetProcess::Own, thread, cpu, 0);
        let mut holding = Holding::new(true);
        for nobody in [0, u32::MAX] {
            holding.hold(TargetProcess::Own, nobody, cpu, 0);
        }
        holding.hold(TargetProcess::Other(1), thread, cpu, 0);
        assert!(!holding.is_on() && now() == may);
        holding.is_placed(TargetProcess::Own, thread);
        holding.hold(TargetProcess::Own, thread, cpu, 0);
        assert!(!holding.is_on() && now() == may);
    }
}
