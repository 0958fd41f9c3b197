//! The figures of the last release run in docs/threat-model.md, from the reports of that run.

use crate::Outcome;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const PAGE: &str = "docs/threat-model.md";
const BEGIN: &str = "<!-- release -->";
const END: &str = "<!-- /release -->";

/// The report that `traceless audit --json` prints, as far as it is needed here.
#[derive(Deserialize)]
struct Report {
    schema: String,
    target: String,
    scheme: String,
    level: String,
    claims: Vec<Claim>,
}

#[derive(Deserialize)]
struct Claim {
    name: String,
    verdict: String,
    p: Option<f64>,
    evidence: String,
}

/// Writes these reports into the table of the page. Each replaces an older report of the same
/// audit: a release run of all audits takes days, so it is made in parts.
pub fn run(root: &Path, files: &[&str]) -> Result<Outcome, String> {
    let mut reports = vec![];
    for file in files {
        let failed = |error: &dyn std::fmt::Display| format!("{file}: {error}");
        let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
        let report: Report = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        report.check().map_err(|what| failed(&what))?;
        reports.push(report);
    }
    if reports.is_empty() {
        return Err("name the reports of a release run".to_owned());
    }
    let path = root.join(PAGE);
    let page = std::fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
    std::fs::write(&path, rewritten(&page, &reports)?)
        .map_err(|error| format!("{PAGE}: {error}"))?;
    let fails = |report: &Report| report.claims.iter().any(|claim| !claim.holds());
    Ok(if reports.iter().any(fails) { Outcome::Findings } else { Outcome::Clean })
}

impl Report {
    fn check(&self) -> Result<(), String> {
        match (&*self.schema, &*self.level) {
            ("traceless.audit.v1", "release") => Ok(()),
            ("traceless.audit.v1", level) => Err(format!("its level is {level}, not release")),
            (schema, _) => Err(format!("it is {schema}, not traceless.audit.v1")),
        }
    }

    /// The audit's name, in the first column.
    fn name(&self) -> String {
        format!("{}: {}", self.target, self.scheme)
    }

    fn row(&self) -> String {
        let (planted, claims): (Vec<_>, Vec<_>) =
            self.claims.iter().partition(|claim| claim.name.starts_with("the detector"));
        let hold = |of: &[&Claim]| {
            let hold = of.iter().filter(|claim| claim.holds()).count();
            format!("{hold} of {}", of.len())
        };
        let (judged, exact): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|claim| claim.p.is_some());
        let least = judged.iter().filter_map(|claim| claim.p).reduce(f64::min);
        let least = least.map_or("–".to_owned(), |p| format!("{p:.1e}"));
        let advantage = judged.iter().filter_map(|claim| claim.advantage()).reduce(f64::max);
        let advantage = advantage.map_or("–".to_owned(), |bound| format!("{bound:.4}"));
        format!(
            "| {} | {} | {} | {least} | {advantage} | {} |",
            self.name(),
            hold(&exact),
            hold(&judged),
            hold(&planted)
        )
    }
}

impl Claim {
    fn holds(&self) -> bool {
        self.verdict == "pass"
    }

    /// The bound on the learning machine's advantage, if the claim is about that.
    fn advantage(&self) -> Option<f64> {
        let (_, after) = self.evidence.split_once("an advantage of ")?;
        let (_, bound) = after.split_once("at most ")?;
        bound.split(' ').next()?.parse().ok()
    }
}

/// `page` with rows for these reports between its markers. Rows of other audits stay.
fn rewritten(page: &str, reports: &[Report]) -> Result<String, String> {
    const HEAD: &str = "| audit | exact claims hold | statistical claims hold | least p of those | \
                        advantage of the learning machine, at most | planted faults found, sound \
                        twins clean |\n|---|---|---|---|---|---|\n";
    let missing = || format!("{PAGE} has no {BEGIN} with an {END} after it");
    let (before, rest) = page.split_once(BEGIN).ok_or_else(missing)?;
    let (old, after) = rest.split_once(END).ok_or_else(missing)?;
    let name_of = |row: &str| Some(row.strip_prefix("| ")?.split_once(" | ")?.0.to_owned());
    let old_rows = old.lines().filter_map(|row| Some((name_of(row)?, row.to_owned())));
    let mut rows: BTreeMap<String, String> =
        old_rows.filter(|(name, _)| name.contains(": ")).collect();
    rows.extend(reports.iter().map(|report| (report.name(), report.row())));
    let rows: String = rows.into_values().map(|row| row + "\n").collect();
    Ok(format!("{before}{BEGIN}\n\n{HEAD}{rows}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(level: &str, verdict: &str) -> String {
        let claim = |name: &str, p: &str, evidence: &str| {
            format!(
                "{{\"name\": \"{name}\", \"verdict\": \"{verdict}\", \"p\": {p}, \"statistic\": 1, \
                 \"power\": \"\", \"evidence\": \"{evidence}\"}}"
            )
        };
        let learned = "an advantage of -0.0010, at most 0.0123 with 99.9 % confidence, p = 5e-1";
        let claims = [
            claim("steps look alike", "null", "all"),
            claim("leaves are uniform", "0.25", "seen"),
            claim("by learning", "0.5", learned),
            claim("the detector catches plain", "null", "caught"),
        ];
        format!(
            "{{\"schema\": \"traceless.audit.v1\", \"target\": \"tree\", \"scheme\": \"all\", \
             \"level\": \"{level}\", \"verdict\": \"{verdict}\", \"claims\": [{}]}}",
            claims.join(", ")
        )
    }

    const OLD: &str = "| audit | old head |\n|---|\n| tree: all | OLD |\n| sim: kept | row |\n";

    /// Runs the command on `report` and a page with an old table.
    fn written(report: &str) -> (Result<Outcome, String>, String) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("docs")).expect("folder");
        let page = folder.path().join(PAGE);
        std::fs::write(&page, format!("before\n{BEGIN}\n{OLD}\n{END}\nafter\n")).expect("page");
        let file = folder.path().join("tree.json");
        std::fs::write(&file, report).expect("report");
        let outcome = run(folder.path(), &[file.to_str().expect("a name")]);
        (outcome, std::fs::read_to_string(&page).expect("page"))
    }

    #[test]
    fn a_report_becomes_a_row() {
        let (outcome, page) = written(&report("release", "pass"));
        assert_eq!(outcome, Ok(Outcome::Clean));
        let row = "| tree: all | 1 of 1 | 2 of 2 | 2.5e-1 | 0.0123 | 1 of 1 |\n\n<!-- /release -->";
        assert!(page.contains(row) && !page.contains("OLD"), "{page}");
        assert!(page.contains("---|\n| sim: kept | row |\n| tree: all |"), "{page}");
        assert!(!page.contains("old head"), "{page}");
        assert!(page.starts_with("before\n") && page.ends_with("\nafter\n"), "{page}");
        let (outcome, page) = written(&report("release", "leak"));
        assert_eq!(outcome, Ok(Outcome::Findings));
        assert!(page.contains("| 0 of 1 | 0 of 2 |"), "{page}");
    }

    #[test]
    fn what_is_no_release_run_is_refused() {
        for report in [report("ci", "pass"), "{}".to_owned(), String::new()] {
            let (outcome, page) = written(&report);
            assert!(outcome.is_err() && page.contains("OLD"), "{report}");
        }
        assert!(run(Path::new("/"), &[]).is_err());
        assert!(rewritten("no markers", &[]).is_err());
    }
}
