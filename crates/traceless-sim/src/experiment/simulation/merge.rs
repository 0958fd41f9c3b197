//! Joins the results of shards to the results of one sweep.

use super::shard::{Shard, ShardRecord};
use super::{Experiment, PlannedRun, SCHEMA, Sweep, open_results};
use crate::experiment::results::{Results, RunResult};
use crate::experiment::{Error, Gap, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Missing runs of a shard that an error names; it only counts the rest.
const NAMED_MAX: usize = 5;

/// Where the shards of a sweep are.
struct Folders<'a> {
    /// Each folder, and what it has.
    results: Vec<(&'a Path, Results)>,
    /// The folder of each shard.
    shards: BTreeMap<Shard, &'a Path>,
    /// How many shards there are, missing ones included.
    of: usize,
}

impl Sweep {
    /// Joins the results of all shards, which are in `folders`, and puts them into `out`: then the
    /// sweep is complete there. Nothing is stored if a result is missing or damaged, if a shard is
    /// one of another sweep, or if two results of a run differ.
    pub fn merge(&self, folders: &[PathBuf], out: &Path) -> Result<Results> {
        let folders = self.find_shards(folders)?;
        let results = open_results(out)?;
        let mut gaps = self.missing_shards(&folders);
        let mut absent = BTreeMap::<Shard, Vec<String>>::new();
        let mut found = vec![];
        let of = folders.of;
        for ((experiment, run), nth) in self.distinct_runs().into_iter().zip(self.owners(of)) {
            let shard = Shard { nth, of };
            let name = name(experiment, run);
            match self.join(run, &name, &folders, shard, &results)? {
                Join::Result(result) => found.push((&run.key, result)),
                Join::Absent => absent.entry(shard).or_default().push(name),
                Join::Damage(gap) => gaps.push(gap),
            }
        }
        for (shard, names) in absent {
            // What a missing shard lacks is clear.
            if let Some(out) = folders.shards.get(&shard) {
                let what = format!("shard {shard} in {} lacks {}", out.display(), listed(&names));
                gaps.push(self.gap(what, false, shard, out));
            }
        }
        if !gaps.is_empty() {
            return Err(Error::Incomplete { gaps });
        }
        for (key, result) in found {
            results.store_text(key, &result.text)?;
        }
        Ok(results)
    }

    /// Refuses folders without a shard, and with one of another sweep.
    fn find_shards<'a>(&self, all: &'a [PathBuf]) -> Result<Folders<'a>> {
        let mut results = vec![];
        let mut shards = BTreeMap::new();
        let mut of = None;
        for folder in all {
            for (path, record) in ShardRecord::read_all(folder)? {
                let what = |what| Error::ForeignShard { path: path.clone(), what };
                let shard = record.shard().map_err(what)?;
                let ours = Shard { of: *of.get_or_insert(shard.of), nth: 0 };
                if let Some(difference) = record.difference(&self.record(ours)) {
                    return Err(what(difference));
                }
                shards.entry(shard).or_insert(folder.as_path());
            }
            results.push((folder.as_path(), Results::existing(folder, SCHEMA)));
        }
        Ok(Folders { results, shards, of: of.unwrap_or(1) })
    }

    fn missing_shards(&self, folders: &Folders<'_>) -> Vec<Gap> {
        let all = (0..folders.of).map(|nth| Shard { nth, of: folders.of });
        let missing = all.filter(|shard| !folders.shards.contains_key(shard));
        let gap = |shard: Shard| {
            let out = PathBuf::from(format!("shard-{}", shard.nth));
            self.gap(format!("shard {shard} is missing"), false, shard, &out)
        };
        missing.map(gap).collect()
    }

    fn gap(&self, what: String, is_damage: bool, shard: Shard, out: &Path) -> Gap {
        Gap { what, is_damage, command: self.shard_command(shard, out) }
    }

    /// Looks for the result of a run in all folders, and in `results`, where a damaged one does not
    /// matter: it is replaced.
    fn join(
        &self,
        run: &PlannedRun,
        name: &str,
        folders: &Folders<'_>,
        shard: Shard,
        results: &Results,
    ) -> Result<Join> {
        let mut first: Option<(&Results, RunResult)> =
            results.read(&run.key).ok().flatten().map(|result| (results, result));
        for (folder, theirs) in &folders.results {
            let result = match theirs.read(&run.key) {
                Err(e @ Error::Damage { .. }) => {
                    return Ok(Join::Damage(self.gap(e.to_string(), true, shard, folder)));
                }
                result => result?,
            };
            match (&first, result) {
                (None, Some(result)) => first = Some((theirs, result)),
                (Some((before, known)), Some(result)) if known.counts != result.counts => {
                    let paths = [before.path(&run.key), theirs.path(&run.key)];
                    return Err(Error::Contradiction { run: name.to_owned(), paths });
                }
                _ => {}
            }
        }
        Ok(first.map_or(Join::Absent, |(_, result)| Join::Result(result)))
    }
}

/// What folders have of a run.
enum Join {
    Result(RunResult),
    Absent,
    Damage(Gap),
}

fn name(experiment: &Experiment, run: &PlannedRun) -> String {
    let variant = &experiment.variants[run.index.variant].name;
    let (file, workload) = (experiment.path.display(), &run.input.workload);
    format!("variant `{variant}` with {workload}, seed {} ({file})", run.input.seed)
}

fn listed(names: &[String]) -> String {
    let first = names[..names.len().min(NAMED_MAX)].join("; ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first,
        more => format!("{first}; and {more} more runs"),
    }
}
