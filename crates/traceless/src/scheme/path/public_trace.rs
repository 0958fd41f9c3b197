//! The public part of the trace of a tree in a store. Only the levels of a path count, and the
//! writes of a sync must follow from the paths that were read before it.

use crate::scheme::path::PathGeometry;
use std::collections::{BTreeMap, BTreeSet};
use traceless_core::trace::{Event, Op, Surface};

/// The events of a trace with each bucket's place replaced by its tree and level, and without the
/// events that follow from the paths read. Panics at any other write.
pub fn template(geometry: &PathGeometry, events: &[Event]) -> Vec<Event> {
    let buckets = geometry.buckets();
    let known = buckets.into_iter().map(|(at, len, of)| (at, (len, of))).collect();
    let trees = geometry.areas()[usize::from(geometry.map_trees) + 1].1;
    let mut public = Public { known, trees, ..Public::default() };
    for event in events {
        public.record(geometry, *event);
    }
    public.end_of_writes();
    public.out
}

#[derive(Default)]
struct Public {
    /// Length, and tree and level, of the bucket at each place.
    known: BTreeMap<u64, (usize, (usize, usize))>,
    /// First byte behind the trees.
    trees: u64,
    /// The buckets of each tree that were read since the last sync, in order.
    read: BTreeMap<usize, Vec<u64>>,
    seen: BTreeSet<u64>,
    /// The buckets that must be written after the last sync.
    due: Vec<u64>,
    /// The buckets written since then, and the bytes written beside the trees.
    written: Vec<u64>,
    beside: u64,
    out: Vec<Event>,
}

impl Public {
    fn record(&mut self, geometry: &PathGeometry, event: Event) {
        let in_tree = event.at < self.trees && event.op != Op::Sync;
        if event.op == Op::Sync || in_tree && event.op == Op::Read {
            self.end_of_writes();
        }
        match event.op {
            Op::Sync => self.sync(geometry, event),
            Op::Write if in_tree => {
                let places = self.split(event);
                self.written.extend(places);
            }
            Op::Write => self.beside += u64::from(event.len),
            Op::Read if in_tree => {
                for at in self.split(event) {
                    let (len, (tree, level)) = self.known[&at];
                    let place = (tree * 64 + level) as u64;
                    self.out.push(Event { at: place, len: len as u32, ..event });
                    if self.seen.insert(at) {
                        self.read.entry(tree).or_default().push(at);
                    }
                }
            }
            // An opening discards the paths that were read since the last sync, and repeats the
            // writes after it, tree by tree.
            Op::Read => {
                if self.written == self.due {
                    self.written.clear();
                }
                self.read.clear();
                self.seen.clear();
            }
        }
    }

    /// A sync. Either it made a log of all buckets read durable, or there was no log before it.
    fn sync(&mut self, geometry: &PathGeometry, event: Event) {
        self.out.push(event);
        if self.beside == 0 {
            return;
        }
        self.due = core::mem::take(&mut self.read).into_values().flatten().collect();
        self.seen.clear();
        let log: u64 = self.due.iter().map(|at| self.known[at].0 as u64 + 8).sum();
        assert_eq!(self.beside, log + geometry.state_len(), "a log of other buckets");
        self.beside = 0;
    }

    /// All due buckets are written. Any other written buckets must be all the maps.
    fn end_of_writes(&mut self) {
        let written = core::mem::take(&mut self.written);
        let rest = written.strip_prefix(&self.due[..]).unwrap_or(&written);
        if written.is_empty() || rest.is_empty() {
            return;
        }
        let maps = self.known.iter().filter(|(_, (_, (tree, _)))| *tree > 0).map(|(at, _)| at);
        let each: BTreeSet<_> = rest.iter().collect();
        assert_eq!(each.len(), rest.len(), "a bucket of a map is written twice");
        assert!(maps.eq(each), "buckets that were not read are written");
        let write = |&at: &u64| {
            let (time, surface, op, len) = (0, Surface::Storage, Op::Write, self.known[&at].0);
            Event { time, surface, op, at, len: len as u32 }
        };
        self.out.extend(rest.iter().map(write));
    }

    /// The buckets of an extent.
    fn split(&self, event: Event) -> Vec<u64> {
        let (mut at, mut places) = (event.at, vec![]);
        while at < event.at + u64::from(event.len) {
            places.push(at);
            at += self.known[&at].0 as u64;
        }
        assert_eq!(at, event.at + u64::from(event.len), "whole buckets");
        places
    }
}
