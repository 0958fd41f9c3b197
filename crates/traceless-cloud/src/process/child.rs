//! The code of the enclave's process.

use super::nodes::{self, Copies, Lens, Nodes};
use super::{FILES, confine, encode_slots};
use crate::codec::{LEN_LEN, Reader};
use crate::enclave::{DamagedSlots, Evictor, Querier, Session, Shared, WORKING_SET_MAX};
use crate::enclave_orders::order_len_max;
use crate::error::{Error, Result};
use crate::frame;
use crate::geometry::Geometry;
use crate::host::lent_threads;
use crate::tee::{Candidate, EnclavePlace, SEALED_LEN_MAX};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{BufReader, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use traceless_core::rng::System;

const TOO_LARGE: Error =
    Error::Parameters("a node needs more than 64 MiB of the enclave's memory, with its copies");

/// Runs an enclave for the host that started this process and is connected to its standard input.
/// Returns when the host is gone, or with an error if the enclave cannot start.
pub fn run() -> Result {
    let control = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let [orders, evictions, nodes] = receive(&control)?;
    // After the confinement the number of processors cannot be found out.
    let threads = lent_threads();
    confine::confine()?;
    let Some((shared, session)) = introduce(&control)? else { return Ok(()) };
    let querier = Querier::new(&shared, &session, Box::new(System));
    let evictor = Evictor::new(&shared, &session);
    let evictor = evictor.map(|evictor| evictor.with_threads(threads)).and_then(|evictor| {
        let working_set = evictor.working_set() + Copies::bytes(&shared.geometry);
        if working_set <= WORKING_SET_MAX { Ok(evictor) } else { Err(TOO_LARGE) }
    });
    let nodes = Nodes::new(nodes, &shared.geometry);
    // The host is notified only now, when the start can no longer fail.
    let status = evictor.as_ref().map(|_| Vec::new());
    let status = frame::encode(status.map_err(|e| Error::Host(e.to_string())));
    frame::write(&mut &control, &[&status])?;
    let (geometry, evictor) = (shared.geometry, evictor?);
    std::thread::spawn(move || answer(&UnixStream::from(orders), &geometry, querier));
    std::thread::spawn(move || evict(&UnixStream::from(evictions), &geometry, evictor, &nodes));
    // The host sends nothing more on this socket, so a return means that the host is gone.
    let _ = frame::read(&mut &control, 0, &mut Vec::new());
    Ok(())
}

/// Sends the evidence to the host, and receives the gateway's key. `None` if the host goes away.
fn introduce(control: &UnixStream) -> Result<Option<(Shared, Session)>> {
    let mut message = Vec::new();
    if !frame::read(&mut &*control, SEALED_LEN_MAX, &mut message)? {
        return Ok(None);
    }
    let nonce = Reader::new(&message).array()?;
    let candidate = Candidate::new(&nonce)?;
    let evidence = frame::encode(Ok(candidate.evidence(EnclavePlace::Process)));
    frame::write(&mut &*control, &[&evidence])?;
    if !frame::read(&mut &*control, SEALED_LEN_MAX, &mut message)? {
        return Ok(None);
    }
    match candidate.accept(&message) {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) => {
            let text = error.to_string();
            frame::write(&mut &*control, &[&frame::encode(Err(error))])?;
            Err(Error::Host(text))
        }
    }
}

fn answer(stream: &UnixStream, geometry: &Geometry, mut querier: Querier) -> Result {
    let max = order_len_max(geometry) + geometry.layers * geometry.slot_len();
    let (mut from, mut message) = (BufReader::new(stream), Vec::new());
    while frame::read(&mut from, max, &mut message)? {
        let reply = frame::encode(query(&mut querier, &mut message));
        frame::write(&mut &*stream, &[&reply])?;
    }
    Ok(())
}

fn query(querier: &mut Querier, message: &mut [u8]) -> Result<Vec<u8>> {
    let mut reader = Reader::new(message);
    let order_len = reader.counted()?.len();
    // The order is decrypted in place.
    let (order, slots) = message[LEN_LEN..].split_at_mut(order_len);
    querier.query(order, slots)
}

fn evict(stream: &UnixStream, geometry: &Geometry, mut evictor: Evictor, nodes: &Nodes) -> Result {
    let (mut from, mut message) = (BufReader::new(stream), Vec::new());
    let mut copies = Copies::default();
    while frame::read(&mut from, order_len_max(geometry), &mut message)? {
        let done = evict_one(&mut evictor, geometry, nodes, &message, &mut copies);
        frame::write(&mut &*stream, &[&frame::encode(done.map(|slots| encode_slots(&slots)))])?;
    }
    Ok(())
}

fn evict_one(
    evictor: &mut Evictor,
    geometry: &Geometry,
    nodes: &Nodes,
    message: &[u8],
    copies: &mut Copies,
) -> Result<DamagedSlots> {
    let mut reader = Reader::new(message);
    let lens = Lens::decode(&mut reader, geometry)?;
    let order = &mut reader.rest().to_vec();
    evictor.evict_by_parts(order, &mut nodes::SharedNode::new(nodes, lens, copies))
}

/// Receives the file descriptors from the host.
fn receive(control: &UnixStream) -> Result<[OwnedFd; FILES]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .map_err(std::io::Error::from)?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    files.try_into().map_err(|_| Error::Malformed("no enclave's host is at the standard input"))
}
