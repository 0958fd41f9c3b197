//! Dependent loads, and copies.

use super::ns_of;
use std::hint::black_box;
use traceless::rng::{Rng, SeededRng};
use traceless_sys::Words;

/// Bytes of a cache line.
const LINE_LEN: usize = 64;
/// Words of a cache line.
const LINE_WORDS: usize = LINE_LEN / size_of::<u64>();

/// Words of one copy: a page, as stores in memory move it.
const COPY_WORDS: usize = 4096 / size_of::<u64>();

/// Copies of one reading.
const COPIES: usize = 1 << 13;

/// One cycle through all lines of a memory, in random order: each line holds the place of the next.
pub struct Chase {
    words: Words,
    at: usize,
}

impl Chase {
    pub fn new(bytes: usize) -> Self {
        let (mut words, mut rng) = (zeroed(bytes), SeededRng::new(3));
        let mut order: Vec<u32> = (0..(bytes / LINE_LEN) as u32).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let followers = order.iter().skip(1).chain(order.first());
        for (&place, &next) in order.iter().zip(followers) {
            words[place as usize * LINE_WORDS] = u64::from(next) * LINE_WORDS as u64;
        }
        Self { words, at: 0 }
    }

    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    /// Nanoseconds of a load.
    pub fn ns(&mut self, loads: usize) -> f64 {
        ns_of(loads, || {
            for _ in 0..loads {
                self.at = self.words[self.at] as usize;
            }
            black_box(self.at);
        })
    }
}

/// Two halves of a memory; pages are copied from the first to the second.
pub struct Copying {
    words: Words,
    at: usize,
}

impl Copying {
    pub fn new(bytes: usize) -> Self {
        let mut words = zeroed(bytes);
        // The system backs memory with real pages only once it is written.
        words.fill(1);
        Self { words, at: 0 }
    }

    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    /// Nanoseconds of a copy of 4096 bytes.
    pub fn ns(&mut self) -> f64 {
        let half = self.words.len() / 2;
        ns_of(COPIES, || {
            let (from, to) = self.words.split_at_mut(half);
            for _ in 0..COPIES {
                let range = self.at..self.at + COPY_WORDS;
                to[range.clone()].copy_from_slice(&from[range]);
                self.at = (self.at + COPY_WORDS) % half;
            }
            black_box(&to[self.at]);
        })
    }
}

/// Zeroed memory, in huge pages if the system has them, as for stores in memory.
fn zeroed(bytes: usize) -> Words {
    Words::zeroed(bytes / size_of::<u64>()).expect("the memory is there")
}
