//! The report as curves.

use super::Report;
use super::runs::StashRun;
use traceless_audit::svg::Axis;
use traceless_audit::svg::curves::{Curve, CurvePanel};

/// The axis begins at ten to this power.
const LEAST: i32 = -7;

pub fn title(report: &Report) -> String {
    let most = report.runs.iter().map(|run| run.blocks).max().unwrap_or(0);
    format!("Stash and levels of Path ORAM, up to 2^{} blocks", most.max(1).ilog2())
}

pub fn panels(report: &Report) -> Vec<CurvePanel> {
    let is_uniform = |run: &&StashRun| run.name.starts_with('Z');
    let of = |workload: &'static str| {
        move |run: &&StashRun| {
            is_uniform(run) && run.workload == workload && run.name.ends_with("full")
        }
    };
    let one_leaf = |run: &&StashRun| is_uniform(run) && run.name.ends_with("block");
    let presets = |run: &&StashRun| !is_uniform(run);
    vec![
        tails(report, "Stash, half full, random accesses", of("random"), |run| run.name.clone()),
        tails(report, "Stash, half full, accesses in turn", of("in turn"), |run| run.name.clone()),
        tails(report, "Stash, a leaf for each block", one_leaf, |run| {
            format!("Z = {}, {}", run.z[0], run.workload)
        }),
        levels(report, "Levels, half full, random accesses", of("random")),
        levels(report, "Levels, IR-Alloc, random", |r| presets(r) && r.workload == "random"),
        levels(report, "Levels, IR-Alloc, 1 % of blocks", |r| presets(r) && r.workload == "1 %"),
        by_working_set(report, "IR-Alloc: evictions", "per access", |r| r.evictions_per_access),
        by_working_set(report, "IR-Alloc: gain", "slots moved: base to this", |r| r.gain),
    ]
}

fn tails<'a>(
    report: &'a Report,
    title: &str,
    keep: impl Fn(&&'a StashRun) -> bool,
    label: impl Fn(&StashRun) -> String,
) -> CurvePanel {
    let mut curves: Vec<Curve> = vec![];
    for (nth, run) in report.runs.iter().filter(keep).enumerate() {
        let points = (0..).map(f64::from).zip(run.stash.tail.iter().copied());
        let points: Vec<_> = points.filter(|point| point.1 > 0.0).collect();
        if !points.is_empty() {
            curves.push(Curve { label: label(run), colour: nth + 1, is_dashed: false, points });
        }
    }
    for (nth, bound) in report.bounds.iter().enumerate() {
        let points = bound.points.iter().copied().filter(|point| point.1 > 10f64.powi(LEAST));
        let label = bound.label.to_owned();
        let points = points.collect();
        curves.push(Curve { label, colour: nth + 7, is_dashed: true, points });
    }
    CurvePanel {
        title: title.to_owned(),
        across: "blocks in the stash".to_owned(),
        up: "share of accesses with more".to_owned(),
        names: &[],
        axis: Axis::Decades(LEAST, 0),
        curves,
    }
}

fn levels<'a>(report: &'a Report, title: &str, keep: impl Fn(&&'a StashRun) -> bool) -> CurvePanel {
    let runs: Vec<&StashRun> = report.runs.iter().filter(keep).collect();
    let mut curves = vec![];
    for (nth, run) in runs.iter().enumerate() {
        let points = (0..).map(f64::from).zip(run.utilisation.iter().copied()).collect();
        let (label, colour) = (run.name.clone(), nth);
        curves.push(Curve { label, colour, is_dashed: false, points });
    }
    if let Some(run) = runs.first() {
        let last = run.z.len() - 1;
        let shares = report.levels_of_the_paper.iter().rev();
        let shares = shares.filter(|share| share.above_leaves <= last);
        let points = shares.map(|share| ((last - share.above_leaves) as f64, share.share));
        let (label, points) = ("ir-oram, figure 3: Z = 4".to_owned(), points.collect());
        curves.push(Curve { label, colour: 8, is_dashed: true, points });
    }
    CurvePanel {
        title: title.to_owned(),
        across: "level".to_owned(),
        up: "full slots".to_owned(),
        names: &[],
        axis: Axis::UpTo(1.0),
        curves,
    }
}

/// One point for each workload, from the smallest working set to all blocks.
fn by_working_set(
    report: &Report,
    title: &str,
    up: &str,
    value: fn(&StashRun) -> f64,
) -> CurvePanel {
    const SETS: [&str; 4] = ["0.1 %", "1 %", "90/10", "random"];
    let mut curves: Vec<Curve> = vec![];
    let mut most: f64 = 0.1;
    for run in report.runs.iter().filter(|run| !run.name.starts_with('Z')) {
        let Some(at) = SETS.iter().position(|set| *set == run.workload) else { continue };
        most = most.max(value(run));
        let point = (at as f64, value(run));
        match curves.iter_mut().find(|curve| curve.label == run.name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve {
                label: run.name.clone(),
                colour: curves.len(),
                is_dashed: false,
                points: vec![point],
            }),
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    CurvePanel {
        title: title.to_owned(),
        across: "blocks that are accessed at random".to_owned(),
        up: up.to_owned(),
        names: &["0.1 %", "1 %", "10 %, 9 of 10 times", "all"],
        axis: Axis::UpTo((most * 10.0).ceil() / 10.0),
        curves,
    }
}
