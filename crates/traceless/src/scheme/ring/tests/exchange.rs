//! Tests of exchanges: one block is put in and another taken out in one access.

use super::trace::{leaves, read_slots};
use super::*;
use crate::scheme::tree_rig::{CHI_SQUARE_MAX, REPEATS_MAX, chi_square, repeats};
use std::collections::BTreeMap;
use traceless_core::trace::{Op, Recorder};

/// An owner that keeps some blocks outside the ring, and the expected contents of all.
struct Owner<T> {
    ring: Ring<T>,
    kept: Vec<(Addr, Vec<u8>)>,
    truth: BTreeMap<Addr, Vec<u8>>,
    draws: SeededRng,
}

impl<T: RingTree> Owner<T> {
    fn new(ring: Ring<T>) -> Self {
        Self { ring, kept: vec![], truth: BTreeMap::new(), draws: SeededRng::new(3) }
    }

    /// Takes out a block that the owner does not keep; puts in a kept one if `goes`.
    fn turn(&mut self, wanted: Addr, goes: bool) {
        let goes = goes && !self.kept.is_empty();
        let nth = self.draws.below(self.kept.len().max(1) as u64) as usize;
        let (out, mut body) = if goes {
            let (addr, body) = self.kept.swap_remove(nth);
            (Some(addr), body)
        } else {
            (None, vec![9; self.ring.block_len()])
        };
        self.ring.exchange(out, Some(wanted), &mut body).unwrap();
        let zeros = vec![0; body.len()];
        assert_eq!(&body, self.truth.get(&wanted).unwrap_or(&zeros), "{wanted:?}");
        self.draws.fill(&mut body);
        self.truth.insert(wanted, body.clone());
        self.kept.push((wanted, body));
    }

    fn keeps(&self, addr: Addr) -> bool {
        self.kept.iter().any(|(kept, _)| *kept == addr)
    }
}

#[test]
fn what_went_comes_back() {
    for params in [TINY, Params::Z4, Params::Z16] {
        for blocks in [9, 200] {
            let (ring, _) = small(blocks, params);
            let mut owner = Owner::new(ring);
            for turn in 0..4000 {
                let addr = Addr(owner.draws.below(blocks));
                if !owner.keeps(addr) {
                    owner.turn(addr, owner.kept.len() == 8);
                    let limit = usize::from(params.stash_blocks);
                    assert!(owner.ring.stash().len() <= limit, "turn {turn}");
                }
            }
        }
    }
}

/// A read fails in each exchange, each time at another point: then no block has moved, and the same
/// exchange is repeated, or another one is made.
#[cfg(feature = "suite")]
#[test]
fn a_failed_read_exchanges_nothing() {
    use traceless_core::suite::{FailingReads, is_read_again};

    let params = Params::Z4;
    let shape = params.shape_for(60).unwrap();
    let inner = store_for(params, &shape, 24, &keys()[0]);
    let store = Arc::new(FailingReads::new(inner));
    let tree = SealedRing::create(store.clone(), 0, params, shape, 24, keys(), rng()).unwrap();
    let (mut ring, mut draws) = (Ring::new(60, tree, rng()).unwrap(), SeededRng::new(2));
    let mut truth = vec![[0; 24]; 60];
    let (mut kept, mut failed) = (0, 0);
    for turn in 0..3000 {
        store.fail_after(turn % 7);
        let wanted = (kept + 1 + draws.below(59)) % 60;
        let mut body = truth[kept as usize];
        store.take_reads();
        if let Err(error) = ring.exchange(Some(Addr(kept)), Some(Addr(wanted)), &mut body) {
            failed += 1;
            assert!(matches!(error, Error::Store(_)), "{error}");
            assert!(body == truth[kept as usize] && !ring.holds(Addr(kept)));
            let before = store.take_reads();
            // Another exchange, or the same one.
            let wanted = if turn % 2 == 0 { wanted } else { (kept + 1 + turn % 59) % 60 };
            ring.exchange(Some(Addr(kept)), Some(Addr(wanted)), &mut body).unwrap();
            assert!(is_read_again(&before, &store.take_reads()), "turn {turn}");
            assert_eq!(body, truth[wanted as usize], "turn {turn}");
            kept = wanted;
        } else {
            assert_eq!(body, truth[wanted as usize], "turn {turn}");
            kept = wanted;
        }
        draws.fill(&mut truth[kept as usize]);
    }
    assert!(failed > 500, "{failed}");
}

#[test]
fn present_and_unknown_blocks_are_refused() {
    let (mut ring, _) = small(20, Params::Z4);
    let (one, mut body) = (Addr(1), [7; 24]);
    ring.exchange(Some(one), None, &mut body).unwrap();
    assert!(ring.holds(one) && !ring.holds(Addr(2)));
    let twice = ring.exchange(Some(one), None, &mut body);
    assert!(matches!(twice, Err(Error::Misplaced { addr }) if addr == one));
    let beyond = ring.exchange(None, Some(Addr(20)), &mut body);
    assert!(matches!(beyond, Err(Error::OutOfRange { .. })));
    body = [0; 24];
    ring.exchange(None, Some(one), &mut body).unwrap();
    assert!(body == [7; 24] && !ring.holds(one));
    ring.exchange(None, Some(one), &mut body).unwrap();
    assert_eq!(body, [0; 24]);
}

/// For any blocks, an exchange is one access, and every A exchanges are followed by one eviction;
/// an early reshuffle adds the rest of its bucket.
#[test]
fn an_exchange_is_one_access() {
    let params = Params::Z4;
    let shape = params.shape_for(300).unwrap();
    let (levels, witness) = (shape.levels(), Arc::new(Recorder::default()));
    let tree = GhostRing::new(params, shape, witness.clone()).unwrap();
    let mut ring = Ring::new(300, tree, rng()).unwrap();
    let known = GhostRing::<()>::metadata_lines(params) * levels;
    let mut kept: Option<Addr> = None;
    for turn in 0..3000u64 {
        let (out, wanted) = match turn % 4 {
            0 => (None, None),
            1 => (kept.take(), None),
            _ => (kept.take(), Some(Addr(turn % 300))),
        };
        kept = wanted.or(kept);
        let before = ring.counts();
        ring.exchange(out, wanted, &mut []).unwrap();
        let (counts, events) = (ring.counts(), witness.take());
        assert_eq!(counts.accesses, before.accesses + 1);
        let evicts = turn % u64::from(params.rate) == u64::from(params.rate) - 1;
        assert_eq!(counts.evictions - before.evictions, u64::from(evicts));
        let early = (counts.reshuffles - before.reshuffles) as usize;
        let (z, slots) = (usize::from(params.z), params.slots());
        let evicted = usize::from(evicts) * levels;
        let reads = known + levels + early * (z - 1) + usize::from(evicts) * known + evicted * z;
        let writes = known + early * slots + usize::from(evicts) * known + evicted * slots;
        let count = |op| events.iter().filter(|event| event.op == op).count();
        assert_eq!((count(Op::Read), count(Op::Write)), (reads, writes), "turn {turn}");
    }
}

/// Two blocks alternate: each exchange draws a fresh path, and no slot is read twice.
#[test]
fn paths_of_exchanges_are_random() {
    let (params, shape) = (Params::Z4, Shape::uniform(11, 1).unwrap());
    let witness = Arc::new(Recorder::default());
    let tree = GhostRing::new(params, shape.clone(), witness.clone()).unwrap();
    let mut ring = Ring::new(1000, tree, rng()).unwrap();
    let mut accessed = vec![];
    // Short runs, each of whole rounds, since the events of a single long run would take much
    // memory.
    for _ in 0..50 {
        let mut events = vec![];
        for turn in 0..600u64 {
            let out = (ring.counts().accesses > 0).then_some(Addr(1 - turn % 2));
            ring.exchange(out, Some(Addr(turn % 2)), &mut []).unwrap();
            events.extend(witness.take());
        }
        assert_eq!(read_slots(params, &events).twice, 0);
        // Each run includes the eviction after its last access, so the count starts afresh.
        accessed.extend(leaves(params, &shape, &events).0);
    }
    assert_eq!(accessed.len(), 30_000);
    assert!(chi_square(&accessed, 1024) < CHI_SQUARE_MAX);
    assert!(repeats(&accessed, 1024).abs() < REPEATS_MAX);
}
