//! A connection to the host, and the numbers of its requests.

use crate::error::{Error, Result};
use crate::frame;
use rustix::net::{RecvFlags, recv, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// How long connecting may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// A silent peer is probed after so long, and then this often.
const PROBE_AFTER: Duration = Duration::from_secs(5);
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// After so many probes without an answer, and after so long with sent bytes that did not arrive,
/// the connection has ended. Without this the loss of a network looks like a host that is busy.
const PROBES: u32 = 3;
const DELIVERY_PATIENCE_MS: u32 = 10_000;
const NUMBER_LEN: usize = 8;

/// The host's address and how to authenticate it.
pub struct Dial {
    address: String,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
}

impl Dial {
    /// The host at `address`, a name or number and a port.
    pub fn new(address: &str, tls: Arc<ClientConfig>) -> Result<Self> {
        let wrong = Error::Parameters("the host's address is NAME:PORT");
        let Some((name, _)) = address.rsplit_once(':') else { return Err(wrong) };
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let Ok(name) = ServerName::try_from(name) else { return Err(wrong) };
        Ok(Self { address: address.to_owned(), name, tls })
    }

    /// Opens a new connection. A request on it fails if its reply takes longer than `patience`, or
    /// if the host can no longer be reached.
    pub fn connect(&self, patience: Duration) -> Result<LineConnection> {
        let unreachable =
            |error: io::Error| Error::Unreachable(format!("{}: {error}", self.address));
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in self.address.to_socket_addrs().map_err(unreachable)? {
            match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
                Ok(stream) => {
                    let prepared = stream
                        .set_nodelay(true)
                        .and_then(|()| stream.set_read_timeout(Some(patience)))
                        .and_then(|()| stream.set_write_timeout(Some(patience)))
                        .and_then(|()| probe(&stream));
                    prepared.map_err(unreachable)?;
                    let connection = ClientConnection::new(self.tls.clone(), self.name.clone());
                    let connection = connection.map_err(|error| Error::Tls(error.to_string()))?;
                    let stream = StreamOwned::new(connection, stream);
                    return Ok(LineConnection { stream, address: self.address.clone() });
                }
                Err(error) => last = error,
            }
        }
        Err(unreachable(last))
    }
}

/// A connection to the host.
pub struct LineConnection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// The host's address, for errors: a gateway may have many hosts.
    address: String,
}

impl LineConnection {
    /// The reply to a request.
    pub fn call(&mut self, number: u64, request: &[u8], reply_len_max: usize) -> Result<Vec<u8>> {
        self.exchange(number, request, reply_len_max)?
    }

    /// The reply to a request. The outer error is a failure of the connection, the inner one a
    /// reply.
    fn exchange(
        &mut self,
        number: u64,
        request: &[u8],
        reply_len_max: usize,
    ) -> Result<Result<Vec<u8>>> {
        let sent = frame::write(&mut self.stream, &[&number.to_le_bytes(), request]);
        sent.map_err(|e| self.failed(&e))?;
        let mut reply = Vec::new();
        let read = frame::read(&mut self.stream, reply_len_max, &mut reply);
        if !read.map_err(|e| self.failed(&e))? {
            return Err(Error::Unreachable(self.named("it ended the connection")));
        }
        match reply.split_first_chunk::<NUMBER_LEN>() {
            Some((answered, reply)) if *answered == number.to_le_bytes() => {
                Ok(frame::decode(reply).map(<[u8]>::to_vec).map_err(|error| match error {
                    Error::Host(text) => Error::Host(self.named(&text)),
                    error => error,
                }))
            }
            _ => Err(Error::Malformed("not the reply that was waited for")),
        }
    }

    /// What the connection failed with. An error of TLS is permanent. Any other error may pass.
    fn failed(&self, error: &io::Error) -> Error {
        let text = self.named(&error.to_string());
        match error.get_ref() {
            Some(inner) if inner.is::<rustls::Error>() => Error::Tls(text),
            _ => Error::Unreachable(text),
        }
    }

    fn named(&self, text: &str) -> String {
        format!("{}: {text}", self.address)
    }

    /// Whether the host has sent unrequested bytes or has ended the connection.
    pub fn has_input(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.stream.sock, &mut [0; 1], flags) != Err(rustix::io::Errno::AGAIN)
    }
}

/// The numbered requests of one kind, over one connection after another.
#[derive(Default)]
pub struct Line {
    /// The connection, if there is one.
    pub connection: Option<LineConnection>,
    last: u64,
}

impl Line {
    /// The number of the next request.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The reply to a request. If the connection fails, it is dropped.
    pub fn exchange(
        &mut self,
        number: u64,
        request: &[u8],
        reply_len_max: usize,
    ) -> Result<Result<Vec<u8>>> {
        let Some(connection) = &mut self.connection else {
            return Err(Error::Unreachable("there is no connection".to_owned()));
        };
        let reply = connection.exchange(number, request, reply_len_max);
        if reply.is_err() {
            self.connection = None;
        }
        reply
    }
}

/// Lets the system find out that the peer is gone.
fn probe(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(sockopt::set_tcp_user_timeout(stream, DELIVERY_PATIENCE_MS)?)
}
