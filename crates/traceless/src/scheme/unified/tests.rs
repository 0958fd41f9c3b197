use super::*;
use crate::controller::SteppedOram;
use crate::posmap::{COUNTER_BITS, CompressedLabels, PlainLabels, PlbFault};
use crate::scheme::traffic::bytes_moved;
use crate::scheme::tree_rig::{
    CHI_SQUARE_MAX, LeafRecording, Leaves, REPEATS_MAX, behaves_like_an_array, chi_square, repeats,
    sealed, shows_one_template, store_for, trees,
};
use crate::tree::{BareTree, GhostTree, Shape};
use alloc::sync::Arc;
use traceless_core::oram::Oram;
use traceless_core::rng::SeededRng;
use traceless_core::seal::Secret;
use traceless_core::store::{Store, WatchedStore};
use traceless_core::trace::Recorder;
use traceless_core::types::Extent;

pub(super) fn key() -> Secret {
    Secret::from_bytes([9; 32])
}

pub(super) fn rng() -> Box<dyn Rng> {
    Box::new(SeededRng::new(1))
}

pub(super) fn sizes(blocks: u64, map_levels: u8, parts: u64) -> Sizes {
    Sizes { blocks, map_levels, parts, bundled: false, stash_blocks: 100 }
}

/// A tree with at least two slots per block.
pub(super) fn shape_for(sizes: &Sizes, fanout: u64) -> Shape {
    let blocks = LevelPlaces::new(sizes, fanout).unwrap().blocks();
    Shape::for_blocks(blocks, 4, 2.0).unwrap()
}

/// Block counts with full and with partial groups, maps that end in one block or earlier, and
/// caches with and without room for a walk.
pub(super) const ARRAYS: [(u64, u8, (usize, usize)); 8] = [
    (1, 0, (1, 1)),
    (1, 3, (1, 1)),
    (3, 1, (1, 1)),
    (64, 2, (6, 6)),
    (61, 2, (1, 1)),
    (100, 3, (4, 2)),
    (100, 0, (2, 1)),
    (333, 2, (16, 4)),
];

#[test]
fn plain_labels_make_an_array_of_every_tree() {
    for (n, map_levels, (blocks, ways)) in ARRAYS {
        let (sizes, labels) = (sizes(n, map_levels, 1), || PlainLabels::in_block(24).unwrap());
        for tree in trees(&shape_for(&sizes, labels().fanout()), 24) {
            let plb = Plb::new(blocks, ways, 24).unwrap();
            let oram = Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap();
            behaves_like_an_array(oram, 3000);
        }
    }
}

/// Small counters, so that group remaps are frequent on all levels, and blocks of several parts.
#[test]
fn compressed_labels_make_an_array_of_every_tree() {
    for (n, map_levels, (blocks, ways)) in ARRAYS {
        for (parts, bits) in [(1, 2), (1, 14), (3, 3)] {
            let sizes = sizes(n, map_levels, parts);
            let labels = || CompressedLabels::new(&key(), 5, bits).unwrap();
            for tree in trees(&shape_for(&sizes, 5), 24) {
                let plb = Plb::new(blocks, ways, 24).unwrap();
                let oram = Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap();
                assert_eq!(oram.block_len(), 24 * parts as usize);
                behaves_like_an_array(oram, 1500);
            }
        }
    }
}

/// Group counters that end, so that the label key changes frequently.
#[test]
fn another_key_makes_an_array_of_every_tree() {
    for (n, map_levels, (blocks, ways)) in ARRAYS {
        for parts in [1, 3] {
            let sizes = sizes(n, map_levels, parts);
            let labels = || CompressedLabels::new(&key(), 5, 2).unwrap().with_remaps_max(40);
            for tree in trees(&shape_for(&sizes, 5), 24) {
                let plb = Plb::new(blocks, ways, 24).unwrap();
                let oram = Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap();
                behaves_like_an_array(oram, 600);
            }
        }
    }
}

/// A change of key visits every group and then serves the request that waited for it.
#[test]
fn another_key_costs_a_path_for_each_member() {
    let labels = || CompressedLabels::new(&key(), 8, 3).unwrap().with_remaps_max(5);
    let tree = BareTree::new(Shape::uniform(7, 4).unwrap(), 32);
    let mut oram = Unified::new(sizes(64, 1, 1), tree, labels(), labels(), plb(), rng()).unwrap();
    let (all, _) = paths(&mut oram, core::iter::repeat_n(7, 47));
    // The group has five remaps; at the sixth its counter has ended.
    let remaps = 5 * 7;
    assert!((47 + remaps..47 + remaps + 4).contains(&all), "{all}");
    oram.submit(0, Addr(7)).unwrap();
    let mut one = 1;
    while oram.step(&mut |_, _| {}).unwrap().finished.is_none() {
        one += 1;
    }
    // Eight blocks of the map, and 64 of the user's; walks to the parents, and the request.
    let members = 8 + 64;
    assert!((members + 1..members + 1 + 8 + 2).contains(&one), "{one}");
    assert!(oram.maps.groups.rekeying.is_none());
    let (after, _) = paths(&mut oram, core::iter::repeat_n(7, 6));
    assert!(after < 9, "{after}: the counters begin anew");
}

/// Frequent evictions, in the middle of walks and of group remaps.
#[test]
fn emptying_the_stash_changes_no_block() {
    let sizes = Sizes { stash_blocks: 60, ..sizes(64, 2, 2) };
    let tree = BareTree::new(Shape::uniform(6, 3).unwrap(), 24);
    let labels = || CompressedLabels::new(&key(), 5, 3).unwrap();
    let plb = Plb::new(4, 2, 24).unwrap();
    let mut oram = Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap();
    oram.drain_above(1);
    let (mut model, mut lcg, mut drained) = (vec![0u8; 64], Lcg(3), 0);
    for id in 0..3000 {
        let addr = lcg.below(64);
        oram.submit(id, Addr(addr)).unwrap();
        loop {
            let issued = oram.step(&mut |served, body| {
                assert_eq!((served, body[47]), (id, model[addr as usize]));
                body[47] = body[47].wrapping_add(1);
            });
            let issued = issued.unwrap();
            drained += u32::from(issued.kind == StepKind::Eviction);
            if issued.finished.is_some() {
                break;
            }
        }
        model[addr as usize] = model[addr as usize].wrapping_add(1);
    }
    assert!(drained > 100, "{drained}");
}

/// The generator of the models, so that tests and models use the same requests.
pub(super) struct Lcg(pub u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// Half of the requests go to `hot` blocks.
    pub fn mixed(&mut self, all: u64, hot: u64) -> u64 {
        if self.below(2) == 0 { self.below(all) } else { self.below(hot) }
    }
}

/// Number of path accesses for `requests`, and the number of requests for each count of accesses.
pub(super) fn paths<C: Controller>(
    oram: &mut C,
    requests: impl Iterator<Item = u64>,
) -> (u64, Vec<u64>) {
    let (mut all, mut weights) = (0, vec![0; 64]);
    for addr in requests {
        oram.submit(0, Addr(addr)).unwrap();
        let mut paths = 1;
        while oram.step(&mut |_, _| {}).unwrap().finished.is_none() {
            paths += 1;
        }
        all += paths;
        weights[paths as usize] += 1;
    }
    (all, weights)
}

/// The model measured 1.988, 1.267 and 1.875 path accesses per request, and for exactly these
/// requests the numbers below.
#[test]
fn paths_are_the_models() {
    let run = |requests: &mut dyn Iterator<Item = u64>| {
        let tree = GhostTree::new(Shape::uniform(9, 4).unwrap(), 4096, ());
        let labels = CompressedLabels::new(&key(), 8, 3).unwrap();
        let plb = Plb::new(6, 6, 0).unwrap();
        let top = CompressedLabels::flat(&key());
        let mut oram = Unified::new(sizes(256, 2, 1), tree, labels, top, plb, rng()).unwrap();
        paths(&mut oram, requests).0
    };
    for (seed, want) in [(1, 11_973), (2, 11_799), (3, 11_871)] {
        let mut lcg = Lcg(seed);
        assert_eq!(run(&mut (0..6000).map(|_| lcg.mixed(256, 8))), want);
    }
    assert_eq!(run(&mut (0..6000).map(|t| t % 256)), 7_600);
    assert_eq!(run(&mut (0..6000).map(|_| 7)), 11_252);
}

/// The paper's cache of 32 KiB in four ways, and one twice as large, for 2^20 blocks of 64 bytes.
/// The expected numbers come from a model of the cache alone.
#[test]
fn paths_with_the_papers_caches_are_the_models() {
    const BLOCKS: u64 = 1 << 20;
    const REQUESTS: u64 = 1 << 17;
    fn run<L: Labels>(labels: L, top: L, kib: usize, nth: u64) -> u64 {
        let sizes = sizes(BLOCKS, 3, 1);
        let tree = GhostTree::new(shape_for(&sizes, labels.fanout()), 4096, ());
        let plb = Plb::new(kib * 1024 / 64, 4, 0).unwrap();
        let mut oram = Unified::new(sizes, tree, labels, top, plb, rng()).unwrap();
        let mut lcg = Lcg(1);
        paths(
            &mut oram,
            (0..REQUESTS).map(|t| match nth {
                0 => t,
                1 => lcg.below(BLOCKS),
                _ => lcg.mixed(BLOCKS, 1 << 14),
            }),
        )
        .0
    }
    let compressed = || CompressedLabels::in_block(&key(), 64, COUNTER_BITS).unwrap();
    let plain = || PlainLabels::in_block(64).unwrap();
    for (kib, wants) in [(64, [135_300, 334_603, 269_816]), (32, [135_300, 364_555, 301_567])] {
        for (nth, want) in (0..).zip(wants) {
            assert_eq!(run(compressed(), CompressedLabels::flat(&key()), kib, nth), want);
        }
    }
    for (nth, want) in (0..).zip([139_808, 447_043, 368_806]) {
        assert_eq!(run(plain(), plain(), 32, nth), want);
    }
}

/// The memory traffic is two paths for each path access.
#[test]
fn bytes_moved_follow_from_the_paths() {
    let witness = Arc::new(Recorder::default());
    let shape = Shape::uniform(9, 3).unwrap();
    let path_len = shape.path_slots() as u64 * 64;
    let tree = GhostTree::new(shape, 4096, witness.clone());
    let (labels, top) = (PlainLabels::new(8).unwrap(), PlainLabels::new(8).unwrap());
    let plb = Plb::new(6, 6, 0).unwrap();
    let mut oram = Unified::new(sizes(256, 2, 1), tree, labels, top, plb, rng()).unwrap();
    let mut lcg = Lcg(1);
    let (_, weights) = paths(&mut oram, (0..2000).map(|_| lcg.mixed(256, 8)));
    let bytes: u64 = witness.take().iter().map(|e| u64::from(e.len)).sum();
    assert_eq!(bytes, bytes_moved(path_len, &weights));
    assert!(weights[1..4].iter().all(|&w| w > 0) && weights[4..].iter().all(|&w| w == 0));
}

/// A group remap is one path access for each possible sibling, also in a group that is not full
/// and for blocks that were never written, and for each of a block's parts.
#[test]
fn a_group_remap_takes_as_many_paths_for_any_members() {
    for (blocks, parts) in [(8, 1), (5, 1), (9, 2)] {
        let tree = GhostTree::new(Shape::uniform(5, 4).unwrap(), 4096, ());
        let labels = || CompressedLabels::new(&key(), 8, 2).unwrap();
        let plb = Plb::new(2, 2, 0).unwrap();
        let sizes = sizes(blocks, 1, parts);
        let top = CompressedLabels::flat(&key());
        let mut oram = Unified::new(sizes, tree, labels(), top, plb, rng()).unwrap();
        // The first access also brings the block of the map.
        for turn in 0..40 {
            let (all, _) = paths(&mut oram, core::iter::once(blocks - 1));
            let remap = if turn % 4 == 3 { 8 * parts } else { parts };
            assert_eq!(all, remap + u64::from(turn == 0), "turn {turn}");
            assert_eq!(oram.group_remaps(), (turn + 1) / 4, "turn {turn}");
        }
    }
}

#[test]
fn every_step_over_a_store_is_one_path() {
    for parts in [1, 2] {
        let shape = Shape::per_level(vec![4, 2, 4, 3, 4, 4]).unwrap();
        let witness = Arc::new(Recorder::default());
        let store = Arc::new(WatchedStore::new(store_for(&shape, 24), witness.clone()));
        let tree = sealed(store, shape, 24);
        let labels = || CompressedLabels::new(&key(), 6, 2).unwrap();
        let plb = Plb::new(2, 1, 24).unwrap();
        let oram = Unified::new(sizes(40, 2, parts), tree, labels(), labels(), plb, rng());
        shows_one_template(oram.unwrap(), &witness);
    }
}

#[test]
fn damage_is_an_error_and_nothing_follows_it() {
    let (shape, sizes) = (Shape::uniform(6, 4).unwrap(), sizes(64, 2, 1));
    let store = store_for(&shape, 24);
    let tree = sealed(store.clone(), shape, 24);
    let labels = || CompressedLabels::new(&key(), 5, 3).unwrap();
    let plb = Plb::new(4, 2, 24).unwrap();
    let mut oram =
        SteppedOram::new(Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap());
    (0..64).for_each(|addr| oram.write(Addr(addr), &[1; 24]).unwrap());
    let bytes: Vec<u8> = store.snapshot().iter().map(|byte| byte ^ 1).collect();
    store.write(&[Extent::new(0, bytes.len())], &bytes).unwrap();
    let refused = oram.read(Addr(3), &mut [0; 24]).unwrap_err();
    assert!(matches!(refused, Error::Tampered { .. }), "{refused}");
    assert!(matches!(oram.read(Addr(3), &mut [0; 24]), Err(Error::EarlierDamage)));
    assert!(matches!(oram.sync(), Err(Error::EarlierDamage)));
}

/// The fault of an ORAM of 256 blocks under a workload: it is not an array, its leaves are not
/// uniform or recur, or it needs more paths than the model, at most 1.99 per request.
fn fault_of<L: Labels>(labels: L, top: L, plb: Plb, nth: u64) -> Option<&'static str> {
    let shape = Shape::uniform(9, 4).unwrap();
    let leaves = Leaves::default();
    let tree = LeafRecording::new(BareTree::new(shape, 32), leaves.clone());
    let oram = Unified::new(sizes(256, 2, 1), tree, labels, top, plb, rng()).unwrap();
    let (mut oram, mut lcg) = (SteppedOram::new(oram), Lcg(2));
    let (mut model, mut body) = (vec![[0; 32]; 256], [0; 32]);
    for t in 0..6000 {
        let addr = [lcg.mixed(256, 8), t % 256, 7][nth as usize];
        if lcg.below(2) == 0 {
            let new = &mut model[addr as usize];
            new[..8].copy_from_slice(&(t + 1).to_le_bytes());
            oram.write(Addr(addr), new).ok()?;
        } else {
            oram.read(Addr(addr), &mut body).unwrap();
            if body != model[addr as usize] {
                return Some("a wrong read");
            }
        }
    }
    let leaves = leaves.lock().unwrap();
    if leaves.len() > 6000 * 5 / 2 {
        return Some("too many paths");
    }
    if repeats(&leaves, 256) > REPEATS_MAX {
        return Some("leaves that come again");
    }
    (chi_square(&leaves, 256) > CHI_SQUARE_MAX).then_some("leaves that are not uniform")
}

fn compressed() -> CompressedLabels {
    CompressedLabels::new(&key(), 8, 3).unwrap()
}

fn plb() -> Plb {
    Plb::new(6, 6, 32).unwrap()
}

#[test]
fn leaves_are_uniform_for_every_workload() {
    for nth in 0..3 {
        assert_eq!(fault_of(compressed(), CompressedLabels::flat(&key()), plb(), nth), None);
        assert_eq!(fault_of(compressed(), compressed(), plb(), nth), None);
        let plain = || PlainLabels::new(8).unwrap();
        assert_eq!(fault_of(plain(), plain(), plb(), nth), None);
    }
}

/// Compressed labels with a fault in the group remap.
struct Remaps {
    honest: CompressedLabels,
    resets_counters: bool,
    bumps_group: bool,
    changes_key: bool,
}

impl Labels for Remaps {
    fn fanout(&self) -> u64 {
        self.honest.fanout()
    }
    fn entries_len(&self) -> usize {
        self.honest.entries_len()
    }
    fn check(&self, leaves: u64, parts: u64) -> Result {
        self.honest.check(leaves, parts)
    }
    fn leaf(&self, entries: &[u8], nth: usize, addr: Addr, draw: &mut LeafDraw) -> Leaf {
        self.honest.leaf(entries, nth, addr, draw)
    }
    fn is_spent(&self, entries: &[u8], nth: usize) -> bool {
        self.honest.is_spent(entries, nth)
    }
    fn renew(&self, entries: &mut [u8], nth: usize, draw: &mut LeafDraw) {
        self.honest.renew(entries, nth, draw);
    }
    fn renew_group(&self, entries: &mut [u8]) -> Result {
        let old = entries.to_vec();
        self.honest.renew_group(entries)?;
        if !self.resets_counters {
            entries[8..].copy_from_slice(&old[8..]);
        }
        if !self.bumps_group {
            entries[..8].copy_from_slice(&old[..8]);
        }
        Ok(())
    }
    fn rekeyed(&self, new: &Secret) -> Option<Self> {
        let old = key();
        let honest = self.honest.rekeyed(if self.changes_key { new } else { &old })?;
        Some(Self { honest, ..*self })
    }
}

#[test]
fn mutants_are_caught() {
    let remaps = |honest: CompressedLabels, (resets_counters, bumps_group)| Remaps {
        honest,
        resets_counters,
        bumps_group,
        changes_key: true,
    };
    let with_labels = |fault: (bool, bool)| {
        let top = remaps(CompressedLabels::flat(&key()), (true, true));
        fault_of(remaps(compressed(), fault), top, plb(), 0)
    };
    assert_eq!(with_labels((true, true)), None, "the wrapper itself is honest");
    // Labels are computed from stored counters, so no block is lost; but a spent counter stays
    // spent.
    assert_eq!(with_labels((false, true)), Some("too many paths"), "counters are not reset");
    let reused = Some("leaves that come again");
    assert_eq!(with_labels((true, false)), reused, "the group's counter stays");

    let with_key = |changes_key| {
        let ends = |honest: CompressedLabels| {
            let honest = honest.with_remaps_max(80);
            Remaps { changes_key, ..remaps(honest, (true, true)) }
        };
        fault_of(ends(compressed()), ends(compressed()), plb(), 2)
    };
    assert_eq!(with_key(true), None, "counters that end do no harm");
    assert_eq!(with_key(false), Some("leaves that are not uniform"), "the key stays");

    let with_plb = |fault| {
        let mut plb = plb();
        plb.fault = fault;
        fault_of(compressed(), CompressedLabels::flat(&key()), plb, 0)
    };
    assert_eq!(with_plb(PlbFault::None), None, "no fault is planted");
    let found = Some("a wrong read");
    assert_eq!(with_plb(PlbFault::WrongLabelAtEviction), found, "a stale label at eviction");
    assert_eq!(with_plb(PlbFault::NoRelabel), found, "a sibling in the PLB keeps its label");
}

/// Section 5.3 and Table 2: at 16 bits a label the map of 4 GiB takes 4 KiB of trusted memory, and
/// a block of 64 bytes holds 32 labels.
#[test]
fn the_last_level_of_the_map_is_as_small_as_in_the_paper() {
    let places = LevelPlaces::new(&sizes(1 << 26, 3, 1), 32).unwrap();
    let labels = CompressedLabels::in_block(&key(), 64, COUNTER_BITS).unwrap();
    assert_eq!(places.count, [1 << 26, 1 << 21, 1 << 16, 1 << 11]);
    let groups = places.count[3].div_ceil(labels.fanout());
    assert_eq!(groups as usize * labels.entries_len(), 4096);

    let small = sizes(1 << 12, 1, 1);
    let tree = GhostTree::new(shape_for(&small, 32), 4096, ());
    let top = CompressedLabels::in_block(&key(), 64, COUNTER_BITS).unwrap();
    let oram = Unified::new(small, tree, labels, top, Plb::new(8, 4, 0).unwrap(), rng()).unwrap();
    assert_eq!(oram.top_len(), 128 * 2);
}

#[test]
fn impossible_sizes_are_refused() {
    let new = |sizes: Sizes, body_len| {
        let tree = BareTree::new(Shape::uniform(4, 4).unwrap(), body_len);
        let (labels, plb) = (|| PlainLabels::new(4).unwrap(), Plb::new(2, 1, body_len).unwrap());
        Unified::new(sizes, tree, labels(), labels(), plb, rng())
    };
    assert!(new(sizes(45, 2, 1), 16).is_ok());
    assert!(new(sizes(46, 2, 1), 16).is_err(), "60 slots do not hold 46 + 12 + 3 blocks");
    assert!(new(sizes(4, 2, 1), 15).is_err(), "a group of four labels takes 16 bytes");
    assert!(new(sizes(4, 2, 2), 16).is_err(), "parts cannot share a label");
    assert!(new(sizes(4, 2, 0), 16).is_err());
    assert!(new(sizes(u64::MAX, 2, 2), 16).is_err());
    assert!(new(Sizes { stash_blocks: 0, ..sizes(4, 2, 1) }, 16).is_err());
    let mut oram = new(sizes(4, 2, 1), 16).unwrap();
    assert!(matches!(oram.submit(0, Addr(4)), Err(Error::OutOfRange { .. })));
}

/// With and without requests that finish without a path.
#[cfg(feature = "suite")]
#[test]
fn a_failed_read_is_made_again() {
    use crate::scheme::tree_rig::continues_after_failed_reads;

    let (shape, sizes) = (Shape::uniform(6, 4).unwrap(), sizes(64, 2, 1));
    for above in [60, 2] {
        continues_after_failed_reads(store_for(&shape, 24).len(), |store| {
            let labels = || CompressedLabels::new(&key(), 5, 3).unwrap();
            let plb = Plb::new(4, 2, 24).unwrap();
            let tree = sealed(store, shape.clone(), 24);
            let mut unified = Unified::new(sizes, tree, labels(), labels(), plb, rng()).unwrap();
            unified.drain_above(above);
            unified
        });
    }
}
