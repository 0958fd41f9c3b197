//! The input of a simulation run, from which its result follows.

use super::calculated::Overheads;
use serde::Serialize;
use traceless_sim::machine::Machine;

/// Must change whenever the same input gives another result, so that results of different
/// simulators are never mixed.
pub const RESULTS_VERSION: u32 = 5;

/// The whole input of a run.
#[derive(Serialize)]
pub struct Input {
    pub version: u32,
    pub machine: Machine,
    pub workload: String,
    /// A digest of the workload's file, if it is a file.
    pub content: Option<String>,
    pub seed: u64,
    pub warm_up: u64,
    pub records: u64,
    pub in_misses: bool,
    /// A calculation that takes the place of a simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overheads: Option<Overheads>,
}
