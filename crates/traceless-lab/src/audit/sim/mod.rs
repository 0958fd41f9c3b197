//! `traceless-lab audit sim`: the simulator's secure processors, as an adversary at the memory bus
//! observes them: which lines are accessed, and in which cycle.

mod computer;
mod machines;
mod mutants;
mod pacing;
mod replay;
mod run;
mod trees;
mod users;
mod watch;

use super::report::Progress;
use super::sampling::{UserDraws, claims_of_draws, count_differences, pair_indices};
use super::suite::{self, AuditError, Suite};
use super::{Outcome, grouped};
use crate::args::audit::{AuditSimArgs, Level};
use computer::Over;
use machines::{
    AFTER_COMPLETION, BY_BANDWIDTH, Construction, MachineClaims, MachineScheme, ON_DEMAND, SCHEMES,
    TimeClaim,
};
use mutants::{MachineCase, PLANTED};
use replay::replay;
use run::{Job, MachineRun};
use std::sync::Arc;
use traceless_audit::{Claim, Draws, Verdict};
use traceless_audit::{Picture, UserPoints};
use traceless_sim::oram::Pace;
use users::{PAIRS, ProgramUser, USERS};
use watch::{Atlas, BusView, Step, WatchState, Watcher};

/// How much an audit runs.
#[derive(Clone, Copy, Debug)]
pub struct MachineSize {
    /// Steps of each user that are compared exactly, for each reading of T.
    exact: usize,
    /// Steps that each user runs for the statistics, at least.
    statistic_steps: usize,
    /// Leaves that each user draws from each tree, at least; both minima hold.
    leaves: usize,
}

/// The suite of the simulator's schemes.
pub struct Processors;

impl Suite for Processors {
    type Scheme = MachineScheme;
    type Size = MachineSize;

    const TARGET: &'static str = "sim";
    const PLANTED: &'static [MachineCase] = &PLANTED;

    fn honest() -> &'static [MachineScheme] {
        &SCHEMES
    }

    fn size(level: Level) -> MachineSize {
        match level {
            Level::Quick => MachineSize { exact: 170, statistic_steps: 1_280, leaves: 0 },
            Level::Ci => MachineSize { exact: 600, statistic_steps: 10_000, leaves: 0 },
            Level::Release => MachineSize { exact: 5_000, statistic_steps: 0, leaves: 2_000_000 },
        }
    }

    fn not_hidden(_: &[&MachineScheme]) -> &'static str {
        "Not hidden: how long a program runs, to a slot; without a \
         fixed rate, when it asks for memory. Where T counts from \
         the end of a path, or is shorter than one, times follow \
         from the paths."
    }

    fn name(scheme: &MachineScheme) -> &'static str {
        scheme.name
    }

    fn work(scheme: &MachineScheme, size: MachineSize) -> u64 {
        let of_readings = scheme.readings.len() * size.exact;
        (USERS.len() * (of_readings + long_steps(scheme, size))) as u64
    }

    fn claims(
        scheme: &MachineScheme,
        size: MachineSize,
        seed: u64,
        progress: &Progress,
    ) -> Result<Vec<Claim>, AuditError> {
        let mut claims = vec![];
        for reading in scheme.readings {
            let atlas = scheme.atlas(reading.over)?;
            let jobs = jobs(reading, size.exact, size.exact, seed);
            let runs = jobs.map(|job| scheme.run(&job, &atlas));
            let runs = runs.collect::<traceless_sim::Result<Vec<MachineRun>>>()?;
            claims.push(steps_claim(scheme, reading.words, &runs));
            claims.push(times_claim(scheme, reading, &runs, &atlas)?);
            progress.advance((USERS.len() * size.exact) as u64);
        }
        let atlas = scheme.atlas(Over::Dram)?;
        if matches!(scheme.construction, Construction::Config(_)) {
            claims.push(on_demand_counts_claim(scheme, &atlas, seed)?);
            claims.push(on_demand_gaps_claim(scheme, &atlas, seed)?);
        }
        claims.extend(long_run_claims(scheme, size, seed, progress)?);
        Ok(claims)
    }

    /// Two users at a fixed rate; and two without one, where no claim is made about times.
    fn pictures(scheme: &MachineScheme, seed: u64) -> Result<Vec<Picture>, AuditError> {
        /// Steps of each user, enough to show the distribution of leaves.
        const STEPS: usize = 5_000;
        const PICTURED: [(MachineClaims, [ProgramUser; 2]); 3] = [
            (AFTER_COMPLETION, [ProgramUser::Random, ProgramUser::Computes]),
            (AFTER_COMPLETION, [ProgramUser::SecretOnes, ProgramUser::SecretZeros]),
            (ON_DEMAND, [ProgramUser::Random, ProgramUser::NowAndThen]),
        ];
        let atlas = scheme.atlas(Over::Dram)?;
        let mut pictures = vec![];
        for (reading, users) in &PICTURED {
            if reading.pace == Pace::Asked
                && !matches!(scheme.construction, Construction::Config(_))
            {
                continue;
            }
            let slots_of = |user: &ProgramUser| {
                let job = jobs(reading, STEPS, 0, seed).find(|job| job.user == *user);
                Ok(scheme.run(&job.expect("it is one of all"), &atlas)?.view.steps)
            };
            let steps = users.iter().map(slots_of).collect::<traceless_sim::Result<Vec<_>>>()?;
            for tree in 0..atlas.leaves().len() {
                let points_of = |nth: usize| UserPoints {
                    name: users[nth].name().to_owned(),
                    points: paths_of(&steps[nth], tree),
                };
                let title =
                    format!("{}: the leaves of tree {tree}, {}", scheme.name, reading.words);
                let users = [points_of(0), points_of(1)];
                pictures.push(Picture { title, across: "cycle", up: "leaf", users });
            }
        }
        Ok(pictures)
    }
}

/// The start time and the leaf of each path of a tree.
fn paths_of(steps: &[Step], tree: usize) -> Vec<(u64, u64)> {
    let path = |step: &Step| {
        let path = step.paths.iter().find(|path| usize::from(path.tree) == tree)?;
        Some((step.began, u64::from(path.leaf)))
    };
    steps.iter().filter_map(path).collect()
}

pub fn run(args: &AuditSimArgs) -> Outcome {
    suite::run::<Processors>(&args.run, args.scheme.as_deref())
}

/// The jobs of all users: `steps` steps each, and lines and commands of the first `lines_kept`.
fn jobs(
    reading: &MachineClaims,
    steps: usize,
    lines_kept: usize,
    seed: u64,
) -> impl Iterator<Item = Job> {
    let MachineClaims { pace, over, .. } = *reading;
    // A bound far above what this many steps take, in case the program causes fewer.
    let instructions = 20_000 * steps as u64;
    (0..).zip(USERS).map(move |(nth, user)| {
        let seed = seed.wrapping_mul(64) + nth;
        Job { user, pace, over, steps, lines_kept, instructions, has_large_stash: false, seed }
    })
}

/// The steps of each user in a long run.
fn long_steps(scheme: &MachineScheme, size: MachineSize) -> usize {
    size.statistic_steps.max(size.leaves * scheme.turns)
}

/// All claims that need many steps. To save memory, only the first user's steps are kept, and the
/// leaves of all.
fn long_run_claims(
    scheme: &MachineScheme,
    size: MachineSize,
    seed: u64,
    progress: &Progress,
) -> traceless_sim::Result<Vec<Claim>> {
    let atlas = &scheme.atlas(BY_BANDWIDTH.over)?;
    let long = long_steps(scheme, size);
    let (mut first, mut comparison, mut leaves) = (None, StepComparison::default(), vec![]);
    for job in jobs(&BY_BANDWIDTH, long, 0, seed) {
        let job = Job { has_large_stash: true, ..job };
        let steps = scheme.run(&job, atlas)?.view.steps;
        let most = if size.leaves > 0 { size.leaves } else { usize::MAX };
        leaves.push(draws(scheme, &steps, atlas, most));
        let first = first.get_or_insert_with(|| steps.clone());
        comparison.compare(scheme, job.user, first, &steps);
        progress.advance(long as u64);
    }
    let users = USERS.iter().zip(&leaves);
    let users: Vec<_> = users.map(|(user, draws)| UserDraws { name: user.name(), draws }).collect();
    let draws = claims_of_draws(scheme.name, &users, &pair_indices(&USERS, &PAIRS));
    Ok([vec![comparison.claim(scheme, "for long")], draws].concat())
}

const POWER: &str = "one slot that differs is found";

/// The claim that each step looks the same for every user except for its path, and has the same
/// path where its number determines it.
fn steps_claim(scheme: &MachineScheme, times: &str, runs: &[MachineRun]) -> Claim {
    let mut comparison = StepComparison::default();
    for (user, run) in USERS.into_iter().zip(runs) {
        comparison.compare(scheme, user, &runs[0].view.steps, &run.view.steps);
    }
    comparison.claim(scheme, times)
}

/// The result of comparing the steps of users.
#[derive(Default)]
struct StepComparison {
    users: usize,
    steps: u64,
    description: String,
    differs: Differs,
}

impl StepComparison {
    /// Compares the steps of a user with the first user's.
    fn compare(
        &mut self,
        scheme: &MachineScheme,
        user: ProgramUser,
        first: &[Step],
        steps: &[Step],
    ) {
        let differs = |nth: &usize| match (steps.get(*nth), first.get(*nth)) {
            (Some(a), Some(b)) => {
                let is_public = (scheme.is_public)(*nth as u64);
                scheme.has_templates && !a.looks_like(b) || is_public && a.paths != b.paths
            }
            (a, b) => a.is_some() || b.is_some(),
        };
        let description =
            |steps: &[Step], nth| steps.get(nth).map_or("none".to_owned(), Step::description);
        (self.users, self.steps) = (self.users + 1, self.steps + steps.len() as u64);
        self.description = description(first, 0);
        let found = (0..steps.len().max(first.len())).find(differs);
        if let (Some(nth), None) = (found, &self.differs) {
            let (a, b) = (description(steps, nth), description(first, nth));
            let why = format!("{} is {a}; of {}, {b}", user.name(), USERS[0].name());
            self.differs = Some((nth as u64, why));
        }
    }

    fn claim(self, scheme: &MachineScheme, times: &str) -> Claim {
        let name = format!("{}: slots of all users look alike, {times}", scheme.name);
        if let Some((nth, why)) = self.differs {
            return Claim::exact(name, Verdict::Leak, nth, POWER, format!("slot {nth} of {why}"));
        }
        let Self { users, steps, description, .. } = self;
        let evidence = format!("{} slots of {users} users, each {description}", grouped(steps));
        Claim::exact(name, Verdict::Pass, steps, POWER, evidence)
    }
}

/// The claim about the times at which steps begin and end.
fn times_claim(
    scheme: &MachineScheme,
    reading: &MachineClaims,
    runs: &[MachineRun],
    atlas: &Arc<Atlas>,
) -> traceless_sim::Result<Claim> {
    let what = match reading.claim {
        TimeClaim::Every(_) => "slots begin every T cycles",
        TimeClaim::Same => "slots of all users have the same times",
        TimeClaim::OfPaths => "times and commands follow from the paths alone",
    };
    let name = format!("{}: {what}, {}", scheme.name, reading.words);
    let mut all = 0;
    for (user, run) in USERS.iter().zip(runs) {
        let differs = match reading.claim {
            TimeClaim::Every(interval) => interval_difference(interval, &run.view.steps),
            TimeClaim::Same => time_difference(&runs[0].view.steps, &run.view.steps),
            TimeClaim::OfPaths => replay_difference(run, reading.pace, atlas)?,
        };
        if let Some((nth, why)) = differs {
            let evidence = format!("slot {nth} of {}: {why}", user.name());
            return Ok(Claim::exact(name, Verdict::Leak, nth, POWER, evidence));
        }
        all += run.view.steps.len() as u64;
    }
    let evidence = format!("{} slots of {} users", grouped(all), runs.len());
    Ok(Claim::exact(name, Verdict::Pass, all, POWER, evidence))
}

/// The number of the first step that contradicts a claim, and the reason.
type Differs = Option<(u64, String)>;

fn interval_difference(interval: u64, steps: &[Step]) -> Differs {
    let mut off = (0..).zip(steps).filter(|(nth, step)| step.began != nth * interval);
    let (nth, step) = off.next()?;
    Some((nth, format!("it began in cycle {}, not {}", step.began, nth * interval)))
}

fn time_difference(a: &[Step], b: &[Step]) -> Differs {
    let mut pairs = (0..).zip(a.iter().zip(b));
    let (nth, (a, b)) = pairs.find(|(_, (a, b))| (a.began, a.wrote) != (b.began, b.wrote))?;
    let (a, b) = (a.times(), b.times());
    Some((nth, format!("it was {b}; of {}, {a}", USERS[0].name())))
}

/// How a run differs from a processor without a program that accesses the same paths.
fn replay_difference(
    run: &MachineRun,
    pace: Pace,
    atlas: &Arc<Atlas>,
) -> traceless_sim::Result<Differs> {
    let BusView { steps, lines, .. } = &run.view;
    let Some(last) = steps.last() else { return Ok(None) };
    let end = last.began.max(last.wrote);
    let watcher = Watcher::new(atlas.clone(), Arc::new(WatchState::default()), steps.len(), 0);
    let (replayed, commands) = replay(lines, pace, &watcher, end)?;
    if let Some((nth, (a, b))) = (0..)
        .zip(steps.iter().zip(&replayed.steps))
        .find(|(_, (a, b))| (a.began, a.wrote) != (b.began, b.wrote))
    {
        let why = format!("it was {}; without a program, {}", a.times(), b.times());
        return Ok(Some((nth, why)));
    }
    if steps.len() != replayed.steps.len() {
        let nth = steps.len().min(replayed.steps.len()) as u64;
        return Ok(Some((nth, "without a program there is another number of slots".to_owned())));
    }
    for (a, b) in run.commands.iter().zip(&commands) {
        let until = |all: &'_ [traceless_sim::dram::CommandRecord]| {
            all.partition_point(|logged| logged.at <= end)
        };
        if a[..until(a)] != b[..until(b)] {
            return Ok(Some((0, "commands to the memory are others without a program".to_owned())));
        }
    }
    Ok(None)
}

/// A claim about the rate of paths on demand, which no scheme claims to hide. It fails if the
/// counts of all programs are equal, because then the audit would be blind.
fn on_demand_counts_claim(
    scheme: &MachineScheme,
    atlas: &Arc<Atlas>,
    seed: u64,
) -> traceless_sim::Result<Claim> {
    const INSTRUCTIONS: u64 = 20_000;
    let users = [
        ProgramUser::Random,
        ProgramUser::InOrder,
        ProgramUser::FewMissed,
        ProgramUser::NowAndThen,
    ];
    let (mut paths, mut cycles) = (vec![], vec![]);
    for user in users {
        let job = Job {
            user,
            pace: Pace::Asked,
            over: Over::Dram,
            steps: usize::MAX,
            lines_kept: 0,
            instructions: INSTRUCTIONS,
            has_large_stash: false,
            seed,
        };
        let run = scheme.run(&job, atlas)?;
        paths.push(run.view.steps.len() as u64);
        cycles.push(run.cycles / run.view.steps.len().max(1) as u64);
    }
    let name = format!("{}: without a fixed rate, counts tell of programs", scheme.name);
    let least = |of: &[u64]| of.iter().copied().min().unwrap_or(0);
    let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
    let (soonest, latest) = (least(&cycles), most(&cycles));
    let evidence = format!(
        "not claimed to be hidden: {} to {} paths for {INSTRUCTIONS} instructions, one every \
         {soonest} to {latest} cycles",
        least(&paths),
        most(&paths)
    );
    let verdict = if soonest < latest { Verdict::Pass } else { Verdict::Fault };
    let power = "one path, or one cycle between two";
    Ok(Claim::exact(name, verdict, paths.iter().sum(), power, evidence))
}

/// The times between paths on demand, for programs with the same number of paths.
fn on_demand_gaps_claim(
    scheme: &MachineScheme,
    atlas: &Arc<Atlas>,
    seed: u64,
) -> traceless_sim::Result<Claim> {
    const PATHS: usize = 200;
    let mut users = vec![];
    for job in jobs(&ON_DEMAND, PATHS, 0, seed) {
        // Two programs miss their cache almost never.
        let has_requests = !matches!(job.user, ProgramUser::Computes | ProgramUser::Dirties);
        let steps = if has_requests { scheme.run(&job, atlas)?.view.steps } else { vec![] };
        let gaps = steps.windows(2).map(|two| two[1].began - two[0].began);
        users.push((job.user.name(), gaps.collect()));
    }
    let name = format!("{}: without a fixed rate, gaps tell of programs", scheme.name);
    Ok(count_differences(name, "cycles between paths", &users, &pair_indices(&USERS, &PAIRS)))
}

/// The leaves of each tree that the step's number does not determine; the first `most` of them.
fn draws(scheme: &MachineScheme, steps: &[Step], atlas: &Atlas, most: usize) -> Vec<Draws> {
    let leaves = atlas.leaves().into_iter();
    let none = |places| Draws { noun: "leaves", places, ..Draws::default() };
    let mut draws: Vec<Draws> = leaves.map(none).collect();
    for (nth, step) in (0..).zip(steps) {
        let is_public = (scheme.is_public)(nth);
        for path in step.paths.iter().filter(|_| !is_public) {
            let of_tree = &mut draws[usize::from(path.tree)];
            if of_tree.drawn.len() == most {
                continue;
            }
            of_tree.drawn.push(u64::from(path.leaf));
            of_tree.secrets.push(step.secret);
        }
    }
    draws
}

#[cfg(test)]
mod tests {
    use super::*;
    use computer::machine;
    use traceless_sim::oram::Config;
    use traceless_sim::workload::Program;

    /// The compared runs contain evictions and early write-backs.
    #[test]
    fn compared_runs_have_evictions_and_early_write_backs() {
        let mut never_emptied = vec![];
        for scheme in SCHEMES {
            let Construction::Config(config) = scheme.construction else {
                panic!("they are configured")
            };
            let config = Config { pace: Pace::AfterCompletion(500), ..config() };
            let is_early = scheme.name.starts_with("ir-dwb") || scheme.name == "ir-oram";
            let run = |user: ProgramUser| {
                let shared = Arc::new(WatchState::default());
                let program = user.program(computer::BLOCKS, 1, 2_000_000, &shared);
                machine(config.clone(), Over::Dram).run_programs(0, &mut [program]).unwrap()
            };
            let paths = run(ProgramUser::Bursts).paths.unwrap();
            assert!(paths.dummy > 0 && paths.data > 0, "{}: {paths:?}", scheme.name);
            if paths.eviction == 0 {
                never_emptied.push(scheme.name);
            }
            if is_early {
                let dirties = run(ProgramUser::Dirties);
                let early = dirties.last_level.unwrap().early;
                assert!(dirties.paths.unwrap().early > 50, "{}: {early:?}", scheme.name);
                assert!(early.aborted > 10, "{}: {early:?}", scheme.name);
            }
        }
        assert_eq!(never_emptied, [] as [&str; 0]);
    }

    /// The audit finds a step that is one cycle later, or one different line.
    #[test]
    fn differences_from_a_replay_are_found() {
        let scheme = suite::find_scheme::<Processors>("baseline").unwrap();
        let atlas = scheme.atlas(Over::Dram).unwrap();
        let MachineClaims { pace, over, .. } = AFTER_COMPLETION;
        let (steps, lines_kept, instructions) = (60, 60, u64::MAX);
        let (user, has_large_stash, seed) = (ProgramUser::Random, false, 1);
        let job = Job { user, pace, over, steps, lines_kept, instructions, has_large_stash, seed };
        let run = || scheme.run(&job, &atlas).unwrap();
        let differs =
            |run: &MachineRun| replay_difference(run, pace, &atlas).unwrap().map(|(nth, _)| nth);
        assert_eq!(differs(&run()), None);
        let mut late = run();
        late.view.steps[30].wrote += 1;
        assert_eq!(differs(&late), Some(30));
        let mut other = run();
        other.view.lines[10].reads[5] += 1 << 24;
        assert!(differs(&other).is_some());
        let mut command = run();
        command.commands[2][7].bank ^= 1;
        assert_eq!(differs(&command), Some(0));
        let mut fewer = run();
        fewer.view.lines.truncate(50);
        assert_eq!(differs(&fewer), Some(50));
    }

    /// Every program ends, even if the watcher never has enough.
    #[test]
    fn every_program_ends() {
        for user in USERS {
            let Program { threads } = user.program(100, 1, 50_000, &Arc::default());
            for mut thread in threads {
                let mut all = 0;
                while let Some(record) = thread.next().unwrap() {
                    assert!(record.addr < 100 * 64);
                    all += record.before + 1;
                }
                assert!((50_000..80_000).contains(&all), "{user:?}: {all}");
            }
        }
    }
}
