//! Runs a user's program on a computer, and keeps what the memory bus shows.

use super::computer::{BLOCKS, LAST_LEVEL, Over};
use super::users::ProgramUser;
use super::watch::{Atlas, BusView, WatchState, Watcher};
use std::sync::Arc;
use traceless_sim::Result;
use traceless_sim::backend::Backend;
use traceless_sim::dram::CommandRecord;
use traceless_sim::llc::{EarlyWriteBack, LastLevel};
use traceless_sim::oram::Pace;
use traceless_sim::processor::{self, together};
use traceless_sim::workload::Program;

/// A run of one user's program.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub user: ProgramUser,
    pub pace: Pace,
    pub over: Over,
    /// Steps to observe.
    pub steps: usize,
    /// Steps with all lines kept; commands are kept if this is not 0.
    pub lines_kept: usize,
    /// Instructions of each core, at most.
    pub instructions: u64,
    /// Whether the stash limits are so high that no eviction of a full stash happens.
    pub has_large_stash: bool,
    pub seed: u64,
}

/// What the adversary observed in a run.
pub struct MachineRun {
    pub view: BusView,
    /// The commands of each channel, if they are kept.
    pub commands: Vec<Vec<CommandRecord>>,
    pub cycles: u64,
}

/// The program and the watcher for a controller other than the simulator's.
pub struct Bench {
    pub atlas: Arc<Atlas>,
    pub watcher: Arc<Watcher>,
    shared: Arc<WatchState>,
}

impl Bench {
    /// A bench with a watcher that knows `atlas`.
    pub fn new(atlas: &Arc<Atlas>, job: &Job) -> Self {
        let shared = Arc::new(WatchState::default());
        let watcher = Watcher::new(atlas.clone(), shared.clone(), job.steps, job.lines_kept);
        Self { atlas: atlas.clone(), watcher, shared }
    }

    /// The program of the processor.
    pub fn program(&self, job: &Job) -> Program {
        job.user.program(BLOCKS, job.seed, job.instructions, &self.shared)
    }

    /// Runs a program on a processor with `memory`.
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
