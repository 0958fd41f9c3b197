//! The work of a memory, all channels together.

use super::config::Config;
use super::energy::Energy;
use super::power::Power;
use super::stats::ChannelStats;
use crate::workload::LINE_LEN;
use serde::Serialize;

/// The work of all channels.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Lines read, without the merged ones.
    pub reads: u64,
    /// Lines written.
    pub writes: u64,
    /// Requests that were merged with one that waited.
    pub merged: u64,
    /// Rows opened.
    pub activations: u64,
    /// Share of the requests that found their row open; 0 if more rows were opened than were used.
    pub row_hits: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Share of the time that the buses carried data.
    pub utilisation: f64,
    /// Energy in pJ; none if the currents of the chips are not known.
    pub energy: Option<Energy>,
    /// The energy of all parts together.
    pub picojoules: Option<f64>,
    /// The energy for each bit moved.
    pub picojoules_per_bit: Option<f64>,
    /// The average power over the whole time.
    pub milliwatts: Option<f64>,
}

impl Summary {
    /// Sums up the channels of a memory until `end`.
    pub fn new(config: &Config, channels: &[ChannelStats], end: u64) -> Self {
        let sum = |of: fn(&ChannelStats) -> u64| channels.iter().map(of).sum::<u64>();
        let (reads, writes) = (sum(|c| c.reads.served), sum(|c| c.writes.served));
        let activations = sum(|c| c.reads.activations + c.writes.activations);
        let lines = reads + writes;
        let bytes = lines * LINE_LEN;
        let data = (lines * config.timing.data * config.clock_ratio) as f64;
        let of_one = |power: Power| {
            let add = |all: Energy, one| all.and(power.energy(config, one, end));
            channels.iter().fold(Energy::default(), add)
        };
        let energy = config.power.map(of_one);
        let picojoules = energy.map(|energy| energy.total());
        let nanoseconds = config.power.map(|power| {
            end as f64 / config.clock_ratio as f64 * f64::from(power.cycle_ps) / 1000.0
        });
        Self {
            reads,
            writes,
            merged: sum(|c| c.reads.merged + c.writes.merged),
            activations,
            row_hits: lines.saturating_sub(activations) as f64 / lines.max(1) as f64,
            bytes,
            utilisation: data / (end.max(1) * channels.len().max(1) as u64) as f64,
            energy,
            picojoules,
            picojoules_per_bit: picojoules.map(|all| all / (bytes * 8).max(1) as f64),
            milliwatts: picojoules.zip(nanoseconds).map(|(all, time)| all / time.max(1.0)),
        }
    }
}
