//! Files that hold traces, as the command line names them, and what becomes of their errors.

use super::outcome::{NOT_WHAT_IT_SHOULD_BE, Outcome};
use crate::args::audit::SourceArgs;
use std::path::Path;
use traceless_audit::{FileFormat, ReadOptions, Recording, RecordingError};

/// Opens the file at `path`.
pub(super) fn open(path: &Path, args: &SourceArgs) -> Result<Recording, Outcome> {
    Ok(Recording::open(path, options(args))?)
}

/// How the command line says that files are read.
pub(super) fn options(args: &SourceArgs) -> ReadOptions {
    let format = args.format.as_deref();
    let format = format.map(|name| FileFormat::named(name).expect("clap has checked"));
    ReadOptions { format, prefix: args.prefix }
}

impl From<RecordingError> for Outcome {
    fn from(error: RecordingError) -> Self {
        match error {
            RecordingError::Io { path, error } => Self::file_error(&path, &error),
            error => Self::error(NOT_WHAT_IT_SHOULD_BE, &error.to_string()),
        }
    }
}
