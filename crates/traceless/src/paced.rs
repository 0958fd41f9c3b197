//! A scheme at a fixed rate: one path access after the other, wanted or not, so that not even their
//! number and their times tell whether anything is asked for.
//!
//! With [`Pace::StartToStart`] accesses begin at fixed times, whatever they do, as long as each is
//! done before the next is due. One that is not makes the next late, and moves all after it; such
//! are counted, and an access should be given a multiple of the time that it takes.
//!
//! With [`Pace::AfterCompletion`] the next begins a fixed time after one is done. Its times tell
//! how long accesses take. In a simulation that is a function of the paths alone, and so is the
//! whole trace; on a real machine it is that only as far as the machine takes the same time for
//! all, so that [`Pace::StartToStart`] is the one to be used there.
//!
//! [`PacedOram`] is driven by its caller; [`Service`] has a thread of its own.

#[cfg(feature = "std")]
mod service;
#[cfg(all(test, feature = "std"))]
mod tests;

#[cfg(feature = "std")]
pub use service::Service;

use crate::clock::Timer;
use crate::controller::{Controller, Serve, StepOutcome};
use crate::error::Result;
use crate::types::Addr;

/// When accesses begin, in units of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// So long after the one before began.
    StartToStart(u64),
    /// So long after the one before was done.
    AfterCompletion(u64),
}

/// What became of the pace. Public: whoever sees the accesses can count along.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Record {
    /// Accesses, those that nothing asked for included.
    pub steps: u64,
    /// Those of them that were due before the one before was done, or before anybody called.
    pub late: u64,
    /// The longest time by which one was late.
    pub latest: u64,
    /// The longest time that passed between the end of a wait and the time waited for.
    pub jitter: u64,
}

/// A controller whose steps begin when they are due.
pub struct PacedOram<C, T> {
    controller: C,
    timer: T,
    pace: Pace,
    due: u64,
    record: Record,
}

impl<C: Controller, T: Timer> PacedOram<C, T> {
    /// Steps of `controller`, the first of which is due now.
    pub fn new(controller: C, timer: T, pace: Pace) -> Self {
        let due = timer.now();
        Self { controller, timer, pace, due, record: Record::default() }
    }

    /// Asks for an access to a block, as [`Controller::submit`] does.
    pub fn submit(&mut self, id: u64, addr: Addr) -> Result {
        self.controller.submit(id, addr)
    }

    /// Waits until an access is due, and does it: one that was asked for, or a dummy.
    pub fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        let late = self.timer.now().saturating_sub(self.due);
        self.timer.wait_until(self.due);
        let start = self.timer.now();
        self.note(late, start);
        let issued = self.controller.step(serve);
        self.due = match self.pace {
            // From the time that it was due: what a wait takes too long does not add up.
            Pace::StartToStart(interval) if late == 0 => self.due + interval,
            Pace::StartToStart(interval) => start + interval,
            Pace::AfterCompletion(interval) => self.timer.now() + interval,
        };
        issued
    }

    /// When the next access is due.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// How well the pace was kept so far.
    pub fn record(&self) -> Record {
        self.record
    }

    /// The controller, for all that is no access. What it shows is not paced.
    pub fn controller_mut(&mut self) -> &mut C {
        &mut self.controller
    }

    fn note(&mut self, late: u64, start: u64) {
        self.record.steps += 1;
        if late > 0 {
            self.record.late += 1;
            self.record.latest = self.record.latest.max(late);
        } else {
            self.record.jitter = self.record.jitter.max(start - self.due);
        }
    }
}
