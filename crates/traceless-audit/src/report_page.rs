//! A report as a self-contained HTML page: the claims, and pictures of two users.

use crate::svg::dots::{DotPanel, Series, to_svg};
use crate::{Claim, Verdict};
use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// Two users side by side.
pub struct Picture {
    /// The title above the picture.
    pub title: String,
    /// The label of the horizontal axis, for example steps.
    pub across: &'static str,
    /// The label of the vertical axis.
    pub up: &'static str,
    /// The users' events.
    pub users: [UserPoints; 2],
}

/// The events of one user, in order.
pub struct UserPoints {
    /// The user's name.
    pub name: String,
    /// The time and place of each event.
    pub points: Vec<(u64, u64)>,
}

/// The contents of a page.
pub struct Page<'a> {
    /// What was audited.
    pub title: &'a str,
    /// The verdict on all claims.
    pub verdict: Verdict,
    /// Sentences below the title.
    pub about: &'a str,
    /// All claims, in the order of the report.
    pub claims: &'a [Claim],
    /// Pictures of pairs of users.
    pub pictures: &'a [Picture],
}

impl Page<'_> {
    /// Writes the page to a file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.to_html())
    }

    fn to_html(&self) -> String {
        let Self { title, verdict, about, claims, pictures } = self;
        let verdict = verdict.word();
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <title>traceless audit: {verdict}</title>\n<style>{STYLE}</style></head><body>\n\
         <h1>{title}: <span class=\"{verdict}\">{verdict}</span></h1>\n\
         <p>{about}</p>\n",
            title = escaped(title),
            about = escaped(about),
        );
        if !claims.is_empty() {
            out.push_str(
                "<table><tr><th></th><th>claim</th><th>what was seen</th><th>p</th></tr>\n",
            );
            claims.iter().for_each(|claim| row(&mut out, claim));
            out.push_str("</table>\n");
        }
        for picture in *pictures {
            let svg = picture.to_svg();
            writeln!(out, "<figure>{svg}</figure>").expect("a string takes every line");
        }
        out.push_str("</body></html>\n");
        out
    }
}

const STYLE: &str = "body{font:15px sans-serif;margin:2em}p,table{max-width:72em}\
table{border-collapse:collapse}td,th{padding:.3em .7em;border-bottom:1px solid #ddd;\
text-align:left;vertical-align:top}td:last-child{white-space:nowrap}.pass{color:#00664f}\
.leak,.fault{color:#b00020;font-weight:bold}small{color:#555}figure{margin:2em 0;\
overflow-x:auto}p{white-space:pre-line}";

fn row(out: &mut String, claim: &Claim) {
    let verdict = claim.verdict.word();
    let p = claim.p.map_or("exact".to_owned(), |p| format!("{p:.2e}"));
    writeln!(
        out,
        "<tr><td class=\"{verdict}\">{verdict}</td><td>{}<br><small>{}</small></td><td>{}</td>\
         <td>{p}</td></tr>",
        escaped(&claim.name),
        escaped(&claim.power),
        escaped(&claim.evidence)
    )
    .expect("a string takes every line");
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Events that are drawn of each user.
const EVENTS_DRAWN: usize = 500;
const PAIRS_DRAWN: usize = 2000;

/// Ranges of places in which events are counted.
const RANGES: u64 = 64;

/// Colours of the two users.
const COLOURS: [usize; 2] = [1, 3];

impl Picture {
    fn to_svg(&self) -> String {
        let most = |of: fn(&(u64, u64)) -> u64, points: usize| {
            let points = self.users.iter().flat_map(|user| user.points.iter().take(points));
            points.map(of).max().unwrap_or(0) + 1
        };
        let (times, places) = (most(|p| p.0, EVENTS_DRAWN), most(|p| p.1, usize::MAX));
        let part = |value: u64, of: u64| value as f64 / of as f64;
        let users = || self.users.iter().zip(COLOURS);
        let mut panels: Vec<DotPanel> = users()
            .map(|(user, colour)| {
                let first = user.points.iter().take(EVENTS_DRAWN);
                let dots = first.map(|&(x, y)| (part(x, times), part(y, places))).collect();
                panel(&user.name, self.across, self.up, Series::Dots(vec![(colour, dots)]))
            })
            .collect();
        let shares = users().map(|(user, colour)| (colour, user.shares(places))).collect();
        panels.push(panel("how often", self.up, "share", Series::Shares(shares)));
        for (user, colour) in users() {
            let pairs = user.points.windows(2).take(PAIRS_DRAWN);
            let dots =
                pairs.map(|pair| (part(pair[0].1, places), part(pair[1].1, places))).collect();
            let title = format!("one after another: {}", user.name);
            panels.push(panel(&title, "before", "next", Series::Dots(vec![(colour, dots)])));
        }
        to_svg(&self.title, &panels)
    }
}

fn panel(title: &str, across: &'static str, up: &'static str, series: Series) -> DotPanel {
    DotPanel { title: title.to_owned(), across, up, series }
}

impl UserPoints {
    /// The share of the events in each range of `places`.
    fn shares(&self, places: u64) -> Vec<f64> {
        let ranges = RANGES.min(places);
        let mut counts = vec![0.0; ranges as usize];
        for (_, place) in &self.points {
            let range = u128::from(*place) * u128::from(ranges) / u128::from(places);
            counts[range as usize] += 1.0 / self.points.len() as f64;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn user_points(name: &str, points: &[(u64, u64)]) -> UserPoints {
        UserPoints { name: name.to_owned(), points: points.to_vec() }
    }

    #[test]
    fn a_page_has_every_claim_and_escapes_markup() {
        let claim = Claim::exact("a < b & c", Verdict::Leak, 7, "one", "\"seen\"");
        let users = [user_points("<one>", &[(0, 5), (1, 0)]), user_points("two", &[])];
        let title = "a pair".to_owned();
        let picture = Picture { title, across: "step", up: "leaf", users };
        let page = Page {
            title: "tree",
            verdict: Verdict::Leak,
            about: "<all>",
            claims: &[claim],
            pictures: &[picture],
        };
        let page = page.to_html();
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert!(page.contains("a &lt; b &amp; c") && page.contains("&quot;seen&quot;"));
        assert!(page.contains("&lt;one>") && !page.contains("<one>") && !page.contains("<all>"));
        assert!(page.contains("<td class=\"leak\">leak</td>") && !page.contains("NaN"));
        assert!(!page.contains("http://") || page.matches("http").count() == 1, "only the SVG's");
    }

    #[test]
    fn shares_add_up_to_one() {
        let user = user_points("u", &[(0, 0), (1, 99), (2, 50), (3, u64::MAX - 1)]);
        assert!((user.shares(u64::MAX).iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((user_points("u", &[(0, 3)]).shares(4)[3] - 1.0).abs() < 1e-9);
        assert_eq!(user_points("u", &[]).shares(1), [0.0]);
    }
}
