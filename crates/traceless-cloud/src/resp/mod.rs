//! The Redis protocol in front of a gateway, for trusted clients on the premises.
//!
//! Each connection has one thread. Commands that only read values, or only set or remove them,
//! share their queries with other connections; commands that change what they read have the gateway
//! for themselves.
//!
//! Any client of Redis can use the server, even a line of text:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//! use traceless_cloud::resp::{Options, serve};
//! use traceless_cloud::shared::{SharedGateway, Stop, Wall};
//! # use std::sync::Arc;
//! # use traceless_cloud::kernel::Choice;
//! # use traceless_cloud::local_deployment::LocalDeployment;
//! # use traceless_cloud::params::Params;
//! # use traceless_cloud::store::Durability;
//! # use traceless_cloud::tee::Policy;
//!
//! # fn main() -> traceless_cloud::Result {
//! # let folder = tempfile::tempdir()?;
//! # let params = Params::new(500, 64, 4)?;
//! # let local =
//! #     LocalDeployment::new(folder.path(), None, None, Policy::Simulated);
//! # let gateway = local.open(params, Choice::Benes, Durability::Process)?.gateway;
//! # let metrics = Arc::default();
//! let front = Arc::new(SharedGateway::new(gateway, metrics, Arc::new(Wall)));
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let stop = Arc::new(Stop::default());
//! let (served, stopping) = (front.clone(), stop.clone());
//! let serving =
//!     std::thread::spawn(move || serve(&listener, &served, Options::default(), &stopping));
//!
//! let mut client = TcpStream::connect(address)?;
//! client.write_all(b"SET ann blue\r\nGET ann\r\nQUIT\r\n")?;
//! let mut replies = String::new();
//! client.read_to_string(&mut replies)?;
//! assert_eq!(replies, "+OK\r\n$4\r\nblue\r\n+OK\r\n");
//! stop.request();
//! serving.join().expect("no panic")?;
//! front.close()?;
//! # Ok(())
//! # }
//! ```

mod acl;
mod command_table;
mod glob;
mod info;
mod protocol;
mod service;
mod session;
mod shared_commands;
mod transaction;
mod user_list;
mod users;
mod value_commands;
mod values;

pub use traceless_sys::password::Password;
pub use user_list::RespUsers;

use crate::connection_places::{ConnectionPlaces, Place, REST, STRANGER_TIME};
use crate::deadline_stream::{Deadline, DeadlineStream};
use crate::gateway::TOGETHER_MAX;
use crate::shared::{Protocol, SharedGateway, Stop};
use crate::tls::Tls;
use protocol::Reply;
use service::SharedService;
use session::RespSession;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use traceless_sys::listen::{self, Clients};

/// Connections at once. A further connection replaces the oldest one that has not sent the password
/// or, without a password, a command.
const CONNECTIONS_MAX: usize = 1024;
/// Bytes of commands that are read at once.
const COMMANDS_LEN: usize = 64 << 10;
/// Bytes of replies that are collected for one write.
const REPLIES_LEN: usize = 64 << 10;
/// How long running commands may take after a stop is requested.
const GRACE: Duration = Duration::from_secs(10);

/// Options of the server.
pub struct Options {
    /// The users that clients are known as.
    pub users: RespUsers,
    /// The server's certificate and key, if it uses TLS.
    pub tls: Option<Tls>,
    /// How long a client may take for TLS and the password together.
    pub stranger_time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { users: RespUsers::of_default(None), tls: None, stranger_time: STRANGER_TIME }
    }
}

/// How clients authenticate.
pub fn clients(users: &RespUsers) -> Clients {
    if users.have_passwords() {
        return Clients::Authenticated;
    }
    Clients::Anyone { remedy: "give --resp-password-file or --resp-users" }
}

/// Serves connections until a stop is requested, and finishes running commands.
pub fn serve(
    listener: &TcpListener,
    front: &Arc<SharedGateway>,
    options: Options,
    stop: &Stop,
) -> io::Result<()> {
    let Options { users, tls, stranger_time } = options;
    listen::check_listener(listener, clients(&users))?;
    let address = listener.local_addr()?;
    users.allow_open(listen::is_loopback(address));
    let places = ConnectionPlaces::new(CONNECTIONS_MAX);
    let at_stop = places.clone();
    stop.on_stop(move || {
        hang_up(&at_stop);
        // Wakes the listener, which then notices the stop.
        drop(TcpStream::connect(address));
    });
    let served = Arc::new(SharedService::new(front.clone(), users));
    for stream in listener.incoming() {
        if stop.is_requested() {
            break;
        }
        // The failure of one connection, or too many of them, must not end the server.
        let Ok(stream) = stream else {
            places.make_room();
            std::thread::sleep(REST);
            continue;
        };
        let Ok(Some((stranger, stream))) = enter(&places, stream, stranger_time) else { continue };
        if tls.is_none() && RespSession::new(&served).is_known() {
            // Without TLS and passwords a client may stay silent.
            let _ = stranger.deadline.lift(&stranger.stream);
        }
        let (served, tls) = (served.clone(), tls.clone());
        // If no thread can be started, the connection is dropped with the closure.
        let _ = std::thread::Builder::new().spawn(move || {
            served.front.metrics().connected(Protocol::Resp);
            let _ = match tls {
                None => converse(stream, &stranger, &served),
                Some(tls) => {
                    tls.accept(stream).and_then(|stream| converse(stream, &stranger, &served))
                }
            };
            served.front.metrics().disconnected(Protocol::Resp);
        });
    }
    // Connections that arrived between the last check and the end.
    hang_up(&places);
    places.wait(GRACE);
    Ok(())
}

/// A client that is not authenticated.
struct Stranger {
    place: Place<Arc<TcpStream>>,
    stream: Arc<TcpStream>,
    deadline: Deadline,
}

impl Stranger {
    /// Marks the client as authenticated: it keeps its place and has no deadline.
    fn keep(&self) -> io::Result<()> {
        self.place.keep();
        self.deadline.lift(&self.stream)
    }
}

/// Admits a client, unless authenticated clients hold all places.
fn enter(
    places: &Arc<ConnectionPlaces<Arc<TcpStream>>>,
    stream: TcpStream,
    stranger_time: Duration,
) -> io::Result<Option<(Stranger, DeadlineStream)>> {
    stream.set_nodelay(true)?;
    let stream = Arc::new(stream);
    let Some(place) = places.enter(stream.clone()) else { return Ok(None) };
    let timed = DeadlineStream::new(stream.clone(), stranger_time);
    Ok(Some((Stranger { place, stream, deadline: timed.deadline() }, timed)))
}

/// Stops reading from all connections. Commands that were read are answered.
fn hang_up(places: &ConnectionPlaces<Arc<TcpStream>>) {
    places.for_each(|stream| {
        // An error means that the client has closed the connection already.
        let _ = stream.shutdown(Shutdown::Read);
    });
}

fn converse(
    stream: impl Read + Write,
    stranger: &Stranger,
    served: &SharedService,
) -> io::Result<()> {
    let mut from = BufReader::with_capacity(COMMANDS_LEN, stream);
    let mut session = RespSession::new(served);
    let mut is_kept = false;
    let mut replies = Vec::new();
    loop {
        let len_max = session.command_len_max();
        let ends = match protocol::read(&mut from, len_max) {
            Ok(Some(first)) => {
                let mut commands = vec![first];
                while commands.len() < TOGETHER_MAX
                    && let Some((next, len)) = protocol::read_whole(from.buffer(), len_max)
                {
                    from.consume(len);
                    commands.push(next);
                }
                session.answer_all(&commands, &mut replies)?
            }
            Ok(None) => break,
            Err(e) => {
                Reply::Error(format!("ERR {e}")).write(session.version(), &mut replies)?;
                true
            }
        };
        if !is_kept && session.is_known() {
            stranger.keep()?;
            is_kept = true;
        }
        // Pipelined commands are answered together.
        if ends || from.buffer().is_empty() || replies.len() >= REPLIES_LEN {
            from.get_mut().write_all(&replies)?;
            from.get_mut().flush()?;
            replies = Vec::new();
        }
        if ends {
            break;
        }
    }
    from.get_mut().write_all(&replies)?;
    from.get_mut().flush()
}

/// Parses commands and their options without a gateway, for the fuzzer.
#[doc(hidden)]
pub fn fuzz_commands(mut bytes: &[u8]) {
    while let Ok(Some(command)) = protocol::read(&mut bytes, 1 << 16) {
        if let [pattern, name, ..] = &command[..] {
            glob::matches(pattern, name);
        }
        session::fuzz_options(&command);
        let _ =
            Reply::Array(command.into_iter().map(Reply::Bulk).collect()).write(3, &mut io::sink());
    }
}

#[cfg(test)]
mod tests;
