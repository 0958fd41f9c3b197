//! The energy that the chips of a memory draw, from the currents on their data sheets, added up as
//! in Micron's technical note TN-41-01: standby, activations, bursts, refreshes. The energy of
//! drivers and terminations of the bus depends on the board, and is left out.

use super::config::{Config, Timing};
use super::power::Power;
use super::stats::ChannelStats;
use serde::Serialize;

/// Energy, in pJ.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Energy {
    /// Standing by.
    pub standby: f64,
    /// Opening and closing rows.
    pub activate: f64,
    /// Reading lines.
    pub read: f64,
    /// Writing lines.
    pub write: f64,
    /// Refreshing.
    pub refresh: f64,
}

impl Power {
    /// What a channel drew until `end`, in cycles of the processor.
    pub fn energy(&self, config: &Config, stats: &ChannelStats, end: u64) -> Energy {
        let Timing { rc, ras, data, refi, rfc, .. } = config.timing;
        // The energy of a current in all chips of a rank for some cycles of the DRAM.
        let drawn = |milliamperes: f64, cycles: f64| {
            let milliwatts = milliamperes * f64::from(self.millivolts) / 1000.0;
            milliwatts * f64::from(self.chips) * cycles * f64::from(self.cycle_ps) / 1000.0
        };
        let [cycling, closed, open, reading, writing, refreshing] =
            [self.idd0, self.idd2n, self.idd3n, self.idd4r, self.idd4w, self.idd5].map(f64::from);
        let ranks = f64::from(config.geometry.ranks);
        let ratio = config.clock_ratio as f64;
        let all = ranks * end as f64 / ratio;
        let active = stats.active as f64 / ratio;
        let refresh_cycles = all / refi as f64 * rfc as f64;
        let (rc, ras) = (rc as f64, ras as f64);
        // What a row cycle draws beyond standby, with the row open for `ras` and closed for the
        // rest.
        let row = drawn(cycling, rc) - drawn(open, ras) - drawn(closed, rc - ras);
        let burst = |current: f64, lines: u64| drawn(current - open, (lines * data) as f64);
        Energy {
            standby: drawn(open, active) + drawn(closed, all - active),
            activate: row * (stats.reads.activations + stats.writes.activations) as f64,
            read: burst(reading, stats.reads.served),
            write: burst(writing, stats.writes.served),
            refresh: drawn(refreshing - open, refresh_cycles),
        }
    }
}

impl Energy {
    /// The sum of all parts.
    pub fn total(&self) -> f64 {
        self.standby + self.activate + self.read + self.write + self.refresh
    }

    /// The sum of two energies, part by part.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            standby: self.standby + other.standby,
            activate: self.activate + other.activate,
            read: self.read + other.read,
            write: self.write + other.write,
            refresh: self.refresh + other.refresh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stats::OpStats;
    use super::*;

    /// Calculated by hand, for two ranks of four chips at 1.5 V, 78,000 cycles of 1.25 ns; one mA
    /// is then 1.5 mW a chip, 6 mW a rank, and 7.5 pJ a cycle of a rank.
    #[test]
    fn energy_is_what_it_is_by_hand() {
        let config = Config::FOUR_CHANNELS;
        let of = |served, activations| OpStats { served, activations, ..OpStats::default() };
        // A rank's rows are open for 30,000 cycles of the DRAM.
        let stats = ChannelStats { reads: of(100, 10), writes: of(50, 5), active: 120_000 };
        let energy = Power::DDR3_1GB_X16.energy(&config, &stats, 4 * 78_000);
        let is = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-3, "{value}");
        // 67 mA for 30,000 cycles, 70 mA for 126,000.
        is(energy.standby, 7.5 * (67.0 * 30_000.0 + 70.0 * 126_000.0));
        // 120 mA for 39 cycles, less 67 mA for 28 and 70 mA for 11: 2034 mA cycles.
        is(energy.activate, 15.0 * 7.5 * 2034.0);
        is(energy.read, 7.5 * 183.0 * 400.0);
        is(energy.write, 7.5 * 183.0 * 200.0);
        // Each rank refreshes 12.5 times for 88 cycles.
        is(energy.refresh, 7.5 * 193.0 * 2.0 * 12.5 * 88.0);
        is(energy.total(), 81_225_000.0 + 228_825.0 + 549_000.0 + 274_500.0 + 3_184_500.0);
    }
}
