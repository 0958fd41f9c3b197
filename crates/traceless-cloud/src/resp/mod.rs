//! The Redis protocol in front of a gateway: for clients on the premises, who are trusted.
//!
//! One thread a connection. The gateway does one thing at a time, so a command of one connection is
//! whole before that of another begins.

mod access;
mod glob;
mod info;
mod protocol;
mod session;
mod values;

pub use access::Password;

use crate::front::{Front, Protocol, Stop};
use crate::gateway::TOGETHER_MAX;
use crate::tls::Tls;
use protocol::Reply;
use session::{Served, Session};
use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Connections at once.
const CONNECTIONS_MAX: usize = 1024;
/// Bytes of commands that are read at a time.
const COMMANDS_LEN: usize = 64 << 10;
/// Bytes of replies that are kept for one write.
const REPLIES_LEN: usize = 64 << 10;
/// How long commands that were begun may take once it is to stop.
const GRACE: Duration = Duration::from_secs(10);

/// How the protocol is served.
#[derive(Default)]
pub struct Options {
    /// What clients must know, if anything.
    pub password: Option<Password>,
    /// The server's certificate, if it speaks TLS.
    pub tls: Option<Tls>,
}

/// Serves connections until it is to stop, and finishes the commands that were begun.
pub fn serve(
    listener: &TcpListener,
    front: &Arc<Front>,
    options: Options,
    stop: &Stop,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let clients = Arc::new(Clients::default());
    let at_stop = clients.clone();
    stop.when_asked(move || {
        at_stop.hang_up();
        // Wakes the listener, which then sees it.
        drop(TcpStream::connect(address));
    });
    let Options { password, tls } = options;
    let served = Arc::new(Served::new(front.clone(), password));
    for stream in listener.incoming() {
        if stop.is_asked() {
            break;
        }
        // One client's failure, or too many of them, is no reason to turn the others away.
        let Ok(stream) = stream else { continue };
        let Ok(Some(number)) = clients.enter(&stream) else { continue };
        let (served, clients, tls) = (served.clone(), clients.clone(), tls.clone());
        std::thread::spawn(move || {
            served.front.metrics().connected(Protocol::Resp);
            let _ = match tls {
                None => converse(stream, &served),
                Some(tls) => tls.accept(stream).and_then(|stream| converse(stream, &served)),
            };
            served.front.metrics().disconnected(Protocol::Resp);
            clients.leave(number);
        });
    }
    // Those that came between the last look and the end.
    clients.hang_up();
    clients.wait();
    Ok(())
}

fn converse(stream: impl Read + Write, served: &Served) -> io::Result<()> {
    let mut from = BufReader::with_capacity(COMMANDS_LEN, stream);
    let mut session = Session::new(served);
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
        // What is pipelined is answered together.
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

/// Who is connected.
#[derive(Default)]
struct Clients {
    streams: Mutex<(u64, HashMap<u64, TcpStream>)>,
    left: Condvar,
}

impl Clients {
    /// Lets a client in, unless there are too many.
    fn enter(&self, stream: &TcpStream) -> io::Result<Option<u64>> {
        stream.set_nodelay(true)?;
        let own = stream.try_clone()?;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.1.len() >= CONNECTIONS_MAX {
            return Ok(None);
        }
        streams.0 += 1;
        let number = streams.0;
        streams.1.insert(number, own);
        Ok(Some(number))
    }

    fn leave(&self, number: u64) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.1.remove(&number);
        self.left.notify_all();
    }

    /// Nothing more is read of anybody; what was read is answered.
    fn hang_up(&self) {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in streams.1.values() {
            // Who has gone needs no farewell.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    fn wait(&self) {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.left.wait_timeout_while(streams, GRACE, |streams| !streams.1.is_empty()));
    }
}

/// Understands commands, and does what comes of them but for the gateway's part. For the fuzzer.
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
