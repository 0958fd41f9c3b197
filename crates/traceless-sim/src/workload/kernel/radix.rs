//! Radix sort.

use super::threads::{Array, Space, ThreadKernel, ThreadMemory};
use traceless::rng::{Rng, SeededRng};

const KEY_BITS: u32 = 19;
const DIGIT_BITS: u32 = 12;
const DIGITS: usize = 1 << DIGIT_BITS;

/// Sorts random keys. There are two passes, one a digit, so the result is in the first array.
pub struct Radix {
    drawn: Vec<u32>,
    keys: [Array<u32>; 2],
    /// For each thread and digit: the number of its keys with the digit, and the place of the next
    /// one.
    counts: Array<u32>,
    ranks: Array<u32>,
}

impl Radix {
    /// A sort of `keys` keys.
    pub fn new(space: &mut Space, keys: usize, threads: usize, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        Self {
            drawn: (0..keys).map(|_| rng.below(1 << KEY_BITS) as u32).collect(),
            keys: [(); 2].map(|()| space.array(vec![0; keys])),
            counts: space.array(vec![0; threads * DIGITS]),
            ranks: space.array(vec![0; threads * DIGITS]),
        }
    }

    /// Counts the digits of the thread's keys.
    fn count(&self, memory: &mut ThreadMemory, from: &Array<u32>, shift: u32) {
        let own = memory.thread() * DIGITS;
        for digit in 0..DIGITS {
            self.counts.store(memory, own + digit, 0);
            memory.work(2);
        }
        for nth in memory.part(from.len(), memory.thread()) {
            let place = own + digit(from.load(memory, nth), shift);
            let count = self.counts.load(memory, place);
            self.counts.store(memory, place, count + 1);
            memory.work(5);
        }
    }

    /// Finds the places of the thread's keys from the counts of all threads.
    fn rank(&self, memory: &mut ThreadMemory) {
        let own = memory.thread();
        let mut before = 0;
        for digit in 0..DIGITS {
            for thread in 0..memory.threads() {
                if thread == own {
                    self.ranks.store(memory, own * DIGITS + digit, before);
                }
                before += self.counts.load(memory, thread * DIGITS + digit);
                memory.work(3);
            }
        }
    }

    fn permute(&self, memory: &mut ThreadMemory, from: &Array<u32>, to: &Array<u32>, shift: u32) {
        let own = memory.thread() * DIGITS;
        for nth in memory.part(from.len(), memory.thread()) {
            if memory.is_unheard() {
                return;
            }
            let key = from.load(memory, nth);
            let place = own + digit(key, shift);
            let rank = self.ranks.load(memory, place);
            to.store(memory, rank as usize, key);
            self.ranks.store(memory, place, rank + 1);
            memory.work(6);
        }
    }
}

impl ThreadKernel for Radix {
    fn run(&self, memory: &mut ThreadMemory) {
        for nth in memory.part(self.drawn.len(), memory.thread()) {
            self.keys[0].store(memory, nth, self.drawn[nth]);
            memory.work(8);
        }
        let (mut from, mut to) = (&self.keys[0], &self.keys[1]);
        for shift in (0..KEY_BITS).step_by(DIGIT_BITS as usize) {
            self.count(memory, from, shift);
            if !memory.barrier() {
                return;
            }
            self.rank(memory);
            self.permute(memory, from, to, shift);
            if !memory.barrier() {
                return;
            }
            core::mem::swap(&mut from, &mut to);
        }
    }
}

fn digit(key: u32, shift: u32) -> usize {
    (key >> shift) as usize & (DIGITS - 1)
}

#[cfg(test)]
mod tests {
    use super::super::threads::tests::alone;
    use super::*;

    #[test]
    fn keys_are_in_order() {
        for threads in [1, 3] {
            let radix = alone(threads, |space| Radix::new(space, 10_000, threads, 1));
            let mut expected = radix.drawn.clone();
            expected.sort_unstable();
            assert!((0..).zip(expected).all(|(nth, key)| radix.keys[0].peek(nth) == key));
        }
    }
}
