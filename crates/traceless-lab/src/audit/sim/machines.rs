//! The schemes of the simulator, each in a small [computer](super::computer).

use super::computer::{BLOCKS, CACHED, LEVELS, MEMORY, Over, machine};
use super::run::{Bench, Job, MachineRun};
use super::users::ProgramUser;
use super::watch::Atlas;
use std::sync::Arc;
use traceless::scheme::ring::Params;
use traceless_sim::oram::{Config, Early, MapTree, Pace, Scheme as Oram, Small, layouts};
use traceless_sim::{Result, Watch, dram};

/// A scheme by name, and its construction.
#[derive(Clone, Copy, Debug)]
pub struct MachineScheme {
    pub name: &'static str,
    pub construction: Construction,
    /// The claims about its times, one for each reading of T.
    pub readings: &'static [MachineClaims],
    /// Whether all steps of the same number look alike. Not so in Ring ORAM: its other accesses
    /// follow from earlier paths, which are random.
    pub has_templates: bool,
    /// In this many steps each tree accesses at least one path that is drawn at random.
    pub turns: usize,
    /// Whether the number of a step determines its path.
    pub is_public: fn(step: u64) -> bool,
}

/// How a computer gets its scheme.
#[derive(Clone, Copy, Debug)]
pub enum Construction {
    /// From a configuration of the simulator.
    Config(fn() -> Config),
    /// From a configuration with a pace other than the one that the claims name.
    OtherPace(fn() -> Config, fn(Pace, ProgramUser) -> Pace),
    /// From a controller or scheme outside the simulator.
    Own { atlas: fn() -> Result<Atlas>, run: fn(&Job, &Bench) -> Result<()> },
}

/// A reading of T, the memory below, and the claim about times.
#[derive(Clone, Copy, Debug)]
pub struct MachineClaims {
    pub words: &'static str,
    pub pace: Pace,
    pub over: Over,
    pub claim: TimeClaim,
}

/// A claim about the times of steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeClaim {
    /// Each step begins this many cycles after the one before.
    Every(u64),
    /// The steps of all users have the same times.
    Same,
    /// Times follow from the paths, which reveal nothing.
    OfPaths,
}

impl MachineScheme {
    /// What the adversary knows about the places of trees in memory.
    pub fn atlas(&self, over: Over) -> Result<Arc<Atlas>> {
        let config = match self.construction {
            Construction::Config(config) | Construction::OtherPace(config, _) => config(),
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

    /// Runs `job` under a watcher that knows `atlas`.
    pub fn run(&self, job: &Job, atlas: &Arc<Atlas>) -> Result<MachineRun> {
        let bench = Bench::new(atlas, job);
        let (config, pace) = match self.construction {
            Construction::Config(config) => (config(), job.pace),
            Construction::OtherPace(config, pace) => (config(), pace(job.pace, job.user)),
            Construction::Own { run, .. } => {
                run(job, &bench)?;
                return Ok(MachineRun { view: bench.watcher.take(), commands: vec![], cycles: 0 });
            }
        };
        let config = if job.has_large_stash { with_large_stash(config) } else { config };
        let config = Config { pace, seed: job.seed, start: job.user.start(), ..config };
        let (lines, commands) = (Some(bench.watcher.clone() as _), job.lines_kept > 0);
        let watch = Watch { lines, commands, ..Watch::default() };
        let outcome =
            machine(config, job.over).run_watched(0, &mut [bench.program(job)], &watch)?;
        let (view, cycles) = (bench.watcher.take(), outcome.run.cycles);
        Ok(MachineRun { view, commands: outcome.commands, cycles })
    }
}

/// The T of the IR-ORAM paper.
const INTERVAL: u64 = 1000;

/// Longer than any path takes, even if the memory has to be refreshed first.
const LONG_INTERVAL: u64 = 6000;

/// Shorter than any path takes.
const SHORT_INTERVAL: u64 = 100;

/// T counted from the end of a path, as IR-ORAM and the paper on unified ORAM count it.
pub const AFTER_COMPLETION: MachineClaims = MachineClaims {
    words: "T from the end of a path",
    pace: Pace::AfterCompletion(INTERVAL),
    over: Over::Dram,
    claim: TimeClaim::OfPaths,
};

/// T from the end of a path, where all paths take the same time. The choice of paths does not
/// depend on their duration, and this memory is the fastest to simulate.
pub const BY_BANDWIDTH: MachineClaims = MachineClaims {
    words: "T from the end of a path, over a memory that is known by its bandwidth",
    over: Over::Bandwidth,
    claim: TimeClaim::Same,
    ..AFTER_COMPLETION
};

/// T as the IR-ORAM paper's authors count it: in instruction slots, without the slots of the
/// program's memory operations.
pub const FETCH_SLOTS: MachineClaims = MachineClaims {
    words: "T in slots for other instructions",
    pace: Pace::FetchSlots(INTERVAL),
    ..AFTER_COMPLETION
};

/// Without a fixed rate there is no claim about times.
pub const ON_DEMAND: MachineClaims =
    MachineClaims { words: "without a fixed rate", pace: Pace::Asked, ..AFTER_COMPLETION };

/// All readings with a claim.
pub const READINGS: [MachineClaims; 4] = [
    AFTER_COMPLETION,
    MachineClaims {
        words: "T from start to start, longer than a path",
        pace: Pace::StartToStart(LONG_INTERVAL),
        over: Over::Dram,
        claim: TimeClaim::Every(LONG_INTERVAL),
    },
    MachineClaims {
        words: "T from start to start, shorter than a path",
        pace: Pace::StartToStart(SHORT_INTERVAL),
        over: Over::Dram,
        claim: TimeClaim::OfPaths,
    },
    BY_BANDWIDTH,
];

/// All schemes without a known fault.
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
        is_public: |step| step % (RING_RATE + 1) == RING_RATE,
        ..scheme("ring", || Config { ring_z: Params::Z4.z, ..of(Oram::Ring) })
    },
];

const RING_RATE: u64 = Params::Z4.rate as u64;

pub const fn scheme(name: &'static str, config: fn() -> Config) -> MachineScheme {
    let construction = Construction::Config(config);
    let is_public = |_| false;
    MachineScheme {
        name,
        construction,
        readings: &READINGS,
        has_templates: true,
        turns: 1,
        is_public,
    }
}

/// Stashes hold little more than a path, so that they must be emptied sometimes.
const STASH: usize = 80;

/// Far more blocks than ever wait in a stash.
const ROOMY_STASH: usize = 600;

/// Each request has a path. If a scheme looks first for blocks at hand, as the IR-ORAM paper does,
/// it shows only the leaves of the rest, which are near the leaves of the paths that brought them
/// down.
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

/// A configuration with stashes that need no emptying. Emptying one ends with the path nearest to
/// the leaves of the waiting blocks, and the next requests show these leaves: so successive leaves
/// are near each other, more so in a smaller stash. A stash that is emptied once in a lifetime
/// reveals nothing.
fn with_large_stash(config: Config) -> Config {
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
