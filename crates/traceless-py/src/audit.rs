//! The auditor.

use crate::failure::{Failure, FailureKind, Result};
use crate::json::to_python;
use pyo3::prelude::*;
use std::path::PathBuf;
use traceless_audit::{FileComparison, FileFormat, Format, ReadOptions, RecordingError};

/// Compares two recorded traces, as `traceless audit compare --json` does: do they reveal anything
/// of their users? Traces that differ, but look drawn at random, are judged by statistics.
///
/// a, b: files of recorded events.
/// secret_a, secret_b: the requests behind them: do the events depend on them?
/// equal: do not judge differences by statistics.
/// reads, times, exact_order: compare these, too; the traces must then be equal.
/// format: the tool that made the recordings, if it is not detected: "trace", "blkparse",
///     "bpftrace", "s3", "redis" or "page-faults".
/// prefix: take the whole events of a trace that is cut or damaged.
///
/// Returns a dictionary in the schema "traceless.audit.compare.v1" (docs/json.md): its `verdict` is
/// "pass", "leak" or "unknown", `first_difference` says where the traces part, and each of `claims`
/// has a `name`, a `verdict`, and its `evidence`.
#[pyfunction]
#[pyo3(signature = (
    a, b, *, secret_a = None, secret_b = None, equal = false, reads = false, times = false,
    exact_order = false, format = None, prefix = false,
))]
#[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
#[expect(clippy::fn_params_excessive_bools, reason = "each is an option by itself")]
pub fn compare_traces<'py>(
    py: Python<'py>,
    a: PathBuf,
    b: PathBuf,
    secret_a: Option<PathBuf>,
    secret_b: Option<PathBuf>,
    equal: bool,
    reads: bool,
    times: bool,
    exact_order: bool,
    format: Option<&str>,
    prefix: bool,
) -> Result<Bound<'py, PyAny>> {
    if (secret_a.is_some() || secret_b.is_some()) && (equal || reads || times || exact_order) {
        let message = "secrets are judged by statistics: they go without `equal`, `reads`, `times` \
                       and `exact_order`";
        return Err(Failure::usage(message));
    }
    let format = format.map(format_named).transpose()?;
    let options = ReadOptions { format, prefix };
    let files =
        FileComparison { a, b, options, secret_a, secret_b, equal, reads, times, exact_order };
    let report = py.detach(|| files.judge())?;
    to_python(py, &report)
}

fn format_named(name: &str) -> Result<FileFormat> {
    FileFormat::named(name).ok_or_else(|| {
        let tools = Format::ALL.map(Format::name).join(", ");
        Failure::usage(format!("there is no format `{name}`; there are trace, {tools}"))
    })
}

impl From<RecordingError> for Failure {
    fn from(error: RecordingError) -> Self {
        match &error {
            RecordingError::Trace { path, error } => Self::trace(path, error),
            _ => Self::Kind(FailureKind::File, error.to_string()),
        }
    }
}
