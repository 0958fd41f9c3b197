//! A copy of the memory that pages are sealed in, as of a virtual machine that is resumed twice:
//! both copies go on with the same keys and counts, and page out different pages. No nonce is used
//! by both.

use std::collections::BTreeSet;
use std::sync::Arc;
use traceless::rng::{Rng, Salt, SeededRng, System};
use traceless::seal::{Secret, record};
use traceless::store::{MemStore, Store};
use traceless_block::detwo::Refresh;
use traceless_pager::PAGE_LEN;
use traceless_pager::scheme::{
    Areas, DeferredDetWo, DetWo, FusedPath, FusedRing, PageScheme, Path, Plain, TreeParts, TreeSize,
};
use traceless_pager::slots::{Cipher, PageAegis, Salts};

const PAGES: u64 = 40;

/// Page faults before the copy is made, and in each of both after it.
const FAULTS: u64 = 150;

/// Bytes of one seal as a copy reports it: key, version and salt.
const USE_LEN: usize = 3 * 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Plain,
    DetWo,
    Eager,
    Path,
    FusedPath,
    Ring,
}

const KINDS: [Kind; 6] =
    [Kind::Plain, Kind::DetWo, Kind::Eager, Kind::Path, Kind::FusedPath, Kind::Ring];

/// The planted fault: all salts are the same.
struct Fixed;

impl Salts for Fixed {
    fn draw(&self) -> Salt {
        Salt(7)
    }
}

impl Rng for Fixed {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(7);
    }

    fn fork(&mut self) -> Box<dyn Rng> {
        Box::new(Self)
    }
}

trait Source: Salts + Rng + 'static {}
impl<S: Salts + Rng + 'static> Source for S {}

fn build(kind: Kind, cipher: Cipher, salts: impl Source) -> Box<dyn PageScheme> {
    let key = Secret::from_bytes([3; 32]);
    let refresh = Refresh::new(3, 1).unwrap();
    let memory = |len| -> Arc<dyn Store> { Arc::new(MemStore::new(len)) };
    let areas = |salts: Box<dyn Salts>| {
        let store = memory(Areas::store_len(PAGES, refresh));
        Areas::new(store, PAGES, refresh, cipher, &key, salts).unwrap()
    };
    let sample = PageAegis::new(&key);
    let tree = |size: TreeSize, salts: Box<dyn Rng>| TreeParts {
        store: memory(size.store),
        pages: PAGES,
        cached: 0,
        sealer: PageAegis::new,
        rng: Box::new(SeededRng::new(1)),
        salts,
    };
    let path = TreeSize::path(PAGES, 0, &sample).unwrap();
    match kind {
        Kind::Plain => {
            let store = memory(Plain::store_len(PAGES));
            Box::new(Plain::new(store, PAGES, cipher, &key, Box::new(salts)).unwrap())
        }
        Kind::DetWo => Box::new(DetWo::new(areas(Box::new(salts)))),
        Kind::Eager => Box::new(DeferredDetWo::new(areas(Box::new(salts)))),
        Kind::Path => Box::new(Path::new(tree(path, Box::new(salts))).unwrap()),
        Kind::FusedPath => Box::new(FusedPath::path(tree(path, Box::new(salts))).unwrap()),
        Kind::Ring => {
            let size = TreeSize::ring(PAGES, 0, &sample).unwrap();
            Box::new(FusedRing::ring(tree(size, Box::new(salts))).unwrap())
        }
    }
}

/// A program that is paged, and its resident pages, a quarter of all at most.
struct Program {
    scheme: Box<dyn PageScheme>,
    resident: BTreeSet<u64>,
}

impl Program {
    /// Causes faults, and forgets some pages that are away. All choices follow from `seed`.
    fn run(&mut self, seed: u64) {
        let mut rng = SeededRng::new(seed);
        for _ in 0..FAULTS {
            let wanted = rng.below(PAGES);
            if self.resident.contains(&wanted) {
                continue;
            }
            let full = self.resident.len() >= PAGES as usize / 4;
            let nth = rng.below(self.resident.len().max(1) as u64) as usize;
            let out = full.then(|| *self.resident.iter().nth(nth).unwrap());
            let mut frame = [0; PAGE_LEN];
            rng.fill(&mut frame);
            self.scheme.swap(out, Some(wanted), &mut frame).unwrap();
            out.map(|page| self.resident.remove(&page));
            self.resident.insert(wanted);
            // This comes before refreshes that wait are done.
            let forgotten = rng.below(PAGES);
            if rng.below(4) == 0 && !self.resident.contains(&forgotten) {
                self.scheme.forget(forgotten);
            }
            self.scheme.settle().unwrap();
        }
    }

    /// Goes on as one of two copies, and returns the keys and nonces that it uses.
    fn continue_with(&mut self, seed: u64) -> Vec<u8> {
        record::start();
        self.run(seed);
        let salt = |salt: Option<Salt>| salt.map_or(0, |salt| salt.0);
        let uses = record::take().into_iter().flat_map(|sealed| {
            [sealed.key, sealed.nonce.version, salt(sealed.nonce.salt)].map(u64::to_le_bytes)
        });
        uses.flatten().collect()
    }
}

/// How many pairs of key and nonce are used by both of two copies.
fn shared(kind: Kind, cipher: Cipher, salts: impl Source) -> usize {
    let scheme = build(kind, cipher, salts);
    let mut program = Program { scheme, resident: BTreeSet::new() };
    program.run(5);
    let of_copy = traceless_sys::in_a_copy(|| program.continue_with(6));
    let own = program.continue_with(7);
    let [own, of_copy] =
        [&own, &of_copy].map(|uses| uses.chunks_exact(USE_LEN).collect::<BTreeSet<_>>());
    assert!(own.len().min(of_copy.len()) > 100, "{kind:?}: both have sealed");
    own.intersection(&of_copy).count()
}

/// The only test of this program: a copy has only the thread that made it.
#[test]
fn copies_share_no_nonce() {
    for kind in KINDS {
        for cipher in Cipher::ALL {
            assert_eq!(shared(kind, cipher, System), 0, "{kind:?}, {cipher:?}");
        }
        assert!(shared(kind, Cipher::default(), Fixed) > 0, "{kind:?}: the planted fault is found");
    }
}
