//! Tests of IR-Alloc, IR-Stash, IR-DWB and delayed remapping, over trees with bodies.

use super::tests::{key, rng, sizes};
use super::*;
use crate::controller::SteppedOram;
use crate::posmap::{CompressedLabels, PlainLabels};
use crate::scheme::tree_rig::{
    CHI_SQUARE_MAX, LeafRecording, Leaves, REPEATS_MAX, behaves_like_an_array, chi_square, echoes,
    is_an_array, loudest_echo, operations, repeats, sealed, shows_one_template, store_for,
};
use crate::tree::ir_alloc::{IR_ALLOC4, IR_ORAM};
use crate::tree::{BareTree, GhostTree, SealedTree, Shape, Substash};
use alloc::sync::Arc;
use traceless_core::oram::{Oram, check_request, one_by_one};
use traceless_core::rng::SeededRng;
use traceless_core::store::{Store, WatchedStore};
use traceless_core::trace::Recorder;
use traceless_core::types::Extent;

const LEN: usize = 24;
const CACHED: usize = 3;

/// A tree of six levels in the style of IR-Alloc, with three of them cached.
fn shape() -> Shape {
    Shape::per_level(vec![4, 4, 4, 2, 3, 4]).unwrap()
}

fn below() -> Shape {
    shape().only(|level| level >= CACHED)
}

fn bare_below(shape: &Shape, cached: usize, len: usize) -> BareTree {
    BareTree::new(shape.only(|level| level >= cached), len)
}

fn substash<T: BucketTree>(inner: T, sets: usize) -> Substash<T> {
    Substash::new(shape(), CACHED, (sets, 4), inner).unwrap()
}

fn plain() -> PlainLabels {
    PlainLabels::new(5).unwrap()
}

fn compressed() -> CompressedLabels {
    CompressedLabels::new(&key(), 5, 3).unwrap()
}

fn unified<T: BucketTree, L: Labels>(
    blocks: u64,
    parts: u64,
    tree: T,
    labels: impl Fn() -> L,
) -> Unified<T, L> {
    let plb = Plb::new(4, 2, LEN).unwrap();
    let mut oram =
        Unified::new(sizes(blocks, 2, parts), tree, labels(), labels(), plb, rng()).unwrap();
    oram.search_first();
    oram
}

#[test]
fn a_sub_stash_makes_an_array() {
    for (sets, sealed_below) in [(7, false), (7, true), (1, false), (2, true)] {
        for parts in [1, 2] {
            let tree: crate::scheme::tree_rig::Boxed = if sealed_below {
                Box::new(substash(sealed(store_for(&below(), LEN), below(), LEN), sets))
            } else {
                Box::new(substash(BareTree::new(below(), LEN), sets))
            };
            behaves_like_an_array(unified(40, parts, tree, compressed), 4000);
        }
        let tree = substash(BareTree::new(below(), LEN), sets);
        behaves_like_an_array(unified(80, 1, tree, plain), 4000);
    }
}

#[test]
fn the_stash_alone_is_searched_as_well() {
    behaves_like_an_array(unified(80, 1, BareTree::new(shape(), LEN), plain), 4000);
}

/// Number of path accesses for requests that may also finish without one.
fn paths<C: Controller>(oram: &mut C, requests: impl Iterator<Item = u64>) -> u64 {
    let mut paths = 0;
    for addr in requests {
        oram.submit(0, Addr(addr)).unwrap();
        while oram.finish_without_path(&mut |_, _| {}).unwrap().is_none() {
            paths += 1;
            if oram.step(&mut |_, _| {}).unwrap().finished.is_some() {
                break;
            }
        }
    }
    paths
}

/// Section IV-C: a hit costs no path access and no label.
#[test]
fn a_stash_hit_takes_no_path() {
    let leaves = Leaves::default();
    let tree = LeafRecording::new(substash(BareTree::new(below(), LEN), 7), leaves.clone());
    let mut oram = unified(80, 1, tree, plain);
    assert_eq!(paths(&mut oram, std::iter::once(3)), 3, "two blocks of the map, and its own");
    let before = leaves.lock().unwrap().len();
    let label = oram.engine().stash().headers().iter().copied().find(|h| h.is_of(Addr(3)));
    assert_eq!(paths(&mut oram, std::iter::repeat_n(3, 100)), 0);
    assert_eq!(leaves.lock().unwrap().len(), before);
    assert_eq!(oram.engine().stash().headers().iter().copied().find(|h| h.is_of(Addr(3))), label);
}

/// Hits need fewer paths than without, also for the map (section VI-C); the array is the same.
#[test]
fn hits_save_paths() {
    let shape = IR_ORAM.shape(12).unwrap();
    let run = |searches: bool| {
        let tree = Substash::new(shape.clone(), 5, (32, 4), bare_below(&shape, 5, LEN)).unwrap();
        let plb = Plb::new(8, 4, LEN).unwrap();
        let mut oram = Unified::new(sizes(4000, 2, 1), tree, plain(), plain(), plb, rng()).unwrap();
        if searches {
            oram.search_first();
        }
        let mut rng = SeededRng::new(5);
        let mut requests = |nth| if nth % 2 == 0 { rng.below(4000) } else { rng.below(40) };
        paths(&mut oram, (0..20_000).map(&mut requests)) as f64 / 20_000.0
    };
    let (without, with) = (run(false), run(true));
    assert!(with < 0.9 * without, "{with} and {without} paths a request");
}

#[test]
fn one_template_is_observed_below_the_sub_stash() {
    for parts in [1, 2] {
        let witness = Arc::new(Recorder::default());
        let store = Arc::new(WatchedStore::new(store_for(&below(), LEN), witness.clone()));
        let tree = substash(sealed(store, below(), LEN), 7);
        shows_one_template(unified(40, parts, tree, compressed), &witness);
    }
}

/// Sealed trees for both parts of a tree; the upper one serves during a context switch.
#[test]
fn a_context_switch_loses_nothing() {
    let top = shape().top(CACHED);
    let (store, top_store) = (store_for(&below(), LEN), store_for(&top, LEN));
    let mut home: SealedTree<_> = sealed(top_store.clone(), top, LEN);
    let tree = substash(sealed(store, below(), LEN), 7);
    let mut oram = SteppedOram::new(unified(80, 1, tree, compressed));
    for round in 0..20u64 {
        for addr in 0..80 {
            oram.update(Addr(addr), &mut |body| {
                assert_eq!(body[3], round as u8);
                body[3] += 1;
            })
            .unwrap();
        }
        let unified = oram.controller_mut();
        assert_eq!(unified.suspend(200, &mut home).unwrap(), 0, "nobody waits in the stash");
        unified.submit(9, Addr(0)).unwrap();
        assert!(matches!(unified.step(&mut |_, _| {}), Err(Error::Suspended)));
        assert!(matches!(unified.suspend(1, &mut home), Err(Error::Suspended)));
        unified.resume(&mut home).unwrap();
        while unified.step(&mut |_, _| {}).unwrap().finished != Some(9) {}
    }
    oram.controller_mut().suspend(1, &mut home).unwrap();
    let bytes: Vec<u8> = top_store.snapshot().iter().map(|byte| byte ^ 1).collect();
    top_store.write(&[Extent::new(0, bytes.len())], &bytes).unwrap();
    let refused = oram.controller_mut().resume(&mut home);
    assert!(matches!(refused, Err(Error::Tampered { .. })), "{refused:?}");
}

/// A cache above with the only copy of its blocks: one line for each remainder.
struct Exclusive<T, L> {
    oram: Unified<T, L>,
    lines: Vec<Option<(u64, Vec<u8>)>>,
}

impl<T: BucketTree, L: Labels> Exclusive<T, L> {
    fn new(oram: Unified<T, L>, lines: usize) -> Self {
        Self { oram, lines: vec![None; lines] }
    }

    /// Steps until request `id` is finished.
    fn finish(oram: &mut Unified<T, L>, id: u64, serve: Serve<'_>) -> Result {
        while oram.finish_without_path(serve)? != Some(id) {
            if oram.step(serve)?.finished == Some(id) {
                break;
            }
        }
        Ok(())
    }
}

impl<T: BucketTree, L: Labels> Oram for Exclusive<T, L> {
    fn blocks(&self) -> u64 {
        self.oram.blocks()
    }
    fn block_len(&self) -> usize {
        self.oram.block_len()
    }
    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        let len = self.block_len();
        for (addr, part) in one_by_one(addrs, len, into.len())? {
            self.update(addr, &mut |body| into[part.clone()].copy_from_slice(body))?;
        }
        Ok(())
    }
    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        let len = self.block_len();
        for (addr, part) in one_by_one(addrs, len, from.len())? {
            self.update(addr, &mut |body| body.copy_from_slice(&from[part.clone()]))?;
        }
        Ok(())
    }
    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        check_request(self.blocks(), 0, &[addr], 0)?;
        let nth = (addr.0 % self.lines.len() as u64) as usize;
        let Self { oram, lines } = self;
        if lines[nth].as_ref().is_none_or(|(held, _)| *held != addr.0) {
            if let Some((old, body)) = lines[nth].take() {
                assert!(matches!(oram.submit(0, Addr(old)), Err(Error::Misplaced { .. })));
                oram.submit_return(1, Addr(old))?;
                Self::finish(oram, 1, &mut |_, into| into.copy_from_slice(&body))?;
            }
            let mut body = vec![0; oram.block_len()];
            assert!(matches!(oram.submit_return(0, addr), Err(Error::Misplaced { .. })));
            oram.submit_fetch(2, addr)?;
            Self::finish(oram, 2, &mut |_, from| body.copy_from_slice(from))?;
            lines[nth] = Some((addr.0, body));
        }
        change(&mut lines[nth].as_mut().expect("it is there now").1);
        Ok(())
    }
    fn sync(&mut self) -> Result {
        self.oram.sync()
    }
    fn hides(&self) -> Hides {
        self.oram.hides()
    }
    fn close(&mut self) -> Result {
        self.oram.close()
    }
}

#[test]
fn delayed_remapping_makes_an_array() {
    let with = |searches: bool, parts, lines| {
        let plb = Plb::new(2, 1, LEN).unwrap();
        let (tree, sizes) = (substash(BareTree::new(below(), LEN), 7), sizes(40, 2, parts));
        let mut oram = Unified::new(sizes, tree, compressed(), compressed(), plb, rng()).unwrap();
        if searches {
            oram.search_first();
        }
        is_an_array(&mut Exclusive::new(oram, lines), 4000);
    };
    for (parts, lines) in [(1, 1), (1, 9), (2, 6), (1, 40)] {
        with(false, parts, lines);
        with(true, parts, lines);
    }
    let store = store_for(&shape(), LEN);
    let tree = sealed(store, shape(), LEN);
    let plb = Plb::new(4, 2, LEN).unwrap();
    let oram = Unified::new(sizes(80, 2, 1), tree, plain(), plain(), plb, rng()).unwrap();
    is_an_array(&mut Exclusive::new(oram, 10), 4000);
}

#[test]
fn delayed_remapping_makes_an_array_in_a_long_run() {
    let tree = substash(BareTree::new(below(), LEN), 7);
    let mut oram = Exclusive::new(unified(80, 1, tree, compressed), 9);
    is_an_array(&mut oram, operations());
}

/// A returned block takes path accesses for the map alone (section IV-D), and a step is one path
/// even if it finishes a return.
#[test]
fn a_returned_block_takes_no_path_of_its_own() {
    let leaves = Leaves::default();
    let tree = LeafRecording::new(BareTree::new(shape(), LEN), leaves.clone());
    let plb = Plb::new(1, 1, LEN).unwrap();
    let mut oram = Unified::new(sizes(80, 2, 1), tree, plain(), plain(), plb, rng()).unwrap();
    let steps = |oram: &mut Unified<_, _>| {
        let mut kinds = vec![];
        while oram.finish_without_path(&mut |_, _| {}).unwrap().is_none() {
            let before = leaves.lock().unwrap().len();
            let issued = oram.step(&mut |_, _| {}).unwrap();
            assert_eq!(leaves.lock().unwrap().len(), before + 1);
            kinds.push(issued.kind);
            if issued.finished.is_some() {
                break;
            }
        }
        kinds
    };
    oram.submit_fetch(1, Addr(3)).unwrap();
    assert_eq!(steps(&mut oram), [StepKind::PosMap(2), StepKind::PosMap(1), StepKind::Data]);
    oram.submit_return(2, Addr(3)).unwrap();
    assert_eq!(steps(&mut oram), [], "its entry is in the PLB");
    oram.submit_fetch(3, Addr(3)).unwrap();
    assert_eq!(steps(&mut oram), [StepKind::Data]);
    oram.submit(4, Addr(70)).unwrap();
    steps(&mut oram);
    oram.submit_return(5, Addr(3)).unwrap();
    assert_eq!(steps(&mut oram), [StepKind::PosMap(2), StepKind::PosMap(1)]);
    oram.submit_fetch(6, Addr(3)).unwrap();
    oram.submit_return(7, Addr(3)).unwrap();
    assert_eq!(steps(&mut oram), [StepKind::Data]);
    let issued = oram.step(&mut |_, _| {}).unwrap();
    assert_eq!(issued, StepOutcome { kind: StepKind::Dummy, finished: Some(7) });
}

/// In a tiny tree evictions may fail to empty the stash; returns must still finish.
#[test]
fn a_crowded_stash_delays_a_return() {
    let mut oram = unified(9, 1, BareTree::new(Shape::uniform(2, 4).unwrap(), LEN), plain);
    oram.drain_above(0);
    for id in 0..9 {
        oram.submit_fetch(id, Addr(id)).unwrap();
    }
    (0..9).for_each(|id| oram.submit_return(id, Addr(id)).unwrap());
    let mut finished = 0;
    for _ in 0..3000 {
        finished += u32::from(oram.step(&mut |_, _| {}).unwrap().finished.is_some());
    }
    assert_eq!(finished, 18);
}

/// Section IV-D: three path accesses write a line back, fewer after PLB hits.
#[test]
fn dummies_are_spent_on_an_offered_line() {
    let mut oram = unified(80, 1, BareTree::new(shape(), LEN), plain);
    let step = |oram: &mut Unified<BareTree, PlainLabels>| {
        let issued = oram.step(&mut |id, body| body.fill(id as u8)).unwrap();
        (issued.kind, issued.finished, oram.stage())
    };
    assert_eq!(step(&mut oram), (StepKind::Dummy, None, 0));
    oram.offer(7, Addr(3)).unwrap();
    assert_eq!(oram.stage(), 3);
    assert_eq!(step(&mut oram), (StepKind::PosMap(2), None, 2));
    // A request goes first; it uses the same block of the map.
    oram.submit(1, Addr(9)).unwrap();
    assert_eq!(step(&mut oram), (StepKind::PosMap(1), None, 2));
    assert_eq!(step(&mut oram), (StepKind::Data, Some(1), 2));
    assert_eq!(step(&mut oram), (StepKind::PosMap(1), None, 1));
    assert_eq!(step(&mut oram), (StepKind::Data, Some(7), 0));
    assert_eq!(step(&mut oram), (StepKind::Dummy, None, 0));
    // A withdrawn offer leaves its map blocks in the PLB and has no other effect.
    oram.offer(8, Addr(70)).unwrap();
    assert_eq!(step(&mut oram), (StepKind::PosMap(2), None, 2));
    oram.withdraw();
    assert_eq!(step(&mut oram), (StepKind::Dummy, None, 0));
    let mut body = [0; LEN];
    let mut oram = SteppedOram::new(oram);
    oram.read(Addr(3), &mut body).unwrap();
    assert_eq!(body, [7; LEN]);
    let unified = oram.controller_mut();
    unified.submit_fetch(1, Addr(5)).unwrap();
    assert!(matches!(unified.offer(1, Addr(5)), Err(Error::Misplaced { .. })));
    assert!(matches!(unified.offer(1, Addr(80)), Err(Error::OutOfRange { .. })));
}

/// Offers are made or withdrawn at any moment, or their line is fetched, with group remaps in
/// between.
#[test]
fn offers_change_no_block_in_a_long_run() {
    let tree = substash(BareTree::new(below(), LEN), 7);
    let plb = Plb::new(2, 1, LEN).unwrap();
    let labels = || CompressedLabels::new(&key(), 5, 2).unwrap();
    let mut oram = Unified::new(sizes(40, 2, 2), tree, labels(), labels(), plb, rng()).unwrap();
    let (mut model, mut rng) = ([0u8; 40], SeededRng::new(6));
    let (mut written_back, mut taken) = (0, None);
    for round in 0..operations() {
        let addr = rng.below(40) as usize;
        match rng.below(4) {
            0 => oram.withdraw(),
            1 if taken != Some(addr) => oram.offer(100, Addr(addr as u64)).unwrap(),
            // A fetched block returns in the next round of this kind.
            2 if taken.is_none() && round % 3 == 0 => {
                oram.submit_fetch(1, Addr(addr as u64)).unwrap();
                taken = Some(addr);
            }
            2 => {
                if let Some(addr) = taken.take() {
                    oram.submit_return(2, Addr(addr as u64)).unwrap();
                }
            }
            _ if taken != Some(addr) => oram.submit(0, Addr(addr as u64)).unwrap(),
            _ => {}
        }
        for _ in 0..rng.below(12) {
            let front = oram.requests.front().copied();
            let offered = oram.offered;
            let mut serve = |id: u64, body: &mut [u8]| {
                let request = if id == 100 { offered } else { front }.expect("somebody asked");
                let want = &mut model[request.addr.0 as usize];
                if id == 2 {
                    body.fill(*want);
                }
                assert_eq!((body[0], body[47]), (*want, *want));
                *want = want.wrapping_add(1);
                body.fill(*want);
            };
            let issued = oram.step(&mut serve).unwrap();
            written_back += u32::from(issued.finished == Some(100));
        }
    }
    assert!(written_back > 200, "{written_back}");
}

/// Each step accesses one path with the same bytes, with and without an offer.
#[test]
fn offers_have_the_template_of_dummies() {
    let witness = Arc::new(Recorder::default());
    let store = Arc::new(WatchedStore::new(store_for(&shape(), LEN), witness.clone()));
    let mut oram = unified(40, 1, sealed(store, shape(), LEN), compressed);
    let mut bytes = BTreeSet::new();
    for step in 0..600 {
        if step % 3 == 0 {
            oram.offer(1, Addr(step * 7 % 40)).unwrap();
        }
        oram.step(&mut |_, body| body[0] ^= 1).unwrap();
        bytes.insert(witness.take().iter().map(|event| u64::from(event.len)).sum::<u64>());
    }
    assert_eq!(bytes.len(), 1);
}

/// Statistics of the leaves of an ORAM of 2000 blocks with eleven levels, which issues `steps`
/// paths for a workload that always has a request waiting.
fn leaves_of<L: Labels>(
    labels: impl Fn() -> L,
    how: How,
    steps: usize,
    mut next: impl FnMut(&mut dyn Rng) -> u64,
) -> Vec<u64> {
    let shape = IR_ORAM.shape(11).unwrap();
    let leaves = Leaves::default();
    let inner = LeafRecording::new(bare_below(&shape, SEEN_FROM as usize, LEN), leaves.clone());
    let tree = Substash::new(shape, SEEN_FROM as usize, (32, 4), inner).unwrap();
    let plb = Plb::new(8, 4, LEN).unwrap();
    let mut oram = Unified::new(sizes(2000, 2, 1), tree, labels(), labels(), plb, rng()).unwrap();
    if how == How::SearchesFirst {
        oram.search_first();
    }
    let (mut rng, mut held) = (SeededRng::new(8), VecDeque::new());
    while leaves.lock().unwrap().len() < steps {
        let addr = next(&mut rng);
        if how == How::Delays && !held.contains(&addr) {
            if held.len() == 20 {
                oram.submit_return(1, Addr(held.pop_front().expect("it holds 20"))).unwrap();
            }
            held.push_back(addr);
            oram.submit_fetch(2, Addr(addr)).unwrap();
        } else if how != How::Delays {
            oram.submit(2, Addr(addr)).unwrap();
        }
        while oram.finish_without_path(&mut |_, _| {}).unwrap().is_some() {}
        // One path per tick, whether or not there is work.
        oram.step(&mut |_, _| {}).unwrap();
        if oram.requests.len() > 4 {
            while !oram.requests.is_empty() {
                oram.step(&mut |_, _| {}).unwrap();
            }
        }
    }
    core::mem::take(&mut *leaves.lock().unwrap())
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    Accesses,
    SearchesFirst,
    Delays,
}

const LEAVES: u64 = 1 << 10;
const STEPS: usize = 60_000;

/// The first level that an observer sees.
const SEEN_FROM: u32 = 4;

#[test]
fn leaves_are_uniform_fresh_and_independent() {
    for how in [How::Accesses, How::Delays] {
        for hot in [2000, 60, 3] {
            for seen in [
                leaves_of(plain, how, STEPS, |rng| rng.below(hot)),
                leaves_of(compressed, how, STEPS, |rng| rng.below(hot)),
            ] {
                assert!(chi_square(&seen, LEAVES) < CHI_SQUARE_MAX);
                assert!(repeats(&seen, LEAVES) < REPEATS_MAX, "{hot} blocks");
                let echo = loudest_echo(&seen, LEAVES);
                assert!(echo.abs() < REPEATS_MAX, "{hot} blocks: {echo}");
            }
        }
    }
}

/// The price of hits without a path, at any rate. Each leaf by itself is uniform; but a comparison
/// of two consecutive leaves distinguishes a hot set of a few blocks from a large one.
#[test]
fn searching_first_shows_in_the_leaves() {
    let large = leaves_of(plain, How::SearchesFirst, STEPS, |rng| rng.below(2000));
    let hot = leaves_of(plain, How::SearchesFirst, STEPS, |rng| rng.below(3));
    assert!(chi_square(&hot, LEAVES) < CHI_SQUARE_MAX);
    let echo = |leaves| echoes(leaves, LEAVES, SEEN_FROM);
    assert!(loudest_echo(&large, LEAVES).abs() < REPEATS_MAX, "{}", loudest_echo(&large, LEAVES));
    assert!(echo(&hot) > 8.0 * REPEATS_MAX, "{}", echo(&hot));
    assert!(loudest_echo(&hot, LEAVES) >= echo(&hot));
    assert!(repeats(&hot, LEAVES) < REPEATS_MAX, "what looks at whole leaves does not see it");
}

/// Labels of which one in twenty is not renewed.
struct Lazy<L>(L, std::sync::atomic::AtomicU32);

impl<L: Labels> Labels for Lazy<L> {
    fn fanout(&self) -> u64 {
        self.0.fanout()
    }
    fn entries_len(&self) -> usize {
        self.0.entries_len()
    }
    fn check(&self, leaves: u64, parts: u64) -> Result {
        self.0.check(leaves, parts)
    }
    fn leaf(&self, entries: &[u8], nth: usize, addr: Addr, draw: &mut LeafDraw) -> Leaf {
        self.0.leaf(entries, nth, addr, draw)
    }
    fn is_spent(&self, entries: &[u8], nth: usize) -> bool {
        self.0.is_spent(entries, nth)
    }
    fn renew(&self, entries: &mut [u8], nth: usize, draw: &mut LeafDraw) {
        let before = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if before % 20 != 19 {
            self.0.renew(entries, nth, draw);
        }
    }
    fn renew_group(&self, entries: &mut [u8]) -> Result {
        self.0.renew_group(entries)
    }
}

/// A block is fetched and returned under a label that an observer knows: found at full resolution.
#[test]
fn missing_remaps_are_caught() {
    for how in [How::Accesses, How::Delays] {
        let labels = || Lazy(plain(), 0.into());
        let seen = leaves_of(labels, how, STEPS, |rng| rng.below(60));
        assert!(repeats(&seen, LEAVES) > REPEATS_MAX, "{}", repeats(&seen, LEAVES));
    }
}

/// A positive control: the number of paths per request distinguishes a small working set from a
/// large one, so without issue at a fixed rate it leaks.
#[test]
fn without_a_timer_the_number_of_paths_reveals_the_working_set() {
    let evictions = |hot: u64| {
        let tree = GhostTree::new(IR_ALLOC4.shape(13).unwrap(), 4096, ());
        let plb = Plb::new(64, 4, 0).unwrap();
        let labels = || PlainLabels::new(16).unwrap();
        let mut oram =
            Unified::new(sizes(15_000, 2, 1), tree, labels(), labels(), plb, rng()).unwrap();
        oram.drain_above(20);
        let mut rng = SeededRng::new(5);
        (0..15_000).chain((0..60_000).map(|_| rng.below(hot))).fold(0, |evictions, addr| {
            oram.submit(0, Addr(addr)).unwrap();
            let mut all = evictions;
            loop {
                let issued = oram.step(&mut |_, _| {}).unwrap();
                all += u64::from(issued.kind == StepKind::Eviction);
                if issued.finished.is_some() {
                    break all;
                }
            }
        })
    };
    let (small, large) = (evictions(15), evictions(15_000));
    assert!(large > 3 * small && large > 1000, "{small} and {large}");
}
