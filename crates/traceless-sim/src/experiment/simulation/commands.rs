//! The runs of experiments as commands, for spreading them over machines.

use super::Sweep;
use super::file::Experiment;
use super::shard::Shard;
use crate::machine::Machine;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

impl Sweep {
    /// For each run a command of `program` that makes it, with results in `out`.
    pub fn commands(&self, program: &Path, out: &Path) -> io::Result<Vec<String>> {
        let mut commands = vec![];
        for (experiment, runs) in &self.experiments {
            commands.extend(self.commands_of(experiment, runs.len(), program, out)?);
        }
        Ok(commands)
    }

    fn commands_of(
        &self,
        experiment: &Experiment,
        runs: usize,
        program: &Path,
        out: &Path,
    ) -> io::Result<Vec<String>> {
        let program = quoted(program);
        let file = quoted(&std::path::absolute(&experiment.path)?);
        let out = quoted(&std::path::absolute(out)?);
        let options = self.options(&out);
        let command = |nth| format!("{program} sim run {file} {options} --only {nth}");
        Ok((0..runs).map(command).collect())
    }

    /// A command that makes a shard, with results in `out`.
    pub(super) fn shard_command(&self, shard: Shard, out: &Path) -> String {
        let mut command = "traceless sim sweep".to_owned();
        for (experiment, _) in &self.experiments {
            command = command + " " + &quoted(&experiment.path);
        }
        let options = self.options(&quoted(out));
        format!("{command} {options} --shard {shard}")
    }

    fn options(&self, out: &str) -> String {
        let records = self.records.map(|records| format!(" --records {records}"));
        format!("--level {} --out {out}{}", self.level.name(), records.unwrap_or_default())
    }

    /// A script for `sbatch` with an array of the commands. All share the folder of results.
    pub fn slurm_script(&self, commands: &[String]) -> String {
        let runs = self.experiments.iter().flat_map(|(_, runs)| runs);
        slurm_script(commands, gigabytes(runs.map(|run| &run.input.machine)))
    }
}

/// Gigabytes to reserve for a run of these machines: 4 up to the paper's 25 levels, where a run
/// takes up to 3, and twice as much for each further level.
fn gigabytes<'a>(machines: impl Iterator<Item = &'a Machine>) -> u64 {
    let stored = machines.filter_map(|machine| machine.oram.as_ref()).filter(|oram| !oram.forgets);
    let levels = stored.map(|oram| oram.levels).max().unwrap_or(0);
    4 << levels.saturating_sub(25)
}

/// A script with an array of commands, each of which may take `gigabytes`.
fn slurm_script(commands: &[String], gigabytes: u64) -> String {
    let mut script = format!(
        "#!/bin/bash\n\
         # When all runs are made, `traceless sim sweep` with the same files, level and folder\n\
         # makes the reports.\n\
         #SBATCH --job-name=traceless-sim\n#SBATCH --array=0-{}\n\
         #SBATCH --cpus-per-task=1\n#SBATCH --mem={gigabytes}G\n\ncase $SLURM_ARRAY_TASK_ID in\n",
        commands.len().saturating_sub(1)
    );
    for (nth, command) in commands.iter().enumerate() {
        writeln!(script, "{nth}) exec {command} ;;").expect("a string takes every line");
    }
    script + "esac\n"
}

/// A path as one word of the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oram::Config;

    #[test]
    fn each_command_is_a_task_and_paths_are_quoted() {
        let script = slurm_script(&["a".to_owned(), "b".to_owned()], 8);
        assert!(script.contains("--mem=8G\n"), "{script}");
        assert!(script.contains("--array=0-1\n"), "{script}");
        assert!(script.contains("0) exec a ;;\n1) exec b ;;\nesac\n"), "{script}");
        assert_eq!(quoted(Path::new("/it's here")), "'/it'\\''s here'");
    }

    #[test]
    fn larger_trees_reserve_more_memory() {
        let of = |levels, forgets| {
            let oram = Config { levels, forgets, ..Config::default() };
            gigabytes([Machine { oram: Some(oram), ..Machine::ir_oram() }].iter())
        };
        assert_eq!([of(20, false), of(25, false), of(26, false), of(27, false)], [4, 4, 8, 16]);
        assert_eq!(of(26, true), 4, "no contents are stored");
        assert_eq!(gigabytes([Machine::FOUR_CHANNELS].iter()), 4);
    }
}
