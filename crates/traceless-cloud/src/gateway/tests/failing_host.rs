//! A host that fails as a test plans it.

use super::*;
use crate::block_on::block_on;
use crate::channel::Nonce;
use crate::store::CopyableStore;
use std::path::Path;

/// A gateway's calls of its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Query,
    Stage,
    Commit,
    Node,
    Place,
}

/// A host over a store that outlives its sessions. After a session is lost all calls fail until the
/// next one begins.
pub struct Planned {
    host: Mutex<Arc<InProcess<Arc<MemStore>>>>,
    store: Arc<MemStore>,
    shared: Shared,
    rng: Mutex<SeededRng>,
    is_lost: AtomicBool,
    /// The call that loses the session, and whether the call takes effect.
    pub loses: Mutex<Option<(Call, bool)>>,
    /// The error of all stages.
    pub stage_error: Mutex<Option<Error>>,
    /// The error of all commits, and whether they take effect.
    pub commit_error: Mutex<Option<(Error, bool)>>,
    /// How many stages were called.
    pub stages: AtomicU64,
    /// A slot that all stages report as damaged.
    pub reported: Mutex<Option<DamagedSlot>>,
    /// Whether nodes that the gateway places are changed.
    pub damages_placed: AtomicBool,
    /// Keeps stages from returning while it is set.
    pub blocks_stages: AtomicBool,
    /// The opening that has taken over the store.
    pub newest: Mutex<Option<u64>>,
    /// The reported number of the last commit; `None` for the true one.
    pub sequence: Mutex<Option<u64>>,
}

impl Planned {
    fn call<T>(&self, call: Call, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.loses.lock().unwrap().is_some_and(|(loses, _)| loses == call) {
            let (_, takes_effect) = self.loses.lock().unwrap().take().unwrap();
            if takes_effect {
                work()?;
            }
            self.is_lost.store(true, Ordering::SeqCst);
            self.blocks_stages.store(false, Ordering::SeqCst);
            return Err(Error::SessionLost);
        }
        if self.is_lost.load(Ordering::SeqCst) { Err(Error::SessionLost) } else { work() }
    }

    /// Damages a slot of a version.
    pub fn damage(&self, version: NodeVersion, slot: u32) {
        let (g, store) = (self.shared.geometry, &self.store);
        let mut bytes = vec![0; g.node_len(g.layer_of(version.node))];
        block_on(store.read_node(version, &mut bytes)).unwrap();
        bytes[slot as usize * g.slot_len() + 3] ^= 1;
        block_on(store.stage(version, &bytes)).unwrap();
        let sequence = block_on(store.sequence()).unwrap();
        block_on(store.restore(sequence, &[version])).unwrap();
    }

    fn host(&self) -> Arc<InProcess<Arc<MemStore>>> {
        self.host.lock().unwrap().clone()
    }
}

impl Host for Planned {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        self.call(Call::Query, || self.host().query(request))
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        self.stages.fetch_add(1, Ordering::SeqCst);
        while self.blocks_stages.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(error) = self.stage_error.lock().unwrap().take() {
            return Err(error);
        }
        let mut damage = self.call(Call::Stage, || self.host().stage(stage))?;
        damage.extend(*self.reported.lock().unwrap());
        Ok(damage)
    }

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        let mut bytes = bytes.to_vec();
        bytes[5] ^= u8::from(self.damages_placed.load(Ordering::SeqCst));
        self.call(Call::Place, || self.host().place(version, &bytes))
    }

    fn node(&self, version: NodeVersion) -> Result<Vec<u8>> {
        self.call(Call::Node, || self.host().node(version))
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        if let Some((error, takes_effect)) = self.commit_error.lock().unwrap().clone() {
            if takes_effect {
                self.host().commit(sequence, versions)?;
            }
            return Err(error);
        }
        self.call(Call::Commit, || self.host().commit(sequence, versions))
    }

    fn sequence(&self) -> Result<u64> {
        self.sequence.lock().unwrap().map_or_else(|| self.host().sequence(), Ok)
    }

    fn renew(&self) -> Result<(Nonce, Nonce)> {
        let mut rng = self.rng.lock().unwrap();
        let nonce = rng.next_u64().to_le_bytes().repeat(2).try_into().unwrap();
        let (host, own) = InProcess::start(&self.shared, self.store.clone(), &nonce, &mut *rng)?;
        *self.host.lock().unwrap() = Arc::new(host);
        self.is_lost.store(false, Ordering::SeqCst);
        Ok((nonce, own))
    }

    fn check(&self) -> Result {
        self.newest.lock().unwrap().map_or(Ok(()), |newest| Err(Error::Fenced { own: 1, newest }))
    }
}

/// A gateway to an empty tree, with its state in `folder` if given, and its host. The keys are
/// always the same.
pub fn planned(params: Params, folder: Option<&Path>) -> (Gateway, Arc<Planned>) {
    let (gateway, mut hosts) = planned_at(1, params, folder);
    (gateway, hosts.remove(0))
}

/// The same with a tree that is divided among `count` hosts.
pub fn planned_at(
    count: usize,
    params: Params,
    folder: Option<&Path>,
) -> (Gateway, Vec<Arc<Planned>>) {
    let mut rng = SeededRng::new(70);
    let keys = keys();
    let shared = keys.shared(&params, Choice::Benes);
    let (mut hosts, mut connected) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (nonce, store) = ([3; 16], Arc::new(MemStore::new(params.geometry)));
        let (host, own) = InProcess::start(&shared, store.clone(), &nonce, &mut rng).unwrap();
        let host = Arc::new(Planned {
            host: Mutex::new(Arc::new(host)),
            store,
            shared: keys.shared(&params, Choice::Benes),
            rng: Mutex::new(SeededRng::new(71 + number as u64)),
            is_lost: AtomicBool::new(false),
            loses: Mutex::default(),
            stage_error: Mutex::default(),
            commit_error: Mutex::default(),
            stages: AtomicU64::new(0),
            reported: Mutex::default(),
            damages_placed: AtomicBool::new(false),
            blocks_stages: AtomicBool::new(false),
            newest: Mutex::default(),
            sequence: Mutex::default(),
        });
        hosts.push(host.clone());
        connected.push(ConnectedHost { host, session: (nonce, own) });
    }
    let home = |folder| StateLocation { folder, durability: Durability::Process, anchor: None };
    let (home, rng) = (folder.map(home), Box::new(rng));
    let connected = (connected, None);
    let home = home.as_ref().map(|home| home as &dyn OpenState);
    let opened = Gateway::open_divided(params, &keys, Choice::Benes, connected, home, rng);
    (opened.unwrap(), hosts)
}

/// The keys of these gateways.
pub fn keys() -> Keys {
    Keys::new(&Secret::from_bytes([70; 32]), &[7; 16])
}

/// A job without nodes, which a host carries out like any other.
pub fn no_job() -> RoundJob {
    RoundJob {
        round: 0,
        attempt: 1,
        sequence: 1,
        nodes: Vec::new(),
        batch: None,
        zeroed: Vec::new(),
    }
}

/// Fails if work does not end within ten seconds.
pub fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(10)).expect("it ends well");
}
