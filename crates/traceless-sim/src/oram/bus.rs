//! What a scheme does on the memory bus, taken down to be timed.

use std::sync::{Arc, Mutex};
use traceless::trace::{Event, Op, Witness};

/// The lines that one step touches.
#[derive(Clone, Default)]
pub struct Bus(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    reads: Vec<u64>,
    writes: Vec<u64>,
}

impl Bus {
    /// Moves what was touched since the last call into `reads` and `writes`, which are empty.
    pub fn take(&self, reads: &mut Vec<u64>, writes: &mut Vec<u64>) {
        let mut lines = self.0.lock().expect("no witness panics");
        core::mem::swap(&mut lines.reads, reads);
        core::mem::swap(&mut lines.writes, writes);
    }

    /// What a tree tells that begins at byte `first`.
    pub fn tap(&self, first: u64) -> Tap {
        Tap { bus: self.clone(), first }
    }
}

/// Where a tree tells what it touches.
pub struct Tap {
    bus: Bus,
    first: u64,
}

impl Witness for Tap {
    fn see(&self, event: Event) {
        let mut lines = self.bus.0.lock().expect("no witness panics");
        let at = self.first + event.at;
        match event.op {
            Op::Read => lines.reads.push(at),
            Op::Write => lines.writes.push(at),
            Op::Sync => {}
        }
    }
}
