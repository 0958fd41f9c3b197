//! A process with copied memory, like a machine that is resumed twice from one snapshot: both
//! copies continue with the same keys, counters and random streams, each with its own data. No
//! nonce of a key may ever be used for two contents.

use super::*;
use crate::enclave::DamagedSlots;
use crate::enclave::{Evictor, NodeBytes, Querier};
use crate::host::{DamagedSlot, Enclave, HostedStore};
use crate::random::SystemStream;
use std::collections::{HashMap, HashSet, VecDeque};
use traceless_core::rng::{Rng, Salt, System};
use traceless_core::seal::record::{self, SealRecord};

const BLOCKS: u64 = 3000;
const WRITES: u64 = 500;

/// An enclave that runs on its caller's thread, so that its seals are recorded there.
struct Recorded {
    querier: Mutex<Querier>,
    evictor: Mutex<Evictor>,
}

impl Enclave for Recorded {
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>> {
        self.querier.lock().unwrap().query(&mut order.to_vec(), slots)
    }

    fn evict(&self, order: &[u8], bytes: NodeBytes<'_>) -> Result<DamagedSlots> {
        self.evictor.lock().unwrap().evict(&mut order.to_vec(), bytes)
    }
}

/// A host that collects the recorded seals of the threads that make rounds and leaves.
struct Recorder {
    host: HostedStore<MemStore, Recorded>,
    sealed: Arc<Mutex<Vec<SealRecord>>>,
}

impl Recorder {
    fn take(&self) {
        self.sealed.lock().unwrap().extend(record::take());
        record::start();
    }
}

impl Host for Recorder {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        self.host.query(request)
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        let staged = self.host.stage(stage);
        self.take();
        staged
    }

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.take();
        self.host.place(version, bytes)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.host.commit(sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        self.host.sequence()
    }
}

/// All seals of a copy after the moment of copying. All copies have the same keys, session and
/// randomness, except for fresh random numbers. The first seal of a thread is not recorded.
fn sealed_by(copy: u64, mut rng: Box<dyn Rng>, is_filled: bool) -> Vec<SealRecord> {
    record::start();
    let params = params(BLOCKS);
    let keys = Keys::new(&Secret::from_bytes([77; 32]), &[7; 16]);
    let (nonce, own) = ([3; 16], [4; 16]);
    let shared = keys.shared(&params, Choice::Benes);
    let session = shared.session(&nonce, &own);
    let enclave = Recorded {
        querier: Mutex::new(Querier::new(&shared, &session, rng.fork())),
        evictor: Mutex::new(Evictor::new(&shared, &session).unwrap()),
    };
    let host = HostedStore::new(params.geometry, MemStore::new(params.geometry), enclave);
    let sealed: Arc<Mutex<Vec<SealRecord>>> = Arc::default();
    let host = Arc::new(Recorder { host, sealed: sealed.clone() });
    let folder = tempfile::tempdir().unwrap();
    let home =
        StateLocation { folder: folder.path(), durability: Durability::Process, anchor: None };
    let session = (&nonce, &own);
    let mut gateway =
        Gateway::open(params, &keys, Choice::Benes, host, session, Some(&home), rng).unwrap();
    if is_filled {
        gateway.fill(&|id, bytes| bytes[..8].copy_from_slice(&(id + copy).to_le_bytes())).unwrap();
    }
    // Each block twice: the first replies hold blocks that were never written, the same in all
    // copies.
    for id in (0..WRITES).chain(0..WRITES) {
        gateway.put(id * 7 % BLOCKS, &block(id, copy)).unwrap();
    }
    assert!(gateway.counts().rounds > 2);
    gateway.close().unwrap();
    drop(gateway);
    sealed.lock().unwrap().extend(record::take());
    Arc::into_inner(sealed).unwrap().into_inner().unwrap()
}

/// The keys with a nonce that was used for two contents, and the number of seals.
fn repeated(all: impl Iterator<Item = SealRecord>) -> (HashSet<u64>, usize) {
    let (mut tags, mut keys, mut seals) = (HashMap::new(), HashSet::new(), 0);
    for SealRecord { key, nonce, tag } in all {
        seals += 1;
        if *tags.entry((key, nonce)).or_insert(tag) != tag {
            keys.insert(key);
        }
    }
    (keys, seals)
}

#[test]
fn process_copies_use_no_nonce_twice() {
    for is_filled in [false, true] {
        let copy = |number| sealed_by(number, Box::new(SystemStream::of_copy()), is_filled);
        let (keys, seals) = repeated(copy(1).into_iter().chain(copy(2)));
        assert!(keys.is_empty(), "{} keys", keys.len());
        assert!(seals > 5000, "{seals}");
    }
}

/// The planted fault: a random source that draws some salts from a stream that copies share.
struct Partly {
    stream: SeededRng,
    shares: bool,
    /// For each fork of this source, in order: whether it shares its salts.
    forks: VecDeque<bool>,
}

impl Partly {
    /// A source that shares the salts of one of the places of use.
    fn new(place: usize) -> Self {
        let mut forks: VecDeque<bool> = (0..PLACES).map(|other| other == place).collect();
        let shares = forks.pop_front().unwrap();
        Self { stream: SeededRng::new(5), shares, forks }
    }
}

impl Rng for Partly {
    fn fill(&mut self, out: &mut [u8]) {
        self.stream.fill(out);
    }

    fn salt(&mut self) -> Salt {
        if self.shares { Salt(self.stream.next_u64()) } else { System.salt() }
    }

    fn fork(&mut self) -> Box<dyn Rng> {
        let shares = self.forks.pop_front().unwrap_or(false);
        Box::new(Self {
            stream: SeededRng::drawn(&mut self.stream),
            shares,
            forks: VecDeque::new(),
        })
    }
}

/// The users of salts: attempts, which make the keys of rounds and nodes; replies; the state's log;
/// orders for rounds; queries.
const PLACES: usize = 5;

#[test]
fn salts_shared_by_process_copies_are_detected() {
    let keys: Vec<usize> = (0..PLACES)
        .map(|place| {
            let copy = |number| sealed_by(number, Box::new(Partly::new(place)), false);
            repeated(copy(1).into_iter().chain(copy(2))).0.len()
        })
        .collect();
    assert!(keys[0] > 10 && keys[1..].iter().all(|&count| count == 1), "{keys:?}");
    let copy = |number| sealed_by(number, Box::new(Partly::new(PLACES)), false);
    assert!(repeated(copy(1).into_iter().chain(copy(2))).0.is_empty(), "no other fault");
}
