use super::*;
use crate::block_on::block_on;
use crate::geometry::tests::small;
use crate::store::suite::{behaves, bytes_of, path, write_round};
use crate::store::{Durability, FileStore, MemStore};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use traceless_core::rng::{Rng as _, SeededRng};

/// Memory for exactly this many layers of the small tree.
fn room(layers: usize) -> u64 {
    let g = small();
    (0..layers).map(|layer| (u64::from(g.width(layer)) + 2) * g.node_len(layer) as u64).sum()
}

/// An engine that counts reads, with commits that fail on request.
struct Counting<S> {
    store: S,
    /// Slots and nodes read in each layer.
    slots: [AtomicU64; 4],
    nodes: [AtomicU64; 4],
    fail: Mutex<Option<Fail>>,
}

#[derive(Clone, Copy)]
enum Fail {
    /// The commit did not happen.
    Before,
    /// The commit happened.
    After,
}

const PLANNED: Error = Error::Store("planned");

impl<S> Counting<S> {
    fn new(store: S) -> Self {
        Self { store, slots: Default::default(), nodes: Default::default(), fail: None.into() }
    }

    fn take_counts(counts: &[AtomicU64; 4]) -> [u64; 4] {
        counts.each_ref().map(|count| count.swap(0, Ordering::SeqCst))
    }

    /// Slots and nodes read in each layer since the last call.
    fn reads(&self) -> ([u64; 4], [u64; 4]) {
        (Self::take_counts(&self.slots), Self::take_counts(&self.nodes))
    }
}

impl<S: NodeStore> NodeStore for Counting<S> {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        for read in &*reads {
            self.slots[small().layer_of(read.version.node)].fetch_add(1, Ordering::SeqCst);
        }
        self.store.read_slots(reads).await
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.nodes[small().layer_of(version.node)].fetch_add(1, Ordering::SeqCst);
        self.store.read_node(version, into).await
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.store.stage(version, bytes).await
    }

    async fn abandon(&self) -> Result {
        self.store.abandon().await
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        let fail = self.fail.lock().unwrap().take();
        if matches!(fail, Some(Fail::Before)) {
            return Err(PLANNED);
        }
        self.store.commit(sequence, versions).await?;
        if fail.is_some() { Err(PLANNED) } else { Ok(()) }
    }

    async fn sequence(&self) -> Result<u64> {
        self.store.sequence().await
    }
}

/// Reads the same slot of each node of a path, as a query does.
fn read_path(store: &impl NodeStore, versions: &[NodeVersion], slot: u32) -> Vec<Vec<u8>> {
    let mut slots = vec![vec![1; small().slot_len()]; versions.len()];
    let read = |(version, into): (&NodeVersion, _)| SlotRead { version: *version, slot, into };
    let mut reads: Vec<SlotRead<'_>> =
        versions.iter().zip(slots.iter_mut().map(Vec::as_mut_slice)).map(read).collect();
    block_on(store.read_slots(&mut reads)).unwrap();
    slots
}

#[test]
fn a_cached_store_passes_the_store_tests() {
    for layers in 0..=4 {
        let g = small();
        let cached = CachedStore::new(MemStore::new(g), g, room(layers));
        assert_eq!(cached.layers(), layers);
        behaves(&cached, &g);
    }
}

#[test]
fn as_many_whole_layers_as_fit_are_cached() {
    let g = small();
    for layers in 1..=4 {
        assert_eq!(layers_in(&g, room(layers) - 1), layers - 1);
        assert_eq!(layers_in(&g, room(layers)), layers);
    }
    assert_eq!((layers_in(&g, 0), layers_in(&g, u64::MAX)), (0, 4));
}

/// A cache over a store in files, and the expected content.
struct Model {
    cached: Option<CachedStore<Counting<Arc<FileStore>>>>,
    files: Option<Arc<FileStore>>,
    folder: tempfile::TempDir,
    layers: usize,
    /// Readable versions: the current one of each node, and the ones that the last commit replaced.
    current: Vec<NodeVersion>,
    previous: Vec<NodeVersion>,
    bytes: HashMap<NodeVersion, Vec<u8>>,
    sequence: u64,
    rng: SeededRng,
}

impl Model {
    fn new(layers: usize, seed: u64) -> Self {
        let current = (0..small().nodes()).map(|node| NodeVersion { node: Node(node), attempt: 0 });
        let mut model = Self {
            cached: None,
            files: None,
            folder: tempfile::tempdir().unwrap(),
            layers,
            current: current.collect(),
            previous: vec![],
            bytes: HashMap::new(),
            sequence: 0,
            rng: SeededRng::new(seed),
        };
        model.reopen();
        model
    }

    fn reopen(&mut self) {
        let g = small();
        (self.cached, self.files) = (None, None);
        let files = FileStore::open(self.folder.path(), g, Durability::Process).unwrap();
        let files = Arc::new(files);
        self.cached = Some(CachedStore::new(Counting::new(files.clone()), g, room(self.layers)));
        self.files = Some(files);
        assert_eq!(block_on(self.cached().sequence()).unwrap(), self.sequence);
    }

    fn cached(&self) -> &CachedStore<Counting<Arc<FileStore>>> {
        self.cached.as_ref().unwrap()
    }

    /// Stages nodes of the next round, some of them twice.
    fn stage(&mut self) -> Vec<NodeVersion> {
        let attempt = 1 + self.rng.below(1 << 60);
        let mut versions = path(&small(), self.sequence, attempt);
        let first = self.rng.below(versions.len() as u64) as usize;
        versions.rotate_left(first);
        versions.truncate(1 + self.rng.below(4) as usize);
        for &version in &versions {
            for _ in 0..=self.rng.below(2) {
                let mut bytes = vec![0; small().node_len(small().layer_of(version.node))];
                self.rng.fill(&mut bytes);
                block_on(self.cached().stage(version, &bytes)).unwrap();
                self.bytes.insert(version, bytes);
            }
            let unseen =
                block_on(self.cached().read_node(version, &mut bytes_of(&small(), version)));
            assert!(unseen.is_err(), "nobody reads it yet");
        }
        versions
    }

    fn commit(&mut self, versions: &[NodeVersion], fail: Option<Fail>) {
        *self.cached().store.fail.lock().unwrap() = fail;
        let done = block_on(self.cached().commit(self.sequence + 1, versions));
        assert_eq!(done.is_err(), fail.is_some());
        if !matches!(fail, Some(Fail::Before)) {
            self.sequence += 1;
            self.previous.clear();
            for version in versions {
                let current = &mut self.current[version.node.0 as usize];
                self.previous.push(core::mem::replace(current, *version));
            }
        }
        assert_eq!(block_on(self.cached().sequence()).unwrap(), self.sequence);
    }

    /// Reads readable versions, in batches and node by node, with and without the cache.
    fn check(&mut self) {
        let g = small();
        for _ in 0..4 {
            let known: Vec<NodeVersion> =
                self.current.iter().chain(&self.previous).copied().collect();
            let versions: Vec<NodeVersion> =
                (0..6).map(|_| known[self.rng.below(known.len() as u64) as usize]).collect();
            let slot = self.rng.below(20) as u32;
            let slots = read_path(self.cached(), &versions, slot);
            assert!(slots == read_path(self.files.as_ref().unwrap(), &versions, slot));
            for (version, read) in versions.into_iter().zip(slots) {
                let mut node = vec![1; g.node_len(g.layer_of(version.node))];
                block_on(self.cached().read_node(version, &mut node)).unwrap();
                let zeros = vec![0; node.len()];
                assert!(node == *self.bytes.get(&version).unwrap_or(&zeros), "{version:?}");
                assert!(node[slot as usize * g.slot_len()..].starts_with(&read));
            }
        }
    }
}

#[test]
fn a_cached_store_agrees_with_its_engine_under_failures() {
    for layers in 0..=4 {
        let mut model = Model::new(layers, layers as u64);
        for _ in 0..300 {
            let versions = model.stage();
            model.check();
            match model.rng.below(8) {
                0 => block_on(model.cached().abandon()).unwrap(),
                1 => model.reopen(),
                2 => {
                    model.commit(&versions, Some(Fail::Before));
                    model.check();
                    model.commit(&versions, None);
                }
                3 => model.commit(&versions, Some(Fail::After)),
                _ => model.commit(&versions, None),
            }
            model.check();
        }
        assert!(model.sequence > 200);
        let cache = model.cached().reading();
        assert!(cache.previous.len() + cache.spare.len() <= 2 * layers);
    }
}

#[test]
#[should_panic(expected = "assertion failed")]
fn a_planted_fault_is_detected() {
    let mut model = Model::new(2, 9);
    for _ in 0..10 {
        let versions = model.stage();
        model.commit(&versions, None);
        model.check();
    }
    for kept in model.cached().writing().current.values_mut() {
        kept.bytes.iter_mut().for_each(|byte| *byte ^= 1);
    }
    for _ in 0..50 {
        model.check();
    }
}

#[test]
fn cached_layers_are_never_read_from_the_engine() {
    let g = small();
    for layers in 0..=4 {
        let engine = Arc::new(Counting::new(MemStore::new(g)));
        let open = || CachedStore::new(engine.clone(), g, room(layers));
        let by_layer = |cached: u64, uncached: u64| {
            core::array::from_fn(|layer| if layer < layers { cached } else { uncached })
        };
        let cached = open();
        for sequence in 1..=30 {
            write_round(&cached, &g, sequence);
            for slot in 0..20 {
                read_path(&cached, &path(&g, sequence - 1, sequence), slot);
            }
        }
        assert_eq!(engine.reads(), (by_layer(0, 600), [0; 4]), "{layers} layers");
        // After reopening each node is read once, at its first use.
        let cached = open();
        for slot in 0..20 {
            read_path(&cached, &path(&g, 29, 30), slot);
        }
        assert_eq!(engine.reads(), (by_layer(0, 20), by_layer(1, 0)), "{layers} layers");
    }
}

#[test]
fn concurrent_readers_read_committed_versions() {
    const ROUNDS: u64 = 400;
    let g = small();
    let cached = CachedStore::new(MemStore::new(g), g, room(2));
    let (last, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for slot in [0, 7] {
            let (cached, last, done) = (&cached, &last, &done);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let sequence = last.load(Ordering::SeqCst);
                    if sequence == 0 {
                        continue;
                    }
                    let version = path(&g, sequence - 1, sequence)[1];
                    let mut bytes = vec![0; g.slot_len()];
                    let mut reads = [SlotRead { version, slot, into: &mut bytes }];
                    // An error is allowed for a version that was replaced two commits ago.
                    if block_on(cached.read_slots(&mut reads)).is_ok() {
                        let want = bytes_of(&g, version);
                        assert!(want[slot as usize * g.slot_len()..].starts_with(&bytes));
                    }
                }
            });
        }
        for sequence in 1..=ROUNDS {
            write_round(&cached, &g, sequence);
            last.store(sequence, Ordering::SeqCst);
        }
        done.store(true, Ordering::SeqCst);
    });
}

/// A version that was staged and abandoned takes no memory.
#[test]
fn abandoned_versions_are_dropped() {
    let g = small();
    let store = CachedStore::new(MemStore::new(g), g, room(2));
    let version = path(&g, 0, 1)[0];
    block_on(store.stage(version, &bytes_of(&g, version))).unwrap();
    assert_eq!(store.writing().staged.len(), 1);
    block_on(store.abandon()).unwrap();
    let cache = store.writing();
    assert_eq!((cache.staged.len(), cache.spare.len()), (0, 1));
}
