//! An enclave in its own process: as close to a protected one as possible without the hardware.
//!
//! Host and enclave communicate over three sockets: one for evidence and key, one for queries, one
//! for evictions. Nodes pass through shared memory. Once the process has these, it drops all other
//! rights (`confine`). It ends with its host, in any case, because the first socket closes.
//!
//! A program that starts itself as its own enclave:
//!
//! ```standalone_crate
//! use std::{env, sync::Arc};
//! use traceless_cloud::gateway::{Gateway, Keys};
//! use traceless_cloud::host::HostedStore;
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::params::Params;
//! use traceless_cloud::process::{self, Program, Starting};
//! use traceless_cloud::random::SystemStream;
//! use traceless_cloud::store::MemStore;
//! use traceless_cloud::tee::{Policy, verify};
//! use traceless_core::seal::Secret;
//!
//! # fn main() -> traceless_cloud::Result {
//! if env::args().any(|argument| argument == "enclave") {
//!     return process::run();
//! }
//! # let (params, mut rng) = (Params::new(500, 64, 4)?, SystemStream::drawn());
//! # let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
//! # let nonce = [1; 16];
//! let arguments = vec!["enclave".into()];
//! let program = Program { path: env::current_exe()?, arguments, environment: Vec::new() };
//! let (starting, evidence) = Starting::start(&program, &nonce)?;
//! let attested = verify(&evidence, &nonce, &Policy::Simulated)?;
//! let sealed = keys.provision(&params, Choice::Benes).seal(&attested)?;
//! let enclave = starting.provision(&params.geometry, &sealed)?;
//!
//! let store = MemStore::new(params.geometry);
//! let host = Arc::new(HostedStore::new(params.geometry, store, enclave));
//! let (session, rng) = ((&attested.gateway, &attested.enclave), Box::new(rng));
//! let mut gateway = Gateway::open(params, &keys, Choice::Benes, host, session, None, rng)?;
//! gateway.put(7, &[1; 64])?;
//! assert_eq!(gateway.get(7)?, [1; 64]);
//! # Ok(())
//! # }
//! ```

mod child;
mod confine;
mod nodes;
#[cfg(test)]
pub(crate) mod tests;

pub use child::run;

use crate::channel::Nonce;
use crate::enclave::{DamagedSlots, NodeBytes};
use crate::enclave_orders::order_len_max;
use crate::error::{Error, Result};
use crate::frame;
use crate::geometry::Geometry;
use crate::host::Enclave;
use crate::tee::TOKEN_LEN_MAX;
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

/// Files that an enclave gets besides its standard ones: queries, evictions, nodes.
const FILES: usize = 3;
/// Bytes of a reply to a query, besides the block.
const REPLY_HEAD_LEN_MAX: usize = 1024;
/// Bytes of replies that may wait in the socket: less than any system's buffer.
const REPLIES_LEN: usize = 64 << 10;
const ORDER_LEN: Error = Error::Malformed("an order of such length");
/// The one variable that the enclave's process inherits: the allowed processor features.
const CPU_VARIABLE: &str = "TRACELESS_CPU";

/// The program that calls [`run`].
#[derive(Clone, Debug)]
pub struct Program {
    /// The program's file.
    pub path: PathBuf,
    /// The program's arguments.
    pub arguments: Vec<OsString>,
    /// Variables of the program's environment. It inherits only `TRACELESS_CPU`.
    pub environment: Vec<(OsString, OsString)>,
}

/// An enclave without its key.
pub struct Starting {
    process: Process,
    queries: UnixStream,
    evictions: UnixStream,
    nodes: OwnedFd,
}

/// An enclave with its key.
pub struct EnclaveProcess {
    process: Process,
    reply_len_max: usize,
    order_len_max: usize,
    queries: Mutex<PipeLine>,
    geometry: Geometry,
    evictions: Mutex<Evictions>,
}

/// The channel for evictions.
struct Evictions {
    line: PipeLine,
    nodes: Nodes,
    /// Holds one part of all slots.
    buffer: Vec<u8>,
}

impl Starting {
    /// Starts a process and requests its evidence, for the gateway that sent `nonce`.
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
        let evidence = process.call(nonce)?;
        Ok((Self { process, queries, evictions, nodes }, evidence))
    }

    /// Passes on the key that the gateway sealed for the enclave, and begins the session.
    pub fn provision(mut self, geometry: &Geometry, sealed: &[u8]) -> Result<EnclaveProcess> {
        self.process.call(sealed)?;
        let nodes = Nodes::new(self.nodes, geometry);
        nodes.make_room()?;
        Ok(EnclaveProcess {
            process: self.process,
            reply_len_max: geometry.sealed_len() + REPLY_HEAD_LEN_MAX,
            order_len_max: order_len_max(geometry),
            queries: Mutex::new(PipeLine::new(self.queries)),
            geometry: *geometry,
            evictions: Mutex::new(Evictions {
                line: PipeLine::new(self.evictions),
                nodes,
                buffer: Vec::new(),
            }),
        })
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
        // With more replies than the socket can buffer, replies and orders would block each other.
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

    fn evict(&self, order: &[u8], mut bytes: NodeBytes<'_>) -> Result<DamagedSlots> {
        if order.len() > self.order_len_max {
            return Err(ORDER_LEN);
        }
        let mut evictions = self.evictions.lock().unwrap_or_else(PoisonError::into_inner);
        let Evictions { line, nodes, buffer } = &mut *evictions;
        nodes.write_old(&self.geometry, &bytes, buffer)?;
        let slots = bytes.node.len() / self.geometry.slot_len();
        let reply_len_max = REPLY_HEAD_LEN_MAX + slots * size_of::<u32>();
        let reply = line.call(&[&Lens::of(&bytes).encode(), order], reply_len_max)?;
        nodes.read_new(&self.geometry, &mut bytes, buffer)?;
        decode_slots(&reply)
    }

    fn end(&self) {
        // The process was not waited for, so its number is not reused.
        let _ = kill_process(Pid::from_child(&self.process.child), Signal::KILL);
    }

    fn process_id(&self) -> Option<u32> {
        Some(self.process.child.id())
    }
}

/// The damaged slots of a node as bytes.
fn encode_slots(slots: &DamagedSlots) -> Vec<u8> {
    slots.iter().flat_map(|slot| slot.to_le_bytes()).collect()
}

/// Decodes damaged slots.
fn decode_slots(bytes: &[u8]) -> Result<DamagedSlots> {
    let (slots, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        return Err(Error::Malformed("not the numbers of slots"));
    }
    Ok(slots.iter().map(|slot| u32::from_le_bytes(*slot)).collect())
}

/// A process that is ended when this is dropped.
struct Process {
    child: Child,
    control: UnixStream,
}

impl Process {
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        let mut reply = Vec::new();
        let max = TOKEN_LEN_MAX + REPLY_HEAD_LEN_MAX;
        let received = frame::write(&mut self.control, &[request])
            .and_then(|()| frame::read(&mut self.control, max, &mut reply));
        match received {
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

/// A socket on which each message has a reply.
struct PipeLine {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl PipeLine {
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
    // A signal from the terminal goes to the host alone, which ends the enclave.
    command.process_group(0);
    Ok(command.spawn()?)
}
