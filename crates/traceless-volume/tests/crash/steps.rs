//! The steps of a client.

use traceless_core::rng::{Rng, SeededRng};

/// A step of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Writes this many blocks in one request.
    Write(u64),
    /// Discards a range that this many blocks of the discard map cover.
    Discard(u64),
    Flush,
    /// Ends without a close and opens again; the disk's cache survives.
    Kill,
    /// Closes and opens again.
    Close,
}

/// Random steps with `writes` writes in all. The same seed gives the same steps.
pub fn script(seed: u64, writes: u64, unsynced_max: u64) -> Vec<Step> {
    let mut rng = SeededRng::new(seed);
    let (mut steps, mut left) = (vec![], writes);
    while left > 0 {
        let step = match rng.below(16) {
            0..9 => Step::Write(1),
            9..12 => Step::Write((1 + rng.below(unsynced_max + 1)).min(left)),
            12..14 => Step::Flush,
            14 => Step::Kill,
            _ => Step::Close,
        };
        if let Step::Write(n) = step {
            left -= n;
        }
        steps.push(step);
    }
    steps
}
