//! Gateway and host in one process, with all their files in one folder.
//!
//! The enclave runs the same code as a protected one, but protects nothing: anyone in control of
//! the machine can read its memory.
//!
//! A value is still there when the folder is opened again:
//!
//! ```
//! use traceless_cloud::Result;
//! use traceless_cloud::gateway::Gateway;
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::local_deployment::LocalDeployment;
//! use traceless_cloud::params::Params;
//! use traceless_cloud::store::Durability;
//! use traceless_cloud::tee::Policy;
//!
//! # fn main() -> Result {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let params = Params::new(1000, 64, 32)?;
//! let open = || -> Result<Gateway> {
//!     let local = LocalDeployment::new(folder, None, None, Policy::Simulated);
//!     Ok(local.open(params, Choice::Benes, Durability::Process)?.gateway)
//! };
//! let mut gateway = open()?;
//! gateway.store(b"ann", b"blue", b"")?;
//! gateway.close()?;
//! drop(gateway);
//! assert_eq!(open()?.load(b"ann")?.as_deref(), Some(&b"blue"[..]));
//! # Ok(())
//! # }
//! ```

use crate::block_on::block_on;
use crate::channel::Nonce;
use crate::durable::{make_folder, write_private};
use crate::error::{Error, Result};
use crate::gateway::{Gateway, Keys, OpenState, StateLease, StateLocation};
use crate::geometry::Geometry;
use crate::host::{DamagedSlot, Enclave, Host, HostedStore, QueryRequest, Stage};
use crate::host_group::{describe_enclaves, observed_hosts};
use crate::hosted_enclave::AwaitingEnclave;
use crate::kernel::Choice;
use crate::params::Params;
use crate::process::Program;
use crate::random::SystemStream;
use crate::store::{
    BoxedStore, Durability, FileStore, NodeStore as _, NodeVersion, OpenStore as _, Opening,
    StorePlace,
};
use crate::tee::{Policy, Provision, verify};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use traceless_core::rng::{Rng, System};
use traceless_core::seal::Secret;
use traceless_core::trace::Witness;

/// The configuration of a gateway and host in one folder.
pub struct LocalDeployment {
    folder: PathBuf,
    /// The master key's file; `None` for a key in the folder, beside the data.
    key_file: Option<PathBuf>,
    /// The program of the enclave's process; `None` for an enclave in this process.
    enclave: Option<Program>,
    policy: Policy,
    anchor: Option<PathBuf>,
    witness: Option<Arc<dyn Witness>>,
    /// Where the partitions of the tree are; none for files in the folder.
    stores: Vec<StorePlace>,
}

/// An open gateway, and a description of its enclave.
pub struct OpenGateway {
    /// The gateway.
    pub gateway: Gateway,
    /// A description of the gateway's enclave.
    pub enclave: String,
}

impl LocalDeployment {
    /// A folder, a file with the master key unless it lies beside the data, the program of the
    /// enclave if it has its own process, and the policy for its evidence.
    pub fn new(
        folder: &Path,
        key_file: Option<&Path>,
        enclave: Option<Program>,
        policy: Policy,
    ) -> Self {
        let (folder, key_file) = (folder.to_owned(), key_file.map(Path::to_owned));
        Self { folder, key_file, enclave, policy, anchor: None, witness: None, stores: Vec::new() }
    }

    /// Uses an anchor: a file elsewhere that records how far the gateway's state has come.
    #[must_use]
    pub fn anchored_by(self, anchor: Option<PathBuf>) -> Self {
        Self { anchor, ..self }
    }

    /// Reports to `witness`, if there is one, what the host can observe.
    #[must_use]
    pub fn watched_by(self, witness: Option<Arc<dyn Witness>>) -> Self {
        Self { witness, ..self }
    }

    /// Keeps the tree in other places than files in the folder alone. It is divided among them, in
    /// the same order at each opening.
    #[must_use]
    pub fn stored_in(self, stores: Vec<StorePlace>) -> Self {
        Self { stores, ..self }
    }

    /// The folder of the tree in `folder`, unless it is stored elsewhere.
    pub fn store_folder(folder: &Path) -> PathBuf {
        folder.join("host")
    }

    /// The folder of the gateway's own files in `folder`.
    pub fn home(folder: &Path) -> PathBuf {
        folder.join("gateway")
    }

    /// Opens the tree, or creates it.
    pub fn open(
        &self,
        params: Params,
        choice: Choice,
        durability: Durability,
    ) -> Result<OpenGateway> {
        let home = Self::home(&self.folder);
        make_folder(&home)?;
        let mut rng = SystemStream::drawn();
        let keys = read_keys(&home, self.key_file.as_deref(), &mut rng)?;
        let stores = if self.stores.is_empty() {
            let folder = Self::store_folder(&self.folder);
            let store = FileStore::open(&folder, params.geometry, durability)?;
            vec![OpenedStore { store: BoxedStore::new(store), opening: None, partition: 0 }]
        } else {
            self.open_stores(params.geometry, Opening::next(&home, &mut rng)?)?
        };
        let folder = state_folder(&home);
        let home = StateLocation { folder: &folder, durability, anchor: self.anchor.as_deref() };
        self.begin(stores, params, &keys, choice, &home)
    }

    /// Opens a tree with its state under a lease, or creates it. The tree must not be stored in
    /// the folder, which is not used. Uses the lease's own anchor.
    pub fn open_leased(
        &self,
        lease: &Arc<StateLease>,
        params: Params,
        choice: Choice,
    ) -> Result<OpenGateway> {
        lease.persist(|| {
            let stores = self.open_stores(params.geometry, lease.opening())?;
            self.begin(stores, params, lease.keys(), choice, lease)
        })
    }

    /// Begins the first sessions, and opens the gateway.
    fn begin(
        &self,
        stores: Vec<OpenedStore>,
        params: Params,
        keys: &Keys,
        choice: Choice,
        home: &dyn OpenState,
    ) -> Result<OpenGateway> {
        let provision = keys.provision(&params, choice);
        let (mut hosts, mut enclaves) = (Vec::new(), Vec::new());
        for OpenedStore { store, opening, partition } in stores {
            let host = LocalHost {
                store: Arc::new(store),
                opening,
                provision: provision.for_partition(partition),
                enclave: self.enclave.clone(),
                policy: self.policy.clone(),
                host: RwLock::default(),
                running: RwLock::default(),
            };
            let (session, what) = host.begin()?;
            enclaves.push(what);
            hosts.push((host, session));
        }
        let hosts = observed_hosts(hosts, params.geometry, self.witness.clone());
        let rng = Box::new(SystemStream::drawn());
        let gateway = Gateway::open_divided(params, keys, choice, hosts, Some(home), rng)?;
        Ok(OpenGateway { gateway, enclave: describe_enclaves(enclaves) })
    }

    /// The stores of the partitions, which other hosts reach.
    fn open_stores(&self, geometry: Geometry, opening: Opening) -> Result<Vec<OpenedStore>> {
        let open = |(partition, place): (u32, &StorePlace)| {
            let store = place.open(Geometry { partition, ..geometry }, opening)?;
            Ok(OpenedStore { store, opening: Some(opening), partition })
        };
        (0..).zip(&self.stores).map(open).collect()
    }
}

/// The store of a partition.
struct OpenedStore {
    store: BoxedStore,
    /// The opening of the gateway's state, if other hosts reach the store.
    opening: Option<Opening>,
    partition: u32,
}

/// The file of S3 access keys in a gateway's own folder. A missing file is created with one random
/// key.
#[cfg(feature = "http")]
pub fn s3_keys(home: &Path) -> Result<PathBuf> {
    make_folder(home)?;
    let path = home.join("s3-keys");
    if !path.exists() {
        let drawn = crate::s3::AccessKeys::draw(&mut System);
        write_private(&path, drawn.as_bytes())?;
    }
    Ok(path)
}

/// The folder of the state in a gateway's own folder.
pub fn state_folder(home: &Path) -> PathBuf {
    home.join("state")
}

/// The keys of the tree of an existing gateway with this folder.
pub fn existing_keys(home: &Path, key_file: Option<&Path>) -> Result<Keys> {
    let is_missing = |name: &str| !home.join(name).exists();
    if is_missing("tree") || key_file.is_none() && is_missing("key") {
        return Err(Error::Parameters("this folder is no gateway's, or its key lies elsewhere"));
    }
    read_keys(home, key_file, &mut System)
}

/// A store with an enclave of any kind.
type Serving = HostedStore<Arc<BoxedStore>, Box<dyn Enclave>>;

/// A host in the gateway's process, which can start one enclave after another.
struct LocalHost {
    store: Arc<BoxedStore>,
    /// The opening of the gateway's state, if other hosts reach the store.
    opening: Option<Opening>,
    provision: Provision,
    enclave: Option<Program>,
    policy: Policy,
    host: RwLock<Option<Arc<Serving>>>,
    /// Held by each call while it runs: no session begins beside calls of the last one.
    running: RwLock<()>,
}

impl LocalHost {
    /// Begins a session with a new enclave. Also returns the enclave's description.
    fn begin(&self) -> Result<((Nonce, Nonce), String)> {
        let mut nonce = Nonce::default();
        System.fill(&mut nonce);
        let geometry = self.provision.geometry;
        let (enclave, evidence) = AwaitingEnclave::start(self.enclave.as_ref(), &nonce)?;
        let attested = verify(&evidence, &nonce, &self.policy)?;
        let enclave = enclave.provision(&geometry, &self.provision.seal(&attested)?)?;
        let host = Arc::new(HostedStore::new(geometry, self.store.clone(), enclave));
        *self.host.write().unwrap_or_else(PoisonError::into_inner) = Some(host);
        Ok(((attested.gateway, attested.enclave), attested.what))
    }

    /// Makes a call in the current session.
    fn call<T>(&self, call: impl FnOnce(&Serving) -> Result<T>) -> Result<T> {
        let _running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        let host = self.host.read().unwrap_or_else(PoisonError::into_inner).clone();
        call(&*host.ok_or(Error::SessionLost)?)
    }
}

impl Host for LocalHost {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        self.call(|host| host.query(request))
    }

    fn query_many(&self, requests: &[QueryRequest]) -> Vec<Result<Vec<u8>>> {
        let replies = self.call(|host| Ok(host.query_many(requests)));
        replies.unwrap_or_else(|error| vec![Err(error)])
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        self.call(|host| host.stage(stage))
    }

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.call(|host| host.place(version, bytes))
    }

    fn node(&self, version: NodeVersion) -> Result<Vec<u8>> {
        self.call(|host| host.node(version))
    }

    fn keep_trees(&self, roots: &[u32]) -> Result {
        self.call(|host| host.keep_trees(roots))
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.call(|host| host.commit(sequence, versions))
    }

    fn sequence(&self) -> Result<u64> {
        self.call(Host::sequence)
    }

    fn renew(&self) -> Result<(Nonce, Nonce)> {
        let _all_done = self.running.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(opening) = self.opening {
            block_on(self.store.admit(opening))?;
        }
        self.begin().map(|(nonces, _)| nonces)
    }
}

/// The keys of the tree, from the gateway's own folder `home`.
pub(crate) fn read_keys(home: &Path, key_file: Option<&Path>, rng: &mut dyn Rng) -> Result<Keys> {
    let master = match key_file {
        Some(path) => read_secret(path)?,
        None => secret_at(&home.join("key"), rng)?,
    };
    let tree = secret_at(&home.join("tree"), rng)?;
    let tree = tree.bytes().first_chunk().expect("a half of it");
    Ok(Keys::new(&master, tree))
}

/// The random bytes in a file that only its owner may read. A missing file is created.
fn secret_at(path: &Path, rng: &mut dyn Rng) -> Result<Secret> {
    if !path.exists() {
        write_private(path, Secret::random(rng).bytes())?;
    }
    read_secret(path)
}

/// The master key, or another secret of 32 bytes, in a file.
pub fn read_secret(path: &Path) -> Result<Secret> {
    let bytes = std::fs::read(path)?;
    let key = bytes.try_into().map_err(|_| Error::Parameters("a key file has 32 bytes"))?;
    Ok(Secret::from_bytes(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_reopens_under_its_own_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let params = Params::new(500, 64, 4).unwrap();
        let local =
            |key: Option<&Path>| LocalDeployment::new(folder.path(), key, None, Policy::Simulated);
        let open = |local: LocalDeployment| {
            local.open(params, Choice::Benes, Durability::Process).map(|opened| opened.gateway)
        };
        for version in 0..3_u8 {
            let mut gateway = open(local(None)).unwrap();
            for i in 0..200_u8 {
                let value = gateway.load(&[i]).unwrap();
                assert!(version == 0 || value.unwrap() == [version - 1; 70]);
                gateway.store(&[i], &[version; 70], b"").unwrap();
            }
        }
        let other = folder.path().join("other key");
        std::fs::write(&other, [1; 32]).unwrap();
        assert!(open(local(Some(&other))).is_err());
        std::fs::write(&other, [1; 31]).unwrap();
        let short = open(local(Some(&other)));
        assert!(matches!(short, Err(Error::Parameters(_))));
        let strict = Policy::Unset;
        let refused = open(LocalDeployment::new(folder.path(), None, None, strict));
        assert!(matches!(refused, Err(Error::Evidence(_))));
        assert!(open(local(None)).is_ok());
    }

    #[cfg(feature = "http")]
    #[test]
    fn s3_keys_are_drawn_once_and_readable_by_the_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let home = LocalDeployment::home(folder.path());
        let path = s3_keys(&home).unwrap();
        let text = std::fs::read(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(crate::s3::AccessKeys::read(&path).is_ok());
        assert_eq!(std::fs::read(s3_keys(&home).unwrap()).unwrap(), text);
    }
}
