//! `traceless-lab bench stash`: how full trees and stashes are, compared with published results.

mod plot;
mod published;
mod runs;
mod search;

use crate::args::StashArgs;
use crate::report::{Hardware, failed};
use published::{LevelShare, StashBound};
use runs::{StashRun, StashSubject};
use serde::Serialize;
use traceless_audit::svg::curves;
use traceless_cli::failure::Failure;
use traceless_cli::output::{print_error, print_json, print_line};

/// Blocks that the stash of the paper's processor holds.
const STASH: usize = 200;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    machine: Hardware,
    seed: u64,
    /// Trees with IR-Alloc's shapes have an eviction when more blocks than this are in the stash.
    above: usize,
    runs: Vec<StashRun>,
    bounds: Vec<StashBound>,
    levels_of_the_paper: Vec<LevelShare>,
}

pub fn run(args: &StashArgs) -> Result<(), Failure> {
    if args.search {
        return search::run(args);
    }
    let mut runs = vec![];
    for subject in StashSubject::all(args)? {
        if !args.json {
            print_error(&format!("measuring {}, {}", subject.name, subject.workload.name()));
        }
        runs.push(subject.run(args.seed)?);
    }
    let report = Report {
        schema: "traceless.bench.stash.v1",
        machine: Hardware::here(),
        seed: args.seed,
        above: above(args, levels(args)),
        runs,
        bounds: published::bounds(),
        levels_of_the_paper: published::levels(),
    };
    if let Some(path) = &args.plot {
        let svg = curves::to_svg(&plot::title(&report), &plot::panels(&report));
        std::fs::write(path, svg).map_err(failed)?;
    }
    if args.json {
        return print_json(&report);
    }
    report.print();
    Ok(())
}

/// Levels of the trees with IR-Alloc's shapes.
fn levels(args: &StashArgs) -> usize {
    args.levels.map_or(if args.full { 22 } else { 18 }, usize::from)
}

/// The number of blocks above which a stash is emptied. It leaves room for the blocks of a path, as
/// in ir-oram's simulator; the paper does not give the number.
fn above(args: &StashArgs, levels: usize) -> usize {
    args.above.unwrap_or_else(|| STASH.saturating_sub(4 * levels))
}

impl Report {
    fn print(&self) {
        print_line(&self.machine.to_string());
        print_line(&format!(
            "{:<30}{:<12}{:>6}{:>11}{:>6}{:>8}{:>8}{:>7}{:>8}{:>8}{:>8}",
            "tree",
            "blocks",
            "levels",
            "number",
            "path",
            "evict",
            "gain",
            "mean",
            "1-1e-4",
            "1-1e-6",
            "leaves"
        ));
        for run in &self.runs {
            print_line(&format!(
                "{:<30}{:<12}{:>6}{:>11}{:>6}{:>8.3}{:>8.2}{:>7.1}{:>8}{:>8}{:>8.3}",
                run.name,
                run.workload,
                run.z.len(),
                run.blocks,
                run.path_slots,
                run.evictions_per_access,
                run.gain,
                run.stash.mean,
                run.stash.quantile_1e4,
                run.stash.quantile_1e6,
                run.utilisation[run.z.len() - 1],
            ));
        }
    }
}
