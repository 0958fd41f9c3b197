//! The configuration of a memory: its parts, and how fast they are.

use super::address::AddressMap;
use super::geometry::Geometry;
use super::power::Power;
use crate::error::{Error, Result, within};
use serde::{Deserialize, Serialize};

/// The least time between commands, in cycles of the DRAM's clock. Fields are named as on data
/// sheets, without the leading t.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// Activation to column command, same bank.
    pub rcd: u64,
    /// Precharge to activation, same bank.
    pub rp: u64,
    /// Read to its first data.
    pub cas: u64,
    /// Activation to activation, same bank.
    pub rc: u64,
    /// Activation to precharge, same bank.
    pub ras: u64,
    /// Activation to activation, other banks of the rank, or of the group.
    pub rrd: u64,
    /// A window in which a rank has at most four activations.
    pub faw: u64,
    /// End of written data to precharge.
    pub wr: u64,
    /// End of written data to read, same rank, or group.
    pub wtr: u64,
    /// Read to precharge.
    pub rtp: u64,
    /// Column command to column command, same rank, or group.
    pub ccd: u64,
    /// Write to its first data.
    pub cwd: u64,
    /// Idle bus between data of two ranks.
    pub rtrs: u64,
    /// Data of a line on the bus.
    pub data: u64,
    /// Average interval of refreshes.
    pub refi: u64,
    /// One refresh.
    pub rfc: u64,
    /// The times that are shorter between two groups of a rank; if none, the times above hold.
    pub apart: Option<Apart>,
}

/// Times between banks of one rank, but of two groups: on data sheets their names end in S.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Apart {
    /// Activation to activation.
    pub rrd: u64,
    /// End of written data to read.
    pub wtr: u64,
    /// Column command to column command.
    pub ccd: u64,
}

impl Timing {
    /// DDR3-1600 with chips of 1 Gb; a cycle is 1.25 ns.
    pub const DDR3_1600_1GB: Self = Self {
        rcd: 11,
        rp: 11,
        cas: 11,
        rc: 39,
        ras: 28,
        rrd: 5,
        faw: 32,
        wr: 12,
        wtr: 6,
        rtp: 6,
        ccd: 4,
        cwd: 5,
        rtrs: 2,
        data: 4,
        refi: 6240,
        rfc: 88,
        apart: None,
    };

    /// DDR3-1600 with chips of 2 Gb.
    pub const DDR3_1600_2GB: Self = Self { rfc: 128, ..Self::DDR3_1600_1GB };

    /// DDR3-1600 with chips of 4 Gb.
    pub const DDR3_1600_4GB: Self = Self { rfc: 208, ..Self::DDR3_1600_1GB };

    /// The times between two groups.
    pub fn apart(&self) -> Apart {
        let Self { rrd, wtr, ccd, .. } = *self;
        self.apart.unwrap_or(Apart { rrd, wtr, ccd })
    }

    /// Refuses times that no chip has.
    fn check(&self) -> Result {
        let least_one = [
            ("memory.timing.rcd", self.rcd),
            ("memory.timing.rp", self.rp),
            ("memory.timing.cas", self.cas),
            ("memory.timing.ras", self.ras),
            ("memory.timing.rrd", self.rrd),
            ("memory.timing.faw", self.faw),
            ("memory.timing.wr", self.wr),
            ("memory.timing.wtr", self.wtr),
            ("memory.timing.rtp", self.rtp),
            ("memory.timing.ccd", self.ccd),
            ("memory.timing.cwd", self.cwd),
            ("memory.timing.data", self.data),
            ("memory.timing.refi", self.refi),
            ("memory.timing.rfc", self.rfc),
        ];
        for (field, time) in least_one {
            within(field, time, 1..=TIME_MAX)?;
        }
        // A bank is not activated again before its row was closed.
        within("memory.timing.rc", self.rc, self.ras..=TIME_MAX)?;
        within("memory.timing.rtrs", self.rtrs, 0..=TIME_MAX)?;
        if let Some(Apart { rrd, wtr, ccd }) = self.apart {
            within("memory.timing.apart.rrd", rrd, 1..=self.rrd)?;
            within("memory.timing.apart.wtr", wtr, 1..=self.wtr)?;
            within("memory.timing.apart.ccd", ccd, 1..=self.ccd)?;
        }
        if REFRESHES_A_WINDOW * self.refi <= self.rp + REFRESHES_A_WINDOW * self.rfc {
            return Err(Error::Memory(
                "it would do nothing but refresh: `memory.timing.refi` is more than `rfc` and an \
                 eighth of `rp`",
            ));
        }
        Ok(())
    }

    /// The same times in cycles of a clock that is `ratio` times as fast.
    #[must_use]
    pub fn times(self, ratio: u64) -> Self {
        Self {
            rcd: self.rcd * ratio,
            rp: self.rp * ratio,
            cas: self.cas * ratio,
            rc: self.rc * ratio,
            ras: self.ras * ratio,
            rrd: self.rrd * ratio,
            faw: self.faw * ratio,
            wr: self.wr * ratio,
            wtr: self.wtr * ratio,
            rtp: self.rtp * ratio,
            ccd: self.ccd * ratio,
            cwd: self.cwd * ratio,
            rtrs: self.rtrs * ratio,
            data: self.data * ratio,
            refi: self.refi * ratio,
            rfc: self.rfc * ratio,
            apart: self.apart.map(|Apart { rrd, wtr, ccd }| Apart {
                rrd: rrd * ratio,
                wtr: wtr * ratio,
                ccd: ccd * ratio,
            }),
        }
    }
}

/// When queued writes are issued before reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WriteDrain {
    /// Writes that a channel's queue holds. Cores fetch nothing while one is full.
    pub capacity: usize,
    /// With more queued writes than this, writes go before reads.
    pub high: usize,
    /// With no more queued writes than this, reads go first again.
    pub low: usize,
}

/// Which of several possible commands is issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// The command of the oldest request with a command that may be issued.
    Fcfs,
    /// The column command of the oldest request with an open row, if one may be issued; else as
    /// `Fcfs`. Rows stay open.
    FrFcfs,
    /// As `FrFcfs`, but a row is closed after this many column commands in a row to its bank:
    /// USIMM's CAPN. With 1 no row is used twice.
    FrFcfsClosing(u32),
}

/// The configuration of a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Channels, ranks, banks, rows and columns.
    pub geometry: Geometry,
    /// Where an address lies.
    pub map: AddressMap,
    /// How fast the memory is, in cycles of its clock.
    pub timing: Timing,
    /// Cycles of the processor in one of the DRAM.
    pub clock_ratio: u64,
    /// When writes go before reads.
    pub drain: WriteDrain,
    /// Which command goes first.
    pub scheduler: Scheduler,
    /// Cycles of the processor until a read has the data of a queued write.
    pub forward: u64,
    /// What the memory's chips draw, if that is known.
    pub power: Option<Power>,
}

impl Config {
    /// USIMM's memory of four channels, 16 GB, for a processor of 3.2 GHz.
    pub const FOUR_CHANNELS: Self = Self {
        geometry: Geometry {
            channels: 4,
            ranks: 2,
            banks: 8,
            groups: 1,
            rows: 32_768,
            columns: 128,
        },
        map: AddressMap::CHANNELS_LAST,
        timing: Timing::DDR3_1600_1GB,
        clock_ratio: 4,
        drain: WriteDrain { capacity: 96, high: 40, low: 20 },
        scheduler: Scheduler::Fcfs,
        forward: 10,
        power: Some(Power::DDR3_1GB_X16),
    };

    /// USIMM's memory of one channel, 4 GB.
    pub const ONE_CHANNEL: Self = Self {
        geometry: Geometry { channels: 1, ..Self::FOUR_CHANNELS.geometry },
        map: AddressMap::COLUMNS_LAST,
        drain: WriteDrain { capacity: 64, ..Self::FOUR_CHANNELS.drain },
        power: Some(Power::DDR3_1GB_X4),
        ..Self::FOUR_CHANNELS
    };

    /// Channels among which neighbouring lines take turns.
    pub fn channels_in_a_row(&self) -> u64 {
        let turns = self.map.0[4] == super::address::Field::Channel;
        if turns { self.geometry.channels.into() } else { 1 }
    }

    /// Refuses values that are out of range or contradict each other.
    pub fn check(&self) -> Result {
        let Geometry { channels, ranks, banks, groups, rows, columns } = self.geometry;
        let parts = [channels, ranks, banks, rows, columns];
        if !parts.into_iter().all(u32::is_power_of_two) {
            return Err(Error::Memory(
                "`memory.geometry`: channels, ranks, banks, rows and columns are powers of two, \
                 1 to 2^31",
            ));
        }
        if !self.map.is_whole() {
            return Err(Error::Memory("`memory.map` has each part of an address once"));
        }
        if !groups.is_power_of_two() || groups > banks {
            return Err(Error::Memory(
                "`memory.geometry.groups` is a power of two, 1 to as many as banks",
            ));
        }
        if let Scheduler::FrFcfsClosing(commands) = self.scheduler {
            within("memory.scheduler.fr-fcfs-closing", commands.into(), 1..=u32::MAX.into())?;
        }
        let bits: u32 = parts.into_iter().map(u32::ilog2).sum();
        if bits > ADDRESS_BITS_MAX {
            return Err(Error::Memory("it has more than 2^52 lines"));
        }
        if ranks.saturating_mul(banks).saturating_mul(channels) > BANKS_MAX {
            return Err(Error::Memory("it has more than 2^16 banks"));
        }
        self.timing.check()?;
        within("memory.forward", self.forward, 0..=TIME_MAX)?;
        within("memory.clock_ratio", self.clock_ratio, 1..=CLOCK_RATIO_MAX)?;
        if let Some(power) = &self.power {
            power.check()?;
        }
        let WriteDrain { capacity, high, low } = self.drain;
        within("memory.drain.capacity", capacity as u64, 1..=QUEUE_MAX)?;
        within("memory.drain.high", high as u64, 0..=capacity as u64)?;
        within("memory.drain.low", low as u64, 0..=high as u64)
    }
}

/// Refreshes that a rank may put off.
pub const REFRESHES_A_WINDOW: u64 = 8;

const ADDRESS_BITS_MAX: u32 = 52;
const BANKS_MAX: u32 = 1 << 16;
const TIME_MAX: u64 = 1 << 24;
const CLOCK_RATIO_MAX: u64 = 1024;
const QUEUE_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::super::address::Field;
    use super::*;

    #[test]
    fn impossible_memories_are_refused() {
        let right = Config::FOUR_CHANNELS;
        right.check().unwrap();
        let geometry = |geometry| Config { geometry, ..right };
        let timing = |timing| Config { timing, ..right };
        let drain = |drain| Config { drain, ..right };
        for wrong in [
            geometry(Geometry { rows: 3, ..right.geometry }),
            geometry(Geometry { channels: 0, ..right.geometry }),
            geometry(Geometry { rows: 1 << 31, columns: 1 << 31, ..right.geometry }),
            geometry(Geometry { ranks: 1 << 31, banks: 1 << 31, ..right.geometry }),
            geometry(Geometry { groups: 16, ..right.geometry }),
            geometry(Geometry { groups: 3, ..right.geometry }),
            Config { scheduler: Scheduler::FrFcfsClosing(0), ..right },
            Config { map: AddressMap([Field::Row; 5]), ..right },
            timing(Timing { refi: 0, ..right.timing }),
            timing(Timing { rfc: u64::MAX, ..right.timing }),
            drain(WriteDrain { low: 41, ..right.drain }),
            drain(WriteDrain { high: 97, ..right.drain }),
            drain(WriteDrain { capacity: 0, high: 0, low: 0 }),
            Config { clock_ratio: 0, ..right },
            Config { clock_ratio: u64::MAX, ..right },
            Config { forward: u64::MAX, ..right },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_largest_times_do_not_overflow() {
        let geometry = Geometry { ranks: 1 << 8, rows: 1 << 24, ..Config::FOUR_CHANNELS.geometry };
        let long = Config { geometry, clock_ratio: CLOCK_RATIO_MAX, ..Config::FOUR_CHANNELS };
        let timing = Timing { refi: TIME_MAX, faw: TIME_MAX, cas: TIME_MAX, ..long.timing };
        let mut memory = crate::dram::Memory::new(Config { timing, ..long }).unwrap();
        assert!(matches!(memory.read(0, u64::MAX, 0), crate::backend::Answer::Later));
        let mut there = 0;
        while memory.wake() != u64::MAX {
            memory.tick(memory.wake(), |_, time| there = time);
        }
        assert!(there > TIME_MAX * CLOCK_RATIO_MAX);
    }
}
