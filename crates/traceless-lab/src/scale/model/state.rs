//! The state of the model, its events, and the jobs of its machines.

use super::{Machines, ModelCosts, Scenario};
use crate::scale::event_queue::EventQueue;
use crate::scale::processors::SharedProcessors;
use std::collections::VecDeque;
use traceless::rng::{Rng, SeededRng};

/// The share of the first requests that is not counted.
const WARM_UP: f64 = 0.2;

pub enum Event {
    /// A job of a machine may have ended, unless its processors have changed since.
    JobEnd {
        machine: usize,
        changes: u64,
    },
    /// A message of a batch arrives at a host.
    Query {
        batch: u64,
        host: usize,
        queries: usize,
    },
    /// A host's reply arrives.
    Reply {
        batch: u64,
    },
    /// A round's message arrives at its host, then its commit, then the outcome.
    Stage {
        partition: usize,
    },
    Commit {
        partition: usize,
    },
    Outcome {
        partition: usize,
    },
    /// Planning goes on, unless it has gone on since.
    PlanOn {
        wait: u64,
    },
}

/// A job of processors.
#[derive(Clone, Copy)]
pub enum Work {
    /// A client takes its answer, and requests the next.
    Client(Request),
    /// The planning of a batch goes on, or is done.
    PlanOn,
    Planned,
    Send {
        batch: u64,
        host: usize,
        queries: usize,
    },
    Serve {
        batch: u64,
    },
    End {
        batch: u64,
    },
    /// Half of a round's work, at the gateway and at its host.
    Make {
        partition: usize,
    },
    Evict {
        partition: usize,
    },
    Commit {
        partition: usize,
    },
}

#[derive(Clone, Copy)]
pub struct Request {
    pub client: usize,
    pub began: f64,
    pub is_hit: bool,
}

/// Requests that were planned together.
pub struct Batch {
    pub number: u64,
    pub requests: Vec<Request>,
    /// Requests that wait until no other batch is under way.
    pub rest: Vec<Request>,
    pub had_rest: bool,
    /// How many queries each host gets, and the commits of its partition before them.
    pub queries: Vec<(usize, u64)>,
    pub replies_missing: usize,
    pub is_sent: bool,
}

/// The planning of a batch.
pub struct BatchPlan {
    pub batch: Batch,
    pub to_plan: VecDeque<Request>,
    /// Work that was not charged yet.
    pub work: f64,
    /// Whether other batches are under way.
    pub is_beside: bool,
    /// Number of this wait, and the partition of the round that may end it.
    pub wait: u64,
    pub waits_for: Option<usize>,
}

/// A round in progress.
pub struct Round {
    pub began: f64,
    /// How many rounds had begun, with itself.
    pub begun: u64,
    pub halves_missing: usize,
    /// How long it took, once its commit has happened.
    pub took: Option<f64>,
}

#[derive(Default)]
pub struct Partition {
    pub running: Option<Round>,
    pub commits: u64,
    /// The last two rounds' times.
    pub times: [f64; 2],
}

/// Whether a query may be sent.
pub enum Pace {
    Now,
    At(f64),
    /// Only after the end of the round of this partition.
    AfterRound(usize),
    /// Only once no batch is under way.
    Alone,
}

pub struct GatewayModel<'a> {
    pub costs: &'a ModelCosts,
    pub scenario: &'a Scenario,
    pub rng: SeededRng,
    pub events: EventQueue<Event>,
    pub machines: Vec<SharedProcessors<Work>>,
    pub waiting: VecDeque<Request>,
    /// Whether a batch under way has to end before the next one is planned.
    pub is_turn_taken: bool,
    pub batches: usize,
    pub requests_under_way: usize,
    pub under_way: VecDeque<Batch>,
    /// Requests with an answer that their clients have not taken, and how many clients take one
    /// now: one on each processor, while the rest have not woken up.
    pub answered: VecDeque<Request>,
    pub taking: usize,
    pub plan: Option<BatchPlan>,
    pub locked_since: Option<f64>,
    pub locked: f64,
    pub partitions: Vec<Partition>,
    pub begun: u64,
    /// Queries since the last round began.
    pub queries: usize,
    pub numbers: u64,
    pub latencies: Vec<f64>,
    /// The time when the first counted request was answered.
    pub counted_since: f64,
    pub batch_sum: usize,
    pub batch_count: usize,
}

impl<'a> GatewayModel<'a> {
    pub fn new(costs: &'a ModelCosts, scenario: &'a Scenario) -> Self {
        let machines = match scenario.machines {
            Machines::One(cores) => vec![SharedProcessors::new(cores * costs.capacity)],
            Machines::Apart { gateway, host } => {
                let hosts = (0..scenario.hosts).map(|_| host);
                let cores = std::iter::once(gateway).chain(hosts);
                cores.map(|cores| SharedProcessors::new(cores * costs.capacity)).collect()
            }
        };
        Self {
            costs,
            scenario,
            rng: SeededRng::new(1),
            events: EventQueue::new(),
            machines,
            waiting: VecDeque::new(),
            is_turn_taken: false,
            batches: 0,
            requests_under_way: 0,
            under_way: VecDeque::new(),
            answered: VecDeque::new(),
            taking: 0,
            plan: None,
            locked_since: None,
            locked: 0.0,
            partitions: (0..scenario.hosts).map(|_| Partition::default()).collect(),
            begun: 0,
            queries: 0,
            numbers: 0,
            latencies: Vec::new(),
            counted_since: 0.0,
            batch_sum: 0,
            batch_count: 0,
        }
    }

    pub fn now(&self) -> f64 {
        self.events.now()
    }

    pub fn batch(&mut self, number: u64) -> &mut Batch {
        let mut batches = self.under_way.iter_mut();
        batches.find(|batch| batch.number == number).expect("it is under way")
    }

    pub fn round(&mut self, partition: usize) -> &mut Round {
        self.partitions[partition].running.as_mut().expect("a round is in progress")
    }

    pub fn work_at_gateway(&mut self, seconds: f64, work: Work) {
        self.work_at(0, seconds, work);
    }

    pub fn work_at_host(&mut self, host: usize, seconds: f64, work: Work) {
        let machine = if self.machines.len() == 1 { 0 } else { 1 + host };
        self.work_at(machine, seconds, work);
    }

    pub fn work_at(&mut self, machine: usize, seconds: f64, work: Work) {
        let now = self.now();
        self.machines[machine].add(now, seconds, work);
        self.watch(machine);
    }

    /// Lets an event happen at the next end of a machine's jobs.
    pub fn watch(&mut self, machine: usize) {
        let changes = self.machines[machine].changes();
        if let Some(end) = self.machines[machine].next_end() {
            self.events.add(end, Event::JobEnd { machine, changes });
        }
    }

    pub fn random(&mut self) -> f64 {
        self.rng.below(1 << 52) as f64 / (1u64 << 52) as f64
    }

    /// The time of a message in one direction.
    pub fn draw_way(&mut self) -> f64 {
        let trips = &self.scenario.round_trips;
        let drawn = trips[self.rng.below(trips.len() as u64) as usize];
        f64::midpoint(drawn.max(0.0), self.costs.idle)
    }

    pub fn unlock(&mut self) {
        self.locked += self.now() - self.locked_since.take().expect("it is locked");
    }

    pub fn warm_up(&self) -> usize {
        (self.scenario.requests as f64 * WARM_UP) as usize
    }
}
