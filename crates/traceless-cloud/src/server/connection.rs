//! One connection of a gateway.

use super::session::HostSession;
use super::{HostServer, Visitor};
use crate::connection_places::Place;
use crate::deadline_stream::{Deadline, DeadlineStream};
use crate::error::{Error, Result};
use crate::frame;
use crate::wire::fence::Opening;
use crate::wire::message::{LINES, NumberedRequest, STRANGER_LEN_MAX, request_len_max};
use rustix::net::sockopt::set_socket_keepalive;
use rustls::{ServerConnection, StreamOwned};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// How long a gateway in a session may take to receive a reply.
const REPLY_TIME: Duration = Duration::from_secs(20);
const NUMBER_LEN: usize = 8;

/// Serves a connection until it ends.
pub fn converse(
    stream: Arc<TcpStream>,
    server: &HostServer,
    place: &Place<Arc<TcpStream>>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Ends the connection, and its thread, if the gateway's machine disappears.
    set_socket_keepalive(&stream, true)?;
    let socket = stream.clone();
    let connection = ServerConnection::new(server.tls.clone()).map_err(io::Error::other)?;
    let stream = DeadlineStream::new(stream, server.settings.stranger_time);
    let deadline = stream.deadline();
    let mut stream = StreamOwned::new(connection, stream);
    let mut peer = Peer { server, socket, place, deadline, visitor: None, attached: None };
    let mut message = Vec::new();
    while frame::read(&mut stream, peer.len_max(), &mut message)? {
        let Some((number, request)) = message.split_first_chunk::<NUMBER_LEN>() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let reply = peer.reply(u64::from_le_bytes(*number), request);
        frame::write(&mut stream, &[number, &reply])?;
    }
    stream.conn.send_close_notify();
    io::Write::flush(&mut stream)
}

/// The state of the gateway's connection.
struct Peer<'a> {
    server: &'a HostServer,
    socket: Arc<TcpStream>,
    place: &'a Place<Arc<TcpStream>>,
    deadline: Deadline,
    visitor: Option<Visitor>,
    attached: Option<EnclaveSession>,
}

struct EnclaveSession {
    session: Arc<HostSession>,
    opening: Opening,
    line: usize,
    number: u64,
}

impl Drop for EnclaveSession {
    fn drop(&mut self) {
        self.session.detach(self.line, self.number);
    }
}

impl Peer<'_> {
    /// Longest accepted request, in bytes.
    fn len_max(&self) -> usize {
        let attached = self.attached.as_ref();
        attached.map_or(STRANGER_LEN_MAX, |at| request_len_max(at.session.geometry()))
    }

    fn reply(&mut self, number: u64, request: &[u8]) -> Arc<[u8]> {
        let request = match NumberedRequest::decode(request) {
            Ok(request) => request,
            Err(error) => return frame::encode(Err(error)).into(),
        };
        let Some(EnclaveSession { session, opening, line, .. }) = &self.attached else {
            return frame::encode(self.introduce(request)).into();
        };
        let answer = |session: &HostSession| {
            frame::encode(session.carry_out(request, |error| match error {
                Error::SessionLost => self.server.why_over(*opening),
                other => other,
            }))
        };
        let reply = session.answer(*line, number, answer);
        reply.unwrap_or_else(|error| frame::encode(Err(error)).into())
    }

    /// Handles requests before a session.
    fn introduce(&mut self, request: NumberedRequest) -> Result<Vec<u8>> {
        match request {
            NumberedRequest::Hello { opening, geometry, nonce } => {
                let (visitor, evidence) = self.server.hello(opening, geometry, &nonce)?;
                self.visitor = Some(visitor);
                Ok(evidence)
            }
            NumberedRequest::Provision(sealed) => {
                let visitor = self.visitor.take();
                let visitor = visitor.ok_or(Error::Malformed("a key for no enclave"))?;
                self.server.provision(visitor, &sealed).map(|id| id.to_vec())
            }
            NumberedRequest::Attach { opening, session, line } => {
                let line = usize::from(line);
                if line >= LINES {
                    return Err(Error::Malformed("no such line"));
                }
                let session = self.server.attach(opening, &session)?;
                // In a session a gateway may be silent without limit.
                self.place.keep();
                self.deadline.lift(&self.socket)?;
                self.socket.set_write_timeout(Some(REPLY_TIME))?;
                let number = session.attach(line, self.socket.try_clone()?);
                let attached = EnclaveSession { session, opening, line, number };
                if attached.session.is_over() {
                    return Err(self.server.why_over(opening));
                }
                self.attached = Some(attached);
                Ok(Vec::new())
            }
            _ => Err(Error::SessionLost),
        }
    }
}
