//! Tests of trees under tampering, with each kind of seal: flipped bits, old buckets, and swapped
//! buckets, on every level.

use super::*;
use crate::scheme::pmmac::Pmmac;
use traceless_core::seal::{Aegis, HashSeal, MaskSeal, NoSeal, Salt, TAG_LEN};
use traceless_core::store::{MemStore, Store};
use traceless_core::types::Extent;

const LEVELS: usize = 4;
const BLOCKS: u64 = 24;
const LEN: usize = 16;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    Flip,
    Replay,
    Swap,
}

const FAULTS: [Fault; 3] = [Fault::Flip, Fault::Replay, Fault::Swap];

fn key() -> Secret {
    Secret::from_bytes([7; 32])
}

fn shape() -> Shape {
    Shape::uniform(LEVELS, 4).unwrap()
}

fn salts() -> Box<dyn Rng> {
    Box::new(SeededRng::new(2))
}

fn path<C: Sealer>(store: &Arc<MemStore>, cipher: C, len: usize) -> PathOram<SealedTree<C>> {
    let tree = SealedTree::create(store.clone(), 0, "tree", shape(), len, cipher, salts()).unwrap();
    PathOram::new(BLOCKS, vec![tree], 50, Box::new(SeededRng::new(1))).unwrap()
}

/// Writes, changes every bucket of a level, and reads until an error. Fails if a read returns
/// anything but the written data. Returns the error.
fn refusal<S: Controller>(
    controller: S,
    store: &MemStore,
    buckets: &[Extent],
    fault: Fault,
) -> Option<Error> {
    let mut oram = SteppedOram::new(controller);
    let write_all = |oram: &mut SteppedOram<S>, byte| {
        (0..200).for_each(|i| oram.write(Addr(i % BLOCKS), &[byte; LEN]).unwrap());
    };
    write_all(&mut oram, 1);
    let old = store.snapshot();
    write_all(&mut oram, 2);
    let new = store.snapshot();
    for (nth, bucket) in buckets.iter().enumerate() {
        let from = match fault {
            Fault::Swap => buckets[nth ^ 1],
            _ => *bucket,
        };
        let source = if fault == Fault::Replay { &old } else { &new };
        let mut bytes = source[from.at as usize..from.end() as usize].to_vec();
        if fault == Fault::Flip {
            // The offset differs from bucket to bucket, so that each part of a bucket is changed in
            // some.
            for at in (nth * 7 % 13..bytes.len()).step_by(13) {
                bytes[at] ^= 0x55;
            }
        }
        store.write(&[*bucket], &bytes).unwrap();
    }
    let mut block = [0; LEN];
    for i in 0..4 * BLOCKS {
        match oram.read(Addr(i % BLOCKS), &mut block) {
            Ok(()) => assert_eq!(block, [2; LEN], "{fault:?}"),
            Err(error) => {
                let after = oram.read(Addr(0), &mut block);
                assert!(matches!(after, Err(Error::EarlierDamage | Error::EarlierAbort)));
                return Some(error);
            }
        }
    }
    None
}

/// The buckets of a level.
fn buckets<C: Sealer>(cipher: &C, len: usize, level: usize) -> Vec<Extent> {
    let layout = SealedTree::layout(&shape(), len, cipher);
    let extent = |bucket| Extent::new(layout.bucket_at(level, bucket), layout.bucket_len(level));
    (0..shape().buckets(level)).map(extent).collect()
}

/// Reading a path verifies the whole path.
fn refuses_at_once<C: Sealer>(cipher: impl Fn() -> C) {
    for fault in FAULTS {
        for level in usize::from(fault == Fault::Swap)..LEVELS {
            let len = SealedTree::store_len(&shape(), LEN, &cipher());
            let store = Arc::new(MemStore::new(len));
            let level_buckets = buckets(&cipher(), LEN, level);
            let oram = path(&store, cipher(), LEN);
            let refused = refusal(oram, &store, &level_buckets, fault);
            let Some(Error::Tampered { place }) = refused else { panic!("{fault:?} on {level}") };
            let first = (1 << level) - 1;
            assert!((first..=2 * first).contains(&place.slot), "{place:?} on level {level}");
        }
    }
}

#[test]
fn counters_in_parents_notice_at_once() {
    refuses_at_once(|| Aead::new(&key()));
    refuses_at_once(|| Aegis::new(&key()));
}

#[test]
fn a_merkle_tree_notices_at_once() {
    refuses_at_once(|| HashSeal::new(&key()));
}

/// Blocks verify when they are requested. A changed header may also fill the stash.
#[test]
fn block_tags_find_a_damaged_requested_block() {
    let (len, mut refused) = (LEN + Salt::LEN + TAG_LEN, 0);
    for fault in FAULTS {
        for level in usize::from(fault == Fault::Swap)..LEVELS {
            let cipher = || MaskSeal::new(&key());
            let store = Arc::new(MemStore::new(SealedTree::store_len(&shape(), len, &cipher())));
            let level_buckets = buckets(&cipher(), len, level);
            let pmmac =
                Pmmac::new(path(&store, cipher(), len), Aegis::new(&key()), salts()).unwrap();
            match refusal(pmmac, &store, &level_buckets, fault) {
                Some(Error::Tampered { .. } | Error::StashOverflow { .. }) => refused += 1,
                // Uppermost buckets may hold no block that is requested.
                None if level < LEVELS - 2 => {}
                other => panic!("{fault:?} on {level}: {other:?}"),
            }
        }
    }
    assert!(refused >= 6, "{refused}");
}

/// The planted fault: without a seal, changed data is returned.
#[test]
#[should_panic(expected = "Replay")]
fn without_a_seal_changes_are_read() {
    for level in 0..LEVELS {
        let store = Arc::new(MemStore::new(SealedTree::store_len(&shape(), LEN, &NoSeal)));
        let level_buckets = buckets(&NoSeal, LEN, level);
        refusal(path(&store, NoSeal, LEN), &store, &level_buckets, Fault::Replay);
    }
}
