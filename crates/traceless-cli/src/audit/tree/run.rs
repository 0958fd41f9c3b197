//! Runs users on a scheme, and keeps what an adversary sees.

use super::super::workload::mix;
use super::schemes::Scheme;
use super::users::User;
use super::watch::Watched;
use std::sync::Arc;
use traceless::Result;
use traceless::trace::Witness;
use traceless_audit::{Draws, Template};

/// What was seen of one user.
pub struct Run {
    /// Of each step, what it showed but for its paths.
    pub templates: Vec<Template>,
    /// Leaves that the number of the step tells.
    pub public: Vec<u32>,
    /// All others, for each tree.
    pub drawn: Vec<Draws>,
    /// Steps and leaves of the first tree.
    pub shown: Vec<(u64, u64)>,
    /// Requests that were taken.
    pub requests: u64,
}

/// Runs `steps` steps of a user.
pub fn run_user(scheme: &Scheme, user: User, blocks: u64, steps: u64, seed: u64) -> Result<Run> {
    let watched = Watched::default();
    let mut subject = (scheme.build)(blocks, &watched, mix(seed, 1))?;
    let draws = |tree| {
        let places = watched.leaves(tree);
        Draws { noun: "leaves", places, each: 1, drawn: vec![], secrets: vec![] }
    };
    let mut found = Run {
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
            if path.tree == 0 {
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

/// Lets `witness` see what a user of `blocks` blocks shows in so many steps. When a step ends,
/// `step_ends` is told what was asked for with it.
pub fn show_user(
    scheme: &Scheme,
    user: User,
    (blocks, steps): (u64, u64),
    seed: u64,
    witness: Arc<dyn Witness>,
    mut step_ends: impl FnMut(Asks),
) -> Result {
    let watched = Watched::recorded(witness);
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

/// What somebody asks for with a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asks {
    For(u64),
    /// An earlier request is still under way.
    AsBefore,
    ForNothing,
}
