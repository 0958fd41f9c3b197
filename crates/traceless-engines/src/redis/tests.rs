use super::*;
use crate::conformance::{block_on, conforms, next_opening};
use crate::engine_store::EngineStore;
use crate::retry::{PATIENCE, persist};
use crate::servers::{TestServer, free_port, program, start};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use traceless_cloud::store::suite::{check_round, shapes, write_round};

fn server(port: u16, options: &[&str]) -> TestServer {
    server_in(tempfile::tempdir().unwrap(), port, options)
}

fn server_in(folder: tempfile::TempDir, port: u16, options: &[&str]) -> TestServer {
    let mut command = Command::new(program("redis-server"));
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]);
    command.arg(folder.path()).args(options);
    start(command, port, folder)
}

fn store(number: u32) -> StoreName {
    StoreName::parse(&format!("store-{number}")).unwrap()
}

fn url(server: &TestServer) -> String {
    format!("redis://127.0.0.1:{}/", server.port)
}

#[test]
fn a_server_conforms() {
    let redis = server(free_port(), &[]);
    let deployment = || Server::new(&url(&redis)).unwrap();
    conforms(|number, g| RedisEngine::new(deployment(), store(number), g, 0));
}

#[test]
fn a_cluster_conforms() {
    // The port for the cluster's own messages is 10,000 above.
    let port = || loop {
        let port = free_port();
        if port < 55_000 {
            return port;
        }
    };
    let options = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"];
    let servers: Vec<TestServer> = (0..3).map(|_| server(port(), &options)).collect();
    let mut create = Command::new(program("redis-cli"));
    create.args(["--cluster-yes", "--cluster", "create"]);
    create.args(servers.iter().map(|server| format!("127.0.0.1:{}", server.port)));
    let created = create.output().unwrap();
    assert!(created.status.success(), "{created:?}");
    let deployment = || Cluster::new(&url(&servers[0])).unwrap();
    conforms(|number, g| RedisEngine::new(deployment(), store(number), g, 0));
}

#[test]
fn changes_wait_for_replicas() {
    let primary = server(free_port(), &["--repl-diskless-sync-delay", "0"]);
    let engine = |replicas| {
        let deployment = Server::new(&url(&primary)).unwrap();
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
    let on_replica =
        RedisEngine::new(Server::new(&url(&replica)).unwrap(), store(1), shapes()[0], 0);
    let refused = block_on(on_replica.append(2, Bytes::new())).unwrap_err();
    assert!(refused.is_passing, "a replica may become the primary: {refused:?}");
}

#[test]
fn a_restart_of_the_server_is_waited_for() {
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let (folder, port, g) = (tempfile::tempdir().unwrap(), free_port(), shapes()[0]);
    let mut redis = server_in(folder, port, &durable);
    let deployment = Server::new(&url(&redis)).unwrap();
    let engine = Arc::new(RedisEngine::new(deployment, store(1), g, 0));
    let store = EngineStore::open(engine, g, next_opening(), PATIENCE).unwrap();
    for sequence in 1..=4 {
        write_round(&store, &g, sequence);
        redis.kill();
        let restart = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            redis.restart();
            redis
        });
        check_round(&store, &g, sequence);
        redis = restart.join().unwrap();
    }
}

#[test]
fn lasting_failures_differ_from_passing_ones() {
    let redis = server(free_port(), &["--requirepass", "secret"]);
    let load = |url: &str| {
        let engine = RedisEngine::new(Server::new(url).unwrap(), store(1), shapes()[0], 0);
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
