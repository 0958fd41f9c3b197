use super::*;
use crate::conformance::{block_on, conforms, next_opening};
use crate::engine_store::EngineStore;
use object_store::signer::Signer as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use traceless_cloud::http::Http;
use traceless_cloud::kernel::Choice;
use traceless_cloud::local_deployment::LocalDeployment;
use traceless_cloud::params::Params;
use traceless_cloud::s3::AccessKeys;
use traceless_cloud::shared::{SharedGateway, Stop, Wall};
use traceless_cloud::store::suite::{shapes, write_round};
use traceless_cloud::store::{Durability, NodeStore as _, SlotRead};
use traceless_cloud::tee::Policy;
use traceless_sys::listen::{self, Clients};

/// A gateway of this repository that serves S3.
struct S3Server {
    address: SocketAddr,
    stop: Arc<Stop>,
    http: Option<Http>,
    _folder: tempfile::TempDir,
}

impl S3Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let policy = Policy::Simulated;
        let local = LocalDeployment::new(folder.path(), None, None, policy);
        let params = Params::new(20_000, 1024, 4).unwrap();
        let opened = local.open(params, Choice::Benes, Durability::Process).unwrap();
        let front = SharedGateway::new(opened.gateway, Arc::default(), Arc::new(Wall));
        let path = folder.path().join("s3-keys");
        std::fs::write(&path, "ann secret-of-ann\n").unwrap();
        let keys = AccessKeys::read(&path).unwrap();
        let stop = Arc::new(Stop::default());
        let mut http = Http::start(&stop).unwrap();
        let address = http.s3("127.0.0.1:0", &Arc::new(front), keys, vec![], None).unwrap();
        let server = Self { address, stop, http: Some(http), _folder: folder };
        server.create_bucket();
        server
    }

    fn bucket(&self) -> Bucket {
        Bucket {
            name: "tree".to_owned(),
            endpoint: Some(format!("http://{}", self.address)),
            region: Some("us-east-1".to_owned()),
            keys: Some(("ann".to_owned(), "secret-of-ann".to_owned())),
        }
    }

    fn create_bucket(&self) {
        let client = S3Engine::new(&self.bucket(), "").unwrap().client;
        let (put, time) = ("PUT".parse().unwrap(), Duration::from_mins(1));
        let url = block_on(client.signed_url(put, &Path::from(""), time)).unwrap();
        let path = &url[url::Position::BeforePath..];
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = "Content-Length: 0\r\nConnection: close";
        write!(stream, "PUT {path} HTTP/1.1\r\nHost: {}\r\n{head}\r\n\r\n", self.address).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }

    fn engine(&self, number: u32) -> S3Engine {
        S3Engine::new(&self.bucket(), &format!("a/store-{number}")).unwrap()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop.request();
        self.http.take().unwrap().finish();
    }
}

#[test]
fn a_gateway_conforms() {
    let server = S3Server::start();
    block_on(server.engine(0).check()).unwrap();
    conforms(|number, _| server.engine(number));
}

#[test]
fn an_object_that_was_cut_off_is_damage_of_its_slots_alone() {
    let (server, g) = (S3Server::start(), shapes()[0]);
    let store = EngineStore::open(Arc::new(server.engine(1)), g, next_opening(), PATIENCE).unwrap();
    write_round(&store, &g, 1);
    let engine = server.engine(1);
    let name = block_on(engine.list()).unwrap().pop().unwrap();
    let bytes = block_on(engine.get(&engine.node(name))).unwrap().unwrap();
    let cut = bytes.slice(..bytes.len() / 2);
    block_on(engine.write(name, cut)).unwrap();
    let (version, len) = (name.value.version, g.slot_len());
    for slot in 0..g.slots(g.layer_of(version.node)) as u32 {
        let mut into = vec![1; len];
        block_on(store.read_slots(&mut [SlotRead { version, slot, into: &mut into }])).unwrap();
        let at = slot as usize * len;
        let is_cut = at + len > bytes.len() / 2;
        assert!(if is_cut { into == vec![0; len] } else { into == bytes[at..at + len] });
    }
}

/// A host that was overtaken creates an entry that a checkpoint includes, and gets no answer.
#[test]
fn an_entry_that_a_checkpoint_overtook_is_never_acknowledged() {
    let server = S3Server::start();
    let engine = server.engine(1);
    let late = Bytes::from_static(b"late");
    block_on(async {
        for position in 1..=6 {
            engine.append(position, Bytes::from_static(b"entry")).await.unwrap();
        }
        engine.checkpoint(6, Bytes::from_static(b"six")).await.unwrap();
        assert!(engine.create(&numbered(&engine.log, 3), late.clone()).await.unwrap());
        for _ in 0..2 {
            let again = engine.append(3, late.clone()).await.unwrap();
            assert_eq!(again, Appended::Taken(None));
        }
    });
}

/// A server that answers every request with one reply.
fn fake(reply: &'static str) -> SocketAddr {
    let listener = listen::bind("127.0.0.1:0", Clients::Authenticated).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    address
}

#[test]
fn lasting_failures_differ_from_passing_ones() {
    let server = S3Server::start();
    let load = |bucket: Bucket| block_on(S3Engine::new(&bucket, "x").unwrap().load()).unwrap_err();
    let wrong = load(Bucket { keys: Some(("ann".into(), "wrong".into())), ..server.bucket() });
    assert!(!wrong.is_passing, "{wrong:?}");
    let wrong = load(Bucket { name: "other".into(), ..server.bucket() });
    assert!(!wrong.is_passing, "{wrong:?}");
    let slow_down = "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for address in [fake(slow_down), fake("")] {
        let endpoint = Some(format!("http://{address}"));
        let passing = load(Bucket { endpoint, ..server.bucket() });
        assert!(passing.is_passing, "{passing:?}");
    }
}

#[test]
fn a_server_that_ignores_conditions_is_refused() {
    let careless =
        fake("HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let server = S3Server::start();
    let bucket = Bucket { endpoint: Some(format!("http://{careless}")), ..server.bucket() };
    let refused = block_on(S3Engine::new(&bucket, "x").unwrap().check()).unwrap_err();
    assert!(!refused.is_passing && refused.message.contains("If-None-Match"), "{refused:?}");
}
