//! Experiment files: what of a paper is looked at, on which machines, and what it says.

use super::calculated::Overheads;
use crate::args::Level;
use crate::failure::{DEVICE, Failure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

pub const RECORDS_MAX: u64 = 1 << 40;
const LIKE_MAX: usize = 4;

/// A figure or table of a paper.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    pub title: String,
    /// The paper, and where in it.
    pub paper: String,
    pub place: String,
    /// What a reader of the results should know.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// The machine that all variants begin from: a file beside this one, or the machine itself.
    machine: Base,
    /// Changes to that machine, before those of a level and of a variant.
    #[serde(default)]
    pub set: Table,
    /// Workloads by name.
    pub workloads: Vec<String>,
    /// What is chosen of each of them, as `bytes=4M`.
    #[serde(default)]
    pub choices: String,
    /// How much is simulated.
    quick: Extent,
    full: Extent,
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    #[serde(rename = "metric")]
    pub metrics: Vec<Metric>,
    #[serde(rename = "claim", default)]
    pub claims: Vec<Claim>,
    /// The file that it was read from.
    #[serde(skip)]
    pub path: PathBuf,
    /// Records from which on claims are judged: those of level full, whatever a user asks for.
    #[serde(skip)]
    judged_from: u64,
}

#[derive(Deserialize, Debug)]
#[serde(untagged)]
enum Base {
    File(PathBuf),
    Inline(Table),
}

/// How much of each workload is simulated.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Extent {
    /// Records of a workload that are timed.
    pub records: u64,
    /// Records before them that only fill caches.
    #[serde(default)]
    pub warm_up: u64,
    /// Both count only records that miss the last cache: a program that hits more often is run for
    /// longer.
    #[serde(default)]
    pub in_misses: bool,
    pub seeds: Vec<u64>,
    /// These workloads only.
    pub workloads: Option<Vec<String>>,
    /// Changes to the machine, before those of a variant.
    #[serde(default)]
    pub set: Table,
}

/// One of the machines that are compared.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Variant {
    pub name: String,
    /// Values that differ from the machine that all begin from.
    #[serde(default)]
    pub set: Table,
    /// Parts that it does not have, as `oram`, taken out before anything is set.
    #[serde(default)]
    pub unset: Vec<String>,
    /// It is this calculation, and no machine.
    pub overheads: Option<Overheads>,
    /// Where a metric compares with one variant, this one is compared with another.
    #[serde(default)]
    pub relative_to: BTreeMap<String, String>,
}

/// A number that is made of what runs count.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Metric {
    pub name: String,
    /// Counts by their names in the results, as `paths.data`; they are added up.
    pub of: Vec<String>,
    /// What their sum is divided by, if anything: counts again.
    #[serde(default)]
    pub per: Vec<String>,
    /// What it is multiplied by: 100 for per cent.
    #[serde(default = "once")]
    pub times: f64,
    /// Divided by that of another variant.
    pub relative_to: Option<String>,
    /// The other way round: that of the other variant, divided by this one.
    pub speed_up_over: Option<String>,
    /// Over workloads.
    #[serde(default)]
    pub mean: Mean,
}

fn once() -> f64 {
    1.0
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Mean {
    #[default]
    Arithmetic,
    Geometric,
    /// The counts of all workloads are added up first.
    Total,
}

/// What the paper says.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    pub text: String,
    pub metric: String,
    /// Whose; not for an order.
    pub variant: Option<String>,
    /// With which workload; the mean over all if it is not given.
    pub workload: Option<String>,
    /// The paper's number, or one for each workload.
    pub paper: Option<Published>,
    /// Whether it is about the standard deviation between the means of single seeds.
    #[serde(default)]
    pub of_deviation: bool,
    /// When it counts as reproduced.
    pub rule: Rule,
    /// Whether its number follows from the machine alone, so that any run is long enough.
    #[serde(default)]
    at_any_size: bool,
}

#[derive(Deserialize, Debug)]
#[serde(untagged)]
pub enum Published {
    One(f64),
    Each(BTreeMap<String, f64>),
}

/// When a claim counts as reproduced.
#[derive(Deserialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// No further than this from the paper's number.
    Within(f64),
    /// No further than this share of the paper's number.
    WithinShare(f64),
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// These variants, the greatest first.
    Order(Vec<String>),
}

impl Experiment {
    /// The experiment in the file at `path`.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let table = read_table(path, LIKE_MAX)?;
        let mut experiment: Self = table.try_into().map_err(|e| wrong(path, &e))?;
        path.clone_into(&mut experiment.path);
        experiment.judged_from = experiment.full.records;
        experiment.check().map_err(|what| wrong(path, &what))?;
        Ok(experiment)
    }

    /// Times so many records at every level.
    pub fn take(&mut self, records: u64) -> Result<(), Failure> {
        for extent in [&mut self.quick, &mut self.full] {
            extent.records = records;
        }
        self.check().map_err(|what| wrong(&self.path, &what))
    }

    /// What is simulated at a level.
    pub fn extent(&self, level: Level) -> &Extent {
        match level {
            Level::Quick => &self.quick,
            Level::Full => &self.full,
        }
    }

    /// What a run at a level lacks to judge a claim by, if anything: whatever level full has more
    /// of.
    pub fn shortfall(&self, level: Level, claim: &Claim) -> Option<String> {
        let (here, full) = (self.extent(level), &self.full);
        let (some, all) = (self.workloads(level).len(), self.workloads(Level::Full).len());
        if claim.at_any_size {
            None
        } else if here.set != full.set {
            Some("another machine than at level full".to_owned())
        } else if here.in_misses != full.in_misses {
            Some("records and misses are counted otherwise than at level full".to_owned())
        } else if here.records < self.judged_from {
            Some(format!("{} records of {}", here.records, self.judged_from))
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

    /// The workloads at a level.
    pub fn workloads(&self, level: Level) -> &[String] {
        self.extent(level).workloads.as_ref().unwrap_or(&self.workloads)
    }

    /// The machine that all variants begin from, as text says it.
    pub fn base(&self) -> Result<Table, Failure> {
        let mut table = match &self.machine {
            Base::Inline(table) => table.clone(),
            Base::File(name) => read_text_table(&beside(&self.path, name))?,
        };
        lay_over(&mut table, &self.set);
        Ok(table)
    }

    /// The name of a workload, with what is chosen of it.
    pub fn chosen(&self, workload: &str) -> String {
        if self.choices.is_empty() {
            return workload.to_owned();
        }
        let parts = workload.split('|').map(|part| format!("{part}?{}", self.choices));
        parts.collect::<Vec<_>>().join("|")
    }

    /// What files about it are called: its folder's name and its own.
    pub fn file_name(&self) -> String {
        let name = |path: Option<&Path>| {
            path.and_then(Path::file_stem).map(|name| name.to_string_lossy().into_owned())
        };
        let folder = name(self.path.parent());
        let parts: Vec<String> = folder.into_iter().chain(name(Some(&self.path))).collect();
        parts.join("-")
    }

    /// A failure in this file.
    pub fn wrong(&self, what: &dyn std::fmt::Display) -> Failure {
        wrong(&self.path, what)
    }

    /// Refuses names that lead nowhere.
    fn check(&self) -> Result<(), String> {
        let variants: Vec<&str> = self.variants.iter().map(|v| v.name.as_str()).collect();
        let metrics: Vec<&str> = self.metrics.iter().map(|m| m.name.as_str()).collect();
        let workloads: Vec<&str> = self.workloads.iter().map(String::as_str).collect();
        unique("variant", &variants)?;
        unique("metric", &metrics)?;
        unique("workloads", &workloads)?;
        for extent in [&self.quick, &self.full] {
            if extent.records == 0 || extent.seeds.is_empty() {
                return Err("quick and full have records, and at least one of seeds".to_owned());
            }
            if extent.records.max(extent.warm_up) > RECORDS_MAX {
                return Err("quick and full: records and warm-up are at most 2^40".to_owned());
            }
            for name in extent.workloads.iter().flatten() {
                known("workloads", &workloads, name)?;
            }
            let is_plain = self.choices.is_empty() && !extent.in_misses;
            if let Some(name) = workloads.iter().find(|name| name.contains('+'))
                && !is_plain
            {
                return Err(format!("`{name}`: of a chain there are no choices, nor misses"));
            }
        }
        self.variants.iter().filter_map(|v| v.overheads.as_ref()).try_for_each(Overheads::check)?;
        for (name, instead) in self.variants.iter().flat_map(|variant| &variant.relative_to) {
            known("variant: relative-to", &variants, name)?;
            known("variant: relative-to", &variants, instead)?;
        }
        for metric in &self.metrics {
            if metric.of.is_empty()
                || metric.relative_to.is_some() && metric.speed_up_over.is_some()
            {
                let name = &metric.name;
                return Err(format!("metric `{name}`: it is `of` something, and relative to one"));
            }
            for other in metric.relative_to.iter().chain(&metric.speed_up_over) {
                known("metric: relative-to, speed-up-over", &variants, other)?;
            }
        }
        for claim in &self.claims {
            known("claim: metric", &metrics, &claim.metric)?;
            for name in claim.variant.iter().chain(claim.order()) {
                known("claim: variant", &variants, name)?;
            }
            for name in claim.workload.iter().chain(claim.each()) {
                known("claim: workload", &workloads, name)?;
            }
            claim.check()?;
            if claim.of_deviation && self.full.seeds.len() < 2 {
                return Err("of-deviation: at level full there are two seeds or more".to_owned());
            }
        }
        Ok(())
    }
}

impl Claim {
    /// Whether it is about all workloads together.
    fn is_about_all(&self) -> bool {
        self.workload.is_none() && self.each().next().is_none()
    }

    fn order(&self) -> &[String] {
        if let Rule::Order(variants) = &self.rule { variants } else { &[] }
    }

    fn each(&self) -> impl Iterator<Item = &String> {
        let each = if let Some(Published::Each(each)) = &self.paper { Some(each) } else { None };
        each.into_iter().flat_map(BTreeMap::keys)
    }

    fn check(&self) -> Result<(), String> {
        let is_order = matches!(self.rule, Rule::Order(_));
        let what = if is_order == self.variant.is_some() {
            "`variant` says whose the number is, but for an order"
        } else if self.rule.compares() && self.paper.is_none() {
            "this rule takes a number in `paper`"
        } else if self.workload.is_some() && matches!(self.paper, Some(Published::Each(_))) {
            "either `workload`, or a number for each in `paper`"
        } else if self.of_deviation && (is_order || !self.is_about_all()) {
            "`of-deviation` is about the mean over all workloads"
        } else {
            return Ok(());
        };
        Err(format!("claim `{}`: {what}", self.text))
    }
}

impl Rule {
    /// Whether it says how near the paper's number is near enough.
    fn compares(&self) -> bool {
        matches!(self, Self::Within(_) | Self::WithinShare(_))
    }
}

/// Tables that are one choice of several: another choice takes the place of the first.
const CHOICES: [&str; 2] = ["pace", "scheduler"];

/// `changes` laid over `table`: what is a table in both is joined, but for choices.
pub fn lay_over(table: &mut Table, changes: &Table) {
    for (key, value) in changes {
        match (table.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above))
                if !CHOICES.contains(&key.as_str()) =>
            {
                lay_over(below, above);
            }
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The table in the file at `path`: where it says which it is `like`, that one, with what it says
/// itself laid over. Files may be like others so many deep.
fn read_table(path: &Path, deep: usize) -> Result<Table, Failure> {
    let mut own = read_text_table(path)?;
    let Some(like) = own.remove("like") else { return Ok(own) };
    let Some(name) = like.as_str() else { return Err(wrong(path, &"like: it names a file")) };
    if deep == 0 {
        return Err(wrong(path, &"like: too many files are like others"));
    }
    let mut table = read_table(&beside(path, Path::new(name)), deep - 1)?;
    lay_over(&mut table, &own);
    Ok(table)
}

fn beside(path: &Path, name: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

fn read_text_table(path: &Path) -> Result<Table, Failure> {
    read_text(path)?.parse().map_err(|e: toml::de::Error| wrong(path, &e))
}

fn unique(key: &str, names: &[&str]) -> Result<(), String> {
    if names.is_empty() {
        return Err(format!("{key}: there is none"));
    }
    match names.iter().enumerate().find(|(nth, name)| names[..*nth].contains(name)) {
        None => Ok(()),
        Some((_, name)) => Err(format!("{key}: `{name}` is there twice")),
    }
}

fn known(key: &str, names: &[&str], name: &str) -> Result<(), String> {
    if names.contains(&name) { Ok(()) } else { Err(format!("{key}: there is no `{name}`")) }
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let failed = |e| Failure::new(DEVICE, format!("{}: {e}", path.display()));
    std::fs::read_to_string(path).map_err(failed)
}

fn wrong(path: &Path, what: &dyn std::fmt::Display) -> Failure {
    // What TOML has to say ends with an empty line.
    Failure::usage(format!("{}: {}", path.display(), what.to_string().trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_joined_and_choices_replaced() {
        let mut table: Table = "a = 1\n[oram]\nlevels = 3\npace = { x = 1 }".parse().unwrap();
        let changes = "b = 2\n[oram]\nlevels = 4\npace = { y = 2 }\nz = 5".parse().unwrap();
        lay_over(&mut table, &changes);
        let expected = "a = 1\nb = 2\n[oram]\nlevels = 4\npace = { y = 2 }\nz = 5";
        assert_eq!(table, expected.parse::<Table>().unwrap());
    }
}
