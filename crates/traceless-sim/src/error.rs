//! What the world can do to us. Our own bugs are assertions, never errors.

use std::io;
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

/// Shorthand for results of this crate.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;
