//! Experiments: figures and tables of papers, from files that say what to run and what the paper
//! found. This module has what all experiments share, simulated or measured: reading files, storing
//! results, judging claims, and writing and plotting the outcome.
//!
//! Two variants were run and counted cycles. The paper's claim is judged, and the report written:
//!
//! ```
//! use serde_json::json;
//! use traceless_sim::experiment::conclude;
//! use traceless_sim::experiment::metrics::{RunCounts, RunIndex};
//! use traceless_sim::experiment::spec::{Claim, Metric};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let metric = "name = 'speed-up'\nof = ['cycles']\nspeed-up-over = 'path'";
//! let claim = "text = 'Ring ORAM is twice as fast'\nmetric = 'speed-up'\nvariant = 'ring'
//!     paper = 2.0\nrule = { within-share = 0.1 }";
//! let metrics: [Metric; 1] = [toml::from_str(metric)?];
//! let claims: [Claim; 1] = [toml::from_str(claim)?];
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
//!
//! let runs = [0, 1].map(|variant| RunIndex { variant, workload: 0, repeat: 0 });
//! let counts = RunCounts::new(&spec, &runs, vec![json!({"cycles": 840}), json!({"cycles": 400})]);
//! let lines = runs.iter().map(|run| (vec![("variant", run.variant.into())], counts.at(*run)));
//! let out = tempfile::tempdir()?;
//! let report = conclude(&spec, &counts, lines, out.path())?;
//! assert_eq!(report.verdicts[0].reproduced, Some(true));
//! assert!(out.path().join("own-fig1.full.svg").exists());
//! # Ok(())
//! # }
//! ```
//!
//! File by file: `toml_file`: TOML that may build on another file; `spec`: which variants are
//! compared, with which metrics and claims; `results`: one file for each run; `interleave`: runs
//! that measure this computer; `metrics`: numbers made of counts; `verdict`: whether a claim holds;
//! `report`, `text_table`, `plot`, `table`: the outcome as JSON, text, SVG, CSV and Parquet;
//! `simulation`: experiments that the simulator runs; `machine_run`: one machine without an
//! experiment, and `machine_text`: its report as text.

mod error;
pub mod interleave;
pub mod machine_run;
mod machine_text;
pub mod metrics;
mod plot;
mod report;
pub mod results;
pub mod simulation;
pub mod spec;
mod table;
pub mod text_table;
pub mod toml_file;
mod verdict;

pub use error::{Error, Gap, Result};
pub use report::{MetricReport, Report, VariantReport};
pub use verdict::Verdict;

use metrics::RunCounts;
use results::write_atomically;
use serde_json::Value;
use spec::Spec;
use std::path::Path;
use table::Table;

/// How much of an experiment is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Seconds, on small machines.
    Quick,
    /// As much as the paper does, where it says how much.
    Full,
}

impl Level {
    /// Its name on the command line, and in names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// The report of an experiment with all runs made. Also writes it to `out`, with its plot and the
/// counts of each run: `lines` has the names that identify each run, and its counts.
pub fn conclude<'a>(
    spec: &Spec<'_>,
    counts: &RunCounts<'_>,
    lines: impl Iterator<Item = (Vec<(&'a str, Value)>, &'a Value)>,
    out: &Path,
) -> Result<Report> {
    let report = Report::new(spec, counts)?;
    let json = serde_json::to_string_pretty(&report)?;
    let svg = plot::plot(&report).to_svg();
    let table = Table::new(lines);
    let parquet = table.to_parquet()?;
    let csv = table.to_csv().into_bytes();
    let files = [
        ("json", json.into_bytes()),
        ("svg", svg.into_bytes()),
        ("csv", csv),
        ("parquet", parquet),
    ];
    for (extension, bytes) in files {
        let name = format!("{}.{}.{extension}", spec.file_name(), spec.level.name());
        write_atomically(&out.join(name), &bytes)?;
    }
    Ok(report)
}
