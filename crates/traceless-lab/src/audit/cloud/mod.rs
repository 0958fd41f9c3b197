//! `traceless-lab audit cloud`: what a provider observes of the oblivious store and its enclave.
//!
//! At a constant rate the audit judges all pairs of clients: each message and its time must be
//! equal, except for paths and slots, which statistics judge. On demand, each step sends one query,
//! with or without a request for a block that is not at hand. The number of queries and their times
//! are not hidden then.

mod enclave;
mod linker;
mod wire;

use super::Outcome;
use super::report::Progress;
use super::sampling::{UserDraws, claims_of_draws};
use super::suite::{self, AuditError, CaseKind, SelfTestCase, Suite};
use crate::args::audit::{AuditCloudArgs, Level};
use crate::audit::tree::users::TreeUser;
use enclave::Enclave;
use traceless_audit::{Claim, Verdict};
use traceless_audit::{Picture, UserPoints};
use wire::{GatewayClient, GatewayVariant, WireRun};

/// A part of the cloud store.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// A gateway: what its host observes.
    Gateway(GatewayVariant),
    /// An enclave: its answers, and its page accesses.
    Enclave(Enclave),
}

/// A part and its name.
#[derive(Clone, Copy, Debug)]
pub struct CloudPart {
    name: &'static str,
    part: Part,
}

/// Gateways and enclaves.
pub struct Clouds;

impl Suite for Clouds {
    type Scheme = CloudPart;
    /// Steps of each client of a gateway. An audit of an enclave always runs as much.
    type Size = u64;

    const TARGET: &'static str = "cloud";
    const PLANTED: &'static [SelfTestCase<Self>] = &[
        sound_twin(gateway("mutant:sound-gateway", GatewayVariant::Fixed)),
        planted(
            gateway("mutant:hits-send-nothing", GatewayVariant::HitsSendNothing),
            "a cache hit sends nothing, and no other request in its place",
        ),
        planted(
            gateway("mutant:idle-stops", GatewayVariant::IdleStops),
            "an idle gateway sends nothing",
        ),
        planted(
            gateway("mutant:errors-send-nothing", GatewayVariant::ErrorsSendNothing),
            "an error is answered, and its slot left out",
        ),
        planted(
            gateway("mutant:batches-at-once", GatewayVariant::BatchesAtOnce),
            "two queries are sent in one slot",
        ),
        planted(
            gateway("mutant:prefers-half", GatewayVariant::PrefersHalf),
            "one path of four is drawn from one half of the tree",
        ),
        SelfTestCase {
            size: 20_000,
            ..planted(
                gateway("mutant:root-at-hand", GatewayVariant::RootCached),
                "blocks of the root, which the gateway has, are at hand",
            )
        },
        sound_twin(enclave("mutant:sound-enclave", Enclave::Sound)),
        planted(
            enclave("mutant:checks-chosen", Enclave::ChecksChosen),
            "only the slot that is meant is verified, as the paper prints it",
        ),
        planted(enclave("mutant:takes-replays", Enclave::TakesReplays), "a query is taken twice"),
        planted(
            enclave("mutant:moves-straight", Enclave::MovesStraight),
            "rows go straight to the page where they belong",
        ),
        planted(
            enclave("mutant:printed-stream", Enclave::PrintedStream),
            "the key stream that the paper prints, which has no key",
        ),
    ];

    fn honest() -> &'static [CloudPart] {
        const {
            &[
                gateway("gateway-fixed", GatewayVariant::Fixed),
                gateway("gateway-fixed-copies", GatewayVariant::FixedCopies),
                gateway("gateway-fixed-together", GatewayVariant::FixedTogether),
                gateway("gateway-demand", GatewayVariant::Demand),
                gateway("gateway-fixed-divided", GatewayVariant::FixedDivided),
                gateway("gateway-demand-divided", GatewayVariant::DemandDivided),
                enclave("enclave", Enclave::Product),
            ]
        }
    }

    fn size(level: Level) -> u64 {
        match level {
            Level::Quick => 4_000,
            Level::Ci => 12_000,
            Level::Release => 2_000_000,
        }
    }

    fn not_hidden(_: &[&CloudPart]) -> &'static str {
        "Not hidden without a constant rate: the number of queries \
         and when they are sent, and that what is at hand sends none."
    }

    fn name(subject: &CloudPart) -> &'static str {
        subject.name
    }

    fn title(subject: &CloudPart) -> String {
        format!("cloud {}", subject.name)
    }

    fn work(subject: &CloudPart, steps: u64) -> u64 {
        match subject.part {
            Part::Gateway(gate) => users(gate).len() as u64 * steps,
            Part::Enclave(_) => ENCLAVE_WORK,
        }
    }

    fn claims(
        subject: &CloudPart,
        steps: u64,
        seed: u64,
        progress: &Progress,
    ) -> Result<Vec<Claim>, AuditError> {
        match subject.part {
            Part::Gateway(gate) => of_gateway(subject.name, gate, steps, seed, progress),
            Part::Enclave(enclave) => enclave::claims(subject.name, enclave, seed)
                .inspect(|_| progress.advance(ENCLAVE_WORK)),
        }
    }

    fn pictures(subject: &CloudPart, seed: u64) -> Result<Vec<Picture>, AuditError> {
        let Part::Gateway(gate) = subject.part else { return Ok(vec![]) };
        let points_of = |user: TreeUser, seed| -> Result<UserPoints, AuditError> {
            let run = wire::run(gate, GatewayClient::One(user), Self::size(Level::Quick), seed)?;
            let points = (0..).zip(run.leaves.drawn).collect();
            Ok(UserPoints { name: user.name().to_owned(), points })
        };
        let users = [
            points_of(TreeUser::OneBlock, seed)?,
            points_of(TreeUser::Random, seed.wrapping_add(1))?,
        ];
        let title = format!("{}: the paths of two users", subject.name);
        Ok(vec![Picture { title, across: "query", up: "leaf", users }])
    }
}

pub fn run(args: &AuditCloudArgs) -> Outcome {
    suite::run::<Clouds>(&args.run, args.scheme.as_deref())
}

const fn gateway(name: &'static str, gate: GatewayVariant) -> CloudPart {
    CloudPart { name, part: Part::Gateway(gate) }
}

const fn enclave(name: &'static str, enclave: Enclave) -> CloudPart {
    CloudPart { name, part: Part::Enclave(enclave) }
}

const fn planted(scheme: CloudPart, fault: &'static str) -> SelfTestCase<Clouds> {
    SelfTestCase { scheme, kind: CaseKind::Fault(fault), size: PLANTED_STEPS }
}

const fn sound_twin(scheme: CloudPart) -> SelfTestCase<Clouds> {
    SelfTestCase { scheme, kind: CaseKind::SoundTwin, size: PLANTED_STEPS }
}

/// Steps of each client that suffice to find most faults.
const PLANTED_STEPS: u64 = 4_000;

/// Clients of the gateway. They differ in cache hits, in the rate of requests and in how full the
/// tree is. `Errors` requests blocks that do not exist, and `Batches` several blocks at once.
static USERS: [GatewayClient; 10] = [
    GatewayClient::One(TreeUser::OneBlock),
    GatewayClient::One(TreeUser::Random),
    GatewayClient::One(TreeUser::InOrder),
    GatewayClient::One(TreeUser::FewHotBlocks),
    GatewayClient::One(TreeUser::Idle),
    GatewayClient::One(TreeUser::Seldom),
    GatewayClient::One(TreeUser::Full),
    GatewayClient::One(TreeUser::Empty),
    GatewayClient::Errors,
    GatewayClient::Batches,
];
/// The first clients request one block per step, or none.
const OF_ONE: usize = 8;

/// All pairs, by number.
fn pairs(users: usize) -> Vec<(usize, usize)> {
    (0..users).flat_map(|a| (a + 1..users).map(move |b| (a, b))).collect()
}

/// What the claims about an enclave count for in the progress, in steps of a gateway.
const ENCLAVE_WORK: u64 = 1000;

fn users(gate: GatewayVariant) -> &'static [GatewayClient] {
    if gate.is_fixed() { &USERS } else { &USERS[..OF_ONE] }
}

fn of_gateway(
    name: &str,
    gate: GatewayVariant,
    steps: u64,
    seed: u64,
    progress: &Progress,
) -> Result<Vec<Claim>, AuditError> {
    let mut runs = vec![];
    let users = users(gate);
    for (nth, &user) in (0..).zip(users) {
        runs.push(wire::run(gate, user, steps, seed.wrapping_mul(64) + nth)?);
        progress.advance(steps);
    }
    let drawn: Vec<_> = runs.iter().map(|run| [run.leaves.clone()]).collect();
    let of_users = users.iter().zip(&drawn);
    let of_users: Vec<_> =
        of_users.map(|(user, draws)| UserDraws { name: user.name(), draws }).collect();
    let mut claims =
        vec![steps_claim(name, &runs), read_once_claim(name, &runs), rounds_claim(name, &runs)];
    claims.extend(claims_of_draws(name, &of_users, &pairs(users.len())));
    let behind = users.iter().zip(&runs).map(|(user, run)| {
        run.behind.are_uniform(&format!("trees behind the last round's, {}", user.name()))
    });
    claims.extend(traceless_audit::worst_of(
        format!("{name}: paths do not follow rounds"),
        behind.collect(),
    ));
    let slots = |(user, run): (&GatewayClient, &WireRun)| {
        let title = |layer| format!("slots of layer {layer}, {}", user.name());
        (0..).zip(&run.slots).map(move |(layer, drawn)| drawn.are_uniform(&title(layer))).collect()
    };
    let slots: Vec<Vec<Claim>> = users.iter().zip(&runs).map(slots).collect();
    claims.extend(traceless_audit::worst_of(
        format!("{name}: slots are read anywhere in a node"),
        slots.concat(),
    ));
    Ok(claims)
}

/// The claim that each step shows the same messages for every client, except for its path and
/// slots.
fn steps_claim(name: &str, runs: &[WireRun]) -> Claim {
    let name = format!("{name}: steps of all users look alike");
    let mut steps = 0;
    for (user, run) in USERS.iter().zip(runs) {
        let equal = run.steps.iter().zip(&runs[0].steps).take_while(|(a, b)| a == b).count() as u64;
        if equal < run.steps.len().max(runs[0].steps.len()) as u64 {
            let evidence = format!(
                "step {equal} of {} and of {} does not look alike",
                user.name(),
                USERS[0].name()
            );
            return Claim::exact(name, Verdict::Leak, equal, ONE, evidence);
        }
        steps += equal;
    }
    Claim::exact(name, Verdict::Pass, steps, ONE, format!("{steps} steps of {} users", runs.len()))
}

const ONE: &str = "one differing event is found";

/// The claim that no slot is read twice before its node is made anew.
fn read_once_claim(name: &str, runs: &[WireRun]) -> Claim {
    let name = format!("{name}: no slot is read twice");
    let (read, twice): (u64, u64) =
        runs.iter().fold((0, 0), |sum, run| (sum.0 + run.slots_read, sum.1 + run.read_twice));
    let verdict = if twice == 0 { Verdict::Pass } else { Verdict::Leak };
    let evidence = format!("{twice} of {read} slots");
    Claim::exact(name, verdict, if twice == 0 { read } else { twice }, ONE, evidence)
}

/// The claim that nodes are made anew at times that follow from the host's earlier observations.
fn rounds_claim(name: &str, runs: &[WireRun]) -> Claim {
    let name = format!("{name}: rounds follow from the number of queries");
    let (renewed, untimely): (u64, u64) =
        runs.iter().fold((0, 0), |sum, run| (sum.0 + run.nodes_renewed, sum.1 + run.untimely));
    let verdict = if untimely == 0 { Verdict::Pass } else { Verdict::Leak };
    let evidence = format!("{untimely} of {renewed} were not due, or of another form");
    Claim::exact(name, verdict, if untimely == 0 { renewed } else { untimely }, ONE, evidence)
}
