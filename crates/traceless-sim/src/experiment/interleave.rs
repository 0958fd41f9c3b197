//! Runs that measure this computer, one at a time. Variants take turns, so that other load of the
//! computer affects all of them alike.
//!
//! Each of two variants measures how long a sum takes:
//!
//! ```
//! use serde_json::json;
//! use std::sync::atomic::AtomicBool;
//! use traceless_sim::experiment::Error;
//! use traceless_sim::experiment::interleave::InterleavedRun;
//! use traceless_sim::experiment::metrics::RunIndex;
//! use traceless_sim::experiment::results::{Control, Results};
//! # use traceless_sim::experiment::spec::{Claim, Metric};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let claims: [Claim; 0] = [];
//! # let metrics: [Metric; 1] = [toml::from_str("name = 'time'\nof = ['ns']")?];
//! // The `spec` of the experiment has the variants `path` and `ring`, and one workload.
//! # use std::collections::BTreeMap;
//! # use std::path::Path;
//! # use traceless_sim::experiment::Level;
//! # use traceless_sim::experiment::spec::{Spec, VariantMetrics, median};
//! # let same = BTreeMap::new();
//! # let variants = ["path", "ring"].map(|name| VariantMetrics { name, relative_to: &same });
//! # let (workloads, shortfalls) = (["mcf".to_owned()], claims.iter().map(|_| None).collect());
//! # let spec = Spec {
//! #     path: Path::new("own/fig1.toml"),
//! #     schema: "example.v1",
//! #     title: "Ring ORAM",
//! #     paper: "none",
//! #     place: "Figure 1",
//! #     remarks: &[],
//! #     level: Level::Full,
//! #     extent: "one run".to_owned(),
//! #     extent_json: serde_json::Map::new(),
//! #     workloads: &workloads,
//! #     repeats: 1,
//! #     average: median,
//! #     variants: variants.to_vec(),
//! #     metrics: &metrics,
//! #     claims: &claims,
//! #     shortfalls,
//! # };
//! let run = |(variant, sums)| {
//!     InterleavedRun::new(RunIndex { variant, workload: 0, repeat: 0 }, sums)
//! };
//! let runs = [(0, 1000), (1, 10)].into_iter().map(run).collect::<Result<Vec<_>, Error>>()?;
//!
//! let out = tempfile::tempdir()?;
//! let results = Results::open(out.path(), "example.v1")?;
//! let control = Control { interrupted: &AtomicBool::new(false), progress: &mut |_, _| {} };
//! InterleavedRun::make_all(&runs, &results, control, |run| {
//!     let start = std::time::Instant::now();
//!     let sum: u64 = (0..run.input).sum();
//!     Ok::<_, Error>(json!({"ns": start.elapsed().as_nanos() as u64, "sum": sum}))
//! })?;
//! let report = InterleavedRun::conclude(&runs, &spec, &results, out.path())?;
//! assert_eq!(report.metrics[0].variants.len(), 2);
//! assert_eq!(results.get(&runs[1].key)?["sum"], 45);
//! # Ok(())
//! # }
//! ```

use super::metrics::{RunCounts, RunIndex};
use super::results::{self, Control, Results};
use super::spec::Spec;
use super::{Error, Report, Result};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// One run.
pub struct InterleavedRun<I> {
    /// The variant, workload and repeat of the experiment.
    pub index: RunIndex,
    /// Everything that the result depends on, except the other load of the computer.
    pub input: I,
    /// A digest of the input.
    pub key: String,
}

impl<I: Serialize + Sync> InterleavedRun<I> {
    /// The run of an input.
    pub fn new(index: RunIndex, input: I) -> Result<Self> {
        Ok(Self { index, key: results::key(&input)?, input })
    }

    /// Makes the runs without a result, the variants in turns.
    pub fn make_all<E: From<Error> + Send>(
        runs: &[Self],
        results: &Results,
        control: Control<'_>,
        make: impl Fn(&Self) -> Result<Value, E> + Sync,
    ) -> Result<(), E> {
        let mut order: Vec<&Self> = runs.iter().collect();
        order.sort_by_key(|run| (run.index.repeat, run.index.workload, run.index.variant));
        let keys: Vec<&str> = order.iter().map(|run| run.key.as_str()).collect();
        results.complete(&keys, 1, control, |nth| {
            let run = order[nth];
            Ok(results.store(&run.key, &run.input, &make(run)?)?)
        })
    }

    /// The report, once all runs are made.
    pub fn conclude(
        runs: &[Self],
        spec: &Spec<'_>,
        results: &Results,
        out: &Path,
    ) -> Result<Report> {
        let counts = runs.iter().map(|run| results.get(&run.key)).collect::<Result<_>>()?;
        let indices: Vec<RunIndex> = runs.iter().map(|run| run.index).collect();
        let counts = RunCounts::new(spec, &indices, counts);
        let lines = runs.iter().map(|run| {
            let RunIndex { variant, workload, repeat } = run.index;
            let names: Vec<(&str, Value)> = vec![
                ("variant", spec.variants[variant].name.into()),
                ("workload", spec.workloads[workload].as_str().into()),
                ("round", repeat.into()),
                ("key", run.key.clone().into()),
            ];
            (names, counts.at(run.index))
        });
        super::conclude(spec, &counts, lines, out)
    }
}
