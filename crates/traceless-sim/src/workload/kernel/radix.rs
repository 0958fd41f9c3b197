//! Radix sort.

use super::{Array, Memory};
use traceless::rng::{Rng, Seeded};

const KEY_BITS: u32 = 19;
const DIGIT_BITS: u32 = 12;
const DIGITS: usize = 1 << DIGIT_BITS;

/// Sorts so many random keys.
pub fn run(memory: &mut Memory, keys: usize, seed: u64) -> Vec<u32> {
    let mut rng = Seeded::new(seed);
    let drawn = (0..keys).map(|_| rng.below(1 << KEY_BITS) as u32).collect();
    let mut from = memory.array(drawn);
    let mut to = memory.array(vec![0; keys]);
    let mut ranks = memory.array(vec![0u32; DIGITS]);
    for nth in 0..keys {
        let key = from.values[nth];
        from.store(memory, nth, key);
        memory.work(8);
    }
    for shift in (0..KEY_BITS).step_by(DIGIT_BITS as usize) {
        sort_by_digit(memory, &from, &mut to, &mut ranks, shift);
        core::mem::swap(&mut from, &mut to);
    }
    from.values
}

fn sort_by_digit(
    memory: &mut Memory,
    from: &Array<u32>,
    to: &mut Array<u32>,
    ranks: &mut Array<u32>,
    shift: u32,
) {
    let digit = |key: u32| (key >> shift) as usize & (DIGITS - 1);
    for nth in 0..DIGITS {
        ranks.store(memory, nth, 0);
        memory.work(2);
    }
    for nth in 0..from.values.len() {
        let place = digit(from.load(memory, nth));
        let count = ranks.load(memory, place);
        ranks.store(memory, place, count + 1);
        memory.work(5);
    }
    let mut sum = 0;
    for nth in 0..DIGITS {
        let count = ranks.load(memory, nth);
        ranks.store(memory, nth, sum);
        sum += count;
        memory.work(3);
    }
    for nth in 0..from.values.len() {
        if memory.is_unheard() {
            return;
        }
        let key = from.load(memory, nth);
        let rank = ranks.load(memory, digit(key));
        to.store(memory, rank as usize, key);
        ranks.store(memory, digit(key), rank + 1);
        memory.work(6);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::alone;
    use super::*;

    #[test]
    fn keys_are_in_order() {
        let keys = alone(|memory| run(memory, 10_000, 1));
        assert!(keys.is_sorted() && keys[0] < keys[9_999]);
    }
}
