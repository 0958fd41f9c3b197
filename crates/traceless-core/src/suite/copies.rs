//! Which nonces two copies of one process share when they seal different contents.

use super::{Subject, step};
use crate::rng::{Rng, Salt, SeededRng};
use crate::scheme::contract::Scheme;
use crate::seal::{Nonce, record};
use std::collections::HashSet;
use traceless_sys::in_a_copy;

/// Number of operations before the copy is made, and of each copy after it.
const OPERATIONS: usize = 120;

/// Bytes that report the use of a nonce: key, version, whether there is a salt, and the salt.
const USE_LEN: usize = 8 + 8 + 1 + 8;

/// Number of pairs of a key and a nonce under which two copies of one process have both sealed,
/// after they went on with different contents. `rng` makes the source of randomness that both
/// copies have. With the operating system's source there must be no pair; with a source of
/// copied state, all nonces are shared.
pub fn nonces_that_copies_share(scheme: &dyn Scheme, rng: fn() -> Box<dyn Rng>) -> usize {
    let mut subject = Subject::new(scheme);
    let mut context = subject.context(subject.store());
    context.rng = rng();
    let mut oram = scheme.create(context).unwrap();
    let mut model = vec![0; scheme.blocks() as usize * scheme.block_len()];
    let mut operations = SeededRng::new(5);
    for _ in 0..OPERATIONS {
        step(&mut *oram, &mut model, &mut operations).unwrap();
    }
    record::start();
    let mut continue_with = |seed| {
        let mut operations = SeededRng::new(seed);
        for _ in 0..OPERATIONS {
            step(&mut *oram, &mut model, &mut operations).unwrap();
        }
        oram.close().unwrap();
        uses()
    };
    let of_copy = in_a_copy(|| continue_with(6));
    let of_copy: HashSet<&[u8]> = of_copy.chunks_exact(USE_LEN).collect();
    let own = continue_with(7);
    let own: HashSet<&[u8]> = own.chunks_exact(USE_LEN).collect();
    assert!(own.len().min(of_copy.len()) > 1, "both have sealed something");
    own.intersection(&of_copy).count()
}

/// All nonces that this thread has used since the last call.
fn uses() -> Vec<u8> {
    let mut bytes = Vec::new();
    for sealed in record::take() {
        let Nonce { version, salt } = sealed.nonce;
        bytes.extend_from_slice(&sealed.key.to_le_bytes());
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.push(u8::from(salt.is_some()));
        bytes.extend_from_slice(&salt.map_or([0; 8], Salt::to_bytes));
    }
    bytes
}
