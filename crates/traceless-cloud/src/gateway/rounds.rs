//! Rounds are prepared and carried out in their own thread, so that queries do not wait for them.

use crate::block_seal::BlockKeys;
use crate::channel::Sender;
use crate::enclave::{Session, Shared};
use crate::enclave_orders::{Eviction, carried};
use crate::error::{Error, Result};
use crate::fork_join::{ForkJoin as _, TwoThreads};
use crate::geometry::{Geometry, Node};
use crate::host::{DamagedSlot, Host, Stage};
use crate::kernel::{Choice, Network};
use crate::store::NodeVersion;
use crate::transport_seal::TransportKeys;
use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use traceless_core::clock::{Clock as _, Monotonic};
use traceless_core::rng::Rng;

/// A round's work, before encryption.
pub struct RoundJob {
    /// How many rounds are committed.
    pub round: u64,
    /// The attempt number of this round.
    pub attempt: u64,
    /// The number of its commit.
    pub sequence: u64,
    /// Each node with the attempt of its current version, and the targets of its rows.
    pub nodes: Vec<(Node, u64, Vec<u32>)>,
    /// The blocks that come in; `None` for the renewal of one node.
    pub batch: Option<Vec<(u32, Vec<u8>)>>,
    /// Damaged slots of the nodes, which become zeros.
    pub zeroed: Vec<DamagedSlot>,
}

/// A node that is copied from another host.
pub struct CopyJob {
    /// The host that has the node, and the number of the session with it.
    pub source: (Arc<dyn Host>, u64),
    /// The node's current version.
    pub version: NodeVersion,
    /// How many rounds are committed.
    pub round: u64,
    /// The number of the copy's commit.
    pub sequence: u64,
}

/// The result of a job, and how long it took.
pub struct Outcome {
    /// Success if the job's nodes are staged at the host; with the damaged slots of the old ones.
    /// Of a copy: success if it is verified after its commit; with its damaged slots.
    pub staged: Result<Vec<DamagedSlot>>,
    /// The result of the commit; `None` if it is left to the gateway, or nothing was staged.
    pub committed: Option<Result>,
    /// The number of the session that is lost, if it is one with the host that a node is copied
    /// from.
    pub lost_source: Option<u64>,
    /// Time from the start to the end of the job.
    pub took: Duration,
}

/// How long to wait for a result.
#[derive(Clone, Copy)]
pub enum Wait {
    /// Until the result is there.
    Long,
    /// For at most this time.
    For(Duration),
}

/// A message to the thread.
enum Task {
    /// Stages and commits.
    CarryOut(RoundJob),
    /// Prepares the message of a job without sending it. Its commit is left to the gateway.
    Prepare(RoundJob),
    /// Sends the prepared job, if there is one.
    Send,
    /// Copies a node, commits the copy, and verifies it.
    Copy(CopyJob),
    /// Verifies a version of a node, after so many committed rounds.
    Verify { round: u64, version: NodeVersion },
    /// Uses the channel of a new session.
    ReplaceSender(Sender),
}

/// The thread that carries out rounds.
pub struct Worker {
    tasks: Option<mpsc::Sender<Task>>,
    results: mpsc::Receiver<Outcome>,
    /// A prepared job waits for [`Worker::send`].
    has_prepared: bool,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    pub fn start(maker: Maker, host: Arc<dyn Host>) -> Self {
        let (tasks, todo) = mpsc::channel::<Task>();
        let (done, results) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (mut maker, clock) = (maker, Monotonic::start());
            let mut ready = None;
            for task in todo {
                let began = clock.now();
                let mut sequence = None;
                let stage = match task {
                    Task::Copy(job) => {
                        let outcome = maker.copy(&*host, &job);
                        let took = Duration::from_nanos(clock.now() - began);
                        if done.send(Outcome { took, ..outcome }).is_err() {
                            break;
                        }
                        None
                    }
                    Task::CarryOut(job) => {
                        sequence = Some(job.sequence);
                        Some(maker.stage(job))
                    }
                    Task::Prepare(job) => {
                        ready = Some(maker.stage(job));
                        None
                    }
                    Task::Send => ready.take(),
                    Task::Verify { round, version } => Some(maker.verification(round, version)),
                    Task::ReplaceSender(sender) => {
                        (maker.sender, ready) = (sender, None);
                        None
                    }
                };
                let Some(stage) = stage else { continue };
                let staged = host.stage(&stage);
                let is_staged = staged.as_ref().is_ok_and(Vec::is_empty);
                let committed = sequence
                    .filter(|_| is_staged)
                    .map(|sequence| host.commit(sequence, &stage.versions()));
                let took = Duration::from_nanos(clock.now() - began);
                let outcome = Outcome { staged, committed, lost_source: None, took };
                if done.send(outcome).is_err() {
                    break;
                }
            }
        });
        Self { tasks: Some(tasks), results, has_prepared: false, thread: Some(thread) }
    }

    /// Hands over a job, one at a time: its nodes are staged and committed.
    pub fn begin(&self, job: RoundJob) {
        self.send_task(Task::CarryOut(job));
    }

    /// Hands over a job, one at a time, which waits for [`Worker::send`].
    pub fn prepare(&mut self, job: RoundJob) {
        self.has_prepared = true;
        self.send_task(Task::Prepare(job));
    }

    /// Whether a prepared job waits for [`Worker::send`].
    pub fn is_prepared(&self) -> bool {
        self.has_prepared
    }

    /// Sends the prepared job, unless it was sent.
    pub fn send(&mut self) {
        if core::mem::take(&mut self.has_prepared) {
            self.send_task(Task::Send);
        }
    }

    /// Hands over the copy of a node, one job at a time.
    pub fn copy(&self, job: CopyJob) {
        self.send_task(Task::Copy(job));
    }

    /// Verifies a version of a node, while no job is under way.
    pub fn verify(&self, round: u64, version: NodeVersion) {
        self.send_task(Task::Verify { round, version });
    }

    /// Uses the channel of a new session from now on.
    pub fn renew(&self, sender: Sender) {
        self.send_task(Task::ReplaceSender(sender));
    }

    fn send_task(&self, task: Task) {
        // If the thread is gone, the next call of `result` reports it.
        let _ = self.tasks.as_ref().expect("until it is dropped").send(task);
    }

    /// The result, if it arrives within `wait`.
    pub fn result(&self, wait: Wait) -> Option<Outcome> {
        let worker_failure = || Outcome {
            staged: Err(Error::Store("the thread that carries out rounds is gone")),
            committed: None,
            lost_source: None,
            took: Duration::ZERO,
        };
        match wait {
            Wait::Long => Some(self.results.recv().unwrap_or_else(|_| worker_failure())),
            Wait::For(time) => match self.results.recv_timeout(time) {
                Ok(outcome) => Some(outcome),
                Err(mpsc::RecvTimeoutError::Timeout) => None,
                Err(mpsc::RecvTimeoutError::Disconnected) => Some(worker_failure()),
            },
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Turns plans into orders and batches.
pub struct Maker {
    geometry: Geometry,
    choice: Choice,
    transport_keys: TransportKeys,
    block_keys: BlockKeys,
    sender: Sender,
    networks: Vec<Network>,
}

impl Maker {
    /// A maker with the keys of a session, which draws the salts of its orders from `rng`.
    pub fn new(
        shared: &Shared,
        block_keys: BlockKeys,
        session: &Session,
        rng: Box<dyn Rng>,
    ) -> Self {
        Self {
            geometry: shared.geometry,
            choice: shared.choice,
            transport_keys: TransportKeys::new(&shared.transport, shared.choice),
            block_keys,
            sender: Sender::new(&session.evict, rng),
            networks: Vec::new(),
        }
    }

    /// The messages to the host for a job.
    fn stage(&mut self, job: RoundJob) -> Stage {
        let RoundJob { round, attempt, nodes, batch, zeroed: all_zeroed, .. } = job;
        let mut olds = Vec::with_capacity(nodes.len());
        let mut orders = Vec::with_capacity(nodes.len());
        let controls = self.controls(&nodes);
        for ((node, before, _), control) in nodes.into_iter().zip(controls) {
            let in_round = batch.is_some();
            let zeroed = all_zeroed.iter().filter(|damaged| damaged.node == node);
            let zeroed = zeroed.map(|damaged| damaged.slot).collect();
            let order = Eviction { round, node, in_round, before, attempt, zeroed, control };
            orders.push(self.sender.seal(&order.encode()));
            olds.push(NodeVersion { node, attempt: before });
        }
        let batch = batch.map(|blocks| self.batch(round, attempt, &blocks)).unwrap_or_default();
        Stage { nodes: olds, attempt, batch, orders }
    }

    /// Copies a node to a host, and lets its enclave verify the copy.
    fn copy(&mut self, host: &dyn Host, job: &CopyJob) -> Outcome {
        let &CopyJob { ref source, version, round, sequence } = job;
        let bytes = source.0.node(version);
        let lost_source = matches!(bytes, Err(Error::SessionLost)).then_some(source.1);
        let placed = bytes.and_then(|bytes| host.place(version, &bytes));
        let committed = placed.map(|()| host.commit(sequence, &[version]));
        let (staged, committed) = match committed {
            Err(error) => (Err(error), None),
            Ok(Ok(())) => (host.stage(&self.verification(round, version)), Some(Ok(()))),
            failed @ Ok(Err(_)) => (Ok(Vec::new()), failed.ok()),
        };
        Outcome { staged, committed, lost_source, took: Duration::ZERO }
    }

    /// The message to the host that verifies a version of a node.
    fn verification(&mut self, round: u64, version: NodeVersion) -> Stage {
        let order = Eviction::to_verify(round, version.node, version.attempt);
        Stage::to_verify(version, self.sender.seal(&order.encode()))
    }

    /// The control data that say where each node's rows go, computed in parallel.
    fn controls(&mut self, nodes: &[(Node, u64, Vec<u32>)]) -> Vec<Vec<u8>> {
        if self.choice == Choice::Paper {
            let words =
                |dest: &[u32]| dest.iter().flat_map(|&to| (to as u16).to_le_bytes()).collect();
            return nodes.iter().map(|(_, _, dest)| words(dest)).collect();
        }
        for (_, _, dest) in nodes {
            if !self.networks.iter().any(|network| network.rows() == dest.len()) {
                self.networks.push(Network::new(dest.len()));
            }
        }
        let route = |(_, _, dest): &(Node, u64, Vec<u32>)| {
            let network = self.networks.iter().find(|network| network.rows() == dest.len());
            network.expect("there is one of each").route(dest)
        };
        let (first_half, second_half) = nodes.split_at(nodes.len() / 2);
        let (mut first, mut second): (Vec<_>, Vec<_>) = Default::default();
        TwoThreads.join(&mut || first = first_half.iter().map(route).collect(), &mut || {
            second = second_half.iter().map(route).collect();
        });
        first.append(&mut second);
        first
    }

    /// The slots that enter at a root: blocks first, then dummies, which hold zeros.
    fn batch(&self, round: u64, attempt: u64, blocks: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let g = &self.geometry;
        let block_seal = self.block_keys.round(round, attempt);
        let transport_seal = self.transport_keys.seal(carried(g, 0, round, attempt));
        let mut plain = vec![0; g.sealed_len()];
        let mut batch = vec![0; g.round_slots * g.slot_len()];
        for (number, slot) in batch.chunks_exact_mut(g.slot_len()).enumerate() {
            match blocks.get(number) {
                Some((id, block)) => {
                    block_seal.seal(number as u16, u64::from(*id), block, &mut plain);
                }
                None => plain.fill(0),
            }
            transport_seal.seal_slot(g, number as u32, &plain, slot);
        }
        batch
    }
}
