//! A connection to a server, with TLS if its URL says so, on which each request has a deadline.

use super::server_url::ServerUrl;
use super::{Outcome, REQUEST_TIME};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use traceless_core::clock::{Clock, Monotonic};
use traceless_sys::listen::is_loopback;

/// Name of the variable with a file of roots.
const ROOTS_VARIABLE: &str = "SSL_CERT_FILE";
/// Files in which systems keep the roots that they trust.
const ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Most bytes of a line that a server sends.
const LINE_LEN_MAX: u64 = 4096;

/// A connection.
pub(super) struct ServerLink(BufReader<Box<dyn TimedStream>>);

trait TimedStream: Read + Write + Send {
    fn begin(&mut self);
}

impl ServerLink {
    /// Connects. Without TLS only to this machine.
    pub fn connect(url: &ServerUrl) -> Outcome<Self> {
        let mut refused = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in (url.host.as_str(), url.port).to_socket_addrs()? {
            if !url.has_tls() && !is_loopback(address) {
                let why = "without TLS only a server of this machine can keep an anchor: take \
                           rediss:// or https://";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            match TcpStream::connect_timeout(&address, REQUEST_TIME) {
                Ok(socket) => return Self::on(socket, url),
                Err(e) => refused = e,
            }
        }
        Err(refused)
    }

    fn on(socket: TcpStream, url: &ServerUrl) -> Outcome<Self> {
        socket.set_nodelay(true)?;
        let timed = TimedSocket { socket, clock: Monotonic::start(), end: Duration::ZERO };
        let stream: Box<dyn TimedStream> =
            if url.has_tls() { Box::new(with_tls(timed, url)?) } else { Box::new(timed) };
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request. Its reply must have been read within [`REQUEST_TIME`].
    pub fn send(&mut self, request: &[u8]) -> Outcome {
        let stream = self.0.get_mut();
        stream.begin();
        stream.write_all(request)?;
        stream.flush()
    }

    /// Reads a line, and returns it without its end.
    pub fn line(&mut self) -> Outcome<String> {
        let mut line = Vec::new();
        (&mut self.0).take(LINE_LEN_MAX).read_until(b'\n', &mut line)?;
        match line.pop() {
            Some(b'\n') => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(_) => return Err(unexpected("a line without an end")),
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// Reads so many bytes.
    pub fn bytes(&mut self, len: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// The error for a reply that is none of the protocol.
pub(super) fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what}"))
}

fn with_tls(
    socket: TimedSocket,
    url: &ServerUrl,
) -> Outcome<StreamOwned<ClientConnection, TimedSocket>> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots()?)
        .with_no_client_auth();
    let name = ServerName::try_from(url.host.clone())
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, socket))
}

/// The roots of servers' certificates: of the file that the environment names, or the system's.
fn roots() -> Outcome<RootCertStore> {
    let given = std::env::var_os(ROOTS_VARIABLE).map(std::path::PathBuf::from);
    let of_system = || ROOTS.iter().map(std::path::PathBuf::from).find(|path| path.exists());
    let path = given.or_else(of_system).ok_or_else(|| {
        let why = format!("no file of trusted roots is here: name one in {ROOTS_VARIABLE}");
        io::Error::new(io::ErrorKind::Unsupported, why)
    })?;
    let failed = |e: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {e}", path.display()))
    };
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(&path).map_err(|e| failed(&e))? {
        // A system has roots that TLS here does not take, as of unknown curves.
        let _ = roots.add(root.map_err(|e| failed(&e))?);
    }
    if roots.is_empty() { Err(failed(&"it has no root")) } else { Ok(roots) }
}

/// A socket with one deadline for its calls, however few bytes come at a time.
struct TimedSocket {
    socket: TcpStream,
    clock: Monotonic,
    end: Duration,
}

impl TimedSocket {
    fn left(&self) -> Outcome<Option<Duration>> {
        let left = self.end.saturating_sub(Duration::from_nanos(self.clock.now()));
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

/// A socket's timeout reads as if there were nothing to read yet.
fn named(e: io::Error) -> io::Error {
    match e.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => e,
    }
}

impl Read for TimedSocket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(into).map_err(named)
    }
}

impl Write for TimedSocket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(from).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TimedStream for TimedSocket {
    fn begin(&mut self) {
        self.end = Duration::from_nanos(self.clock.now()) + REQUEST_TIME;
    }
}

impl TimedStream for StreamOwned<ClientConnection, TimedSocket> {
    fn begin(&mut self) {
        self.sock.begin();
    }
}
