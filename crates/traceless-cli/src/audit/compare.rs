//! `traceless audit compare`: two trace files.

use super::outcome::{CLEAN, FOUND, NOT_JUDGED, Outcome, json, write_page};
use super::source;
use crate::args::audit::CompareArgs;
use std::path::Path;
use traceless_audit::{
    CompareReport, FileComparison, Page, Picture, UserPoints, Verdict, places_of,
};

pub fn run(args: &CompareArgs) -> Outcome {
    let files = files(args);
    let report = match files.judge() {
        Err(error) => return error.into(),
        Ok(report) => report,
    };
    if let Some(path) = &args.output.html
        && let Err(outcome) = write_pictures(&files, &report, path)
    {
        return outcome;
    }
    let code = match report.verdict {
        Verdict::Pass => CLEAN,
        Verdict::Unknown => NOT_JUDGED,
        Verdict::Leak | Verdict::Fault => FOUND,
    };
    let out = if args.output.json { json(&report) } else { report.text() };
    let mut outcome = Outcome::new(code, out);
    if report.comparison.equal && report.comparison.counts_a.writes == 0 {
        outcome.err.push_str("note: neither trace holds a write, so this shows little\n");
    }
    outcome
}

fn files(args: &CompareArgs) -> FileComparison {
    FileComparison {
        a: args.a.clone(),
        b: args.b.clone(),
        options: source::options(&args.source),
        secret_a: args.secret_a.clone(),
        secret_b: args.secret_b.clone(),
        equal: args.equal,
        reads: args.reads,
        times: args.times,
        exact_order: args.exact_order,
    }
}

/// The verdict as a page, with the accesses of both traces.
fn write_pictures(
    files: &FileComparison,
    report: &CompareReport,
    path: &Path,
) -> Result<(), Outcome> {
    let [a, b] = files.accesses()?;
    let user = |name: &str, path: &Path, places: Vec<u64>| {
        let name = format!("{name}: {}", path.file_name().unwrap_or_default().display());
        UserPoints { name, points: (0..).zip(places).collect() }
    };
    let [of_a, of_b] = places_of(&a, &b);
    let users = [user("A", &files.a, of_a), user("B", &files.b, of_b)];
    let title = "what is accessed: places, numbered as they lie".to_owned();
    let picture = Picture { title, across: "access", up: "place", users };
    let about = report.summary();
    let page = Page {
        title: "two traces",
        verdict: report.verdict,
        about: &about,
        claims: &report.claims,
        pictures: &[picture],
    };
    write_page(&page, path)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::{CLEAN, FAILED, FOUND, NOT_WHAT_IT_SHOULD_BE, Outcome};
    use super::super::tests::outcome;
    use std::path::Path;
    use traceless_core::trace::{Event, Op, Surface, TraceWriter};

    fn trace(path: &Path, events: &[(u64, Op, u64, u32)]) {
        let mut writer = TraceWriter::new(std::fs::File::create(path).unwrap()).unwrap();
        for &(time, op, at, len) in events {
            writer.append(Event { time, surface: Surface::Storage, op, at, len }).unwrap();
        }
        writer.finish().unwrap();
    }

    fn compare(a: &Path, b: &Path, options: &[&str]) -> Outcome {
        let files = [a.to_str().unwrap(), b.to_str().unwrap()];
        outcome(&[&["compare"][..], &files, options].concat())
    }

    #[test]
    fn equal_traces_pass_and_different_ones_name_the_first_difference() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        trace(&a, &[(0, Op::Write, 0, 8192), (1, Op::Read, 0, 1), (2, Op::Sync, 0, 0)]);
        trace(&b, &[(0, Op::Write, 4096, 4096), (9, Op::Write, 0, 4096), (12, Op::Sync, 0, 0)]);
        let equal = compare(&a, &b, &[]);
        assert_eq!((equal.code, equal.out.as_str()), (CLEAN, "equal: 1 write events, 1 syncs\n"));
        for option in ["--exact-order", "--times", "--reads"] {
            let different = compare(&a, &b, &[option]);
            assert_eq!(different.code, FOUND, "{option}");
            assert!(different.out.starts_with("different: item 0, after 0 syncs"), "{option}");
            assert_eq!(compare(&a, &a, &[option]).code, CLEAN);
        }
        let report = compare(&a, &b, &["--exact-order", "--json"]).out;
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["schema"], "traceless.audit.compare.v1");
        assert_eq!(report["equal"], false);
        assert_eq!(report["first_difference"]["in_b"]["at"], 4096);
        assert_eq!(report["first_difference"]["in_a"]["op"], "write");
        assert_eq!(report["counts_b"]["writes"], 2);
    }

    #[test]
    fn an_empty_trace_is_equal_to_itself_with_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        trace(&path, &[]);
        let outcome = compare(&path, &path, &[]);
        assert_eq!(outcome.code, CLEAN);
        assert!(outcome.err.starts_with("note: "), "{outcome:?}");
    }

    #[test]
    fn files_without_a_trace_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
        trace(&good, &[(0, Op::Write, 0, 8192)]);
        let missing = compare(&good, &folder.path().join("missing"), &[]);
        assert_eq!(missing.code, FAILED);
        assert!(missing.err.contains("missing"), "{}", missing.err);
        let whole = std::fs::read(&good).unwrap();
        for bytes in [&b""[..], b"not a trace, but long enough", &whole[..whole.len() - 3]] {
            std::fs::write(&bad, bytes).unwrap();
            for outcome in [compare(&good, &bad, &[]), compare(&bad, &good, &["--exact-order"])] {
                assert_eq!(outcome.code, NOT_WHAT_IT_SHOULD_BE);
                assert!(outcome.err.contains("bad: "), "{}", outcome.err);
                assert!(outcome.out.is_empty());
            }
        }
        assert_eq!(compare(&good, folder.path(), &[]).code, NOT_WHAT_IT_SHOULD_BE);
    }
}
