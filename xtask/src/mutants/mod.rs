//! `cargo xtask mutants`: whether the tests notice when code that keeps data or secrets is wrong.
//!
//! cargo-mutants makes one small change after the other in a copy of the repository. A change that
//! no test notices is a finding, unless `tests/mutants.toml` says why nothing can notice it.

mod changes;
mod config;
mod mutant;
mod tool;

use crate::Outcome;
use crate::repository::update_copy;
use config::{Config, Group};
use mutant::Mutant;
use std::collections::BTreeSet;
use std::path::Path;
use tool::Tool;

/// The folder of the copy that is mutated, below the root. It stays between runs, and so does what
/// cargo has built in it.
const COPY: &str = "target/mutants/tree";

/// The most mutants of a group that `--since` tries, if `--most` is not given.
const MOST_OF_A_CHANGE: usize = 8;

/// Arguments of the command line.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct MutantOptions {
    groups: Vec<String>,
    list: bool,
    since: Option<String>,
    most: Option<usize>,
    shard: Option<(usize, usize)>,
}

impl MutantOptions {
    /// Reads the arguments after `mutants`.
    pub fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().ok_or(format!("{arg} takes a value"));
            match arg {
                "--list" => options.list = true,
                "--since" => options.since = Some(value()?.to_owned()),
                "--most" => options.most = Some(number(arg, value()?)?),
                "--shard" => options.shard = Some(shard(value()?)?),
                group if !group.starts_with('-') => options.groups.push(group.to_owned()),
                other => return Err(format!("mutants does not know {other}; see --help")),
            }
        }
        Ok(options)
    }

    /// The most mutants of each group that are tried.
    fn most(&self) -> Option<usize> {
        self.most.or(self.since.as_ref().map(|_| MOST_OF_A_CHANGE))
    }
}

/// Tries the mutants of the groups, and prints the ones that no test noticed.
pub fn run(root: &Path, options: &MutantOptions) -> Result<Outcome, String> {
    let config = Config::load(root)?;
    let mut groups = config.named(&options.groups)?;
    if let Some(since) = &options.since {
        let changed = changes::changed(root, since)?;
        groups.retain(|group| changed.iter().any(|file| group.has(file)));
        if groups.is_empty() {
            eprintln!("no file of a group changed since {since}");
            return Ok(Outcome::Clean);
        }
    }
    let tree = root.join(COPY);
    update_copy(root, &tree)?;
    let tool = Tool::install(root, &tree)?;
    let diff = options.since.as_deref().map(|since| changes::diff(root, since)).transpose()?;
    let mut known = BTreeSet::new();
    let mut unnoticed = Vec::new();
    for group in &groups {
        let all = tool.list(group, diff.as_deref())?;
        let (equivalent, open): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|mutant| config.find(&tree, mutant, &mut known));
        let chosen = choose(open, options);
        if options.list {
            for mutant in &chosen {
                println!("{mutant}");
            }
            continue;
        }
        eprintln!(
            "{}: {} mutants, and {} that no test can notice",
            group.name,
            chosen.len(),
            equivalent.len()
        );
        unnoticed.extend(survivors(&tool, group, chosen)?);
    }
    let is_whole = options.groups.is_empty() && diff.is_none() && options.shard.is_none();
    let stale = if is_whole { config.stale(&known) } else { Vec::new() };
    for entry in &stale {
        println!("no such mutant: {entry}");
    }
    for mutant in &unnoticed {
        println!("no test notices: {mutant}");
    }
    Ok(if unnoticed.is_empty() && stale.is_empty() { Outcome::Clean } else { Outcome::Findings })
}

/// The mutants of a group that pass all of its test commands.
fn survivors(tool: &Tool, group: &Group, mut mutants: Vec<Mutant>) -> Result<Vec<Mutant>, String> {
    for (nth, tests) in group.tests.iter().enumerate() {
        if mutants.is_empty() {
            break;
        }
        let out = format!("{}-{nth}", group.name);
        mutants = tool.unnoticed(group, &mutants, tests, &out)?;
        eprintln!("{}: {} left after `cargo test {tests}`", group.name, mutants.len());
    }
    Ok(mutants)
}

/// A sample of the mutants of a shard, as large as the options allow, evenly spread.
fn choose(mutants: Vec<Mutant>, options: &MutantOptions) -> Vec<Mutant> {
    let (nth, of) = options.shard.unwrap_or((0, 1));
    let shard: Vec<Mutant> = mutants.into_iter().skip(nth).step_by(of).collect();
    let step = options.most().map_or(1, |most| shard.len().div_ceil(most.max(1)).max(1));
    shard.into_iter().step_by(step).collect()
}

fn number(option: &str, value: &str) -> Result<usize, String> {
    value.parse().map_err(|_| format!("{option} takes a number, not {value}"))
}

/// A shard as `K/N`, with K from 0 to N - 1.
fn shard(value: &str) -> Result<(usize, usize), String> {
    let numbers = value.split_once('/').and_then(|(k, n)| k.parse().ok().zip(n.parse().ok()));
    let numbers: Option<(usize, usize)> = numbers.filter(|(k, n)| k < n);
    numbers.ok_or(format!("--shard takes K/N with K below N, not {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(count: usize) -> Vec<Mutant> {
        (0..count).map(|nth| Mutant::parse(&format!("a.rs:{}:1: m", nth + 1)).unwrap()).collect()
    }

    fn lines(args: &[&str], count: usize) -> Vec<usize> {
        let options = MutantOptions::parse(args).unwrap();
        choose(mutants(count), &options).iter().map(|mutant| mutant.line).collect()
    }

    #[test]
    fn options_are_read() {
        let options = MutantOptions::parse(&["sq", "--shard", "1/4", "--since", "HEAD~1"]).unwrap();
        assert_eq!((options.shard, options.most()), (Some((1, 4)), Some(MOST_OF_A_CHANGE)));
        assert_eq!(options.groups, ["sq"]);
        for args in [&["--shard", "4/4"][..], &["--shard", "1"], &["--most", "x"], &["--moist"]] {
            assert!(MutantOptions::parse(args).is_err(), "{args:?}");
        }
        assert!(MutantOptions::parse(&["--since"]).is_err());
    }

    #[test]
    fn shards_hold_every_mutant_once() {
        let mut all: Vec<usize> =
            ["0/3", "1/3", "2/3"].iter().flat_map(|shard| lines(&["--shard", shard], 10)).collect();
        all.sort_unstable();
        assert_eq!(all, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn a_sample_is_spread_evenly() {
        assert_eq!(lines(&["--most", "3"], 10), [1, 5, 9]);
        assert_eq!(lines(&["--most", "20"], 3), [1, 2, 3]);
        assert_eq!(lines(&[], 3), [1, 2, 3]);
    }
}
