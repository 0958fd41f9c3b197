//! Two copies: what each has after outages, crashes and damage.

use super::super::suite::{behaves, bytes_of, check_round, path, reopens, shapes, write_round};
use super::super::{CachedStore, Durability, FileStore, MemStore, StoreFolder};
use super::*;
use crate::block_on::block_on;
use crate::geometry::tests::small;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use traceless_core::clock::{Clock as _, Monotonic};

const OPENING: Opening = Opening { number: 1, instance: [5; 16] };

/// A store in memory that outlives its openings. It can be away, and have a slot that cannot be
/// read.
#[derive(Clone)]
struct TestStore {
    nodes: Arc<MemStore>,
    is_away: Arc<AtomicBool>,
    unreadable: Arc<Mutex<Option<(NodeVersion, u32)>>>,
    is_read_only: Arc<AtomicBool>,
    /// Whether commits are made, and reported as failures.
    loses_answers: Arc<AtomicBool>,
    openings: Arc<AtomicUsize>,
}

impl TestStore {
    fn new(g: Geometry) -> Self {
        Self {
            nodes: Arc::new(MemStore::new(g)),
            is_away: Arc::default(),
            unreadable: Arc::default(),
            is_read_only: Arc::default(),
            loses_answers: Arc::default(),
            openings: Arc::default(),
        }
    }

    fn switch(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    fn check(&self) -> Result {
        let is_away = self.is_away.load(Ordering::SeqCst);
        if is_away { Err(Error::Engine("switched off".to_owned())) } else { Ok(()) }
    }

    fn check_read(&self, is_read: impl Fn(NodeVersion, u32) -> bool) -> Result {
        self.check()?;
        match *self.unreadable.lock().unwrap() {
            Some((version, slot)) if is_read(version, slot) => {
                Err(Error::Io(Arc::new(std::io::ErrorKind::InvalidData.into())))
            }
            _ => Ok(()),
        }
    }
}

impl OpenStore for TestStore {
    fn open(&self, _: Geometry, _: Opening) -> Result<BoxedStore> {
        self.check()?;
        self.openings.fetch_add(1, Ordering::SeqCst);
        Ok(BoxedStore::new(self.clone()))
    }
}

impl NodeStore for TestStore {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        let is_read =
            |version, slot| reads.iter().any(|read| (read.version, read.slot) == (version, slot));
        self.check_read(is_read)?;
        self.nodes.read_slots(reads).await
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.check_read(|unreadable, _| unreadable == version)?;
        self.nodes.read_node(version, into).await
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.check()?;
        if self.is_read_only.load(Ordering::SeqCst) {
            return Err(Error::Io(Arc::new(std::io::ErrorKind::ReadOnlyFilesystem.into())));
        }
        self.nodes.stage(version, bytes).await
    }

    async fn abandon(&self) -> Result {
        self.check()?;
        self.nodes.abandon().await
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.check()?;
        self.nodes.commit(sequence, versions).await?;
        let is_lost = self.loses_answers.load(Ordering::SeqCst);
        if is_lost { Err(Error::Engine("no answer".to_owned())) } else { Ok(()) }
    }

    async fn remove(&self, nodes: &[Node]) -> Result {
        self.check()?;
        self.nodes.remove(nodes).await
    }

    async fn sequence(&self) -> Result<u64> {
        self.check()?;
        self.nodes.sequence().await
    }
}

impl CopyableStore for TestStore {
    fn current(&self) -> Result<Vec<NodeVersion>> {
        self.nodes.current()
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.check()?;
        self.nodes.restore(sequence, versions).await
    }
}

/// Two empty stores.
fn pair(g: Geometry) -> (TestStore, TestStore) {
    (TestStore::new(g), TestStore::new(g))
}

fn mirrored(first: &TestStore, copy: &TestStore, g: Geometry) -> MirroredStore<TestStore> {
    MirroredStore::open(first.clone(), Arc::new(copy.clone()), g, OPENING).unwrap()
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

/// A store with a copy that has its rounds, of which there are so many.
fn whole_after(rounds: u64, g: Geometry) -> (TestStore, TestStore, MirroredStore<TestStore>) {
    let (first, copy) = pair(g);
    let store = mirrored(&first, &copy, g);
    for sequence in 1..=rounds {
        make_round(&store, &g, sequence);
    }
    wait_until_whole(&store);
    (first, copy, store)
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
    let (mut own, mut copied) = (first.current().unwrap(), copy.current().unwrap());
    own.sort_unstable();
    copied.sort_unstable();
    assert_eq!(own, copied);
    for version in own {
        assert!(node(first, g, version) == node(copy, g, version));
        assert!(node(copy, g, version) == bytes_of(g, version));
    }
}

#[test]
fn removed_nodes_leave_both_stores() {
    let g = small();
    let (first, copy, store) = whole_after(5, g);
    let leaves: Vec<Node> = g.nodes_of(0).filter(|node| g.layer_of(*node) > 0).collect();
    block_on(store.remove(&leaves)).unwrap();
    assert_equal(&first, &copy, &g);
    assert_eq!(first.current().unwrap().len(), 1);
    make_round(&store, &g, 6);
    check_round(&store, &g, 6);
    assert_equal(&first, &copy, &g);
}

/// A copied node that was damaged on the way is written again, under the same version.
#[test]
fn a_version_that_is_written_again_replaces_the_damaged_one() {
    let g = small();
    let (first, copy, store) = whole_after(0, g);
    let version = path(&g, 3, 9)[0];
    let place = |sequence, bytes: &[u8]| {
        block_on(store.abandon()).unwrap();
        block_on(store.stage(version, bytes)).unwrap();
        block_on(store.commit(sequence, &[version])).unwrap();
    };
    let mut damaged = bytes_of(&g, version);
    damaged[..g.slot_len()].fill(0);
    place(1, &damaged);
    wait_until_whole(&store);
    store.judge(version, &DamagedSlots::from([0]));
    copy.switch(true);
    place(2, &bytes_of(&g, version));
    copy.switch(false);
    wait_until_whole(&store);
    assert_equal(&first, &copy, &g);
}

#[test]
fn a_mirrored_store_passes_the_store_tests() {
    for g in shapes() {
        let (first, copy) = pair(g);
        let store = mirrored(&first, &copy, g);
        behaves(&store, &g);
        wait_until_whole(&store);
        assert_equal(&first, &copy, &g);
        let copy = TestStore::new(g);
        copy.switch(true);
        behaves(&mirrored(&TestStore::new(g), &copy, g), &g);
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
    let (first, copy) = pair(g);
    copy.switch(true);
    let store = mirrored(&first, &copy, g);
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
    assert_equal(&first, &copy, &g);
}

/// In the place of the log's next file is a pipe: to open it waits for a reader, without limit, as
/// files of a disk that does not answer do.
#[test]
fn a_folder_that_does_not_answer_is_left_behind_and_healed() {
    let (g, folder) = (small(), tempfile::tempdir().unwrap());
    let (first, place) = (TestStore::new(g), folder.path().to_owned());
    let durability = Durability::Process;
    let opener = Arc::new(StoreFolder { folder: place.clone(), durability });
    let store = MirroredStore::open(first.clone(), opener, g, OPENING).unwrap();
    for sequence in 1..=5 {
        make_round(&store, &g, sequence);
    }
    wait_until_whole(&store);
    let pipe = place.join("places.new");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let clock = Monotonic::start();
    let leaves: Vec<Node> = g.nodes_of(0).filter(|node| g.layer_of(*node) > 0).collect();
    block_on(store.remove(&leaves)).unwrap();
    let waited = Duration::from_nanos(clock.now());
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    let clock = Monotonic::start();
    for sequence in 6..=8 {
        make_round(&store, &g, sequence);
        check_round(&store, &g, sequence);
        assert!(!store.is_whole());
    }
    let waited = Duration::from_nanos(clock.now());
    assert!(waited < Duration::from_secs(2), "rounds do not wait: {waited:?}");
    // The disk is back: the call goes on, and fails.
    let mut options = std::fs::OpenOptions::new();
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let options = std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), flags);
    let reader = options.open(&pipe).unwrap();
    std::fs::remove_file(&pipe).unwrap();
    wait_until_whole(&store);
    drop((reader, store));
    let copy = FileStore::open(&place, g, durability).unwrap();
    assert_equal(&first, &copy, &g);
}

/// Rounds go on while the copy catches up, falls behind and catches up.
#[test]
fn rounds_beside_the_copier_reach_both_stores() {
    let g = small();
    let (first, copy) = pair(g);
    let store = mirrored(&first, &copy, g);
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
            assert_equal(&first, &copy, &g);
        }
    }
}

/// The process ends between the commits to both stores, or before the copy is whole.
#[test]
fn a_copy_of_an_earlier_state_is_brought_up_to_date_when_opened() {
    let g = small();
    let (first, copy) = pair(g);
    let mut last = 0;
    for alone in [1, 2, 9] {
        {
            let store = mirrored(&first, &copy, g);
            wait_until_whole(&store);
            for _ in 0..5 {
                last += 1;
                make_round(&store, &g, last);
            }
        }
        for _ in 0..alone {
            last += 1;
            make_round(&first, &g, last);
        }
        let store = mirrored(&first, &copy, g);
        wait_until_whole(&store);
        assert_equal(&first, &copy, &g);
    }
}

#[test]
fn a_newer_copy_is_refused() {
    let g = small();
    let (first, copy) = pair(g);
    let refused =
        || match MirroredStore::open(first.clone(), Arc::new(copy.clone()), g, OPENING).err() {
            Some(Error::Store(reason)) => assert!(reason.contains("newer than the store")),
            other => panic!("{other:?}"),
        };
    make_round(&copy, &g, 1);
    refused();
    for sequence in 1..=3 {
        make_round(&first, &g, sequence);
    }
    for sequence in 2..=4 {
        make_round(&copy, &g, sequence);
    }
    refused();
}

/// The store goes on without a copy that it does not know, and leaves it as it is.
#[test]
fn a_copy_of_another_tree_is_not_overwritten() {
    let g = small();
    let first = TestStore::new(g);
    for sequence in 1..=60 {
        make_round(&first, &g, sequence);
    }
    // So old that no node is the same: it could be of another tree.
    let old = TestStore::new(g);
    make_round(&old, &g, 1);
    // Versions with the same numbers and other bytes.
    let other = TestStore::new(g);
    let last = path(&g, 59, 60);
    for version in &last {
        let bytes = vec![0xee; g.node_len(g.layer_of(version.node))];
        block_on(other.stage(*version, &bytes)).unwrap();
    }
    block_on(other.commit(1, &last)).unwrap();
    for copy in [old, other] {
        let before = copy.current().unwrap();
        let store = mirrored(&first, &copy, g);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!store.is_whole());
        check_round(&store, &g, 60);
        drop(store);
        assert_eq!(copy.current().unwrap(), before);
    }
}

/// A disk that is full or away is opened again, and what was to be copied to it is not forgotten.
#[test]
fn a_node_that_could_not_be_copied_is_copied_later() {
    let g = small();
    let (first, copy, store) = whole_after(1, g);
    let version = path(&g, 0, 1)[1];
    replace(&copy, &g, version, 0xcc);
    copy.is_read_only.store(true, Ordering::SeqCst);
    let mut bytes = bytes_of(&g, version);
    block_on(store.read_node_to_verify(version, &mut bytes)).unwrap();
    store.judge(version, &DamagedSlots::new());
    // The copier fails at once, and then waits.
    std::thread::sleep(Duration::from_millis(200));
    copy.is_read_only.store(false, Ordering::SeqCst);
    wait_until_whole(&store);
    assert_equal(&first, &copy, &g);
    assert_eq!(copy.openings.load(Ordering::SeqCst), 2);
}

/// The commit is in the store, and not in the copy.
#[test]
fn a_commit_without_an_answer_reaches_the_copy() {
    let g = small();
    let (first, copy, store) = whole_after(1, g);
    let versions = path(&g, 1, 2);
    block_on(store.abandon()).unwrap();
    for version in &versions {
        block_on(store.stage(*version, &bytes_of(&g, *version))).unwrap();
    }
    first.loses_answers.store(true, Ordering::SeqCst);
    assert!(block_on(store.commit(2, &versions)).is_err());
    first.loses_answers.store(false, Ordering::SeqCst);
    wait_until_whole(&store);
    assert_equal(&first, &copy, &g);
}

/// A slot that was to be read and was not comes from the store when it is read again.
#[test]
fn a_read_that_failed_does_not_count() {
    let g = small();
    let (first, copy, store) = whole_after(1, g);
    let version = path(&g, 0, 1)[1];
    copy.switch(true);
    store.mirror.fall_behind(&"planned");
    *first.unreadable.lock().unwrap() = Some((version, 3));
    let mut bytes = vec![0; g.slot_len()];
    let mut reads = [SlotRead { version, slot: 3, into: &mut bytes }];
    assert!(block_on(store.read_slots(&mut reads)).is_err());
    *first.unreadable.lock().unwrap() = None;
    copy.switch(false);
    wait_until_whole(&store);
    replace(&copy, &g, version, 0xcc);
    assert_ne!(slot(&store, &g, version, 3)[0], 0xcc);
    assert_eq!(slot(&store, &g, version, 3)[0], 0xcc);
}

#[test]
fn a_copy_that_does_not_answer_a_verification_is_behind() {
    let g = small();
    let (_, copy, store) = whole_after(1, g);
    copy.switch(true);
    let version = path(&g, 0, 1)[1];
    let mut bytes = bytes_of(&g, version);
    block_on(store.read_node_to_verify(version, &mut bytes)).unwrap();
    assert!(!store.is_whole());
}

/// Reads a slot as a query does.
fn slot(store: &impl NodeStore, g: &Geometry, version: NodeVersion, slot: u32) -> Vec<u8> {
    let mut bytes = vec![0; g.slot_len()];
    block_on(store.read_slots(&mut [SlotRead { version, slot, into: &mut bytes }])).unwrap();
    bytes
}

/// Replaces the bytes of a version in one store.
fn replace(store: &TestStore, g: &Geometry, version: NodeVersion, byte: u8) {
    block_on(store.stage(version, &vec![byte; g.node_len(g.layer_of(version.node))])).unwrap();
    block_on(store.restore(block_on(store.sequence()).unwrap(), &[version])).unwrap();
}

#[test]
fn what_is_read_again_or_known_to_be_damaged_comes_from_the_copy() {
    let g = small();
    let (first, copy, store) = whole_after(1, g);
    let version = path(&g, 0, 1)[1];
    let good = bytes_of(&g, version);
    let len = g.slot_len();
    replace(&first, &g, version, 0xdd);
    let read = |number: u32| slot(&store, &g, version, number);
    assert_eq!((read(2), read(3)), (vec![0xdd; len], vec![0xdd; len]));
    assert!(read(2) == good[2 * len..3 * len], "from the copy");
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

/// Each of both stores has damage, in another slot of a query.
#[test]
fn damage_in_both_stores_is_sorted_out_by_reading_again() {
    let g = small();
    let (first, copy, store) = whole_after(1, g);
    let [one, two, three, ..] = path(&g, 0, 1)[..] else { panic!("a path of three nodes") };
    replace(&first, &g, one, 0xdd);
    replace(&copy, &g, two, 0xcc);
    let len = g.slot_len();
    let is_good = |name: &(NodeVersion, u32), bytes: &[u8]| {
        bytes_of(&g, name.0)[name.1 as usize * len..][..len] == *bytes
    };
    // How many of the slots are read well.
    let read = |slots: &[(NodeVersion, u32)]| {
        let mut bytes = vec![vec![0; len]; slots.len()];
        let reads = slots.iter().zip(&mut bytes);
        let mut reads: Vec<SlotRead<'_>> =
            reads.map(|(&(version, slot), into)| SlotRead { version, slot, into }).collect();
        block_on(store.read_slots(&mut reads)).unwrap();
        slots.iter().zip(&bytes).filter(|(name, bytes)| is_good(name, bytes)).count()
    };
    let query = [(one, 3), (two, 3), (three, 3)];
    let counts = [(); 5].map(|()| read(&query));
    assert_eq!(counts[..3], [2, 2, 2], "one source has one damage: {counts:?}");
    assert!(counts[3..].contains(&3), "{counts:?}");
    // A query that was sent with another one, and is then sent alone.
    let query = [(one, 5), (two, 5), (three, 5)];
    let other = [(one, 4), (three, 4)];
    let both = [&other[..], &query].concat();
    let counts = [(); 4].map(|()| read(&both));
    assert!(counts[3] == 5 || read(&query) == 3, "{counts:?}");
}

#[test]
fn what_the_disk_cannot_read_comes_from_the_copy() {
    let g = small();
    let (first, copy, store) = whole_after(1, g);
    let (versions, len) = (path(&g, 0, 1), g.slot_len());
    let good =
        |version: NodeVersion, slot: usize| bytes_of(&g, version)[slot * len..][..len].to_vec();
    // The copy is damaged everywhere but in the slot that the store cannot read.
    let bad = versions[2];
    let mut bytes = vec![0xcc; g.node_len(g.layer_of(bad.node))];
    bytes[4 * len..5 * len].copy_from_slice(&good(bad, 4));
    block_on(copy.stage(bad, &bytes)).unwrap();
    block_on(copy.restore(1, &[bad])).unwrap();
    *first.unreadable.lock().unwrap() = Some((bad, 4));
    assert!(node(&store, &g, bad) == bytes_of(&g, bad));
    let (mut four, mut five) = (vec![0; len], vec![0; len]);
    let mut reads = [
        SlotRead { version: bad, slot: 4, into: &mut four },
        SlotRead { version: bad, slot: 5, into: &mut five },
    ];
    block_on(store.read_slots(&mut reads)).unwrap();
    assert!(four == good(bad, 4) && five == good(bad, 5));
    // A verification finds what cannot be read, so that it is written anew.
    let mut verified = vec![0; bytes.len()];
    block_on(store.read_node_to_verify(bad, &mut verified)).unwrap();
    assert_eq!(verified[4 * len..5 * len], vec![0; len]);
    store.judge(bad, &DamagedSlots::from([4]));
    wait_until_whole(&store);
    assert!(node(&copy, &g, bad) == bytes_of(&g, bad), "from both");
}

#[test]
fn a_damaged_copy_is_found_by_a_verification() {
    let g = small();
    let (first, copy, store) = whole_after(5, g);
    let version = path(&g, 4, 5)[2];
    replace(&copy, &g, version, 0xcc);
    let verify = |damaged: &DamagedSlots| {
        let mut bytes = vec![0; bytes_of(&g, version).len()];
        block_on(store.read_node_to_verify(version, &mut bytes)).unwrap();
        store.judge(version, damaged);
    };
    // All differing slots may be damaged in the store.
    let all: DamagedSlots = (0..g.slots(2) as u32).collect();
    verify(&all);
    assert!(store.is_whole() && node(&copy, &g, version)[0] == 0xcc);
    store.mirror.damaged().judge(version, &all);
    verify(&DamagedSlots::new());
    wait_until_whole(&store);
    assert_equal(&first, &copy, &g);
}
