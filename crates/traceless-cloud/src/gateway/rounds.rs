//! Rounds are prepared and carried out in a thread of their own, so that no query waits for them.

use crate::channel::Sender;
use crate::enclave::{Session, Shared};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node, PART_LEN};
use crate::host::{Host, Stage};
use crate::inner::Inner;
use crate::kernel::{Choice, Network};
use crate::orders::{Eviction, carried};
use crate::outer::Outer;
use crate::store::NodeVersion;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// What is to be done, in plain.
pub struct Job {
    /// Rounds committed.
    pub round: u64,
    /// The random number of this one.
    pub attempt: u64,
    /// Each node with who wrote it and where its rows go.
    pub nodes: Vec<(Node, u64, Vec<u32>)>,
    /// The blocks that come in; nothing for a node by itself.
    pub batch: Option<Vec<(u32, Vec<u8>)>>,
}

/// What the thread is told.
enum Task {
    CarryOut(Job),
    /// Another session has begun.
    SpeakThrough(Sender),
}

/// The thread.
pub struct Worker {
    tasks: Option<mpsc::Sender<Task>>,
    results: mpsc::Receiver<Result>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    pub fn start(maker: Maker, host: Arc<dyn Host>) -> Self {
        let (tasks, todo) = mpsc::channel::<Task>();
        let (done, results) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut maker = maker;
            for task in todo {
                match task {
                    Task::SpeakThrough(sender) => maker.sender = sender,
                    Task::CarryOut(job) => {
                        if done.send(host.stage(&maker.stage(job))).is_err() {
                            break;
                        }
                    }
                }
            }
        });
        Self { tasks: Some(tasks), results, thread: Some(thread) }
    }

    /// Hands over a job. One at a time.
    pub fn begin(&self, job: Job) {
        self.tell(Task::CarryOut(job));
    }

    /// Speaks through the enclave's end of another session from now on.
    pub fn renew(&self, sender: Sender) {
        self.tell(Task::SpeakThrough(sender));
    }

    fn tell(&self, task: Task) {
        // If the thread is gone, asking for the result says so.
        let _ = self.tasks.as_ref().expect("until it is dropped").send(task);
    }

    /// The result, if it is there or `wait` is asked for.
    pub fn result(&self, wait: bool) -> Option<Result> {
        let gone = Err(Error::Store("the thread that carries out rounds is gone"));
        if wait {
            return Some(self.results.recv().unwrap_or(gone));
        }
        match self.results.try_recv() {
            Ok(result) => Some(result),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => Some(gone),
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

/// Makes orders and batches of plans.
pub struct Maker {
    geometry: Geometry,
    choice: Choice,
    outer: Outer,
    inner: Inner,
    sender: Sender,
    networks: Vec<Network>,
}

impl Maker {
    /// Speaks to the enclave of a session.
    pub fn new(shared: &Shared, inner: Inner, session: &Session) -> Self {
        Self {
            geometry: shared.geometry,
            choice: shared.choice,
            outer: Outer::new(&shared.outer, shared.choice),
            inner,
            sender: Sender::new(&session.evict),
            networks: Vec::new(),
        }
    }

    /// What the host gets of a job.
    fn stage(&mut self, job: Job) -> Stage {
        let Job { round, attempt, nodes, batch } = job;
        let mut olds = Vec::with_capacity(nodes.len());
        let mut orders = Vec::with_capacity(nodes.len());
        for (node, before, dest) in nodes {
            let in_round = batch.is_some();
            let control = self.control(&dest);
            let order = Eviction { round, node, in_round, before, attempt, control };
            orders.push(self.sender.seal(&order.encode()));
            olds.push(NodeVersion { node, attempt: before });
        }
        let batch = batch.map(|blocks| self.batch(round, attempt, &blocks)).unwrap_or_default();
        Stage { nodes: olds, attempt, batch, orders }
    }

    fn control(&mut self, dest: &[u32]) -> Vec<u8> {
        if self.choice == Choice::Paper {
            return dest.iter().flat_map(|&to| (to as u16).to_le_bytes()).collect();
        }
        let known = self.networks.iter().position(|network| network.rows() == dest.len());
        let at = known.unwrap_or_else(|| {
            self.networks.push(Network::new(dest.len()));
            self.networks.len() - 1
        });
        self.networks[at].route(dest)
    }

    /// The slots that come in at the root: blocks first, then dummies, which hold zeros.
    fn batch(&self, round: u64, attempt: u64, blocks: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let g = &self.geometry;
        let inner = self.inner.round(round, attempt);
        let outer = self.outer.seal(carried(g, 0, round, attempt));
        let mut plain = vec![0; g.sealed_len()];
        let mut batch = vec![0; g.round_slots * g.slot_len()];
        for (number, slot) in batch.chunks_exact_mut(g.slot_len()).enumerate() {
            match blocks.get(number) {
                Some((id, block)) => {
                    inner.seal(number as u16, u64::from(*id), block, &mut plain);
                }
                None => plain.fill(0),
            }
            for (part, plain) in plain.chunks(PART_LEN).enumerate() {
                let sealed = &mut slot[g.part_at(part)..g.part_end(part)];
                outer.seal((number as u32, part), plain, sealed);
            }
        }
        batch
    }
}
