//! Files that hold traces, recorded by this program or by another tool.

use super::outcome::{NOT_WHAT_IT_SHOULD_BE, Outcome};
use crate::args::audit::SourceArgs;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;
use traceless_audit::{Format, ImportError, ImportReader};
use traceless_core::trace::{Event, Request, SecretReader, TRACE_MAGIC, TraceError, TraceReader};

/// Bytes at the beginning of a file from which the format is detected.
const BEGINNING: u64 = 1 << 16;

/// The events of a file.
pub(super) struct Source<'a> {
    path: &'a Path,
    reader: Reader,
    /// Whether the events end at the first damage of a trace file, instead of an error.
    prefix: bool,
}

enum Reader {
    Trace(TraceReader<File>),
    Outside(ImportReader<BufReader<File>>),
}

impl<'a> Source<'a> {
    pub fn open(path: &'a Path, args: &SourceArgs) -> Result<Self, Outcome> {
        let failed = |error| Outcome::file_error(path, &error);
        let mut file = File::open(path).map_err(failed)?;
        let outside = match args.format.as_deref() {
            Some(name) => Format::named(name),
            None => detected(&mut file).map_err(failed)?,
        };
        let reader = match outside {
            Some(format) => Reader::Outside(ImportReader::new(BufReader::new(file), format)),
            None => Reader::Trace(TraceReader::new(file).map_err(|error| refused(path, error))?),
        };
        Ok(Self { path, reader, prefix: args.prefix })
    }
}

impl Iterator for Source<'_> {
    type Item = Result<Event, Outcome>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.reader {
            Reader::Trace(trace) => match trace.next()? {
                Ok(event) => Some(Ok(event)),
                Err(TraceError::Cut { .. } | TraceError::Damaged { .. }) if self.prefix => None,
                Err(error) => Some(Err(refused(self.path, error))),
            },
            Reader::Outside(outside) => {
                Some(outside.next()?.map_err(|error| refused_outside(self.path, error)))
            }
        }
    }
}

/// The requests in a file of secrets.
pub(super) fn secrets(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Request, Outcome>>, Outcome> {
    let refused = move |error| refused(path, error);
    let file = File::open(path).map_err(|error| Outcome::file_error(path, &error))?;
    Ok(SecretReader::new(file).map_err(refused)?.map(move |request| request.map_err(refused)))
}

/// The format of a file that is no trace file. A file of no known format counts as a trace file,
/// and is refused when it is read.
fn detected(file: &mut File) -> std::io::Result<Option<Format>> {
    let mut beginning = vec![];
    file.by_ref().take(BEGINNING).read_to_end(&mut beginning)?;
    file.rewind()?;
    let is_trace = beginning.starts_with(&TRACE_MAGIC);
    Ok(if is_trace { None } else { Format::detect(&beginning) })
}

fn refused(path: &Path, error: TraceError) -> Outcome {
    match error {
        TraceError::Io(error) => Outcome::file_error(path, &error),
        error => Outcome::error(NOT_WHAT_IT_SHOULD_BE, &format!("{}: {error}", path.display())),
    }
}

fn refused_outside(path: &Path, error: ImportError) -> Outcome {
    match error {
        ImportError::Io(error) => Outcome::file_error(path, &error),
        error => Outcome::error(NOT_WHAT_IT_SHOULD_BE, &format!("{}, {error}", path.display())),
    }
}
