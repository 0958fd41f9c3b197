//! A gateway's session at the host.

use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::host::{Enclave, Host, HostedStore};
use crate::store::BoxedStore;
use crate::wire::message::{LINES, NumberedRequest, SessionId, damage, replies};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A store and an enclave for one gateway, until another session begins.
pub struct HostSession {
    id: SessionId,
    geometry: Geometry,
    served: HostedStore<Arc<BoxedStore>, Box<dyn Enclave>>,
    over: AtomicBool,
    /// Held by each call while it runs, so that no call runs after the session has ended.
    running: RwLock<()>,
    lines: [Mutex<Last>; LINES],
    connections: Mutex<Connections>,
}

/// The connection of each line, so that the session can end it.
#[derive(Default)]
struct Connections {
    /// How many connections there have been.
    count: u64,
    /// The current connection of each line, with its number.
    current: [Option<(u64, TcpStream)>; LINES],
}

/// The last request of a line and its reply. Only this request may be repeated.
#[derive(Default)]
struct Last {
    number: u64,
    reply: Arc<[u8]>,
}

impl HostSession {
    /// A new session.
    pub fn new(
        id: SessionId,
        geometry: Geometry,
        store: Arc<BoxedStore>,
        enclave: Box<dyn Enclave>,
    ) -> Self {
        Self {
            id,
            geometry,
            served: HostedStore::new(geometry, store, enclave),
            over: AtomicBool::new(false),
            running: RwLock::new(()),
            lines: Default::default(),
            connections: Mutex::default(),
        }
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The shape of the session's tree.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The number of the enclave's process.
    #[cfg(test)]
    pub fn enclave_id(&self) -> Option<u32> {
        self.served.enclave().process_id()
    }

    /// Whether the session has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Ends the session. On return none of its requests is running.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.served.enclave().end();
        drop(self.running.write().unwrap_or_else(PoisonError::into_inner));
        self.hang_up();
    }

    /// Ends the session's connections.
    pub fn hang_up(&self) {
        for (_, stream) in self.connections().current.iter_mut().filter_map(Option::take) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Registers a connection, which ends with the session, or when another connection takes its
    /// line: then the gateway has lost this one. Returns the connection's number.
    pub fn attach(&self, line: usize, stream: TcpStream) -> u64 {
        let mut connections = self.connections();
        connections.count += 1;
        let number = connections.count;
        if let Some((_, before)) = connections.current[line].replace((number, stream)) {
            let _ = before.shutdown(Shutdown::Both);
        }
        number
    }

    /// Removes a connection that has ended, and closes its file.
    pub fn detach(&self, line: usize, number: u64) {
        let current = &mut self.connections().current[line];
        if current.as_ref().is_some_and(|(known, _)| *known == number) {
            *current = None;
        }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reply to a request of a line. A repeated request gets its first reply.
    pub fn answer(
        &self,
        line: usize,
        number: u64,
        carry_out: impl FnOnce(&Self) -> Vec<u8>,
    ) -> Result<Arc<[u8]>> {
        let mut last = self.lines[line].lock().unwrap_or_else(PoisonError::into_inner);
        if number < last.number {
            return Err(Error::Malformed("a request of long ago"));
        }
        if number > last.number {
            *last = Last { number, reply: carry_out(self).into() };
        }
        Ok(last.reply.clone())
    }

    /// Carries out a gateway's request, unless the session has ended. `explain` converts errors,
    /// and may wait for a thread that ends the session.
    pub fn carry_out(
        &self,
        request: NumberedRequest,
        explain: impl Fn(Error) -> Error,
    ) -> Result<Vec<u8>> {
        match self.done(request) {
            Ok(RequestOutcome::Queries(results)) => {
                let results = results.into_iter();
                Ok(replies(results.map(|result| result.map_err(&explain))))
            }
            Ok(RequestOutcome::Other(reply)) => Ok(reply),
            Err(error) => Err(explain(error)),
        }
    }

    fn done(&self, request: NumberedRequest) -> Result<RequestOutcome> {
        let _running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        if self.is_over() {
            return Err(Error::SessionLost);
        }
        match request {
            NumberedRequest::Queries(requests) => {
                return Ok(RequestOutcome::Queries(self.served.query_many(&requests)));
            }
            NumberedRequest::Stage(stage) => {
                self.served.stage(&stage).map(|damaged| damage(&damaged))
            }
            NumberedRequest::Commit { sequence, versions } => {
                self.served.commit(sequence, &versions).map(|()| Vec::new())
            }
            NumberedRequest::Place { version, bytes } => {
                self.served.place(version, &bytes).map(|()| Vec::new())
            }
            NumberedRequest::Node(version) => self.served.node(version),
            NumberedRequest::KeepTrees(roots) => {
                self.served.keep_trees(&roots).map(|()| Vec::new())
            }
            NumberedRequest::Sequence => {
                self.served.sequence().map(|last| last.to_le_bytes().to_vec())
            }
            _ => Err(Error::Malformed("that belongs before a session")),
        }
        .map(RequestOutcome::Other)
    }
}

/// The result of a request.
enum RequestOutcome {
    Queries(Vec<Result<Vec<u8>>>),
    Other(Vec<u8>),
}
