//! The page: one file of HTML that loads nothing.

use super::audits::AuditRow;
use super::catalog::{FigureVerdict, Paper};
use super::figure::{Chart, ClaimRow, FigureNumbers};
use super::job::NoResult;
use super::recorded::{Floor, RecordedTable};
use serde_json::{Map, Value};
use std::fmt::Write as _;
use traceless_sim::experiment::text_table::shortened;

/// Appends text to a string, as `format!` makes it.
macro_rules! put {
    ($out:expr, $($words:tt)*) => {
        write!($out, $($words)*).expect("a string takes every word")
    };
}

/// Third-party code, and ours; assets/README.md says where it comes from.
const SCRIPTS: [&str; 3] = [
    include_str!("../../assets/d3.min.js"),
    include_str!("../../assets/plot.umd.min.js"),
    include_str!("../../assets/report.js"),
];
const STYLE: &str = include_str!("../../assets/report.css");
/// The licences of the third-party code go wherever it goes.
const LICENCES: [(&str, &str); 5] = [
    ("d3", include_str!("../../assets/LICENSE-d3")),
    ("Observable Plot", include_str!("../../assets/LICENSE-plot")),
    ("interval-tree-1d", include_str!("../../assets/LICENSE-interval-tree-1d")),
    ("binary-search-bounds", include_str!("../../assets/LICENSE-binary-search-bounds")),
    ("isoformat", include_str!("../../assets/LICENSE-isoformat")),
];

/// All that the page shows.
pub struct Page<'a> {
    /// Name and value of what the numbers depend on.
    pub facts: Vec<(&'static str, String)>,
    pub is_full: bool,
    /// Whether only a part was requested.
    pub is_part: bool,
    /// How many parts are not made yet, and how many there are.
    pub missing: [usize; 2],
    pub papers: Vec<PaperSection<'a>>,
    pub audits: Vec<AuditRow>,
    pub peers_machine: String,
    pub peers: Vec<RecordedTable>,
    pub floors: Vec<Floor>,
}

pub struct PaperSection<'a> {
    pub paper: &'a Paper,
    pub figures: Vec<FigureSection<'a>>,
}

/// A figure, and its run.
pub struct FigureSection<'a> {
    pub id: String,
    pub figure: &'a super::catalog::Figure,
    /// The figure, and what this experiment has of it.
    pub place: String,
    pub title: String,
    pub remarks: Vec<String>,
    pub command: String,
    pub seconds: f64,
    /// The numbers, or the reason why there are none.
    pub numbers: Result<FigureNumbers, NoResult>,
}

/// Text that HTML takes as it is.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Text with code between backticks.
fn prose(text: &str) -> String {
    let mut out = String::new();
    for (nth, part) in text.split('`').enumerate() {
        let part = escaped(part);
        if nth % 2 == 1 {
            put!(out, "<code>{part}</code>");
        } else {
            out += &part;
        }
    }
    out
}

fn anchor(id: &str) -> String {
    id.replace(['/', ':', '+'], "-")
}

fn number(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), shortened)
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

impl Page<'_> {
    pub fn to_html(&self) -> String {
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n\
             <title>Traceless: what holds of the papers</title>\n<style>\n{STYLE}</style>\n\
             </head>\n<body>\n<a class=\"skip\" href=\"#main\">To the content</a>\n"
        );
        self.header(&mut out);
        out += "<main id=\"main\">\n";
        self.summary(&mut out);
        for section in &self.papers {
            section.write(&mut out);
        }
        self.audit_section(&mut out);
        self.peer_section(&mut out);
        self.floor_section(&mut out);
        out += "</main>\n";
        footer(&mut out);
        // A `<` might end the element.
        let charts = Value::Object(self.charts()).to_string().replace('<', "\\u003c");
        put!(out, "<script type=\"application/json\" id=\"charts\">{charts}</script>\n");
        for script in SCRIPTS {
            put!(out, "<script>\n{script}</script>\n");
        }
        out + "</body>\n</html>\n"
    }

    fn figures(&self) -> impl Iterator<Item = &FigureSection<'_>> {
        self.papers.iter().flat_map(|section| &section.figures)
    }

    fn charts(&self) -> Map<String, Value> {
        let with = self.figures().filter_map(|figure| {
            let charts: Vec<&Chart> = figure.numbers.as_ref().ok()?.drawn();
            let charts = serde_json::to_value(charts).expect("numbers and strings");
            Some((figure.id.clone(), charts))
        });
        with.collect()
    }

    fn header(&self, out: &mut String) {
        *out += "<header>\n<h1>What holds of the papers</h1>\n\
             <p>Every figure and table of the papers that Traceless implements, made anew beside \
             the paper's own numbers; whether audits can distinguish users of the schemes; and \
             recorded speeds.</p>\n<ul class=\"facts\">\n";
        for (name, value) in &self.facts {
            put!(out, "<li><span class=\"soft\">{name}:</span> {}</li>\n", escaped(value));
        }
        *out += "</ul>\n";
        if !self.is_full {
            *out += "<p class=\"notice\"><strong>A quick report.</strong> Its runs are shortened: \
                 they show the shapes, and are too short to judge most claims. The verdicts are \
                 those of level full, with the numbers that are given there. \
                 <code>traceless-lab report --full</code> makes all of it at that size, in hours.\
                 </p>\n";
        }
        if self.is_part {
            *out +=
                "<p class=\"notice\">Only a part was requested, with <code>--only</code>.</p>\n";
        }
        let [missing, all] = self.missing;
        if missing > 0 {
            put!(
                out,
                "<p class=\"notice\"><strong>{missing} of {all} parts are not made yet.</strong> \
                 The same command goes on with them.</p>\n"
            );
        }
        *out += "</header>\n";
    }

    fn summary(&self, out: &mut String) {
        *out += "<nav aria-label=\"Figures\">\n<h2>At a glance</h2>\n<div class=\"scroll\">\
             <table>\n<tr><th scope=\"col\">paper</th><th scope=\"col\">verdicts</th>\
             <th scope=\"col\">figures and tables</th></tr>\n";
        for PaperSection { paper, figures } in &self.papers {
            let counts = FigureVerdict::ALL.map(|verdict| {
                let count = figures.iter().filter(|f| f.figure.verdict == verdict).count();
                (count > 0).then(|| {
                    let class = verdict.class();
                    format!("<span class=\"{class}\">{count} {}</span>", verdict.words())
                })
            });
            let counts: Vec<String> = counts.into_iter().flatten().collect();
            put!(
                out,
                "<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th><td>{}</td>\
                 <td><div class=\"chips\">",
                paper.folder,
                escaped(&paper.name),
                counts.join("<br>"),
            );
            for FigureSection { id, figure, place, title, .. } in figures {
                put!(
                    out,
                    "<a class=\"chip {}\" href=\"#{}\" title=\"{}: {}\">{}</a>",
                    figure.verdict.class(),
                    anchor(id),
                    escaped(title),
                    figure.verdict.words(),
                    escaped(place),
                );
            }
            *out += "</div></td></tr>\n";
        }
        *out += "</table></div>\n<p><a href=\"#audits\">Audits</a>, <a href=\"#peers\">other \
             libraries</a>, <a href=\"#floors\">floors</a></p>\n</nav>\n";
    }

    fn audit_section(&self, out: &mut String) {
        let right = self.audits.iter().filter(|row| row.is_expected() == Some(true)).count();
        put!(
            out,
            "<section aria-labelledby=\"audits\">\n<h2 id=\"audits\">Audits</h2>\n<p>Two users of \
             each scheme, and whether an adversary can distinguish them by what it observes. {} of \
             {} end as they should: sound schemes pass, and what is known to leak is found.</p>\n\
             <div class=\"scroll\"><table>\n<tr><th scope=\"col\">product</th>\
             <th scope=\"col\">scheme</th><th scope=\"col\">verdict</th>\
             <th scope=\"col\">as it should</th><th scope=\"col\" class=\"number\">claims</th>\
             <th scope=\"col\">what was found</th></tr>\n",
            right,
            self.audits.len()
        );
        for row in &self.audits {
            row.write(out);
        }
        *out += "</table></div>\n</section>\n";
    }

    fn peer_section(&self, out: &mut String) {
        put!(
            out,
            "<section aria-labelledby=\"peers\">\n<h2 id=\"peers\">Other libraries</h2>\n\
             <p class=\"notice\">Recorded, not measured for this page: by \
             <code>bench/peers/run</code>.</p>\n<p>{}</p>\n",
            prose(&self.peers_machine)
        );
        for table in &self.peers {
            *out += "<div class=\"scroll\"><table>\n";
            put!(out, "<caption>{}</caption>\n", prose(&table.caption));
            let is_number = |text: &str| text.parse::<f64>().is_ok();
            let class = |text: &str| if is_number(text) { " class=\"number\"" } else { "" };
            let first = table.rows.first();
            *out += "<tr>";
            for (nth, cell) in table.header.iter().enumerate() {
                let below = first.and_then(|row| row.get(nth)).map_or("", String::as_str);
                put!(out, "<th scope=\"col\"{}>{}</th>", class(below), prose(cell));
            }
            *out += "</tr>\n";
            for row in &table.rows {
                *out += "<tr>";
                for cell in row {
                    put!(out, "<td{}>{}</td>", class(cell), prose(cell));
                }
                *out += "</tr>\n";
            }
            *out += "</table></div>\n";
        }
        *out += "</section>\n";
    }

    fn floor_section(&self, out: &mut String) {
        let unmet = self.floors.iter().filter(|floor| floor.unmet.is_some()).count();
        put!(
            out,
            "<section aria-labelledby=\"floors\">\n<h2 id=\"floors\">Floors</h2>\n\
             <p class=\"notice\">Recorded, not measured for this page: by <code>cargo xtask floors \
             GROUP</code>.</p>\n<p>What must be reached, as a ratio to operations of the same \
             machine. {} of {} are not met; each of these says what was tried.</p>\n<details>\
             <summary>All floors</summary><div class=\"scroll\"><table>\n\
             <tr><th scope=\"col\">group</th><th scope=\"col\">floor</th><th scope=\"col\">bound\
             </th><th scope=\"col\">met</th><th scope=\"col\">what</th></tr>\n",
            unmet,
            self.floors.len()
        );
        for floor in &self.floors {
            let (class, met) =
                if floor.unmet.is_some() { ("fails", "no") } else { ("holds", "yes") };
            let unmet = floor.unmet.as_ref().map_or(String::new(), |words| {
                format!("<br><span class=\"soft\">Not met: {}</span>", prose(words))
            });
            put!(
                out,
                "<tr><td>{}</td><td><code>{}</code></td><td>{}</td><td class=\"{class}\">{met}</td>\
                 <td>{}{unmet}</td></tr>\n",
                escaped(&floor.group),
                escaped(&floor.name),
                escaped(&floor.bound()),
                prose(&floor.note),
            );
        }
        *out += "</table></div></details>\n</section>\n";
    }
}

fn footer(out: &mut String) {
    *out += "<footer>\n<details><summary>Licences of the charts' code in this page</summary>\n";
    for (name, text) in LICENCES {
        put!(out, "<h3>{name}</h3>\n<pre class=\"scroll\">{}</pre>\n", escaped(text));
    }
    *out += "</details>\n</footer>\n";
}

impl PaperSection<'_> {
    fn write(&self, out: &mut String) {
        let Self { paper, figures } = self;
        put!(
            out,
            "<section aria-labelledby=\"{0}\">\n<h2 id=\"{0}\">{1}</h2>\n<p class=\"soft\">{2}</p>",
            paper.folder,
            escaped(&paper.name),
            escaped(&paper.work)
        );
        for figure in figures {
            figure.write(out);
        }
        *out += "</section>\n";
    }
}

impl FigureSection<'_> {
    fn write(&self, out: &mut String) {
        let Self { id, figure, place, title, remarks, command, seconds, numbers } = self;
        let verdict = figure.verdict;
        put!(
            out,
            "<article class=\"figure\" id=\"{anchor}\" aria-labelledby=\"{anchor}-title\">\n\
             <div class=\"title\"><h3 id=\"{anchor}-title\">{}</h3><span class=\"badge {}\">{}\
             </span><span class=\"name\">{}</span></div>\n<p>{}</p>\n\
             <p><span class=\"soft\">At level full:</span> {}</p>\n",
            escaped(place),
            verdict.class(),
            verdict.words(),
            escaped(title),
            prose(&figure.why),
            prose(&figure.measured),
            anchor = anchor(id),
        );
        match numbers {
            Err(why) => {
                let class = if *why == NoResult::NotMade { "soft" } else { "failed" };
                put!(out, "<p class=\"{class}\">{}</p>\n", escaped(&why.to_string()));
            }
            Ok(numbers) => {
                put!(
                    out,
                    "<div class=\"chart\" data-charts=\"{}\"></div>\n<noscript><p>Charts need \
                     JavaScript; the tables do not.</p></noscript>\n",
                    escaped(id)
                );
                numbers.write(out);
            }
        }
        if !remarks.is_empty() {
            put!(out, "<p class=\"soft\">{}</p>\n", prose(&remarks.join(" ")));
        }
        put!(
            out,
            "<p class=\"command\"><code>{}</code>, {seconds:.1} s</p>\n</article>\n",
            escaped(command)
        );
    }
}

impl FigureNumbers {
    fn write(&self, out: &mut String) {
        let [hold, fail] = self.judged();
        if !self.claims.is_empty() {
            let open = self.claims.len() - hold - fail;
            put!(
                out,
                "<details{}><summary>{} of the paper beside this run: {hold} reproduced, {fail} \
                 not, {open} not judged</summary>\n<div class=\"scroll\"><table>\n\
                 <tr><th scope=\"col\">claim</th><th scope=\"col\" class=\"number\">paper</th>\
                 <th scope=\"col\" class=\"number\">here</th><th scope=\"col\">rule</th>\
                 <th scope=\"col\">this run</th></tr>\n",
                if self.claims.len() <= 6 { " open" } else { "" },
                counted(self.claims.len(), "claim"),
            );
            for claim in &self.claims {
                claim.write(out);
            }
            *out += "</table></div></details>\n";
        }
        for short in &self.shortfalls {
            put!(
                out,
                "<p class=\"soft\">This run is too short to judge: {}.</p>\n",
                escaped(short)
            );
        }
        put!(
            out,
            "<details><summary>All numbers of this run: {}</summary>\n",
            counted(self.charts.len(), "table")
        );
        for chart in &self.charts {
            chart.write(out);
        }
        *out += "</details>\n";
    }
}

impl ClaimRow {
    fn write(&self, out: &mut String) {
        let (class, words) = match self.holds {
            Some(true) => ("holds", "reproduced"),
            Some(false) => ("fails", "not reproduced"),
            None => ("soft", "not judged"),
        };
        put!(
            out,
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"rule\">{}</td><td class=\"{class}\">{words}</td></tr>\n",
            escaped(&self.text),
            number(self.paper),
            number(self.here),
            escaped(&self.rule),
        );
    }
}

impl Chart {
    /// The numbers as a table: what the drawing shows, for all readers.
    fn write(&self, out: &mut String) {
        put!(
            out,
            "<div class=\"scroll\"><table>\n<caption>{}</caption>\n<tr><th scope=\"col\"></th>",
            escaped(&self.metric)
        );
        for variant in &self.variants {
            put!(out, "<th scope=\"col\" class=\"number\">{}</th>", escaped(variant));
        }
        *out += "</tr>\n";
        for (nth, workload) in self.workloads.iter().enumerate() {
            put!(out, "<tr><th scope=\"row\">{}</th>", escaped(workload));
            for values in &self.values {
                let value = values.get(nth).copied().flatten();
                put!(out, "<td class=\"number\">{}</td>", number(value));
            }
            *out += "</tr>\n";
        }
        *out += "</table></div>\n";
    }
}

impl AuditRow {
    fn write(&self, out: &mut String) {
        let (class, words) = match &self.verdict {
            Ok(verdict) => (verdict.as_str(), escaped(verdict)),
            Err(_) => ("soft", "not run".to_owned()),
        };
        let (as_class, as_words) = match self.is_expected() {
            Some(true) => ("holds", "yes"),
            Some(false) => ("fails", "no"),
            None => ("soft", "–"),
        };
        let found = match (&self.verdict, &self.finding) {
            (Err(why), _) => escaped(why),
            (_, Some(finding)) if self.why.is_empty() => escaped(finding),
            (_, Some(finding)) => {
                format!(
                    "{}<br><span class=\"soft\">{}</span>",
                    escaped(&self.why),
                    escaped(finding)
                )
            }
            (_, None) => String::new(),
        };
        put!(
            out,
            "<tr><td>{}</td><td><code>{}</code></td><td class=\"{class}\">{words}</td>\
             <td class=\"{as_class}\">{as_words}</td><td class=\"number\">{}</td>\
             <td>{found}</td></tr>\n",
            escaped(&self.target),
            escaped(&self.scheme),
            self.claims,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalog::Catalog;
    use super::super::catalog::tests::checkout;
    use super::super::figure::Mark;
    use super::*;
    use sha2::{Digest, Sha256};
    use traceless_sim::experiment::results::hex;

    const DOCUMENT: &str = include_str!("../../assets/README.md");

    fn numbers() -> FigureNumbers {
        let chart = Chart {
            metric: "speed </script> & more".to_owned(),
            variants: vec!["a".to_owned(), "b".to_owned()],
            workloads: vec!["mcf".to_owned()],
            values: vec![vec![Some(1.5)], vec![None]],
            marks: vec![Mark { variant: 0, workload: 0, paper: 2.0 }],
            claimed: true,
        };
        let (text, rule) = ("gains <much>".to_owned(), "± 1".to_owned());
        let claim = ClaimRow { text, here: Some(1.5), paper: Some(2.0), rule, holds: Some(false) };
        FigureNumbers {
            charts: vec![chart],
            claims: vec![claim],
            shortfalls: vec!["short".to_owned()],
        }
    }

    fn page(catalog: &Catalog, failure: Option<NoResult>) -> String {
        let missing = usize::from(failure == Some(NoResult::NotMade));
        let paper = &catalog.papers[0];
        let section = FigureSection {
            id: paper.id(&paper.figures[0]),
            figure: &paper.figures[0],
            place: "Table I, a part".to_owned(),
            title: "a title".to_owned(),
            remarks: vec!["a `word`".to_owned()],
            command: "traceless sim".to_owned(),
            seconds: 2.25,
            numbers: failure.map_or_else(|| Ok(numbers()), Err),
        };
        Page {
            facts: vec![("processor", "<cpu>".to_owned())],
            is_full: false,
            is_part: true,
            missing: [missing, 1],
            papers: vec![PaperSection { paper, figures: vec![section] }],
            audits: vec![],
            peers_machine: String::new(),
            peers: vec![],
            floors: vec![],
        }
        .to_html()
    }

    /// The page without its scripts.
    fn markup(page: &str) -> String {
        let (before, scripts) = page.split_once("<script>").unwrap();
        let parts = scripts.split("<script>").map(|part| part.split_once("</script>").unwrap().1);
        before.to_owned() + &parts.collect::<String>()
    }

    #[test]
    fn a_page_has_numbers_verdicts_and_tables() {
        let catalog = Catalog::read(&checkout()).unwrap();
        let page = page(&catalog, None);
        let markup = markup(&page);
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert!(markup.contains("gains &lt;much&gt;") && markup.contains("&lt;cpu&gt;"));
        assert!(markup.contains("0 reproduced, 1 not, 0 not judged"), "{markup}");
        assert!(markup.contains("<td class=\"fails\">not reproduced</td>"));
        assert!(markup.contains("too short to judge: short."));
        assert!(markup.contains("<caption>speed &lt;/script&gt; &amp; more</caption>"));
        assert!(markup.contains("a <code>word</code>") && markup.contains("2.2 s"));
        assert!(markup.contains("A quick report.") && markup.contains("<code>--only</code>"));
        let start = page.find("id=\"charts\">").unwrap() + 12;
        let charts = &page[start..][..page[start..].find("</script>").unwrap()];
        let charts: Value = serde_json::from_str(charts).unwrap();
        let chart = &charts["ir-oram/table-1"][0];
        assert_eq!(chart["metric"], "speed </script> & more");
        assert_eq!(
            (&chart["values"][1][0], &chart["marks"][0]["paper"]),
            (&Value::Null, &2.0.into())
        );
    }

    #[test]
    fn a_page_loads_nothing() {
        let page = page(&Catalog::read(&checkout()).unwrap(), None);
        let markup = markup(&page);
        for loads in ["src=", "url(", "@import", "href=\"http", "href=\"/"] {
            assert!(!markup.contains(loads), "{loads}");
        }
        assert!(
            SCRIPTS.iter().all(|script| !script.contains("</script") && !script.contains("<!--"))
        );
    }

    #[test]
    fn what_could_not_be_run_says_why() {
        let catalog = Catalog::read(&checkout()).unwrap();
        let page = |why| page(&catalog, Some(why));
        let failed = page(NoResult::Failed("no <root>".to_owned()));
        assert!(markup(&failed).contains("Could not be run here: no &lt;root&gt;"));
        assert!(failed.contains("id=\"charts\">{}</script>"));
        let early = page(NoResult::NotMade);
        assert!(markup(&early).contains("1 of 1 parts are not made yet."));
        assert!(markup(&early).contains("<p class=\"soft\">Not made yet</p>"));
        assert!(!failed.contains("are not made yet"));
    }

    #[test]
    fn third_party_code_is_what_its_document_says() {
        for (name, code) in [("d3.min.js", SCRIPTS[0]), ("plot.umd.min.js", SCRIPTS[1])] {
            let row = DOCUMENT.lines().find(|line| line.starts_with(&format!("| `{name}`")));
            let digest = hex(&Sha256::digest(code));
            assert!(row.unwrap().contains(&digest), "{name}: {digest}");
        }
        for name in ["d3` 7.9.2", "plot` 0.6.17"] {
            assert!(DOCUMENT.contains(name));
        }
        assert!(LICENCES.iter().all(|(_, text)| text.contains("THE SOFTWARE IS PROVIDED")));
    }
}
