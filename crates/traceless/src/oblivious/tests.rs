use super::circuit::CircuitTree;
use super::tree::Header;
use super::*;
use std::boxed::Box;
use std::sync::Mutex;
use std::vec;
use traceless_core::rng::SeededRng;
use traceless_core::store::MemStore;
use traceless_core::types::Extent;

fn random(oram: &mut dyn Oram, operations: u64, seed: u64) {
    let (blocks, len) = (oram.blocks(), oram.block_len());
    let mut model = vec![0_u8; blocks as usize * len];
    let mut rng = SeededRng::new(seed);
    let mut block = vec![0; len];
    for i in 0..operations {
        // Half of the operations go to a few blocks, and some in order.
        let addr = match rng.below(4) {
            0 => i % blocks,
            1 => rng.below(blocks.div_ceil(16)),
            _ => rng.below(blocks),
        };
        let own = &mut model[addr as usize * len..][..len];
        match rng.below(4) {
            0 => {
                oram.update(Addr(addr), &mut |block| block[0] ^= 0x5a).unwrap();
                own[0] ^= 0x5a;
            }
            1 => {
                oram.read(Addr(addr), &mut block).unwrap();
                assert_eq!(block, own, "block {addr} after {i} operations");
            }
            _ => {
                rng.fill(own);
                oram.write(Addr(addr), own).unwrap();
            }
        }
    }
    for (addr, own) in model.chunks(len).enumerate() {
        oram.read(Addr(addr as u64), &mut block).unwrap();
        assert_eq!(block, own, "block {addr} at the end");
    }
}

fn tree(blocks: u64, len: usize, seed: u64) -> Oblivious {
    Oblivious::new(blocks, len, Dynamic::of(len), Box::new(SeededRng::new(seed))).unwrap()
}

fn sealed(blocks: u64, len: usize) -> (Box<dyn Oram>, Arc<MemStore>) {
    let store = Arc::new(MemStore::new(sealed_len(blocks, len).unwrap()));
    let rng = Box::new(SeededRng::new(blocks));
    (create_sealed(blocks, len, store.clone(), rng).unwrap(), store)
}

#[test]
fn is_an_array_at_every_small_size() {
    for blocks in (1..20).chain([31, 32, 33, 100]) {
        random(&mut tree(blocks, 8, blocks), 3000, 1);
        random(&mut ScanArray::new(blocks, 8, Dynamic(1)).unwrap(), 300, 1);
    }
}

#[test]
fn is_an_array_at_every_length() {
    for len in [1, 7, 8, 9, 16, 63, 64, 65, 128, 200, 256, 1000, 4096] {
        random(&mut tree(50, len, 2), 1500, 3);
        for blocks in [3, 700] {
            random(&mut *create(blocks, len, Box::new(SeededRng::new(4))).unwrap(), 800, 5);
        }
    }
    random(&mut tree(3, 1 << 20, 1), 30, 1);
}

/// Number of operations of the longest model test: a million, or as many as a release sets.
fn long_run() -> u64 {
    let operations = std::env::var("TRACELESS_MODEL_OPERATIONS").ok();
    operations.map_or(1_000_000, |number| number.parse().expect("a number of operations"))
}

#[test]
fn is_an_array_with_maps() {
    for (blocks, operations) in [(4096, 50_000), (4097, 50_000), (70_001, long_run())] {
        random(&mut *create(blocks, 64, Box::new(SeededRng::new(7))).unwrap(), operations, 8);
    }
}

#[test]
fn is_an_array_with_the_evictions_of_path_oram() {
    for (blocks, len) in [(1, 8), (2, 3), (7, 64), (100, 20), (700, 64), (5000, 9)] {
        let rng = Box::new(SeededRng::new(blocks));
        random(&mut *create_path(blocks, len, rng).unwrap(), 8000, 6);
    }
}

/// Path ORAM's evictions move every block that Circuit ORAM's move: the stash is no longer.
#[test]
fn the_stash_of_path_oram_stays_short() {
    const BLOCKS: u64 = 1 << 10;
    let levels = circuit::levels_for(BLOCKS << 5).unwrap() - 5;
    let (mut tree, touches) = Tree::with(EvictionKind::Path, BLOCKS, levels, STASH_MAX, 0);
    let mut most = 0;
    for i in 0..60_000 {
        tree.access(i % BLOCKS).unwrap();
        touches.lock().unwrap().clear();
        most = most.max(tree.circuit.stash_blocks());
    }
    assert!((1..13).contains(&most), "{most}");
}

#[test]
fn is_an_array_on_a_store() {
    // Without pages, and with one, two and three pages on a path.
    for blocks in [100, 3000, 20_000, 200_000] {
        random(&mut *sealed(blocks, 61).0, 30_000, 9);
    }
    random(&mut *sealed(3000, 70).0, 5000, 9);
}

#[test]
fn says_what_is_wrong_with_a_request() {
    let mut oram = tree(5, 8, 1);
    let mut block = [0; 8];
    assert!(matches!(oram.read(Addr(5), &mut block), Err(Error::OutOfRange { .. })));
    assert!(matches!(oram.write(Addr(1 << 40), &block), Err(Error::OutOfRange { .. })));
    assert!(matches!(oram.read(Addr(0), &mut [0; 7]), Err(Error::WrongLength { .. })));
    let mut scan = ScanArray::new(5, 8, Dynamic(1)).unwrap();
    assert!(matches!(scan.read(Addr(5), &mut block), Err(Error::OutOfRange { .. })));
    assert!(matches!(scan.write(Addr(0), &[]), Err(Error::WrongLength { .. })));
    for (blocks, len) in [(1, 0), (u64::MAX, 64), (1 << 33, 8), (1 << 29, usize::MAX / 2)] {
        let made = create(blocks, len, Box::new(SeededRng::new(1)));
        assert!(matches!(made, Err(Error::Geometry(_))), "{blocks} x {len}");
    }
    // An array without blocks works like any other.
    for mut none in [create(0, 8, Box::new(SeededRng::new(1))).unwrap(), Box::new(tree(0, 8, 1))] {
        assert!(matches!(none.read(Addr(0), &mut block), Err(Error::OutOfRange { .. })));
        none.read_many(&[], &mut []).unwrap();
    }
}

/// Each changed byte of a page, and each page put back from before, is detected, at every depth;
/// and no access is made after that.
#[test]
fn a_changed_or_old_page_is_an_error() {
    let blocks = 200_000;
    let (pages, len) = {
        let (_, store) = sealed(blocks, 64);
        let pages: [u64; 3] = [1 << 9, 1 << 12, 1 << 15];
        (pages, store.len() / pages.iter().sum::<u64>())
    };
    for depth in 0..3 {
        let first: u64 = pages[..depth].iter().sum();
        for old in [false, true] {
            let (mut oram, store) = sealed(blocks, 64);
            let mut block = [7; 64];
            let before = store.snapshot();
            for addr in 0..3000 {
                oram.write(Addr(addr), &block).unwrap();
            }
            let between = if old { store.snapshot() } else { before };
            for addr in 0..3000 {
                oram.write(Addr(addr), &block).unwrap();
            }
            let now = store.snapshot();
            let extent = Extent::new(first * len, (pages[depth] * len) as usize);
            let range = extent.at as usize..extent.end() as usize;
            let mut changed = now[range.clone()].to_vec();
            if old {
                changed.copy_from_slice(&between[range]);
            } else {
                changed.iter_mut().step_by(len as usize / 3).for_each(|byte| *byte ^= 0x10);
            }
            assert_ne!(changed, now[extent.at as usize..extent.end() as usize]);
            store.write(&[extent], &changed).unwrap();
            let failed = (0..3000).find_map(|addr| oram.read(Addr(addr), &mut block).err());
            assert!(matches!(failed, Some(Error::Tampered { .. })), "{depth} {old}: {failed:?}");
            assert!(matches!(oram.read(Addr(0), &mut block), Err(Error::EarlierDamage)));
        }
    }
}

/// A call of the memory: its kind, path or leaf, and level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Touch {
    Prefetch(u32),
    Open(usize, u32),
    Header(usize, usize),
    SetHeader(usize, usize),
    Bodies(usize, usize),
    Close,
}

/// Records every call.
struct Watched {
    memory: Ram,
    touches: Arc<Mutex<Vec<Touch>>>,
}

impl Watched {
    fn note(&self, touch: Touch) {
        self.touches.lock().unwrap().push(touch);
    }
}

impl Memory for Watched {
    fn prefetch(&self, leaf: u32) {
        self.note(Touch::Prefetch(leaf));
        self.memory.prefetch(leaf);
    }
    fn open(&mut self, path: usize, leaf: u32) -> Result {
        self.note(Touch::Open(path, leaf));
        self.memory.open(path, leaf)
    }
    fn header(&self, path: usize, level: usize) -> Header {
        self.note(Touch::Header(path, level));
        self.memory.header(path, level)
    }
    fn set_header(&mut self, path: usize, level: usize, header: Header) {
        self.note(Touch::SetHeader(path, level));
        self.memory.set_header(path, level, header);
    }
    fn bodies(&mut self, path: usize, level: usize) -> &mut [u64] {
        self.note(Touch::Bodies(path, level));
        self.memory.bodies(path, level)
    }
    fn close(&mut self) -> Result {
        self.note(Touch::Close);
        self.memory.close()
    }
}

fn watched(blocks: u64, seed: u64) -> (Oblivious<Lines<1>, Watched>, Arc<Mutex<Vec<Touch>>>) {
    let touches = Arc::<Mutex<Vec<Touch>>>::default();
    let memory = Ram::new(circuit::levels_for(blocks).unwrap(), 8).unwrap();
    let memory = Watched { memory, touches: touches.clone() };
    let rng = Box::new(SeededRng::new(seed));
    (Oblivious::over(blocks, 64, Lines, memory, EvictionKind::Circuit, rng).unwrap(), touches)
}

/// A tree with a map of the test's own, which may forget to remap.
struct Tree {
    circuit: CircuitTree<Lines<1>, Watched>,
    labels: Vec<u32>,
    rng: SeededRng,
    /// One of so many accesses keeps its label; none if zero.
    forgets: u64,
}

impl Tree {
    fn new(
        blocks: u64,
        levels: u32,
        stash_limit: usize,
        forgets: u64,
    ) -> (Self, Arc<Mutex<Vec<Touch>>>) {
        Self::with(EvictionKind::Circuit, blocks, levels, stash_limit, forgets)
    }

    fn with(
        eviction: EvictionKind,
        blocks: u64,
        levels: u32,
        stash_limit: usize,
        forgets: u64,
    ) -> (Self, Arc<Mutex<Vec<Touch>>>) {
        let touches = Arc::<Mutex<Vec<Touch>>>::default();
        let memory = Watched { memory: Ram::new(levels, 8).unwrap(), touches: touches.clone() };
        let circuit = CircuitTree::new(Lines, levels, memory, stash_limit, eviction).unwrap();
        let mut rng = SeededRng::new(blocks);
        let labels = (0..blocks).map(|_| rng.below(1 << (levels - 1)) as u32).collect();
        (Self { circuit, labels, rng, forgets }, touches)
    }

    fn access(&mut self, addr: u64) -> Result {
        let old = self.labels[addr as usize];
        let fresh = self.rng.next_u64() as u32 & self.circuit.label_mask();
        let forgets = self.forgets > 0 && self.rng.below(self.forgets) == 0;
        let new = if forgets { old } else { fresh };
        self.labels[addr as usize] = new;
        self.circuit.check()?;
        self.access_along(addr, old, new)
    }

    fn access_along(&mut self, addr: u64, old: u32, new: u32) -> Result {
        let (data, mut block) = (&mut self.circuit, vec![0; 8]);
        let visit = &mut |block: &mut [u64]| block[0] = addr;
        let (addr, is_read) = (addr as u32, &mut false);
        ct::dispatch(Access { data, block: &mut block, addr, old, new, visit, is_read })
    }
}

#[test]
fn equal_labels_have_equal_traces_for_all_accesses() {
    let addresses: [&dyn Fn(u64) -> u64; 3] = [&|_| 5, &|i| i % 1000, &|i| (i * i * 7) % 1000];
    for eviction in [EvictionKind::Circuit, EvictionKind::Path] {
        let traces = addresses.map(|address| {
            let (mut tree, touches) = Tree::with(eviction, 1000, 10, STASH_MAX, 0);
            let mut labels = SeededRng::new(3);
            for i in 0..300 {
                let mut label = || labels.below(512) as u32;
                let (old, new) = (label(), label());
                tree.access_along(address(i), old, new).unwrap();
            }
            Vec::clone(&touches.lock().unwrap())
        });
        assert_eq!(traces[0], traces[1]);
        assert_eq!(traces[0], traces[2]);
    }
}

#[test]
fn an_access_shows_one_template() {
    let (mut oram, touches) = watched(5000, 1);
    let levels = 14;
    for (i, addr) in [0, 4999, 7, 7, 7, 100].into_iter().enumerate() {
        touches.lock().unwrap().clear();
        oram.access(Addr(addr), |block| block[0] = 1).unwrap();
        let seen = touches.lock().unwrap().clone();
        let evicted = i as u32;
        let Touch::Prefetch(leaf) = seen[0] else { panic!("{:?}", seen[0]) };
        let each =
            |touch: fn(usize, usize) -> Touch, path| (0..levels).map(move |l| touch(path, l));
        let expected: Vec<Touch> =
            [Touch::Prefetch(leaf), Touch::Open(0, leaf), Touch::Open(1, evicted)]
                .into_iter()
                .chain(each(Touch::Header, 0))
                .chain(each(Touch::Bodies, 0))
                .chain(each(Touch::SetHeader, 0))
                .chain(each(Touch::Header, 1))
                .chain(each(Touch::SetHeader, 1))
                // Where the next access evicts.
                .chain([Touch::Prefetch(evicted + 1)])
                .chain(each(Touch::Bodies, 0))
                .chain(each(Touch::Bodies, 1))
                .chain([Touch::Close])
                .collect();
        assert_eq!(seen, expected);
    }
}

/// Chi-square of leaves over 256 bins, of pairs of them at a lag over 16 x 16, and how many
/// standard deviations more often than by chance a leaf is among the `WINDOW` leaves before it.
fn statistics(leaves: &[u32], leaf_bits: u32) -> (f64, f64, f64) {
    const WINDOW: usize = 64;
    let chi_square = |bins: &dyn Fn(usize) -> usize, count: usize| {
        let mut seen = [0_f64; 256];
        (0..count).for_each(|i| seen[bins(i)] += 1.0);
        let expected = count as f64 / 256.0;
        seen.iter().map(|n| (n - expected).powi(2) / expected).sum::<f64>()
    };
    let uniform = chi_square(&|i| leaves[i] as usize & 255, leaves.len());
    let mut serial = 0_f64;
    for lag in 1..=16 {
        let pair = |i: usize| (leaves[i] & 15 | (leaves[i + lag] & 15) << 4) as usize;
        serial = serial.max(chi_square(&pair, leaves.len() - lag));
    }
    let windows = leaves.windows(WINDOW + 1);
    let hits = windows.clone().filter(|w| w[..WINDOW].contains(&w[WINDOW])).count() as f64;
    let missed = 1.0 - 0.5_f64.powf(f64::from(leaf_bits));
    let chance = 1.0 - missed.powf(WINDOW as f64);
    let expected = windows.count() as f64 * chance;
    (uniform, serial, (hits - expected) / (expected * (1.0 - chance)).sqrt())
}

fn accessed(touches: &Mutex<Vec<Touch>>) -> Vec<u32> {
    let leaf = |touch: Touch| match touch {
        Touch::Open(0, leaf) => Some(leaf),
        _ => None,
    };
    touches.lock().unwrap().drain(..).filter_map(leaf).collect()
}

/// A chi-square over 256 bins exceeds this with a probability of 10^-6.
const CHI_SQUARE_MAX: f64 = 377.2;

#[test]
fn leaves_are_uniform_fresh_and_independent() {
    let workloads: [&dyn Fn(u64) -> u64; 3] =
        [&|_| 1, &|i| i % 5000, &|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & 4095];
    for (seed, address) in workloads.into_iter().enumerate() {
        let (mut oram, touches) = watched(5000, seed as u64);
        let mut leaves = vec![];
        for i in 0..150_000 {
            oram.access(Addr(address(i)), |block| block[0] = 1).unwrap();
            if i % 1000 == 999 {
                leaves.extend(accessed(&touches));
            }
        }
        let (uniform, serial, window) = statistics(&leaves, 13);
        assert!(uniform < CHI_SQUARE_MAX && serial < CHI_SQUARE_MAX, "{uniform} {serial}");
        assert!(window.abs() < 5.0, "{window}");
    }
    // The planted fault: one label in twenty is kept.
    let (mut tree, touches) = Tree::new(5000, 13, STASH_MAX, 20);
    let mut leaves = vec![];
    for i in 0..50_000 {
        tree.access(i % 7).unwrap();
        leaves.extend(accessed(&touches));
    }
    let (_, _, window) = statistics(&leaves, 12);
    assert!(window > 8.0, "a label that is not renewed goes unseen: {window}");
}

/// In a full tree, under the worst of workloads, long stashes are as rare as measured with longer
/// runs: the stash is empty after nearly all accesses, and each two blocks more are ten times less
/// likely.
#[test]
fn the_stash_stays_short() {
    const BLOCKS: u64 = 1 << 15;
    const LEVELS: u32 = 15;
    assert_eq!(circuit::levels_for(BLOCKS).unwrap(), LEVELS);
    let (mut tree, touches) = Tree::new(BLOCKS, LEVELS, STASH_MAX, 0);
    let mut at_least = [0_u64; STASH_MAX + 1];
    let accesses = 300_000;
    for i in 0..BLOCKS + accesses {
        tree.access(i % BLOCKS).unwrap();
        touches.lock().unwrap().clear();
        if i >= BLOCKS {
            at_least[..=tree.circuit.stash_blocks()].iter_mut().for_each(|count| *count += 1);
        }
    }
    assert_eq!(at_least[0], accesses);
    for (blocks, &count) in at_least.iter().enumerate().skip(1) {
        let bound = accesses as f64 * 0.5_f64.powf(7.0 + 1.6 * blocks as f64);
        assert!((count as f64) < 30.0_f64.max(2.0 * bound), "{blocks} blocks: {count} times");
    }
    assert_eq!(at_least[13], 0, "{at_least:?}");
    assert!(at_least[1] > 0, "no block ever waits: the test is blind");
}

#[test]
fn a_full_stash_is_an_error() {
    let (mut tree, _) = Tree::new(256, 8, 3, 0);
    let failed = (0..200_000).find_map(|i| tree.access(i % 256).err());
    assert!(matches!(failed, Some(Error::StashOverflow { limit: 3, .. })), "{failed:?}");
    assert!(matches!(tree.access(0), Err(Error::StashOverflow { .. })));
}
