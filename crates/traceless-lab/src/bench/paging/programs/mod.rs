//! Programs for measurements of page faults: programs of the paging paper that are not available,
//! each written after its description there. All their data lies on the heap, which is paged.

mod avl;
mod lattice;
mod recommender;

use sha2::{Digest, Sha256};
use traceless::rng::{Rng, SeededRng};
use traceless_pager::PAGE_LEN;

/// A program. It gets its amount of work, and returns a checksum of all that it did.
pub struct Program {
    pub name: &'static str,
    run: fn(u64) -> u64,
}

/// All programs.
pub const PROGRAMS: [Program; 5] = [
    Program { name: "random-writes", run: random_writes },
    Program { name: "sha-256", run: sha_256 },
    Program { name: "avl-tree", run: avl::run },
    Program { name: "lbm", run: lattice::run },
    Program { name: "recommender", run: recommender::run },
];

/// Runs a program by name.
pub fn run(name: &str, size: u64) -> Option<u64> {
    let program = PROGRAMS.iter().find(|program| program.name == name)?;
    Some((program.run)(size))
}

/// Pages of the array that `random_writes` writes.
const PAGES: usize = 1000;

/// Makes `writes` writes at random places of an array of a thousand pages.
fn random_writes(writes: u64) -> u64 {
    let mut array = vec![0_u8; PAGES * PAGE_LEN];
    let mut rng = SeededRng::new(1);
    let mut sum = 0;
    for nth in 0..writes {
        let place = rng.below(array.len() as u64) as usize;
        // Most places still hold 0, so the place is part of the sum.
        sum = mixed(sum, (place as u64) << 8 | u64::from(array[place]));
        array[place] = nth as u8;
    }
    sum
}

/// The digest of `pages` pages.
fn sha_256(pages: u64) -> u64 {
    let mut bytes = vec![0_u8; pages as usize * PAGE_LEN];
    for (nth, byte) in bytes.iter_mut().enumerate() {
        *byte = ((nth as u64 * 0x9e37) >> 8) as u8;
    }
    let digest = Sha256::digest(&bytes);
    u64::from_le_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
}

/// Adds a part to a checksum, which depends on the order of its parts.
fn mixed(sum: u64, part: u64) -> u64 {
    (sum ^ part).wrapping_mul(0x0100_0000_01b3).rotate_left(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_deterministic_and_depend_on_their_size() {
        for program in &PROGRAMS {
            let [one, again, more] = [3, 3, 4].map(|size| run(program.name, size).unwrap());
            assert_eq!(one, again, "{}", program.name);
            assert_ne!(one, more, "{}", program.name);
        }
        assert_eq!(run("none", 1), None);
    }
}
