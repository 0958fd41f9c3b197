use super::*;
use crate::conformance::{block_on, conforms, next_opening, waits_for_restarts};
use crate::engine::ValueName;
use crate::engine_store::EngineStore;
use crate::retry::{PATIENCE, persist};
use crate::servers::{TestServer, free_port, program, start};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use traceless_cloud::store::NodeVersion;
use traceless_cloud::store::suite::{check_round, shapes, write_round};

pub fn server(port: u16, options: &[&str]) -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("redis-server"));
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]);
    command.arg(folder.path()).args(options);
    start(command, port, folder)
}

pub fn store(number: u32) -> StoreName {
    StoreName::parse(&format!("store-{number}")).unwrap()
}

pub fn url(server: &TestServer) -> String {
    format!("redis://127.0.0.1:{}/", server.port)
}

#[test]
fn a_server_conforms() {
    let redis = server(free_port(), &[]);
    let deployment = || Server::new(&url(&redis), TlsFiles::default()).unwrap();
    conforms(|number, g| RedisEngine::new(deployment(), store(number), g, 0));
}

/// The servers of a cluster.
fn cluster(primaries: usize, replicas: usize) -> Vec<TestServer> {
    // The port for the cluster's own messages is 10,000 above.
    let port = || loop {
        let port = free_port();
        if port < 55_000 {
            return port;
        }
    };
    let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
    let options = [&options[..], &["--repl-diskless-sync-delay", "0"]].concat();
    let count = primaries * (1 + replicas);
    let servers: Vec<TestServer> = (0..count).map(|_| server(port(), &options)).collect();
    let mut create = Command::new(program("redis-cli"));
    create.args(["--cluster-yes", "--cluster", "create"]);
    create.args(servers.iter().map(|server| format!("127.0.0.1:{}", server.port)));
    let created = create.args(["--cluster-replicas", &replicas.to_string()]).output().unwrap();
    assert!(created.status.success(), "{created:?}");
    let is_up = |server: &TestServer| {
        redis_cli(server, &["cluster", "info"]).starts_with("cluster_state:ok")
    };
    // A replica that has not all of its primary's data yet cannot take its place.
    let are_replicas = || {
        let is_replica = |server: &&TestServer| {
            redis_cli(server, &["info", "replication"]).contains("master_link_status:up")
        };
        servers.iter().filter(is_replica).count() == primaries * replicas
    };
    while !servers.iter().all(is_up) || !are_replicas() {
        std::thread::sleep(Duration::from_millis(50));
    }
    servers
}

#[test]
fn a_cluster_conforms() {
    let servers = cluster(3, 0);
    let deployment =
        || Cluster::new(vec![url(&servers[0]).parse().unwrap()], TlsFiles::default()).unwrap();
    conforms(|number, g| RedisEngine::new(deployment(), store(number), g, 0));
}

/// The first server is the only one that the URL names.
#[test]
fn a_cluster_survives_the_end_of_the_first_server() {
    let (mut servers, g) = (cluster(3, 1), shapes()[0]);
    let deployment =
        Cluster::new(vec![url(&servers[0]).parse().unwrap()], TlsFiles::default()).unwrap();
    let engine = Arc::new(RedisEngine::new(deployment, store(1), g, 0));
    let store = EngineStore::open(engine, g, next_opening(), PATIENCE).unwrap();
    for sequence in 1..=10 {
        write_round(&store, &g, sequence);
    }
    // Time for the replicas to have it all: the new primary will have none to wait for.
    std::thread::sleep(Duration::from_millis(300));
    servers.remove(0).kill();
    for sequence in 11..=20 {
        write_round(&store, &g, sequence);
        check_round(&store, &g, sequence);
    }
}

#[test]
fn stripes_are_found_while_their_slot_moves_to_another_server() {
    let (servers, g) = (cluster(3, 0), shapes()[0]);
    let deployment =
        Cluster::new(vec![url(&servers[0]).parse().unwrap()], TlsFiles::default()).unwrap();
    let engine = RedisEngine::new(deployment, store(1), g, 0);
    let version = NodeVersion { node: Node(5), attempt: 7 };
    let value = ValueName { version, staging: 9 };
    let names: Vec<StripeName> = (0..4).map(|stripe| StripeName { value, stripe }).collect();
    for name in &names {
        block_on(engine.write(*name, Bytes::from_static(b"stripe"))).unwrap();
    }
    let key = engine.key(names[0]);
    let slot = redis_cli(&servers[0], &["cluster", "keyslot", &key]);
    let owner =
        |server: &&TestServer| redis_cli(server, &["cluster", "countkeysinslot", &slot]) == "4";
    let from = servers.iter().find(owner).unwrap();
    let to = servers.iter().find(|server| server.port != from.port).unwrap();
    let id = |server| redis_cli(server, &["cluster", "myid"]);
    redis_cli(to, &["cluster", "setslot", &slot, "importing", &id(from)]);
    redis_cli(from, &["cluster", "setslot", &slot, "migrating", &id(to)]);
    let moved = ["migrate", "127.0.0.1", &to.port.to_string(), &key, "0", "1000"];
    assert_eq!(redis_cli(from, &moved), "OK");
    let ranges = names.iter().map(|name| StripeRange { name: *name, at: 0, len: 6 });
    let ranges: Vec<StripeRange> = ranges.collect();
    let read = || block_on(persist(PATIENCE, || engine.read(&ranges))).unwrap();
    assert_eq!(read(), vec![Some(Bytes::from_static(b"stripe")); 4]);
    block_on(persist(PATIENCE, || engine.remove(&names))).unwrap();
    assert_eq!(read(), vec![None; 4]);
}

/// A server that has become a replica may not confirm what the log has.
#[test]
fn a_demoted_server_confirms_nothing() {
    let (first, second) = (server(free_port(), &[]), server(free_port(), &[]));
    for replicas in [0, 1] {
        let deployment = Server::new(&url(&first), TlsFiles::default()).unwrap();
        let engine = RedisEngine::new(deployment, store(9), shapes()[0], 0);
        let entry = Bytes::from_static(b"entry");
        block_on(engine.append(1, entry.clone())).unwrap();
        let demote = ["replicaof", "127.0.0.1", &second.port.to_string()];
        redis_cli(&first, &demote);
        let deployment = Server::new(&url(&first), TlsFiles::default()).unwrap();
        let waiting = RedisEngine::new(deployment, store(9), shapes()[0], replicas);
        let refused = block_on(waiting.append(1, entry)).unwrap_err();
        assert!(refused.is_passing, "{refused:?}");
        redis_cli(&first, &["replicaof", "no", "one"]);
    }
}

/// The answer to a command.
pub fn redis_cli(server: &TestServer, words: &[&str]) -> String {
    let mut command = Command::new(program("redis-cli"));
    let done = command.args(["-p", &server.port.to_string()]).args(words).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_full_memory_is_a_passing_failure() {
    let redis = server(free_port(), &["--maxmemory", "100kb"]);
    let engine = RedisEngine::new(
        Server::new(&url(&redis), TlsFiles::default()).unwrap(),
        store(1),
        shapes()[0],
        0,
    );
    let full = block_on(engine.append(1, Bytes::from_static(b"entry"))).unwrap_err();
    assert!(full.is_passing && full.message.starts_with("OOM"), "{full:?}");
}

#[test]
fn changes_wait_for_replicas() {
    let primary = server(free_port(), &["--repl-diskless-sync-delay", "0"]);
    let engine = |replicas| {
        let deployment = Server::new(&url(&primary), TlsFiles::default()).unwrap();
        RedisEngine::new(deployment, store(1), shapes()[0], replicas)
    };
    let entry = Bytes::from_static(b"entry");
    let alone = block_on(engine(1).append(1, entry.clone())).unwrap_err();
    assert!(alone.is_passing && alone.message.contains("0 of 1 replicas"), "{alone:?}");
    let of = primary.port.to_string();
    let replica = server(free_port(), &["--replicaof", "127.0.0.1", &of]);
    // The entry is there, so the replica is waited for, and the caller knows its own entry.
    let engine = engine(1);
    let found = persist(PATIENCE, || engine.append(1, entry.clone()));
    assert_eq!(block_on(found).unwrap(), Appended::Taken(Some(entry.clone())));
    let on_replica = RedisEngine::new(
        Server::new(&url(&replica), TlsFiles::default()).unwrap(),
        store(1),
        shapes()[0],
        0,
    );
    let refused = block_on(on_replica.append(2, Bytes::new())).unwrap_err();
    assert!(refused.is_passing, "a replica may become the primary: {refused:?}");
}

#[test]
fn a_restart_of_the_server_is_waited_for() {
    let redis = server(free_port(), &["--appendonly", "yes", "--appendfsync", "always"]);
    let deployment = Server::new(&url(&redis), TlsFiles::default()).unwrap();
    waits_for_restarts(redis, RedisEngine::new(deployment, store(1), shapes()[0], 0));
}

#[test]
fn lasting_failures_differ_from_passing_ones() {
    let redis = server(free_port(), &["--requirepass", "secret"]);
    let load = |url: &str| {
        let engine = RedisEngine::new(
            Server::new(url, TlsFiles::default()).unwrap(),
            store(1),
            shapes()[0],
            0,
        );
        block_on(engine.load())
    };
    assert!(load(&format!("redis://:secret@127.0.0.1:{}/", redis.port)).is_ok());
    for wrong in [format!("redis://:wrong@127.0.0.1:{}/", redis.port), url(&redis)] {
        let failed = load(&wrong).unwrap_err();
        assert!(!failed.is_passing, "{failed:?}");
    }
    let failed = load(&format!("redis://127.0.0.1:{}/", free_port())).unwrap_err();
    assert!(failed.is_passing, "{failed:?}");
}

#[test]
fn the_lower_part_of_a_path_is_one_subtree() {
    let g = Geometry { arity: 8, layers: 5, ..shapes()[0] };
    for leaf in 0..g.leaves() {
        let path: Vec<Node> = (0..g.layers).map(|layer| g.node(layer, leaf)).collect();
        assert_eq!(path[..3], path[..3].iter().map(|&node| subtree(&g, node)).collect::<Vec<_>>());
        assert!(path[2..].iter().all(|&node| subtree(&g, node) == path[2]));
    }
}
