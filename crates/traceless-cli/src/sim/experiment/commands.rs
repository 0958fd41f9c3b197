//! The runs of experiments as commands, for whoever spreads them over machines.

use super::file::Experiment;
use crate::args::SimSweepArgs;
use std::fmt::Write as _;
use std::path::Path;

/// One command for each of so many runs.
pub fn commands(
    experiment: &Experiment,
    runs: usize,
    args: &SimSweepArgs,
) -> std::io::Result<Vec<String>> {
    let program = quoted(&std::env::current_exe()?);
    let file = quoted(&std::path::absolute(&experiment.path)?);
    let out = quoted(&std::path::absolute(&args.out)?);
    let mut how = format!("--level {} --out {out}", args.level.name());
    if let Some(records) = args.records {
        write!(how, " --records {records}").expect("a string takes every word");
    }
    let command = |nth| format!("{program} sim run {file} {how} --only {nth}");
    Ok((0..runs).map(command).collect())
}

/// A script for `sbatch` that makes an array of them. The folder of results is shared.
pub fn slurm(commands: &[String]) -> String {
    let mut script = format!(
        "#!/bin/bash\n#SBATCH --job-name=traceless-sim\n#SBATCH --array=0-{}\n\
         #SBATCH --cpus-per-task=1\n#SBATCH --mem=4G\n\ncase $SLURM_ARRAY_TASK_ID in\n",
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

    #[test]
    fn every_command_has_a_task_and_paths_are_words() {
        let script = slurm(&["a".to_owned(), "b".to_owned()]);
        assert!(script.contains("--array=0-1\n"), "{script}");
        assert!(script.contains("0) exec a ;;\n1) exec b ;;\nesac\n"), "{script}");
        assert_eq!(quoted(Path::new("/it's here")), "'/it'\\''s here'");
    }
}
