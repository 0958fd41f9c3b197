//! Counts of a recorded trace's requests to the store.

use serde::Serialize;
use traceless::trace::{Event, Op};

/// Requests, bytes and seeks in a part of a trace: all requests to the store, with headers, maps,
/// journals and superblocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Counts {
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Requests that do not begin where the one before ended.
    pub seeks: u64,
    pub syncs: u64,
}

impl Counts {
    /// Counts `events`. `head` is the end of the request before them, and moves to the end of the
    /// last.
    pub fn of(events: &[Event], head: &mut u64) -> Self {
        let mut counts = Self::default();
        for event in events {
            let len = u64::from(event.len);
            match event.op {
                Op::Read => {
                    counts.reads += 1;
                    counts.bytes_read += len;
                }
                Op::Write => {
                    counts.writes += 1;
                    counts.bytes_written += len;
                }
                Op::Sync => {
                    counts.syncs += 1;
                    continue;
                }
            }
            counts.seeks += u64::from(event.at != *head);
            *head = event.at + len;
        }
        counts
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.bytes_read + self.bytes_written
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.reads += more.reads;
        self.writes += more.writes;
        self.bytes_read += more.bytes_read;
        self.bytes_written += more.bytes_written;
        self.seeks += more.seeks;
        self.syncs += more.syncs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::trace::Surface;

    #[test]
    fn adjacent_requests_are_one_seek() {
        let event = |op, at, len| Event { time: 0, surface: Surface::Storage, op, at, len };
        let events = [
            event(Op::Write, 100, 10),
            event(Op::Sync, 0, 0),
            event(Op::Write, 110, 10),
            event(Op::Read, 0, 5),
            event(Op::Read, 6, 5),
        ];
        let mut head = 0;
        let counts = Counts::of(&events, &mut head);
        let expected =
            Counts { reads: 2, writes: 2, bytes_read: 10, bytes_written: 20, seeks: 3, syncs: 1 };
        assert_eq!(counts, expected);
        assert_eq!((counts.bytes(), head), (30, 11));
        let mut twice = counts;
        twice += counts;
        assert_eq!(twice.bytes_written, 40);
    }
}
