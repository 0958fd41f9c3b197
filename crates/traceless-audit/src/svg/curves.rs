//! Curves: panels in rows, with linear or logarithmic axes. Dashed curves are published numbers.
//!
//! ```
//! use traceless_audit::svg::Axis;
//! use traceless_audit::svg::curves::{Curve, CurvePanel, to_svg};
//!
//! let curve = |label: &str, is_dashed, points| {
//!     Curve { label: label.to_owned(), colour: 1, is_dashed, points }
//! };
//! let panel = CurvePanel {
//!     title: "Stash".to_owned(),
//!     across: "blocks".to_owned(),
//!     up: "probability of more".to_owned(),
//!     names: &[],
//!     axis: Axis::Decades(-4, 0),
//!     curves: vec![
//!         curve("measured", false, vec![(0.0, 0.9), (10.0, 0.01), (20.0, 0.0003)]),
//!         curve("published", true, vec![(0.0, 1.0), (20.0, 0.0002)]),
//!     ],
//! };
//! let svg = to_svg("Path ORAM", &[panel]);
//! // Each curve is drawn in the panel and in its key.
//! assert_eq!(svg.matches("<polyline ").count(), 4);
//! assert_eq!(svg.matches("stroke-dasharray").count(), 2);
//! ```

use super::{Axis, colour, document, line, text};
use std::fmt::Write as _;

/// One panel.
pub struct CurvePanel {
    /// The title above the panel.
    pub title: String,
    /// Label of the horizontal axis.
    pub across: String,
    /// Label of the vertical axis.
    pub up: String,
    /// Labels for 0, 1 and so on, instead of the numbers.
    pub names: &'static [&'static str],
    /// The vertical axis.
    pub axis: Axis,
    /// The curves, in the order of their keys.
    pub curves: Vec<Curve>,
}

/// The points of one curve, from left to right.
pub struct Curve {
    /// The label in the key.
    pub label: String,
    /// Index of the colour.
    pub colour: usize,
    /// Whether the curve is published, not measured.
    pub is_dashed: bool,
    /// Pairs of coordinates.
    pub points: Vec<(f64, f64)>,
}

const LEFT: f64 = 80.0;
const TOP: f64 = 64.0;
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 240.0;
const ACROSS_GAP: f64 = 250.0;
const DOWN_GAP: f64 = 90.0;
const IN_A_ROW: usize = 2;

/// The panels as an SVG document.
pub fn to_svg(title: &str, panels: &[CurvePanel]) -> String {
    let rows = panels.len().div_ceil(IN_A_ROW);
    let width = (WIDTH + ACROSS_GAP) * IN_A_ROW.min(panels.len()) as f64 + LEFT;
    let height = TOP + (HEIGHT + DOWN_GAP) * rows as f64;
    document(width, height, title, |out| {
        for (nth, panel) in panels.iter().enumerate() {
            let left = LEFT + (WIDTH + ACROSS_GAP) * (nth % IN_A_ROW) as f64;
            let top = TOP + (HEIGHT + DOWN_GAP) * (nth / IN_A_ROW) as f64;
            panel.draw(out, left, top);
        }
    })
}

impl CurvePanel {
    fn draw(&self, out: &mut String, left: f64, top: f64) {
        let bottom = top + HEIGHT;
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let right_most = points.map(|point| point.0).fold(1.0, f64::max);
        let x = |value: f64| left + value / right_most * WIDTH;
        let y = |value: f64| bottom - self.axis.part(value) * HEIGHT;
        let bold = "font-size=\"13\" font-weight=\"bold\"";
        text(out, left, top - 12.0, bold, &self.title);
        for (value, label) in self.axis.ticks() {
            line(out, (left, y(value)), (left + WIDTH, y(value)), "#dddddd");
            text(out, left - 6.0, y(value) + 4.0, "text-anchor=\"end\"", &label);
        }
        for (value, label) in self.ticks_across(right_most) {
            text(out, x(value), bottom + 15.0, "text-anchor=\"middle\"", &label);
        }
        line(out, (left, bottom), (left + WIDTH, bottom), "#000000");
        line(out, (left, top), (left, bottom), "#000000");
        let middle = "text-anchor=\"middle\"";
        text(out, left + WIDTH / 2.0, bottom + 32.0, middle, &self.across);
        let (at, halfway) = (left - 58.0, top + HEIGHT / 2.0);
        let turned = format!("{middle} transform=\"rotate(-90 {at:.1} {halfway:.1})\"");
        text(out, at, halfway, &turned, &self.up);
        for (nth, curve) in self.curves.iter().enumerate() {
            let ends: Vec<(f64, f64)> = curve.points.iter().map(|&(a, b)| (x(a), y(b))).collect();
            polyline(out, &ends, curve);
            let (at, beside) = (left + WIDTH + 14.0, top + 8.0 + 16.0 * nth as f64);
            let key = [(at, beside), (at + 22.0, beside)];
            polyline(out, &key, curve);
            text(out, at + 28.0, beside + 4.0, "", &curve.label);
        }
    }

    fn ticks_across(&self, most: f64) -> Vec<(f64, String)> {
        if self.names.is_empty() {
            return round_numbers(most).map(|value| (value, format!("{value:.0}"))).collect();
        }
        (0..).map(f64::from).zip(self.names.iter().map(|name| (*name).to_owned())).collect()
    }
}

/// Whole numbers up to `most`, at most ten of them if `most` is not too large.
fn round_numbers(most: f64) -> impl Iterator<Item = f64> {
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let step = steps.into_iter().find(|step| most / step <= 10.0).unwrap_or(most);
    (0..=10).map(move |nth| step * f64::from(nth)).take_while(move |value| *value <= most)
}

fn polyline(out: &mut String, points: &[(f64, f64)], curve: &Curve) {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let dashes = if curve.is_dashed { " stroke-dasharray=\"5 4\"" } else { "" };
    writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"{dashes}/>",
        points.join(" "),
        colour(curve.colour)
    )
    .expect("a string takes every line");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(axis: Axis) -> CurvePanel {
        let curve = |is_dashed| Curve {
            label: "a & b".into(),
            colour: 1,
            is_dashed,
            points: vec![(0.0, 1.0), (4.0, 0.001)],
        };
        CurvePanel {
            title: "panel".into(),
            across: "blocks".into(),
            up: "share".into(),
            names: &[],
            axis,
            curves: vec![curve(false), curve(true)],
        }
    }

    #[test]
    fn every_curve_has_a_key_and_text_is_escaped() {
        let panels = [panel(Axis::Decades(-3, 0)), panel(Axis::UpTo(1.0)), panel(Axis::UpTo(2.0))];
        let svg = to_svg("title", &panels);
        assert_eq!(svg.matches("<polyline").count(), 3 * 2 * 2);
        assert_eq!(svg.matches("stroke-dasharray").count(), 3 * 2);
        assert!(svg.contains(">a &amp; b</text>") && svg.contains(">0.001</text>"));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn horizontal_ticks_are_round_numbers_or_names() {
        let numbers = |most| round_numbers(most).collect::<Vec<_>>();
        assert_eq!(numbers(4.5), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(numbers(55.0), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        let named = CurvePanel { names: &["few", "all"], ..panel(Axis::UpTo(1.0)) };
        assert_eq!(named.ticks_across(1.0)[1], (1.0, "all".to_owned()));
    }
}
