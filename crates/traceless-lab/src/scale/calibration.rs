//! The times of the model's parts, measured on this machine: in one process, and with one host
//! that no network separates from its gateway.

use super::measured_system::{MeasuredLoad, MeasuredSystem};
use super::model::{Machines, ModelCosts, Scenario, predict};
use super::tree_shape::TreeShape;
use crate::args::BenchKernel;
use crate::bench::cloud::kernel;
use crate::report::{cpu_seconds, failed, summary};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use traceless::clock::{Clock, Monotonic};
use traceless::rng::{Rng, SeededRng};
use traceless::seal::Secret;
use traceless_cli::failure::Failure;
use traceless_cloud::Result as CloudResult;
use traceless_cloud::gateway::{Gateway, Keys, TOGETHER_MAX};
use traceless_cloud::geometry::PIECE_LEN;
use traceless_cloud::host::{DamagedSlot, Host, InProcess, QueryRequest, Stage};
use traceless_cloud::kernel::{Choice, Network};
use traceless_cloud::params::Params;
use traceless_cloud::random::SystemStream;
use traceless_cloud::store::{MemStore, NodeVersion};
use traceless_sim::parallel::cores;

/// Requests of a load of one client, and of one of many.
const REQUESTS_ALONE: usize = 8_000;
const REQUESTS: usize = 30_000;
const CLIENTS: usize = 64;
/// Rounds in which nodes are made anew.
const KERNEL_TIMES: usize = 5;
/// Bounds of the share of processors that the parts get.
const CAPACITY_MIN: f64 = 0.3;
const CAPACITY_MAX: f64 = 1.3;
const CAPACITY_STEPS: usize = 8;

/// What measures the parts, as often as is wanted.
pub struct Calibrator {
    params: Params,
    names: u64,
    system: MeasuredSystem,
}

impl Calibrator {
    /// Starts a host, with so many values.
    pub fn start(params: Params, names: u64) -> Result<Self, Failure> {
        Ok(Self { params, names, system: MeasuredSystem::start(params, 1, names)? })
    }

    /// Measures the parts.
    pub fn costs(&self) -> Result<ModelCosts, Failure> {
        let (params, geometry) = (&self.params, self.params.geometry);
        let shape = TreeShape::of_params(params, 1);
        let (lock_batch, lock_query) = lock_times(*params)?;
        let kernel = kernel::measure(geometry, BenchKernel::Benes, KERNEL_TIMES)?;
        let evict_slot = summary(kernel).0 * (geometry.sealed_len() / PIECE_LEN) as f64 / 1e9;
        let make_slot = route_time(params);
        let alone = self.system.measure(1, REQUESTS_ALONE, 1)?;
        let together = self.system.measure(CLIENTS, REQUESTS / CLIENTS, 1)?;
        let rate = together.requests_per_second();
        // Each query of one client is a message; the other messages are of rounds.
        let of_rounds = alone.messages.saturating_sub(alone.queries) as f64 / alone.queries as f64;
        let alone = PerQuery::of(&alone, of_rounds);
        let together = PerQuery::of(&together, of_rounds);
        let [gateway, host, relay] = [0, 1, 2].map(|part| alone.split(&together, part));
        let round_share = shape.round_slots as f64 / shape.round_blocks as f64;
        let serve_query = (host.query - round_share * evict_slot).max(0.0);
        let costs = ModelCosts {
            lock_batch,
            lock_query,
            send_message: (gateway.message - lock_batch).max(0.0),
            request: (gateway.query - lock_query - round_share * make_slot).max(0.0),
            thread: thread_time()?,
            serve_message: host.message,
            serve_slot: serve_query / shape.layers as f64,
            relay_message: relay.message,
            relay_query: relay.query,
            make_slot,
            evict_slot,
            ..ModelCosts::FREE
        };
        let idle = (alone.seconds - costs.serial(shape.layers)).max(0.0);
        let costs = ModelCosts { idle, ..costs };
        Ok(ModelCosts { capacity: self.capacity(&costs, rate), ..costs })
    }

    /// The share of the processors with which the model's clients make as many requests a second as
    /// the measured clients did.
    fn capacity(&self, costs: &ModelCosts, rate: f64) -> f64 {
        let shape = TreeShape::of_params(&self.params, 1);
        let scenario = Scenario {
            shape,
            machines: Machines::One(cores() as f64),
            hosts: 1,
            round_trips: vec![0.0],
            bandwidth: f64::INFINITY,
            clients: CLIENTS,
            hits: shape.hits(self.names),
            requests: REQUESTS,
        };
        let (mut low, mut high) = (CAPACITY_MIN, CAPACITY_MAX);
        for _ in 0..CAPACITY_STEPS {
            let middle = f64::midpoint(low, high);
            let costs = ModelCosts { capacity: middle, ..*costs };
            let is_enough = predict(&costs, &scenario).requests_per_second > rate;
            *(if is_enough { &mut high } else { &mut low }) = middle;
        }
        f64::midpoint(low, high)
    }
}

/// A load's times by its queries.
struct PerQuery {
    messages: f64,
    seconds: f64,
    /// Seconds of processors: of the gateway and its clients, of the host, of the proxy.
    cpu: [f64; 3],
}

/// The part of a time that each message takes, and that each query takes.
struct Split {
    message: f64,
    query: f64,
}

impl PerQuery {
    fn of(load: &MeasuredLoad, messages_of_rounds: f64) -> Self {
        let each = |sum: f64| sum / load.queries as f64;
        Self {
            messages: each(load.messages as f64) - messages_of_rounds,
            seconds: each(load.seconds),
            cpu: [load.gateway_cpu, load.host_cpu, load.proxy_cpu].map(each),
        }
    }

    /// What this load takes more than one with fewer messages for each query is the messages'.
    fn split(&self, fewer: &Self, part: usize) -> Split {
        let more = (self.cpu[part] - fewer.cpu[part]) / (self.messages - fewer.messages);
        let message = more.max(0.0);
        Split { message, query: (self.cpu[part] - message * self.messages).max(0.0) }
    }
}

/// Seconds in which a gateway needs its lock: for a batch, and for each query in it.
fn lock_times(params: Params) -> Result<(f64, f64), Failure> {
    let mut rng = SystemStream::drawn();
    let keys = Keys::new(&Secret::random(&mut rng), &[0; 16]);
    let (shared, nonce) = (keys.shared(&params, Choice::Benes), [1; 16]);
    let store = MemStore::new(params.geometry);
    let (host, own) = InProcess::start(&shared, store, &nonce, &mut rng).map_err(failed)?;
    let host = Arc::new(TimedHost { host, clock: Monotonic::start(), ns: AtomicU64::new(0) });
    let (session, rng) = ((&nonce, &own), Box::new(rng));
    let opened = Gateway::open(params, &keys, Choice::Benes, host.clone(), session, None, rng);
    let mut gateway = opened.map_err(failed)?;
    let mut rng = SeededRng::new(1);
    let mut measure = |together: usize| -> Result<f64, Failure> {
        let (mut ns, mut calls) = (0, 0);
        for _ in 0..10 * params.round_blocks / together {
            let ids: Vec<u64> = (0..together).map(|_| rng.below(params.blocks)).collect();
            let (began, before) = (host.clock.now(), gateway.counts());
            let at_host = host.ns.load(Ordering::Relaxed);
            gateway.get_many(&ids).map_err(failed)?;
            let (after, all) = (gateway.counts(), host.clock.now() - began);
            let others =
                host.ns.load(Ordering::Relaxed) - at_host + after.shares_ns - before.shares_ns;
            if after.waits == before.waits && after.queries == before.queries + together as u64 {
                (ns, calls) = (ns + all.saturating_sub(others), calls + 1);
            }
        }
        Ok(ns as f64 / 1e9 / f64::from(calls.max(1)))
    };
    let (one, many) = (measure(1)?, measure(TOGETHER_MAX / 2)?);
    let each = ((many - one) / (TOGETHER_MAX / 2 - 1) as f64).clamp(0.0, one);
    Ok((one - each, each))
}

/// A host that measures how long its queries take.
struct TimedHost {
    host: InProcess<MemStore>,
    clock: Monotonic,
    ns: AtomicU64,
}

impl Host for TimedHost {
    fn query(&self, request: &QueryRequest) -> CloudResult<Vec<u8>> {
        self.query_many(std::slice::from_ref(request)).pop().expect("a reply or an error")
    }

    fn query_many(&self, requests: &[QueryRequest]) -> Vec<CloudResult<Vec<u8>>> {
        let began = self.clock.now();
        let replies = self.host.query_many(requests);
        self.ns.fetch_add(self.clock.now() - began, Ordering::Relaxed);
        replies
    }

    fn stage(&self, stage: &Stage) -> CloudResult<Vec<DamagedSlot>> {
        self.host.stage(stage)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> CloudResult {
        self.host.commit(sequence, versions)
    }

    fn sequence(&self) -> CloudResult<u64> {
        self.host.sequence()
    }
}

/// Seconds in which the gateway decides where a slot of a round goes.
fn route_time(params: &Params) -> f64 {
    let (rows, mut rng) =
        (params.geometry.slots(0) + params.geometry.round_slots, SeededRng::new(1));
    let network = Network::new(rows);
    let mut dest: Vec<u32> = (0..rows as u32).collect();
    let mut took = 0.0;
    for _ in 0..KERNEL_TIMES {
        for i in (1..dest.len()).rev() {
            dest.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let began = cpu_seconds();
        std::hint::black_box(network.route(&dest));
        took += cpu_seconds() - began;
    }
    took / (KERNEL_TIMES * rows) as f64
}

/// Seconds of processors for a thread that does nothing.
fn thread_time() -> Result<f64, Failure> {
    const THREADS: usize = 1000;
    let began = cpu_seconds();
    for _ in 0..THREADS {
        std::thread::spawn(|| {}).join().map_err(|_| failed("a thread is gone"))?;
    }
    Ok((cpu_seconds() - began) / THREADS as f64)
}
