//! A gateway's session at the host.

use super::Nodes;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::host::{Host, Served};
use crate::process::EnclaveProcess;
use crate::wire::message::{LINES, PIPELINED_MAX, Request, SessionId};
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A store and an enclave for one gateway, until another session begins.
pub struct Session {
    id: SessionId,
    geometry: Geometry,
    served: Served<Arc<Nodes>, EnclaveProcess>,
    over: AtomicBool,
    /// Held by each call while it runs, so that none runs once the session has ended.
    running: RwLock<()>,
    lines: [Mutex<Replies>; LINES],
    streams: Mutex<Vec<TcpStream>>,
}

/// The last replies of a line, with their numbers.
#[derive(Default)]
struct Replies {
    last: u64,
    kept: VecDeque<(u64, Arc<[u8]>)>,
}

impl Session {
    /// A session that has just begun.
    pub fn new(
        id: SessionId,
        geometry: Geometry,
        store: Arc<Nodes>,
        enclave: EnclaveProcess,
    ) -> Self {
        Self {
            id,
            geometry,
            served: Served::new(geometry, store, enclave),
            over: AtomicBool::new(false),
            running: RwLock::new(()),
            lines: Default::default(),
            streams: Mutex::default(),
        }
    }

    /// Its number.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The tree.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The number of its enclave's process.
    #[cfg(test)]
    pub fn enclave_id(&self) -> u32 {
        self.served.enclave().id()
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Ends it: on return nothing that its gateway asked for is still being done.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.served.enclave().end();
        drop(self.running.write().unwrap_or_else(PoisonError::into_inner));
        self.hang_up();
    }

    /// Ends its connections.
    pub fn hang_up(&self) {
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Takes note of a connection, which ends with the session.
    pub fn comes_over(&self, stream: TcpStream) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.peer_addr().is_ok());
        streams.push(stream);
    }

    /// The reply to a request of a line. One that was answered before is answered the same.
    pub fn answer(
        &self,
        line: usize,
        number: u64,
        carry_out: impl FnOnce(&Self) -> Vec<u8>,
    ) -> Result<Arc<[u8]>> {
        let mut replies = self.lines[line].lock().unwrap_or_else(PoisonError::into_inner);
        if number <= replies.last {
            let kept = replies.kept.iter().find(|(other, _)| *other == number);
            let kept = kept.map(|(_, reply)| reply.clone());
            return kept.ok_or(Error::Malformed("a request of long ago"));
        }
        let reply: Arc<[u8]> = carry_out(self).into();
        replies.last = number;
        if replies.kept.len() == PIPELINED_MAX {
            replies.kept.pop_front();
        }
        replies.kept.push_back((number, reply.clone()));
        Ok(reply)
    }

    /// Does what a gateway asks for, unless the session has ended.
    pub fn carry_out(&self, request: Request) -> Result<Vec<u8>> {
        let _running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        if self.is_over() {
            return Err(Error::SessionLost);
        }
        match request {
            Request::Query(ask) => self.served.query(&ask),
            Request::Stage(stage) => self.served.stage(&stage).map(|()| Vec::new()),
            Request::Commit { sequence, versions } => {
                self.served.commit(sequence, &versions).map(|()| Vec::new())
            }
            Request::Place { version, bytes } => {
                self.served.place(version, &bytes).map(|()| Vec::new())
            }
            Request::Sequence => self.served.sequence().map(|last| last.to_le_bytes().to_vec()),
            _ => Err(Error::Malformed("that belongs before a session")),
        }
    }
}
