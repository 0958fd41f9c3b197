//! Programs whose page faults are measured: those of the paging paper that are not to be had
//! otherwise, each after its description there. All that they use lies on the heap, so that it is
//! paged.

mod avl;
mod lattice;
mod recommender;

use sha2::{Digest, Sha256};
use traceless::rng::{Rng, SeededRng};
use traceless_pager::PAGE_LEN;

/// A program: what it is told how much of it to do, and what it prints, which follows from all
/// that it did.
pub struct Program {
    pub name: &'static str,
    run: fn(u64) -> u64,
}

/// All of them.
pub const PROGRAMS: [Program; 5] = [
    Program { name: "random-writes", run: random_writes },
    Program { name: "sha-256", run: sha_256 },
    Program { name: "avl-tree", run: avl::run },
    Program { name: "lbm", run: lattice::run },
    Program { name: "recommender", run: recommender::run },
];

/// Runs one of them.
pub fn run(name: &str, size: u64) -> Option<u64> {
    let program = PROGRAMS.iter().find(|program| program.name == name)?;
    Some((program.run)(size))
}

/// Pages of the arrays that are written at random, and hashed.
const PAGES: usize = 1000;

/// So many writes at random places of an array of a thousand pages.
fn random_writes(writes: u64) -> u64 {
    let mut array = vec![0_u8; PAGES * PAGE_LEN];
    let mut rng = SeededRng::new(1);
    let mut sum = 0;
    for nth in 0..writes {
        let place = rng.below(array.len() as u64) as usize;
        // Most places still hold nothing.
        sum = mixed(sum, (place as u64) << 8 | u64::from(array[place]));
        array[place] = nth as u8;
    }
    sum
}

/// The digest of so many pages.
fn sha_256(pages: u64) -> u64 {
    let mut bytes = vec![0_u8; pages as usize * PAGE_LEN];
    for (nth, byte) in bytes.iter_mut().enumerate() {
        *byte = ((nth as u64 * 0x9e37) >> 8) as u8;
    }
    let digest = Sha256::digest(&bytes);
    u64::from_le_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
}

/// A sum in which each part counts, and their order.
fn mixed(sum: u64, part: u64) -> u64 {
    (sum ^ part).wrapping_mul(0x0100_0000_01b3).rotate_left(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_do_what_they_are_told_and_nothing_else() {
        for program in &PROGRAMS {
            let [one, again, more] = [3, 3, 4].map(|size| run(program.name, size).unwrap());
            assert_eq!(one, again, "{}", program.name);
            assert_ne!(one, more, "{}", program.name);
        }
        assert_eq!(run("none", 1), None);
    }
}
