//! Experiment files: the part of a paper that is reproduced, the machines, and the paper's claims.

use super::overheads::Overheads;
use crate::experiment::spec::{self, Claim, Metric, Spec, VariantMetrics};
use crate::experiment::toml_file::{check_known, merge, parse_file, read_table, sibling};
use crate::experiment::{Error, Level, Result};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Table;

pub const RECORDS_MAX: u64 = 1 << 40;

/// A figure or table of a paper.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    pub title: String,
    /// The paper.
    pub paper: String,
    pub place: String,
    /// What a reader of the results should know.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// The machine that all variants begin from: a file beside this one, or the machine itself.
    machine: MachineSource,
    /// Changes to the base machine, before the changes of a level and of a variant.
    #[serde(default)]
    pub set: Table,
    /// Workloads by name.
    pub workloads: Vec<String>,
    /// Options for each workload, for example `bytes=4M`.
    #[serde(default)]
    pub choices: String,
    /// How much is simulated at level quick.
    quick: Extent,
    full: Extent,
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    #[serde(rename = "metric")]
    pub metrics: Vec<Metric>,
    #[serde(rename = "claim", default)]
    pub claims: Vec<Claim>,
    /// The file of this experiment.
    #[serde(skip)]
    pub path: PathBuf,
    /// Records from which on claims are judged: the number of level full, even if the user sets
    /// another.
    #[serde(skip)]
    full_records: u64,
}

#[derive(Deserialize, Debug)]
#[serde(untagged)]
enum MachineSource {
    File(PathBuf),
    Inline(Table),
}

/// How much of each workload is simulated.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Extent {
    /// Records of a workload that are timed.
    pub records: u64,
    /// Records before the timed ones, which only fill caches.
    #[serde(default)]
    pub warm_up: u64,
    /// Whether `records` and `warm_up` count only records that miss the last cache: a program with
    /// more hits runs for longer.
    #[serde(default)]
    pub in_misses: bool,
    pub seeds: Vec<u64>,
    /// The only workloads to run.
    pub workloads: Option<Vec<String>>,
    /// Changes to the machine, before the changes of a variant.
    #[serde(default)]
    pub set: Table,
}

/// One of the machines that are compared.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Variant {
    pub name: String,
    /// Values that differ from the base machine.
    #[serde(default)]
    pub set: Table,
    /// Parts that this variant lacks, like `oram`; removed before anything is set.
    #[serde(default)]
    pub unset: Vec<String>,
    /// The calculation that takes the place of a machine.
    pub overheads: Option<Overheads>,
    /// For a metric relative to the key's variant, the variant that this one is compared with
    /// instead.
    #[serde(default)]
    pub relative_to: BTreeMap<String, String>,
}

impl Experiment {
    /// The experiment in the file at `path`.
    pub fn read(path: &Path) -> Result<Self> {
        let table = read_table(path)?;
        let mut experiment: Self = table.try_into().map_err(|e| Error::invalid(path, &e))?;
        path.clone_into(&mut experiment.path);
        experiment.full_records = experiment.full.records;
        experiment.check().map_err(|what| Error::invalid(path, &what))?;
        Ok(experiment)
    }

    /// Sets the number of timed records at every level.
    pub fn set_records(&mut self, records: u64) -> Result {
        for extent in [&mut self.quick, &mut self.full] {
            extent.records = records;
        }
        self.check().map_err(|what| self.invalid(&what))
    }

    /// How much is simulated at a level.
    pub fn extent(&self, level: Level) -> &Extent {
        match level {
            Level::Quick => &self.quick,
            Level::Full => &self.full,
        }
    }

    /// Why a run at this level is too short to judge the claim, if it is: level full has more of
    /// something.
    fn shortfall(&self, level: Level, claim: &Claim) -> Option<String> {
        let (here, full) = (self.extent(level), &self.full);
        let (some, all) = (self.workloads(level).len(), self.workloads(Level::Full).len());
        if claim.at_any_size {
            None
        } else if here.set != full.set {
            Some("another machine than at level full".to_owned())
        } else if here.in_misses != full.in_misses {
            Some("records and misses are counted otherwise than at level full".to_owned())
        } else if here.records < self.full_records {
            Some(format!("{} records of {}", here.records, self.full_records))
        } else if here.warm_up < full.warm_up {
            Some(format!("{} records to warm up of {}", here.warm_up, full.warm_up))
        } else if claim.is_about_all() && some < all {
            Some(format!("{some} workloads of {all}"))
        } else if claim.of_deviation && here.seeds.len() < full.seeds.len() {
            Some(format!("{} seeds of {}", here.seeds.len(), full.seeds.len()))
        } else {
            None
        }
    }

    fn variant_metrics(&self) -> Vec<VariantMetrics<'_>> {
        let all = self.variants.iter();
        all.map(|v| VariantMetrics { name: &v.name, relative_to: &v.relative_to }).collect()
    }

    /// What is compared and judged at a level.
    pub fn spec(&self, level: Level) -> Spec<'_> {
        let Extent { records, warm_up, in_misses, ref seeds, .. } = *self.extent(level);
        let what = if in_misses { "misses of the last cache" } else { "records" };
        Spec {
            path: &self.path,
            schema: "traceless.sim.run.v1",
            title: &self.title,
            paper: &self.paper,
            place: &self.place,
            remarks: &self.remarks,
            level,
            extent: format!("{records} {what} of each workload, after {warm_up} to warm up"),
            // `records` counts timed records of each workload, `warm_up` the ones before them; with
            // `in_misses` only records that miss the last cache count.
            extent_json: Map::from_iter([
                ("records".to_owned(), Value::from(records)),
                ("warm_up".to_owned(), Value::from(warm_up)),
                ("in_misses".to_owned(), Value::from(in_misses)),
            ]),
            workloads: self.workloads(level),
            repeats: seeds.len(),
            average: |each| each.iter().sum::<f64>() / each.len() as f64,
            variants: self.variant_metrics(),
            metrics: &self.metrics,
            claims: &self.claims,
            shortfalls: self.claims.iter().map(|claim| self.shortfall(level, claim)).collect(),
        }
    }

    /// The workloads at a level.
    pub fn workloads(&self, level: Level) -> &[String] {
        self.extent(level).workloads.as_ref().unwrap_or(&self.workloads)
    }

    /// The base machine of all variants, as a table.
    pub fn base(&self) -> Result<Table> {
        let mut table = match &self.machine {
            MachineSource::Inline(table) => table.clone(),
            MachineSource::File(name) => parse_file(&sibling(&self.path, name))?,
        };
        merge(&mut table, &self.set);
        Ok(table)
    }

    /// The name of a workload, with the options for it.
    pub fn with_options(&self, workload: &str) -> String {
        if self.choices.is_empty() {
            return workload.to_owned();
        }
        let parts = workload.split('|').map(|part| format!("{part}?{}", self.choices));
        parts.collect::<Vec<_>>().join("|")
    }

    /// An error in this file.
    pub fn invalid(&self, what: &dyn std::fmt::Display) -> Error {
        Error::invalid(&self.path, what)
    }

    /// Refuses names that refer to nothing, and numbers out of range.
    fn check(&self) -> Result<(), String> {
        let workloads: Vec<&str> = self.workloads.iter().map(String::as_str).collect();
        for extent in [&self.quick, &self.full] {
            if extent.records == 0 || extent.seeds.is_empty() {
                return Err("quick and full have records, and at least one of seeds".to_owned());
            }
            if extent.records.max(extent.warm_up) > RECORDS_MAX {
                return Err("quick and full: records and warm-up are at most 2^40".to_owned());
            }
            for name in extent.workloads.iter().flatten() {
                check_known("workloads", &workloads, name)?;
            }
            let is_plain = self.choices.is_empty() && !extent.in_misses;
            if let Some(name) = workloads.iter().find(|name| name.contains('+'))
                && !is_plain
            {
                return Err(format!("`{name}`: of a chain there are no choices, nor misses"));
            }
        }
        self.variants.iter().filter_map(|v| v.overheads.as_ref()).try_for_each(Overheads::check)?;
        spec::check(&self.variant_metrics(), &self.workloads, &self.metrics, &self.claims)?;
        if self.full.seeds.len() < 2 && self.claims.iter().any(|claim| claim.of_deviation) {
            return Err("of-deviation: at level full there are two seeds or more".to_owned());
        }
        Ok(())
    }
}
