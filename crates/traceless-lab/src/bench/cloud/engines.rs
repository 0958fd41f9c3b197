//! The tree in Redis: a cluster beside files, and a server that is far away beside a near one.

use super::serving::{RedisLoad, ServingProcess, redis_benchmark};
use crate::delay_proxy::delay;
use crate::report::{Row, failed, row};
use std::ffi::OsStr;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use traceless_cli::failure::Failure;
use traceless_cli::output::print_error;
use traceless_sys::listen;

/// How much later each answer of the engine comes.
const DELAY: Duration = Duration::from_millis(5);
const CLIENTS: u32 = 64;
/// Servers of the cluster.
const SERVERS: usize = 3;
/// Blocks of the tree, and how many of them have a value.
const BLOCKS: &str = "300000";
const NAMES: u32 = 250_000;
const ROUNDS: usize = 3;
/// How long Redis may take to start, or to form a cluster.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// The rows of gets a second of a Redis cluster, of files; and of a Redis far away, of one here.
pub fn rows(quick: bool) -> Result<Vec<Row>, Failure> {
    let folder = tempfile::tempdir().map_err(failed)?;
    let redis = RedisServer::start(folder.path(), &[])?;
    let cluster = cluster(folder.path())?;
    let far = delay(redis.address, DELAY / 2)?;
    let stores = [
        None,
        Some(format!("redis+cluster://{}/", cluster[0].address)),
        Some(format!("redis://{}/?store=near", redis.address)),
        Some(format!("redis://{far}/?store=far")),
    ];
    print_error(&format!(
        "measuring the tree in files, in {SERVERS} servers of a Redis cluster, in \
        one of Redis, and in one that answers {DELAY:?} later"
    ));
    let requests = if quick { 10_000 } else { 50_000 };
    let load = RedisLoad { clients: CLIENTS, pipelined: 1, requests, names: NAMES };
    let mut gateways = Vec::new();
    for (number, store) in stores.iter().enumerate() {
        let gateway = start_gateway(&folder.path().join(number.to_string()), store.as_deref())?;
        let fill = RedisLoad { clients: 16, pipelined: 32, requests: u64::from(NAMES), ..load };
        redis_benchmark(&gateway, &fill)?;
        gateways.push(gateway);
    }
    let (mut of_files, mut of_near) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let mut gets = Vec::new();
        for gateway in &gateways {
            gets.push(redis_benchmark(gateway, &load)?[1]);
        }
        of_files.push(gets[1] / gets[0]);
        of_near.push(gets[3] / gets[2]);
    }
    Ok(vec![
        row("cloud-engine-cluster", "ratio", of_files),
        row("cloud-engine-far", "ratio", of_near),
    ])
}

fn start_gateway(folder: &Path, store: Option<&str>) -> Result<ServingProcess, Failure> {
    let words = "gateway --resp 127.0.0.1:0 --allow-simulated-tee --durability process --blocks";
    let mut all: Vec<&OsStr> = words.split(' ').map(OsStr::new).collect();
    all.extend([OsStr::new(BLOCKS), OsStr::new("--local"), folder.as_os_str()]);
    if let Some(store) = store {
        all.extend([OsStr::new("--store"), OsStr::new(store)]);
    }
    ServingProcess::start(&all, "RESP")
}

/// A server of Redis that keeps its data in memory, until this is dropped.
struct RedisServer {
    child: Child,
    address: SocketAddr,
}

impl RedisServer {
    fn start(folder: &Path, options: &[&str]) -> Result<Self, Failure> {
        let address = free_address()?;
        let folder = folder.join(format!("redis-{}", address.port()));
        std::fs::create_dir(&folder).map_err(failed)?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--save", "", "--dir"]).arg(folder).args(options).stdout(Stdio::null());
        let child = command.spawn().map_err(|e| failed(format!("redis-server: {e}")))?;
        let server = Self { child, address };
        wait("redis-server", || TcpStream::connect(address).is_ok())?;
        Ok(server)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Fails if the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cluster(folder: &Path) -> Result<Vec<RedisServer>, Failure> {
    let servers = (0..SERVERS).map(|_| RedisServer::start(folder, &["--cluster-enabled", "yes"]));
    let servers = servers.collect::<Result<Vec<_>, _>>()?;
    let addresses = servers.iter().map(|server| server.address.to_string());
    let mut create = Command::new("redis-cli");
    create.args(["--cluster-yes", "--cluster", "create"]).args(addresses);
    let created = create.output().map_err(failed)?;
    if !created.status.success() {
        return Err(failed(String::from_utf8_lossy(&created.stdout)));
    }
    let port = servers[0].address.port().to_string();
    wait("a Redis cluster", || {
        let info = Command::new("redis-cli").args(["-p", &port, "cluster", "info"]).output();
        info.is_ok_and(|info| info.stdout.starts_with(b"cluster_state:ok"))
    })?;
    Ok(servers)
}

/// An address that is free now. The one of a cluster's own messages is 10,000 above.
fn free_address() -> Result<SocketAddr, Failure> {
    loop {
        let clients = listen::Clients::Anyone { remedy: "" };
        let listener = listen::bind("127.0.0.1:0", clients).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if address.port() < 55_000 {
            return Ok(address);
        }
    }
}

fn wait(what: &str, is_ready: impl Fn() -> bool) -> Result<(), Failure> {
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        if is_ready() {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(failed(format!("{what} did not start")))
}
