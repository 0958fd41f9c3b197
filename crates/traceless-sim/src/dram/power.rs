//! What the chips of a memory draw, from the currents on their data sheets, as Micron's technical
//! note TN-41-01 adds them up: standby, activations, bursts, refreshes. What drivers and
//! terminations of the bus draw depends on the board, and is left out.

use super::config::{Config, Timing};
use super::stats::ChannelStats;
use crate::error::{Result, within};
use serde::{Deserialize, Serialize};

/// The chips of a rank. Currents are in mA, with their names on data sheets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Chips of a rank.
    pub chips: u32,
    /// Supply, in mV.
    pub millivolts: u32,
    /// A cycle of the DRAM's clock, in ps.
    pub cycle_ps: u32,
    /// One bank is activated and precharged, as often as it may be.
    pub idd0: u32,
    /// Standby, all banks precharged.
    pub idd2n: u32,
    /// Standby, a bank open.
    pub idd3n: u32,
    /// Reading all the time.
    pub idd4r: u32,
    /// Writing all the time.
    pub idd4w: u32,
    /// Refreshing all the time.
    pub idd5: u32,
}

/// Energy, in pJ.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Energy {
    /// Of standing by.
    pub standby: f64,
    /// Of opening and closing rows.
    pub activate: f64,
    /// Of reading lines.
    pub read: f64,
    /// Of writing them.
    pub write: f64,
    /// Of refreshing.
    pub refresh: f64,
}

const CURRENT_MAX: u64 = 100_000;
const CHIPS_MAX: u64 = 1024;

impl Power {
    /// DDR3-1600, four chips of 1 Gb and 16 bits.
    pub const DDR3_1GB_X16: Self = Self {
        chips: 4,
        millivolts: 1500,
        cycle_ps: 1250,
        idd0: 120,
        idd2n: 70,
        idd3n: 67,
        idd4r: 250,
        idd4w: 250,
        idd5: 260,
    };

    /// DDR3-1600, sixteen chips of 1 Gb and 4 bits.
    pub const DDR3_1GB_X4: Self = Self {
        chips: 16,
        idd0: 70,
        idd2n: 45,
        idd3n: 45,
        idd4r: 140,
        idd4w: 145,
        idd5: 170,
        ..Self::DDR3_1GB_X16
    };

    /// Refuses what no chip draws.
    pub fn check(&self) -> Result {
        let Self { chips, millivolts, cycle_ps, idd0, idd2n, idd3n, idd4r, idd4w, idd5 } = *self;
        within("memory.power.chips", chips.into(), 1..=CHIPS_MAX)?;
        // Who works draws no less than who stands by.
        let open = idd3n.into();
        for (field, value, least) in [
            ("memory.power.millivolts", millivolts, 1),
            ("memory.power.cycle_ps", cycle_ps, 1),
            ("memory.power.idd2n", idd2n, 1),
            ("memory.power.idd3n", idd3n, 1),
            ("memory.power.idd0", idd0, u64::from(idd2n.max(idd3n))),
            ("memory.power.idd4r", idd4r, open),
            ("memory.power.idd4w", idd4w, open),
            ("memory.power.idd5", idd5, open),
        ] {
            within(field, value.into(), least..=CURRENT_MAX)?;
        }
        Ok(())
    }

    /// What a channel drew until `end`, in cycles of the processor.
    pub fn energy(&self, config: &Config, stats: &ChannelStats, end: u64) -> Energy {
        let Timing { rc, ras, data, refi, rfc, .. } = config.timing;
        // So many mA in all chips of a rank for so many cycles of the DRAM.
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
        // What a row cycle takes beyond standing by, open for so long and closed for the rest.
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
    /// All of it.
    pub fn total(&self) -> f64 {
        self.standby + self.activate + self.read + self.write + self.refresh
    }

    /// Both.
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

    /// By hand, for two ranks of four chips at 1.5 V, 78,000 cycles of 1.25 ns; one mA is then
    /// 1.5 mW a chip, 6 mW a rank, and 7.5 pJ a cycle of a rank.
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

    #[test]
    fn impossible_chips_are_refused() {
        let right = Power::DDR3_1GB_X4;
        right.check().unwrap();
        for wrong in [
            Power { chips: 0, ..right },
            Power { idd0: 0, ..right },
            Power { idd5: u32::MAX, ..right },
            Power { chips: u32::MAX, ..right },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
