//! A plot of bars: panels below each other, a legend.
//!
//! ```
//! use traceless_audit::svg::bars::{BarGroup, BarPanel, Plot, linear};
//!
//! let group = |label: &str, bars, mark| {
//!     BarGroup { label: label.to_owned(), bars: vec![(0, bars)], marks: vec![(0, mark)] }
//! };
//! let groups = vec![group("mcf", 2.4, 2.5), group("lbm", 3.1, 2.9)];
//! let plot = Plot {
//!     title: "Slowdown".to_owned(),
//!     axis: "times the unprotected time".to_owned(),
//!     mark: "published".to_owned(),
//!     series: vec!["Path ORAM".to_owned()],
//!     panels: vec![BarPanel { title: "SPEC".to_owned(), axis: linear(&groups), groups }],
//! };
//! let svg = plot.to_svg();
//! assert!(svg.starts_with("<svg ") && svg.contains(">lbm</text>"));
//! // One diamond for each published value, and one in the legend.
//! assert_eq!(svg.matches("<polygon ").count(), 3);
//! ```

use super::{Axis, colour, diamond, document, line, rect, text};

/// One panel: groups of bars beside each other.
pub struct BarPanel {
    /// The title above the panel.
    pub title: String,
    /// The vertical axis.
    pub axis: Axis,
    /// The groups from left to right.
    pub groups: Vec<BarGroup>,
}

/// The bars of one workload.
pub struct BarGroup {
    /// The label below the bars.
    pub label: String,
    /// Pairs of a series' index and its value. Values on a logarithmic axis are positive.
    pub bars: Vec<(usize, f64)>,
    /// Values to compare with, each drawn as a diamond above the bar of its series.
    pub marks: Vec<(usize, f64)>,
}

/// A whole plot.
pub struct Plot {
    /// The title of the document.
    pub title: String,
    /// Label of the vertical axes.
    pub axis: String,
    /// Legend of the diamonds.
    pub mark: String,
    /// Names of the series, for the legend.
    pub series: Vec<String>,
    /// The panels from top to bottom.
    pub panels: Vec<BarPanel>,
}

const BAR: f64 = 9.0;
const GROUP_GAP: f64 = 16.0;
const LEFT: f64 = 110.0;
const TOP: f64 = 84.0;
const PANEL: f64 = 230.0;
/// Space below a panel for its labels, and the title of the next.
const PANEL_GAP: f64 = 120.0;
const LEGEND: f64 = 132.0;

impl Plot {
    /// The plot as an SVG document.
    pub fn to_svg(&self) -> String {
        let group = BAR * self.series.len() as f64 + GROUP_GAP;
        let groups = self.panels.iter().map(|panel| panel.groups.len()).max().unwrap_or(0);
        let legend = LEFT + LEGEND * (self.series.len() + 1) as f64;
        let width = (LEFT + group * groups as f64 + 24.0).max(legend);
        let height = TOP + (PANEL + PANEL_GAP) * self.panels.len() as f64;
        document(width, height, &self.title, |out| {
            self.draw_legend(out);
            for (number, panel) in self.panels.iter().enumerate() {
                let top = TOP + (PANEL + PANEL_GAP) * number as f64;
                self.draw_panel(out, panel, top, group);
            }
        })
    }

    fn draw_legend(&self, out: &mut String) {
        for (number, name) in self.series.iter().enumerate() {
            let x = LEFT + LEGEND * number as f64;
            rect(out, x, 36.0, 11.0, 11.0, colour(number));
            text(out, x + 16.0, 46.0, "", name);
        }
        let x = LEFT + LEGEND * self.series.len() as f64;
        diamond(out, x + 5.0, 42.0, "white");
        text(out, x + 16.0, 46.0, "", &self.mark);
    }

    fn draw_panel(&self, out: &mut String, panel: &BarPanel, top: f64, group_width: f64) {
        let bottom = top + PANEL;
        let y = |value: f64| bottom - panel.axis.part(value) * PANEL;
        let width = group_width * panel.groups.len() as f64;
        text(out, LEFT, top - 10.0, "font-size=\"13\" font-weight=\"bold\"", &panel.title);
        for (value, label) in panel.axis.ticks() {
            let stroke = if (value - 1.0).abs() < 1e-9 { "#000000" } else { "#dddddd" };
            line(out, (LEFT, y(value)), (LEFT + width, y(value)), stroke);
            text(out, LEFT - 8.0, y(value) + 4.0, "text-anchor=\"end\"", &label);
        }
        line(out, (LEFT, top), (LEFT, bottom), "#000000");
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 60 {})\"", top + 115.0);
        text(out, 60.0, top + 115.0, &turned, &self.axis);
        for (number, group) in panel.groups.iter().enumerate() {
            let x = LEFT + GROUP_GAP / 2.0 + group_width * number as f64;
            for &(series, value) in &group.bars {
                let at = y(value);
                rect(out, x + BAR * series as f64, at, BAR - 1.0, bottom - at, colour(series));
            }
            for &(series, value) in &group.marks {
                diamond(out, x + BAR * (series as f64 + 0.5), y(value), "white");
            }
            let (middle, below) = (x + (group_width - GROUP_GAP) / 2.0, bottom + 14.0);
            let turned =
                format!("text-anchor=\"end\" transform=\"rotate(-30 {middle:.1} {below:.1})\"");
            text(out, middle, below, &turned, &group.label);
        }
    }
}

/// A logarithmic axis that covers every value, and 1.
pub fn decades(groups: &[BarGroup]) -> Axis {
    let (low, high) = values(groups)
        .fold((0.5f64, 1.0f64), |(low, high), value| (low.min(value), high.max(value * 1.05)));
    Axis::Decades(low.log10().floor() as i32, high.log10().ceil() as i32)
}

/// A linear axis from zero to a round number above every value.
pub fn linear(groups: &[BarGroup]) -> Axis {
    let most = values(groups).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let decade = 10f64.powf(most.max(1e-9).log10().floor());
    let round = [1.0, 1.5, 2.0, 3.0, 5.0, 10.0].map(|step| step * decade);
    Axis::UpTo(round.into_iter().find(|top| *top >= most).unwrap_or(most))
}

fn values(groups: &[BarGroup]) -> impl Iterator<Item = f64> {
    groups.iter().flat_map(|group| group.bars.iter().chain(&group.marks)).map(|&(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(bars: Vec<(usize, f64)>) -> Plot {
        let group = BarGroup { label: "a < b".into(), bars, marks: vec![(1, 0.5)] };
        Plot {
            title: "title".into(),
            axis: "ratio".into(),
            mark: "paper".into(),
            series: vec!["one".into(), "two".into()],
            panels: vec![BarPanel {
                title: "panel".into(),
                axis: decades(std::slice::from_ref(&group)),
                groups: vec![group],
            }],
        }
    }

    #[test]
    fn every_bar_and_mark_is_plotted_and_text_is_escaped() {
        let svg = plot(vec![(0, 0.9), (1, 0.02)]).to_svg();
        // The background, two entries of the legend, and two bars.
        assert_eq!(svg.matches("<rect").count(), 5);
        assert_eq!(svg.matches("<polygon").count(), 2);
        assert!(svg.contains(">a &lt; b</text>") && svg.contains(">0.01</text>"));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn the_axis_covers_all_values() {
        let axis = |bars| decades(&plot(bars).panels[0].groups);
        assert_eq!(axis(vec![(0, 0.9)]), Axis::Decades(-1, 0));
        assert_eq!(axis(vec![(0, 0.002), (1, 30.0)]), Axis::Decades(-3, 2));
        let axis = |bars| linear(&plot(bars).panels[0].groups);
        assert_eq!(axis(vec![(0, 0.9), (1, 1.51)]), Axis::UpTo(2.0));
        assert_eq!(axis(vec![(0, 0.02)]), Axis::UpTo(0.5), "the mark counts");
        assert_eq!(axis(vec![(0, 1.0), (1, 70.0)]), Axis::UpTo(100.0));
    }
}
