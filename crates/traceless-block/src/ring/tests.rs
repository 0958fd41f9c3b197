//! Tests of the whole scheme.

use super::*;
use std::sync::Arc;
use traceless_core::rng::Rng;
use traceless_core::suite::rig;

/// Blocks stay where they can be found for many turns of all buckets, with few in the stash.
#[test]
fn many_turns_lose_nothing_and_the_stash_stays_short() {
    let ring = RingGeometry::with_buckets(600, 64, 8, &[4, 16]).unwrap();
    let mut rig = rig::Rig::with_room(ring.clone(), ring.store_len());
    let mut oram = Ring::create(&ring, rig.context(rig.store.clone(), false)).unwrap();
    let (mut rng, mut model, mut most) = (SeededRng::new(5), vec![0u8; 600], 0);
    for nth in 0..20_000u64 {
        let block = rng.below(if nth % 3 == 0 { 600 } else { 60 });
        if nth % 2 == 0 {
            model[block as usize] = nth as u8;
            oram.write(Addr(block), &[nth as u8; 64]).unwrap();
        } else {
            let mut read = [0; 64];
            oram.read(Addr(block), &mut read).unwrap();
            assert_eq!(read, [model[block as usize]; 64], "access {nth}, block {block}");
        }
        most = most.max(oram.stashed());
    }
    assert!((10..40).contains(&most), "{most} in the stash");
    assert_eq!(oram.writes(), 20_000);
    oram.verify(&mut |_, _| {}, &mut |place| panic!("{place}")).unwrap();
}

/// For reading only all of it is read for each request, in one order, and nothing is written.
#[test]
fn reading_only_reads_everything() {
    let ring = RingGeometry::with_buckets(100, 64, 4, &[3, 6]).unwrap();
    let mut rig = rig::Rig::with_room(ring.clone(), ring.store_len());
    let mut oram = Ring::create(&ring, rig.context(rig.store.clone(), false)).unwrap();
    rig::fill(&mut oram, 7);
    oram.sync().unwrap();
    drop(oram);
    let before = rig.store.snapshot();
    let seen = Arc::new(traceless_core::trace::Recorder::default());
    let store = Arc::new(traceless_core::store::WatchedStore::new(rig.store.clone(), seen.clone()));
    let (context, state) = (rig.context(store, true), rig.vault.kept());
    let mut oram = Ring::open(&ring, context, &state, &mut |_, _| {}).unwrap();
    seen.take();
    let mut traces = vec![];
    for block in [3, 99] {
        let mut read = [0; 64];
        oram.read(Addr(block), &mut read).unwrap();
        assert_eq!(read, [7; 64]);
        traces.push(seen.take());
    }
    assert!(traces[0].len() > 8 && traces[0] == traces[1]);
    assert!(matches!(oram.write(Addr(1), &[1; 64]), Err(traceless_core::Error::ReadOnly)));
    assert!(rig.store.snapshot() == before);
}
