//! An experiment as a picture: a panel for each metric, the paper's numbers as diamonds.

use super::report::{MetricReport, Report};
use super::verdict::Verdict;
use traceless_audit::svg::bars::{BarGroup, BarPanel, Plot, linear};

const MEAN: &str = "mean";

/// The plot of a report.
pub fn plot(report: &Report) -> Plot {
    let variants = report.metrics.first().map(|metric| &metric.variants);
    Plot {
        title: title(report),
        axis: String::new(),
        mark: "the paper's".to_owned(),
        series: variants.into_iter().flatten().map(|of| of.name.clone()).collect(),
        panels: report.metrics.iter().map(|metric| panel(report, metric)).collect(),
    }
}

/// The title, with what was too short to judge claims.
fn title(report: &Report) -> String {
    let shortfalls: Vec<_> = report.shortfalls().into_iter().collect();
    if shortfalls.is_empty() {
        return report.title.clone();
    }
    format!("{} (too short to judge: {})", report.title, shortfalls.join("; "))
}

fn panel(report: &Report, metric: &MetricReport) -> BarPanel {
    let workloads = report.workloads.iter().map(Some).enumerate();
    let mut groups: Vec<BarGroup> = workloads
        .map(|(nth, workload)| group(report, metric, workload, |each, _| each[nth]))
        .collect();
    if report.workloads.len() > 1 {
        groups.push(group(report, metric, None, |_, mean| mean));
    }
    BarPanel { title: metric.name.clone(), axis: linear(&groups), groups }
}

fn group(
    report: &Report,
    metric: &MetricReport,
    workload: Option<&String>,
    value: impl Fn(&[f64], f64) -> f64,
) -> BarGroup {
    let is_meant =
        |verdict: &&Verdict| verdict.metric == metric.name && verdict.workload.as_ref() == workload;
    let marks = report.verdicts.iter().filter(is_meant).filter_map(|verdict| {
        let variant = verdict.variant.as_ref()?;
        let nth = metric.variants.iter().position(|of| of.name == *variant)?;
        Some((nth, verdict.paper?))
    });
    let bars = metric.variants.iter().map(|of| value(&of.each, of.mean)).enumerate();
    BarGroup {
        label: workload.map_or(MEAN, |name| name.rsplit('/').next().unwrap_or(name)).to_owned(),
        bars: bars.filter(|(_, value)| value.is_finite()).collect(),
        marks: marks.collect(),
    }
}
