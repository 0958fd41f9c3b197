//! The files below `experiments/`: each is a figure or table of a paper, as options of `bench`.

use crate::args::VolumeBenchArgs;
use clap::Parser;
use std::path::Path;
use toml::{Table, Value};
use traceless_cli::failure::Failure;

/// Keys that `--quick` overrides.
const EXACTNESS: [&str; 2] = ["file-size", "repeat"];

/// The command line that a file stands for.
#[derive(Parser)]
struct ExperimentLine {
    #[command(flatten)]
    read: VolumeBenchArgs,
}

/// Options that only the user gives: the folder, the exactness, and the form of the output.
fn own_words(args: &VolumeBenchArgs) -> Vec<String> {
    let mut words = vec!["--dir".to_owned(), args.dir.display().to_string()];
    for (flag, is_given) in [("--quick", args.quick), ("--json", args.json)] {
        words.extend(is_given.then(|| flag.to_owned()));
    }
    words
}

/// The options in the file at `path`, together with the user's own options in `args`.
pub fn read(path: &Path, args: &VolumeBenchArgs) -> Result<VolumeBenchArgs, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::usage(format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| failed(&e))?;
    let left_out = if args.quick { &EXACTNESS[..] } else { &[] };
    let words = words(&text, left_out).map_err(|e| failed(&e))?;
    let words = std::iter::once("bench volume".to_owned()).chain(own_words(args)).chain(words);
    let ExperimentLine { mut read } =
        ExperimentLine::try_parse_from(words).map_err(|e| failed(&e))?;
    read.progress.progress = args.progress.progress;
    read.plot.clone_from(&args.plot);
    Ok(read)
}

/// Each key as an option with its value; a list becomes values between commas. The title and the
/// keys in `left_out` are skipped.
fn words(text: &str, left_out: &[&str]) -> Result<Vec<String>, String> {
    let table: Table = text.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
    let mut words = vec![];
    for (key, value) in table.iter().filter(|(key, _)| *key != "title") {
        if left_out.contains(&key.as_str()) {
            continue;
        }
        let value = match value {
            Value::Array(list) => list.iter().map(word).collect::<Result<Vec<_>, _>>()?.join(","),
            other => word(other)?,
        };
        words.push(format!("--{key}={value}"));
    }
    Ok(words)
}

fn word(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        other => Err(format!("{other} is neither a text nor a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_options() {
        let text = "title = \"x\"\nsuite = \"sqoram\"\nrepeat = 3\nsubject = [\"sq\", \"hive\"]\n";
        let found = words(text, &[]).unwrap();
        for option in ["--suite=sqoram", "--repeat=3", "--subject=sq,hive"] {
            assert!(found.contains(&option.to_owned()), "{found:?}");
        }
        assert_eq!(found.len(), 3);
        assert_eq!(words(text, &EXACTNESS).unwrap().len(), 2);
        assert!(words("elevator = true", &[]).is_err());
        assert!(words("no toml", &[]).is_err());
    }
}
