use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;

use tempfile::TempDir;
use traceless_sys::listen::Clients;

use super::*;
use crate::nbd::Error;

fn bind(endpoint: Endpoint) -> crate::nbd::Result<Server> {
    Server::bind(endpoint, &Options::default())
}

fn bind_unix(path: &Path) -> crate::nbd::Result<Server> {
    bind(Endpoint::Unix(path.to_owned()))
}

fn error(result: crate::nbd::Result<Server>) -> Error {
    result.err().expect("this cannot be listened on")
}

/// A socket on any address, as another process may open it.
fn listen_on(address: SocketAddr) -> TcpListener {
    traceless_sys::listen::bind_address(address, Clients::Authenticated).unwrap()
}

fn probe() -> Arc<dyn Device> {
    Arc::new(Probe::default())
}

#[test]
fn a_socket_is_private_and_removed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let server = bind_unix(&path).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary name is left");
    // The socket accepts connections before the server runs.
    let early = UnixStream::connect(&path).unwrap();
    let running = Running::start(server, probe());
    assert_eq!(Client::ready(early, false).read(0, 1), Ok(vec![7]));
    drop(running);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    let server = bind_unix(&path).unwrap();
    assert!(matches!(error(bind_unix(&path)), Error::SocketInUse { .. }));
    drop(server);
    assert!(!path.exists());
}

#[test]
fn files_are_never_replaced() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(error(bind_unix(&path)), Error::NotASocket { .. }));
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("elsewhere", &path).unwrap();
    assert!(matches!(error(bind_unix(&path)), Error::NotASocket { .. }));
}

#[test]
fn what_took_the_place_of_a_socket_is_not_removed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let server = bind_unix(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    drop(server);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn impossible_paths_are_explained() {
    let folder = TempDir::new().unwrap();
    let long = folder.path().join("x".repeat(108));
    let message = error(bind_unix(&long)).to_string();
    assert!(message.contains("at most 107 bytes"), "{message}");
    let nowhere = folder.path().join("missing/socket");
    assert!(matches!(error(bind_unix(&nowhere)), Error::Listen { .. }));
}

#[test]
fn tcp_is_served_on_loopback_and_refused_elsewhere() {
    let server = bind(Endpoint::Tcp((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
    let address = server.tcp_address().unwrap();
    let _running = Running::start(server, probe());
    let mut client = Client::ready(TcpStream::connect(address).unwrap(), true);
    assert_eq!(client.read(0, 4096), Ok(vec![7; 4096]));

    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809"] {
        let error = error(bind(Endpoint::Tcp(address.parse().unwrap())));
        assert!(matches!(error, Error::Exposed { .. }));
        assert!(error.to_string().contains("give a certificate"), "{error}");
    }
    assert!(matches!(error(bind(Endpoint::Tcp(address))), Error::Listen { .. }), "it is in use");
}

#[test]
fn inherited_sockets_are_served_and_kept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let unix = UnixListener::bind(&path).unwrap();
    let tcp = listen_on((Ipv4Addr::LOCALHOST, 0).into());
    let address = tcp.local_addr().unwrap();
    let server = bind(Endpoint::Inherited(vec![unix.into(), tcp.into()])).unwrap();
    let running = Running::start(server, probe());
    let mut near = Client::ready(UnixStream::connect(&path).unwrap(), false);
    let mut far = Client::ready(TcpStream::connect(address).unwrap(), false);
    assert_eq!((near.read(0, 1), far.read(0, 1)), (Ok(vec![7]), Ok(vec![7])));
    drop(running);
    assert!(path.exists(), "it belongs to somebody else");
}

#[test]
fn inherited_sockets_must_be_fit() {
    let inherit = |fds: Vec<OwnedFd>| error(bind(Endpoint::Inherited(fds)));
    assert!(matches!(inherit(vec![]), Error::Inherited { .. }));
    let file = tempfile::tempfile().unwrap();
    assert!(matches!(inherit(vec![file.into()]), Error::Inherited { .. }));
    let (connected, _other) = UnixStream::pair().unwrap();
    assert!(matches!(inherit(vec![connected.into()]), Error::Inherited { .. }));
    let public = listen_on((Ipv4Addr::UNSPECIFIED, 0).into());
    assert!(matches!(inherit(vec![public.into()]), Error::Exposed { .. }));
}
