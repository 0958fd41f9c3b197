//! Tree schemes: what they must do, and what the auditor finds in the paths they take.

use super::super::{
    FusedPath, FusedRing, Opam, PageScheme, Path, TreeParts, TreeSize, path_leaves,
};
use super::{Model, check_contents, key, swap_partially};
use crate::PAGE_LEN;
use crate::slots::PageAegis;
use std::collections::BTreeMap;
use std::sync::Arc;
use traceless::Hides;
use traceless::error::{Error, Result};
use traceless::rng::{Rng, SeededRng};
use traceless::store::{MemStore, Store, WatchedStore};
use traceless::trace::{Event, Op, Recorder};
use traceless::types::Extent;
use traceless_audit::{Draws, Verdict};

type SchemeContext = TreeParts<PageAegis>;

/// All tree schemes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Path,
    FusedPath,
    Ring,
    Opam,
}

const KINDS: [Kind; 4] = [Kind::Path, Kind::FusedPath, Kind::Ring, Kind::Opam];

impl Kind {
    fn store_len(self, pages: u64, cached: usize) -> u64 {
        let sample = PageAegis::new(&key());
        let size = match self {
            Self::Ring => TreeSize::ring(pages, cached, &sample),
            _ => TreeSize::path(pages, cached, &sample),
        };
        size.unwrap().store
    }

    fn build(self, store: Arc<dyn Store>, pages: u64, cached: usize) -> Box<dyn PageScheme> {
        let rng = Box::new(SeededRng::new(pages));
        let salts = Box::new(SeededRng::new(2));
        let context = SchemeContext { store, pages, cached, sealer: PageAegis::new, rng, salts };
        match self {
            Self::Path => Box::new(Path::new(context).unwrap()),
            Self::FusedPath => Box::new(FusedPath::path(context).unwrap()),
            Self::Ring => Box::new(FusedRing::ring(context).unwrap()),
            Self::Opam => Box::new(Opam::opam(context).unwrap()),
        }
    }

    /// Makes the scheme over a store that records its events.
    fn watched(self, pages: u64) -> (Box<dyn PageScheme>, Arc<Recorder>) {
        let recorder = Arc::new(Recorder::default());
        let store = MemStore::new(self.store_len(pages, 0));
        let store = Arc::new(WatchedStore::new(store, recorder.clone()));
        (self.build(store, pages, 0), recorder)
    }
}

/// Makes each tree scheme, and passes it and its store to `check`.
fn each_tree(pages: u64, check: &mut dyn FnMut(Box<dyn PageScheme>, Arc<MemStore>)) {
    for (kind, cached) in KINDS.into_iter().flat_map(|kind| [(kind, 0), (kind, 2)]) {
        let store = Arc::new(MemStore::new(kind.store_len(pages, cached)));
        check(kind.build(store.clone(), pages, cached), store);
    }
}

#[test]
fn pages_come_back_with_their_contents() {
    for pages in [23, 64] {
        each_tree(pages, &mut |scheme, _| check_contents(scheme, 1500));
    }
}

/// What an observer sees of an access but for places: bytes of each run of reads or writes.
fn lens_of(events: &[Event]) -> Vec<(Op, u64)> {
    let runs = events.chunk_by(|a, b| a.op == b.op);
    runs.map(|run| (run[0].op, run.iter().map(|event| u64::from(event.len)).sum())).collect()
}

/// A ring's buckets are rewritten early where paths, which are random, have met often: so only its
/// accesses are counted.
#[test]
fn swaps_with_dummies_look_alike_whichever_pages_there_are() {
    for kind in [Kind::Path, Kind::FusedPath, Kind::Ring] {
        let lens = |seed| {
            let (mut scheme, recorder) = kind.watched(64);
            swap_partially(&mut *scheme, seed, || lens_of(&recorder.take()))
        };
        let [first, second] = [lens(1), lens(2)];
        if kind == Kind::Ring {
            assert!(first.iter().chain(&second).all(|access| !access.is_empty()));
        } else {
            assert_eq!(first, second, "{kind:?}");
        }
    }
    let (mut opam, _) = Kind::Opam.watched(64);
    assert!(opam.swap_with_dummies(None, None, &mut [0; PAGE_LEN]).is_err());
}

/// OPAM leaves copies behind, which take slots until an eviction meets them.
#[test]
fn stashes_do_not_overflow_in_long_runs() {
    for kind in KINDS {
        let pages = 300;
        let store = Arc::new(MemStore::new(kind.store_len(pages, 0)));
        check_contents(kind.build(store, pages, 0), 6000);
    }
}

#[test]
fn a_tree_from_an_older_copy_is_an_error() {
    each_tree(64, &mut |scheme, store| {
        let mut model = Model::new(scheme, 2);
        let mut rng = SeededRng::new(2);
        let mut touch = |from: u64| -> Result {
            (from..from + 64).try_for_each(|step| model.touch(step % 64, &mut rng, step))
        };
        touch(0).unwrap();
        let old = store.snapshot();
        touch(64).unwrap();
        store.write(&[Extent::new(0, old.len())], &old).unwrap();
        assert!(matches!(touch(128), Err(Error::Tampered { .. })));
    });
}

#[test]
fn a_page_that_is_in_two_places_is_refused() {
    for kind in [Kind::FusedPath, Kind::Ring, Kind::Opam] {
        let (mut scheme, recorder) = kind.watched(64);
        let mut frame = [1; PAGE_LEN];
        scheme.swap(Some(0), Some(1), &mut frame).unwrap();
        scheme.swap(Some(1), Some(0), &mut frame).unwrap();
        recorder.take();
        // Page 0 is in a frame, page 1 is not.
        for (out, wanted) in [(Some(1), None), (None, Some(0)), (Some(1), Some(0))] {
            let refused = scheme.swap(out, wanted, &mut frame);
            assert!(matches!(refused, Err(Error::Misplaced { .. })), "{kind:?}: {refused:?}");
        }
        assert!(recorder.take().is_empty(), "nothing is accessed");
        scheme.swap(Some(0), Some(1), &mut frame).unwrap();
    }
}

/// The paths that were read or written whole, in order: the leaf buckets among the events.
fn leaves_of(events: &[Event], buckets: &BTreeMap<u64, u64>) -> Vec<u64> {
    let leaf_of = |event: &Event| {
        let found = buckets.range(event.at..event.at + u64::from(event.len)).next();
        found.map(|(_, leaf)| *leaf)
    };
    events.iter().filter_map(leaf_of).collect()
}

/// What an observer records of a program that works on few of its pages: the paths read, in order,
/// each with the page that came.
fn paths_of(kind: Kind, faults: u64) -> Draws {
    const TOUCHED: u64 = 6;
    let pages = 128;
    let (mut scheme, recorder) = kind.watched(pages);
    let places = path_leaves(pages, &PageAegis::new(&key())).unwrap();
    let mut draws = Draws { noun: "leaves", places: places.len() as u64, ..Draws::default() };
    let buckets = places.into_iter().zip(0..).collect();
    let mut frame = [1; PAGE_LEN];
    let mut rng = SeededRng::new(9);
    // Each fault brings a page that is not resident, for the one that came before.
    let mut resident = 0;
    for _ in 0..faults {
        let wanted = (resident + 1 + rng.below(TOUCHED - 1)) % TOUCHED;
        scheme.swap(Some(resident), Some(wanted), &mut frame).unwrap();
        resident = wanted;
        let mut events = recorder.take();
        events.retain(|event| event.op == Op::Read);
        let leaves = leaves_of(&events, &buckets);
        draws.secrets.extend(leaves.iter().map(|_| wanted));
        draws.drawn.extend(leaves);
    }
    draws
}

#[test]
fn the_auditor_finds_the_leak_of_opam_and_of_no_other_scheme() {
    for (kind, each) in [(Kind::Path, 2), (Kind::FusedPath, 1), (Kind::Opam, 2)] {
        let faults = 3000;
        let draws = paths_of(kind, faults);
        assert_eq!(draws.drawn.len() as u64, each * faults, "paths of a fault");
        let leaks: Vec<_> = draws
            .claims("of paging")
            .into_iter()
            .filter(|claim| claim.verdict != Verdict::Pass)
            .map(|claim| claim.name)
            .collect();
        let is_secure = kind != Kind::Opam;
        assert_eq!(leaks.is_empty(), is_secure, "{kind:?}: {leaks:?}");
        let (scheme, _) = kind.watched(128);
        assert_eq!(scheme.hides() == Hides::ReadsAndWrites, is_secure);
    }
}

/// OPAM's leak: the path that is read for a page was written when the page left.
#[test]
fn opam_reads_the_path_that_it_wrote() {
    let draws = paths_of(Kind::Opam, 1500);
    let mut written: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut resident, mut known, mut same) = (0, 0, 0);
    for (paths, page) in draws.drawn.chunks(2).zip(draws.secrets.iter().step_by(2)) {
        if let Some(path) = written.remove(page) {
            known += 1;
            same += u64::from(path == paths[0]);
        }
        written.insert(resident, paths[1]);
        resident = *page;
    }
    assert!(known > 1000 && same == known, "{same} of {known}");
}

/// A fault of a fused tree shows one path read and written, drawn afresh, for any page.
#[test]
fn a_fused_fault_is_one_path() {
    let (mut scheme, recorder) = Kind::FusedPath.watched(64);
    let mut frame = [1; PAGE_LEN];
    // Neighbours on a path may be merged into one extent, which depends on the leaf alone.
    let shape = |events: &[Event]| {
        let bytes = |op| -> u32 {
            events.iter().filter(|event| event.op == op).map(|event| event.len).sum()
        };
        (bytes(Op::Read), bytes(Op::Write))
    };
    scheme.swap(Some(0), Some(1), &mut frame).unwrap();
    let template = shape(&recorder.take());
    let mut leaves = BTreeMap::new();
    // The same two pages each time, but the leaf is drawn afresh.
    for fault in 0..800 {
        let (out, wanted) = (1 - fault % 2, fault % 2);
        scheme.swap(Some(out), Some(wanted), &mut frame).unwrap();
        let events = recorder.take();
        *leaves.entry(events.iter().map(|event| event.at).max()).or_insert(0) += 1;
        assert_eq!(shape(&events), template, "fault {fault}");
    }
    assert!(leaves.len() == 16 && leaves.values().all(|&count| (20..90).contains(&count)));
}
