//! The time that a disk would need for a recorded trace.
//!
//! Measurements on one machine's disk say little about another kind of disk. A trace holds the
//! requests to any disk, and these models turn it into seconds.

mod hdd;
mod ssd;

pub use hdd::Hdd;
pub use ssd::Ssd;

use traceless::trace::Event;

/// A model of a disk that serves one call after the other.
pub trait Disk {
    /// Nanoseconds for the requests of one call, which may be served together.
    fn serve(&mut self, call: &[Event]) -> f64;

    /// Nanoseconds for requests that still wait in the disk.
    fn drain(&mut self) -> f64;
}

/// Seconds that `disk` needs for `events`. Events of one operation and one time are one call, and
/// the caller waits for its end.
pub fn seconds(disk: &mut dyn Disk, events: &[Event]) -> f64 {
    let calls = events.chunk_by(|a, b| a.time == b.time && a.op == b.op);
    let served: f64 = calls.map(|call| disk.serve(call)).sum();
    (served + disk.drain()) / 1e9
}

#[cfg(test)]
pub mod testing {
    use traceless::trace::{Event, Op, Surface};

    /// Requests of `len` bytes at `offsets`, each a separate call.
    pub fn requests(op: Op, len: u32, offsets: impl Iterator<Item = u64>) -> Vec<Event> {
        let event = |(time, at)| Event { time, surface: Surface::Storage, op, at, len };
        (0..).zip(offsets).map(event).collect()
    }
}
