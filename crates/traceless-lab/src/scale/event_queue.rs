//! Events in the order of their times.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Events that are still to happen, and the present time in seconds.
pub struct EventQueue<E> {
    now: f64,
    count: u64,
    waiting: BinaryHeap<Reverse<TimedEvent<E>>>,
}

struct TimedEvent<E> {
    at: f64,
    /// Events of the same time happen in the order in which they were added.
    number: u64,
    event: E,
}

impl<E> EventQueue<E> {
    /// No events, at time zero.
    pub fn new() -> Self {
        Self { now: 0.0, count: 0, waiting: BinaryHeap::new() }
    }

    /// The time of the last event that has happened.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Lets an event happen at a time, or now if that is over.
    pub fn add(&mut self, at: f64, event: E) {
        self.count += 1;
        let at = at.max(self.now);
        self.waiting.push(Reverse(TimedEvent { at, number: self.count, event }));
    }

    /// The next event. Time moves on to it.
    pub fn next(&mut self) -> Option<E> {
        let Reverse(TimedEvent { at, event, .. }) = self.waiting.pop()?;
        self.now = at;
        Some(event)
    }
}

impl<E> Ord for TimedEvent<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

impl<E> PartialOrd for TimedEvent<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for TimedEvent<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for TimedEvent<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_in_the_order_of_times_and_then_of_their_addition() {
        let mut events = EventQueue::new();
        for (at, name) in [(2.0, 'c'), (1.0, 'a'), (2.0, 'd'), (1.0, 'b')] {
            events.add(at, name);
        }
        assert_eq!((events.next(), events.now()), (Some('a'), 1.0));
        events.add(0.5, 'z');
        let rest: String = std::iter::from_fn(|| events.next()).collect();
        assert_eq!((rest.as_str(), events.now()), ("bzcd", 2.0));
    }
}
