//! A ring of samples. Writers and readers never wait: a writer that meets another one in a slot
//! drops its sample, and a reader leaves out a slot that changes meanwhile. A process that is
//! killed while it writes a slot leaves it unused.

use crate::trace::Op;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Samples that a ring holds.
pub const CAPACITY: usize = 4096;

/// Bits of a packed word that hold the operation.
const OP_BITS: u32 = 2;

/// One event, or one request, out of all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When it happened, by the clock that it was recorded with.
    pub time: u64,
    /// What was done.
    pub op: Op,
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub len: u32,
}

/// A slot. Its state is 0 without a sample, `2 * (n + 1)` with the sample number n, and odd while
/// that is being written.
#[derive(Default)]
#[repr(C)]
struct SampleSlot {
    state: AtomicU64,
    time: AtomicU64,
    at: AtomicU64,
    len_and_op: AtomicU64,
}

/// The newest samples. Zeros are a ring without samples.
#[repr(C)]
pub struct SampleRing {
    next: AtomicU64,
    slots: [SampleSlot; CAPACITY],
}

impl Default for SampleRing {
    fn default() -> Self {
        Self { next: AtomicU64::new(0), slots: core::array::from_fn(|_| SampleSlot::default()) }
    }
}

impl SampleRing {
    /// Adds a sample, and returns its number.
    pub fn push(&self, sample: Sample) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = self.slot(number);
        let (before, after) = (slot.state.load(Ordering::Relaxed), whole_state(number));
        let is_free = before.is_multiple_of(2) && before < after;
        let claim = |odd| {
            let (won, lost) = (Ordering::Acquire, Ordering::Relaxed);
            slot.state.compare_exchange(before, odd, won, lost).is_ok()
        };
        if is_free && claim(after.wrapping_sub(1)) {
            // A reader that finds one of the new values also finds the odd state.
            fence(Ordering::Release);
            slot.time.store(sample.time, Ordering::Relaxed);
            slot.at.store(sample.at, Ordering::Relaxed);
            slot.len_and_op.store(pack(sample.len, sample.op), Ordering::Relaxed);
            slot.state.store(after, Ordering::Release);
        }
        number
    }

    /// The number of the next sample.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// The samples from the number `first` on that are still there, and the number that the next
    /// call begins with.
    pub fn since(&self, first: u64) -> (Vec<Sample>, u64) {
        let next = self.next();
        // A number from the future is of another monitor: everything is new.
        let first = if first > next { 0 } else { first };
        let first = first.max(next.saturating_sub(CAPACITY as u64));
        ((first..next).filter_map(|number| self.read(number)).collect(), next)
    }

    #[cfg(test)]
    pub fn set_next(&self, next: u64) {
        self.next.store(next, Ordering::Relaxed);
    }

    fn read(&self, number: u64) -> Option<Sample> {
        let (slot, whole) = (self.slot(number), whole_state(number));
        if slot.state.load(Ordering::Acquire) != whole {
            return None;
        }
        let time = slot.time.load(Ordering::Relaxed);
        let at = slot.at.load(Ordering::Relaxed);
        let (len, op) = unpack(slot.len_and_op.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_same = slot.state.load(Ordering::Relaxed) == whole;
        is_same.then_some(Sample { time, op, at, len })
    }

    fn slot(&self, number: u64) -> &SampleSlot {
        &self.slots[(number % CAPACITY as u64) as usize]
    }
}

/// The state of a slot with the sample of this number. Numbers wrap around: in shared memory
/// another process may have written any.
fn whole_state(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(2)
}

fn pack(len: u32, op: Op) -> u64 {
    u64::from(len) << OP_BITS | op as u64
}

fn unpack(word: u64) -> (u32, Op) {
    let op = Op::ALL[(word % (1 << OP_BITS)) as usize % Op::ALL.len()];
    ((word >> OP_BITS) as u32, op)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// A sample in which every field follows from the first.
    fn sample(time: u64) -> Sample {
        let op = Op::ALL[(time % 3) as usize];
        Sample { time, op, at: time.wrapping_mul(0x9E37_79B9_7F4A_7C15), len: time as u32 }
    }

    #[test]
    fn the_newest_samples_are_kept_in_order() {
        let ring = SampleRing::default();
        assert_eq!(ring.since(0), (vec![], 0));
        (0..10).for_each(|time| assert_eq!(ring.push(sample(time)), time));
        let (first, next) = ring.since(0);
        assert_eq!((first, next), ((0..10).map(sample).collect(), 10));
        assert_eq!(ring.since(next), (vec![], 10));
        let many = 3 * CAPACITY as u64 + 7;
        (10..many).for_each(|time| assert_eq!(ring.push(sample(time)), time));
        let wanted: Vec<Sample> = (many - CAPACITY as u64..many).map(sample).collect();
        assert_eq!(ring.since(next), (wanted.clone(), many));
        assert_eq!(ring.since(many - 2).0, wanted[CAPACITY - 2..]);
        assert_eq!(ring.since(many + 1).0, wanted, "a number from the future");
    }

    #[test]
    fn lengths_and_operations_survive_packing() {
        for op in Op::ALL {
            for len in [0, 1, 4096, u32::MAX] {
                assert_eq!(unpack(pack(len, op)), (len, op));
            }
        }
    }

    #[test]
    fn no_sample_is_mixed_from_two() {
        let (ring, is_over) = (SampleRing::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let ring = &ring;
                    scope.spawn(move || {
                        for n in 0..400_000 {
                            ring.push(sample(3 * n + writer));
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                let (mut next, mut read) = (0, 0);
                while !is_over.load(Ordering::Relaxed) {
                    let (samples, after) = ring.since(next);
                    assert!(samples.iter().all(|one| *one == sample(one.time)));
                    (next, read) = (after, read + samples.len());
                }
                read
            });
            for writer in writers {
                writer.join().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 0);
        });
        assert_eq!(ring.next(), 1_200_000);
    }
}
