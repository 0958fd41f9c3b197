//! Plots as SVG documents.
//!
//! The axis of a plot is linear or logarithmic, and can follow from its values:
//!
//! ```
//! use traceless_audit::svg::Axis;
//! use traceless_audit::svg::bars::{BarGroup, decades, linear};
//!
//! let bars = vec![(0, 1.4), (1, 0.02)];
//! let groups = [BarGroup { label: "mcf".to_owned(), bars, marks: vec![] }];
//! assert_eq!(linear(&groups), Axis::UpTo(1.5));
//! assert_eq!(decades(&groups), Axis::Decades(-2, 1));
//! ```

pub mod bars;
pub mod curves;
pub mod dots;

use std::fmt::Write as _;

const TICKS: u32 = 5;

/// Colours that colour-blind readers can distinguish, and a few more.
const COLOURS: [&str; 11] = [
    "#999999", "#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#cc79a7", "#009e73", "#b8a800",
    "#444444", "#8b4513", "#7b3fb5",
];

/// The vertical axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Axis {
    /// Linear, from zero to this.
    UpTo(f64),
    /// Logarithmic, between two powers of ten.
    Decades(i32, i32),
}

impl Axis {
    /// The height at which a value is drawn, from 0 to 1.
    fn part(self, value: f64) -> f64 {
        let part = match self {
            Self::UpTo(high) => value / high,
            Self::Decades(low, high) => (value.log10() - f64::from(low)) / f64::from(high - low),
        };
        part.clamp(0.0, 1.0)
    }

    fn ticks(self) -> Vec<(f64, String)> {
        match self {
            Self::UpTo(high) => {
                let values = (0..=TICKS).map(|tick| high * f64::from(tick) / f64::from(TICKS));
                values.map(|value| (value, format!("{value:.2}"))).collect()
            }
            Self::Decades(low, high) => {
                (low..=high).map(|d| (10f64.powi(d), decade_label(d))).collect()
            }
        }
    }
}

/// An SVG document with a title; `draw` adds the rest.
fn document(width: f64, height: f64, title: &str, draw: impl FnOnce(&mut String)) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, 110.0, 22.0, "font-size=\"15\" font-weight=\"bold\"", title);
    draw(&mut out);
    out.push_str("</svg>\n");
    out
}

/// The label of a power of ten.
fn decade_label(decade: i32) -> String {
    if decade < 0 {
        format!("{:.*}", decade.unsigned_abs() as usize, 10f64.powi(decade))
    } else {
        format!("{:.0}", 10f64.powi(decade))
    }
}

fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

fn rect(out: &mut String, x: f64, y: f64, width: f64, height: f64, fill: &str) {
    writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{fill}\"/>"
    )
    .expect("a string takes every line");
}

/// Square dots of this size, all in one SVG path.
fn points(out: &mut String, at: impl Iterator<Item = (f64, f64)>, size: f64, stroke: &str) {
    let mut draw = |words: std::fmt::Arguments<'_>| {
        out.write_fmt(words).expect("a string takes every line");
    };
    draw(format_args!(
        "<path stroke=\"{stroke}\" stroke-width=\"{size:.1}\" stroke-linecap=\"square\" d=\""
    ));
    at.for_each(|(x, y)| draw(format_args!("M{x:.1} {y:.1}h0")));
    draw(format_args!("\"/>\n"));
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), stroke: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\"/>"
    )
    .expect("a string takes every line");
}

fn diamond(out: &mut String, x: f64, y: f64, fill: &str) {
    let points = [(x - 4.5, y), (x, y - 4.5), (x + 4.5, y), (x, y + 4.5)];
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    writeln!(out, "<polygon points=\"{}\" fill=\"{fill}\" stroke=\"#000000\"/>", points.join(" "))
        .expect("a string takes every line");
}

fn text(out: &mut String, x: f64, y: f64, more: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {more}>{words}</text>")
        .expect("a string takes every line");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_follow_the_axis() {
        let decades = Axis::Decades(-4, 0);
        let is = |axis: Axis, value: f64, part: f64| (axis.part(value) - part).abs() < 1e-9;
        assert!(is(decades, 1.0, 1.0) && is(decades, 0.01, 0.5) && is(decades, 1e-9, 0.0));
        assert!(is(Axis::UpTo(2.0), 0.5, 0.25) && is(Axis::UpTo(2.0), 3.0, 1.0));
    }
}
