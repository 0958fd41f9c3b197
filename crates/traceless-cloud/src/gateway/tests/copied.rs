//! A process whose memory is copied, as a machine is that is resumed twice from one snapshot: both
//! copies go on with the same keys, counts and streams, each with data of its own. No nonce of a
//! key ever covers two contents.

use super::*;
use crate::enclave::{Evictor, NodeBytes, Querier};
use crate::host::{Enclave, HostedStore};
use crate::random::SystemStream;
use std::collections::{HashMap, HashSet, VecDeque};
use traceless::rng::{Rng, Salt, System};
use traceless::seal::record::{self, SealRecord};

const BLOCKS: u64 = 3000;
const WRITES: u64 = 500;

/// An enclave that works on whatever thread asks it, so that what it seals is recorded there.
struct Recorded {
    querier: Mutex<Querier>,
    evictor: Mutex<Evictor>,
}

impl Enclave for Recorded {
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>> {
        self.querier.lock().unwrap().query(&mut order.to_vec(), slots)
    }

    fn evict(&self, order: &[u8], bytes: NodeBytes<'_>) -> Result {
        self.evictor.lock().unwrap().evict(&mut order.to_vec(), bytes)
    }
}

/// A host that takes down what the threads sealed that rounds and leaves are made on.
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
    fn query(&self, ask: &Ask) -> Result<Vec<u8>> {
        self.host.query(ask)
    }

    fn stage(&self, stage: &Stage) -> Result {
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

/// What a copy seals, from the moment on at which it was copied: with the same keys and session,
/// and the same randomness but for what is drawn anew. The first time that a thread seals is not
/// recorded.
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
    let home = Home { folder: folder.path(), durability: Durability::Process, anchor: None };
    let session = (&nonce, &own);
    let mut gateway =
        Gateway::open(params, &keys, Choice::Benes, host, session, Some(&home), rng).unwrap();
    if is_filled {
        gateway.fill(&|id, bytes| bytes[..8].copy_from_slice(&(id + copy).to_le_bytes())).unwrap();
    }
    // Each twice: replies to the first hold what was never written, the same in all copies.
    for id in (0..WRITES).chain(0..WRITES) {
        gateway.put(id * 7 % BLOCKS, &block(id, copy)).unwrap();
    }
    assert!(gateway.counts().rounds > 2);
    gateway.close().unwrap();
    drop(gateway);
    sealed.lock().unwrap().extend(record::take());
    Arc::into_inner(sealed).unwrap().into_inner().unwrap()
}

/// Keys of which one nonce covers two contents, and how many seals there were.
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
fn copies_of_a_process_use_no_nonce_twice() {
    for is_filled in [false, true] {
        let copy = |number| sealed_by(number, Box::new(SystemStream::of_copy()), is_filled);
        let (keys, seals) = repeated(copy(1).into_iter().chain(copy(2)));
        assert!(keys.is_empty(), "{} keys", keys.len());
        assert!(seals > 5000, "{seals}");
    }
}

/// A source of which some salts come from a stream, which a copy shares: the planted fault.
struct Partly {
    stream: SeededRng,
    shares: bool,
    /// Whether the sources that are made of this one do so, in order.
    forks: VecDeque<bool>,
}

impl Partly {
    /// Of all places that draw salts, the one of this number shares them.
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

/// Attempts, which make keys of rounds and of nodes; replies; the state's log; orders for rounds;
/// queries.
const PLACES: usize = 5;

#[test]
fn salts_that_copies_share_would_be_found() {
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
