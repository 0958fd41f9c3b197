//! An enclave in a process of its own: the nearest thing to a protected one without the hardware.
//!
//! Host and enclave talk over three sockets: one for its evidence and its key, one for queries, one
//! for evictions; nodes go through memory that both have. Once it has these the process gives up
//! everything else (`confine`). It ends with its host, however that ends: the first socket closes.

mod child;
mod confine;
mod nodes;
#[cfg(test)]
pub(crate) mod tests;

pub use child::run;

use crate::channel::Nonce;
use crate::enclave::NodeBytes;
use crate::error::{Error, Result};
use crate::frame;
use crate::geometry::Geometry;
use crate::host::Enclave;
use crate::orders::order_len_max;
use crate::tee::EVIDENCE_LEN_MAX;
use nodes::{Lens, Nodes};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{BufReader, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Files that an enclave gets beside its standard ones: queries, evictions, nodes.
const FILES: usize = 3;
/// Bytes of a reply to a query beside the block.
const REPLY_HEAD_LEN_MAX: usize = 1024;
/// Bytes of replies to queries that may wait in the socket: less than any system has room for.
const REPLIES_LEN: usize = 64 << 10;
const ORDER_LEN: Error = Error::Malformed("an order of such length");
/// The one variable that an enclave's process keeps: how much of the processor it may use.
const CPU_VARIABLE: &str = "TRACELESS_CPU";

/// The program that calls [`run`].
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables of its environment, which holds nothing else.
    pub environment: Vec<(OsString, OsString)>,
}

/// An enclave that waits for its key.
pub struct Starting {
    process: Process,
    queries: UnixStream,
    evictions: UnixStream,
    nodes: OwnedFd,
}

/// An enclave that has it.
pub struct EnclaveProcess {
    process: Process,
    reply_len_max: usize,
    order_len_max: usize,
    queries: Mutex<Line>,
    geometry: Geometry,
    evictions: Mutex<Evictions>,
}

/// How nodes go there and back.
struct Evictions {
    line: Line,
    nodes: Nodes,
    /// A part of all slots.
    buffer: Vec<u8>,
}

impl Starting {
    /// Starts a process and asks it for its evidence, for the gateway that sent `nonce`.
    pub fn start(program: &Program, nonce: &Nonce) -> Result<(Self, Vec<u8>)> {
        let (control, theirs) = UnixStream::pair()?;
        let (queries, their_queries) = UnixStream::pair()?;
        let (evictions, their_evictions) = UnixStream::pair()?;
        let nodes = Nodes::create()?;
        let child = spawn(program, theirs)?;
        let mut process = Process { child, control };
        let files = [their_queries.as_fd(), their_evictions.as_fd(), nodes.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)), "there is room");
        let sent =
            sendmsg(&process.control, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty());
        sent.map_err(std::io::Error::from)?;
        let evidence = process.ask(nonce)?;
        Ok((Self { process, queries, evictions, nodes }, evidence))
    }

    /// Hands it the key that the gateway sealed to it, and begins the session.
    pub fn provision(mut self, geometry: &Geometry, sealed: &[u8]) -> Result<EnclaveProcess> {
        self.process.ask(sealed)?;
        let nodes = Nodes::new(self.nodes, geometry);
        nodes.make_room()?;
        Ok(EnclaveProcess {
            process: self.process,
            reply_len_max: geometry.sealed_len() + REPLY_HEAD_LEN_MAX,
            order_len_max: order_len_max(geometry),
            queries: Mutex::new(Line::new(self.queries)),
            geometry: *geometry,
            evictions: Mutex::new(Evictions {
                line: Line::new(self.evictions),
                nodes,
                buffer: Vec::new(),
            }),
        })
    }
}

impl EnclaveProcess {
    /// Ends it, and so every call that waits for it.
    pub fn end(&self) {
        // It was not waited for yet, so the number is still its own.
        let _ = kill_process(Pid::from_child(&self.process.child), Signal::KILL);
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.child.id()
    }
}

impl Enclave for EnclaveProcess {
    fn query(&self, order: &[u8], slots: &[u8]) -> Result<Vec<u8>> {
        let mut replies = self.query_many(&[(order, slots)]);
        replies.pop().unwrap_or(Err(Error::SessionLost))
    }

    fn query_many(&self, orders: &[(&[u8], &[u8])]) -> Vec<Result<Vec<u8>>> {
        let mut line = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut replies = Vec::with_capacity(orders.len());
        // More replies than there is room for would wait for each other with the orders.
        for some in orders.chunks((REPLIES_LEN / self.reply_len_max).max(1)) {
            let mut sent = 0;
            let mut failed = None;
            for (order, slots) in some {
                let len = (order.len() as u32).to_le_bytes();
                let fits = order.len() <= self.order_len_max;
                let done = if fits { line.send(&[&len, order, slots]) } else { Err(ORDER_LEN) };
                if let Err(error) = done {
                    failed = Some(Err(error));
                    break;
                }
                sent += 1;
            }
            let start = replies.len();
            replies.extend((0..sent).map(|_| line.receive(self.reply_len_max)));
            replies.extend(failed);
            if let Some(first) = replies[start..].iter().position(Result::is_err) {
                replies.truncate(start + first + 1);
                break;
            }
        }
        replies
    }

    fn evict(&self, order: &[u8], mut bytes: NodeBytes<'_>) -> Result {
        if order.len() > self.order_len_max {
            return Err(ORDER_LEN);
        }
        let mut evictions = self.evictions.lock().unwrap_or_else(PoisonError::into_inner);
        let Evictions { line, nodes, buffer } = &mut *evictions;
        nodes.write_old(&self.geometry, &bytes, buffer)?;
        line.call(&[&Lens::of(&bytes).encode(), order], REPLY_HEAD_LEN_MAX)?;
        nodes.read_new(&self.geometry, &mut bytes, buffer)
    }
}

/// A process that does not outlive this value.
struct Process {
    child: Child,
    control: UnixStream,
}

impl Process {
    fn ask(&mut self, question: &[u8]) -> Result<Vec<u8>> {
        let mut reply = Vec::new();
        let max = EVIDENCE_LEN_MAX + REPLY_HEAD_LEN_MAX;
        let came = frame::write(&mut self.control, &[question])
            .and_then(|()| frame::read(&mut self.control, max, &mut reply));
        match came {
            Ok(true) => frame::decode(&reply).map(<[u8]>::to_vec),
            _ => Err(Error::SessionLost),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One socket on which each message has a reply.
struct Line {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Line {
    fn new(stream: UnixStream) -> Self {
        let from = BufReader::new(stream.try_clone().expect("a socket can be had twice"));
        Self { to: stream, from }
    }

    fn call(&mut self, parts: &[&[u8]], reply_len_max: usize) -> Result<Vec<u8>> {
        self.send(parts)?;
        self.receive(reply_len_max)
    }

    fn send(&mut self, parts: &[&[u8]]) -> Result {
        frame::write(&mut self.to, parts).map_err(|_| Error::SessionLost)
    }

    fn receive(&mut self, reply_len_max: usize) -> Result<Vec<u8>> {
        let mut reply = Vec::new();
        match frame::read(&mut self.from, reply_len_max, &mut reply) {
            Ok(true) => frame::decode(&reply).map(<[u8]>::to_vec),
            _ => Err(Error::SessionLost),
        }
    }
}

fn spawn(program: &Program, control: UnixStream) -> Result<Child> {
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).env_clear().envs(program.environment.iter().cloned());
    if let Some(cpu) = std::env::var_os(CPU_VARIABLE) {
        command.env(CPU_VARIABLE, cpu);
    }
    command.stdin(OwnedFd::from(control)).stdout(Stdio::null());
    // What ends the host by the terminal is the host's to tell the enclave.
    command.process_group(0);
    Ok(command.spawn()?)
}
