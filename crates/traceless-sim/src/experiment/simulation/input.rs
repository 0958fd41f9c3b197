//! The input of a simulation run, from which its result follows.

use super::overheads::Overheads;
use crate::machine::Machine;
use serde::Serialize;

/// Must change whenever the same input gives another result, so that results of different
/// simulators are never mixed.
pub const RESULTS_VERSION: u32 = 5;

/// The whole input of a run.
#[derive(Serialize)]
pub struct Input {
    /// [`RESULTS_VERSION`].
    pub version: u32,
    /// The machine, with all defaults filled in.
    pub machine: Machine,
    /// The name of the workload.
    pub workload: String,
    /// A digest of the workload's file, if it is a file.
    pub content: Option<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Records before the timed ones, which only fill caches.
    pub warm_up: u64,
    /// Records that are timed.
    pub records: u64,
    /// Whether `records` and `warm_up` count only records that miss the last cache.
    pub in_misses: bool,
    /// A calculation that takes the place of a simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overheads: Option<Overheads>,
}
