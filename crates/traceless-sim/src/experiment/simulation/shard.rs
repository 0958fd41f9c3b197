//! Shards: shares of a sweep's runs, for several processes or computers. Which runs a shard has
//! follows from the sweep and the number of shards alone.

use super::input::RESULTS_VERSION;
use super::{Control, Experiment, PlannedRun, Sweep, complete, open_results};
use crate::experiment::results::{hex, write_atomically};
use crate::experiment::{Error, Result, toml_file};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const SCHEMA: &str = "traceless.sim.shard.v1";
/// The folder of records, beside that of results.
const FOLDER: &str = "shards";
const SHARDS_MAX: usize = 1 << 20;

/// One of several shares, in text `I/N`: share I, counted from 0, of N.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shard {
    pub(super) nth: usize,
    pub(super) of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('/')
            .and_then(|(nth, of)| Some(Self { nth: nth.parse().ok()?, of: of.parse().ok()? }));
        parts.filter(|shard| shard.nth < shard.of && shard.of <= SHARDS_MAX).ok_or_else(|| {
            format!("it is I/N: share I, from 0 to N - 1, of N shares, at most {SHARDS_MAX}")
        })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.nth, self.of)
    }
}

/// What a folder says of a shard of which it takes the results: the sweep, and which share of it.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct ShardRecord {
    schema: String,
    shard: usize,
    of: usize,
    /// The version of the simulator's rules.
    version: u32,
    level: String,
    /// The number of timed records, if it is not that of the level.
    records: Option<u64>,
    experiments: Vec<ExperimentRecord>,
    /// The runs of the shard.
    runs: usize,
}

#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
struct ExperimentRecord {
    name: String,
    /// A digest of the keys of all runs.
    digest: String,
}

impl Sweep {
    /// Makes the runs of a shard that have no result in `out`, `jobs` at a time. A record of the
    /// shard is left there first.
    pub fn complete_shard(
        &self,
        shard: Shard,
        out: &Path,
        jobs: usize,
        control: Control<'_>,
    ) -> Result<ShardRecord> {
        let results = open_results(out)?;
        let record = self.record(shard);
        let folder = out.join(FOLDER);
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let name = format!("{}-of-{}.json", shard.nth, shard.of);
        let text = serde_json::to_string_pretty(&record)?;
        write_atomically(&folder.join(name), text.as_bytes())?;
        complete(&self.runs_of(shard), &results, jobs, &self.watch, control)?;
        Ok(record)
    }

    pub(super) fn record(&self, shard: Shard) -> ShardRecord {
        let of_experiment = |(experiment, runs): &(Experiment, Vec<PlannedRun>)| {
            let digest = runs.iter().fold(Sha256::new(), |all, run| all.chain_update(&run.key));
            let name = toml_file::file_name(&experiment.path);
            ExperimentRecord { name, digest: hex(&digest.finalize()) }
        };
        ShardRecord {
            schema: SCHEMA.to_owned(),
            shard: shard.nth,
            of: shard.of,
            version: RESULTS_VERSION,
            level: self.level.name().to_owned(),
            records: self.records,
            experiments: self.experiments.iter().map(of_experiment).collect(),
            runs: self.runs_of(shard).len(),
        }
    }

    fn runs_of(&self, shard: Shard) -> Vec<(&Experiment, &PlannedRun)> {
        let all = self.distinct_runs().into_iter().zip(self.owners(shard.of));
        all.filter(|(_, owner)| *owner == shard.nth).map(|(run, _)| run).collect()
    }

    /// For each distinct run the shard that makes it, of so many.
    pub(super) fn owners(&self, shards: usize) -> Vec<usize> {
        let weights: Vec<u64> = self.distinct_runs().iter().map(|(_, run)| run.weight).collect();
        split(&weights, shards)
    }
}

impl ShardRecord {
    /// All records in a folder, with their files.
    pub(super) fn read_all(out: &Path) -> Result<Vec<(PathBuf, Self)>> {
        let folder = out.join(FOLDER);
        if !folder.is_dir() {
            return Err(Error::NoShard { folder: out.to_owned() });
        }
        let mut records = vec![];
        for entry in fs::read_dir(&folder).map_err(Error::io(&folder))? {
            let path = entry.map_err(Error::io(&folder))?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                records.push((path.clone(), Self::read(&path)?));
            }
        }
        if records.is_empty() {
            return Err(Error::NoShard { folder: out.to_owned() });
        }
        records.sort_by_key(|(_, record)| (record.of, record.shard));
        Ok(records)
    }

    fn read(path: &Path) -> Result<Self> {
        let damage = |what: String| Error::Damage { path: path.to_owned(), what };
        let bytes = fs::read(path).map_err(Error::io(path))?;
        let record: Self = serde_json::from_slice(&bytes)
            .map_err(|e| damage(format!("{e}; make the shard again")))?;
        record.shard().map_err(damage)?;
        Ok(record)
    }

    /// Which share it is.
    pub(super) fn shard(&self) -> Result<Shard, String> {
        format!("{}/{}", self.shard, self.of).parse()
    }

    /// What distinguishes the sweep of this shard from that of `ours`, if it is another.
    pub(super) fn difference(&self, ours: &Self) -> Option<String> {
        let names = |of: &Self| {
            let names: Vec<&str> = of.experiments.iter().map(|of| of.name.as_str()).collect();
            names.join(", ")
        };
        let digests =
            |of: &Self| of.experiments.iter().map(|of| of.digest.clone()).collect::<Vec<_>>();
        if self.schema != ours.schema {
            Some(format!("it has the schema {}, not {}", self.schema, ours.schema))
        } else if self.of != ours.of {
            Some(format!("it is one of {} shards, not of {}", self.of, ours.of))
        } else if digests(self) == digests(ours) {
            None
        } else if self.version != ours.version {
            let (its, our) = (self.version, ours.version);
            Some(format!("version {its} of the simulator's rules made it, not version {our}"))
        } else if names(self) != names(ours) {
            Some(format!("its experiments are {}, not {}", names(self), names(ours)))
        } else if (&self.level, self.records) != (&ours.level, ours.records) {
            Some(format!("it has {}, not {}", self.extent(), ours.extent()))
        } else {
            let mut pairs = self.experiments.iter().zip(&ours.experiments);
            let other = pairs.find(|(its, our)| its != our).map_or("", |(its, _)| &its.name);
            Some(format!("the runs of {other} have other machines, workloads or seeds"))
        }
    }

    fn extent(&self) -> String {
        let records = self.records.map(|records| format!(" --records {records}"));
        format!("--level {}{}", self.level, records.unwrap_or_default())
    }
}

/// Text for people to read.
impl fmt::Display for ShardRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}/{} has its {} results", self.shard, self.of, self.runs)
    }
}

/// For each of the weights one of `shards`: from the greatest on, each goes to the shard that has
/// the least.
fn split(weights: &[u64], shards: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&nth| Reverse(weights[nth]));
    let mut loads: BinaryHeap<_> = (0..shards).map(|shard| Reverse((0_u128, shard))).collect();
    let mut owners = vec![0; weights.len()];
    for nth in order {
        let Some(mut least) = loads.peek_mut() else { break };
        let Reverse((load, shard)) = &mut *least;
        *load += u128::from(weights[nth]);
        owners[nth] = *shard;
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_count_from_0() {
        let parse = str::parse::<Shard>;
        assert_eq!(parse("0/1"), Ok(Shard { nth: 0, of: 1 }));
        assert_eq!(parse("2/3").unwrap().to_string(), "2/3");
        for wrong in ["", "1", "/", "3/3", "0/0", "-1/3", "1/3/4", "x/3", "0/1048577"] {
            let why = parse(wrong).unwrap_err();
            assert!(why.contains("from 0 to N - 1"), "{wrong}: {why}");
        }
    }

    #[test]
    fn long_and_short_runs_are_spread() {
        assert_eq!(split(&[5, 1, 1, 9, 4, 4], 2), [1, 1, 1, 0, 1, 0]);
        assert_eq!(split(&[1, 1, 1, 1], 2), [0, 1, 0, 1], "equal weights go in turns");
        assert_eq!(split(&[7, 7], 5), [0, 1], "some shards have none");
        assert_eq!(split(&[], 3), [0; 0]);
        let weights: Vec<u64> = (0..1000).map(|nth| nth * nth % 997).collect();
        let owners = split(&weights, 7);
        let load = |shard| {
            let own = owners.iter().zip(&weights).filter(|(owner, _)| **owner == shard);
            own.map(|(_, weight)| weight).sum::<u64>()
        };
        let loads: Vec<u64> = (0..7).map(load).collect();
        assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() < 10, "{loads:?}");
    }
}
