//! Errors with causes outside this crate. The crate's own bugs are assertions, never errors.
//!
//! ```
//! use traceless_sim::Error;
//! use traceless_sim::machine::Machine;
//! use traceless_sim::workload::named;
//!
//! let mut machine = Machine::FOUR_CHANNELS;
//! machine.processor.rob = 0;
//! assert!(matches!(machine.check(), Err(Error::Range { field: "processor.rob", value: 0, .. })));
//!
//! let unknown = named("table-2/none", 100, 1).err().expect("no benchmark has the name");
//! assert!(unknown.to_string().starts_with("no workload is called"));
//! ```

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The reasons for which a simulation fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A workload cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A record of a workload is not valid in its format.
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
        /// Why it is none.
        what: &'static str,
    },
    /// A line of a text is not valid in its format.
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
    /// A made-up workload has impossible parameters.
    #[error("impossible workload: {0}")]
    Synthetic(&'static str),
    /// No workload has that name.
    #[error("no workload is called {name:?}: {what}")]
    Name {
        /// The requested name.
        name: String,
        /// The reason.
        what: String,
    },
    /// A number of a machine is out of its range.
    #[error("impossible machine: `{field}` is {value}, and can be {least} to {most}")]
    Range {
        /// The path of the number in the machine's file.
        field: &'static str,
        /// The value of the number.
        value: u64,
        /// The least value that it can have.
        least: u64,
        /// The greatest value that it can have.
        most: u64,
    },
    /// A memory's configuration is impossible.
    #[error("impossible memory: {0}")]
    Memory(&'static str),
    /// A cache's configuration is impossible.
    #[error("impossible cache: {0}")]
    Cache(&'static str),
    /// An oblivious memory's configuration is impossible.
    #[error("impossible oblivious memory: {0}")]
    Oram(&'static str),
    /// A scheme refused a request, or failed.
    #[error(transparent)]
    Scheme(#[from] traceless::Error),
    /// A program cannot be recorded.
    #[cfg(feature = "record")]
    #[error("{0}")]
    NotRecorded(String),
    /// A recording was interrupted, and is not kept.
    #[cfg(feature = "record")]
    #[error("interrupted")]
    Interrupted,
    /// A processor's configuration is impossible.
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
