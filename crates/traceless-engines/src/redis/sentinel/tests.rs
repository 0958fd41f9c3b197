use super::super::RedisEngine;
use super::super::tests::{redis_cli, server, store, url};
use super::*;
use crate::conformance::{block_on, conforms, next_opening};
use crate::engine::{Engine as _, StripeName, StripeRange, ValueName};
use crate::engine_store::EngineStore;
use crate::retry::persist;
use crate::servers::{TestServer, free_port, program, start};
use crate::store_url::parse;
use bytes::Bytes;
use redis::IntoConnectionInfo as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use traceless_cloud::gateway::Appended;
use traceless_cloud::geometry::{Geometry, Node};
use traceless_cloud::store::NodeVersion;
use traceless_cloud::store::suite::{check_round, shapes, write_round};
use traceless_core::clock::{Clock as _, Monotonic};

/// How soon sentinels find that a primary is away.
const DOWN_MS: &str = "1000";
/// Rounds that are written after a failover.
const ROUNDS_AFTER: u32 = 20;

/// A primary, its replicas, and their sentinels.
struct Group {
    servers: Vec<TestServer>,
    sentinels: Vec<TestServer>,
}

impl Group {
    /// Starts it, and waits until all know each other.
    fn start(replicas: usize, sentinels: usize) -> Self {
        let options = ["--repl-diskless-sync-delay", "0", "--appendonly", "yes"];
        let mut servers = vec![server(free_port(), &options)];
        let port = servers[0].port.to_string();
        for _ in 0..replicas {
            let of = [&options[..], &["--replicaof", "127.0.0.1", &port]].concat();
            servers.push(server(free_port(), &of));
        }
        let quorum = sentinels / 2 + 1;
        let sentinels: Vec<TestServer> =
            (0..sentinels).map(|_| sentinel(&servers[0], quorum, "")).collect();
        let group = Self { servers, sentinels };
        while !group.is_whole(replicas) {
            std::thread::sleep(Duration::from_millis(50));
        }
        group
    }

    fn is_whole(&self, replicas: usize) -> bool {
        let knows_all = |sentinel: &TestServer| {
            let state = redis_cli(sentinel, &["sentinel", "master", "group"]);
            let lines: Vec<&str> = state.lines().collect();
            let has = |name: &str, count: usize| {
                let at = lines.iter().position(|line| *line == name);
                at.is_some_and(|at| lines[at + 1] == count.to_string())
            };
            has("num-slaves", replicas) && has("num-other-sentinels", self.sentinels.len() - 1)
        };
        let online = redis_cli(&self.servers[0], &["info", "replication"]);
        online.matches("state=online").count() == replicas && self.sentinels.iter().all(knows_all)
    }

    fn service(&self) -> Sentinels {
        service(&self.sentinels, "group")
    }

    fn engine(&self, number: u32, g: Geometry, replicas: u32) -> RedisEngine<Sentinels> {
        RedisEngine::new(self.service(), store(number), g, replicas)
    }
}

/// A sentinel with further lines in its file.
fn sentinel(primary: &TestServer, quorum: usize, further: &str) -> TestServer {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let file = folder.path().join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\n\
         sentinel monitor group 127.0.0.1 {} {quorum}\n\
         sentinel down-after-milliseconds group {DOWN_MS}\n\
         sentinel failover-timeout group 2000\n{further}\n",
        folder.path().display(),
        primary.port,
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(program("redis-server"));
    command.arg(&file).arg("--sentinel");
    start(command, port, folder)
}

fn info(server: &TestServer) -> ConnectionInfo {
    url(server).as_str().into_connection_info().unwrap()
}

fn service(sentinels: &[TestServer], name: &str) -> Sentinels {
    let all: Vec<ConnectionInfo> = sentinels.iter().map(info).collect();
    let server = all[0].clone();
    Sentinels::new(all, name.to_owned(), server, TlsFiles::default())
}

#[test]
fn the_primary_of_sentinels_conforms() {
    let group = Group::start(1, 3);
    conforms(|number, g| group.engine(number, g, 1));
}

#[test]
fn a_failover_loses_nothing_that_a_replica_has() {
    let (mut group, g) = (Group::start(2, 3), shapes()[0]);
    let open = |group: &Group| {
        let engine = Arc::new(group.engine(1, g, 1));
        EngineStore::open(engine, g, next_opening(), PATIENCE).unwrap()
    };
    let (store, clock) = (open(&group), Monotonic::start());
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = is_over.clone();
    let running = std::thread::spawn(move || {
        let (mut longest, mut sequence, mut rest) = (0, 0, ROUNDS_AFTER);
        while rest > 0 {
            rest -= u32::from(ends.load(Ordering::Relaxed));
            sequence += 1;
            let begin = clock.now();
            write_round(&store, &g, sequence);
            check_round(&store, &g, sequence);
            longest = longest.max(clock.now() - begin);
        }
        (sequence, longest)
    });
    std::thread::sleep(Duration::from_millis(500));
    let former = group.servers[0].port.to_string();
    group.servers[0].kill();
    let question = ["sentinel", "get-master-addr-by-name", "group"];
    while redis_cli(&group.sentinels[0], &question).contains(&former) {
        std::thread::sleep(Duration::from_millis(50));
    }
    is_over.store(true, Ordering::Relaxed);
    let (last, longest) = running.join().unwrap();
    println!("the failover took {longest} ns");
    assert!((1_000_000_000..10_000_000_000).contains(&longest), "{longest} ns");
    check_round(&open(&group), &g, last);
}

/// The former primary is cut off from its replicas and sentinels, but not from the client.
#[test]
fn a_primary_that_was_cut_off_is_left_by_all_connections() {
    let (group, g) = (Group::start(0, 3), shapes()[0]);
    let [next, replica] = [0, 1].map(|_| server(free_port(), &["--repl-diskless-sync-delay", "0"]));
    redis_cli(&replica, &["replicaof", "127.0.0.1", &next.port.to_string()]);
    let engine = group.engine(1, g, 1);
    let version = NodeVersion { node: Node(5), attempt: 7 };
    let stripe = StripeName { value: ValueName { version, staging: 9 }, stripe: 0 };
    let read = || {
        let range = StripeRange { name: stripe, at: 0, len: 6 };
        block_on(engine.read(&[range])).unwrap().pop().unwrap()
    };
    assert_eq!(read(), None, "from the former primary");
    for sentinel in &group.sentinels {
        redis_cli(sentinel, &["sentinel", "remove", "group"]);
        let port = next.port.to_string();
        redis_cli(sentinel, &["sentinel", "monitor", "group", "127.0.0.1", &port, "2"]);
    }
    block_on(persist(PATIENCE, || async {
        let contents = Bytes::from_static(b"stripe");
        group.engine(1, g, 0).write(stripe, contents).await
    }))
    .unwrap();
    assert_eq!(read(), None, "still from the former primary");
    // It has no replica any more, so the sentinels say which server is the primary.
    let entry = Bytes::from_static(b"entry");
    let appended = block_on(persist(PATIENCE, || engine.append(1, entry.clone()))).unwrap();
    // An attempt that was cut off may have appended it, and is made again.
    assert!([Appended::Done, Appended::Taken(Some(entry))].contains(&appended), "{appended:?}");
    assert_eq!(read(), Some(Bytes::from_static(b"stripe")));
}

#[test]
fn the_newest_epoch_counts() {
    let [old, new] = [0, 1].map(|_| server(free_port(), &[]));
    let first = sentinel(&old, 1, "");
    let others = [0, 1].map(|_| sentinel(&new, 1, "sentinel config-epoch group 7"));
    let [second, third] = others;
    // The sentinels do not know each other, as their groups have different servers.
    let sentinels = [first, second, third];
    for _ in 0..20 {
        let connection = block_on(service(&sentinels, "group").connect()).unwrap();
        assert_eq!(connection.address.1, new.port);
    }
}

#[test]
fn what_sentinels_refuse_differs_from_what_may_pass() {
    let primary = server(free_port(), &["--requirepass", "of-the-server"]);
    let guard = sentinel(&primary, 1, "requirepass of-the-sentinel");
    let check = |options: &str, name: &str| {
        let text = format!(
            "redis+sentinel://:of-the-server@127.0.0.1:{},127.0.0.1:{}/{name}?{options}",
            guard.port,
            free_port(),
        );
        parse(&text, None).unwrap().check()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "of-the-sentinel\n").unwrap();
    check("sentinel_password=of-the-sentinel", "group/3").unwrap();
    check(&format!("sentinel_password_file={}", file.display()), "group").unwrap();
    let refused = |options: &str, name: &str| check(options, name).unwrap_err();
    let wrong = refused("sentinel_password=wrong", "group");
    assert!(!wrong.is_passing && wrong.message.contains("sentinel: "), "{wrong:?}");
    assert!(!wrong.message.contains("wrong@"), "{wrong:?}");
    let missing = refused("", "group");
    assert!(!missing.is_passing && missing.message.contains("NOAUTH"), "{missing:?}");
    let unknown = refused("sentinel_password=of-the-sentinel", "another");
    assert!(!unknown.is_passing && unknown.message.contains("no sentinel knows"), "{unknown:?}");
    let away = format!("redis+sentinel://127.0.0.1:{}/group", free_port());
    let away = parse(&away, None).unwrap().check().unwrap_err();
    assert!(away.is_passing && away.message.contains("sentinel: "), "{away:?}");
}

#[test]
fn a_server_that_says_it_is_a_replica_is_no_primary() {
    let primary = server(free_port(), &[]);
    let of = primary.port.to_string();
    let replica = server(free_port(), &["--replicaof", "127.0.0.1", &of]);
    // What a sentinel says for a moment, while a failover goes on.
    let stale = sentinel(&replica, 1, "");
    let refused = block_on(service(&[stale], "group").connect()).err().unwrap();
    assert!(refused.is_passing && refused.message.contains("is no primary yet"), "{refused:?}");
}

#[test]
fn urls_of_sentinels_are_understood_or_refused() {
    for right in [
        "redis+sentinel://127.0.0.1/group",
        "redis+sentinel://host:26380,[::1]:26381,other/my.group-1_2/3?replicas=1&store=a",
        "rediss+sentinel://user:a%2Cb@host:1,other:2/group?sentinel_username=ann",
        "redis+sentinel://host/group?servers=other:7001,third",
    ] {
        assert!(parse(right, None).is_ok(), "{right}: {:?}", parse(right, None).err());
    }
    for (wrong, reason) in [
        ("redis+sentinel://host:1,other:2", "HOST:PORT,.../SERVICE"),
        ("redis+sentinel://host/", "HOST:PORT,.../SERVICE"),
        ("redis+sentinel://host/a*b", "HOST:PORT,.../SERVICE"),
        ("redis+sentinel://host/group/0/1", "HOST:PORT,.../SERVICE"),
        ("redis+sentinel://host/group/first", "database"),
        ("redis+sentinel://host,other:port/group", "is not HOST:PORT"),
        ("redis+sentinel://host,/group", "is not HOST:PORT"),
        ("redis+sentinel://host,a:1/group?servers=b:1", "given twice"),
        ("redis+sentinel://host/group?replica=1", "replica= is no option"),
        ("redis+sentinel://host/group?sentinel_password_file=/nonexistent/x", "/nonexistent/x: "),
        ("redis+sentinel://host/group?sentinel_password=a&sentinel_password_file=b", "exclude"),
        ("redis://host/?sentinel_password=a", "sentinel_password= is no option"),
        ("redis+sentinel://host/group#insecure", "# begins no option"),
    ] {
        let refused = parse(wrong, None).err().expect(wrong);
        assert!(refused.contains(reason), "{wrong}: {refused}");
    }
}
