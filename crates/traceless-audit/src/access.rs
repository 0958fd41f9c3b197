//! One access of a trace: its events, reduced to what tests compare.

use crate::template::Template;
use std::collections::HashMap;
use traceless_core::trace::{Event, Op};

/// The number of places of an access, and the indices of the least and the greatest of them.
pub(crate) const PLACES: usize = 6;
pub(crate) const LOW: usize = 2;
pub(crate) const HIGH: usize = 3;

/// The observable properties of one access.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Access {
    /// Operations, surfaces and lengths in order.
    pub kind: Template,
    /// The same as `kind`, and for each place whether it lies above the one before, and for each
    /// write the number of the read of the same place.
    pub template: Template,
    /// Where the access begins, where its reads end, the least and the greatest byte that it
    /// touches, and its first and its last write: one of these identifies its place.
    pub places: [u64; PLACES],
    /// Events before the access, and when it began.
    pub events_before: u64,
    pub start: u64,
    /// The index of its first read or write among all that are kept, and how many it has.
    pub first: usize,
    pub events: usize,
}

impl Access {
    /// Reduces these events, of which there is at least one.
    pub fn of(events: &[Event]) -> Self {
        let Event { at, time, .. } = events[0];
        let mut access =
            Self { places: [at, 0, u64::MAX, 0, at, at], start: time, ..Self::default() };
        let mut reads: HashMap<u64, u64> = HashMap::new();
        let (mut before, mut writes) = (0, false);
        for event in events {
            let op = event.op as u64;
            let what = u64::from(event.len) << 5 | (event.surface as u64) << 3 | op << 1;
            access.kind.add(what);
            access.template.add(what);
            if event.op == Op::Sync {
                continue;
            }
            access.events += 1;
            access.template.add(u64::from(event.at > before));
            before = event.at;
            let nth = reads.len() as u64;
            if event.op == Op::Read {
                reads.insert(event.at, nth);
            } else if has_reads(events) {
                access.template.add(reads.get(&event.at).copied().unwrap_or(u64::MAX));
            }
            let [_, end, low, high, first_write, last_write] = &mut access.places;
            if event.op == Op::Read || access.events == 1 {
                *end = event.at;
            }
            if event.op == Op::Write {
                if !writes {
                    *first_write = event.at;
                }
                writes = true;
                *last_write = event.at;
            }
            *low = event.at.min(*low);
            *high = event.at.max(*high);
        }
        access
    }
}

fn has_reads(events: &[Event]) -> bool {
    events[0].op == Op::Read
}
