//! The server: accepts connections, gives each a thread, and finally ends all of them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustls::ServerConfig;
use traceless_sys::listen::Clients;

use super::error::{Error, Result};
use super::handshake::{NamedDevice, Tls};
use super::listen::{Endpoint, Listener, open};
use super::registry::{Peer, Registry};
use super::session::{self, Session};
use super::socket::Socket;
use super::tls::{TlsFiles, configure};
use crate::device::Device;

/// The wait after an error that the next `accept` can only repeat, for example too many open files.
const ACCEPT_RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The time for a client from the connection to the end of the negotiation, TLS included.
const NEGOTIATION_TIME: Duration = Duration::from_secs(30);

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The files for TLS, if the server offers it. TCP clients must then use TLS; clients of a unix
    /// socket may.
    pub tls: Option<TlsFiles>,
    /// The time for a client from the connection to the end of the negotiation.
    pub negotiation_time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { tls: None, negotiation_time: NEGOTIATION_TIME }
    }
}

/// A listening server. Connections wait until [`Server::run`] is called.
pub struct Server {
    listeners: Vec<Listener>,
    tls: Option<Arc<ServerConfig>>,
    negotiation_time: Duration,
    shutdown: Arc<ShutdownEvent>,
}

/// Ends a server from any thread, for instance from one that waits for signals.
#[derive(Clone)]
pub struct Handle(Arc<ShutdownEvent>);

impl Server {
    /// Listens on `endpoint`.
    pub fn bind(endpoint: Endpoint, options: &Options) -> Result<Self> {
        let tls = options.tls.as_ref().map(configure).transpose()?;
        let listeners = open(endpoint, clients(options))?;
        let negotiation_time = options.negotiation_time;
        Ok(Self { listeners, tls, negotiation_time, shutdown: Arc::new(ShutdownEvent::new()?) })
    }

    /// The TCP address of the first listener, with its actual port; `None` for a unix socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.listeners.first().and_then(Listener::address)
    }

    /// A handle that ends this server.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shutdown))
    }

    /// Serves `device` until [`Handle::shutdown`] is called. When it returns, all connections are
    /// closed, their threads have ended and the socket file is gone.
    ///
    /// Does not flush at the end: that is up to the owner of the device. A panic of the device ends
    /// the server and is passed on.
    pub fn run(self, device: &Arc<dyn Device>) -> Result<()> {
        self.run_exports(&[NamedDevice { name: "", device: &**device }])
    }

    /// As [`Server::run`], with several devices.
    pub fn run_exports(self, exports: &[NamedDevice<'_>]) -> Result<()> {
        let Self { listeners, tls, negotiation_time, shutdown } = self;
        let registry = Registry::default();
        let running = Running { exports, tls, negotiation_time, shutdown: &shutdown, registry };
        thread::scope(|scope| {
            let result = running.accept_until_rung(scope, &listeners);
            drop(listeners); // New clients are refused at once instead of waiting.
            running.registry.end_all();
            result
        })
    }
}

impl Handle {
    /// Ends the server: it accepts no more connections, finishes the current request of each
    /// connection, and closes them. Returns at once; [`Server::run`] returns when all is done.
    pub fn shutdown(&self) {
        self.0.signal();
    }
}

/// Clients are authenticated only if they must present certificates.
fn clients(options: &Options) -> Clients {
    match &options.tls {
        Some(TlsFiles { client_ca: Some(_), .. }) => Clients::Authenticated,
        _ => Clients::Anyone { remedy: "give --tls-client-ca" },
    }
}

/// Wakes the accepting thread. Once signalled, the shutdown stays signalled.
struct ShutdownEvent {
    signalled: AtomicBool,
    event: OwnedFd,
}

impl ShutdownEvent {
    fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(system("make an event"))?;
        Ok(Self { signalled: AtomicBool::new(false), event })
    }

    fn signal(&self) {
        if !self.signalled.swap(true, Ordering::AcqRel) {
            // The write cannot fail, as the counter is far from its maximum.
            let _ = rustix::io::write(&self.event, &1u64.to_be_bytes());
        }
    }
}

/// The state that the threads of a running server share.
struct Running<'a> {
    exports: &'a [NamedDevice<'a>],
    tls: Option<Arc<ServerConfig>>,
    negotiation_time: Duration,
    shutdown: &'a ShutdownEvent,
    registry: Registry,
}

impl Running<'_> {
    fn accept_until_rung<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        listeners: &[Listener],
    ) -> Result<()> {
        let mut polled: Vec<_> =
            listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
        polled.push(PollFd::new(&self.shutdown.event, PollFlags::IN));
        loop {
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(system("wait for connections")(errno)),
            }
            if self.shutdown.signalled.load(Ordering::Acquire) {
                return Ok(());
            }
            for (listener, poll_fd) in listeners.iter().zip(&polled) {
                if !poll_fd.revents().is_empty() {
                    self.accept(scope, listener)?;
                }
            }
        }
    }

    fn accept<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        listener: &Listener,
    ) -> Result<()> {
        let socket = match listener.accept(self.negotiation_time) {
            Ok(socket) => socket,
            Err(source) => match Errno::from_io_error(&source) {
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    let _ = poll(&mut [], Some(&ACCEPT_RETRY));
                    return Ok(());
                }
                Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK) => {
                    return Err(Error::System { action: "accept connections", source });
                }
                _ => return Ok(()), // The client or its network is gone.
            },
        };
        let Some(peer) = self.registry.add(socket.clone()) else { return Ok(()) };
        let tls = match self.tls {
            None => Tls::Unavailable,
            Some(_) if listener.address().is_none() => Tls::Offered,
            Some(_) => Tls::Required,
        };
        let visit = Visit { running: self, peer };
        let serve = move || visit.serve(socket, tls);
        // If no thread can be started, the connection is dropped together with the closure.
        let _ = thread::Builder::new().name("nbd".to_owned()).spawn_scoped(scope, serve);
        Ok(())
    }
}

/// A connection that is served. Its drop removes it from the registry, even after a panic.
struct Visit<'a> {
    running: &'a Running<'a>,
    peer: Arc<Peer>,
}

impl Visit<'_> {
    /// Serves the connection. An error is ignored, as the client notices it itself.
    fn serve(&self, socket: Socket, tls: Tls) {
        let Self { running, peer } = self;
        let session = Session {
            exports: running.exports,
            gate: &peer.gate,
            tls,
            tls_config: running.tls.as_ref(),
            before_transmission: &|| running.registry.fence_the_dead(peer),
        };
        let _: io::Result<()> = session::run(&session, socket);
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.running.registry.remove(&self.peer);
        if thread::panicking() {
            // The device is in an unknown state, so the server ends for all connections.
            self.running.shutdown.signal();
        }
    }
}

fn system(action: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::System { action, source: errno.into() }
}
