//! A scheme at a constant rate: one path access after the other, needed or not, so that neither the
//! number of accesses nor their times reveal whether the client makes requests.
//!
//! With [`Pace::StartToStart`] accesses begin at fixed times, as long as each is done before the
//! next is due. An access that takes longer makes the next one late, and shifts all later ones.
//! Late accesses are counted, and the interval should be a multiple of the time that an access
//! takes.
//!
//! With [`Pace::AfterCompletion`] the next access begins a fixed time after the last one is done.
//! Its times reveal how long accesses take. In a simulation that is a function of the paths alone,
//! and so is the whole trace. A real machine may take different times for different data, so use
//! [`Pace::StartToStart`] there.
//!
//! The caller drives a [`PacedOram`]; a [`Service`] has a thread of its own.
//!
//! A request is served when an access is due. With an interval of 1000, accesses begin at the times
//! 0, 1000, 2000 and so on:
//!
//! ```
//! use std::sync::Arc;
//! use traceless::Addr;
//! use traceless::clock::{Clock, SimulatedClock};
//! use traceless::paced::{Pace, PacedOram};
//! # use traceless::rng::System;
//! # use traceless::scheme::path::PathOram;
//! # use traceless::tree::{BareTree, STASH_BLOCKS, Shape};
//!
//! # fn main() -> traceless::Result {
//! # let tree = BareTree::new(Shape::uniform(7, 4)?, 64);
//! # let oram = PathOram::new(100, vec![tree], STASH_BLOCKS, Box::new(System))?;
//! let clock = Arc::new(SimulatedClock::default());
//! // `oram` is any controller, for example a Path ORAM.
//! let mut paced = PacedOram::new(oram, clock.clone(), Pace::StartToStart(1000));
//! paced.step(&mut |_, _| {})?;
//!
//! paced.submit(1, Addr(7))?;
//! let outcome = paced.step(&mut |_, block| block.fill(5))?;
//! assert_eq!((outcome.finished, clock.now()), (Some(1), 1000));
//! assert_eq!((paced.due(), paced.record().late), (2000, 0));
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "std")]
mod service;
#[cfg(all(test, feature = "std"))]
mod tests;

#[cfg(feature = "std")]
pub use service::Service;

use crate::controller::{Controller, Serve, StepOutcome};
use traceless_core::clock::Timer;
use traceless_core::error::Result;
use traceless_core::types::Addr;

/// When accesses begin, in units of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Interval between the starts of two accesses.
    StartToStart(u64),
    /// Pause between the end of an access and the start of the next.
    AfterCompletion(u64),
}

/// How well the pace was kept. Public: an observer of the accesses can derive it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Record {
    /// Number of accesses, dummies included.
    pub steps: u64,
    /// Number of accesses that were due before the last one was done, or before the caller's next
    /// step.
    pub late: u64,
    /// The longest delay of an access.
    pub latest: u64,
    /// The longest time between the end of a wait and the time waited for.
    pub jitter: u64,
}

/// A controller that makes its steps when they are due.
pub struct PacedOram<C, T> {
    controller: C,
    timer: T,
    pace: Pace,
    due: u64,
    record: Record,
}

impl<C: Controller, T: Timer> PacedOram<C, T> {
    /// Paces `controller`; its first step is due now.
    pub fn new(controller: C, timer: T, pace: Pace) -> Self {
        let due = timer.now();
        Self { controller, timer, pace, due, record: Record::default() }
    }

    /// Queues an access to a block, as [`Controller::submit`] does.
    pub fn submit(&mut self, id: u64, addr: Addr) -> Result {
        self.controller.submit(id, addr)
    }

    /// Waits until an access is due, and makes it: a requested access or a dummy.
    pub fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        let late = self.timer.now().saturating_sub(self.due);
        self.timer.wait_until(self.due);
        let start = self.timer.now();
        self.note(late, start);
        let issued = self.controller.step(serve);
        self.due = match self.pace {
            // Counted from the time when the step was due, so that late wake-ups do not add up.
            Pace::StartToStart(interval) if late == 0 => self.due + interval,
            Pace::StartToStart(interval) => start + interval,
            Pace::AfterCompletion(interval) => self.timer.now() + interval,
        };
        issued
    }

    /// Time when the next access is due.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// How well the pace was kept so far.
    pub fn record(&self) -> Record {
        self.record
    }

    /// The controller, for work that is no access. Events of this work are not paced.
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
