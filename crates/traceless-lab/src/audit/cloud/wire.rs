//! Clients of a gateway, and what its host observes of them.

use super::super::workload::mix;
use crate::audit::suite::AuditError;
use crate::audit::tree::users::TreeUser;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use traceless::clock::{Clock, SimulatedClock, Timer};
use traceless::rng::{Rng, SeededRng};
use traceless::seal::Secret;
use traceless_audit::{Draws, Template};
use traceless_cloud::enclave_orders::Location;
use traceless_cloud::gateway::{Gateway, Keys};
use traceless_cloud::geometry::{Geometry, Node};
use traceless_cloud::host::{DamagedSlot, Host, InProcess, QueryRequest, Stage};
use traceless_cloud::host_group::ConnectedHost;
use traceless_cloud::kernel::Choice;
use traceless_cloud::params::Params;
use traceless_cloud::store::{MemStore, NodeVersion};
use traceless_cloud::{Error, Result};

/// A gateway, sound or with a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GatewayVariant {
    /// Sends queries at a constant rate.
    Fixed,
    /// Sends queries at a constant rate, and answers from copies of blocks used lately.
    FixedCopies,
    /// Sends several queries together at a constant rate.
    FixedTogether,
    /// Sends queries on demand; the audit has each client send as many.
    Demand,
    /// Sends queries at a constant rate to several hosts.
    FixedDivided,
    /// Sends queries on demand to several hosts.
    DemandDivided,
    /// Leaves a tick out if the requested block is at hand.
    HitsSendNothing,
    /// Leaves a tick out if there is no request.
    IdleStops,
    /// Leaves a tick out if the answer is an error.
    ErrorsSendNothing,
    /// Sends all queries of a batch at once.
    BatchesAtOnce,
    /// Draws paths that favour one half of the tree.
    PrefersHalf,
    /// Sends no query for a block of the root, which the gateway holds.
    RootCached,
}

impl GatewayVariant {
    /// Whether each query has its tick.
    pub fn is_fixed(self) -> bool {
        !matches!(self, Self::Demand | Self::DemandDivided)
    }

    /// Among how many hosts the tree is divided.
    fn hosts(self) -> u8 {
        if matches!(self, Self::FixedDivided | Self::DemandDivided) { 3 } else { 1 }
    }

    /// How many queries a tick has.
    fn together(self) -> usize {
        if self == Self::FixedTogether { TOGETHER } else { 1 }
    }

    /// Whether the gateway leaves a tick out after a step with this result.
    fn skips_tick(self, outcome: SilentStep) -> bool {
        match self {
            Self::HitsSendNothing => outcome == SilentStep::Answered,
            Self::IdleStops => outcome == SilentStep::Nothing,
            Self::ErrorsSendNothing => outcome == SilentStep::Failed,
            Self::Fixed
            | Self::FixedCopies
            | Self::FixedTogether
            | Self::Demand
            | Self::FixedDivided
            | Self::DemandDivided
            | Self::BatchesAtOnce
            | Self::PrefersHalf
            | Self::RootCached => false,
        }
    }
}

/// The result of a step that sent no query by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SilentStep {
    Nothing,
    Answered,
    Failed,
}

/// A client of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GatewayClient {
    /// Requests one block per step, or none.
    One(TreeUser),
    /// Requests blocks that do not exist.
    Errors,
    /// Requests several blocks at once, in some steps.
    Batches,
}

impl GatewayClient {
    pub fn name(self) -> &'static str {
        match self {
            Self::One(user) => user.name(),
            Self::Errors => "what does not exist",
            Self::Batches => "several at once",
        }
    }
}

/// What the host observed of one client.
pub struct WireRun {
    /// For each step on demand, or for each query with all that follows it at a constant rate, its
    /// messages without path and slots.
    pub steps: Vec<Template>,
    /// The path of each query.
    pub leaves: Draws,
    /// For each query, the distance in trees between its path and the path of the last round.
    pub behind: Draws,
    /// The slots that were read in each layer.
    pub slots: Vec<Draws>,
    pub slots_read: u64,
    pub read_twice: u64,
    /// Rounds, and single nodes made anew.
    pub nodes_renewed: u64,
    /// How many of these do not follow from earlier observations, or have another form.
    pub untimely: u64,
}

/// A tree with enough leaves for the statistics, and enough slots for all clients.
fn params() -> Params {
    let (blocks, round_blocks) = (2048, 40);
    let (inner_blocks, leaf_blocks) = (130, 80);
    let geometry = Geometry {
        roots: 4,
        arity: 4,
        layers: 3,
        round_slots: 60,
        inner_slots: inner_blocks + 2 * round_blocks,
        leaf_slots: leaf_blocks + 2 * round_blocks,
        block_len: 32,
        partition: 0,
    };
    Params { blocks, lambda: 16, geometry, round_blocks, inner_blocks, leaf_blocks }
}

/// Ticks per second, on a clock that advances from tick to tick.
const TICKS_PER_SECOND: u32 = 1000;
const PERIOD: u64 = 1_000_000;
/// The thread of rounds may take this long to send one.
const STAGE_TIME: Duration = Duration::from_secs(20);
/// Blocks of a batch.
const BATCH: u64 = 4;
/// Queries that are sent together, where several are.
const TOGETHER: usize = 4;
/// Blocks that have copies.
const COPIES: usize = 256;
/// Steps from one batch to the next.
const BATCH_STEPS: u64 = 16;

/// Runs a client for `steps` steps.
pub fn run(
    gate: GatewayVariant,
    client: GatewayClient,
    steps: u64,
    seed: u64,
) -> Result<WireRun, AuditError> {
    let clock = Arc::new(SimulatedClock::default());
    let (is_fixed, hurries) = (gate.is_fixed(), Arc::new(AtomicBool::new(false)));
    let watch = WireWatch::new(&params(), is_fixed.then(|| clock.clone()), gate.together() as u64);
    let watch = Arc::new((Mutex::new(watch), Condvar::new()));
    let timer = HurriedTimer { clock: clock.clone(), hurries: hurries.clone() };
    let mut gateway = open(gate, &watch, timer, seed)?;
    let (mut step, mut requests) = (0, 0);
    loop {
        hurries.store(
            gate == GatewayVariant::BatchesAtOnce && client == GatewayClient::Batches,
            Ordering::Relaxed,
        );
        let outcome = query(&mut gateway, (gate, client), (step, &mut requests), seed)?;
        hurries.store(false, Ordering::Relaxed);
        let mut view = lock(&watch.0);
        if !view.is_sent() && !gate.skips_tick(outcome.0) {
            drop(view);
            let sent = if is_fixed { gateway.fill_tick() } else { gateway.dummy() };
            sent?;
            view = lock(&watch.0);
        }
        step += 1;
        view.end_step(outcome.1);
        // All clients run for the same time at a constant rate, or else for the same number of
        // steps.
        let passed = if is_fixed { clock.now() / PERIOD } else { step };
        if passed >= steps {
            break;
        }
        drop(view);
        if gate.skips_tick(outcome.0) {
            clock.advance(PERIOD);
        }
    }
    drop(gateway);
    let (watch, _) = Arc::into_inner(watch).expect("the gateway and its threads are gone");
    let mut view = watch.into_inner().unwrap_or_else(PoisonError::into_inner).view;
    if is_fixed {
        // A batch may have begun before the end, and ended after it. The last query has no end.
        view.steps.truncate(steps as usize - 1);
    }
    Ok(view)
}

/// A gateway with hosts that report to `watch`, and with ticks by `timer`.
fn open(
    gate: GatewayVariant,
    watch: &Arc<(Mutex<WireWatch>, Condvar)>,
    timer: HurriedTimer,
    seed: u64,
) -> Result<Gateway, AuditError> {
    let params = params();
    params.geometry.check()?;
    let mut rng = SeededRng::new(mix(seed, 1));
    let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
    let shared = keys.shared(&params, Choice::Benes);
    let mut hosts = Vec::new();
    for number in 0..gate.hosts() {
        let (nonce, store) = ([3 + number; 16], MemStore::new(params.geometry));
        let (host, own) = InProcess::start(&shared, store, &nonce, &mut rng)?;
        let host = Arc::new(ObservedHost { host, watch: watch.clone() });
        hosts.push(ConnectedHost { host, session: (nonce, own) });
    }
    let rng: Box<dyn Rng> =
        if gate == GatewayVariant::PrefersHalf { Box::new(BiasedRng(rng)) } else { Box::new(rng) };
    let hosts = (hosts, None);
    let mut gateway = Gateway::open_divided(params, &keys, Choice::Benes, hosts, None, rng)?;
    if gate == GatewayVariant::FixedCopies {
        gateway.keep_copies(COPIES * params.geometry.block_len);
    }
    if gate.is_fixed() {
        let together = gate.together();
        let rate = TICKS_PER_SECOND * together as u32;
        gateway.start_constant_rate_together(rate, together, Arc::new(timer))?;
    }
    Ok(gateway)
}

/// One step of a client. Returns its result, and a secret that paths must not depend on.
fn query(
    gateway: &mut Gateway,
    (gate, client): (GatewayVariant, GatewayClient),
    (step, requests): (u64, &mut u64),
    seed: u64,
) -> Result<(SilentStep, u64), AuditError> {
    let blocks = gateway.params().blocks;
    match client {
        GatewayClient::One(user) => {
            let Some(id) = user.request(step, *requests, blocks, seed) else {
                return Ok((SilentStep::Nothing, 0));
            };
            *requests += 1;
            if gate == GatewayVariant::RootCached && gateway.is_in_stash(id) {
                return Ok((SilentStep::Answered, id + 1));
            }
            if mix(seed, step).is_multiple_of(2) {
                gateway.put(id, &[step as u8; 32])?;
            } else {
                gateway.get(id)?;
            }
            Ok((SilentStep::Answered, id + 1))
        }
        GatewayClient::Errors => match gateway.get(blocks + step) {
            Err(Error::OutOfRange { .. }) => Ok((SilentStep::Failed, 0)),
            Err(other) => Err(other.into()),
            Ok(_) => unreachable!("there is no such block"),
        },
        GatewayClient::Batches if step.is_multiple_of(BATCH_STEPS) => {
            let ids: Vec<u64> = (0..BATCH).map(|i| mix(seed, step + i) % blocks).collect();
            gateway.get_many(&ids)?;
            Ok((SilentStep::Answered, ids[0] + 1))
        }
        GatewayClient::Batches => Ok((SilentStep::Nothing, 0)),
    }
}

/// A timer that does not wait while `hurries` is set.
struct HurriedTimer {
    clock: Arc<SimulatedClock>,
    hurries: Arc<AtomicBool>,
}

impl Clock for HurriedTimer {
    fn now(&self) -> u64 {
        self.clock.now()
    }
}

impl Timer for HurriedTimer {
    fn wait_until(&self, at: u64) {
        if !self.hurries.load(Ordering::Relaxed) {
            self.clock.wait_until(at);
        }
    }
}

/// Random numbers: one of four draws clears the bit that chooses a half of the leaves.
struct BiasedRng(SeededRng);

impl Rng for BiasedRng {
    fn fill(&mut self, out: &mut [u8]) {
        const HALF: u8 = 32;
        self.0.fill(out);
        if self.0.below(4) == 0
            && let Some(first) = out.first_mut()
        {
            *first &= !HALF;
        }
    }
}

/// What the host has observed.
struct WireWatch {
    params: Params,
    /// The time of each message, at a constant rate.
    clock: Option<Arc<SimulatedClock>>,
    view: WireRun,
    /// Observations of the present step.
    step: Template,
    /// Number of queries at the end of the step before.
    queries_before: u64,
    read: HashSet<(Node, Location)>,
    /// Number of queries, and how many are sent together.
    queries: u64,
    together: u64,
    /// Number of queries that read each version of a node.
    reads: HashMap<(Node, u64), usize>,
    rounds: u64,
    /// Number of rounds of each tree. Several hosts may learn of two rounds in any order.
    rounds_of: Vec<u64>,
    /// Lengths of a round's batch and orders, which must not vary.
    form: Option<Vec<usize>>,
}

impl WireWatch {
    fn new(params: &Params, clock: Option<Arc<SimulatedClock>>, together: u64) -> Self {
        let g = &params.geometry;
        let draws = |noun, places| Draws { noun, places, ..Draws::default() };
        Self {
            params: *params,
            clock,
            view: WireRun {
                steps: Vec::new(),
                leaves: draws("paths", u64::from(g.leaves())),
                behind: draws("trees", u64::from(g.roots)),
                slots: (0..g.layers).map(|layer| draws("slots", g.slots(layer) as u64)).collect(),
                slots_read: 0,
                read_twice: 0,
                nodes_renewed: 0,
                untimely: 0,
            },
            step: Template::default(),
            queries_before: 0,
            read: HashSet::new(),
            queries: 0,
            together,
            reads: HashMap::new(),
            rounds: 0,
            rounds_of: vec![0; g.roots as usize],
            form: None,
        }
    }

    /// Whether this step has sent a query.
    fn is_sent(&self) -> bool {
        self.queries > self.queries_before
    }

    fn end_step(&mut self, secret: u64) {
        if self.clock.is_none() {
            self.view.steps.push(core::mem::take(&mut self.step));
        }
        self.queries_before = self.queries;
        let leaves = &mut self.view.leaves;
        leaves.secrets.resize(leaves.drawn.len(), secret);
    }

    /// Whether a round was due before the next query and was not sent.
    fn misses_round(&self) -> bool {
        let (round, after) = (self.params.round_blocks as u64, self.params.stage_after() as u64);
        // A round is sent after all queries of a tick.
        let queries = self.queries - self.queries % self.together;
        let due = queries.saturating_sub(after) / round;
        self.clock.is_some() && self.rounds < due
    }

    /// Records the time of a message and its lengths, at a constant rate.
    fn record_timed(&mut self, value: &[usize]) {
        if let Some(clock) = &self.clock {
            self.step.add(clock.now());
            for &value in value {
                self.step.add(value as u64);
            }
        }
    }

    fn query(&mut self, query: &QueryRequest, reply_len: usize) {
        let g = self.params.geometry;
        if self.clock.is_some() && self.queries > 0 {
            self.view.steps.push(core::mem::take(&mut self.step));
        }
        self.record_timed(&[]);
        self.queries += 1;
        self.view.leaves.drawn.push(u64::from(query.leaf));
        if let Some(last) = self.rounds.checked_sub(1) {
            let trees = g.roots as usize;
            let behind = (trees + g.root(g.evicted(last)) - g.root(query.leaf)) % trees;
            self.view.behind.drawn.push(behind as u64);
        }
        for (layer, location) in query.locations.iter().enumerate() {
            let node = g.node(layer, query.leaf);
            self.view.slots[layer].drawn.push(u64::from(location.slot));
            self.view.slots_read += 1;
            self.view.read_twice += u64::from(!self.read.insert((node, *location)));
            *self.reads.entry((node, location.attempt)).or_default() += 1;
        }
        for value in [1, query.locations.len(), query.order.len(), reply_len] {
            self.step.add(value as u64);
        }
    }

    fn stage(&mut self, stage: &Stage) {
        let g = self.params.geometry;
        if self.clock.is_some() {
            // Without the time: another thread sends the round, maybe after the clock advanced to
            // the next tick.
            self.step.add(stage.nodes.len() as u64);
        }
        self.view.nodes_renewed += 1;
        let nodes = || stage.nodes.iter().map(|version| version.node);
        let is_due = if stage.batch.is_empty() {
            // A single node is made anew when it was read as often as allowed.
            stage.nodes.iter().all(|version| {
                let reads = self.reads.get(&(version.node, version.attempt)).copied();
                reads.unwrap_or(0) >= self.params.reads_max(g.layer_of(version.node))
            })
        } else {
            let root = stage.nodes.first().map_or(0, |version| g.root_of(version.node));
            let round = root as u64 + self.rounds_of[root] * u64::from(g.roots);
            self.rounds_of[root] += 1;
            self.rounds += 1;
            let form: Vec<usize> =
                core::iter::once(&stage.batch).chain(&stage.orders).map(Vec::len).collect();
            let has_same_form = *self.form.get_or_insert_with(|| form.clone()) == form;
            let due = (round + 1) * self.params.round_blocks as u64;
            has_same_form
                && self.queries >= due
                && nodes().eq((0..g.layers).map(|i| g.node(i, g.evicted(round))))
        };
        self.view.untimely += u64::from(!is_due);
    }
}

/// A host that reports all calls to a [`WireWatch`].
struct ObservedHost {
    host: InProcess<MemStore>,
    watch: Arc<(Mutex<WireWatch>, Condvar)>,
}

impl ObservedHost {
    fn view(&self) -> MutexGuard<'_, WireWatch> {
        lock(&self.watch.0)
    }

    /// Waits for a due round, because a separate thread sends rounds.
    fn wait_for_round(&self) {
        let result =
            self.watch.1.wait_timeout_while(self.view(), STAGE_TIME, |watch| watch.misses_round());
        let (mut watch, time) = result.unwrap_or_else(PoisonError::into_inner);
        watch.view.untimely += u64::from(time.timed_out());
    }
}

impl Host for ObservedHost {
    fn query(&self, query: &QueryRequest) -> Result<Vec<u8>> {
        self.wait_for_round();
        let reply = self.host.query(query);
        self.view().query(query, reply.as_ref().map_or(0, Vec::len));
        reply
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        self.view().stage(stage);
        self.watch.1.notify_all();
        self.host.stage(stage)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.view().record_timed(&[3, versions.len()]);
        self.host.commit(sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        self.view().record_timed(&[4]);
        self.host.sequence()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
