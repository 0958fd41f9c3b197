//! An activity that several owners record into.

use super::Activity;
use crate::clock::MachineClock;
use crate::trace::{Event, Witness};
use alloc::sync::Arc;
use core::ops::Deref;

/// An activity in memory of this process alone, or in memory that other processes map, too.
pub type SharedActivity = Arc<dyn Deref<Target = Activity> + Send + Sync>;

/// Events are what the adversary observes.
impl Witness for Activity {
    #[inline]
    fn record(&self, event: Event) {
        // The event's own time is not used: both sides have the machine's clock.
        self.adversary.record(&MachineClock, event.op, event.at, event.len);
    }
}

/// A witness that records into a shared activity.
pub struct ActivityWitness(pub SharedActivity);

impl Witness for ActivityWitness {
    #[inline]
    fn record(&self, event: Event) {
        self.0.record(event);
    }
}
