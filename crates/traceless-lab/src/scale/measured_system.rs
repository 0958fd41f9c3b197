//! A gateway in this process with clients, and its hosts in processes of their own behind proxies.

use crate::bench::cloud::serving::ServingProcess;
use crate::delay_proxy::{self, ProxyTraffic};
use crate::report::{cpu_seconds, failed};
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use traceless::clock::{Clock, Monotonic};
use traceless::rng::{Rng, SeededRng};
use traceless_cli::failure::Failure;
use traceless_cloud::gateway::{Gateway, Value};
use traceless_cloud::kernel::Choice;
use traceless_cloud::params::Params;
use traceless_cloud::remote::{HostAddress, Remote};
use traceless_cloud::shared::{Metrics, SharedGateway, Wall};
use traceless_cloud::store::Durability;
use traceless_cloud::tee::Policy;

/// Values that are stored together.
const TOGETHER: u64 = 64;

/// The system, until it is dropped.
pub struct MeasuredSystem {
    front: SharedGateway,
    hosts: Vec<ServingProcess>,
    traffic: Arc<ProxyTraffic>,
    names: u64,
    block_len: usize,
    _folder: TempDir,
}

/// A load of clients, each with one request at a time, and what it took.
pub struct MeasuredLoad {
    /// Nanoseconds of each request, sorted.
    pub latencies: Vec<u64>,
    pub seconds: f64,
    pub queries: u64,
    /// Messages with queries or of rounds.
    pub messages: u64,
    /// Seconds of processors: of the gateway and its clients, of the proxies, of the hosts.
    pub gateway_cpu: f64,
    pub proxy_cpu: f64,
    pub host_cpu: f64,
}

impl MeasuredLoad {
    pub fn requests_per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }

    pub fn percentile_ms(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1) as f64;
        self.latencies.get((last * share) as usize).map_or(0.0, |ns| *ns as f64 / 1e6)
    }
}

impl MeasuredSystem {
    /// Starts hosts and a gateway, and stores a value of a block under each name.
    pub fn start(params: Params, hosts: usize, names: u64) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(failed)?;
        let traffic = Arc::new(ProxyTraffic::default());
        let (mut processes, mut addresses) = (Vec::new(), Vec::new());
        for number in 0..hosts {
            let store = folder.path().join(format!("host-{number}"));
            let place = [OsStr::new("file:"), store.as_os_str()].join(OsStr::new(""));
            let words = "host --listen 127.0.0.1:0 --durability process --store";
            let words: Vec<_> = words.split(' ').map(OsStr::new).chain([&*place]).collect();
            let host = ServingProcess::start(&words, "host")?;
            let target = host.address.parse().map_err(failed)?;
            let proxy = delay_proxy::start(target, traffic.clone())?;
            let (address, certificate) = (proxy.to_string(), store.join("host.pem"));
            addresses.push(HostAddress { address, certificate });
            processes.push(host);
        }
        let policy = Policy::Simulated;
        let remote =
            Remote { hosts: addresses, identity: None, policy, anchor: None, witness: None };
        let state = folder.path().join("state");
        let opened = remote.open(&state, None, params, Choice::Benes, Durability::Process);
        let gateway = opened.map_err(failed)?.gateway;
        let front = SharedGateway::new(gateway, Arc::new(Metrics::default()), Arc::new(Wall));
        let block_len = params.geometry.block_len;
        let hosts = processes;
        let system = Self { front, hosts, traffic, names, block_len, _folder: folder };
        system.fill()?;
        Ok(system)
    }

    /// Holds messages back for so long in each direction from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.traffic.set_delay(delay);
    }

    fn fill(&self) -> Result<(), Failure> {
        for first in (0..self.names).step_by(TOGETHER as usize) {
            let some: Vec<_> = (first..self.names.min(first + TOGETHER)).map(name).collect();
            let contents: Vec<_> = some.iter().map(|name| self.contents(name)).collect();
            let named = some.iter().zip(&contents);
            let values: Vec<_> =
                named.map(|(name, bytes)| Value { name, bytes, note: &[] }).collect();
            self.front.run(|gateway| gateway.store_many(&values)).map_err(failed)?;
        }
        Ok(())
    }

    fn contents(&self, name: &[u8]) -> Vec<u8> {
        name.iter().copied().cycle().take(self.block_len).collect()
    }

    /// Lets clients request random values, each so many.
    pub fn measure(&self, clients: usize, each: usize, seed: u64) -> Result<MeasuredLoad, Failure> {
        let host_cpu = || self.hosts.iter().map(ServingProcess::cpu_seconds).sum::<f64>();
        let counts = || self.front.inspect(Gateway::counts);
        let (hosts, proxies, cpu) = (host_cpu(), self.traffic.cpu_seconds(), cpu_seconds());
        let (before, messages) = (counts(), self.traffic.messages());
        let (clock, latencies) = (Monotonic::start(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let client = |number: usize| {
                let (latencies, clock) = (&latencies, &clock);
                let rng = SeededRng::new(seed.wrapping_mul(1 << 16) + number as u64);
                scope.spawn(move || {
                    let own = self.request(rng, clock, each)?;
                    latencies.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
                    Ok(())
                })
            };
            let clients: Vec<_> = (0..clients).map(client).collect();
            let panicked = |_| Err(failed("a client is gone"));
            clients.into_iter().try_for_each(|client| client.join().unwrap_or_else(panicked))
        })?;
        let seconds = clock.now() as f64 / 1e9;
        let proxy_cpu = self.traffic.cpu_seconds() - proxies;
        let mut latencies = latencies.into_inner().unwrap_or_else(PoisonError::into_inner);
        latencies.sort_unstable();
        Ok(MeasuredLoad {
            latencies,
            seconds,
            queries: counts().queries - before.queries,
            messages: self.traffic.messages() - messages,
            gateway_cpu: cpu_seconds() - cpu - proxy_cpu,
            proxy_cpu,
            host_cpu: host_cpu() - hosts,
        })
    }

    fn request(
        &self,
        mut rng: SeededRng,
        clock: &Monotonic,
        count: usize,
    ) -> Result<Vec<u64>, Failure> {
        let mut latencies = Vec::with_capacity(count);
        for _ in 0..count {
            let name = name(rng.below(self.names));
            let began = clock.now();
            let values = self.front.load_many(vec![name.to_vec()]).map_err(failed)?;
            latencies.push(clock.now() - began);
            match &values[..] {
                [Some(Ok(value))] if *value == self.contents(&name) => {}
                _ => return Err(failed("a value is another one")),
            }
        }
        Ok(latencies)
    }
}

fn name(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}
