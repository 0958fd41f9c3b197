//! What the world can do to us. Our own bugs are assertions, never errors.

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Everything that can go wrong in a simulation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A workload cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A workload says something else than workloads of its format do.
    #[error("{}, record {record}: {what}", path.display())]
    Workload {
        /// The file.
        path: PathBuf,
        /// The record, from 1 on.
        record: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A file is no workload.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        what: &'static str,
    },
    /// A line of a text says something else than lines of its format do.
    #[error("{}, line {line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A packed workload has no mark at its end.
    #[error(
        "{}: it is cut short after {records} operations: copy it anew, or record it again",
        path.display()
    )]
    CutShort {
        /// The file.
        path: PathBuf,
        /// Whole operations that are there.
        records: u64,
    },
    /// There is nothing to simulate.
    #[error("no operation is left to be timed: workloads are empty, or end before caches are warm")]
    Nothing,
    /// No workload is made up like that.
    #[error("impossible workload: {0}")]
    Synthetic(&'static str),
    /// No workload has that name.
    #[error("no workload is called {name:?}: {what}")]
    Name {
        /// What was asked for.
        name: String,
        /// Why not.
        what: String,
    },
    /// A number of a machine is not one that it can have.
    #[error("impossible machine: `{field}` is {value}, and can be {least} to {most}")]
    Range {
        /// The number, by the way to it in a file.
        field: &'static str,
        /// What it is.
        value: u64,
        /// What it is at least.
        least: u64,
        /// What it is at most.
        most: u64,
    },
    /// No memory is like that.
    #[error("impossible memory: {0}")]
    Memory(&'static str),
    /// No cache is like that.
    #[error("impossible cache: {0}")]
    Cache(&'static str),
    /// No oblivious memory is like that.
    #[error("impossible oblivious memory: {0}")]
    Oram(&'static str),
    /// A scheme refused, or failed.
    #[error(transparent)]
    Scheme(#[from] traceless::Error),
    /// No processor is like that.
    #[error("impossible processor: {0}")]
    Processor(&'static str),
}

/// Refuses a number of a machine that is not in its range.
pub(crate) fn within(field: &'static str, value: u64, range: RangeInclusive<u64>) -> Result {
    let (least, most) = range.into_inner();
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::Range { field, value, least, most })
}

/// Shorthand for results of this crate.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;
