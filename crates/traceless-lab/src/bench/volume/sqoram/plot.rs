//! The suite as a picture: measured ratios, with the paper's as diamonds, and a panel of the paper.

use super::super::subjects::{CONTROL, SUBJECTS};
use super::paper::{PublishedRatio, published};
use super::report::{Report, WorkloadRow};
use traceless_audit::svg::bars::{BarGroup, BarPanel, Plot, decades};

/// The plot of a report.
pub fn plot(report: &Report) -> Plot {
    let names = SUBJECTS.iter().map(|subject| subject.name);
    let is_reported = |name: &&str| report.subjects.iter().any(|subject| subject.name == *name);
    let mut series: Vec<&str> =
        names.filter(|name| is_reported(name) && *name != CONTROL).collect();
    // The paper's panel shows all of its schemes, even if they were not measured.
    for number in published() {
        if !series.contains(&number.scheme) {
            series.push(number.scheme);
        }
    }
    let mut interfaces: Vec<&str> = vec![];
    for row in &report.rows {
        if !interfaces.contains(&row.on) {
            interfaces.push(row.on);
        }
    }
    let mut panels: Vec<BarPanel> =
        interfaces.iter().map(|on| measured(report, on, &series)).collect();
    panels.push(of_the_paper(&series));
    Plot {
        title: format!(
            "Write-only schemes on {}, a file of {} MiB",
            report.device,
            report.file_bytes >> 20
        ),
        axis: format!("speed beside {CONTROL}'s"),
        mark: "the paper's".to_owned(),
        series: series.iter().map(|name| (*name).to_owned()).collect(),
        panels,
    }
}

fn measured(report: &Report, on: &str, series: &[&str]) -> BarPanel {
    let mut groups: Vec<BarGroup> = vec![];
    for row in report.rows.iter().filter(|row| row.on == on) {
        let at = groups.iter().position(|group| group.label == row.workload).unwrap_or_else(|| {
            groups.push(BarGroup { label: row.workload.to_owned(), bars: vec![], marks: vec![] });
            groups.len() - 1
        });
        let WorkloadRow { subject, ratio, paper, .. } = row;
        if let (Some(number), Some(ratio)) = (number_of(series, subject), ratio) {
            groups[at].bars.push((number, *ratio));
            groups[at].marks.extend(paper.iter().map(|published| (number, published.ratio)));
        }
    }
    BarPanel { title: format!("measured: {on}"), axis: decades(&groups), groups }
}

fn of_the_paper(series: &[&str]) -> BarPanel {
    let mut groups: Vec<BarGroup> = vec![];
    for PublishedRatio { place, scheme, workload, ratio, .. } in published() {
        let label = format!("{workload}, {place}");
        let at = groups.iter().position(|group| group.label == label).unwrap_or_else(|| {
            groups.push(BarGroup { label, bars: vec![], marks: vec![] });
            groups.len() - 1
        });
        groups[at].bars.extend(number_of(series, scheme).map(|number| (number, ratio)));
    }
    BarPanel {
        title: "the paper: ratios to its baselines".to_owned(),
        axis: decades(&groups),
        groups,
    }
}

fn number_of(series: &[&str], name: &str) -> Option<usize> {
    series.iter().position(|other| *other == name)
}
