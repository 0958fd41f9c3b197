//! Panels in a row: dots, or histograms.
//!
//! ```
//! use traceless_audit::svg::dots::{DotPanel, Series, to_svg};
//!
//! let panel = |title: &str, series| {
//!     DotPanel { title: title.to_owned(), across: "time", up: "place", series }
//! };
//! let places = vec![(0.1, 0.5), (0.4, 0.9), (0.8, 0.2)];
//! let svg = to_svg(
//!     "What is observed of a user",
//!     &[
//!         panel("Each access", Series::Dots(vec![(0, places)])),
//!         panel("How often each place", Series::Shares(vec![(0, vec![0.2, 0.3, 0.5])])),
//!     ],
//! );
//! assert!(svg.contains(">Each access</text>") && svg.contains(">How often each place</text>"));
//! assert_eq!(svg.matches("h0").count(), 3);
//! ```

use super::{colour, document, line, points, text};

/// One panel.
pub struct DotPanel {
    /// The title above the panel.
    pub title: String,
    /// Label of the horizontal axis.
    pub across: &'static str,
    /// Label of the vertical axis.
    pub up: &'static str,
    /// The data.
    pub series: Series,
}

/// The data of a panel, for one subject after the other.
pub enum Series {
    /// Dots with coordinates from 0 to 1; the number is the index of the colour.
    Dots(Vec<(usize, Vec<(f64, f64)>)>),
    /// The share in each of several equal ranges, drawn as steps.
    Shares(Vec<(usize, Vec<f64>)>),
}

const WIDTH: f64 = 220.0;
const HEIGHT: f64 = 160.0;
const GAP: f64 = 40.0;
const LEFT: f64 = 30.0;
const TOP: f64 = 60.0;
const BELOW: f64 = 30.0;
const DOT: f64 = 1.6;

/// The panels as an SVG document.
pub fn to_svg(title: &str, panels: &[DotPanel]) -> String {
    let width = LEFT + (WIDTH + GAP) * panels.len() as f64;
    document(width, TOP + HEIGHT + BELOW, title, |out| {
        for (nth, panel) in panels.iter().enumerate() {
            panel.draw(out, LEFT + (WIDTH + GAP) * nth as f64);
        }
    })
}

impl DotPanel {
    fn draw(&self, out: &mut String, left: f64) {
        let bottom = TOP + HEIGHT;
        text(out, left, TOP - 8.0, "font-weight=\"bold\"", &self.title);
        for (from, to) in [((left, TOP), (left, bottom)), ((left, bottom), (left + WIDTH, bottom))]
        {
            line(out, from, to, "#999999");
        }
        text(out, left + WIDTH / 2.0, bottom + 16.0, "text-anchor=\"middle\"", self.across);
        let (x, y) = (left - 8.0, TOP + HEIGHT / 2.0);
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 {x:.1} {y:.1})\"");
        text(out, x, y, &turned, self.up);
        match &self.series {
            Series::Dots(series) => {
                for (number, dots) in series {
                    let at = |(x, y): &(f64, f64)| (left + x * WIDTH, bottom - y * HEIGHT);
                    points(out, dots.iter().map(at), DOT, colour(*number));
                }
            }
            Series::Shares(series) => {
                let most =
                    series.iter().flat_map(|(_, shares)| shares).copied().fold(0.0, f64::max);
                for (number, shares) in series {
                    let step = WIDTH / shares.len().max(1) as f64;
                    let height = |share: f64| bottom - share / most.max(f64::MIN_POSITIVE) * HEIGHT;
                    let mut before = bottom;
                    for (nth, share) in shares.iter().enumerate() {
                        let (x, y) = (left + step * nth as f64, height(*share));
                        line(out, (x, before), (x, y), colour(*number));
                        line(out, (x, y), (x + step, y), colour(*number));
                        before = y;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_shares_are_inside_their_panel() {
        let panel = |series| DotPanel { title: "a < b".into(), across: "x", up: "y", series };
        let dots = Series::Dots(vec![(1, vec![(0.0, 0.0), (1.0, 1.0)])]);
        let shares = Series::Shares(vec![(1, vec![0.0, 2.0, 1.0]), (2, vec![])]);
        let svg = to_svg("two", &[panel(dots), panel(shares)]);
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(svg.matches("h0").count(), 2);
        assert!(svg.contains(&format!("M{:.1} {TOP:.1}h0", LEFT + WIDTH)), "{svg}");
        // The highest step reaches the top of the panel.
        assert!(svg.contains(&format!("y2=\"{TOP:.1}\"")), "{svg}");
    }
}
