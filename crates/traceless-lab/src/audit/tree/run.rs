//! Runs users on a scheme, and keeps what an adversary observes.

use super::super::workload::mix;
use super::schemes::NamedScheme;
use super::users::TreeUser;
use super::watch::WatchedTree;
use std::sync::Arc;
use traceless::Result;
use traceless::trace::Witness;
use traceless_audit::{Draws, Template};

/// What the adversary observed of one user.
pub struct TreeRun {
    /// For each step, its events without the paths.
    pub templates: Vec<Template>,
    /// Leaves that the number of the step determines.
    pub public: Vec<u32>,
    /// All leaves that are drawn at random, for each tree.
    pub drawn: Vec<Draws>,
    /// Step and leaf of each path of the first tree, for the first `SHOWN_MAX` paths.
    pub shown: Vec<(u64, u64)>,
    /// Requests that the scheme accepted.
    pub requests: u64,
}

/// Paths of the first tree that are kept together with their steps.
pub const SHOWN_MAX: usize = 20_000;

/// Runs `steps` steps of a user.
pub fn run_user(
    scheme: &NamedScheme,
    user: TreeUser,
    blocks: u64,
    steps: u64,
    seed: u64,
) -> Result<TreeRun> {
    let watched = WatchedTree::default();
    let mut subject = (scheme.build)(blocks, &watched, mix(seed, 1))?;
    let draws = |tree| {
        let places = watched.leaves(tree);
        Draws { noun: "leaves", places, ..Draws::default() }
    };
    let mut found = TreeRun {
        templates: Vec::with_capacity(steps as usize),
        public: vec![],
        shown: vec![],
        drawn: (0..scheme.trees).map(draws).collect(),
        requests: 0,
    };
    let mut asked = 0;
    for step in 0..steps {
        let addr = user.asks(step, found.requests, blocks, seed);
        if subject.step(addr)? {
            found.requests += 1;
            asked = addr.map_or(0, |addr| addr + 1);
        } else if addr.is_none() {
            asked = 0;
        }
        let shown = watched.take();
        found.templates.push(shown.template);
        for path in shown.paths {
            if path.tree == 0 && found.shown.len() < SHOWN_MAX {
                found.shown.push((step, u64::from(path.leaf)));
            }
            if (scheme.is_public)(step) {
                found.public.push(path.leaf);
            } else {
                let draws = &mut found.drawn[usize::from(path.tree)];
                draws.drawn.push(u64::from(path.leaf));
                draws.secrets.push(asked);
            }
        }
    }
    Ok(found)
}

/// The number of steps of each of the first `requests` requests, if the scheme makes no step
/// without a request. Empty for a user without requests.
pub fn steps_of_requests(
    scheme: &NamedScheme,
    user: TreeUser,
    blocks: u64,
    requests: u64,
    seed: u64,
) -> Result<Vec<u64>> {
    /// After this many steps per request, in the mean, the run ends.
    const STEPS_MAX: u64 = 64;
    let watched = WatchedTree::default();
    let mut subject = (scheme.build)(blocks, &watched, mix(seed, 1))?;
    let mut steps: Vec<u64> = vec![];
    for _ in 0..STEPS_MAX * requests {
        let asked = steps.len() as u64;
        // Always step 0: a user that requests in one step of three does so in the first.
        let Some(addr) = user.asks(0, asked, blocks, seed).filter(|_| asked < requests) else {
            break;
        };
        if subject.step(Some(addr))? {
            steps.push(0);
        }
        if let Some(last) = steps.last_mut() {
            *last += 1;
        }
        watched.take();
    }
    Ok(steps)
}

/// Shows `witness` the events of a user in `steps` steps, over `blocks` blocks. At the end of each
/// step `step_ends` gets the request of that step.
pub fn show_user(
    scheme: &NamedScheme,
    user: TreeUser,
    (blocks, steps): (u64, u64),
    seed: u64,
    witness: Arc<dyn Witness>,
    mut step_ends: impl FnMut(Asks),
) -> Result {
    let watched = WatchedTree::recorded(witness);
    let mut subject = (scheme.build)(blocks, &watched, mix(seed, 1))?;
    let mut requests = 0;
    for step in 0..steps {
        let addr = user.asks(step, requests, blocks, mix(seed, 2));
        watched.begin(step);
        let is_taken = subject.step(addr)?;
        requests += u64::from(is_taken);
        step_ends(match addr {
            Some(addr) if is_taken => Asks::For(addr),
            Some(_) => Asks::AsBefore,
            None => Asks::ForNothing,
        });
    }
    Ok(())
}

/// The request of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asks {
    For(u64),
    /// The scheme still serves an earlier request.
    AsBefore,
    ForNothing,
}
