//! One access of a trace: its events, reduced to what tests compare.

use crate::template::Template;
use std::collections::HashMap;
use traceless::trace::{Event, Op};

/// How many places an access has, and which of them are the least and the greatest.
pub(crate) const PLACES: usize = 6;
pub(crate) const LOW: usize = 2;
pub(crate) const HIGH: usize = 3;

/// What is seen of one access.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Access {
    /// Operations, surfaces and lengths in order.
    pub kind: Template,
    /// The same and, of places, whether each lies above the one before, and which of the reads a
    /// write is at.
    pub template: Template,
    /// Where it begins, where its reads end, the least and the greatest byte that it touches, and
    /// its first and its last write: one of these tells its place.
    pub places: [u64; PLACES],
    /// Events before it, and when it began.
    pub seen: u64,
    pub began: u64,
    /// Its reads and writes among those that are kept.
    pub first: usize,
    pub events: usize,
}

impl Access {
    /// What is seen of these events, of which there is one at least.
    pub fn of(events: &[Event]) -> Self {
        let Event { at, time, .. } = events[0];
        let mut access =
            Self { places: [at, 0, u64::MAX, 0, at, at], began: time, ..Self::default() };
        let mut reads: HashMap<u64, u64> = HashMap::new();
        let (mut before, mut writes) = (0, false);
        for event in events {
            let op = event.op as u64;
            let what = u64::from(event.len) << 5 | (event.surface as u64) << 3 | op << 1;
            access.kind.see(what);
            access.template.see(what);
            if event.op == Op::Sync {
                continue;
            }
            access.events += 1;
            access.template.see(u64::from(event.at > before));
            before = event.at;
            let nth = reads.len() as u64;
            if event.op == Op::Read {
                reads.insert(event.at, nth);
            } else if has_reads(events) {
                access.template.see(reads.get(&event.at).copied().unwrap_or(u64::MAX));
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
