//! A socket that says what paging does while the program runs: each client gets a line of JSON at
//! once, and one more each second until it closes the connection or the program ends.

use super::counters::Summary;
use super::program_counters::ProgramCounters;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen};
use rustix::time::Timespec;
use serde::Serialize;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use traceless::clock::{Clock, MachineClock};

/// Clients at a time. Further ones wait until one of these leaves.
const CLIENTS_MAX: usize = 64;

/// Clients that wait to be accepted, at most.
const BACKLOG: i32 = 64;

/// Nanoseconds between two lines.
const INTERVAL_NS: u64 = 1_000_000_000;

/// The socket. It is served until this is dropped, which removes its file.
pub struct StatsSocket {
    path: PathBuf,
    /// Its end ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// One line.
#[derive(Serialize)]
struct Stats {
    schema: &'static str,
    /// Page faults of all programs in the second before.
    faults_per_second: f64,
    /// Pages of all programs that are in memory.
    resident: u64,
    /// Pages of all programs that are in stores only.
    outside: u64,
    /// Bytes of one program's store.
    store_bytes: u64,
    programs: Vec<ProgramCounters>,
}

impl StatsSocket {
    /// Serves the counters in `folder`. Only this user may connect. A file that a killed process
    /// left at `path` is replaced; any other file is refused.
    pub fn start(path: &Path, folder: &Path, store_bytes: u64) -> io::Result<Self> {
        let listener = open(path)?;
        let (stop, is_over) = UnixStream::pair()?;
        let mut server = Server {
            listener,
            is_over,
            folder: folder.to_owned(),
            store_bytes,
            clients: vec![],
            faults: 0,
            since: MachineClock.now(),
            line: vec![],
            is_paused: false,
        };
        let thread = std::thread::spawn(move || server.run());
        Ok(Self { path: path.to_owned(), stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for StatsSocket {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Another process may have replaced the folder; then there is nothing to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A socket at `path` that only this user may connect to.
#[expect(clippy::disallowed_methods, reason = "the rule is for networks, and this is a file")]
fn open(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "it exists, and is no socket"));
        }
        // No process listens there: one was killed that did.
        Ok(_)
            if UnixStream::connect(path)
                .is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) =>
        {
            std::fs::remove_file(path)?;
        }
        Ok(_) => return Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there")),
        Err(_) => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file takes these permissions when it is made, so no other user can connect before.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

struct Server {
    listener: UnixListener,
    is_over: UnixStream,
    folder: PathBuf,
    store_bytes: u64,
    clients: Vec<UnixStream>,
    /// Faults of all programs at the time `since`.
    faults: u64,
    since: u64,
    /// The last line.
    line: Vec<u8>,
    /// Whether clients wait for the next line, as this process may open no more files.
    is_paused: bool,
}

impl Server {
    fn run(&mut self) {
        self.take_line(0);
        loop {
            let passed = MachineClock.now().saturating_sub(self.since);
            if passed >= INTERVAL_NS {
                self.take_line(passed);
                self.send_all();
                continue;
            }
            match self.wait(Duration::from_nanos(INTERVAL_NS - passed)) {
                Ok([_, true]) | Err(_) => break,
                Ok([true, _]) => self.accept(),
                Ok(_) => {}
            }
        }
        // Each client sees the last numbers.
        self.take_line(MachineClock.now().saturating_sub(self.since));
        self.send_all();
    }

    /// Waits for a client or the end, and says which of them there is.
    fn wait(&self, limit: Duration) -> io::Result<[bool; 2]> {
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        let mut all = [self.listener.as_fd(), self.is_over.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // While there are as many as may be, the next one waits.
        let first = usize::from(self.is_paused || self.clients.len() >= CLIENTS_MAX);
        match poll(&mut all[first..], Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(all.map(|one| !one.revents().is_empty()))
    }

    fn accept(&mut self) {
        let client = match self.listener.accept() {
            Ok((client, _)) => client,
            Err(e) => {
                self.is_paused |= e.kind() != ErrorKind::WouldBlock;
                return;
            }
        };
        if client.set_nonblocking(true).is_ok() && send(&client, &self.line) {
            self.clients.push(client);
        }
    }

    /// Sends the line to all clients, and drops the ones that have left or do not read.
    fn send_all(&mut self) {
        let line = &self.line;
        self.clients.retain(|client| send(client, line));
    }

    /// Makes the line anew, `passed` nanoseconds after the last one.
    fn take_line(&mut self, passed: u64) {
        self.is_paused = false;
        let programs = ProgramCounters::read_all(&self.folder);
        let sum =
            |of: fn(&Summary) -> u64| programs.iter().map(|one| of(&one.summary)).sum::<u64>();
        let faults = sum(|one| one.faults);
        let stats = Stats {
            schema: "traceless.run.stats.v1",
            faults_per_second: rate(faults.saturating_sub(self.faults), passed),
            resident: sum(|one| one.resident),
            outside: sum(|one| one.outside),
            store_bytes: self.store_bytes,
            programs,
        };
        (self.faults, self.since) = (faults, MachineClock.now());
        self.line = serde_json::to_vec(&stats).expect("numbers and names are JSON");
        self.line.push(b'\n');
    }
}

/// Whether the client took the whole line.
fn send(mut client: &UnixStream, line: &[u8]) -> bool {
    client.write(line).is_ok_and(|sent| sent == line.len())
}

fn rate(count: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { count as f64 * INTERVAL_NS as f64 / ns as f64 }
}

#[cfg(test)]
mod tests {
    use super::super::counters::CounterFile;
    use super::*;
    use serde_json::Value;
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn clients_get_a_line_at_once_and_one_each_second() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let counters = folder.path().join("counters");
        std::fs::create_dir(&counters).unwrap();
        let file = CounterFile::create_for(&counters, 7).unwrap();
        file.faults.store(5, Relaxed);
        file.resident.store(3, Relaxed);
        let socket = StatsSocket::start(&path, &counters, 4096).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut client = BufReader::new(UnixStream::connect(&path).unwrap());
        let mut next = || {
            let mut line = String::new();
            client.read_line(&mut line).unwrap();
            serde_json::from_str::<Value>(&line).unwrap()
        };
        let first = next();
        assert_eq!(first["schema"], "traceless.run.stats.v1");
        assert_eq!((&first["resident"], &first["store_bytes"]), (&3.into(), &4096.into()));
        assert_eq!(first["programs"][0]["faults"], 5);
        file.faults.store(105, Relaxed);
        let second = next();
        let rate = second["faults_per_second"].as_f64().unwrap();
        assert!((50.0..=101.0).contains(&rate), "{second}");
        // A client that leaves is no harm to another one.
        drop(UnixStream::connect(&path).unwrap());
        assert_eq!(next()["faults_per_second"], 0.0);
        drop(socket);
        let mut rest = String::new();
        client.read_to_string(&mut rest).unwrap();
        assert_eq!(rest.lines().count(), 1, "the last numbers: {rest}");
        assert!(!path.exists());
    }

    #[test]
    fn only_a_socket_that_no_process_listens_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        std::fs::write(&path, "a file").unwrap();
        let refused = |path: &Path| open(path).unwrap_err().to_string();
        assert!(refused(&path).contains("no socket"));
        std::fs::remove_file(&path).unwrap();
        let listener = open(&path).unwrap();
        assert!(refused(&path).contains("another process"));
        drop(listener);
        open(&path).unwrap();
        let long = folder.path().join("x".repeat(200));
        assert!(open(&long).is_err());
    }
}
