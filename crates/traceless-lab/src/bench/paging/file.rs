//! Experiment files about paging: programs, the ways to page them, and the paper's results.

use super::workloads;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Table;
use traceless_cli::failure::Failure;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::Settings;
use traceless_sim::experiment::spec::{self, Claim, Metric, Spec, VariantMetrics, median};
use traceless_sim::experiment::toml_file::{self, check_known, merge, read_table};
use traceless_sim::experiment::{Error, Level};

/// The variant without paging, which defines the correct output.
pub const NATIVE: usize = 0;

/// A figure or table of the paper.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PagingExperiment {
    title: String,
    /// The paper's name; `place` is the figure or table in it.
    paper: String,
    place: String,
    #[serde(default)]
    remarks: Vec<String>,
    /// Programs by name.
    workloads: Vec<String>,
    /// Settings of all variants.
    #[serde(default)]
    set: Table,
    /// The size of the experiment at each level.
    quick: PagingExtent,
    full: PagingExtent,
    #[serde(rename = "variant")]
    variants: Vec<PagingVariant>,
    #[serde(rename = "metric")]
    metrics: Vec<Metric>,
    #[serde(rename = "claim", default)]
    claims: Vec<Claim>,
    #[serde(skip)]
    path: PathBuf,
    /// Workloads with a size at level quick.
    #[serde(skip)]
    of_quick: Vec<String>,
    /// Workloads with a size at level full.
    #[serde(skip)]
    of_full: Vec<String>,
}

/// How much programs do at a level.
#[derive(Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PagingExtent {
    /// The size argument of each program; programs without one are left out.
    pub sizes: BTreeMap<String, u64>,
    /// Faults of each program that are counted; 0 for all.
    #[serde(default)]
    pub counted: u64,
    pub rounds: usize,
}

/// One of the compared ways to page.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PagingVariant {
    name: String,
    /// Settings that differ from the common ones.
    #[serde(default)]
    set: Table,
    #[serde(default)]
    relative_to: BTreeMap<String, String>,
}

/// How a program is run.
#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Without paging.
    Native,
    #[default]
    Paged,
    /// Paged; the bench subtracts from its time what the paper subtracts for its Eager.
    EagerSimulated,
    /// Paged; the bench divides its time in the scheme as the paper does for its Parallel.
    ParallelSimulated,
}

/// All settings of a variant, with the names of `traceless run`.
#[derive(Deserialize, Serialize, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PagingSubject {
    pub how: How,
    scheme: String,
    pub refresh: u32,
    cached: usize,
    helpers: usize,
    cipher: String,
    pub resident: usize,
    /// MiB that can be paged.
    memory_mib: usize,
    /// Pages are copied once more, by a host that gets the address.
    ocalls: bool,
    /// The program is ended when its faults are counted, and its output is not compared.
    pub stops: bool,
}

impl Default for PagingSubject {
    fn default() -> Self {
        Self {
            how: How::default(),
            scheme: "plain".to_owned(),
            refresh: 3,
            cached: 0,
            helpers: 1,
            cipher: "chacha20-hmac".to_owned(),
            resident: 15,
            memory_mib: 64,
            ocalls: false,
            stops: false,
        }
    }
}

impl PagingSubject {
    /// The settings as the pager takes them.
    pub fn settings(&self) -> Result<Settings, String> {
        let Self { scheme, refresh, cached, helpers, cipher, resident, ocalls, .. } = self;
        let pages = (self.memory_mib << 20) / PAGE_LEN;
        let text = format!(
            "scheme={scheme}\nrefresh={refresh}\ncached={cached}\nhelpers={helpers}\n\
             cipher={cipher}\nresident={resident}\npages={pages}\nocalls={ocalls}"
        );
        let settings = Settings::decode(&text).map_err(|e| e.to_string())?;
        settings.check().map_err(|e| e.to_string())?;
        Ok(settings)
    }
}

impl PagingExperiment {
    /// The experiment in the file at `path`.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let mut experiment: Self =
            read_table(path)?.try_into().map_err(|e| Error::invalid(path, &e))?;
        path.clone_into(&mut experiment.path);
        let named = |extent: &PagingExtent| {
            let all = experiment.workloads.iter();
            all.filter(|name| extent.sizes.contains_key(*name)).cloned().collect()
        };
        (experiment.of_quick, experiment.of_full) =
            (named(&experiment.quick), named(&experiment.full));
        experiment.check().map_err(|what| Error::invalid(path, &what))?;
        Ok(experiment)
    }

    fn check(&self) -> Result<(), String> {
        let workloads: Vec<&str> = self.workloads.iter().map(String::as_str).collect();
        for name in &workloads {
            check_known("workloads", &workloads::names(), name)?;
        }
        for extent in [&self.quick, &self.full] {
            if extent.rounds == 0 || extent.sizes.is_empty() {
                return Err("quick and full have sizes, and one of rounds or more".to_owned());
            }
            for name in extent.sizes.keys() {
                check_known("sizes", &workloads, name)?;
            }
        }
        spec::check(&self.variant_metrics(), &self.workloads, &self.metrics, &self.claims)
    }

    /// All variants.
    pub fn subjects(&self) -> Result<Vec<PagingSubject>, Failure> {
        let subject = |variant: &PagingVariant| {
            let mut table = self.set.clone();
            merge(&mut table, &variant.set);
            let invalid = |e: &dyn std::fmt::Display| {
                let what = e.to_string();
                Error::invalid(
                    &self.path,
                    &format!("variant `{}`: {}", variant.name, what.trim_end()),
                )
            };
            let subject: PagingSubject =
                table.try_into().map_err(|e: toml::de::Error| invalid(&e))?;
            subject.settings().map_err(|e| invalid(&e))?;
            Ok::<_, Error>(subject)
        };
        let subjects = self.variants.iter().map(subject).collect::<Result<Vec<_>, _>>()?;
        if subjects.first().is_none_or(|subject| subject.how != How::Native) {
            return Err(Error::invalid(&self.path, &"the first variant is how = \"native\"").into());
        }
        Ok(subjects)
    }

    /// The first paged variant with the same number of resident pages. The order of evicted pages
    /// is the same in all of them, and this variant's scheme is the base for costs.
    pub fn first_like(&self, subject: &PagingSubject) -> usize {
        let all = self.subjects().expect("they were read before");
        let is_like = |other: &PagingSubject| {
            other.how == How::Paged && !other.stops && other.resident == subject.resident
        };
        all.iter().position(is_like).unwrap_or_else(|| {
            all.iter().position(|other| other == subject).expect("it is one of them")
        })
    }

    /// The name of a variant.
    pub fn variant_name(&self, nth: usize) -> &str {
        &self.variants[nth].name
    }

    /// How much programs do at a level.
    pub fn extent(&self, level: Level) -> &PagingExtent {
        match level {
            Level::Quick => &self.quick,
            Level::Full => &self.full,
        }
    }

    /// The programs at a level.
    pub fn workloads(&self, level: Level) -> &[String] {
        match level {
            Level::Quick => &self.of_quick,
            Level::Full => &self.of_full,
        }
    }

    /// The name of the experiment's files.
    pub fn file_name(&self) -> String {
        toml_file::file_name(&self.path)
    }

    fn variant_metrics(&self) -> Vec<VariantMetrics<'_>> {
        let all = self.variants.iter();
        all.map(|v| VariantMetrics { name: &v.name, relative_to: &v.relative_to }).collect()
    }

    /// The spec of a level. Below level full, only claims that hold at any size are judged.
    pub fn spec(&self, level: Level) -> Spec<'_> {
        let extent = self.extent(level);
        let is_less = *extent != self.full;
        let shortfall = |claim: &Claim| {
            let is_short = is_less && !claim.at_any_size;
            is_short.then(|| "programs do less than at level full".to_owned())
        };
        let field = |name: &str, value: Value| (name.to_owned(), value);
        Spec {
            path: &self.path,
            schema: "traceless.pager.experiment.v1",
            title: &self.title,
            paper: &self.paper,
            place: &self.place,
            remarks: &self.remarks,
            level,
            extent: match extent.counted {
                0 => format!("whole programs, {} times", extent.rounds),
                most => format!("up to {most} faults of each program, {} times", extent.rounds),
            },
            extent_json: Map::from_iter([
                field("counted", extent.counted.into()),
                field("rounds", extent.rounds.into()),
            ]),
            workloads: self.workloads(level),
            repeats: extent.rounds,
            average: median,
            variants: self.variant_metrics(),
            metrics: &self.metrics,
            claims: &self.claims,
            shortfalls: self.claims.iter().map(shortfall).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/paging")
    }

    #[test]
    fn every_file_can_be_run() {
        let mut count = 0;
        for file in std::fs::read_dir(folder()).unwrap() {
            let experiment = PagingExperiment::read(&file.unwrap().path()).unwrap();
            let subjects = experiment.subjects().unwrap();
            for (nth, subject) in subjects.iter().enumerate().skip(1) {
                let first = experiment.first_like(subject);
                assert!(first <= nth, "it is run before");
                assert_eq!(subjects[first].resident, subject.resident);
                assert_eq!(subjects[first].settings().unwrap().scheme.name(), "plain");
            }
            let quick = experiment.spec(Level::Quick);
            assert!(quick.shortfalls.iter().all(Option::is_some), "it is too short to judge");
            assert!(experiment.spec(Level::Full).shortfalls.iter().all(Option::is_none));
            count += 1;
        }
        assert!(count >= 5);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file() {
        let own = tempfile::tempdir().unwrap();
        let text = std::fs::read_to_string(folder().join("programs.toml")).unwrap();
        for (from, to, named) in [
            ("set = { how = \"native\" }\n", "", "first variant"),
            ("\"lbm\"", "\"lbn\"", "there is no `lbn`"),
            ("lbm = 2", "lbn = 2", "there is no `lbn`"),
            ("rounds = 1", "rounds = 0", "one of rounds or more"),
            ("resident = 15", "resident = 7", "at least 8 pages"),
            ("resident = 15", "residents = 15", "unknown field"),
            ("chacha20-hmac\"", "rot13\"", "cannot be understood"),
            ("relative-to = \"native\"", "relative-to = \"none\"", "there is no `none`"),
        ] {
            assert!(text.contains(from), "{from}");
            let path = own.path().join("wrong.toml");
            std::fs::write(&path, text.replace(from, to)).unwrap();
            let read = PagingExperiment::read(&path).and_then(|experiment| experiment.subjects());
            let message = read.unwrap_err().message;
            assert!(message.contains(named), "{to}: {message}");
            assert!(message.contains("wrong.toml"), "{to}: {message}");
        }
    }
}
