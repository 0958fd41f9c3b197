//! Runs a user's program on a computer, and keeps what is seen at its memory bus.

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

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub user: ProgramUser,
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
pub struct MachineRun {
    pub seen: BusView,
    /// The commands of each channel, if they are kept.
    pub commands: Vec<Vec<CommandRecord>>,
    pub cycles: u64,
}

/// What a computer of one's own is connected to.
pub struct Bench {
    pub atlas: Arc<Atlas>,
    pub watcher: Arc<Watcher>,
    shared: Arc<WatchState>,
}

impl Bench {
    /// Before the eyes of somebody who knows `atlas`.
    pub fn new(atlas: &Arc<Atlas>, job: &Job) -> Self {
        let shared = Arc::new(WatchState::default());
        let watcher = Watcher::new(atlas.clone(), shared.clone(), job.slots, job.kept);
        Self { atlas: atlas.clone(), watcher, shared }
    }

    /// What its processor runs.
    pub fn program(&self, job: &Job) -> Program {
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
