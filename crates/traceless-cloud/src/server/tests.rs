use super::*;
use crate::connection_places::STRANGER_TIME;
use crate::enclave_orders::Location;
use crate::frame;
use crate::gateway::Gateway;
use crate::gateway::testing::{BLOCK, params};
use crate::host::QueryRequest;
use crate::kernel::Choice;
use crate::local_deployment::OpenGateway;
use crate::process::tests::this_program;
use crate::remote::{HostAddress, Remote};
use crate::shared::{RateThread, SharedGateway, Wall};
use crate::store::{Durability, StoreFolder, StorePlace};
use crate::tee::Policy;
use crate::wire::message::{self, NumberedRequest, VERSION};
use rustls::{ClientConnection, StreamOwned};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;
use traceless_core::rng::SeededRng;

const BLOCKS: u64 = 2000;

/// A host in its own thread.
struct Running {
    server: Arc<HostServer>,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(folder: &Path, address: &str) -> Self {
        Self::start_for(folder, address, None)
    }

    fn start_for(folder: &Path, address: &str, known: Option<PathBuf>) -> Self {
        let server = HostServer::new(Settings {
            folder: folder.to_owned(),
            // Room for the roots only.
            store: StorePlace::new(
                Box::new(StoreFolder {
                    folder: folder.join("nodes"),
                    durability: Durability::Process,
                }),
                3 * params(BLOCKS).geometry.node_len(0) as u64,
            ),
            enclave: Some(this_program("enclave")),
            identity: None,
            clients: known,
            machine: None,
            stranger_time: STRANGER_TIME,
        });
        let server = Arc::new(server.unwrap());
        let listener = listen::bind(address, clients(true)).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (serving, stopping) = (server.clone(), stop.clone());
        let thread = std::thread::spawn(move || serving.serve(&listener, &stopping).unwrap());
        Self { server, address, stop, thread: Some(thread) }
    }

    /// The host as reached at an address.
    fn host_at(&self, address: SocketAddr) -> HostAddress {
        let certificate = self.server.certificate().to_owned();
        HostAddress { address: address.to_string(), certificate }
    }

    fn remote(&self) -> Remote {
        Remote {
            hosts: vec![self.host_at(self.address)],
            identity: None,
            policy: Policy::Simulated,
            anchor: None,
            witness: None,
        }
    }

    fn open(&self, home: &Path) -> Result<OpenGateway> {
        let params = params(BLOCKS);
        self.remote().open(home, None, params, Choice::Benes, Durability::Process)
    }

    fn enclave(&self) -> Option<u32> {
        self.server.lock().current.as_ref().and_then(|current| current.enclave_id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
        // Connections have their own threads, which hold the store until they end.
        while Arc::strong_count(&self.server) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn kill(process: u32) {
    let process = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
}

/// An array to compare the store with.
struct Model {
    blocks: Vec<u8>,
    rng: SeededRng,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self { blocks: vec![0; BLOCKS as usize], rng: SeededRng::new(seed) }
    }

    fn run(&mut self, gateway: &mut Gateway, operations: u32) {
        for _ in 0..operations {
            let id = self.rng.below(BLOCKS);
            let version = &mut self.blocks[id as usize];
            if self.rng.below(2) == 0 {
                *version = version.wrapping_add(1);
                gateway.put(id, &[*version; BLOCK]).unwrap();
            } else {
                assert_eq!(gateway.get(id).unwrap(), [*version; BLOCK]);
            }
        }
    }
}

#[test]
fn a_remote_store_behaves_as_an_array_across_openings() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let host = Running::start(folder.path(), "127.0.0.1:0");
    let mut model = Model::new(1);
    for _ in 0..3 {
        let OpenGateway { mut gateway, enclave } = host.open(home.path()).unwrap();
        assert_eq!(enclave, "simulated, in a process");
        model.run(&mut gateway, 2000);
        assert!(gateway.counts().rounds > 5);
    }
}

/// A thread that ends a session waits for the session's calls, so a call must not hold the session
/// while it finds out why it failed.
#[test]
fn the_reason_of_a_failed_query_is_requested_afterwards() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let host = Running::start(folder.path(), "127.0.0.1:0");
    let _opened = host.open(home.path()).unwrap();
    kill(host.enclave().unwrap());
    let session = host.server.lock().current.clone().unwrap();
    let location = Location { slot: 0, attempt: 0 };
    let locations = vec![location; session.geometry().layers];
    let request = QueryRequest { leaf: 0, locations, order: vec![0; 64] };
    let (ended, explanations) = (std::sync::mpsc::channel(), AtomicUsize::new(0));
    let reply = session.carry_out(NumberedRequest::Queries(vec![request]), |error| {
        assert!(matches!(error, Error::SessionLost), "{error}");
        explanations.fetch_add(1, Ordering::SeqCst);
        let (session, sender) = (session.clone(), ended.0.clone());
        std::thread::spawn(move || {
            session.end();
            sender.send(()).unwrap();
        });
        ended.1.recv_timeout(Duration::from_secs(20)).expect("it ends while we wait for it");
        error
    });
    assert!(reply.is_ok() && explanations.into_inner() == 1);
}

#[test]
fn lost_enclaves_and_hosts_lose_no_data() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut host = Running::start(folder.path(), "127.0.0.1:0");
    let mut model = Model::new(2);
    let OpenGateway { mut gateway, .. } = host.open(home.path()).unwrap();
    for turn in 0..12_u64 {
        model.run(&mut gateway, 150);
        if turn % 3 == 0 {
            let address = host.address.to_string();
            drop(host);
            host = Running::start(folder.path(), &address);
        } else {
            kill(host.enclave().unwrap());
        }
    }
    assert!(gateway.counts().sessions >= 8, "{:?}", gateway.counts());
    model.run(&mut gateway, 1000);
}

#[test]
fn a_lost_connection_is_replaced_in_the_same_session() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let host = Running::start(folder.path(), "127.0.0.1:0");
    let mut model = Model::new(3);
    let OpenGateway { mut gateway, .. } = host.open(home.path()).unwrap();
    for _ in 0..10 {
        model.run(&mut gateway, 150);
        host.server.lock().current.as_ref().unwrap().hang_up();
    }
    model.run(&mut gateway, 200);
    assert_eq!(gateway.counts().sessions, 0);
}

#[test]
fn the_newer_gateway_takes_the_store_and_the_older_stops() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [folder, home, copy] = folders.each_ref().map(tempfile::TempDir::path);
    let host = Running::start(folder, "127.0.0.1:0");
    let mut model = Model::new(4);
    let OpenGateway { gateway: mut older, .. } = host.open(home).unwrap();
    model.run(&mut older, 1000);
    older.save().unwrap();
    copy_folder(home, copy);
    assert!(matches!(host.open(home), Err(Error::InUse(_))));
    let OpenGateway { gateway: mut newer, .. } = host.open(copy).unwrap();
    model.run(&mut newer, 500);
    // The older gateway does not answer cache hits either.
    for id in 0..BLOCKS {
        let error = older.get(id);
        assert!(matches!(error, Err(Error::Fenced { own: 1, newest: 2 })), "{error:?}");
    }
    assert!(older.put(1, &[0; BLOCK]).is_err() && older.dummy().is_err());
    model.run(&mut newer, 500);
    // The restored gateway has been opened as often as the newer one, and is still refused.
    drop((older, newer));
    let error = host.open(home).err();
    assert!(matches!(error, Some(Error::Fenced { own: 2, newest: 2 })), "{error:?}");
    model.run(&mut host.open(copy).unwrap().gateway, 500);
}

/// Copies of a gateway that another one follows may be old at once.
#[test]
fn at_a_constant_rate_an_older_gateway_answers_nothing_old() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [folder, home, copy] = folders.each_ref().map(tempfile::TempDir::path);
    let host = Running::start(folder, "127.0.0.1:0");
    let OpenGateway { gateway: mut older, .. } = host.open(home).unwrap();
    older.store(b"name", b"old", b"").unwrap();
    older.save().unwrap();
    copy_folder(home, copy);
    let older = Arc::new(SharedGateway::new(older, Arc::default(), Arc::new(Wall)));
    let rate_thread = RateThread::start(&older, 20, 1).unwrap();
    let load = || older.load_many(vec![b"name".to_vec()]);
    assert_eq!(*load().unwrap()[0].as_ref().unwrap().as_ref().unwrap(), b"old");
    // A connection that is cut is no reason for an error: the next tick has another one.
    host.server.lock().current.as_ref().unwrap().hang_up();
    assert_eq!(*load().unwrap()[0].as_ref().unwrap().as_ref().unwrap(), b"old");
    let OpenGateway { gateway: mut newer, .. } = host.open(copy).unwrap();
    newer.store(b"name", b"new", b"").unwrap();
    let error = load();
    assert!(matches!(error, Err(Error::Fenced { own: 1, newest: 2 })), "{error:?}");
    assert!(older.read_state(Gateway::blocks_used).is_err());
    drop(rate_thread);
}

/// A network between gateways and a host, with connections that can be cut.
struct Network {
    address: SocketAddr,
    /// Open connections: the gateway's end and the host's end.
    open: Arc<Mutex<Vec<[TcpStream; 2]>>>,
}

impl Network {
    fn to(host: SocketAddr) -> Self {
        let listener = listen::bind("127.0.0.1:0", clients(true)).unwrap();
        let (address, open) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let known = open.clone();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(host).unwrap());
                for (from, to, sends_end) in [(&near, &far, false), (&far, &near, true)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        // A gateway notices when the host ends a connection, as on any network.
                        if sends_end {
                            let _ = to.shutdown(std::net::Shutdown::Both);
                        }
                    });
                }
                known.lock().unwrap().push([near, far]);
            }
        });
        Self { address, open }
    }

    /// Cuts all connections. If `sends_end` is false the host does not notice, and its ends are
    /// returned.
    fn cut(&self, sends_end: bool) -> Vec<TcpStream> {
        let all: Vec<[TcpStream; 2]> = self.open.lock().unwrap().drain(..).collect();
        let ends = all.into_iter().map(|[near, far]| {
            // Some connections have ended already.
            let _ = near.shutdown(std::net::Shutdown::Read);
            if sends_end {
                let _ = far.shutdown(std::net::Shutdown::Both);
            }
            let _ = near.shutdown(std::net::Shutdown::Both);
            far
        });
        ends.collect()
    }
}

/// How many files of this process are sockets on this local port.
fn sockets_at(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let own = format!(":{port:04X}");
    let inodes: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.get(1).is_some_and(|address| address.ends_with(&own)))
        .map(|words| format!("socket:[{}]", words[9]))
        .collect();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    targets.filter(|target| inodes.iter().any(|inode| target.as_os_str() == &inode[..])).count()
}

/// A gateway that reconnects repeatedly leaves no open file, whether or not the host noticed the
/// end of each connection.
#[test]
fn a_cut_connection_leaks_no_file_descriptor() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let host = Running::start(folder.path(), "127.0.0.1:0");
    let network = Network::to(host.address);
    let remote = Remote { hosts: vec![host.host_at(network.address)], ..host.remote() };
    let params = params(BLOCKS);
    let opened = remote.open(home.path(), None, params, Choice::Benes, Durability::Process);
    let mut gateway = opened.unwrap().gateway;
    let mut model = Model::new(7);
    model.run(&mut gateway, 200);
    let before = sockets_at(host.address.port());
    let mut silent = Vec::new();
    for cut in 0..25 {
        silent.extend(network.cut(cut % 2 == 0));
        model.run(&mut gateway, 60);
    }
    assert_eq!(gateway.counts().sessions, 0, "the session went on");
    let port = host.address.port();
    wait_until(|| sockets_at(port) <= before);
    drop((silent, gateway));
    network.cut(true);
    wait_until(|| sockets_at(port) == 1);
}

/// Waits for work of other threads. This takes moments or, if a connection was cut before its
/// gateway joined a session, as long as the host's limit for strangers.
fn wait_until(is_true: impl Fn() -> bool) {
    for _ in 0..2 * STRANGER_TIME.as_millis() / 10 {
        if is_true() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never happens");
}

/// Whether it is an error of TLS that names the host.
fn is_tls_of(error: &Error, host: &Running) -> bool {
    matches!(error, Error::Tls(text) if text.starts_with(&host.address.to_string()))
}

#[test]
fn unauthenticated_clients_are_refused() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let host = Running::start(folder.path(), "127.0.0.1:0");
    let open = |remote: Remote| {
        let params = params(BLOCKS);
        remote.open(home.path(), None, params, Choice::Benes, Durability::Process).err().unwrap()
    };
    let other = Identity::own(home.path()).unwrap().certificate;
    let other = HostAddress { certificate: other, ..host.host_at(host.address) };
    let error = open(Remote { hosts: vec![other], ..host.remote() });
    assert!(is_tls_of(&error, &host), "{error:?}");
    let error = open(Remote { policy: Policy::Unset, ..host.remote() });
    assert!(matches!(error, Error::Evidence(_)), "{error:?}");
    // A client without TLS does no harm.
    let mut plain = TcpStream::connect(host.address).unwrap();
    io::Write::write_all(&mut plain, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    drop(plain);
    Model::new(5).run(&mut host.open(home.path()).unwrap().gateway, 100);
}

/// A hello of another version on a connection of its own, and the host's error.
fn greet(host: &Running, version: u32) -> Error {
    let tls = tls::client(host.server.certificate(), None).unwrap();
    let connection = ClientConnection::new(tls, "localhost".try_into().unwrap()).unwrap();
    let stream = TcpStream::connect(host.address).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    let opening = Opening { number: u64::MAX, instance: [0; 16] };
    let mut hello = message::hello(&opening, &params(BLOCKS).geometry, &[1; 16]);
    hello[1..5].copy_from_slice(&version.to_le_bytes());
    frame::write(&mut stream, &[&[0; 8], &hello]).unwrap();
    let mut reply = Vec::new();
    assert!(frame::read(&mut stream, 1 << 16, &mut reply).unwrap());
    frame::decode(&reply[8..]).map(drop).unwrap_err()
}

#[test]
fn a_gateway_of_another_version_is_refused_and_takes_nothing_over() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let host = Running::start(folder.path(), "127.0.0.1:0");
    for (version, advice) in [(VERSION - 1, "the gateway"), (VERSION + 1, "the host")] {
        let refused = greet(&host, version);
        assert!(matches!(refused, Error::Protocol { .. }), "{refused:?}");
        assert!(refused.to_string().ends_with(&format!("upgrade {advice}")), "{refused}");
    }
    // With its opening it would have fenced every other gateway off.
    Model::new(6).run(&mut host.open(home.path()).unwrap().gateway, 100);
}

/// The gateway waits for a host that is away, but not for one that speaks another version.
#[test]
fn a_host_of_another_version_ends_the_gateway_at_once() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let identity = Identity::own(folder.path()).unwrap();
    let tls = tls::server(&identity, None).unwrap();
    let listener = listen::bind("127.0.0.1:0", clients(true)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let later = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = rustls::ServerConnection::new(tls).unwrap();
        let (mut stream, mut hello) = (StreamOwned::new(connection, stream), Vec::new());
        assert!(frame::read(&mut stream, 1 << 16, &mut hello).unwrap());
        let refusal = Error::Protocol { gateway: VERSION, host: VERSION + 5 };
        frame::write(&mut stream, &[&hello[..8], &frame::encode(Err(refusal))]).unwrap();
    });
    let hosts = vec![HostAddress { address, certificate: identity.certificate }];
    let (identity, anchor, witness) = (None, None, None);
    let remote = Remote { hosts, identity, policy: Policy::Simulated, anchor, witness };
    let params = params(BLOCKS);
    let refused = remote.open(home.path(), None, params, Choice::Benes, Durability::Process);
    let refused = refused.map(drop).unwrap_err();
    assert!(matches!(refused, Error::Protocol { .. }) && !refused.is_passing(), "{refused:?}");
    assert!(refused.to_string().ends_with("upgrade the gateway"), "{refused}");
    later.join().unwrap();
}

#[test]
fn a_host_can_require_a_client_certificate() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [folder, home, known] = folders.each_ref().map(tempfile::TempDir::path);
    let identity = Identity::own(known).unwrap();
    let host = Running::start_for(folder, "127.0.0.1:0", Some(identity.certificate.clone()));
    let error = host.open(home).err().unwrap();
    assert!(is_tls_of(&error, &host), "{error:?}");
    let remote = Remote { identity: Some(identity), ..host.remote() };
    let params = params(BLOCKS);
    remote.open(home, None, params, Choice::Benes, Durability::Process).unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
