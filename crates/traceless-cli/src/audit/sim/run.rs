//! Runs a user's program on a computer, and keeps what is seen at its memory bus.

use super::machines::{BLOCKS, CACHED, LAST_LEVEL, MEMORY, Made, Over, Scheme, machine, roomy};
use super::users::User;
use super::watch::{Atlas, Seen, Shared, Watcher};
use std::sync::Arc;
use traceless::scheme::ring::Params;
use traceless_sim::backend::Backend;
use traceless_sim::dram::{self, Logged};
use traceless_sim::llc::{EarlyWriteBack, LastLevel};
use traceless_sim::oram::{Config, Pace, Scheme as Oram, layouts};
use traceless_sim::processor::{self, together};
use traceless_sim::workload::Program;
use traceless_sim::{Result, Watch};

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub user: User,
    pub pace: Pace,
    pub over: Over,
    /// Slots to be seen, and those of which all lines and commands are kept.
    pub slots: usize,
    pub kept: usize,
    /// Instructions of each core, at most.
    pub instructions: u64,
    /// Whether stashes are emptied so late that they never are.
    pub is_roomy: bool,
    pub seed: u64,
}

/// What was seen.
pub struct Run {
    pub seen: Seen,
    /// The commands of each channel, if they are kept.
    pub commands: Vec<Vec<Logged>>,
    pub cycles: u64,
}

/// What a computer of one's own is connected to.
pub struct Bench {
    pub atlas: Arc<Atlas>,
    pub watcher: Arc<Watcher>,
    shared: Arc<Shared>,
}

impl Scheme {
    /// What whoever watches knows.
    pub fn atlas(&self, over: Over) -> Result<Arc<Atlas>> {
        let config = match self.made {
            Made::Config(config) | Made::Otherwise(config, _) => config(),
            Made::Own { atlas, .. } => return Ok(Arc::new(atlas()?)),
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
    pub fn run(&self, job: &Job, atlas: &Arc<Atlas>) -> Result<Run> {
        let shared = Arc::new(Shared::default());
        let watcher = Watcher::new(atlas.clone(), shared.clone(), job.slots, job.kept);
        let bench = Bench { atlas: atlas.clone(), watcher, shared };
        let (config, pace) = match self.made {
            Made::Config(config) => (config(), job.pace),
            Made::Otherwise(config, pace) => (config(), pace(job.pace, job.user)),
            Made::Own { run, .. } => {
                run(job, &bench)?;
                return Ok(Run { seen: bench.watcher.take(), commands: vec![], cycles: 0 });
            }
        };
        let config = if job.is_roomy { roomy(config) } else { config };
        let config = Config { pace, seed: job.seed, start: job.user.start(), ..config };
        let (lines, commands) = (Some(bench.watcher.clone() as _), job.kept > 0);
        let watch = Watch { lines, commands, ..Watch::default() };
        let outcome =
            machine(config, job.over).run_watched(0, &mut [bench.program(job)], &watch)?;
        let (seen, cycles) = (bench.watcher.take(), outcome.run.cycles);
        Ok(Run { seen, commands: outcome.commands, cycles })
    }
}

impl Bench {
    fn program(&self, job: &Job) -> Program {
        job.user.program(BLOCKS, job.seed, job.instructions, &self.shared)
    }

    /// Runs a program on a processor before `memory`.
    pub fn run(
        &self,
        job: &Job,
        memory: impl Backend,
        early: Option<EarlyWriteBack>,
    ) -> Result<()> {
        let mut cached = LastLevel::new(&LAST_LEVEL, memory)?;
        if let Some(early) = early {
            cached.write_back_early(early);
        }
        let mut programs = [self.program(job)];
        processor::run_tasks(
            &processor::Config::IN_ORDER,
            &mut cached,
            &mut together(&mut programs),
        )?;
        Ok(())
    }
}
