//! Experiments: figures and tables of papers, from files that say what to run and what the paper
//! found. This module has what all experiments share, simulated or measured: reading files, keeping
//! results, judging claims, and printing and drawing the outcome.

pub mod in_turns;
pub mod metrics;
mod plot;
pub mod reading;
mod report;
pub mod results;
pub mod sheet;
mod table;
pub mod text_table;
mod verdict;

use crate::failure::Failure;
use metrics::Counts;
pub use report::Report;
use results::{failed, write_whole};
use serde_json::Value;
use sheet::Sheet;
use std::path::Path;
use table::Table;

/// The report of an experiment with all runs made. Also writes it to `out`, with its picture and
/// the counts of each run: `lines` has the names that identify each run, and its counts.
pub fn conclude<'a>(
    sheet: &Sheet<'_>,
    counts: &Counts<'_>,
    lines: impl Iterator<Item = (Vec<(&'a str, Value)>, &'a Value)>,
    out: &Path,
) -> Result<Report, Failure> {
    let report = Report::new(sheet, counts)?;
    let json = serde_json::to_string_pretty(&report).map_err(Failure::usage)?;
    let svg = plot::plot(&report).to_svg();
    let table = Table::new(lines);
    let parquet = table.to_parquet().map_err(Failure::usage)?;
    let csv = table.to_csv().into_bytes();
    let files = [
        ("json", json.into_bytes()),
        ("svg", svg.into_bytes()),
        ("csv", csv),
        ("parquet", parquet),
    ];
    for (ending, bytes) in files {
        let path = out.join(format!("{}.{}.{ending}", sheet.file_name(), sheet.level.name()));
        write_whole(&path, &bytes).map_err(|e| failed(&path, &e))?;
    }
    Ok(report)
}
