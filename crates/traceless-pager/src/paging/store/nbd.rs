//! A store on a network block device (NBD): pages go to a server by its protocol, in the program or
//! the process that pages, without a device of the kernel.
//!
//! Several parts are requested at once. A connection that is lost is made again for a while, and
//! what had no reply is requested again: it is the same request, so the server learns nothing from
//! it. What a server loses is found when a page is opened.

use super::nbd_address::{NbdAddress, NbdPlace};
use super::split::PartStore;
use crate::paging::error::{Error, Result};
use crate::paging::kernel::own_files::OwnFile;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use traceless::clock::{Clock, Monotonic};
use traceless::error::Error as StoreError;

/// How long a server may be silent before the connection counts as lost.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a lost connection is tried to be made again.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Requests without a reply, at most: their headers fit into the buffers of a connection, so
/// neither side waits for the other to read.
const IN_FLIGHT: usize = 16;
/// Bytes of a request, at most.
const PART_MAX: usize = 1 << 20;

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// Bytes of a reply to an option, at most: names and texts.
const REPLY_MAX: u32 = 1 << 16;
/// Replies to an option, at most.
const REPLIES_MAX: usize = 64;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;

/// The error of a server that is about to end.
const SHUTDOWN: u32 = 108;

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_FLUSH: u16 = 3;

/// The first bytes of an export.
pub struct NbdStore {
    address: NbdAddress,
    len: u64,
    /// Requests are of multiples of so many bytes.
    block_len: usize,
    connection: Mutex<Option<NbdConnection>>,
    clock: Monotonic,
}

/// What a server says of an export.
#[derive(Clone, Copy)]
struct Export {
    len: u64,
    flags: u16,
    /// Offsets and lengths of requests are multiples of so many bytes.
    block_len: u32,
}

/// A connection to a server, with an export that it serves.
struct NbdConnection {
    stream: OwnFile,
    export: Export,
}

/// The bytes of a request, which its operation follows from; a flush has none.
enum RequestBytes<'a> {
    Into(&'a mut [u8]),
    From(&'a [u8]),
    Nothing,
}

struct Request<'a> {
    at: u64,
    bytes: RequestBytes<'a>,
    state: RequestState,
}

/// How far a request is on the connection there is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestState {
    Waiting,
    Sent,
    Done,
}

impl NbdStore {
    /// Connects to an export that is at least `len` bytes long, with blocks of at most
    /// `block_len` bytes.
    ///
    /// # Errors
    /// [`Error::Export`] with the reason.
    pub fn connect(address: &NbdAddress, len: u64, block_len: usize) -> Result<Self> {
        let (address, connection) = (address.clone(), Mutex::new(None));
        let store = Self { address, len, block_len, connection, clock: Monotonic::start() };
        let opened = store.open().map_err(|e| Error::Export {
            address: store.address.to_string(),
            what: e.to_string(),
        })?;
        *store.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
        Ok(store)
    }

    /// A new connection, with an export that has room for the pages.
    fn open(&self) -> io::Result<NbdConnection> {
        let connection = NbdConnection::open(&self.address)?;
        let (len, taken) = (self.len, self.block_len);
        let Export { len: found, flags, block_len } = connection.export;
        if flags & READ_ONLY != 0 {
            return Err(io::Error::other("it is for reading alone"));
        }
        if found < len {
            return Err(io::Error::other(format!(
                "it has {found} bytes, and pages take {len}: take a longer one, or less --memory"
            )));
        }
        if !taken.is_multiple_of(block_len as usize) {
            return Err(io::Error::other(format!(
                "its blocks of {block_len} bytes are too large: this scheme takes {taken}"
            )));
        }
        Ok(connection)
    }

    /// Makes all requests, on a new connection where one is lost.
    fn make(&self, requests: &mut [Request]) -> Result<(), StoreError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = self.clock.now();
        loop {
            let (error, was_open) = match connection.take().map_or_else(|| self.open(), Ok) {
                Ok(mut opened) => match opened.make(requests) {
                    Ok(()) => {
                        *connection = Some(opened);
                        return Ok(());
                    }
                    Err(error) => (error, true),
                },
                Err(error) => (error, false),
            };
            // A server that replies to a request with an error would do so again.
            let is_final = was_open && error.kind() == ErrorKind::Other;
            if is_final || self.clock.now() - begun > PATIENCE.as_nanos() as u64 {
                return Err(error.into());
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl PartStore for NbdStore {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_parts(&self, parts: Vec<(u64, &mut [u8])>) -> Result<(), StoreError> {
        let mut requests = vec![];
        for (at, part) in parts {
            for (nth, piece) in (0..).zip(part.chunks_mut(PART_MAX)) {
                requests.push(Request::new(at + nth * PART_MAX as u64, RequestBytes::Into(piece)));
            }
        }
        self.make(&mut requests)
    }

    fn write_parts(&self, parts: Vec<(u64, &[u8])>) -> Result<(), StoreError> {
        let mut requests = vec![];
        for (at, part) in parts {
            for (nth, piece) in (0..).zip(part.chunks(PART_MAX)) {
                requests.push(Request::new(at + nth * PART_MAX as u64, RequestBytes::From(piece)));
            }
        }
        self.make(&mut requests)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.make(&mut [Request::new(0, RequestBytes::Nothing)])
    }
}

impl<'a> Request<'a> {
    fn new(at: u64, bytes: RequestBytes<'a>) -> Self {
        Self { at, bytes, state: RequestState::Waiting }
    }

    fn header(&self, cookie: u64) -> [u8; 28] {
        let (command, len) = match &self.bytes {
            RequestBytes::Into(into) => (CMD_READ, into.len()),
            RequestBytes::From(from) => (CMD_WRITE, from.len()),
            RequestBytes::Nothing => (CMD_FLUSH, 0),
        };
        let mut header = [0; 28];
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[6..8].copy_from_slice(&command.to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        header[16..24].copy_from_slice(&self.at.to_be_bytes());
        header[24..].copy_from_slice(&(len as u32).to_be_bytes());
        header
    }
}

impl NbdConnection {
    fn open(address: &NbdAddress) -> io::Result<Self> {
        let stream = match &address.place {
            NbdPlace::Tcp(place) => {
                let family = match place {
                    SocketAddr::V4(_) => AddressFamily::INET,
                    SocketAddr::V6(_) => AddressFamily::INET6,
                };
                let stream = socket_at_high_number(family)?;
                sockopt::set_tcp_nodelay(&stream, true)?;
                rustix::net::connect(&stream, place)?;
                stream
            }
            NbdPlace::Unix(path) => {
                let stream = socket_at_high_number(AddressFamily::UNIX)?;
                rustix::net::connect(&stream, &SocketAddrUnix::new(path)?)?;
                stream
            }
        };
        let export = Export { len: 0, flags: 0, block_len: 1 };
        let mut connection = Self { stream, export };
        connection.negotiate(&address.export)?;
        Ok(connection)
    }

    /// The server's greeting, and the choice of an export.
    fn negotiate(&mut self, export: &str) -> io::Result<()> {
        let greeting: [u8; 18] = self.receive()?;
        let (magics, flags) = greeting.split_at(16);
        let flags = u16::from_be_bytes([flags[0], flags[1]]);
        if magics != [MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes()].concat() {
            return Err(io::Error::other("it is no NBD server"));
        }
        if flags & FIXED_NEWSTYLE == 0 {
            return Err(io::Error::other("it does not speak today's NBD (fixed newstyle)"));
        }
        let answer = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES));
        let mut option = answer.to_be_bytes().to_vec();
        option.extend(OPTION_MAGIC.to_be_bytes());
        option.extend(OPT_GO.to_be_bytes());
        // The length of the name, the name, and one request for information.
        option.extend((4 + export.len() as u32 + 4).to_be_bytes());
        option.extend((export.len() as u32).to_be_bytes());
        option.extend(export.as_bytes());
        option.extend(1_u16.to_be_bytes());
        option.extend(INFO_BLOCK_SIZE.to_be_bytes());
        self.write_all(&option)?;
        for _ in 0..REPLIES_MAX {
            if self.follow_reply()? {
                return Ok(());
            }
        }
        Err(io::Error::other("the server replies without an end"))
    }

    /// Reads a reply to the choice of an export. Returns whether it is the last one.
    fn follow_reply(&mut self) -> io::Result<bool> {
        let head: [u8; 20] = self.receive()?;
        let word = |at| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, len) = (word(12), word(16));
        if head[..8] != REPLY_MAGIC.to_be_bytes() || word(8) != OPT_GO || len > REPLY_MAX {
            return Err(io::Error::other("the server's reply cannot be understood"));
        }
        let mut data = vec![0; len as usize];
        self.read_exact(&mut data)?;
        match kind {
            REP_ACK => return Ok(true),
            REP_INFO => self.export.note(&data),
            kind if kind & REP_ERR != 0 => {
                let text = String::from_utf8_lossy(&data);
                let why = if text.is_empty() { "without a reason" } else { &*text };
                return Err(io::Error::other(format!("the server refuses the export: {why}")));
            }
            // Other information.
            _ => {}
        }
        Ok(false)
    }

    /// Makes the requests that are not done. Replies may come in any order.
    fn make(&mut self, requests: &mut [Request]) -> io::Result<()> {
        if matches!(requests, [Request { bytes: RequestBytes::Nothing, .. }])
            && self.export.flags & SEND_FLUSH == 0
        {
            return Ok(());
        }
        // What was sent on an earlier connection gets no reply on this one.
        for request in requests.iter_mut().filter(|one| one.state == RequestState::Sent) {
            request.state = RequestState::Waiting;
        }
        let mut waiting = 0;
        for nth in 0..requests.len() {
            if requests[nth].state == RequestState::Done {
                continue;
            }
            if waiting == IN_FLIGHT {
                self.follow(requests)?;
                waiting -= 1;
            }
            self.request(nth as u64, &requests[nth])?;
            requests[nth].state = RequestState::Sent;
            waiting += 1;
        }
        for _ in 0..waiting {
            self.follow(requests)?;
        }
        Ok(())
    }

    fn request(&mut self, cookie: u64, request: &Request) -> io::Result<()> {
        let header = request.header(cookie);
        let RequestBytes::From(from) = request.bytes else { return self.write_all(&header) };
        // One segment of the network for both.
        self.write_all(&[&header, from].concat())
    }

    /// Reads a reply to one of the requests.
    fn follow(&mut self, requests: &mut [Request]) -> io::Result<()> {
        let head: [u8; 16] = self.receive()?;
        let error = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let cookie = u64::from_be_bytes(head[8..].try_into().expect("eight bytes"));
        let request = usize::try_from(cookie).ok().and_then(|nth| requests.get_mut(nth));
        let request = request.filter(|request| request.state == RequestState::Sent);
        let is_reply = head[..4] == SIMPLE_REPLY_MAGIC.to_be_bytes();
        let Some(request) = request.filter(|_| is_reply) else {
            return Err(ErrorKind::InvalidData.into());
        };
        if error == SHUTDOWN {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if error != 0 {
            let cause = io::Error::from_raw_os_error(error.cast_signed());
            return Err(io::Error::other(format!("the server reports: {cause}")));
        }
        if let RequestBytes::Into(into) = &mut request.bytes {
            self.read_exact(into)?;
        }
        request.state = RequestState::Done;
        Ok(())
    }

    fn receive<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// A socket that is not yet connected, where programs do not meet it, and that waits only so long.
fn socket_at_high_number(family: AddressFamily) -> io::Result<OwnFile> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    let socket = OwnFile::at_high_number(socket);
    // The time for sending is also the one for connecting.
    for timeout in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(&socket, timeout, Some(SILENCE))?;
    }
    Ok(socket)
}

impl Export {
    /// Takes what a reply says.
    fn note(&mut self, info: &[u8]) {
        match info.split_first_chunk::<2>().map(|(kind, rest)| (u16::from_be_bytes(*kind), rest)) {
            Some((INFO_EXPORT, rest)) => {
                if let (Some(len), Some(flags)) = (rest.first_chunk(), rest.last_chunk()) {
                    self.len = u64::from_be_bytes(*len);
                    self.flags = u16::from_be_bytes(*flags);
                }
            }
            Some((INFO_BLOCK_SIZE, rest)) => {
                if let Some(smallest) = rest.first_chunk() {
                    self.block_len = u32::from_be_bytes(*smallest).max(1);
                }
            }
            _ => {}
        }
    }
}

/// Without signals of a closed connection (`SIGPIPE`), which would be the program's.
impl Write for NbdConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.stream, bytes, rustix::net::SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for NbdConnection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.stream, into)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paging::store::split::SplitStore;
    use std::fs::File;
    use std::os::unix::net::UnixStream;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command};
    use traceless::store::Store;
    use traceless::types::Extent;
    use traceless_sys::listen::{Clients, bind};

    const LEN: u64 = 4 << 20;

    /// A server of a file, by qemu-nbd.
    struct Server {
        folder: tempfile::TempDir,
        process: Child,
    }

    impl Server {
        fn start(options: &[&str]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            File::create(folder.path().join("disk")).unwrap().set_len(LEN).unwrap();
            let process = Self::process(folder.path(), options);
            Self { folder, process }
        }

        fn process(folder: &Path, options: &[&str]) -> Child {
            let mut command = Command::new("qemu-nbd");
            command.args(["--persistent", "--shared=4", "--format=raw", "--socket"]);
            let socket = folder.join("socket");
            let process = command.arg(&socket).args(options).arg(folder.join("disk")).spawn();
            let mut process = process.expect("qemu-nbd is there: apt-get install qemu-utils");
            while UnixStream::connect(&socket).is_err() {
                assert!(process.try_wait().unwrap().is_none(), "the server has ended");
                std::thread::sleep(Duration::from_millis(5));
            }
            process
        }

        fn address(&self, export: &str) -> NbdAddress {
            let place = NbdPlace::Unix(self.folder.path().join("socket"));
            NbdAddress { place, export: export.to_owned() }
        }

        fn disk(&self) -> PathBuf {
            self.folder.path().join("disk")
        }

        fn stop(&mut self) {
            self.process.kill().unwrap();
            self.process.wait().unwrap();
            // A killed server leaves it.
            let _ = std::fs::remove_file(self.folder.path().join("socket"));
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.stop();
        }
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|nth| (nth % 251) as u8).collect()
    }

    #[test]
    fn parts_come_back_from_a_server_and_lie_where_they_were_written() {
        let server = Server::start(&[]);
        let store = NbdStore::connect(&server.address(""), LEN, 4096).unwrap();
        let bytes = pattern(3 << 20);
        // A part longer than a request, and more parts than may be in flight, backwards.
        let (long, short) = bytes.split_at(2 << 20);
        let pieces = short.chunks(16 << 10).rev();
        let parts = pieces
            .clone()
            .zip((0..64).rev())
            .map(|(piece, nth)| ((2 << 20) + nth * (16 << 10), piece));
        store.write_parts([(0, long)].into_iter().chain(parts).collect()).unwrap();
        store.sync().unwrap();
        assert!(std::fs::read(server.disk()).unwrap()[..bytes.len()] == bytes);
        let mut back = vec![0; bytes.len()];
        let pieces = back.chunks_mut(40_960);
        store.read_parts((0..).map(|nth| nth * 40_960).zip(pieces).collect()).unwrap();
        assert!(back == bytes);
        // Past the end: the server's error, and then a new connection.
        assert!(store.read_parts(vec![(LEN, &mut [0])]).is_err());
        store.read_parts(vec![(1, &mut back[..9])]).unwrap();
        assert_eq!(back[..9], bytes[1..10]);
    }

    #[test]
    fn what_a_lost_connection_did_not_answer_is_requested_again() {
        let mut server = Server::start(&[]);
        let store = NbdStore::connect(&server.address(""), LEN, 4096).unwrap();
        let store = SplitStore::new(store, LEN + 100).unwrap();
        let bytes = pattern(1 << 20);
        store.write(&[Extent::new(LEN - (1 << 20) + 50, 1 << 20)], &bytes).unwrap();
        server.stop();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut back = vec![0; bytes.len()];
                store.read(&[Extent::new(LEN - (1 << 20) + 50, 1 << 20)], &mut back).unwrap();
                back
            });
            std::thread::sleep(Duration::from_millis(700));
            server.process = Server::process(server.folder.path(), &[]);
            assert!(reader.join().unwrap() == bytes);
        });
    }

    #[test]
    fn exports_that_cannot_be_used_are_refused_with_a_reason() {
        let refused = |address: &NbdAddress, len, block_len| {
            NbdStore::connect(address, len, block_len).err().unwrap().to_string()
        };
        let server = Server::start(&["--export-name=a b"]);
        NbdStore::connect(&server.address("a b"), LEN, 1).unwrap();
        let wrong = refused(&server.address("c"), LEN, 1);
        assert!(
            wrong.contains("the server refuses the export") && wrong.contains("/c?"),
            "{wrong}"
        );
        let short = refused(&server.address("a b"), LEN + 1, 1);
        assert!(short.contains("or less --memory"), "{short}");
        let reading = Server::start(&["--read-only"]);
        let wrong = refused(&reading.address(""), LEN, 1);
        assert!(wrong.contains("for reading alone"), "{wrong}");
        let address = reading.address("");
        drop(reading);
        assert!(refused(&address, LEN, 1).contains("nbd+unix:///?socket="));
    }

    #[test]
    fn a_server_that_stays_away_is_an_error() {
        let mut server = Server::start(&[]);
        let store = NbdStore::connect(&server.address(""), LEN, 4096).unwrap();
        store.write_parts(vec![(0, &[1; 4096])]).unwrap();
        server.stop();
        let mut bytes = [0; 4096];
        assert!(matches!(store.read_parts(vec![(0, &mut bytes)]), Err(StoreError::Io(_))));
        // It may come back later.
        server.process = Server::process(server.folder.path(), &[]);
        store.read_parts(vec![(0, &mut bytes)]).unwrap();
        assert_eq!(bytes, [1; 4096]);
    }

    /// A server that ends after a reply to what was not sent, or to what never is, or with an error
    /// of a shutdown.
    #[test]
    fn wrong_replies_and_shutdowns_lose_the_connection_alone() {
        const PARTS: usize = IN_FLIGHT + 4;
        for (cookie, error) in [(IN_FLIGHT as u64, 0), (PARTS as u64, 0), (0, SHUTDOWN)] {
            let clients = Clients::Anyone { remedy: "none" };
            let listener = bind("127.0.0.1:0", clients).unwrap();
            let place = NbdPlace::Tcp(listener.local_addr().unwrap());
            let address = NbdAddress { place, export: "x".into() };
            let server = std::thread::spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                greet(&mut client);
                client.read_exact(&mut [0; IN_FLIGHT * 28]).unwrap();
                reply(&mut client, cookie, error);
                let (mut client, _) = listener.accept().unwrap();
                greet(&mut client);
                for _ in 0..PARTS {
                    let mut request = [0; 28];
                    client.read_exact(&mut request).unwrap();
                    reply(&mut client, u64::from_be_bytes(*request[8..].first_chunk().unwrap()), 0);
                }
            });
            let store = NbdStore::connect(&address, LEN, 4096).unwrap();
            let mut bytes = [0; 9 * PARTS];
            store.read_parts((0..).zip(bytes.chunks_mut(9)).collect()).unwrap();
            assert_eq!(bytes, [7; 9 * PARTS]);
            server.join().unwrap();
        }
    }

    /// A reply to a request to read nine bytes.
    fn reply(client: &mut std::net::TcpStream, cookie: u64, error: u32) {
        let mut reply = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(cookie.to_be_bytes());
        reply.extend([7; 9]);
        client.write_all(&reply).unwrap();
    }

    /// The server's part of the choice of an export.
    fn greet(client: &mut std::net::TcpStream) {
        let greeting = [&MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &[0, 3]].concat();
        client.write_all(&greeting).unwrap();
        client.read_exact(&mut [0; 4 + 16 + 4 + 1 + 4]).unwrap();
        let head = |kind: u32, len: u32| {
            let words = [OPT_GO, kind, len].map(u32::to_be_bytes).concat();
            [&REPLY_MAGIC.to_be_bytes()[..], &words].concat()
        };
        let export = [&[0, 0][..], &LEN.to_be_bytes(), &[0, 1]].concat();
        let replies = [head(REP_INFO, 12), export, head(REP_ACK, 0)].concat();
        client.write_all(&replies).unwrap();
    }
}
