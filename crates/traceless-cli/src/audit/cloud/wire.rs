//! Users of a gateway, and what its host sees of them.

use super::super::workload::mix;
use crate::audit::suite::Failed;
use crate::audit::tree::users::User;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use traceless::rng::{Rng, Seeded};
use traceless::seal::Secret;
use traceless_audit::{Draws, Template};
use traceless_cloud::Result;
use traceless_cloud::gateway::{Gateway, Keys};
use traceless_cloud::geometry::{Geometry, Node};
use traceless_cloud::host::{Ask, Host, InProcess, Stage};
use traceless_cloud::kernel::Choice;
use traceless_cloud::orders::Location;
use traceless_cloud::params::Params;
use traceless_cloud::store::{MemStore, NodeVersion};

/// A gateway, sound or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    Sound,
    /// A step that asks for what is at hand sends no query.
    HitsSendNothing,
    /// Its random numbers favour one half of the tree.
    PrefersHalf,
}

/// What was seen of one user.
pub struct Run {
    /// Of each step, what it showed but for path and slots.
    pub steps: Vec<Template>,
    /// The path of each query.
    pub leaves: Draws,
    /// The slots that were read in each layer.
    pub slots: Vec<Draws>,
    pub slots_read: u64,
    pub read_twice: u64,
    /// Rounds, and nodes made anew by themselves; those that what was seen before does not explain.
    pub made_anew: u64,
    pub untimely: u64,
}

/// A tree with leaves enough to tell them apart, and slots enough for all users.
fn params() -> Params {
    let (blocks, round_blocks) = (2048, 40);
    let (inner_blocks, leaf_blocks) = (130, 80);
    let geometry = Geometry {
        arity: 4,
        layers: 4,
        round_slots: 60,
        inner_slots: inner_blocks + 2 * round_blocks,
        leaf_slots: leaf_blocks + 2 * round_blocks,
        block_len: 32,
    };
    Params { blocks, lambda: 16, geometry, round_blocks, inner_blocks, leaf_blocks }
}

/// Runs so many steps of a user.
pub fn run(gate: Gate, user: User, steps: u64, seed: u64) -> Result<Run, Failed> {
    let params = params();
    params.geometry.check()?;
    let mut rng = Seeded::new(mix(seed, 1));
    let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
    let nonce = [3; 16];
    let shared = keys.shared(&params, Choice::Benes);
    let (host, own) = InProcess::start(&shared, MemStore::new(params.geometry), &nonce, &mut rng)?;
    let watch = Arc::new(Mutex::new(Watch::new(&params)));
    let host = Arc::new(Watched { host, watch: watch.clone() });
    let rng: Box<dyn Rng> = match gate {
        Gate::PrefersHalf => Box::new(Small(rng)),
        Gate::Sound | Gate::HitsSendNothing => Box::new(rng),
    };
    let session = (&nonce, &own);
    let mut gateway = Gateway::open(params, &keys, Choice::Benes, host, session, None, rng)?;
    let mut requests = 0;
    let mut templates = Vec::with_capacity(steps as usize);
    for step in 0..steps {
        let queries = gateway.counts().queries;
        let asked = user.asks(step, requests, params.blocks, seed);
        if let Some(id) = asked {
            requests += 1;
            if mix(seed, step).is_multiple_of(2) {
                gateway.put(id, &[step as u8; 32])?;
            } else {
                gateway.get(id)?;
            }
        }
        let is_sent = gateway.counts().queries > queries;
        let is_skipped = asked.is_some() && gate == Gate::HitsSendNothing;
        if !is_sent && !is_skipped {
            gateway.dummy()?;
        }
        let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
        templates.push(core::mem::take(&mut watch.step));
        let sent = watch.leaves.drawn.len();
        watch.leaves.secrets.resize(sent, asked.map_or(0, |id| id + 1));
    }
    drop(gateway);
    let watch = Arc::into_inner(watch).expect("the gateway and its threads are gone");
    let Watch { leaves, slots, slots_read, read_twice, made_anew, untimely, .. } =
        watch.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Run { steps: templates, leaves, slots, slots_read, read_twice, made_anew, untimely })
}

/// Random numbers, one of four of which lacks the bit that chooses a half of the leaves.
struct Small(Seeded);

impl Rng for Small {
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

/// What the host has seen.
struct Watch {
    params: Params,
    /// Of the present step.
    step: Template,
    leaves: Draws,
    slots: Vec<Draws>,
    read: HashSet<(Node, Location)>,
    slots_read: u64,
    read_twice: u64,
    /// Queries, and those of each version of a node.
    queries: u64,
    reads: HashMap<(Node, u64), usize>,
    rounds: u64,
    made_anew: u64,
    untimely: u64,
    /// Lengths of a round's batch and orders, which are the same for all.
    form: Option<Vec<usize>>,
}

impl Watch {
    fn new(params: &Params) -> Self {
        let g = &params.geometry;
        let draws = |noun, places| Draws { noun, places, ..Draws::default() };
        Self {
            params: *params,
            step: Template::default(),
            leaves: draws("paths", u64::from(g.leaves())),
            slots: (0..g.layers).map(|layer| draws("slots", g.slots(layer) as u64)).collect(),
            read: HashSet::new(),
            slots_read: 0,
            read_twice: 0,
            queries: 0,
            reads: HashMap::new(),
            rounds: 0,
            made_anew: 0,
            untimely: 0,
            form: None,
        }
    }

    fn query(&mut self, ask: &Ask, reply_len: usize) {
        let g = self.params.geometry;
        self.queries += 1;
        self.leaves.drawn.push(u64::from(ask.leaf));
        for (layer, location) in ask.locations.iter().enumerate() {
            let node = g.node(layer, ask.leaf);
            self.slots[layer].drawn.push(u64::from(location.slot));
            self.slots_read += 1;
            self.read_twice += u64::from(!self.read.insert((node, *location)));
            *self.reads.entry((node, location.attempt)).or_default() += 1;
        }
        for what in [1, ask.locations.len(), ask.order.len(), reply_len] {
            self.step.see(what as u64);
        }
    }

    fn stage(&mut self, stage: &Stage) {
        let g = self.params.geometry;
        self.made_anew += 1;
        let nodes = || stage.nodes.iter().map(|version| version.node);
        let is_due = if stage.batch.is_empty() {
            // By itself: a node that was read as often as it may be.
            stage.nodes.iter().all(|version| {
                let reads = self.reads.get(&(version.node, version.attempt)).copied();
                reads.unwrap_or(0) >= self.params.reads_max(g.layer_of(version.node))
            })
        } else {
            let path = g.evicted(self.rounds);
            self.rounds += 1;
            let form: Vec<usize> =
                core::iter::once(&stage.batch).chain(&stage.orders).map(Vec::len).collect();
            let alike = *self.form.get_or_insert_with(|| form.clone()) == form;
            let due = self.rounds * self.params.round_blocks as u64;
            alike && self.queries >= due && nodes().eq((0..g.layers).map(|i| g.node(i, path)))
        };
        self.untimely += u64::from(!is_due);
    }
}

/// A host that is watched.
struct Watched {
    host: InProcess<MemStore>,
    watch: Arc<Mutex<Watch>>,
}

impl Watched {
    fn seen(&self) -> std::sync::MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host for Watched {
    fn query(&self, ask: &Ask) -> Result<Vec<u8>> {
        let reply = self.host.query(ask);
        self.seen().query(ask, reply.as_ref().map_or(0, Vec::len));
        reply
    }

    fn stage(&self, stage: &Stage) -> Result {
        self.seen().stage(stage);
        self.host.stage(stage)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.host.commit(sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        self.host.sequence()
    }
}
