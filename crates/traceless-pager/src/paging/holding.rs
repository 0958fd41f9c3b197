//! Holding the program's thread on the processor where its faults are served.
//!
//! The handler follows the thread. But where processors share a cache the scheduler wakes a thread
//! on one that idles: then each fault wakes somebody on another processor twice, and each page that
//! moves interrupts both. So a thread that faults often may run on the handler's processor only,
//! until it does not fault any more, or wants to know where it may run.

use super::threads::{TargetProcess, Times};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use rustix::time::Timespec;

/// A thread without a fault for so long is let go.
pub const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Faults are frequent when there is less time between them, on average.
const FREQUENT_NS: u64 = 200_000;

/// Nobody is held for so many faults after a thread was let go on purpose: what it is about to do
/// may fault, too.
const FREE_FAULTS: u64 = 256;

/// How often it is looked whether a processor is shared with others.
const CROWD_INTERVAL_NS: u64 = 1_000_000_000;

/// A processor is crowded when others have one in so many parts of its time, or more, while who is
/// held there or the handler wants it.
const CROWDED_PART: u64 = 4;

/// Who is held, and who may be.
pub struct Holding {
    allowed: bool,
    held: Option<AffinityPin>,
    /// Threads for which the program itself has said where they run.
    placed: Vec<u32>,
    /// Faults until somebody may be held.
    free_faults: u64,
    looked_at: Option<u64>,
}

struct AffinityPin {
    thread: u32,
    id: Pid,
    cpu: usize,
    former: CpuSet,
    /// What it and the handler had of the processor, as far as that is known, and when that was.
    times: Option<Times>,
    timed_at: u64,
}

impl Holding {
    /// Nobody so far, and nobody ever unless it is allowed.
    pub fn new(allowed: bool) -> Self {
        Self { allowed, held: None, placed: Vec::new(), free_faults: 0, looked_at: None }
    }

    /// Whether somebody is held.
    pub fn is_on(&self) -> bool {
        self.held.is_some()
    }

    /// Whether `thread` is.
    pub fn is_held(&self, thread: u32) -> bool {
        self.held.as_ref().is_some_and(|held| held.thread == thread)
    }

    /// After so many faults. Tells whether they were frequent.
    pub fn look(&mut self, now: u64, faults: u64) -> bool {
        self.free_faults = self.free_faults.saturating_sub(faults);
        let last = self.looked_at.replace(now);
        last.is_some_and(|last| now.saturating_sub(last) < faults * FREQUENT_NS)
    }

    /// Lets a thread of the program run on this processor only. Nobody else is held then.
    pub fn hold(&mut self, whose: TargetProcess, thread: u32, cpu: usize, now: u64) {
        if self.held.as_ref().is_some_and(|held| (held.thread, held.cpu) == (thread, cpu)) {
            return;
        }
        self.let_go();
        let may = self.allowed && self.free_faults == 0 && !self.placed.contains(&thread);
        // Programs may count their threads otherwise than we do: this one must be theirs.
        if !may || !whose.has(thread) {
            return;
        }
        let Some(id) = i32::try_from(thread).ok().and_then(Pid::from_raw) else { return };
        let Ok(former) = sched_getaffinity(Some(id)) else { return };
        // Where it may not be held it is slower, and nothing else.
        if former.count() > 1
            && former.is_set(cpu)
            && sched_setaffinity(Some(id), &only(cpu)).is_ok()
        {
            let times = Times::with_this(whose, thread);
            self.held = Some(AffinityPin { thread, id, cpu, former, times, timed_at: now });
        }
    }

    /// Whether others want the processor on which a thread is held, too. They may be held
    /// themselves, by pagers of their own: none of them would ever move to one that idles. Asked by
    /// the handler. It waits while the thread runs, and sleeps while helpers do: so both count,
    /// that the two wait, and that the processor is not theirs.
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

    /// Lets it run where it could before. If the program has changed that meanwhile it stays.
    pub fn let_go(&mut self) {
        let Some(AffinityPin { thread, id, cpu, former, .. }) = self.held.take() else { return };
        match sched_getaffinity(Some(id)) {
            Ok(now) if now == only(cpu) => {
                // It was there before; or its processors have gone meanwhile.
                let _ = sched_setaffinity(Some(id), &former);
            }
            Ok(_) => self.placed.push(thread),
            // It has ended.
            Err(_) => {}
        }
    }

    /// The same, and nobody is held for some faults.
    pub fn pause(&mut self) {
        self.let_go();
        self.free_faults = FREE_FAULTS;
    }

    /// The program says where that thread runs.
    pub fn is_placed(&mut self, whose: TargetProcess, thread: u32) {
        self.placed.retain(|&other| other != thread && whose.has(other));
        self.placed.push(thread);
    }

    /// From now on nobody is held.
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

    /// This thread, where it may run, and the last processor of these; if there are several.
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
