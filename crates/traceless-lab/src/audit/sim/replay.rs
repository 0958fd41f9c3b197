//! A processor without a program: it plays back the paths that another processor accessed, and
//! begins them when they are due. Its behaviour follows from the paths alone. So if it shows the
//! same accesses at the same times, the adversary learns no more than the paths.

use super::computer::MEMORY;
use super::trees::touch;
use super::watch::{BusView, StepLines, Watcher};
use std::collections::VecDeque;
use std::sync::Arc;
use traceless::controller::{Controller, Serve, StepKind, StepOutcome};
use traceless::oram::Hides;
use traceless::trace::Op;
use traceless::types::Addr;
use traceless_sim::Result;
use traceless_sim::backend::Backend;
use traceless_sim::dram::{CommandRecord, Memory};
use traceless_sim::oram::{Config, Oram, Pace, SimController, StepTrace};

/// Plays `lines` back until cycle `end`. Returns the watcher's view, and the commands of each
/// channel.
pub fn replay(
    lines: &[StepLines],
    pace: Pace,
    watcher: &Arc<Watcher>,
    end: u64,
) -> Result<(BusView, Vec<Vec<CommandRecord>>)> {
    let config = Config { pace, warm_up: 0, ..Config::default() };
    let mut memory = Memory::new(MEMORY)?;
    memory.keep_log();
    let lines = lines.iter().cloned().collect();
    let mut oram =
        Oram::over_dram_with(&config, memory, |bus| Ok(Box::new(Player { lines, bus })))?;
    oram.watch(watcher.clone());
    let mut now = 0;
    while now <= end {
        oram.tick(now, &mut |_, _| {})?;
        now = oram.wake();
    }
    let channels = MEMORY.geometry.channels as usize;
    let commands = (0..channels).map(|nth| oram.commands(nth).to_vec());
    Ok((watcher.take(), commands.collect()))
}

/// A scheme with predetermined steps.
struct Player {
    lines: VecDeque<StepLines>,
    bus: StepTrace,
}

impl Controller for Player {
    fn blocks(&self) -> u64 {
        1
    }

    fn block_len(&self) -> usize {
        0
    }

    fn submit(&mut self, _: u64, _: Addr) -> traceless::Result {
        Ok(())
    }

    fn waiting(&self) -> usize {
        0
    }

    fn step(&mut self, _: Serve<'_>) -> traceless::Result<StepOutcome> {
        let StepLines { reads, writes } = self.lines.pop_front().unwrap_or_default();
        touch(&self.bus, Op::Read, &reads);
        touch(&self.bus, Op::Write, &writes);
        Ok(StepOutcome { kind: StepKind::Dummy, finished: None })
    }

    fn sync(&mut self) -> traceless::Result {
        Ok(())
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

impl SimController for Player {
    fn stash(&self) -> usize {
        0
    }
}
