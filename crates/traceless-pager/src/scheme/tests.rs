//! What every scheme must do, and what write-only schemes must not show.

mod growth;
mod trees;

use super::{Areas, DeferredDetWo, DetWo, PageScheme, Plain};
use crate::slots::{Cipher, SEALED_LEN};
use crate::{PAGE_LEN, Page};
use std::collections::BTreeMap;
use std::sync::Arc;
use traceless::Hides;
use traceless::error::Error;
use traceless::rng::{Rng, SeededRng, System};
use traceless::seal::Secret;
use traceless::store::{MemStore, Store, WatchedStore};
use traceless::trace::{Event, Op, Recorder};
use traceless::types::Extent;
use traceless_block::detwo::Refresh;

/// Ratios of main area to holding area that are tried: integers, fractions, below one.
const RATIOS: [(u32, u32); 7] = [(1, 1), (3, 1), (7, 1), (15, 1), (5, 2), (1, 3), (11, 3)];

fn key() -> Secret {
    Secret::from_bytes([5; 32])
}

/// Makes each scheme over a store of the right size, and passes both to `check`.
fn each_scheme(pages: u64, check: &mut dyn FnMut(Box<dyn PageScheme>, Arc<MemStore>)) {
    for cipher in Cipher::ALL {
        let store = Arc::new(MemStore::new(Plain::store_len(pages)));
        let plain = Plain::new(store.clone(), pages, cipher, &key(), Box::new(System)).unwrap();
        check(Box::new(plain), store);
        for (p, q) in RATIOS {
            let store = Arc::new(MemStore::new(len(pages, (p, q))));
            check(Box::new(detwo(store.clone(), pages, (p, q), cipher)), store);
        }
    }
}

fn len(pages: u64, (p, q): (u32, u32)) -> u64 {
    Areas::store_len(pages, Refresh::new(p, q).unwrap())
}

fn detwo(store: Arc<dyn Store>, pages: u64, (p, q): (u32, u32), cipher: Cipher) -> DetWo {
    let refresh = Refresh::new(p, q).unwrap();
    DetWo::new(Areas::new(store, pages, refresh, cipher, &key(), Box::new(System)).unwrap())
}

fn page_of(seed: u64) -> Page {
    let mut page = [0; PAGE_LEN];
    SeededRng::new(seed).fill(&mut page);
    page
}

/// A pager of `frames` frames that evicts random pages, with the right contents beside it.
struct Model {
    scheme: Box<dyn PageScheme>,
    resident: BTreeMap<u64, Page>,
    truth: BTreeMap<u64, Page>,
    frames: usize,
}

impl Model {
    fn new(scheme: Box<dyn PageScheme>, frames: usize) -> Self {
        Self { scheme, resident: BTreeMap::new(), truth: BTreeMap::new(), frames }
    }

    /// Touches a page, which must have the contents it was left with, and gives it other ones.
    fn touch(&mut self, page: u64, rng: &mut SeededRng, contents: u64) -> Result<(), Error> {
        if !self.resident.contains_key(&page) {
            let mut frame = [9; PAGE_LEN];
            let mut out = None;
            if self.resident.len() == self.frames {
                let nth = rng.below(self.frames as u64) as usize;
                let victim = *self.resident.keys().nth(nth).unwrap();
                frame = self.resident.remove(&victim).unwrap();
                out = Some(victim);
            }
            self.scheme.swap(out, Some(page), &mut frame)?;
            self.scheme.settle()?;
            self.resident.insert(page, frame);
        }
        let truth = self.truth.get(&page).copied().unwrap_or([0; PAGE_LEN]);
        assert!(self.resident[&page] == truth, "page {page} is not as it was left");
        let new = page_of(contents);
        self.resident.insert(page, new);
        self.truth.insert(page, new);
        Ok(())
    }

    fn forget(&mut self, page: u64) {
        self.resident.remove(&page);
        self.truth.remove(&page);
        self.scheme.forget(page);
    }
}

#[test]
fn pages_come_back_with_their_contents() {
    for pages in [16, 23, 64] {
        each_scheme(pages, &mut |scheme, _| check_contents(scheme, 1500));
    }
}

/// Touches and forgets random pages, and checks their contents.
fn check_contents(scheme: Box<dyn PageScheme>, steps: u64) {
    let pages = scheme.pages();
    let mut model = Model::new(scheme, 4);
    let mut rng = SeededRng::new(pages);
    for step in 0..steps {
        let page = rng.below(pages);
        if step % 41 == 40 {
            model.forget(page);
        } else {
            model.touch(page, &mut rng, step).unwrap();
        }
    }
}

#[test]
fn a_changed_slot_is_an_error_or_has_no_effect() {
    each_scheme(16, &mut |scheme, store| {
        let mut model = Model::new(scheme, 2);
        let mut rng = SeededRng::new(1);
        for step in 0..100 {
            model.touch(step % 16, &mut rng, step).unwrap();
        }
        let slots = store.len() / SEALED_LEN as u64;
        let stamp_len = (SEALED_LEN - PAGE_LEN) as u64;
        let mut refused = 0;
        for slot in 0..slots {
            let stamp = slots * PAGE_LEN as u64 + slot * stamp_len;
            for at in [slot * PAGE_LEN as u64 + 7, stamp, stamp + stamp_len - 1] {
                refused += u64::from(flipped_is_refused(&mut model, &store, at));
            }
        }
        // Body, salt and tag of each page's newest copy; two of the 16 pages are in frames.
        assert_eq!(refused, 3 * 14);
    });
}

/// Flips a bit, reads all pages, and flips it back. Reading without writing moves no page.
fn flipped_is_refused(model: &mut Model, store: &MemStore, at: u64) -> bool {
    let mut byte = [0];
    let extent = [Extent::new(at, 1)];
    store.read(&extent, &mut byte).unwrap();
    store.write(&extent, &[byte[0] ^ 1]).unwrap();
    let mut refused = false;
    for page in (0..16).filter(|page| !model.resident.contains_key(page)) {
        let mut frame = [0; PAGE_LEN];
        match model.scheme.swap(None, Some(page), &mut frame) {
            Ok(()) => assert!(frame == model.truth[&page]),
            Err(Error::Tampered { .. }) => refused = true,
            Err(other) => panic!("{other}"),
        }
    }
    store.write(&extent, &byte).unwrap();
    refused
}

#[test]
fn a_slot_put_back_from_an_older_copy_is_an_error_or_has_no_effect() {
    each_scheme(16, &mut |scheme, store| {
        let mut model = Model::new(scheme, 2);
        let mut rng = SeededRng::new(2);
        for step in 0..64 {
            model.touch(step % 16, &mut rng, step).unwrap();
        }
        let old = store.snapshot();
        for step in 64..128 {
            model.touch(step % 16, &mut rng, step).unwrap();
        }
        let new = store.snapshot();
        store.write(&[Extent::new(0, old.len())], &old).unwrap();
        for page in (0..16).filter(|page| !model.resident.contains_key(page)) {
            let read = model.scheme.swap(None, Some(page), &mut [0; PAGE_LEN]);
            assert!(matches!(read, Err(Error::Tampered { .. })), "page {page} went back");
        }
        // Two slots are exchanged with each other, salts and tags included.
        store.write(&[Extent::new(0, new.len())], &new).unwrap();
        swap_slots(&store, 3, 4);
        for page in [3, 4] {
            match model.scheme.swap(None, Some(page), &mut [0; PAGE_LEN]) {
                Err(Error::Tampered { .. }) => {}
                // The newest copy of the page lies elsewhere.
                read => assert!(read.is_ok() && model.scheme.hides() != Hides::Nothing),
            }
        }
    });
}

fn swap_slots(store: &MemStore, a: u64, b: u64) {
    let slots = store.len() / SEALED_LEN as u64;
    let stamp_len = SEALED_LEN - PAGE_LEN;
    let extents = |slot| {
        let stamp = slots * PAGE_LEN as u64 + slot * stamp_len as u64;
        [Extent::new(slot * PAGE_LEN as u64, PAGE_LEN), Extent::new(stamp, stamp_len)]
    };
    let (mut first, mut second) = ([0; SEALED_LEN], [0; SEALED_LEN]);
    store.read(&extents(a), &mut first).unwrap();
    store.read(&extents(b), &mut second).unwrap();
    store.write(&extents(a), &second).unwrap();
    store.write(&extents(b), &first).unwrap();
}

/// The writes of a scheme while `touched` are touched one after the other with `frames` frames; the
/// least recently used page leaves.
fn writes_of(plain: bool, ratio: (u32, u32), frames: usize, touched: &[u64]) -> Vec<Event> {
    let recorder = Arc::new(Recorder::default());
    let pages = 16;
    let store = MemStore::new(len(pages, ratio));
    let store: Arc<dyn Store> = Arc::new(WatchedStore::new(store, recorder.clone()));
    let mut scheme: Box<dyn PageScheme> = if plain {
        Box::new(Plain::new(store, pages, Cipher::default(), &key(), Box::new(System)).unwrap())
    } else {
        Box::new(detwo(store, pages, ratio, Cipher::default()))
    };
    let mut resident: Vec<(u64, Page)> = vec![];
    for &page in touched {
        let position = resident.iter().position(|&(resident, _)| resident == page);
        if let Some(nth) = position {
            let touched = resident.remove(nth);
            resident.push(touched);
        } else {
            let mut frame = [0; PAGE_LEN];
            let mut out = None;
            if resident.len() == frames {
                let (victim, contents) = resident.remove(0);
                (out, frame) = (Some(victim), contents);
            }
            scheme.swap(out, Some(page), &mut frame).unwrap();
            resident.push((page, frame));
        }
    }
    recorder.take().into_iter().filter(|event| event.op == Op::Write).collect()
}

/// The paper's pseudocode 1 with three frames: `secret` decides whether page 1 or page 2 is touched
/// first, and so which of them leaves when page 3 comes.
fn pseudocode_1(secret: u64) -> Vec<u64> {
    let branch = if secret == 1 { [1, 2] } else { [2, 1] };
    [&[0][..], &branch, &[0, 3]].concat()
}

#[test]
fn writes_of_the_papers_example_do_not_depend_on_the_secret() {
    for ratio in RATIOS.into_iter().filter(|&(p, q)| p <= 15 * q) {
        let first = writes_of(false, ratio, 3, &pseudocode_1(1));
        let second = writes_of(false, ratio, 3, &pseudocode_1(2));
        // Both evict equally often, but different pages.
        assert_eq!(first, second);
        assert!(!first.is_empty());
    }
    let plain = |secret| writes_of(true, (1, 1), 3, &pseudocode_1(secret));
    assert_ne!(plain(1), plain(2), "the control shows which page left");
}

#[test]
fn write_traces_depend_on_the_number_of_faults_alone() {
    let mut rng = SeededRng::new(3);
    for ratio in RATIOS {
        // Each touch is a fault: no page is touched again while it is resident.
        let sequential: Vec<u64> = (0..300).map(|i| i % 16).collect();
        let mut shuffled: Vec<u64> = vec![];
        while shuffled.len() < 300 {
            let page = rng.below(16);
            if !shuffled.iter().rev().take(4).any(|&before| before == page) {
                shuffled.push(page);
            }
        }
        let first = writes_of(false, ratio, 4, &sequential);
        assert_eq!(first, writes_of(false, ratio, 4, &shuffled));
        assert_ne!(first, writes_of(false, ratio, 4, &sequential[1..]));
    }
}

/// Pages that leave and come, of which one or both may be missing: no page twice in a row.
fn partial_swaps(seed: u64, count: usize, pages: u64) -> Vec<(Option<u64>, Option<u64>)> {
    let mut rng = SeededRng::new(seed);
    let mut resident: Vec<u64> = (0..4).collect();
    (0..count)
        .map(|_| {
            let out = (!resident.is_empty() && rng.below(2) == 0)
                .then(|| resident.swap_remove(rng.below(resident.len() as u64) as usize));
            let away: Vec<u64> =
                (0..pages).filter(|page| !resident.contains(page) && out != Some(*page)).collect();
            let wanted = (resident.len() < 6 && rng.below(2) == 0)
                .then(|| away[rng.below(away.len() as u64) as usize]);
            resident.extend(wanted);
            (out, wanted)
        })
        .collect()
}

/// Makes the swaps with dummies, checks what comes, and returns what `observe` does after each.
fn swap_partially<T>(
    scheme: &mut dyn PageScheme,
    seed: u64,
    mut observe: impl FnMut() -> T,
) -> Vec<T> {
    let mut contents: BTreeMap<u64, Page> = BTreeMap::new();
    let swaps = partial_swaps(seed, 300, scheme.pages());
    let observed = (0..).zip(swaps).map(|(nth, (out, wanted))| {
        let mut frame = page_of(nth);
        contents.extend(out.map(|page| (page, frame)));
        scheme.swap_with_dummies(out, wanted, &mut frame).unwrap();
        scheme.settle().unwrap();
        if let Some(page) = wanted {
            assert!(frame == contents.get(&page).copied().unwrap_or([0; PAGE_LEN]), "page {page}");
        }
        observe()
    });
    observed.collect()
}

#[test]
fn swaps_with_dummies_look_alike_whichever_pages_there_are() {
    for ratio in RATIOS {
        let writes_of = |seed, deferred| {
            let recorder = Arc::new(Recorder::default());
            let store = WatchedStore::new(MemStore::new(len(16, ratio)), recorder.clone());
            let refresh = Refresh::new(ratio.0, ratio.1).unwrap();
            let (store, salts) = (Arc::new(store), Box::new(System));
            let areas = Areas::new(store, 16, refresh, Cipher::default(), &key(), salts).unwrap();
            let mut scheme: Box<dyn PageScheme> = if deferred {
                Box::new(DeferredDetWo::new(areas))
            } else {
                Box::new(DetWo::new(areas))
            };
            swap_partially(&mut *scheme, seed, || {
                let events = recorder.take();
                events.into_iter().filter(|event| event.op == Op::Write).collect::<Vec<_>>()
            })
        };
        for deferred in [false, true] {
            let first = writes_of(1, deferred);
            assert!(first.iter().any(|writes| !writes.is_empty()));
            assert_eq!(first, writes_of(2, deferred), "{ratio:?}");
        }
    }
    let store = Arc::new(MemStore::new(Plain::store_len(16)));
    let mut plain = Plain::new(store, 16, Cipher::default(), &key(), Box::new(System)).unwrap();
    assert!(plain.swap_with_dummies(None, None, &mut [0; PAGE_LEN]).is_err());
}

#[test]
fn with_few_requests_the_same_is_written_and_pages_come_back() {
    for ratio in RATIOS {
        let run = |make: fn(Areas) -> DetWo| {
            let recorder = Arc::new(Recorder::default());
            let store = WatchedStore::new(MemStore::new(len(17, ratio)), recorder.clone());
            let refresh = Refresh::new(ratio.0, ratio.1).unwrap();
            let (store, salts) = (Arc::new(store), Box::new(System));
            let areas = Areas::new(store, 17, refresh, Cipher::default(), &key(), salts).unwrap();
            check_contents(Box::new(make(areas)), 600);
            recorder.take().into_iter().partition::<Vec<Event>, _>(|event| event.op == Op::Write)
        };
        let (one_by_one, few) = (run(DetWo::new), run(DetWo::with_few_requests));
        assert_eq!(one_by_one.0, few.0, "{ratio:?}");
    }
}

#[test]
fn impossible_geometries_are_refused() {
    let store = Arc::new(MemStore::new(1 << 20));
    let refresh = Refresh::new(15, 1).unwrap();
    let areas = |pages| {
        let salts = Box::new(System);
        Areas::new(store.clone(), pages, refresh, Cipher::default(), &key(), salts)
    };
    assert!(matches!(areas(14), Err(Error::Geometry(_))));
    assert!(matches!(areas(1000), Err(Error::Geometry(_))));
    assert!(areas(15).is_ok());
    let plain = Plain::new(store.clone(), 1000, Cipher::default(), &key(), Box::new(System));
    assert!(matches!(plain, Err(Error::Geometry(_))));
}
