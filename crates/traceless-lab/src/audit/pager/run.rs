//! Runs programs that page, and keeps what an adversary observes of the store.

use super::users::PagerUser;
use super::{PAGES, PagerScheme};
use crate::audit::suite::AuditError;
use crate::audit::workload::mix;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use traceless::Result;
use traceless::rng::{Rng, SeededRng, System};
use traceless::seal::Secret;
use traceless::store::{MemStore, Store, WatchedStore};
use traceless::trace::{Event, Op, Recorder};
use traceless_audit::{Draws, Template};
use traceless_block::detwo::Refresh;
use traceless_pager::scheme::{
    Areas, DeferredDetWo, DetWo, FusedPath, FusedRing, Opam, PageScheme, Path, Plain, TreeParts,
    TreeSize, path_leaves, ring_leaves,
};
use traceless_pager::slots::{Cipher, PageAegis};
use traceless_pager::{PAGE_LEN, Page};

/// Pages that memory has frames for.
const FRAMES: usize = 4;

/// The scheme that stores the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PagerKind {
    Plain,
    /// Refreshes the first number of pages for the second number of evicted ones.
    DetWo(u32, u32),
    Eager(u32),
    Path,
    FusedPath,
    Ring,
    Opam,
}

/// The fault of a pager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    Nothing,
    /// A page that did not change is not written when it leaves.
    SkipsClean,
    /// A page that was never written comes without an access.
    SkipsUnwritten,
    /// If two faults are for consecutive pages, the page after them comes too.
    ReadsAhead,
    /// A tick without a fault makes no access.
    SkipsIdle,
    /// At a constant rate a page that comes or leaves alone has no dummy beside it.
    SkipsDummies,
}

/// What the adversary observed of one user.
pub struct PagerRun {
    /// For each fault, or each tick: the place and length of each write. For trees the bytes read
    /// and written, without places.
    pub faults: Vec<Template>,
    /// For each fault of a tree, the paths that are drawn.
    pub drawn: Draws,
    /// Paths that follow from the number of the fault.
    pub public: Vec<u64>,
    /// Pages that came back with wrong contents.
    pub wrong: u64,
}

impl PagerKind {
    /// Whether the scheme lies in a tree: it claims to hide reads too, or is a control for schemes
    /// that do.
    pub fn is_tree(self) -> bool {
        matches!(self, Self::Path | Self::FusedPath | Self::Ring | Self::Opam)
    }

    /// Paths that a fault draws at random.
    fn draws(self) -> usize {
        if self == Self::Path || self == Self::Opam { 2 } else { 1 }
    }

    /// Whether each fault reads and writes the same number of bytes. Not so for Ring ORAM: its
    /// other accesses follow from earlier paths, which are random.
    fn has_templates(self) -> bool {
        self != Self::Ring
    }

    fn store_len(self) -> Result<u64> {
        let sample = PageAegis::new(&Secret::from_bytes([0; 32]));
        Ok(match self {
            Self::Plain => Plain::store_len(PAGES),
            Self::DetWo(k, of) => Areas::store_len(PAGES, Refresh::new(k, of)?),
            Self::Eager(k) => Areas::store_len(PAGES, Refresh::new(k, 1)?),
            Self::Ring => TreeSize::ring(PAGES, 0, &sample)?.store,
            Self::Path | Self::FusedPath | Self::Opam => TreeSize::path(PAGES, 0, &sample)?.store,
        })
    }

    /// The places of the leaves of the tree, if the scheme has one.
    fn leaves(self) -> Result<Vec<u64>> {
        let sample = PageAegis::new(&Secret::from_bytes([0; 32]));
        match self {
            Self::Ring => ring_leaves(PAGES, &sample),
            Self::Path | Self::FusedPath | Self::Opam => path_leaves(PAGES, &sample),
            Self::Plain | Self::DetWo(..) | Self::Eager(_) => Ok(vec![]),
        }
    }

    fn build(self, store: Arc<dyn Store>, seed: u64) -> Result<Box<dyn PageScheme>> {
        let mut rng = SeededRng::new(seed);
        let key = Secret::random(&mut rng);
        let areas = |store, k, of| {
            let (refresh, salts) = (Refresh::new(k, of)?, Box::new(System));
            Areas::new(store, PAGES, refresh, Cipher::default(), &key, salts)
        };
        if let Self::DetWo(k, of) = self {
            return Ok(Box::new(DetWo::new(areas(store, k, of)?)));
        }
        if let Self::Eager(k) = self {
            return Ok(Box::new(DeferredDetWo::new(areas(store, k, 1)?)));
        }
        if self == Self::Plain {
            let salts = Box::new(System);
            return Ok(Box::new(Plain::new(store, PAGES, Cipher::default(), &key, salts)?));
        }
        let parts = TreeParts {
            store,
            pages: PAGES,
            cached: 0,
            sealer: PageAegis::new,
            salts: Rng::fork(&mut rng),
            rng: Box::new(rng),
        };
        Ok(match self {
            Self::Path => Box::new(Path::new(parts)?),
            Self::FusedPath => Box::new(FusedPath::path(parts)?),
            Self::Ring => Box::new(FusedRing::ring(parts)?),
            _ => Box::new(Opam::opam(parts)?),
        })
    }
}

/// Runs a user for `faults` faults; at a constant rate, for so many ticks.
pub fn run(
    scheme: &PagerScheme,
    kind: PagerKind,
    user: PagerUser,
    faults: u64,
    seed: u64,
) -> Result<PagerRun, AuditError> {
    let recorder = Arc::new(Recorder::default());
    let store = WatchedStore::new(MemStore::new(kind.store_len()?), recorder.clone());
    let mut pager = Pager {
        scheme: kind.build(Arc::new(store), mix(seed, 1))?,
        wrong: scheme.wrong,
        is_fixed: scheme.is_fixed,
        frames: VecDeque::new(),
        contents: vec![0; PAGES as usize],
        wrong_pages: 0,
    };
    let leaves = kind.leaves()?;
    let mut watch = StoreWatch {
        kind,
        run: PagerRun::new(faults, leaves.len() as u64),
        leaves: numbered(leaves),
    };
    // All users begin with the first pages in their frames.
    for page in 0..FRAMES as u64 {
        pager.fault(page, 0)?;
    }
    recorder.take();
    let mut before = 0;
    for i in 0..faults {
        if scheme.is_fixed && !user.faults_at(i, seed) {
            pager.idle(user.frees_at(i))?;
            watch.fault(&recorder.take(), PAGES);
            continue;
        }
        let page = pager.next_absent(user.touches(i, PAGES, seed));
        pager.fault(page, if user.changes() { i + 1 } else { 0 })?;
        if scheme.wrong == Wrong::ReadsAhead && page == before + 1 {
            let next = pager.next_absent((page + 1) % PAGES);
            pager.fault(next, 0)?;
        }
        before = page;
        watch.fault(&recorder.take(), page);
    }
    let StoreWatch { mut run, .. } = watch;
    run.wrong = pager.wrong_pages;
    Ok(run)
}

fn numbered(places: Vec<u64>) -> BTreeMap<u64, u64> {
    places.into_iter().zip(0..).collect()
}

/// A pager of a few frames, first in, first out.
struct Pager {
    scheme: Box<dyn PageScheme>,
    wrong: Wrong,
    is_fixed: bool,
    frames: VecDeque<(u64, Page)>,
    /// The word last written to each page, which fills the page.
    contents: Vec<u64>,
    wrong_pages: u64,
}

impl Pager {
    /// `page`, or the next page that is in no frame.
    fn next_absent(&self, page: u64) -> u64 {
        let mut pages = (0..PAGES).map(|more| (page + more) % PAGES);
        let is_away = |page: &u64| self.frames.iter().all(|(there, _)| there != page);
        pages.find(is_away).expect("there are more pages than frames")
    }

    /// A tick without a fault. Before it the program may free a page that is in a frame.
    fn idle(&mut self, frees: bool) -> Result<()> {
        if frees && let Some((page, _)) = self.frames.pop_front() {
            self.scheme.forget(page);
            self.contents[page as usize] = 0;
        }
        if self.wrong != Wrong::SkipsIdle {
            self.scheme.swap_with_dummies(None, None, &mut [0; PAGE_LEN])?;
            self.scheme.settle()?;
        }
        Ok(())
    }

    /// Brings in a page, and fills it with `contents` unless that is 0.
    fn fault(&mut self, page: u64, contents: u64) -> Result<()> {
        let mut frame = [0; PAGE_LEN];
        let mut out = None;
        if self.frames.len() == FRAMES
            && let Some((victim, contents_of_victim)) = self.frames.pop_front()
        {
            let is_clean = self.contents[victim as usize] == 0;
            frame = contents_of_victim;
            out = (self.wrong != Wrong::SkipsClean || !is_clean).then_some(victim);
        }
        let comes = self.wrong != Wrong::SkipsUnwritten || self.scheme.holds(page);
        let wanted = comes.then_some(page);
        if self.is_fixed && self.wrong != Wrong::SkipsDummies {
            self.scheme.swap_with_dummies(out, wanted, &mut frame)?;
        } else {
            self.scheme.swap(out, wanted, &mut frame)?;
        }
        self.scheme.settle()?;
        if !comes {
            frame.fill(0);
        }
        let expected = &mut self.contents[page as usize];
        let is_as_it_went = frame.chunks(8).all(|word| word == expected.to_le_bytes());
        self.wrong_pages += u64::from(!is_as_it_went);
        if contents > 0 {
            *expected = contents;
            frame.chunks_mut(8).for_each(|word| word.copy_from_slice(&contents.to_le_bytes()));
        }
        self.frames.push_back((page, frame));
        Ok(())
    }
}

/// Observes the store.
struct StoreWatch {
    kind: PagerKind,
    run: PagerRun,
    /// The leaves of a tree, by their places.
    leaves: BTreeMap<u64, u64>,
}

impl PagerRun {
    fn new(faults: u64, leaves: u64) -> Self {
        let drawn = Draws { noun: "leaves", places: leaves, ..Draws::default() };
        Self { faults: Vec::with_capacity(faults as usize), drawn, public: vec![], wrong: 0 }
    }
}

impl StoreWatch {
    /// Records the events of a fault that brings in `page`.
    fn fault(&mut self, events: &[Event], page: u64) {
        let mut template = Template::default();
        if !self.kind.is_tree() {
            for event in events.iter().filter(|event| event.op == Op::Write) {
                template.add(event.at);
                template.add(u64::from(event.len));
            }
            self.run.faults.push(template);
            return;
        }
        let mut paths = 0;
        // Neighbours on a path may be one extent, which depends on the leaf alone.
        for run in events.chunk_by(|a, b| a.op == b.op) {
            let bytes: u64 = run.iter().map(|event| u64::from(event.len)).sum();
            if self.kind.has_templates() {
                template.add(bytes << 1 | u64::from(run[0].op == Op::Write));
            }
            if run[0].op == Op::Write {
                continue;
            }
            for event in run {
                let bytes = event.at..event.at + u64::from(event.len);
                for (_, &leaf) in self.leaves.range(bytes) {
                    paths += 1;
                    if paths > self.kind.draws() {
                        self.run.public.push(leaf);
                    } else {
                        self.run.drawn.drawn.push(leaf);
                        self.run.drawn.secrets.push(page);
                    }
                }
            }
        }
        template.add(paths as u64);
        self.run.faults.push(template);
    }
}
