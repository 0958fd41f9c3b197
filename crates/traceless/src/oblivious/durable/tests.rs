//! Tests that need internals: crashes at every call, freshness of pages and of the state, labels
//! after a crash, openings and their keys.

use super::*;
use crate::oblivious::tree::Memory as _;
use crate::oblivious::width::Dynamic;
use alloc::sync::Arc;
use std::collections::BTreeMap;
use traceless_core::durable::Vault;
use traceless_core::error::Place;
use traceless_core::scheme::openings::OPENINGS_MAX;
use traceless_core::store::{MemStore, Store, WatchedStore};
use traceless_core::suite::rig::{self, assert_filled, fill};
use traceless_core::trace::{Op, Recorder};

type Opened = Result<DurableOblivious<Dynamic>>;

traceless_core::local_rig!(Rig, ArrayGeometry);

impl Rig {
    fn new(geometry: ArrayGeometry) -> Self {
        Self(rig::Rig::with_room(geometry, geometry.store_len()))
    }

    fn create(&mut self) -> DurableOblivious<Dynamic> {
        let context = self.0.context(self.0.store.clone(), false);
        let width = Dynamic::of(self.0.geometry.block_len);
        DurableOblivious::create(self.0.geometry, width, context).unwrap()
    }

    fn open_on(&mut self, store: Arc<dyn Store>, read_only: bool) -> Opened {
        self.open_by(store, read_only, DurableOblivious::open)
    }

    fn open_by(
        &mut self,
        store: Arc<dyn Store>,
        read_only: bool,
        open: impl Fn(ArrayGeometry, Dynamic, SchemeContext, &SchemeState) -> Opened,
    ) -> Opened {
        let (context, state) = (self.0.context(store, read_only), self.0.vault.kept());
        open(
            self.0.geometry,
            Dynamic::of(self.0.geometry.block_len),
            context,
            &SchemeState::decode(&state)?,
        )
    }

    fn open(&mut self) -> DurableOblivious<Dynamic> {
        self.open_on(self.0.store.clone(), false).unwrap()
    }
}

/// All in memory; with one page on a path, and with two.
fn geometries() -> [ArrayGeometry; 3] {
    let memory = ArrayGeometry { unsynced_max: 9, ..ArrayGeometry::new(37, 16).unwrap() };
    let one = ArrayGeometry { memory_levels: 3, unsynced_max: 7, ..memory };
    let two = ArrayGeometry { memory_levels: 1, ..one };
    assert_eq!([memory, one, two].map(|g| g.layout().unwrap().pages.pages), [0, 1, 2]);
    [memory, one, two]
}

#[test]
fn no_crash_loses_what_was_synced() {
    for (nth, geometry) in geometries().into_iter().enumerate() {
        let fuses = (0..60).chain((0..40).map(|n| n * 977 % 3000));
        rig::lives_through_crashes(geometry, nth as u64, fuses);
    }
}

/// Crashes, copies that live on, and new openings: no nonce covers two contents.
#[cfg(feature = "suite")]
#[test]
fn no_nonce_covers_two_contents() {
    use traceless_core::seal::record;

    record::start();
    for (nth, geometry) in geometries().into_iter().enumerate() {
        let fuses = (0..60).map(|n| 20 + n * 977 % 3000);
        rig::lives_through_crashes(geometry, nth as u64 + 9, fuses);
        let mut used = BTreeMap::new();
        for sealed in record::take() {
            let first = *used.entry((sealed.key, sealed.nonce.version)).or_insert(sealed.tag);
            assert_eq!(first, sealed.tag, "version {} is used twice", sealed.nonce.version);
        }
        assert!(used.len() > 500, "{}", used.len());
    }
}

/// Reads every block, which must be as written or refused, and returns the first refused place.
fn first_refusal(rig: &mut Rig, bytes: &[u8]) -> Option<Place> {
    let kept = rig.vault.kept();
    let mut refused = None;
    match rig.open_on(Arc::new(MemStore::from_bytes(bytes)), false) {
        Err(Error::Tampered { place }) => refused = Some(place),
        Err(other) => panic!("{other}"),
        Ok(mut oram) => {
            let mut block = [0; 16];
            for addr in (0..37).cycle().take(400) {
                match oram.read(Addr(addr), &mut block) {
                    Ok(()) => assert_eq!(block, [2; 16]),
                    Err(Error::Tampered { place }) => refused = refused.or(Some(place)),
                    Err(Error::EarlierDamage) => assert!(refused.is_some()),
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    rig.vault.keep(&kept).unwrap();
    refused
}

#[test]
fn old_pages_and_old_states_are_refused() {
    for geometry in geometries() {
        let mut rig = Rig::new(geometry);
        let mut oram = rig.create();
        fill(&mut oram, 1);
        oram.sync().unwrap();
        let old = rig.store.snapshot();
        (0..20).for_each(|_| fill(&mut oram, 2));
        oram.close().unwrap();
        let sound = rig.store.snapshot();
        assert_eq!(first_refusal(&mut rig, &sound), None);
        let ArrayLayout { pages, copies } = geometry.layout().unwrap();
        let mut put_back = |at: u64, len: u64| {
            let (mut bytes, range) = (sound.clone(), at as usize..(at + len) as usize);
            bytes[range.clone()].copy_from_slice(&old[range]);
            first_refusal(&mut rig, &bytes).map(|place| place.area)
        };
        for page in 0..pages.all_pages() {
            let len = pages.slot_len() as u64;
            assert_eq!(put_back(page * len, len), Some("page"), "page {page}");
        }
        let states = [0, 1].map(|nth| put_back(copies.at + nth * copies.len, copies.len));
        assert_eq!(states.iter().flatten().count(), 1, "the one in use is refused: {states:?}");
        let whole = put_back(0, copies.end()).expect("the vault is newer");
        assert!(whole.starts_with("state"));
    }
}

#[test]
fn another_key_or_geometry_opens_nothing() {
    let mut rig = Rig::new(geometries()[1]);
    rig.create().close().unwrap();
    let mut context = rig.0.context(rig.0.store.clone(), false);
    context.key = Secret::from_bytes([5; 32]);
    let opened = open_durable(rig.geometry, context, &rig.vault.kept());
    assert!(matches!(opened.err(), Some(Error::Tampered { .. })));
    rig.geometry.unsynced_max -= 1;
    let opened = rig.open_on(rig.store.clone(), false);
    assert!(matches!(opened.err(), Some(Error::Tampered { .. })));
}

#[test]
fn reading_only_writes_nothing() {
    let mut rig = Rig::new(geometries()[1]);
    fill(&mut rig.create(), 1);
    let (bytes, kept) = (rig.store.snapshot(), rig.vault.kept());
    let mut oram = rig.open_on(rig.store.clone(), true).unwrap();
    assert!(matches!(oram.read(Addr(0), &mut [0; 16]), Err(Error::ReadOnly)));
    oram.close().unwrap();
    assert_eq!((rig.store.snapshot(), rig.vault.kept()), (bytes, kept));
}

#[test]
fn openings_die_out_before_there_are_too_many() {
    let mut rig = Rig::new(geometries()[2]);
    fill(&mut rig.create(), 1);
    let mut most = 0;
    for _ in 0..OPENINGS_MANY + 50 {
        let mut oram = rig.open();
        oram.read(Addr(3), &mut [0; 16]).unwrap();
        oram.close().unwrap();
        most = most.max(oram.saves.openings().len());
    }
    assert!((OPENINGS_MANY - 1..OPENINGS_MAX).contains(&most), "{most}");
    let mut oram = rig.open();
    assert!(oram.saves.openings().len() < 100);
    let mut block = [0; 16];
    oram.read(Addr(30), &mut block).unwrap();
    assert_eq!(block, [1; 16]);
}

#[test]
fn a_key_that_sealed_enough_is_replaced() {
    let mut rig = Rig::new(geometries()[1]);
    let mut oram = rig.create();
    oram.key_bytes_max = 100_000;
    (0..20).for_each(|byte| fill(&mut oram, byte));
    assert!(oram.saves.openings().len() > 5);
    oram.close().unwrap();
    assert_filled(&mut rig.open(), 19);
}

/// A rebuild may seal so much that the save after it begins an opening.
#[test]
fn what_was_made_anew_under_a_key_since_replaced_is_not_forgotten() {
    let mut rig = Rig::new(geometries()[1]);
    let mut oram = rig.create();
    fill(&mut oram, 1);
    oram.sync().unwrap();
    drop(oram);
    let open = |geometry, width, context, state: &SchemeState| {
        let mut oram = DurableOblivious::reopen(geometry, width, context, state)?;
        oram.key_bytes_max = 1;
        oram.rebuild()?;
        Ok(oram)
    };
    let mut oram = rig.open_by(rig.store.clone(), false, open).unwrap();
    oram.read(Addr(3), &mut [0; 16]).unwrap();
    oram.close().unwrap();
    assert_filled(&mut rig.open(), 1);
}

/// Long blocks leave fewer levels in memory, so that a sync does not write gigabytes.
#[test]
fn the_state_of_long_blocks_stays_short() {
    let state_len = |block_len| ArrayGeometry::new(5000, block_len).unwrap().state_len();
    for block_len in [4096, 1 << 16, 1 << 20] {
        assert!(state_len(block_len) <= (64 << 20) + 300 * block_len as u64, "{block_len}");
    }
    assert_eq!(ArrayGeometry::new(5000, 64).unwrap().memory_levels, 9);
}

/// Few, none, and odd numbers of blocks, short and long ones; in memory and on the store.
#[test]
fn any_number_of_blocks_of_any_length_comes_back() {
    let sizes = [(0, 64), (1, 1), (2, 1), (3, 1), (37, 1), (1, 1 << 20), (3, 1 << 20), (5001, 8)];
    for ((blocks, block_len), memory_levels) in
        sizes.into_iter().flat_map(|size| [(size, 9), (size, 1)])
    {
        let geometry =
            ArrayGeometry { memory_levels, ..ArrayGeometry::new(blocks, block_len).unwrap() };
        let geometry = ArrayGeometry { unsynced_max: geometry.unsynced_max.min(500), ..geometry };
        let mut rig = rig::Rig::with_room(geometry, geometry.store_len());
        let context = rig.context(rig.store.clone(), false);
        let mut oram = create_durable(geometry, context).unwrap();
        for closes in [true, false] {
            let byte = u8::from(closes) + 1;
            fill(&mut *oram, byte);
            assert!(matches!(
                oram.read(Addr(blocks), &mut vec![0; block_len]),
                Err(Error::OutOfRange { .. })
            ));
            if closes {
                oram.close().unwrap();
            } else {
                oram.sync().unwrap();
            }
            let context = rig.context(rig.store.clone(), false);
            oram = open_durable(geometry, context, &rig.vault.kept()).unwrap();
            assert_filled(&mut *oram, byte);
        }
    }
}

/// The label of each block that has one, from its slot's header.
fn labels(oram: &mut DurableOblivious<Dynamic>) -> BTreeMap<u32, u32> {
    let mut labels = BTreeMap::new();
    let data = &mut oram.inner.data;
    let mut note = |[addrs, of]: [u64; 2]| {
        labels.insert(addrs as u32, of as u32);
        labels.insert((addrs >> 32) as u32, (of >> 32) as u32);
    };
    let (mask, levels) = (data.label_mask(), (data.label_mask() + 1).ilog2() as usize + 1);
    for leaf in 0..=mask {
        data.memory_mut().open(0, leaf).unwrap();
        (0..levels).for_each(|level| note(data.memory().header(0, level)));
    }
    data.stash_labels().for_each(|(addr, label)| note([addr.into(), label.into()]));
    labels.remove(&0);
    labels
}

/// An opening with the planted fault: labels stay as they were saved.
fn unchanged(
    geometry: ArrayGeometry,
    width: Dynamic,
    context: SchemeContext,
    state: &SchemeState,
) -> Opened {
    DurableOblivious::reopen(geometry, width, context, state)
}

/// Chi squared of pairs of labels, before a crash and after, over sixteen classes; and how many
/// labels stayed less how many would by chance, in standard deviations.
fn dependence(
    open: impl Fn(ArrayGeometry, Dynamic, SchemeContext, &SchemeState) -> Opened,
) -> (f64, f64) {
    let geometry = ArrayGeometry::new(600, 16).unwrap();
    let geometry = ArrayGeometry { memory_levels: 3, unsynced_max: 100, ..geometry };
    let mut rig = Rig::new(geometry);
    fill(&mut rig.create(), 1);
    let (mut classes, mut same, mut pairs) = ([[0.0; 4]; 4], 0.0, 0.0);
    let leaves = 1 << (levels_for(600).unwrap() - 1);
    for _ in 0..12 {
        rig.open();
        let mut seen =
            |open: &dyn Fn(ArrayGeometry, Dynamic, SchemeContext, &SchemeState) -> Opened| {
                labels(&mut rig.open_by(rig.store.clone(), false, open).unwrap())
            };
        let (before, after) = (seen(&unchanged), seen(&open));
        assert_eq!((before.len(), after.len()), (600, 600), "every block is there once");
        for (addr, old) in before {
            let new = after[&addr];
            classes[(old * 4 / leaves) as usize][(new * 4 / leaves) as usize] += 1.0;
            same += f64::from(u8::from(old == new));
            pairs += 1.0;
        }
    }
    let want = pairs / 16.0;
    let chi = classes.iter().flatten().map(|seen| (seen - want) * (seen - want) / want).sum();
    let chance = pairs / f64::from(leaves);
    (chi, (same - chance) / chance.sqrt())
}

/// The chi squared value has fifteen degrees of freedom.
#[test]
fn labels_before_and_after_a_crash_are_independent() {
    let (chi, stayed) = dependence(DurableOblivious::open);
    assert!(chi < 50.0 && stayed < 6.0, "{chi}, {stayed}");
    let (chi, stayed) = dependence(unchanged);
    assert!(chi > 1000.0 && stayed > 20.0, "{chi}, {stayed}");
}

/// An opening after a crash reads the old pages in order, and the number of its accesses does not
/// depend on earlier accesses.
#[test]
fn an_opening_after_a_crash_reveals_nothing() {
    let geometry = geometries()[2];
    let ArrayLayout { pages, .. } = geometry.layout().unwrap();
    let half = pages.store_len().unwrap();
    let shown = |hot: bool| {
        let mut rig = Rig::new(geometry);
        let mut oram = rig.create();
        (0..300).for_each(|i| {
            let addr = if hot { 3 } else { i % 37 };
            oram.write(Addr(addr), &[addr as u8; 16]).unwrap();
        });
        drop(oram);
        let witness = Arc::new(Recorder::default());
        let watched = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
        let oram = rig.open_on(watched, false).unwrap();
        let events = witness.take();
        let old: Vec<_> = events.iter().filter(|e| e.op == Op::Read && e.at < half).collect();
        let old: Vec<_> = old.iter().map(|e| (e.at, e.len)).collect();
        let syncs = events.iter().filter(|e| e.op == Op::Sync).count();
        (old, syncs, oram.inner.data.memory().version() > 0)
    };
    assert_eq!(shown(true), shown(false));
}

#[test]
fn what_panics_is_not_saved() {
    let mut rig = Rig::new(geometries()[1]);
    let mut oram = rig.create();
    fill(&mut oram, 1);
    oram.sync().unwrap();
    let panics = std::panic::AssertUnwindSafe(|| oram.update(Addr(3), &mut |_| panic!("mine")));
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(matches!(oram.read(Addr(4), &mut [0; 16]), Err(Error::EarlierAbort)));
    assert!(matches!(oram.close(), Err(Error::EarlierAbort)));
    assert_filled(&mut rig.open(), 1);
}

#[test]
fn impossible_arrays_are_refused() {
    let good = ArrayGeometry::new(100, 64).unwrap();
    for bad in [
        ArrayGeometry { blocks: BLOCKS_MAX + 1, ..good },
        ArrayGeometry { block_len: 0, ..good },
        ArrayGeometry { memory_levels: 0, ..good },
        ArrayGeometry { unsynced_max: 0, ..good },
        ArrayGeometry { attached_words: u32::MAX, ..good },
    ] {
        assert!(matches!(bad.check(), Err(Error::Geometry(_))), "{bad:?}");
        let context =
            rig::Rig::with_room(bad, 1 << 20).context(Arc::new(MemStore::new(1 << 20)), false);
        assert!(create_durable(bad, context).is_err());
    }
}
