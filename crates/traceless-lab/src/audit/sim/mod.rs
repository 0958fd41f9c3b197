//! `traceless-lab audit sim`: the simulator's secure processors, as an adversary at the memory bus
//! observes them: which lines are accessed, and in which cycle.

mod computer;
mod machines;
mod mutants;
mod paced;
mod playback;
mod run;
mod trees;
mod users;
mod watch;

use super::drawn::{OfUser, claims_of_draws, numbered, told_of_pairs};
use super::page::{self, Picture};
use super::suite::{self, Failed, Suite};
use super::{Outcome, grouped};
use crate::args::audit::{AuditSimArgs, Level};
use computer::Over;
use machines::{
    AFTER_COMPLETION, BY_BANDWIDTH, Construction, MachineClaims, MachineScheme, ON_DEMAND, OfTimes,
    SCHEMES,
};
use mutants::{PLANTED, Planted};
use playback::play_back;
use run::{Job, MachineRun};
use std::sync::Arc;
use traceless_audit::{Claim, Draws, Verdict};
use traceless_sim::oram::Pace;
use users::{PAIRS, ProgramUser, USERS};
use watch::{Atlas, BusView, Slot, WatchState, Watcher};

/// How much an audit runs.
#[derive(Clone, Copy, Debug)]
pub struct MachineSize {
    /// Steps of each user that are compared exactly, for each reading of T.
    exact: usize,
    /// Steps that each user runs for the statistics, at least.
    drawn: usize,
    /// Leaves that each user draws from each tree, at least; both minima hold.
    leaves: usize,
}

/// The suite of the simulator's schemes.
pub struct Processors;

impl Suite for Processors {
    type Scheme = MachineScheme;
    type Size = MachineSize;

    const TARGET: &'static str = "sim";
    const NOT_HIDDEN: &'static str = "Not hidden: how long a program runs, to a slot; without a \
                                      fixed rate, when it asks for memory. Where T counts from \
                                      the end of a path, or is shorter than one, times follow \
                                      from the paths.";
    const HONEST: &'static [MachineScheme] = &SCHEMES;
    const PLANTED: &'static [Planted] = &PLANTED;

    fn size(level: Level) -> MachineSize {
        match level {
            Level::Quick => MachineSize { exact: 170, drawn: 1_280, leaves: 0 },
            Level::Ci => MachineSize { exact: 600, drawn: 10_000, leaves: 0 },
            Level::Release => MachineSize { exact: 5_000, drawn: 0, leaves: 2_000_000 },
        }
    }

    fn name(scheme: &MachineScheme) -> &'static str {
        scheme.name
    }

    fn claims(scheme: &MachineScheme, size: MachineSize, seed: u64) -> Result<Vec<Claim>, Failed> {
        let mut claims = vec![];
        for reading in scheme.readings {
            let atlas = scheme.atlas(reading.over)?;
            let jobs = jobs(reading, size.exact, size.exact, seed);
            let runs = jobs.map(|job| scheme.run(&job, &atlas));
            let runs = runs.collect::<traceless_sim::Result<Vec<MachineRun>>>()?;
            claims.push(slots_look_alike(scheme, reading.words, &runs));
            claims.push(times_tell_nothing(scheme, reading, &runs, &atlas)?);
        }
        let atlas = scheme.atlas(Over::Dram)?;
        if matches!(scheme.made, Construction::Config(_)) {
            claims.push(counts_tell_on_demand(scheme, &atlas, seed)?);
            claims.push(gaps_tell_on_demand(scheme, &atlas, seed)?);
        }
        claims.extend(for_long(scheme, size, seed)?);
        Ok(claims)
    }

    /// Two users at a fixed rate; and two without one, where no claim is made about times.
    fn pictures(scheme: &MachineScheme, seed: u64) -> Result<Vec<Picture>, Failed> {
        /// Steps of each user, enough to show the distribution of leaves.
        const SLOTS: usize = 5_000;
        const SHOWN: [(MachineClaims, [ProgramUser; 2]); 3] = [
            (AFTER_COMPLETION, [ProgramUser::Random, ProgramUser::Computes]),
            (AFTER_COMPLETION, [ProgramUser::SecretOnes, ProgramUser::SecretZeros]),
            (ON_DEMAND, [ProgramUser::Random, ProgramUser::NowAndThen]),
        ];
        let atlas = scheme.atlas(Over::Dram)?;
        let mut pictures = vec![];
        for (reading, users) in &SHOWN {
            if reading.pace == Pace::Asked && !matches!(scheme.made, Construction::Config(_)) {
                continue;
            }
            let slots_of = |user: &ProgramUser| {
                let job = jobs(reading, SLOTS, 0, seed).find(|job| job.user == *user);
                Ok(scheme.run(&job.expect("it is one of all"), &atlas)?.seen.slots)
            };
            let slots = users.iter().map(slots_of).collect::<traceless_sim::Result<Vec<_>>>()?;
            for tree in 0..atlas.leaves().len() {
                let shown = |nth: usize| page::UserPoints {
                    name: users[nth].name().to_owned(),
                    points: paths_in(&slots[nth], tree),
                };
                let title =
                    format!("{}: the leaves of tree {tree}, {}", scheme.name, reading.words);
                let users = [shown(0), shown(1)];
                pictures.push(Picture { title, across: "cycle", up: "leaf", users });
            }
        }
        Ok(pictures)
    }
}

/// The start time and the leaf of each path of a tree.
fn paths_in(slots: &[Slot], tree: usize) -> Vec<(u64, u64)> {
    let path = |slot: &Slot| {
        let path = slot.paths.iter().find(|path| usize::from(path.tree) == tree)?;
        Some((slot.began, u64::from(path.leaf)))
    };
    slots.iter().filter_map(path).collect()
}

pub fn run(args: &AuditSimArgs) -> Outcome {
    suite::run::<Processors>(&args.run, args.scheme.as_deref())
}

/// The jobs of all users: `slots` steps each, and lines and commands of the first `kept`.
fn jobs(
    reading: &MachineClaims,
    slots: usize,
    kept: usize,
    seed: u64,
) -> impl Iterator<Item = Job> {
    let MachineClaims { pace, over, .. } = *reading;
    // A bound far above what this many steps take, in case the program causes fewer.
    let instructions = 20_000 * slots as u64;
    (0..).zip(USERS).map(move |(nth, user)| {
        let seed = seed.wrapping_mul(64) + nth;
        Job { user, pace, over, slots, kept, instructions, is_roomy: false, seed }
    })
}

/// All claims that need many steps. To save memory, only the first user's steps are kept, and the
/// leaves of all.
fn for_long(
    scheme: &MachineScheme,
    size: MachineSize,
    seed: u64,
) -> traceless_sim::Result<Vec<Claim>> {
    let atlas = &scheme.atlas(BY_BANDWIDTH.over)?;
    let slots = size.drawn.max(size.leaves * scheme.turns);
    let (mut first, mut alike, mut leaves) = (None, Alike::default(), vec![]);
    for job in jobs(&BY_BANDWIDTH, slots, 0, seed) {
        let job = Job { is_roomy: true, ..job };
        let slots = scheme.run(&job, atlas)?.seen.slots;
        let most = if size.leaves > 0 { size.leaves } else { usize::MAX };
        leaves.push(drawn(scheme, &slots, atlas, most));
        let first = first.get_or_insert_with(|| slots.clone());
        alike.compare(scheme, job.user, first, &slots);
    }
    let users = USERS.iter().zip(&leaves);
    let users: Vec<_> = users.map(|(user, drawn)| OfUser { name: user.name(), drawn }).collect();
    let draws = claims_of_draws(scheme.name, &users, &numbered(&USERS, &PAIRS));
    Ok([vec![alike.claim(scheme, "for long")], draws].concat())
}

const POWER: &str = "one slot that differs is found";

/// The claim that each step looks the same for every user except for its path, and has the same
/// path where its number determines it.
fn slots_look_alike(scheme: &MachineScheme, when: &str, runs: &[MachineRun]) -> Claim {
    let mut alike = Alike::default();
    for (user, run) in USERS.into_iter().zip(runs) {
        alike.compare(scheme, user, &runs[0].seen.slots, &run.seen.slots);
    }
    alike.claim(scheme, when)
}

/// The result of comparing the steps of users.
#[derive(Default)]
struct Alike {
    users: usize,
    slots: u64,
    looks: String,
    differs: Differs,
}

impl Alike {
    /// Compares the steps of a user with the first user's.
    fn compare(
        &mut self,
        scheme: &MachineScheme,
        user: ProgramUser,
        first: &[Slot],
        slots: &[Slot],
    ) {
        let differs = |nth: &usize| match (slots.get(*nth), first.get(*nth)) {
            (Some(a), Some(b)) => {
                let is_public = (scheme.is_public)(*nth as u64);
                scheme.has_templates && !a.looks_as(b) || is_public && a.paths != b.paths
            }
            (a, b) => a.is_some() || b.is_some(),
        };
        let told = |slots: &[Slot], nth| slots.get(nth).map_or("none".to_owned(), Slot::told);
        (self.users, self.slots) = (self.users + 1, self.slots + slots.len() as u64);
        self.looks = told(first, 0);
        let found = (0..slots.len().max(first.len())).find(differs);
        if let (Some(nth), None) = (found, &self.differs) {
            let (a, b) = (told(slots, nth), told(first, nth));
            let why = format!("{} is {a}; of {}, {b}", user.name(), USERS[0].name());
            self.differs = Some((nth as u64, why));
        }
    }

    fn claim(self, scheme: &MachineScheme, when: &str) -> Claim {
        let name = format!("{}: slots of all users look alike, {when}", scheme.name);
        if let Some((nth, why)) = self.differs {
            return Claim::exact(name, Verdict::Leak, nth, POWER, format!("slot {nth} of {why}"));
        }
        let Self { users, slots, looks, .. } = self;
        let evidence = format!("{} slots of {users} users, each {looks}", grouped(slots));
        Claim::exact(name, Verdict::Pass, slots, POWER, evidence)
    }
}

/// The claim about the times at which steps begin and end.
fn times_tell_nothing(
    scheme: &MachineScheme,
    reading: &MachineClaims,
    runs: &[MachineRun],
    atlas: &Arc<Atlas>,
) -> traceless_sim::Result<Claim> {
    let what = match reading.claim {
        OfTimes::Every(_) => "slots begin every T cycles",
        OfTimes::Alike => "slots of all users have the same times",
        OfTimes::OfPaths => "times and commands follow from the paths alone",
    };
    let name = format!("{}: {what}, {}", scheme.name, reading.words);
    let mut all = 0;
    for (user, run) in USERS.iter().zip(runs) {
        let differs = match reading.claim {
            OfTimes::Every(interval) => not_every(interval, &run.seen.slots),
            OfTimes::Alike => not_alike(&runs[0].seen.slots, &run.seen.slots),
            OfTimes::OfPaths => not_of_paths(run, reading.pace, atlas)?,
        };
        if let Some((nth, why)) = differs {
            let evidence = format!("slot {nth} of {}: {why}", user.name());
            return Ok(Claim::exact(name, Verdict::Leak, nth, POWER, evidence));
        }
        all += run.seen.slots.len() as u64;
    }
    let evidence = format!("{} slots of {} users", grouped(all), runs.len());
    Ok(Claim::exact(name, Verdict::Pass, all, POWER, evidence))
}

/// The number of the first step that contradicts a claim, and the reason.
type Differs = Option<(u64, String)>;

fn not_every(interval: u64, slots: &[Slot]) -> Differs {
    let numbered = (0..).zip(slots);
    let mut off = numbered.filter(|(nth, slot)| slot.began != nth * interval);
    let (nth, slot) = off.next()?;
    Some((nth, format!("it began in cycle {}, not {}", slot.began, nth * interval)))
}

fn not_alike(a: &[Slot], b: &[Slot]) -> Differs {
    let mut pairs = (0..).zip(a.iter().zip(b));
    let (nth, (a, b)) = pairs.find(|(_, (a, b))| (a.began, a.wrote) != (b.began, b.wrote))?;
    let (a, b) = (a.when(), b.when());
    Some((nth, format!("it was {b}; of {}, {a}", USERS[0].name())))
}

/// How a run differs from a processor without a program that accesses the same paths.
fn not_of_paths(
    run: &MachineRun,
    pace: Pace,
    atlas: &Arc<Atlas>,
) -> traceless_sim::Result<Differs> {
    let BusView { slots, lines, .. } = &run.seen;
    let Some(last) = slots.last() else { return Ok(None) };
    let end = last.began.max(last.wrote);
    let watcher = Watcher::new(atlas.clone(), Arc::new(WatchState::default()), slots.len(), 0);
    let (played, commands) = play_back(lines, pace, &watcher, end)?;
    if let Some((nth, (a, b))) = (0..)
        .zip(slots.iter().zip(&played.slots))
        .find(|(_, (a, b))| (a.began, a.wrote) != (b.began, b.wrote))
    {
        let why = format!("it was {}; without a program, {}", a.when(), b.when());
        return Ok(Some((nth, why)));
    }
    if slots.len() != played.slots.len() {
        let nth = slots.len().min(played.slots.len()) as u64;
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
fn counts_tell_on_demand(
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
            slots: usize::MAX,
            kept: 0,
            instructions: INSTRUCTIONS,
            is_roomy: false,
            seed,
        };
        let run = scheme.run(&job, atlas)?;
        paths.push(run.seen.slots.len() as u64);
        cycles.push(run.cycles / run.seen.slots.len().max(1) as u64);
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
fn gaps_tell_on_demand(
    scheme: &MachineScheme,
    atlas: &Arc<Atlas>,
    seed: u64,
) -> traceless_sim::Result<Claim> {
    const PATHS: usize = 200;
    let mut users = vec![];
    for job in jobs(&ON_DEMAND, PATHS, 0, seed) {
        // Two programs miss their cache almost never.
        let asks = !matches!(job.user, ProgramUser::Computes | ProgramUser::Dirties);
        let slots = if asks { scheme.run(&job, atlas)?.seen.slots } else { vec![] };
        let gaps = slots.windows(2).map(|two| two[1].began - two[0].began);
        users.push((job.user.name(), gaps.collect()));
    }
    let name = format!("{}: without a fixed rate, gaps tell of programs", scheme.name);
    Ok(told_of_pairs(name, "cycles between paths", &users, &numbered(&USERS, &PAIRS)))
}

/// The leaves of each tree that the step's number does not determine; the first `most` of them.
fn drawn(scheme: &MachineScheme, slots: &[Slot], atlas: &Atlas, most: usize) -> Vec<Draws> {
    let leaves = atlas.leaves().into_iter();
    let none = |places| Draws { noun: "leaves", places, ..Draws::default() };
    let mut drawn: Vec<Draws> = leaves.map(none).collect();
    for (nth, slot) in (0..).zip(slots) {
        let is_public = (scheme.is_public)(nth);
        for path in slot.paths.iter().filter(|_| !is_public) {
            let of_tree = &mut drawn[usize::from(path.tree)];
            if of_tree.drawn.len() == most {
                continue;
            }
            of_tree.drawn.push(u64::from(path.leaf));
            of_tree.secrets.push(slot.secret);
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use computer::machine;
    use traceless_sim::oram::Config;
    use traceless_sim::workload::Program;

    /// The compared runs contain evictions and early write-backs.
    #[test]
    fn stashes_are_emptied_and_lines_are_written_back_early() {
        let mut never_emptied = vec![];
        for scheme in SCHEMES {
            let Construction::Config(config) = scheme.made else { panic!("they are configured") };
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
    fn what_does_not_follow_from_paths_is_found() {
        let scheme = suite::named::<Processors>("baseline").unwrap();
        let atlas = scheme.atlas(Over::Dram).unwrap();
        let MachineClaims { pace, over, .. } = AFTER_COMPLETION;
        let (slots, kept, instructions) = (60, 60, u64::MAX);
        let (user, is_roomy, seed) = (ProgramUser::Random, false, 1);
        let job = Job { user, pace, over, slots, kept, instructions, is_roomy, seed };
        let run = || scheme.run(&job, &atlas).unwrap();
        let differs =
            |run: &MachineRun| not_of_paths(run, pace, &atlas).unwrap().map(|(nth, _)| nth);
        assert_eq!(differs(&run()), None);
        let mut late = run();
        late.seen.slots[30].wrote += 1;
        assert_eq!(differs(&late), Some(30));
        let mut other = run();
        other.seen.lines[10].reads[5] += 1 << 24;
        assert!(differs(&other).is_some());
        let mut command = run();
        command.commands[2][7].bank ^= 1;
        assert_eq!(differs(&command), Some(0));
        let mut fewer = run();
        fewer.seen.lines.truncate(50);
        assert_eq!(differs(&fewer), Some(50));
    }

    /// Every program ends, even if the watcher never has enough.
    #[test]
    fn programs_end() {
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
