//! The schemes of the simulator, each in a small [computer](super::computer).

use super::computer::{BLOCKS, CACHED, LEVELS, MEMORY, Over, machine};
use super::run::{Bench, Job, MachineRun};
use super::users::ProgramUser;
use super::watch::Atlas;
use std::sync::Arc;
use traceless::scheme::ring::Params;
use traceless_sim::oram::{Config, Early, MapTree, Pace, Scheme as Oram, Small, layouts};
use traceless_sim::{Result, Watch, dram};

/// A scheme by name, and what it is made of.
#[derive(Clone, Copy, Debug)]
pub struct MachineScheme {
    pub name: &'static str,
    pub made: Construction,
    /// What is claimed of its times.
    pub readings: &'static [MachineClaims],
    /// Whether each slot looks like all others of its number. What Ring ORAM touches besides a path
    /// follows from the paths before, which are random.
    pub has_templates: bool,
    /// Slots in which each tree has a path, at least, that is not told by the slot's number.
    pub turns: usize,
    /// Whether the path of a slot follows from its number.
    pub is_public: fn(slot: u64) -> bool,
}

/// How a scheme comes into a computer.
#[derive(Clone, Copy, Debug)]
pub enum Construction {
    /// By a configuration of the simulator.
    Config(fn() -> Config),
    /// By a configuration whose pace is another than is said.
    Otherwise(fn() -> Config, fn(Pace, ProgramUser) -> Pace),
    /// In place of what the simulator has.
    Own { atlas: fn() -> Result<Atlas>, run: fn(&Job, &Bench) -> Result<()> },
}

/// When paths begin, what they go to, and what is claimed of when.
#[derive(Clone, Copy, Debug)]
pub struct MachineClaims {
    pub words: &'static str,
    pub pace: Pace,
    pub over: Over,
    pub claim: OfTimes,
}

/// What is claimed of the times of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfTimes {
    /// Each begins so many cycles after the one before.
    Every(u64),
    /// Those of all users are the same.
    Alike,
    /// They follow from the paths, and those tell nothing.
    OfPaths,
}

impl MachineScheme {
    /// What whoever watches knows.
    pub fn atlas(&self, over: Over) -> Result<Arc<Atlas>> {
        let config = match self.made {
            Construction::Config(config) | Construction::Otherwise(config, _) => config(),
            Construction::Own { atlas, .. } => return Ok(Arc::new(atlas()?)),
        };
        if config.scheme == Oram::Ring {
            let shape = Params::Z4.shape_for(BLOCKS)?;
            return Ok(Arc::new(Atlas::of_ring(Params::Z4, &shape, CACHED)));
        }
        // A bandwidth has no channels that a path could be spread over.
        let memory = if over == Over::Dram { MEMORY } else { dram::Config::ONE_CHANNEL };
        Ok(Arc::new(Atlas::of(&layouts(&config, &memory)?)))
    }

    /// Runs `job` before the eyes of somebody who knows `atlas`.
    pub fn run(&self, job: &Job, atlas: &Arc<Atlas>) -> Result<MachineRun> {
        let bench = Bench::new(atlas, job);
        let (config, pace) = match self.made {
            Construction::Config(config) => (config(), job.pace),
            Construction::Otherwise(config, pace) => (config(), pace(job.pace, job.user)),
            Construction::Own { run, .. } => {
                run(job, &bench)?;
                return Ok(MachineRun { seen: bench.watcher.take(), commands: vec![], cycles: 0 });
            }
        };
        let config = if job.is_roomy { roomy(config) } else { config };
        let config = Config { pace, seed: job.seed, start: job.user.start(), ..config };
        let (lines, commands) = (Some(bench.watcher.clone() as _), job.kept > 0);
        let watch = Watch { lines, commands, ..Watch::default() };
        let outcome =
            machine(config, job.over).run_watched(0, &mut [bench.program(job)], &watch)?;
        let (seen, cycles) = (bench.watcher.take(), outcome.run.cycles);
        Ok(MachineRun { seen, commands: outcome.commands, cycles })
    }
}

/// The T of the IR-ORAM paper.
const INTERVAL: u64 = 1000;

/// Longer than any path takes, even if the memory has to be refreshed first.
const LONG_INTERVAL: u64 = 6000;

/// Shorter than any path takes.
const SHORT_INTERVAL: u64 = 100;

/// T counted from the end of a path, as IR-ORAM and the paper on unified ORAM do.
pub const AFTER_COMPLETION: MachineClaims = MachineClaims {
    words: "T from the end of a path",
    pace: Pace::AfterCompletion(INTERVAL),
    over: Over::Dram,
    claim: OfTimes::OfPaths,
};

/// The same where all paths take as long. Which paths there are does not follow from how long they
/// take, and many are simulated soonest here.
pub const BY_BANDWIDTH: MachineClaims = MachineClaims {
    words: "T from the end of a path, over a memory that is known by its bandwidth",
    over: Over::Bandwidth,
    claim: OfTimes::Alike,
    ..AFTER_COMPLETION
};

/// T as the IR-ORAM paper's authors count it: in slots for instructions, of which those that memory
/// operations of the program take are left out.
pub const FETCH_SLOTS: MachineClaims = MachineClaims {
    words: "T in slots for other instructions",
    pace: Pace::FetchSlots(INTERVAL),
    ..AFTER_COMPLETION
};

/// Without a fixed rate: nothing is claimed of times.
pub const ON_DEMAND: MachineClaims =
    MachineClaims { words: "without a fixed rate", pace: Pace::Asked, ..AFTER_COMPLETION };

/// All that are claimed to hide anything.
pub const READINGS: [MachineClaims; 4] = [
    AFTER_COMPLETION,
    MachineClaims {
        words: "T from start to start, longer than a path",
        pace: Pace::StartToStart(LONG_INTERVAL),
        over: Over::Dram,
        claim: OfTimes::Every(LONG_INTERVAL),
    },
    MachineClaims {
        words: "T from start to start, shorter than a path",
        pace: Pace::StartToStart(SHORT_INTERVAL),
        over: Over::Dram,
        claim: OfTimes::OfPaths,
    },
    BY_BANDWIDTH,
];

/// All without a known fault.
pub const SCHEMES: [MachineScheme; 16] = [
    scheme("path", || Config { drain_above: Some(0), ..of(Oram::Path) }),
    MachineScheme { turns: 8, ..scheme("recursive", recursive) },
    MachineScheme {
        turns: 3,
        ..scheme("recursive:no-plb", || Config { map_trees: Some(map_trees(None)), ..recursive() })
    },
    scheme("unified", || Config { drain_above: Some(0), ..of(Oram::Unified) }),
    scheme("compressed", || Config { drain_above: Some(0), ..of(Oram::Compressed) }),
    scheme("baseline", || of(Oram::Baseline)),
    MachineScheme { turns: 3, ..scheme("rho", rho) },
    scheme("ir-alloc", || of(Oram::IrAlloc)),
    scheme("ir-stash", || of(Oram::IrStash)),
    scheme("ir-dwb", || of(Oram::IrDwb)),
    scheme("ir-dwb:queue", || Config { early: Some(Early::Queue), ..of(Oram::IrDwb) }),
    scheme("ir-oram", || of(Oram::IrOram)),
    scheme("bundled", || of(Oram::Bundled)),
    scheme("llc-d", || of(Oram::LlcD)),
    scheme("llc-d+ir-stash+ir-alloc", || of(Oram::LlcDIrStashIrAlloc)),
    MachineScheme {
        has_templates: false,
        turns: 2,
        is_public: |slot| slot % (RING_RATE + 1) == RING_RATE,
        ..scheme("ring", || Config { ring_z: Params::Z4.z, ..of(Oram::Ring) })
    },
];

const RING_RATE: u64 = Params::Z4.rate as u64;

pub const fn scheme(name: &'static str, config: fn() -> Config) -> MachineScheme {
    let made = Construction::Config(config);
    let is_public = |_| false;
    MachineScheme { name, made, readings: &READINGS, has_templates: true, turns: 1, is_public }
}

/// Stashes hold little more than a path, so that they have to be emptied now and then.
const STASH: usize = 80;

/// Far more blocks than ever wait.
const ROOMY_STASH: usize = 600;

/// Each request has a path. Whoever looks first for what is at hand, as the IR-ORAM paper does,
/// shows the leaves of what is not, which are near those that brought it down.
pub fn of(scheme: Oram) -> Config {
    Config {
        scheme,
        blocks: Some(BLOCKS),
        levels: LEVELS,
        cached_levels: CACHED,
        plb_bytes: 1 << 10,
        stash_blocks: STASH,
        drain_above: Some(1),
        decrypt: 20,
        warm_up: 0,
        searches_first: Some(false),
        early_pause: 500,
        ..Config::default()
    }
}

/// With stashes that need not be emptied. Emptying one ends with the path that is near the leaves
/// of what waited, and those are shown next: so leaves are near those before, the more the fewer
/// blocks may wait. A stash that is emptied once in a lifetime tells nothing.
fn roomy(config: Config) -> Config {
    let small = Small { stash_blocks: ROOMY_STASH, drain_above: ROOMY_STASH / 2, ..config.small };
    Config { stash_blocks: ROOMY_STASH, drain_above: Some(ROOMY_STASH / 2), small, ..config }
}

fn recursive() -> Config {
    let map_trees = Some(map_trees(Some([900, 300])));
    Config { map_trees, drain_above: Some(0), ..of(Oram::Recursive) }
}

/// The trees of two levels of a map.
fn map_trees(rates: Option<[u32; 2]>) -> Vec<MapTree> {
    let tree = |nth: usize| MapTree {
        levels: LEVELS - 3 - 4 * nth,
        fanout: 16,
        block_bytes: 64,
        rate: rates.map(|rates| rates[nth]),
    };
    vec![tree(0), tree(1)]
}

fn rho() -> Config {
    let small = Small {
        levels: 7,
        cached_levels: 2,
        sets: 24,
        ways: 4,
        stash_blocks: STASH,
        drain_above: 1,
        ..Small::default()
    };
    Config { small, ..of(Oram::Rho) }
}
