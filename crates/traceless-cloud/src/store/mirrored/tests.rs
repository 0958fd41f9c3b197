//! Two copies: what each has after outages, crashes and damage.

use super::super::suite::{behaves, bytes_of, check_round, path, reopens, shapes, write_round};
use super::super::{CachedStore, Durability, FileStore, MemStore, StoreFolder};
use super::*;
use crate::block_on::block_on;
use crate::geometry::tests::small;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use traceless_core::clock::{Clock as _, Monotonic};

const OPENING: Opening = Opening { number: 1, instance: [5; 16] };

/// A copy in memory that can be away, and outlives its openings.
struct Switched {
    store: Arc<MemStore>,
    is_away: Arc<AtomicBool>,
}

impl Switched {
    fn new(g: Geometry) -> Self {
        Self { store: Arc::new(MemStore::new(g)), is_away: Arc::default() }
    }

    fn clone(&self) -> Self {
        Self { store: self.store.clone(), is_away: self.is_away.clone() }
    }

    fn switch(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    fn check(&self) -> Result {
        let is_away = self.is_away.load(Ordering::SeqCst);
        if is_away { Err(Error::Engine("switched off".to_owned())) } else { Ok(()) }
    }
}

impl OpenStore for Switched {
    fn open(&self, _: Geometry, _: Opening) -> Result<BoxedStore> {
        self.check()?;
        Ok(BoxedStore::new(self.clone()))
    }
}

impl NodeStore for Switched {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        self.check()?;
        self.store.read_slots(reads).await
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.check()?;
        self.store.read_node(version, into).await
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.check()?;
        self.store.stage(version, bytes).await
    }

    async fn abandon(&self) -> Result {
        self.check()?;
        self.store.abandon().await
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.check()?;
        self.store.commit(sequence, versions).await
    }

    async fn sequence(&self) -> Result<u64> {
        self.check()?;
        self.store.sequence().await
    }
}

impl CopyableStore for Switched {
    fn current(&self) -> Vec<NodeVersion> {
        self.store.current()
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.check()?;
        self.store.restore(sequence, versions).await
    }
}

fn mirrored(first: Arc<MemStore>, copy: &Switched, g: Geometry) -> MirroredStore<Shared> {
    MirroredStore::open(Shared(first), Arc::new(copy.clone()), g, OPENING).unwrap()
}

/// A store in memory that outlives its openings.
struct Shared(Arc<MemStore>);

impl NodeStore for Shared {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        self.0.read_slots(reads).await
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.0.read_node(version, into).await
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.0.stage(version, bytes).await
    }

    async fn abandon(&self) -> Result {
        self.0.abandon().await
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.0.commit(sequence, versions).await
    }

    async fn sequence(&self) -> Result<u64> {
        self.0.sequence().await
    }
}

impl CopyableStore for Shared {
    fn current(&self) -> Vec<NodeVersion> {
        self.0.current()
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.0.restore(sequence, versions).await
    }
}

fn wait_until_whole<S: CopyableStore>(store: &MirroredStore<S>) {
    let clock = Monotonic::start();
    while !store.is_whole() {
        assert!(clock.now() < 20_000_000_000, "the copy stays behind");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A round as a host makes it.
fn make_round(store: &impl NodeStore, g: &Geometry, sequence: u64) {
    block_on(store.abandon()).unwrap();
    write_round(store, g, sequence);
}

fn node(store: &impl NodeStore, g: &Geometry, version: NodeVersion) -> Vec<u8> {
    let mut bytes = vec![0; g.node_len(g.layer_of(version.node))];
    block_on(store.read_node(version, &mut bytes)).unwrap();
    bytes
}

/// Both stores have the same commits, versions and bytes.
fn assert_equal(first: &impl CopyableStore, copy: &impl CopyableStore, g: &Geometry) {
    let number = |sequence: Result<u64>| sequence.unwrap();
    assert_eq!(number(block_on(first.sequence())), number(block_on(copy.sequence())));
    let (mut own, mut copied) = (first.current(), copy.current());
    own.sort_unstable();
    copied.sort_unstable();
    assert_eq!(own, copied);
    for version in own {
        assert!(node(first, g, version) == node(copy, g, version));
        assert!(node(copy, g, version) == bytes_of(g, version));
    }
}

#[test]
fn a_mirrored_store_passes_the_store_tests() {
    for g in shapes() {
        let (first, copy) = (Arc::new(MemStore::new(g)), Switched::new(g));
        let store = mirrored(first.clone(), &copy, g);
        behaves(&store, &g);
        wait_until_whole(&store);
        assert_equal(&*first, &*copy.store, &g);
        let copy = Switched::new(g);
        copy.switch(true);
        behaves(&mirrored(Arc::new(MemStore::new(g)), &copy, g), &g);
    }
}

#[test]
fn mirrored_folders_reopen_in_the_state_of_the_last_commit() {
    let (folder, g) = (tempfile::tempdir().unwrap(), small());
    let durability = Durability::Process;
    let place = |name: &str| StoreFolder { folder: folder.path().join(name), durability };
    let open_first = || FileStore::open(&place("first").folder, g, durability).unwrap();
    let open = || {
        let first = CachedStore::new(open_first(), g, 1 << 20);
        let store = MirroredStore::open(first, Arc::new(place("copy")), g, OPENING).unwrap();
        wait_until_whole(&store);
        store
    };
    reopens(open, &g);
    let copy = FileStore::open(&place("copy").folder, g, durability).unwrap();
    assert_equal(&open_first(), &copy, &g);
    // The store is lost, and the copy takes its place.
    std::fs::remove_dir_all(place("first").folder).unwrap();
    assert_eq!(block_on(copy.sequence()).unwrap(), 30);
    make_round(&copy, &g, 31);
    drop(copy);
    let new = FileStore::open(&place("copy").folder, g, durability).unwrap();
    let store = MirroredStore::open(new, Arc::new(place("new copy")), g, OPENING).unwrap();
    wait_until_whole(&store);
    check_round(&store, &g, 31);
    drop(store);
    let copy = FileStore::open(&place("new copy").folder, g, durability).unwrap();
    assert_equal(&FileStore::open(&place("copy").folder, g, durability).unwrap(), &copy, &g);
}

#[test]
fn a_copy_that_was_away_is_brought_up_to_date() {
    let g = small();
    let (first, copy) = (Arc::new(MemStore::new(g)), Switched::new(g));
    copy.switch(true);
    let store = mirrored(first.clone(), &copy, g);
    for sequence in 1..=200 {
        if sequence % 40 == 0 {
            copy.switch(false);
            wait_until_whole(&store);
        }
        if sequence % 40 == 20 {
            copy.switch(true);
        }
        make_round(&store, &g, sequence);
        check_round(&store, &g, sequence);
        let is_away = copy.is_away.load(Ordering::SeqCst);
        assert!(!(is_away && store.is_whole()), "{sequence}");
    }
    copy.switch(false);
    wait_until_whole(&store);
    assert_equal(&*first, &*copy.store, &g);
}

/// Rounds go on while the copy catches up, falls behind and catches up.
#[test]
fn rounds_beside_the_copier_reach_both_stores() {
    let g = small();
    let (first, copy) = (Arc::new(MemStore::new(g)), Switched::new(g));
    let store = mirrored(first.clone(), &copy, g);
    for sequence in 1..=3000 {
        make_round(&store, &g, sequence);
        if sequence % 7 == 0 {
            block_on(store.admit(OPENING)).unwrap();
        }
        if sequence % 11 == 0 {
            store.mirror.fall_behind(&"planned");
        }
        if sequence % 500 == 0 {
            wait_until_whole(&store);
            assert_equal(&*first, &*copy.store, &g);
        }
    }
}

/// The process ends between the commits to both stores, or before the copy is whole.
#[test]
fn a_copy_of_an_earlier_state_is_brought_up_to_date_when_opened() {
    let g = small();
    let (first, copy) = (Arc::new(MemStore::new(g)), Switched::new(g));
    let mut last = 0;
    for alone in [1, 2, 9] {
        {
            let store = mirrored(first.clone(), &copy, g);
            wait_until_whole(&store);
            for _ in 0..5 {
                last += 1;
                make_round(&store, &g, last);
            }
        }
        for _ in 0..alone {
            last += 1;
            make_round(&*first, &g, last);
        }
        let store = mirrored(first.clone(), &copy, g);
        wait_until_whole(&store);
        assert_equal(&*first, &*copy.store, &g);
    }
}

#[test]
fn a_newer_copy_or_one_of_another_tree_is_refused() {
    let g = small();
    let refused = |first: &Arc<MemStore>, copy: &Switched| {
        let opened = MirroredStore::open(Shared(first.clone()), Arc::new(copy.clone()), g, OPENING);
        match opened.err() {
            Some(Error::Store(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    let (first, copy) = (Arc::new(MemStore::new(g)), Switched::new(g));
    make_round(&*copy.store, &g, 1);
    assert!(refused(&first, &copy).contains("newer than the store"), "an empty store");
    for sequence in 1..=3 {
        make_round(&*first, &g, sequence);
    }
    for sequence in 2..=4 {
        make_round(&*copy.store, &g, sequence);
    }
    assert!(refused(&first, &copy).contains("newer than the store"));
    // So old that no node is the same: it could be of another tree.
    let old = Switched::new(g);
    make_round(&*old.store, &g, 1);
    let newer = Arc::new(MemStore::new(g));
    for sequence in 1..=60 {
        make_round(&*newer, &g, sequence);
    }
    assert!(refused(&newer, &old).contains("no node of this tree"));
    // Versions with the same numbers and other bytes.
    let other = Switched::new(g);
    for version in path(&g, 0, 1) {
        let bytes = vec![0xee; g.node_len(g.layer_of(version.node))];
        block_on(other.store.stage(version, &bytes)).unwrap();
    }
    block_on(other.store.commit(1, &path(&g, 0, 1))).unwrap();
    assert!(refused(&first, &other).contains("no node of this tree"));
    assert_eq!(other.store.current(), path(&g, 0, 1), "it is as it was");
}

/// Reads a slot as a query does.
fn slot(store: &impl NodeStore, g: &Geometry, version: NodeVersion, slot: u32) -> Vec<u8> {
    let mut bytes = vec![0; g.slot_len()];
    block_on(store.read_slots(&mut [SlotRead { version, slot, into: &mut bytes }])).unwrap();
    bytes
}

/// Replaces the bytes of a version in one store.
fn replace(store: &MemStore, g: &Geometry, version: NodeVersion, byte: u8) {
    block_on(store.stage(version, &vec![byte; g.node_len(g.layer_of(version.node))])).unwrap();
    block_on(store.restore(block_on(store.sequence()).unwrap(), &[version])).unwrap();
}

#[test]
fn what_is_read_again_or_known_to_be_damaged_comes_from_the_copy() {
    let g = small();
    let (first, copy) = (Arc::new(MemStore::new(g)), Switched::new(g));
    let store = mirrored(first.clone(), &copy, g);
    make_round(&store, &g, 1);
    wait_until_whole(&store);
    let version = path(&g, 0, 1)[1];
    let good = bytes_of(&g, version);
    let len = g.slot_len();
    replace(&first, &g, version, 0xdd);
    let read = |number: u32| slot(&store, &g, version, number);
    assert_eq!((read(2), read(3)), (vec![0xdd; len], vec![0xdd; len]));
    assert!(read(2) == good[2 * len..3 * len], "from the copy");
    assert_eq!(read(2), vec![0xdd; len], "in turn");
    // The enclave has found two slots to be damaged.
    store.judge(version, &DamagedSlots::from([4, 6]));
    for _ in 0..2 {
        let found = node(&store, &g, version);
        for (number, found) in found.chunks(len).enumerate() {
            let is_healed = [4, 6].contains(&number);
            assert_eq!(found == &good[number * len..][..len], is_healed, "{number}");
        }
    }
    // One of them is damaged in the copy, too.
    store.judge(version, &DamagedSlots::from([4]));
    assert_eq!(&node(&store, &g, version)[4 * len..5 * len], vec![0xdd; len]);
    copy.switch(true);
    store.mirror.fall_behind(&"planned");
    assert_eq!(read(3), vec![0xdd; len], "the copy is away");
}

#[test]
fn a_damaged_copy_is_found_by_a_verification() {
    let g = small();
    let (first, copy) = (Arc::new(MemStore::new(g)), Switched::new(g));
    let store = mirrored(first.clone(), &copy, g);
    for sequence in 1..=5 {
        make_round(&store, &g, sequence);
    }
    wait_until_whole(&store);
    let version = path(&g, 4, 5)[2];
    replace(&copy.store, &g, version, 0xcc);
    let verify = |damaged: &DamagedSlots| {
        let mut bytes = vec![0; bytes_of(&g, version).len()];
        block_on(store.read_node_to_verify(version, &mut bytes)).unwrap();
        store.judge(version, damaged);
    };
    // All differing slots may be damaged in the store.
    let all: DamagedSlots = (0..g.slots(2) as u32).collect();
    verify(&all);
    assert!(store.is_whole() && node(&*copy.store, &g, version)[0] == 0xcc);
    store.mirror.damaged().judge(version, &all);
    verify(&DamagedSlots::new());
    wait_until_whole(&store);
    assert_equal(&*first, &*copy.store, &g);
}
