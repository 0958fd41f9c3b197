//! Programs by name: this project's and unmodified ones of Debian packages, with their inputs.

use super::programs::PROGRAMS;
use crate::report::failed;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use traceless::rng::{Rng, SeededRng};
use traceless_cli::failure::Failure;

/// The system's Python: another one earlier in PATH may be a script that forks.
const PYTHON: &str = "/usr/bin/python3";

/// Clauses for each variable, in thousandths: about the limit of satisfiability.
const CLAUSES_PER_THOUSAND: u64 = 4200;

/// A program, its arguments and its input.
pub struct ProgramInput {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// The file for its standard input.
    pub input: Option<PathBuf>,
}

/// The names of all programs.
pub fn names() -> Vec<&'static str> {
    let own = PROGRAMS.iter().map(|program| program.name);
    own.chain(["picosat", "sqlite", "python"]).collect()
}

/// The program of this name; its input files are written to `folder`.
pub fn open(name: &str, size: u64, folder: &Path) -> Result<ProgramInput, Failure> {
    let file = |text: String| {
        let path = folder.join("input");
        std::fs::write(&path, text).map_err(failed)?;
        Ok::<_, Failure>(path)
    };
    Ok(match name {
        "picosat" => ProgramInput {
            program: name.into(),
            arguments: vec![file(formula(size))?.into()],
            input: None,
        },
        "sqlite" => ProgramInput {
            program: "sqlite3".into(),
            arguments: vec![":memory:".into()],
            input: Some(file(query(size))?),
        },
        "python" => ProgramInput {
            program: PYTHON.into(),
            arguments: vec!["-S".into(), "-c".into(), script(size).into()],
            input: None,
        },
        _ => ProgramInput {
            program: std::env::current_exe().map_err(failed)?,
            arguments: vec!["paged-program".into(), name.into(), size.to_string().into()],
            input: None,
        },
    })
}

/// A random formula with three variables in each clause.
fn formula(variables: u64) -> String {
    let variables = variables.max(3);
    let clauses = variables * CLAUSES_PER_THOUSAND / 1000;
    let mut rng = SeededRng::new(1);
    let mut text = format!("p cnf {variables} {clauses}\n");
    for _ in 0..clauses {
        for _ in 0..3 {
            let sign = if rng.below(2) == 0 { "-" } else { "" };
            write!(text, "{sign}{} ", 1 + rng.below(variables)).expect("a string takes all");
        }
        text.push_str("0\n");
    }
    text
}

fn query(rows: u64) -> String {
    format!(
        "create table t(a, b);\n\
         with recursive c(x) as (select 1 union all select x + 1 from c where x < {rows})\n\
         insert into t select x, x * 7919 % 20011 from c;\n\
         create index i on t(b);\n\
         select count(*), sum(t.a * u.a) from t join t u on u.b = t.b + 1;\n"
    )
}

fn script(words: u64) -> String {
    format!(
        "words = [str(n * 7919 % 20011) for n in range({words})]\n\
         counts = {{}}\n\
         for word in words:\n    counts[word[:3]] = counts.get(word[:3], 0) + len(word)\n\
         print(sorted(words)[::100], sorted(counts.items())[:9])"
    )
}
