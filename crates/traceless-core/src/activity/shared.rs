//! An activity that several owners record into.

use super::{Activity, EventAudit};
use crate::clock::MachineClock;
use crate::trace::{Event, Op, Witness};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;
use std::sync::{Mutex, OnceLock, PoisonError};

/// An activity in memory of this process alone, or in memory that other processes map, too.
pub type SharedActivity = Arc<dyn Deref<Target = Activity> + Send + Sync>;

/// A witness that records what the adversary observes into a shared activity, and may audit it.
pub struct ActivityWitness {
    activity: SharedActivity,
    audit: OnceLock<RunningAudit>,
}

struct RunningAudit {
    /// The operations that are checked. Events of the rest wait for no lock.
    checked: [bool; Op::ALL.len()],
    events: Mutex<Box<dyn EventAudit>>,
}

impl ActivityWitness {
    /// A witness without an audit.
    pub fn new(activity: SharedActivity) -> Self {
        Self { activity, audit: OnceLock::new() }
    }

    /// Audits all further events. Only the first call counts.
    pub fn start_audit(&self, audit: Box<dyn EventAudit>) {
        let checked = Op::ALL.map(|op| audit.checks(op));
        let _ = self.audit.set(RunningAudit { checked, events: Mutex::new(audit) });
    }

    /// The activity.
    pub fn activity(&self) -> &SharedActivity {
        &self.activity
    }
}

impl Witness for ActivityWitness {
    #[inline]
    fn record(&self, event: Event) {
        // The event's own time is not used: both sides have the machine's clock.
        self.activity.adversary.record(&MachineClock, event.op, event.at, event.len);
        if let Some(audit) = self.audit.get().filter(|audit| audit.checked[event.op as usize]) {
            let mut events = audit.events.lock().unwrap_or_else(PoisonError::into_inner);
            events.record(&event, &self.activity.audit);
        }
    }
}
