//! Runs users on a scheme, and keeps what an adversary observes.

use super::super::workload::mix;
use super::schemes::NamedScheme;
use super::users::TreeUser;
use super::watch::TreeObserver;
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
    pub draws: Vec<Draws>,
    /// Step and leaf of each path of the first tree, for the first `PICTURED_MAX` paths.
    pub first_paths: Vec<(u64, u64)>,
    /// Requests that the scheme accepted.
    pub requests: u64,
}

/// Paths of the first tree that are kept together with their steps.
pub const PICTURED_MAX: usize = 20_000;

/// Runs `steps` steps of a user.
pub fn run_user(
    scheme: &NamedScheme,
    user: TreeUser,
    blocks: u64,
    steps: u64,
    seed: u64,
) -> Result<TreeRun> {
    let observer = TreeObserver::default();
    let mut subject = (scheme.build)(blocks, &observer, mix(seed, 1))?;
    let draws = |tree| {
        let places = observer.leaves(tree);
        Draws { noun: "leaves", places, ..Draws::default() }
    };
    let mut run = TreeRun {
        templates: Vec::with_capacity(steps as usize),
        public: vec![],
        first_paths: vec![],
        draws: (0..scheme.trees).map(draws).collect(),
        requests: 0,
    };
    let mut secret = 0;
    for step in 0..steps {
        let addr = user.request(step, run.requests, blocks, seed);
        if subject.step(addr)? {
            run.requests += 1;
            secret = addr.map_or(0, |addr| addr + 1);
        } else if addr.is_none() {
            secret = 0;
        }
        let view = observer.take();
        run.templates.push(view.template);
        for path in view.paths {
            if path.tree == 0 && run.first_paths.len() < PICTURED_MAX {
                run.first_paths.push((step, u64::from(path.leaf)));
            }
            if (scheme.is_public)(step) {
                run.public.push(path.leaf);
            } else {
                let draws = &mut run.draws[usize::from(path.tree)];
                draws.drawn.push(u64::from(path.leaf));
                draws.secrets.push(secret);
            }
        }
    }
    Ok(run)
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
    let observer = TreeObserver::default();
    let mut subject = (scheme.build)(blocks, &observer, mix(seed, 1))?;
    let mut steps: Vec<u64> = vec![];
    for _ in 0..STEPS_MAX * requests {
        let nth = steps.len() as u64;
        // Always step 0: a user that requests in one step of three does so in the first.
        let Some(addr) = user.request(0, nth, blocks, seed).filter(|_| nth < requests) else {
            break;
        };
        if subject.step(Some(addr))? {
            steps.push(0);
        }
        if let Some(last) = steps.last_mut() {
            *last += 1;
        }
        observer.take();
    }
    Ok(steps)
}

/// Shows `witness` the events of a user in `steps` steps, over `blocks` blocks. At the end of each
/// step `step_ends` gets the request of that step.
pub fn record_user(
    scheme: &NamedScheme,
    user: TreeUser,
    (blocks, steps): (u64, u64),
    seed: u64,
    witness: Arc<dyn Witness>,
    mut step_ends: impl FnMut(StepRequest),
) -> Result {
    let observer = TreeObserver::recording_to(witness);
    let mut subject = (scheme.build)(blocks, &observer, mix(seed, 1))?;
    let mut requests = 0;
    for step in 0..steps {
        let addr = user.request(step, requests, blocks, mix(seed, 2));
        observer.begin(step);
        let is_taken = subject.step(addr)?;
        requests += u64::from(is_taken);
        step_ends(match addr {
            Some(addr) if is_taken => StepRequest::New(addr),
            Some(_) => StepRequest::Pending,
            None => StepRequest::None,
        });
    }
    Ok(())
}

/// The request of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepRequest {
    New(u64),
    /// The scheme still serves an earlier request.
    Pending,
    None,
}
