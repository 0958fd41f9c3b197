//! Why an experiment fails.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// The reasons for which an experiment fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of an experiment is not valid.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A workload cannot be opened.
    #[error(transparent)]
    Workload(#[from] crate::Error),
    /// A simulation failed.
    #[error("{workload}: {source}")]
    Simulation {
        /// The workload that was simulated.
        workload: String,
        /// The cause.
        source: crate::Error,
    },
    /// No scheme has that name.
    #[error("there is no scheme `{name}`; there are {known}")]
    NoScheme {
        /// The requested name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The memory is known by its bandwidth, without a bus.
    #[error("a memory known by its bandwidth has no commands to check")]
    NoCommands,
    /// A command on the memory's bus breaks a constraint: the simulator is wrong.
    #[error("{what}")]
    Breach {
        /// The command, and the constraint.
        what: String,
    },
    /// No run of an experiment has the requested number.
    #[error("there are runs 0 to {last}")]
    NoRun {
        /// The number of the last run.
        last: usize,
    },
    /// The result of a run was removed after the run was made.
    #[error("the result {key} has gone")]
    MissingResult {
        /// The key of the run.
        key: String,
    },
    /// A result is not what was stored.
    #[error("{}: it is damaged: {what}", path.display())]
    Damage {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A folder that should hold a shard has no record of one.
    #[error(
        "{}: no shard lies here; `traceless sim sweep` leaves one with --shard I/N and this folder \
         as --out", folder.display()
    )]
    NoShard {
        /// The folder.
        folder: PathBuf,
    },
    /// A shard is none of the sweep that it should be joined to.
    #[error(
        "{}: it is a shard of another sweep: {what}; leave it out, or give the files and options \
         that it was made with", path.display()
    )]
    ForeignShard {
        /// The record of the shard.
        path: PathBuf,
        /// What is different.
        what: String,
    },
    /// Two results of one run differ, although a result follows from its input alone.
    #[error(
        "{run}: two results differ, which the same input must not give: {} and {}; the simulator \
         or a computer is broken: make the run again on both", paths[0].display(),
        paths[1].display()
    )]
    Contradiction {
        /// The run.
        run: String,
        /// The files of both results.
        paths: [PathBuf; 2],
    },
    /// Results are missing or damaged.
    #[error("the sweep is not complete:{}", lines(gaps))]
    Incomplete {
        /// Which, and how to make them.
        gaps: Vec<Gap>,
    },
    /// The user interrupted the runs.
    #[error("interrupted; what is finished is kept")]
    Interrupted,
    /// A value cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A table cannot be written as Parquet.
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// Results that a sweep lacks.
#[derive(Debug)]
pub struct Gap {
    /// Which results, and why.
    pub what: String,
    /// Whether the results are there, but damaged.
    pub is_damage: bool,
    /// The command that makes them.
    pub command: String,
}

fn lines(gaps: &[Gap]) -> String {
    let line = |Gap { what, command, .. }: &Gap| format!("\n{what}; make it: {command}");
    gaps.iter().map(line).collect::<Vec<_>>().concat()
}

impl Error {
    /// Whether the simulator is wrong, or results contradict each other or are damaged.
    pub fn is_finding(&self) -> bool {
        match self {
            Self::Breach { .. } | Self::Damage { .. } | Self::Contradiction { .. } => true,
            Self::Incomplete { gaps } => gaps.iter().any(|gap| gap.is_damage),
            _ => false,
        }
    }

    /// Whether a file or device failed, so that the experiment itself may be valid.
    pub fn is_io(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            Self::Workload(source) | Self::Simulation { source, .. } => {
                matches!(source, crate::Error::Io { .. })
            }
            _ => false,
        }
    }

    /// An error in the file at `path`.
    pub fn invalid(path: &Path, what: &dyn Display) -> Self {
        // Messages of the TOML parser end with an empty line.
        let what = what.to_string().trim_end().to_owned();
        Self::File { path: path.to_owned(), what }
    }

    /// An error of reading or writing the file at `path`.
    pub(super) fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }
}

/// Shorthand for results of experiments.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;
