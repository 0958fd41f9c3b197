use super::*;
use crate::tree::{BareTree, Engine, SealedTree};
use alloc::sync::Arc;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::seal::{Aead, Secret};
use traceless_core::store::{MemStore, Store, WatchedStore};
use traceless_core::trace::Recorder;
use traceless_core::types::Extent;

const CACHED: usize = 3;
const LEN: usize = 9;

/// Few slots where IR-Alloc has few, and three cached levels.
fn shape() -> Shape {
    Shape::per_level(vec![4, 4, 4, 2, 3, 4]).unwrap()
}

fn substash(sets: usize, ways: usize) -> Substash<BareTree> {
    let below = BareTree::new(shape().only(|level| level >= CACHED), LEN);
    Substash::new(shape(), CACHED, (sets, ways), below).unwrap()
}

fn store() -> Arc<MemStore> {
    let top = shape().top(CACHED);
    let key = Aead::new(&Secret::from_bytes([7; 32]));
    Arc::new(MemStore::new(SealedTree::store_len(&top, LEN, &key)))
}

fn home(store: Arc<dyn Store>) -> SealedTree<Aead> {
    let top = shape().top(CACHED);
    let key = Aead::new(&Secret::from_bytes([7; 32]));
    SealedTree::create(store, 0, "tree", top, LEN, key, Box::new(SeededRng::new(2))).unwrap()
}

/// A tree with an address search, which a planted fault may break.
trait Top: BucketTree {
    fn find_in_top(&mut self, addr: Addr) -> Option<Vec<u8>>;
}

impl<T: BucketTree> Top for Substash<T> {
    fn find_in_top(&mut self, addr: Addr) -> Option<Vec<u8>> {
        self.find(addr).map(|body| body.to_vec())
    }
}

/// Path accesses to 80 blocks, each of which holds the count of its accesses, and between them
/// searches that need no path. Returns how many blocks the searches found, or the first error.
fn is_an_array<T: Top>(tree: T, between: impl Fn(u64, &mut T)) -> Result<u64, &'static str> {
    const BLOCKS: u64 = 80;
    let (mut engine, mut rng) = (Engine::new(tree, 200), SeededRng::new(3));
    let leaves = shape().leaves();
    let mut labels: Vec<u64> = (0..BLOCKS).map(|_| rng.below(leaves)).collect();
    let (mut counts, mut found) = (vec![0u64; BLOCKS as usize], 0);
    for round in 0..6000 {
        let addr = rng.below(BLOCKS);
        let count = &mut counts[addr as usize];
        let in_top = engine.tree_mut().find_in_top(Addr(addr));
        if in_top.as_ref().is_some_and(|body| body[..8] != count.to_le_bytes()) {
            return Err("another body was found");
        }
        found += u64::from(in_top.is_some());
        if in_top.is_some() && round % 3 == 0 {
            let mut body = [0; LEN];
            let header = engine.extract(Addr(addr), &mut body).expect("it was found");
            if header != Header::new(Addr(addr), Leaf(labels[addr as usize])) {
                return Err("it was found under another label");
            }
            if engine.find_without_path(Addr(addr)).is_some() {
                return Err("it was there twice");
            }
            engine.put(header, &body).unwrap();
        }
        let new = rng.below(leaves);
        engine.fetch(Leaf(core::mem::replace(&mut labels[addr as usize], new))).unwrap();
        let nth = engine.take(Addr(addr), Leaf(new)).map_err(|_| "the stash overflows")?;
        let body = engine.stash_mut().body_mut(nth);
        if body[..8] != count.to_le_bytes() {
            return Err("a block is lost");
        }
        *count += 1;
        body[..8].copy_from_slice(&count.to_le_bytes());
        engine.evict().map_err(|_| "the stash overflows")?;
        between(round, engine.tree_mut());
    }
    Ok(found)
}

/// Sets that are never full, often full, and a cache of one set.
#[test]
fn blocks_are_found_by_path_and_by_address() {
    for (sets, ways) in [(64, 4), (7, 4), (3, 1), (1, 28), (28, 1)] {
        let found = is_an_array(substash(sets, ways), |_, _| ()).unwrap();
        assert!(found > 6 * sets.min(50) as u64, "{sets} sets of {ways}: {found}");
    }
}

#[test]
fn a_full_set_skips_the_block() {
    let mut top = substash(1, 2);
    let mut headers = [Header::EMPTY; 21];
    let header = |addr| Header::new(Addr(addr), Leaf(0));
    assert!(top.place(header(1)) && top.place(header(2)) && !top.place(header(3)));
    top.read_path(Leaf(0), &mut headers).unwrap();
    assert_eq!(headers.iter().filter(|header| !header.is_empty()).count(), 2);
    assert!(!top.admit(0, header(3)) && top.admit(12, header(3)), "below is room");
    top.vacate(8);
    assert!(top.admit(0, header(3)));
    assert_eq!((top.len(), top.is_empty()), (2, false));
    assert!(top.find(Addr(1)).is_none() && top.find(Addr(3)).is_some());
}

/// The paper's size: 4092 pointers, here of 4 bytes instead of 12 bits, and as many tags as ways.
#[test]
fn memory_is_that_of_the_cache_its_tags_and_the_table() {
    let shape = Shape::uniform(11, 4).unwrap();
    let below = BareTree::new(shape.only(|level| level >= 10), 64);
    let top = Substash::new(shape, 10, (1024, 4), below).unwrap();
    assert_eq!(top.memory(), 4096 * (64 + 8) + 4092 * 4);
}

#[test]
fn what_is_taken_away_comes_back() {
    let home = std::sync::Mutex::new(home(store()));
    let switch = |round, top: &mut Substash<BareTree>| {
        if round % 100 == 0 {
            let (blocks, mut home) = (top.len(), home.lock().unwrap());
            top.take_away(&mut *home).unwrap();
            assert!(top.is_empty() && top.find(Addr(1)).is_none());
            let refused = top.read_path(Leaf(0), &mut [Header::EMPTY; 21]);
            assert!(matches!(refused, Err(Error::Suspended)));
            assert!(matches!(top.take_away(&mut *home), Err(Error::Suspended)));
            top.bring_back(&mut *home).unwrap();
            assert_eq!(top.len(), blocks);
            assert!(matches!(top.bring_back(&mut *home), Err(Error::State(_))));
        }
    };
    is_an_array(substash(7, 4), switch).unwrap();
}

/// All cached buckets are written, in the same order, independent of their contents.
#[test]
fn taking_away_shows_nothing() {
    let events = |blocks: u64| {
        let witness = Arc::new(Recorder::default());
        let mut home = home(Arc::new(WatchedStore::new(store(), witness.clone())));
        let mut top = substash(64, 4);
        for addr in 0..blocks {
            assert!(top.place(Header::new(Addr(addr), Leaf(addr % 32))));
        }
        top.take_away(&mut home).unwrap();
        top.bring_back(&mut home).unwrap();
        assert_eq!(top.len() as u64, blocks);
        witness.take()
    };
    assert_eq!(events(0), events(20));
    assert!(events(0).len() > 2 * 4 * 3);
}

#[test]
fn damage_to_what_was_taken_away_is_noticed() {
    let store = store();
    let (mut home, mut top) = (home(store.clone()), substash(64, 4));
    assert!(top.place(Header::new(Addr(1), Leaf(9))));
    top.take_away(&mut home).unwrap();
    let before = store.snapshot();
    top.bring_back(&mut home).unwrap();
    top.take_away(&mut home).unwrap();
    let flipped: Vec<u8> = store.snapshot().iter().map(|byte| byte ^ 1).collect();
    for bytes in [before, flipped] {
        store.write(&[Extent::new(0, bytes.len())], &bytes).unwrap();
        let refused = top.bring_back(&mut home);
        assert!(matches!(refused, Err(Error::Tampered { .. })), "{refused:?}");
    }
}

#[test]
fn impossible_sizes_are_refused() {
    let below = || BareTree::new(shape().only(|level| level >= CACHED), LEN);
    for sets_and_ways in [(0, 4), (4, 0), (usize::MAX, 2), (1 << 31, 2)] {
        assert!(Substash::new(shape(), CACHED, sets_and_ways, below()).is_err());
    }
    assert!(Substash::new(shape(), 2, (4, 4), below()).is_err());
    assert!(Substash::new(shape(), 0, (4, 4), BareTree::new(shape(), LEN)).is_err());
    let mut other = BareTree::new(shape(), LEN);
    assert!(substash(4, 4).take_away(&mut other).is_err());
    let mut other = BareTree::new(shape().top(CACHED), LEN + 1);
    assert!(substash(4, 4).take_away(&mut other).is_err());
}

#[derive(Clone, Copy)]
enum Fault {
    None,
    /// A block takes the way of another block if its set is full.
    Overwrites,
    /// A pointer stays after its block has left.
    KeepsPointer,
    /// A pointer stays after its block was found by address and removed.
    KeepsFound,
}

struct Faulty(Substash<BareTree>, Fault);

impl Top for Faulty {
    fn find_in_top(&mut self, addr: Addr) -> Option<Vec<u8>> {
        self.0.find_in_top(addr)
    }
}

impl BucketTree for Faulty {
    fn shape(&self) -> &Shape {
        self.0.shape()
    }
    fn body_len(&self) -> usize {
        self.0.body_len()
    }
    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        self.0.read_path(leaf, headers)
    }
    fn body(&self, slot: usize) -> &[u8] {
        self.0.body(slot)
    }
    fn body_mut(&mut self, slot: usize) -> &mut [u8] {
        self.0.body_mut(slot)
    }
    fn copy_body(&mut self, from: usize, to: usize) {
        self.0.copy_body(from, to);
    }
    fn admit(&mut self, slot: usize, header: Header) -> bool {
        let is_room = self.0.admit(slot, header);
        if let (false, Fault::Overwrites) = (is_room, self.1) {
            let way = self.0.set(header.addr()).start;
            self.0.headers[way] = header;
            self.0.table[self.0.open[slot]] = way as u32 + 1;
            return true;
        }
        is_room
    }
    fn vacate(&mut self, slot: usize) {
        let entry = self.0.open.get(slot).copied();
        let pointer = entry.map(|entry| self.0.table[entry]);
        self.0.vacate(slot);
        if let (Some(entry), Some(pointer), Fault::KeepsPointer) = (entry, pointer, self.1) {
            self.0.table[entry] = pointer;
        }
    }
    fn find(&mut self, addr: Addr) -> Option<&mut [u8]> {
        self.0.find(addr)
    }
    fn extract(&mut self, addr: Addr, body: &mut [u8]) -> Option<Header> {
        let table = self.0.table.clone();
        let header = self.0.extract(addr, body);
        if matches!(self.1, Fault::KeepsFound) {
            self.0.table = table;
        }
        header
    }
    fn write_path(&mut self, headers: &[Header]) -> Result {
        // The correct tree would panic, as blocks did not come and go one by one.
        self.0.inner.write_path(&headers[self.0.split..])
    }
    fn sync(&mut self) -> Result {
        self.0.sync()
    }
}

#[test]
fn mutants_are_caught() {
    let run = |fault| is_an_array(Faulty(substash(7, 2), fault), |_, _| ());
    assert!(run(Fault::None).is_ok(), "the wrapper itself is honest");
    for fault in [Fault::Overwrites, Fault::KeepsPointer, Fault::KeepsFound] {
        assert!(run(fault).is_err());
    }
}
