//! The untrusted server: a store, an enclave in its own process, and gateways that connect over
//! TLS.
//!
//! One gateway at a time has the store, in one session, with an enclave for that session only. The
//! newest gateway takes over (`wire/fence`): first the previous session and all its running work
//! are ended, so that none of it takes effect later.
//!
//! A host that serves until it is stopped. Its enclaves run in the program `traceless`, which is
//! started for each session:
//!
//! ```
//! use std::net::{TcpListener, TcpStream};
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicBool, Ordering};
//! use traceless_cloud::process::Program;
//! use traceless_cloud::server::{HostServer, STRANGER_TIME, Settings};
//! use traceless_cloud::store::{Durability, StoreFolder, StorePlace};
//!
//! # fn main() -> traceless_cloud::Result {
//! # let temporary = tempfile::tempdir()?;
//! # let folder = temporary.path().to_owned();
//! let arguments = vec!["enclave".into()];
//! let enclave = Program { path: "traceless".into(), arguments, environment: Vec::new() };
//! let (identity, clients, machine, stranger_time) = (None, None, None, STRANGER_TIME);
//! let enclave = Some(enclave);
//! let store = StoreFolder { folder: folder.join("nodes"), durability: Durability::Power };
//! let store = StorePlace::new(Box::new(store), 64 << 20);
//! let settings =
//!     Settings { folder, store, enclave, identity, clients, machine, stranger_time };
//! let server = Arc::new(HostServer::new(settings)?);
//! assert!(server.certificate().exists());
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let stop = AtomicBool::new(false);
//! std::thread::scope(|scope| {
//!     let serving = scope.spawn(|| server.serve(&listener, &stop));
//!     stop.store(true, Ordering::SeqCst);
//!     drop(TcpStream::connect(address)); // The server notices the stop.
//!     serving.join().expect("no panic")
//! })?;
//! # Ok(())
//! # }
//! ```

mod connection;
mod session;
#[cfg(test)]
mod tests;

pub use crate::connection_places::STRANGER_TIME;
pub use crate::wire::tls::Identity;

use crate::block_on::block_on;
use crate::channel::Nonce;
use crate::connection_places::{ConnectionPlaces, REST};
use crate::durable::make_folder;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::hosted_enclave::AwaitingEnclave;
use crate::process::Program;
use crate::store::{BoxedStore, NodeStore as _, OpenStore as _, StorePlace};
use crate::tee::{endorse, report_data};
use crate::wire::fence::{Fence, Opening};
use crate::wire::message::SessionId;
use crate::wire::tls;
use rustls::ServerConfig;
use session::HostSession;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use traceless_core::rng::{Rng, System};
use traceless_sys::listen::{self, Clients};
use traceless_sys::machine_evidence::MachineEvidence;

/// Connections at once. A further connection replaces the oldest that is in no session.
const CONNECTIONS_MAX: usize = 64;
/// Most nodes of a tree, because the host keeps a place in memory for each.
const NODES_MAX: u32 = 1 << 24;

/// Settings of a host.
pub struct Settings {
    /// The folder of the host's own files: its certificate, and its record of openings.
    pub folder: PathBuf,
    /// Where the tree is.
    pub store: StorePlace,
    /// The program of the host's enclaves; `None` for enclaves in this process, where the whole
    /// host runs in hardware's enclave.
    pub enclave: Option<Program>,
    /// The host's certificate and key; `None` creates a certificate in the host's folder.
    pub identity: Option<Identity>,
    /// Certificates that sign the gateways' certificates; `None` admits all gateways.
    pub clients: Option<PathBuf>,
    /// The source of evidence of the confidential virtual machine that the host and its enclaves
    /// run in; `None` on any other machine.
    pub machine: Option<Box<dyn MachineEvidence>>,
    /// How long a gateway may take to begin or join a session.
    pub stranger_time: Duration,
}

/// How gateways authenticate.
pub fn clients(has_certificates: bool) -> Clients {
    if has_certificates {
        return Clients::Authenticated;
    }
    Clients::Anyone { remedy: "give --client-ca" }
}

/// A host.
pub struct HostServer {
    settings: Settings,
    tls: Arc<ServerConfig>,
    certificate: PathBuf,
    state: Mutex<ServerState>,
}

struct ServerState {
    fence: Fence,
    /// Opened by the first gateway, which knows the tree's shape.
    store: Option<(Geometry, Arc<BoxedStore>)>,
    current: Option<Arc<HostSession>>,
}

/// A gateway that has received an enclave's evidence and has not sent the key yet.
struct Visitor {
    opening: Opening,
    geometry: Geometry,
    store: Arc<BoxedStore>,
    enclave: AwaitingEnclave,
}

impl HostServer {
    /// A host that does not serve yet.
    pub fn new(settings: Settings) -> Result<Self> {
        make_folder(&settings.folder)?;
        let identity = match &settings.identity {
            Some(identity) => identity.clone(),
            None => Identity::own(&settings.folder)?,
        };
        let tls = tls::server(&identity, settings.clients.as_deref())?;
        let fence = Fence::open(&settings.folder)?;
        let state = Mutex::new(ServerState { fence, store: None, current: None });
        Ok(Self { settings, tls, certificate: identity.certificate, state })
    }

    /// The certificate that gateways need.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Serves connections until `stop` is set and one more comes, which is dropped.
    pub fn serve(self: &Arc<Self>, listener: &TcpListener, stop: &AtomicBool) -> io::Result<()> {
        listen::check_listener(listener, clients(self.settings.clients.is_some()))?;
        let places = ConnectionPlaces::new(CONNECTIONS_MAX);
        for stream in listener.incoming() {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            // The failure of one connection, or too many of them, must not end the server.
            let Ok(stream) = stream else {
                places.make_room();
                std::thread::sleep(REST);
                continue;
            };
            let stream = Arc::new(stream);
            let Some(place) = places.enter(stream.clone()) else { continue };
            let server = self.clone();
            // If no thread can be started, the connection is dropped with the closure.
            let _ = std::thread::Builder::new().spawn(move || {
                let _ = connection::converse(stream, &server, &place);
            });
        }
        self.end();
        Ok(())
    }

    /// Ends the session and all its running work.
    pub fn end(&self) {
        if let Some(current) = self.lock().current.take() {
            current.end();
        }
    }

    /// Admits a gateway, and starts an enclave for it. The previous session ends.
    fn hello(
        &self,
        opening: Opening,
        geometry: Geometry,
        nonce: &Nonce,
    ) -> Result<(Visitor, Vec<u8>)> {
        let mut state = self.lock();
        state.fence.check(opening)?;
        let store = self.store(&mut state, geometry, opening)?;
        state.fence.admit(opening)?;
        let (enclave, token) = AwaitingEnclave::start(self.settings.enclave.as_ref(), nonce)?;
        // The machine takes its time for evidence.
        drop(state);
        let evidence = match &self.settings.machine {
            Some(machine) => {
                let evidence = machine.evidence(&report_data(&token))?;
                endorse(token, evidence)
            }
            None => token,
        };
        Ok((Visitor { opening, geometry, store, enclave }, evidence))
    }

    /// Passes the key to the gateway's enclave, and begins the session.
    fn provision(&self, visitor: Visitor, sealed: &[u8]) -> Result<SessionId> {
        let Visitor { opening, geometry, store, enclave } = visitor;
        let enclave = enclave.provision(&geometry, sealed)?;
        let mut id = SessionId::default();
        System.fill(&mut id);
        let session = HostSession::new(id, geometry, store, enclave);
        let mut state = self.lock();
        // A newer gateway may have come meanwhile, or this one on another connection.
        state.fence.check(opening)?;
        if let Some(current) = state.current.replace(Arc::new(session)) {
            current.end();
        }
        Ok(id)
    }

    /// The session that a gateway has begun on another connection.
    fn attach(&self, opening: Opening, id: &SessionId) -> Result<Arc<HostSession>> {
        let state = self.lock();
        state.fence.check(opening)?;
        let current = state.current.as_ref().filter(|current| current.id() == id);
        current.cloned().ok_or(Error::SessionLost)
    }

    /// Why a session is over: another gateway has come, or the enclave is gone.
    fn why_over(&self, opening: Opening) -> Error {
        self.lock().fence.check(opening).err().unwrap_or(Error::SessionLost)
    }

    fn store(
        &self,
        state: &mut ServerState,
        geometry: Geometry,
        opening: Opening,
    ) -> Result<Arc<BoxedStore>> {
        if geometry.nodes() > NODES_MAX {
            return Err(Error::Parameters("a host keeps at most 2^24 nodes"));
        }
        let Some((known, store)) = &state.store else {
            let store = Arc::new(self.settings.store.open(geometry, opening)?);
            state.store = Some((geometry, store.clone()));
            return Ok(store);
        };
        geometry.check_store(known)?;
        let store = store.clone();
        if let Some(current) = state.current.take() {
            current.end();
        }
        block_on(store.admit(opening))?;
        Ok(store)
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
