//! Tests of the server over its protocol, byte by byte.

mod connections;
mod handshake;
mod sockets;
mod tls;
mod transmission;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::gate::Gate;
use super::handshake::Tls;
use super::protocol::{
    CHUNK_MAGIC, GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_MAGIC,
    SIMPLE_REPLY_MAGIC, chunk, cmd, flag, info, opt, rep,
};
use super::session::{Session, run};
use super::{Endpoint, Handle, NamedDevice, Options, Server};
use crate::device::Device;

const COOKIE: [u8; 8] = *b"a cookie";
/// The negotiation's time limit in tests that wait for its end.
const SHORT: Duration = Duration::from_millis(400);

/// Serves one connection without a server, and returns the result of the session.
fn converse(device: &dyn Device, tls: Tls, talk: impl FnOnce(UnixStream)) -> io::Result<()> {
    converse_with(&[NamedDevice { name: "", device }], tls, talk)
}

/// As [`converse`], with several devices.
fn converse_with(
    exports: &[NamedDevice<'_>],
    tls: Tls,
    talk: impl FnOnce(UnixStream),
) -> io::Result<()> {
    let (near, far) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let session = scope.spawn(|| {
            let session = Session {
                exports,
                gate: &Gate::default(),
                tls,
                tls_config: None,
                before_transmission: &|| {},
            };
            run(&session, far)
        });
        talk(near);
        session.join().unwrap()
    })
}

/// Sends a byte every 10 ms. Returns whether the server hung up before all bytes were sent.
fn trickle(stream: &mut (impl Read + Write), bytes: impl Iterator<Item = u8>) -> bool {
    for byte in bytes {
        if stream.write_all(&[byte]).is_err() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A server in a thread. Drop ends it.
struct Running {
    handle: Handle,
    thread: Option<JoinHandle<super::Result<()>>>,
}

impl Running {
    fn start(server: Server, device: Arc<dyn Device>) -> Self {
        let handle = server.handle();
        Self { handle, thread: Some(std::thread::spawn(move || server.run(&device))) }
    }

    fn on_unix(path: &Path, device: Arc<dyn Device>) -> Self {
        let endpoint = Endpoint::Unix(path.to_owned());
        Self::start(Server::bind(endpoint, &Options::default()).unwrap(), device)
    }

    /// Ends the server, and returns the result of its thread.
    fn stop(&mut self) -> std::thread::Result<super::Result<()>> {
        self.handle.shutdown();
        self.thread.take().map_or(Ok(Ok(())), JoinHandle::join)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let result = self.stop();
        if !std::thread::panicking() {
            result.unwrap().unwrap();
        }
    }
}

/// A client that builds the protocol's messages by hand.
struct Client<S>(S);

impl<S: Read + Write> Client<S> {
    /// Reads the greeting, and answers it.
    fn greet(stream: S) -> Self {
        let mut client = Self(stream);
        assert_eq!(client.take(8), GREETING_MAGIC.to_be_bytes());
        assert_eq!(client.take(8), OPTION_MAGIC.to_be_bytes());
        assert_eq!(client.take(2), [0, 3]);
        client.send(&[0, 0, 0, 3]);
        client
    }

    /// Greets, and begins transmission.
    fn ready(stream: S, structured: bool) -> Self {
        let mut client = Self::greet(stream);
        if structured {
            assert_eq!(client.option(opt::STRUCTURED_REPLY, &[]), [(rep::ACK, vec![])]);
        }
        client.go();
        client
    }

    /// Begins transmission, and returns the transmission flags.
    fn go(&mut self) -> u16 {
        let replies = self.option(opt::GO, &info_data(b"", &[]));
        assert_eq!(replies.last(), Some(&(rep::ACK, vec![])));
        let (_, about) = &replies[0];
        assert_eq!(about[..2], info::EXPORT.to_be_bytes());
        let flags = u16::from_be_bytes(about[10..].try_into().unwrap());
        assert_ne!(flags & flag::HAS_FLAGS, 0);
        flags
    }

    /// Sends an option, and returns the replies to it.
    fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&option_bytes(option, data));
        let mut replies = Vec::new();
        loop {
            assert_eq!(self.take(8), OPTION_REPLY_MAGIC.to_be_bytes());
            assert_eq!(self.take(4), option.to_be_bytes());
            let reply = self.take_u32();
            let len = self.take_u32();
            replies.push((reply, self.take(len as usize)));
            if !matches!(reply, rep::SERVER | rep::INFO) {
                return replies;
            }
        }
    }

    fn read(&mut self, at: u64, len: u32) -> Result<Vec<u8>, u32> {
        self.send(&request(0, cmd::READ, at, len));
        self.reply(len as usize)
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<Vec<u8>, u32> {
        self.send(&[&request(0, cmd::WRITE, at, data.len() as u32), data].concat());
        self.reply(0)
    }

    /// Sends a request without payload and without data in its reply.
    fn plain(&mut self, flags: u16, command: u16, at: u64, len: u32) -> Result<Vec<u8>, u32> {
        self.send(&request(flags, command, at, len));
        self.reply(0)
    }

    /// Takes a reply, simple or structured, with `len` bytes of data if it is a success.
    fn reply(&mut self, len: usize) -> Result<Vec<u8>, u32> {
        let magic = self.take_u32();
        if magic == SIMPLE_REPLY_MAGIC {
            let errno = self.take_u32();
            assert_eq!(self.take(8), COOKIE);
            return if errno == 0 { Ok(self.take(len)) } else { Err(errno) };
        }
        assert_eq!(magic, CHUNK_MAGIC);
        assert_eq!(self.take(2), chunk::FLAG_DONE.to_be_bytes());
        let kind = u16::from_be_bytes(self.take(2).try_into().unwrap());
        assert_eq!(self.take(8), COOKIE);
        let chunk_len = self.take_u32() as usize;
        let body = self.take(chunk_len);
        match kind {
            chunk::NONE => assert_eq!((chunk_len, len), (0, 0)),
            chunk::OFFSET_DATA => assert_eq!(chunk_len, 8 + len),
            chunk::ERROR => {
                let text_len = u16::from_be_bytes(body[4..6].try_into().unwrap());
                assert_eq!(usize::from(text_len), chunk_len - 6);
                assert!(std::str::from_utf8(&body[6..]).unwrap().len() > 3, "it says why");
                return Err(u32::from_be_bytes(body[..4].try_into().unwrap()));
            }
            _ => panic!("chunk {kind} was not negotiated"),
        }
        Ok(body.get(8..).unwrap_or_default().to_vec())
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
        self.0.flush().unwrap();
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn take_u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    /// Whether the server has closed the connection.
    fn at_end(&mut self) -> bool {
        // If the server closes a connection with unread bytes, the client gets an error.
        self.0.read(&mut [0]).map_or(true, |got| got == 0)
    }
}

fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let head = [OPTION_MAGIC.to_be_bytes().as_slice(), &option.to_be_bytes()].concat();
    [&head, (data.len() as u32).to_be_bytes().as_slice(), data].concat()
}

fn info_data(name: &[u8], wanted: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name);
    data.extend((wanted.len() as u16).to_be_bytes());
    data.extend(wanted.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

fn request(flags: u16, command: u16, at: u64, len: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(COOKIE);
    bytes.extend(at.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// A call of a [`Probe`].
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Write { at: u64, first: u8, len: usize },
    Discard { at: u64, len: u64 },
    Flush,
}

/// A device that keeps a log, and blocks in writes of [`Probe::STUCK`] until it is released.
#[derive(Default)]
struct Probe {
    log: Mutex<Vec<Call>>,
    released: Mutex<bool>,
    changed: Condvar,
    keeps_discards: bool,
}

impl Probe {
    const STUCK: u8 = 0xff;
    const PANIC: u8 = 0xfe;

    fn log(&self) -> Vec<Call> {
        self.log.lock().unwrap().clone()
    }

    /// Waits until `calls` calls have begun.
    fn wait_for(&self, calls: usize) {
        let log = self.log.lock().unwrap();
        drop(self.changed.wait_while(log, |log| log.len() < calls).unwrap());
    }

    fn release(&self) {
        *self.released.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn begin(&self, call: Call) {
        self.log.lock().unwrap().push(call);
        self.changed.notify_all();
    }
}

impl Device for Probe {
    fn len(&self) -> u64 {
        8 << 30
    }

    fn block_len(&self) -> u32 {
        4096
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read(&self, _at: u64, into: &mut [u8]) -> io::Result<()> {
        into.fill(7);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let first = from[0];
        self.begin(Call::Write { at, first, len: from.len() });
        assert_ne!(first, Self::PANIC, "asked to panic");
        if first == Self::STUCK {
            let released = self.released.lock().unwrap();
            drop(self.changed.wait_while(released, |released| !*released).unwrap());
        }
        Ok(())
    }

    fn keeps_discards(&self) -> bool {
        self.keeps_discards
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.begin(Call::Discard { at, len });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.begin(Call::Flush);
        Ok(())
    }
}
