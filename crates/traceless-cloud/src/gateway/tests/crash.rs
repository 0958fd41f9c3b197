//! Gateways that end at any moment: no acknowledged write is lost, and no slot is read twice.

use super::*;
use crate::gateway::constant_rate::ConstantRate;
use crate::gateway::lease::BootClock;
use crate::state_log::memory::MemoryLog;
use core::ops::Bound;
use std::path::{Path, PathBuf};
use traceless_core::clock::SimulatedClock;

/// A host over a store that outlives it. After a number of calls it is gone: the last call is not
/// answered, but may have taken effect.
struct Mortal {
    host: InProcess<Arc<MemStore>>,
    /// Calls that are left to all hosts of a gateway.
    left: Arc<AtomicU64>,
    last_takes_effect: bool,
    observed: Arc<Mutex<Vec<ObservedQuery>>>,
}

impl Mortal {
    fn call<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        const FAILURE: Error = Error::Store("planned");
        let left = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(1)));
        match left.expect("always some") {
            0 => Err(FAILURE),
            1 => {
                if self.last_takes_effect {
                    call()?;
                }
                Err(FAILURE)
            }
            _ => call(),
        }
    }
}

impl Host for Mortal {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        self.call(|| {
            self.observed.lock().unwrap().push((request.leaf, request.locations.clone()));
            self.host.query(request)
        })
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        self.call(|| self.host.stage(stage))
    }

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.call(|| self.host.place(version, bytes))
    }

    fn node(&self, version: NodeVersion) -> Result<Vec<u8>> {
        self.call(|| self.host.node(version))
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.call(|| self.host.commit(sequence, versions))
    }

    fn sequence(&self) -> Result<u64> {
        self.host.sequence()
    }
}

/// The parts that outlive a gateway.
pub struct World {
    pub params: Params,
    master: Secret,
    pub keys: Keys,
    /// The store of each partition.
    stores: Vec<Arc<MemStore>>,
    pub folder: tempfile::TempDir,
    /// A log of the state that several gateways reach, instead of the folder.
    pub log: Option<Arc<MemoryLog>>,
    /// How long leases last.
    pub period: Duration,
    observed: Arc<Mutex<Vec<ObservedQuery>>>,
    rng: SeededRng,
    /// Whether gateways keep a constant rate.
    beats: bool,
    /// How many hosts there are after some lives. Trees move to them beside the requests.
    hosts_later: Vec<usize>,
    /// The anchor's file.
    pub anchor: Option<PathBuf>,
}

impl World {
    pub fn new(blocks: u64, seed: u64) -> Self {
        Self::of(params(blocks), seed)
    }

    fn of(params: Params, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let master = Secret::random(&mut rng);
        Self {
            params,
            keys: Keys::new(&master, &[7; 16]),
            master,
            stores: vec![Arc::new(MemStore::new(params.geometry))],
            folder: tempfile::tempdir().unwrap(),
            log: None,
            period: Duration::from_millis(2),
            observed: Arc::default(),
            rng,
            beats: false,
            hosts_later: Vec::new(),
            anchor: None,
        }
    }

    /// A world with its state in a log that several gateways reach.
    pub fn leased(self) -> Self {
        Self { log: Some(Arc::new(MemoryLog::new(self.params.blocks))), ..self }
    }

    /// A world with an anchor.
    pub fn anchored(seed: u64, anchor: &Path) -> Self {
        Self { anchor: Some(anchor.to_owned()), ..Self::new(20, seed) }
    }

    /// Opens a gateway, which ends after so many calls of its hosts, or of its log.
    pub fn open(&mut self, calls: u64) -> Result<Gateway> {
        let lease = self.log.as_deref().map(|log| self.take(log)).transpose()?;
        let gateway = self.open_with(lease.as_ref(), calls)?;
        if let Some(log) = &self.log
            && calls < u64::MAX
            && self.rng.below(2) == 0
        {
            log.contents().left = 1 + self.rng.below(800);
        }
        Ok(gateway)
    }

    /// Opens a gateway under a lease.
    pub fn open_under(&mut self, lease: &Arc<StateLease>) -> Result<Gateway> {
        self.open_with(Some(lease), u64::MAX)
    }

    fn open_with(&mut self, lease: Option<&Arc<StateLease>>, calls: u64) -> Result<Gateway> {
        let keys = lease.map_or(&self.keys, |lease| lease.keys());
        let shared = keys.shared(&self.params, Choice::Benes);
        let left = Arc::new(AtomicU64::new(calls));
        let mut hosts = Vec::new();
        for store in &self.stores {
            let nonce = self.rng.next_u64().to_le_bytes().repeat(2).try_into().unwrap();
            let (host, own) = InProcess::start(&shared, store.clone(), &nonce, &mut self.rng)?;
            let last_takes_effect = self.rng.below(2) == 0;
            let (left, observed) = (left.clone(), self.observed.clone());
            let host = Arc::new(Mortal { host, left, last_takes_effect, observed });
            hosts.push(ConnectedHost { host, session: (nonce, own) });
        }
        let anchor = self.anchor.as_deref();
        let durability = Durability::Process;
        let folder = StateLocation { folder: self.folder.path(), durability, anchor };
        let home = lease.map_or(&folder as &dyn OpenState, |lease| lease);
        let rng = Box::new(SeededRng::drawn(&mut self.rng));
        let (params, hosts) = (self.params, (hosts, None));
        let mut gateway =
            Gateway::open_divided(params, keys, Choice::Benes, hosts, Some(home), rng)?;
        if self.beats {
            gateway.constant_rate =
                Some(ConstantRate::new(1000, 1, Arc::new(SimulatedClock::default()), 0));
        }
        Ok(gateway)
    }

    /// Takes the lease, after the last gateway has ended.
    pub fn take(&self, log: &MemoryLog) -> Result<Arc<StateLease>> {
        log.contents().left = u64::MAX;
        self.taking()()
    }

    /// What takes the lease once it is called.
    pub fn taking(&self) -> impl Fn() -> Result<Arc<StateLease>> + Send + use<> {
        let log = self.log.clone().expect("the state is in a log");
        let (master, anchor, period) = (self.master.clone(), self.anchor.clone(), self.period);
        move || {
            let options = LeaseOptions {
                master: &master,
                period,
                anchor: anchor.clone(),
                stands_by: true,
                is_stopped: &|| false,
                on_wait: &|| {},
            };
            let taken = StateLease::take_with(log.clone(), &options, Arc::new(BootClock))?;
            Ok(taken.expect("it was not stopped"))
        }
    }

    /// A world with its tree divided among hosts.
    fn divided(partitions: usize, seed: u64) -> Self {
        let mut world = Self::new(BLOCKS, seed);
        world.add_hosts(partitions - 1);
        world
    }

    /// The next gateways have so many hosts more.
    pub fn add_hosts(&mut self, count: usize) {
        let geometry = self.params.geometry;
        self.stores.extend((0..count).map(|_| Arc::new(MemStore::new(geometry))));
    }

    /// Adds a host over a store.
    pub fn add_store(&mut self, store: Arc<MemStore>) {
        self.stores.push(store);
    }

    /// Removes the last host.
    pub fn remove_host(&mut self) -> Arc<MemStore> {
        self.stores.pop().unwrap()
    }

    /// How many commits the hosts have made.
    fn commits(&self) -> u64 {
        let of_store = |store: &Arc<MemStore>| crate::block_on::block_on(store.sequence()).unwrap();
        self.stores.iter().map(of_store).sum()
    }

    /// Appends half a record to the log, like an interrupted write.
    fn tear(&mut self) {
        // A storage engine stores an entry as a whole.
        if self.log.is_some() {
            return;
        }
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end != "new") {
                let mut bytes = std::fs::read(&path).unwrap();
                bytes.extend_from_slice(&[200, 0, 0, 0, 1, 2, 3]);
                std::fs::write(&path, bytes).unwrap();
            }
        }
    }
}

#[test]
fn no_acknowledged_write_is_lost() {
    loses_nothing(World::new(BLOCKS, 21));
    loses_nothing(World::of(Params::printed(BLOCKS, BLOCK, 4).unwrap(), 22));
}

#[test]
fn no_acknowledged_write_is_lost_at_several_hosts() {
    for (partitions, seed) in [(2, 24), (3, 25), (8, 26)] {
        loses_nothing(World::divided(partitions, seed));
    }
    loses_nothing(World { beats: true, ..World::divided(3, 27) });
}

#[test]
fn no_acknowledged_write_is_lost_while_trees_move() {
    for (hosts_later, seed) in [(vec![2], 28), (vec![2, 3, 5, 8], 29)] {
        // Trees have several nodes each.
        loses_nothing(World { hosts_later, ..World::new(5 * BLOCKS, seed) });
    }
}

/// The state is in a log that several gateways reach.
#[test]
fn no_acknowledged_write_is_lost_under_a_lease() {
    loses_nothing(World::new(BLOCKS, 34).leased());
    loses_nothing(World::divided(3, 35).leased());
    loses_nothing(World { beats: true, ..World::new(BLOCKS, 36).leased() });
    loses_nothing(World { hosts_later: vec![2, 3], ..World::new(5 * BLOCKS, 37).leased() });
}

/// At a constant rate an answer waits until its record is written with a tick.
#[test]
fn no_acknowledged_write_is_lost_at_a_constant_rate() {
    loses_nothing(World { beats: true, ..World::new(BLOCKS, 23) });
}

/// Fills ticks until the record of a deferred acknowledgement is written.
fn kept(gateway: &mut Gateway) -> Result {
    let Some(record) = gateway.deferred_ack() else { return Ok(()) };
    while !is_written_or_failed(gateway, record) {
        gateway.fill_tick()?;
    }
    gateway.ensure_written(record)
}

/// More blocks than wait at the gateway, so that the host receives queries.
const BLOCKS: u64 = 2000;

fn loses_nothing(mut world: World) {
    let blocks = world.params.blocks;
    let mut array = vec![vec![0; BLOCK]; blocks as usize];
    let mut rng = SeededRng::new(22);
    let mut commits = 0;
    for life in 0..100 {
        if life % 10 == 9
            && let Some(hosts) = world.hosts_later.get(life as usize / 10)
        {
            world.add_hosts(hosts - world.stores.len());
        }
        let calls = if rng.below(3) == 0 { rng.below(12) } else { rng.below(300) };
        let mut gateway = world.open(calls + 1).unwrap();
        for version in 0..1000 {
            let id = rng.below(blocks);
            let bytes = block(id, life * 1000 + version);
            if gateway.move_step().is_err() {
                break;
            }
            if rng.below(3) > 0 {
                if gateway.put(id, &bytes).and_then(|()| kept(&mut gateway)).is_err() {
                    // The write was not acknowledged, so both contents are allowed.
                    drop(gateway);
                    let mut next = world.open(u64::MAX).unwrap();
                    let found = next.get(id).unwrap();
                    assert!(found == bytes || found == array[id as usize]);
                    array[id as usize] = found;
                    break;
                }
                array[id as usize] = bytes;
            } else {
                match gateway.get(id) {
                    Ok(found) => assert!(found == array[id as usize], "life {life}, {id}"),
                    Err(_) => break,
                }
            }
        }
        if rng.below(2) == 0 {
            world.tear();
        }
        commits = world.commits();
    }
    assert!(commits > 30, "{commits}");
    let mut gateway = world.open(u64::MAX).unwrap();
    for id in 0..blocks {
        assert!(gateway.get(id).unwrap() == array[id as usize], "{id}");
        gateway.move_step().unwrap();
    }
    assert_eq!(gateway.tree_counts().len(), world.stores.len());
    assert!(!gateway.has_moves() || world.beats);
    drop(gateway);
    // A query without a reply is sent again unchanged. No other slot is read twice.
    let mut observed = world.observed.lock().unwrap().clone();
    let sent = observed.len();
    observed.dedup();
    assert!(observed.len() < sent, "some were sent again");
    let g = world.params.geometry;
    let mut slots = HashSet::new();
    for (leaf, locations) in &observed {
        for (layer, location) in locations.iter().enumerate() {
            assert!(slots.insert((g.node(layer, *leaf), *location)), "a slot is read twice");
        }
    }
}

/// Each write of an unanswered batch may have happened or not.
#[test]
fn batched_writes_survive_the_gateway() {
    const BLOCKS: u64 = 1500;
    let mut world = World::new(BLOCKS, 31);
    let mut array = vec![vec![0; BLOCK]; BLOCKS as usize];
    let mut rng = SeededRng::new(32);
    for life in 0..40 {
        let mut gateway = world.open(1 + rng.below(400)).unwrap();
        for version in 0..20 {
            let first = rng.below(BLOCKS - 100);
            let ids = first..first + 1 + rng.below(100);
            let blocks: Vec<Vec<u8>> =
                ids.clone().map(|id| block(id, life * 100 + version)).collect();
            let puts: Vec<(u64, &[u8])> =
                ids.clone().zip(&blocks).map(|(id, block)| (id, &block[..])).collect();
            if gateway.put_many(&puts).is_ok() {
                array.splice(ids.start as usize..ids.end as usize, blocks);
                continue;
            }
            drop(gateway);
            let mut next = world.open(u64::MAX).unwrap();
            for (id, written) in ids.zip(blocks) {
                let found = next.get(id).unwrap();
                assert!(found == written || found == array[id as usize], "{id}");
                array[id as usize] = found;
            }
            break;
        }
        if rng.below(2) == 0 {
            world.tear();
        }
    }
    let mut gateway = world.open(u64::MAX).unwrap();
    let all: Vec<u64> = (0..BLOCKS).collect();
    assert!(gateway.get_many(&all).unwrap() == array);
}

/// A block that is written twice at once has the second content, also after the end of the process.
#[test]
fn the_last_write_of_a_block_in_a_batch_survives() {
    let mut world = World::new(1500, 41);
    let mut gateway = world.open(u64::MAX).unwrap();
    for id in 0..1500 {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.save().unwrap();
    for id in 0..40 {
        let (first, second) = (block(id, 2), block(id, 3));
        gateway.put_many(&[(id, &first), (id, &second)]).unwrap();
        drop(gateway);
        gateway = world.open(u64::MAX).unwrap();
        assert!(gateway.get(id).unwrap() == second, "{id}");
    }
}

#[test]
fn named_values_survive_the_gateway() {
    let mut world = World::new(600, 25);
    let mut rng = SeededRng::new(26);
    let mut model = std::collections::BTreeMap::new();
    for life in 0..12_u8 {
        let mut gateway = world.open(u64::MAX).unwrap();
        for step in 0..60_u8 {
            let name = format!("name {}", rng.below(20)).into_bytes();
            if rng.below(4) == 0 {
                let had = model.remove(&name).is_some();
                assert_eq!(gateway.remove(&name).unwrap(), had);
            } else {
                let value = vec![life.wrapping_mul(60) ^ step; rng.below(400) as usize];
                gateway.store(&name, &value, &[step]).unwrap();
                model.insert(name, value);
            }
        }
        for number in 0..20 {
            let name = format!("name {number}").into_bytes();
            assert!(gateway.load(&name).unwrap() == model.get(&name).cloned());
            let len = model.get(&name).map(|value| value.len() as u64);
            assert_eq!(gateway.find(Namespace::Values, &name).map(Object::len), len);
        }
        let names: Vec<Vec<u8>> = model.keys().cloned().collect();
        let found =
            gateway.names_from(Namespace::Values, Bound::Unbounded).map(|(name, _)| name.to_vec());
        assert!(found.eq(names.iter().cloned()) && gateway.names(Namespace::Values) == names.len());
        if life % 3 == 0 {
            gateway.save().unwrap();
        }
    }
    let mut gateway = world.open(u64::MAX).unwrap();
    assert!(matches!(
        gateway.store(b"x", &vec![0; 601 * BLOCK], b""),
        Err(Error::Full { blocks: 600 })
    ));
    assert!(matches!(gateway.store(&[0; 1025], b"", b""), Err(Error::Malformed(_))));
}

/// A transaction moves a number from one value to another one, and leaves a third as it finds it.
/// Whenever the gateway ends, the sum is the same, and an answered transaction is not lost.
#[test]
fn transactions_are_made_as_a_whole_or_not_at_all() {
    let (mut world, mut rng) = (World::new(600, 51), SeededRng::new(52));
    let values = |balance: u8| {
        [(b"a".to_vec(), vec![balance; 100]), (b"b".to_vec(), vec![200 - balance; 300])]
    };
    let (mut balance, mut committed, mut failed) = (0, 0, 0);
    let mut gateway = world.open(u64::MAX).unwrap();
    for (name, value) in values(balance) {
        gateway.store(&name, &value, b"").unwrap();
    }
    drop(gateway);
    for life in 0..60 {
        let mut gateway = world.open(1 + rng.below(120)).unwrap();
        let used = gateway.blocks_used();
        for step in 0..30_u8 {
            let next = (balance + 1 + step) % 200;
            let done = gateway.transact(|gateway| {
                for (name, value) in values(next) {
                    gateway.store(&name, &[7; 50], b"")?;
                    gateway.store(&name, &value, b"")?;
                }
                gateway.store(b"c", b"x", b"")?;
                gateway.note(Namespace::Values, b"c", b"note")?;
                assert!(gateway.load(b"a")?.is_some());
                gateway.remove(b"c")?;
                if rng.below(3) == 0 { Err(Error::Malformed("planned")) } else { Ok(()) }
            });
            match done {
                Ok(()) => (balance, committed) = (next, committed + 1),
                Err(Error::Malformed("planned")) => {
                    failed += 1;
                    let [(name, value), _] = values(balance);
                    let object = gateway.find(Namespace::Values, &name).unwrap();
                    assert_eq!(object.len(), value.len() as u64);
                    assert!(gateway.find(Namespace::Values, b"c").is_none());
                }
                Err(_) => {
                    drop(gateway);
                    gateway = world.open(u64::MAX).unwrap();
                    let found = gateway.load(b"a").unwrap().unwrap()[0];
                    assert!(found == balance || found == next, "{life} {step}");
                    balance = found;
                    break;
                }
            }
        }
        drop(gateway);
        if rng.below(2) == 0 {
            world.tear();
        }
        let mut gateway = world.open(u64::MAX).unwrap();
        for (name, value) in values(balance) {
            assert!(gateway.load(&name).unwrap().unwrap() == value, "{life}");
        }
        assert_eq!((gateway.names(Namespace::Values), gateway.blocks_used()), (2, used));
        if life % 7 == 0 {
            gateway.save().unwrap();
        }
    }
    assert!(committed > 50 && failed > 50, "{committed} {failed}");
}

/// A panic in a transaction takes its changes back, and later writes are not gathered with them.
#[test]
fn a_panic_ends_a_transaction() {
    let mut world = World::new(600, 53);
    let mut gateway = world.open(u64::MAX).unwrap();
    gateway.store(b"a", b"before", b"").unwrap();
    let panicked = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        gateway.transact(|gateway| {
            gateway.store(b"a", b"within", b"").unwrap();
            panic!("planned");
            #[expect(unreachable_code, reason = "it names the type of the work")]
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(gateway.load(b"a").unwrap().unwrap(), b"before");
    gateway.store(b"b", b"after", b"").unwrap();
    drop(gateway);
    let mut gateway = world.open(u64::MAX).unwrap();
    assert_eq!(gateway.load(b"a").unwrap().unwrap(), b"before");
    assert_eq!(gateway.load(b"b").unwrap().unwrap(), b"after");
}

#[test]
fn uploads_and_notes_survive_the_gateway() {
    let mut world = World::new(600, 27);
    let (mut gateway, mut want) = (world.open(u64::MAX).unwrap(), Vec::new());
    gateway.bind(Namespace::Uploads, b"u", None, b"begun").unwrap();
    for (number, len) in [(1_u8, 1000), (2, 0), (3, 64), (4, 65)] {
        let mut draft = Draft::default();
        let bytes: Vec<u8> = (0..len).map(|i| i as u8 ^ number).collect();
        for part in bytes.chunks(37) {
            gateway.append(&mut draft, part).unwrap();
        }
        gateway.bind(Namespace::Uploads, &[b'u', b'/', number], Some(draft), b"").unwrap();
        if number != 3 {
            want.extend(bytes);
        }
    }
    drop(gateway);
    let mut gateway = world.open(u64::MAX).unwrap();
    assert_eq!(gateway.find(Namespace::Uploads, b"u").unwrap().note(), b"begun");
    let parts = [1, 2, 4].map(|number| vec![b'u', b'/', number]).to_vec();
    let mut changes = NameChanges::default();
    changes.join(b"u", parts, b"b/j", b"first");
    changes.bind(Namespace::Objects, b"b/old", None, b"gone");
    changes.rename(Namespace::Objects, b"b/j", b"b/k");
    changes.unbind(Namespace::Objects, b"b/old");
    gateway.change_names(changes).unwrap();
    assert!(gateway.names(Namespace::Objects) == 1, "b/j has another name and b/old is gone");
    gateway.note(Namespace::Objects, b"b/k", b"second").unwrap();
    let used = gateway.blocks_used();
    drop(gateway);
    for life in 0..2 {
        let mut gateway = world.open(u64::MAX).unwrap();
        assert_eq!((gateway.names(Namespace::Uploads), gateway.blocks_used()), (0, used), "{life}");
        assert_eq!(gateway.names(Namespace::Objects), 1, "{life}");
        let object = gateway.find(Namespace::Objects, b"b/k").unwrap().clone();
        assert_eq!((object.note(), object.pieces()), (&b"second"[..], &[1000, 0, 65][..]));
        for bytes in [0..1065, 999..1001, 1000..1000, 63..64, 1064..1065] {
            let mut reading = ByteRange::new(object.clone(), bytes.clone());
            let mut read = Vec::new();
            while !reading.is_done() {
                read.extend(gateway.read(&mut reading, 100).unwrap());
            }
            assert_eq!(read, want[bytes.start as usize..bytes.end as usize]);
        }
    }
}

#[test]
fn a_restored_folder_is_refused() {
    let mut world = World::new(400, 23);
    let mut gateway = world.open(u64::MAX).unwrap();
    gateway.save().unwrap();
    let state = std::fs::read_dir(world.folder.path()).unwrap();
    let path = |end: &str| world.folder.path().join(end);
    let old: Vec<_> = state
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("state."))
        .map(|name| (name.clone(), std::fs::read(path(&name)).unwrap()))
        .collect();
    assert!(world.open(u64::MAX).is_err(), "one gateway at a time");
    for id in 0..400 {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.save().unwrap();
    drop(gateway);
    let newest = std::fs::read_dir(world.folder.path()).unwrap();
    for entry in newest.map(|entry| entry.unwrap().path()) {
        std::fs::remove_file(entry).unwrap();
    }
    for (name, bytes) in old {
        std::fs::write(world.folder.path().join(name), bytes).unwrap();
    }
    assert!(matches!(world.open(u64::MAX), Err(Error::RolledBack { gateway: 0, .. })));
}

/// The planted fault: queries that are not recorded before they are sent, which a restored folder
/// simulates. Slots are then read again, and the test above would notice.
#[test]
fn losing_query_records_would_read_slots_twice() {
    let mut world = World::new(2000, 27);
    let mut gateway = world.open(u64::MAX).unwrap();
    // Half a round more than whole ones, so that no round ends before the folder is restored.
    let rounds = 2000 / world.params.round_blocks - 1;
    for id in 0..(rounds * world.params.round_blocks + world.params.round_blocks / 2) as u64 {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.save().unwrap();
    let files =
        || std::fs::read_dir(world.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let saved: Vec<_> = files().map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect();
    let before = world.observed.lock().unwrap().len();
    for id in 0..30 {
        gateway.get(id).unwrap();
    }
    drop(gateway);
    for path in files() {
        std::fs::remove_file(path).unwrap();
    }
    for (path, bytes) in saved {
        std::fs::write(path, bytes).unwrap();
    }
    let mut gateway = world.open(u64::MAX).unwrap();
    for id in 0..30 {
        gateway.get(id).unwrap();
    }
    let (g, mut slots, mut twice) = (world.params.geometry, HashSet::new(), 0);
    for (leaf, locations) in &world.observed.lock().unwrap()[before..] {
        for (layer, location) in locations.iter().enumerate() {
            twice += usize::from(!slots.insert((g.node(layer, *leaf), *location)));
        }
    }
    assert!(twice >= 30, "{twice}");
}

fn is_written_or_failed(gateway: &Gateway, record: u64) -> bool {
    gateway.written_records().is_none_or(|written| written >= record)
}
