//! Listening for clients: on a unix socket, on TCP, or on sockets that a service manager opened.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, chmod, lstat, rename, unlink};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, getsockname,
    listen, socket_with, sockopt,
};
use traceless_sys::listen::{Clients, ListenError, bind_address, check};

use super::error::{Error, Result};
use super::socket::Socket;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// Longest path of a unix socket on Linux; one byte of the field is for the terminating zero.
const SOCKET_PATH_LEN_MAX: usize = 107;
/// Attempts to find a free temporary name.
const NAMES_MAX: usize = 16;

/// Where to listen.
#[derive(Debug)]
#[non_exhaustive]
pub enum Endpoint {
    /// A unix socket. Only its owner can connect to it. It accepts connections from the moment that
    /// its name exists, and is removed when the server ends.
    Unix(PathBuf),
    /// An address and port. Addresses other than loopback need TLS with client certificates. Port 0
    /// chooses a free one.
    Tcp(SocketAddr),
    /// Listening sockets from a service manager. The server does not remove them.
    Inherited(Vec<OwnedFd>),
}

/// A listening socket.
pub(super) struct Listener {
    fd: OwnedFd,
    address: Option<SocketAddr>,
    /// Removes the socket's file when the listener is dropped.
    _file: Option<SocketFile>,
}

/// Listens on `endpoint`. Returns at least one listener.
pub(super) fn open(endpoint: Endpoint, clients: Clients) -> Result<Vec<Listener>> {
    let listeners = match endpoint {
        Endpoint::Unix(path) => vec![listen_unix(&path)?],
        Endpoint::Tcp(address) => vec![listen_tcp(address, clients)?],
        Endpoint::Inherited(fds) => {
            fds.into_iter().map(|fd| adopt(fd, clients)).collect::<Result<_>>()?
        }
    };
    if listeners.is_empty() {
        return Err(Error::Inherited { reason: "there are none".to_owned() });
    }
    Ok(listeners)
}

impl Listener {
    /// The address of a TCP socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The next connection; `WouldBlock` if there is none after all. Its client has
    /// `negotiation_time` for the negotiation.
    pub fn accept(&self, negotiation_time: Duration) -> io::Result<Socket> {
        let (fd, _) = acceptfrom_with(&self.fd, SocketFlags::CLOEXEC)?;
        Ok(Socket::new(fd, self.address.is_none(), negotiation_time))
    }

    fn new(fd: OwnedFd, file: Option<SocketFile>) -> rustix::io::Result<Self> {
        // A client may disconnect before it is accepted. Then `accept` must not block the server.
        rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        let address = SocketAddr::try_from(getsockname(&fd)?).ok();
        Ok(Self { fd, address, _file: file })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A socket in the file system. It is removed on drop, unless another file has taken its place.
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = unlink(&self.path);
        }
    }
}

/// Makes the socket under a temporary name, and renames it once it accepts connections.
fn listen_unix(path: &Path) -> Result<Listener> {
    make_way(path)?;
    let (mut file, fd) = bind_beside(path)?;
    let finish = || -> rustix::io::Result<Listener> {
        // Before the socket listens, no client can connect: so the permissions hold from the
        // beginning.
        chmod(&file.path, Mode::RUSR | Mode::WUSR)?;
        listen(&fd, BACKLOG)?;
        rename(&file.path, path)?;
        path.clone_into(&mut file.path);
        Listener::new(fd, Some(file))
    };
    finish().map_err(|errno| Error::Listen {
        address: path.display().to_string(),
        source: errno.into(),
    })
}

/// Fails if replacing the file at `path` would lose anything.
fn make_way(path: &Path) -> Result<()> {
    let fail = |source: io::Error| Error::Listen { address: path.display().to_string(), source };
    if path.as_os_str().len() > SOCKET_PATH_LEN_MAX {
        return Err(too_long(path));
    }
    match lstat(path) {
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(fail(errno.into())),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => {
            return Err(Error::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        // The socket was left behind by a server that was killed.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(Error::SocketInUse { path: path.to_owned() }),
        Err(error) => Err(fail(error)),
    }
}

/// Binds a socket to a temporary name in the folder of `path`.
#[expect(clippy::disallowed_methods, reason = "a unix socket, which admits its owner only")]
fn bind_beside(path: &Path) -> Result<(SocketFile, OwnedFd)> {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let fail = |errno: Errno| match errno {
        Errno::NAMETOOLONG => too_long(path),
        _ => Error::Listen { address: path.display().to_string(), source: errno.into() },
    };
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(fail)?;
    for _ in 0..NAMES_MAX {
        let name = format!(".{}.{}", std::process::id(), NAMES.fetch_add(1, Ordering::Relaxed));
        let temporary = path.with_file_name(OsString::from(name));
        let address = SocketAddrUnix::new(&temporary).map_err(fail)?;
        match bind(&fd, &address) {
            // The name was left behind by a process that had the same number.
            Err(Errno::ADDRINUSE) => {}
            Err(errno) => return Err(fail(errno)),
            Ok(()) => {
                let inode = inode(&temporary).map_err(fail)?;
                return Ok((SocketFile { path: temporary, inode }, fd));
            }
        }
    }
    Err(fail(Errno::ADDRINUSE))
}

fn too_long(path: &Path) -> Error {
    Error::SocketPathTooLong { path: path.to_owned(), limit: SOCKET_PATH_LEN_MAX }
}

fn inode(path: &Path) -> rustix::io::Result<(u64, u64)> {
    let stat = lstat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn listen_tcp(address: SocketAddr, clients: Clients) -> Result<Listener> {
    let listener = bind_address(address, clients).map_err(refused)?;
    Listener::new(listener.into(), None)
        .map_err(|errno| Error::Listen { address: address.to_string(), source: errno.into() })
}

fn refused(error: ListenError) -> Error {
    match error {
        ListenError::Exposed { address, .. } => Error::Exposed { address },
        ListenError::Io { address, source } => Error::Listen { address, source },
    }
}

/// Takes over a socket that another process opened.
fn adopt(fd: OwnedFd, clients: Clients) -> Result<Listener> {
    let fail = |reason: &str| Error::Inherited { reason: reason.to_owned() };
    let family = getsockname(&fd).map_err(|errno| fail(&errno.to_string()))?.address_family();
    if ![AddressFamily::UNIX, AddressFamily::INET, AddressFamily::INET6].contains(&family) {
        return Err(fail("one is neither a unix nor a TCP socket"));
    }
    if sockopt::socket_type(&fd) != Ok(SocketType::STREAM)
        || sockopt::socket_acceptconn(&fd) != Ok(true)
    {
        return Err(fail("one does not listen for streams"));
    }
    let listener = Listener::new(fd, None).map_err(|errno| fail(&errno.to_string()))?;
    if let Some(address) = listener.address {
        check(address, clients).map_err(refused)?;
    }
    Ok(listener)
}
