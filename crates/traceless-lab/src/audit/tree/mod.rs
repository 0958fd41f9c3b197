//! `traceless-lab audit tree`: schemes that lie in trees, at a fixed rate: each step accesses one
//! path, with or without a request.

pub mod mutants;
mod run;
pub mod schemes;
pub mod users;
mod watch;

use super::report::Progress;
use super::sampling::{UserDraws, claims_of_draws, count_differences, pair_indices};
use super::suite::{self, AuditError, Suite};
use super::{Outcome, grouped, record_only};
use crate::args::audit::{AuditTreeArgs, Level, TREE_USERS};
use mutants::{PLANTED, TreeCase};
use run::{PICTURED_MAX, StepRequest, TreeRun, record_user, run_user, steps_of_requests};
use schemes::{NamedScheme, SCHEMES};
use std::sync::Arc;
use traceless::trace::{Op, Request, Witness};
use traceless_audit::{Claim, Verdict};
use traceless_audit::{Picture, UserPoints};
use traceless_cli::trace::Trace;
use users::{PAIRS, TreeUser, USERS};
use watch::LINE_LEN;

/// How much an audit runs.
#[derive(Clone, Copy, Debug)]
pub struct TreeSize {
    blocks: u64,
    /// Steps of each user at least.
    steps: u64,
    /// Leaves that each user draws from each tree at least; both minima hold.
    draws: u64,
}

impl TreeSize {
    fn steps(&self, scheme: &NamedScheme) -> u64 {
        self.steps.max(self.draws * scheme.turns)
    }
}

/// All schemes in trees.
pub struct Trees;

impl Suite for Trees {
    type Scheme = NamedScheme;
    type Size = TreeSize;

    const TARGET: &'static str = "tree";
    const PLANTED: &'static [TreeCase] = &PLANTED;

    fn honest() -> &'static [NamedScheme] {
        &SCHEMES
    }

    fn size(level: Level) -> TreeSize {
        match level {
            Level::Quick => TreeSize { blocks: 512, steps: 8_000, draws: 0 },
            Level::Ci => TreeSize { blocks: 2048, steps: 40_000, draws: 0 },
            Level::Release => TreeSize { blocks: 8192, steps: 0, draws: 2_000_000 },
        }
    }

    fn not_hidden(_: &[&NamedScheme]) -> &'static str {
        "Not hidden: the number of steps; without a fixed rate, how \
         many steps a request takes."
    }

    fn name(scheme: &NamedScheme) -> &'static str {
        scheme.name
    }

    fn work(scheme: &NamedScheme, size: TreeSize) -> u64 {
        (USERS.len() as u64 + 1) * size.steps(scheme)
    }

    fn claims(
        scheme: &NamedScheme,
        size: TreeSize,
        seed: u64,
        progress: &Progress,
    ) -> Result<Vec<Claim>, AuditError> {
        let mut runs = vec![];
        for (nth, user) in (0..).zip(USERS) {
            let seed = seed.wrapping_mul(64) + nth;
            runs.push(run_user(scheme, user, size.blocks, size.steps(scheme), seed)?);
            progress.advance(size.steps(scheme));
        }
        let mut claims = vec![equal_templates(scheme, &runs)];
        let users = USERS.iter().zip(&runs);
        let users: Vec<_> =
            users.map(|(user, run)| UserDraws { name: user.name(), draws: &run.draws }).collect();
        claims.extend(claims_of_draws(scheme.name, &users, &pair_indices(&USERS, &PAIRS)));
        claims.push(on_demand_claim(scheme, size, seed)?);
        progress.advance(size.steps(scheme));
        Ok(claims)
    }

    /// Users that request one block, random blocks, and nothing.
    fn pictures(scheme: &NamedScheme, seed: u64) -> Result<Vec<Picture>, AuditError> {
        const PICTURED: [(TreeUser, TreeUser); 2] =
            [(TreeUser::OneBlock, TreeUser::Random), (TreeUser::Idle, TreeUser::Random)];
        let blocks = Self::size(Level::Quick).blocks;
        let points_of = |user: TreeUser, seed| -> traceless::Result<UserPoints> {
            let run = run_user(scheme, user, blocks, PICTURED_MAX as u64, seed)?;
            Ok(UserPoints { name: user.name().to_owned(), points: run.first_paths })
        };
        let mut pictures = vec![];
        for (a, b) in PICTURED {
            let users = [points_of(a, seed)?, points_of(b, seed.wrapping_add(1))?];
            let title = format!("{}: the leaves of two users", scheme.name);
            pictures.push(Picture { title, across: "step", up: "leaf", users });
        }
        Ok(pictures)
    }
}

pub fn run(args: &AuditTreeArgs) -> Outcome {
    if args.record.trace.trace.is_some() {
        return record_only(&args.record, |trace| record(args, trace));
    }
    suite::run::<Trees>(&args.run, args.scheme.as_deref())
}

/// Records one user. The position of a name in `TREE_USERS` is the user's in `USERS`.
fn record(args: &AuditTreeArgs, trace: &Trace) -> traceless::Result {
    let Some(witness) = trace.witness() else { return Ok(()) };
    let scheme =
        args.scheme.as_deref().and_then(suite::find_scheme::<Trees>).unwrap_or(&SCHEMES[0]);
    let user = TREE_USERS.iter().position(|name| *name == args.user).expect("clap has checked");
    let size = Trees::size(args.run.level);
    let (blocks, steps) = (size.blocks, args.record.length.unwrap_or(size.steps(scheme)));
    // The request of a step is written before the events of the step.
    let mut events = 0;
    let record_step = |request| {
        match request {
            StepRequest::New(addr) => {
                let (at, len) = (addr * LINE_LEN, LINE_LEN as u32);
                trace.record_request(Request { events_before: events, op: Op::Read, at, len });
            }
            StepRequest::None => {
                trace.record_request(Request {
                    events_before: events,
                    op: Op::Sync,
                    at: 0,
                    len: 0,
                });
            }
            StepRequest::Pending => {}
        }
        events = trace.events();
    };
    record_user(scheme, USERS[user], (blocks, steps), args.run.seed, witness, record_step)
}

/// Shows `witness` the events of a Path ORAM in this many steps.
pub fn record_path(steps: u64, witness: Arc<dyn Witness>) -> traceless::Result {
    let TreeSize { blocks, .. } = Trees::size(Level::Release);
    record_user(&SCHEMES[0], TreeUser::Random, (blocks, steps), 1, witness, |_| {})
}

/// Counts the steps of each request without dummy steps in between: these counts can distinguish
/// two users with the same number of requests.
fn on_demand_claim(scheme: &NamedScheme, size: TreeSize, seed: u64) -> traceless::Result<Claim> {
    /// Steps at a fixed rate for each request that is counted on demand.
    const SHARE: u64 = 16;
    let requests = size.steps(scheme) / SHARE;
    let steps = |(nth, user): (u64, TreeUser)| {
        let seed = seed.wrapping_mul(64) + nth;
        Ok((user.name(), steps_of_requests(scheme, user, size.blocks, requests, seed)?))
    };
    let users = (0..).zip(USERS).map(steps).collect::<traceless::Result<Vec<_>>>()?;
    let name = format!("{}: without a fixed rate, counts tell of users", scheme.name);
    Ok(count_differences(name, "steps of a request", &users, &pair_indices(&USERS, &PAIRS)))
}

/// The claim that each step shows the same events for every user except for its path, and the same
/// path where the step's number determines it.
fn equal_templates(scheme: &NamedScheme, runs: &[TreeRun]) -> Claim {
    let name = format!("{}: steps of all users look alike", scheme.name);
    let power = "one differing event is found";
    let mut steps = 0;
    for (user, run) in USERS.iter().zip(runs) {
        let first = |other: &TreeRun| {
            let equal = run.templates.iter().zip(&other.templates).take_while(|(a, b)| a == b);
            let equal = equal.count();
            (equal < run.templates.len()).then_some(equal as u64)
        };
        let public = run.public.iter().zip(&runs[0].public).take_while(|(a, b)| a == b).count();
        let differs = if public < runs[0].public.len() {
            Some((public as u64, "has another path, where its number tells it"))
        } else if scheme.has_templates {
            first(&runs[0]).map(|step| (step, "does not look alike"))
        } else {
            None
        };
        if let Some((step, what)) = differs {
            let evidence =
                format!("step {step} of {} and of {} {what}", user.name(), USERS[0].name());
            return Claim::exact(name, Verdict::Leak, step, power, evidence);
        }
        steps += run.templates.len() as u64;
    }
    let evidence = format!("{} steps of {} users", grouped(steps), runs.len());
    Claim::exact(name, Verdict::Pass, steps, power, evidence)
}
