//! Files that hold recorded events: traces, and what other tools recorded.

use crate::import::{Format, ImportError, ImportReader};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use traceless_core::trace::{Event, Request, SecretReader, TRACE_MAGIC, TraceError, TraceReader};

/// Bytes at the beginning of a file from which the format is detected.
const BEGINNING: u64 = 1 << 16;

/// The form of a file of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// A trace file.
    Trace,
    /// The recording of another tool.
    Tool(Format),
}

impl FileFormat {
    /// The format called `name`: `trace`, or the name of a [`Format`].
    pub fn named(name: &str) -> Option<Self> {
        if name == "trace" { Some(Self::Trace) } else { Format::named(name).map(Self::Tool) }
    }
}

/// How to read a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadOptions {
    /// The format; if none is given, it is detected from the first lines.
    pub format: Option<FileFormat>,
    /// Whether the events end at the first damage of a trace file, instead of an error.
    pub prefix: bool,
}

/// The events of a file.
pub struct Recording {
    path: PathBuf,
    reader: EventReader,
    prefix: bool,
}

enum EventReader {
    Trace(TraceReader<File>),
    Tool(ImportReader<BufReader<File>>),
}

impl Recording {
    /// Opens the file at `path`.
    pub fn open(path: &Path, options: ReadOptions) -> Result<Self, RecordingError> {
        let failed = |error| RecordingError::Io { path: path.to_owned(), error };
        let mut file = File::open(path).map_err(failed)?;
        let tool = match options.format {
            Some(FileFormat::Trace) => None,
            Some(FileFormat::Tool(format)) => Some(format),
            None => detected(&mut file).map_err(failed)?,
        };
        let reader = if let Some(format) = tool {
            EventReader::Tool(ImportReader::new(BufReader::new(file), format))
        } else {
            let trace = TraceReader::new(file).map_err(|error| RecordingError::trace(path, error));
            EventReader::Trace(trace?)
        };
        Ok(Self { path: path.to_owned(), reader, prefix: options.prefix })
    }
}

impl Iterator for Recording {
    type Item = Result<Event, RecordingError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.reader {
            EventReader::Trace(trace) => match trace.next()? {
                Ok(event) => Some(Ok(event)),
                Err(TraceError::Cut { .. } | TraceError::Damaged { .. }) if self.prefix => None,
                Err(error) => Some(Err(RecordingError::trace(&self.path, error))),
            },
            EventReader::Tool(tool) => {
                Some(tool.next()?.map_err(|error| RecordingError::tool(&self.path, error)))
            }
        }
    }
}

/// The requests in the file of secrets at `path`.
pub fn secrets(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Request, RecordingError>> + use<>, RecordingError> {
    let path = path.to_owned();
    let file = File::open(&path);
    let file = file.map_err(|error| RecordingError::Io { path: path.clone(), error })?;
    let reader = SecretReader::new(file).map_err(|error| RecordingError::trace(&path, error))?;
    Ok(reader.map(move |request| request.map_err(|error| RecordingError::trace(&path, error))))
}

/// The tool that recorded a file that is no trace file. A file of no known format counts as a trace
/// file, and is refused when it is read.
fn detected(file: &mut File) -> io::Result<Option<Format>> {
    let mut beginning = vec![];
    file.by_ref().take(BEGINNING).read_to_end(&mut beginning)?;
    file.rewind()?;
    let is_trace = beginning.starts_with(&TRACE_MAGIC);
    Ok(if is_trace { None } else { Format::detect(&beginning) })
}

/// A recording that cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file could not be opened or read.
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file is no sound trace file.
    Trace {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        error: TraceError,
    },
    /// A line is not valid in the format of its tool.
    Tool {
        /// The file.
        path: PathBuf,
        /// What is wrong with the line.
        error: ImportError,
    },
}

impl RecordingError {
    fn trace(path: &Path, error: TraceError) -> Self {
        let path = path.to_owned();
        match error {
            TraceError::Io(error) => Self::Io { path, error },
            error => Self::Trace { path, error },
        }
    }

    fn tool(path: &Path, error: ImportError) -> Self {
        let path = path.to_owned();
        match error {
            ImportError::Io(error) => Self::Io { path, error },
            error @ ImportError::Line { .. } => Self::Tool { path, error },
        }
    }
}

impl core::fmt::Display for RecordingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Trace { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Tool { path, error } => write!(f, "{}, {error}", path.display()),
        }
    }
}

impl core::error::Error for RecordingError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Trace { error, .. } => Some(error),
            Self::Tool { error, .. } => Some(error),
        }
    }
}
