//! A host that is reached over TLS.
//!
//! A request that is lost with its connection is sent again unchanged, on another connection, until
//! [`PATIENCE`] is over. After the loss of an enclave the gateway sends again, in a new session.
//!
//! A gateway with its blocks at the host that listens on `address`:
//!
//! ```standalone_crate
//! # use std::net::{TcpListener, TcpStream};
//! # use std::sync::Arc;
//! # use std::sync::atomic::{AtomicBool, Ordering};
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::params::Params;
//! # use traceless_cloud::process::{self, Program};
//! use traceless_cloud::remote::{HostAddress, Remote};
//! # use traceless_cloud::server::{HostServer, STRANGER_TIME, Settings};
//! use traceless_cloud::store::{Durability, StoreFolder, StorePlace};
//! use traceless_cloud::tee::Policy;
//!
//! # fn main() -> traceless_cloud::Result {
//! # if std::env::args().any(|argument| argument == "enclave") {
//! #     return process::run();
//! # }
//! # let folder = tempfile::tempdir()?;
//! # let home = folder.path().join("gateway");
//! # let (path, environment) = (std::env::current_exe()?, Vec::new());
//! # let server = Arc::new(HostServer::new(Settings {
//! #     folder: folder.path().join("host"),
//! #     store: StorePlace::new(
//! #         Box::new(StoreFolder {
//! #             folder: folder.path().join("host/nodes"),
//! #             durability: Durability::Process,
//! #         }),
//! #         0,
//! #     ),
//! #     enclave: Some(Program { path, arguments: vec!["enclave".into()], environment }),
//! #     identity: None,
//! #     clients: None,
//! #     machine: None,
//! #     stranger_time: STRANGER_TIME,
//! # })?);
//! # let listener = TcpListener::bind("127.0.0.1:0")?;
//! # let (address, certificate) = (listener.local_addr()?, server.certificate().to_owned());
//! # let stop = Arc::new(AtomicBool::new(false));
//! # let stopping = stop.clone();
//! # let serving = std::thread::spawn(move || server.serve(&listener, &stopping));
//! let remote = Remote {
//!     // With the certificate that the host made for itself.
//!     hosts: vec![HostAddress { address: address.to_string(), certificate }],
//!     identity: None,
//!     policy: Policy::Simulated,
//!     anchor: None,
//!     witness: None,
//! };
//! let params = Params::new(500, 64, 4)?; // A small tree, for a short example.
//! let opened = remote.open(&home, None, params, Choice::Benes, Durability::Process)?;
//! assert_eq!(opened.enclave, "simulated, in a process");
//! let mut gateway = opened.gateway;
//! gateway.put(7, &[1; 64])?;
//! assert_eq!(gateway.get(7)?, [1; 64]);
//! gateway.close()?;
//! # stop.store(true, Ordering::SeqCst);
//! # drop(TcpStream::connect(address));
//! # serving.join().expect("no panic")?;
//! # Ok(())
//! # }
//! ```

mod line;
mod open;

pub use crate::wire::tls::Identity;
pub use open::{HostAddress, Remote};

use crate::channel::Nonce;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::host::{DamagedSlot, Host, QueryRequest, Stage};
use crate::lock::Lock;
use crate::store::NodeVersion;
use crate::tee::{Policy, Provision, verify};
use crate::wire::fence::Opening;
use crate::wire::message::{
    self, LINES, QUERIES_MAX, QUERY_LINES, STRANGER_REPLY_LEN_MAX, SessionId, reply_len_max,
};
use line::{Dial, Line, LineConnection};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use traceless_core::clock::{Clock, Monotonic};
use traceless_core::rng::{Rng, System};

/// How long a host may be away before calls fail.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The first and the longest pause between two attempts to reach the host.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The line of rounds. The lines before it are for queries.
const ROUNDS: usize = QUERY_LINES;
/// How long a reply on the line of rounds may take before the request is sent again on another
/// connection. A host may work on a round, or open its store, for longer than a query takes.
const ROUND_PATIENCE: Duration = Duration::from_mins(1);

/// A host, as used by one opening of a gateway's state.
struct RemoteHost {
    dial: Dial,
    opening: Opening,
    provision: Provision,
    policy: Policy,
    clock: Monotonic,
    session: Mutex<Option<SessionId>>,
    lines: [Mutex<Line>; LINES],
    /// The newest opening, once the host has reported that another gateway took over.
    fenced: Mutex<Option<u64>>,
    /// Set when a connection failed, and no reply has come since.
    is_in_doubt: AtomicBool,
    /// Set when calls must no longer wait for a host that is away.
    ends: AtomicBool,
    /// A description of the enclave.
    enclave: Mutex<String>,
    /// Held as long as the state may be open.
    _lock: Option<Lock>,
}

impl RemoteHost {
    /// A host without a session: [`Host::renew`] begins the first.
    fn new(
        dial: Dial,
        opening: Opening,
        provision: Provision,
        policy: Policy,
        lock: Option<Lock>,
    ) -> Self {
        Self {
            dial,
            opening,
            provision,
            policy,
            clock: Monotonic::start(),
            session: Mutex::default(),
            lines: Default::default(),
            fenced: Mutex::default(),
            is_in_doubt: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            enclave: Mutex::default(),
            _lock: lock,
        }
    }

    /// A description of the enclave.
    pub fn enclave(&self) -> String {
        guard(&self.enclave).clone()
    }

    fn geometry(&self) -> &Geometry {
        &self.provision.geometry
    }

    /// Repeats a call while the host is unreachable, until the patience is over.
    fn retry_until_reachable<T>(&self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        let end = self.clock.now() + PATIENCE.as_nanos() as u64;
        let mut pause = FIRST_PAUSE;
        loop {
            match call() {
                Err(Error::Unreachable(_)) if self.clock.now() < end && !self.ends() => {
                    std::thread::sleep(pause);
                }
                other => return self.record_fence(other),
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Remembers a report that another gateway took over.
    fn record_fence<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error::Fenced { newest, .. }) = result {
            *guard(&self.fenced) = Some(newest);
        }
        result
    }

    /// The reply to a request, which is sent again unchanged if its connection fails. A request is
    /// of one session.
    fn call(&self, line: usize, request: &[u8]) -> Result<Vec<u8>> {
        let session = *guard(&self.session);
        self.call_on(guard(&self.lines[line]), line, session, request)
    }

    /// The reply to queries, on a line that is free, if there is one.
    fn call_for_queries(&self, request: &[u8]) -> Result<Vec<u8>> {
        let session = *guard(&self.session);
        let free =
            self.query_lines().enumerate().find_map(|(number, line)| match line.try_lock() {
                Ok(line) => Some((line, number)),
                Err(TryLockError::Poisoned(line)) => Some((line.into_inner(), number)),
                Err(TryLockError::WouldBlock) => None,
            });
        let (line, number) = free.unwrap_or_else(|| (guard(&self.lines[0]), 0));
        self.call_on(line, number, session, request)
    }

    fn call_on(
        &self,
        mut line: MutexGuard<'_, Line>,
        line_number: usize,
        session: Option<SessionId>,
        request: &[u8],
    ) -> Result<Vec<u8>> {
        let session = session.ok_or(Error::SessionLost)?;
        let number = line.number();
        let reply = self.retry_until_reachable(|| {
            // The messages of a request are sealed for the session in which it was made.
            if *guard(&self.session) != Some(session) {
                return Err(Error::SessionLost);
            }
            if line.connection.is_none() {
                line.connection = Some(self.attach(line_number, &session)?);
            }
            let reply = line.exchange(number, request, reply_len_max(self.geometry()));
            self.is_in_doubt.store(reply.is_err(), Ordering::Relaxed);
            reply
        })?;
        self.record_fence(reply)
    }

    fn query_lines(&self) -> slice::Iter<'_, Mutex<Line>> {
        self.lines[..QUERY_LINES].iter()
    }

    /// A new connection that belongs to a session.
    fn attach(&self, line: usize, session: &SessionId) -> Result<LineConnection> {
        let mut connection = self.dial.connect(reply_patience(line))?;
        let request = message::attach(&self.opening, session, line);
        connection.call(0, &request, STRANGER_REPLY_LEN_MAX)?;
        Ok(connection)
    }

    /// Requests an enclave's evidence, and replies with the sealed key.
    fn introduce(&self) -> Result<(Nonce, Nonce)> {
        let mut nonce = Nonce::default();
        System.fill(&mut nonce);
        let mut connection = self.dial.connect(ROUND_PATIENCE)?;
        let hello = message::hello(&self.opening, self.geometry(), &nonce);
        let evidence = connection.call(0, &hello, STRANGER_REPLY_LEN_MAX)?;
        let attested = verify(&evidence, &nonce, &self.policy)?;
        let sealed = message::provision(&self.provision.seal(&attested)?);
        let session = connection.call(1, &sealed, STRANGER_REPLY_LEN_MAX)?;
        let session = session.try_into().map_err(|_| Error::Malformed("no session's number"))?;
        *guard(&self.session) = Some(session);
        guard(&self.enclave).clone_from(&attested.what);
        Ok((attested.gateway, attested.enclave))
    }
}

impl Host for RemoteHost {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        self.query_many(slice::from_ref(request)).pop().expect("a reply or a failure")
    }

    fn query_many(&self, requests: &[QueryRequest]) -> Vec<Result<Vec<u8>>> {
        let mut replies = Vec::with_capacity(requests.len());
        for requests in requests.chunks(QUERIES_MAX) {
            match self.call_for_queries(&message::queries(requests)) {
                Ok(reply) => {
                    let some = message::take_replies(&reply, requests.len());
                    replies.extend(some.into_iter().map(|reply| self.record_fence(reply)));
                }
                Err(error) => replies.push(Err(error)),
            }
            if replies.last().is_some_and(Result::is_err) {
                break;
            }
        }
        replies
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        message::take_damage(&self.call(ROUNDS, &message::stage(stage))?)
    }

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.call(ROUNDS, &message::place(version, bytes)).map(drop)
    }

    fn node(&self, version: NodeVersion) -> Result<Vec<u8>> {
        // Beside rounds, which may take long.
        self.call_for_queries(&message::node(version))
    }

    fn keep_trees(&self, roots: &[u32]) -> Result {
        self.call(ROUNDS, &message::keep_trees(roots)).map(drop)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.call(ROUNDS, &message::commit(sequence, versions)).map(drop)
    }

    fn sequence(&self) -> Result<u64> {
        let reply = self.call(ROUNDS, &message::sequence())?;
        let number =
            reply.try_into().map_err(|_| Error::Malformed("not the number of a commit"))?;
        Ok(u64::from_le_bytes(number))
    }

    fn renew(&self) -> Result<(Nonce, Nonce)> {
        *guard(&self.session) = None;
        for line in &self.lines {
            guard(line).connection = None;
        }
        self.retry_until_reachable(|| {
            let nonces = self.introduce()?;
            let session = guard(&self.session).ok_or(Error::SessionLost)?;
            guard(&self.lines[0]).connection = Some(self.attach(0, &session)?);
            Ok(nonces)
        })
    }

    fn wait_no_more(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result {
        if let Some(newest) = *guard(&self.fenced) {
            return Err(Error::Fenced { own: self.opening.number, newest });
        }
        for (number, line) in self.query_lines().enumerate() {
            // A line in use will notice the end of its connection itself.
            let Ok(mut free) = line.try_lock() else { continue };
            if free.connection.as_ref().is_some_and(LineConnection::has_input) {
                // Unrequested input means that the connection has ended. A request shows whether
                // the session has, too.
                free.connection = None;
                drop(free);
                match self.call(number, &message::sequence()) {
                    // The gateway will notice a lost session itself and recover.
                    Ok(_) | Err(Error::SessionLost) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn check_quietly(&self) -> Result<bool> {
        if let Some(newest) = *guard(&self.fenced) {
            return Err(Error::Fenced { own: self.opening.number, newest });
        }
        let has_ended = |line: &Mutex<Line>| {
            let Ok(free) = line.try_lock() else { return false };
            free.connection.as_ref().is_some_and(LineConnection::has_input)
        };
        Ok(!self.is_in_doubt.load(Ordering::Relaxed) && !self.query_lines().any(has_ended))
    }
}

fn reply_patience(line: usize) -> Duration {
    if line == ROUNDS { ROUND_PATIENCE } else { PATIENCE }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
