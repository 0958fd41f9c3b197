//! The currents that the chips of a memory draw, from their data sheets.

use crate::error::{Result, within};
use serde::{Deserialize, Serialize};

/// The chips of a rank. Currents are in mA, named as on data sheets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Chips of a rank.
    pub chips: u32,
    /// Supply, in mV.
    pub millivolts: u32,
    /// A cycle of the DRAM's clock, in ps.
    pub cycle_ps: u32,
    /// One bank is activated and precharged as often as its timing allows.
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

    /// Refuses values that no chip has.
    pub fn check(&self) -> Result {
        let Self { chips, millivolts, cycle_ps, idd0, idd2n, idd3n, idd4r, idd4w, idd5 } = *self;
        within("memory.power.chips", chips.into(), 1..=CHIPS_MAX)?;
        // A chip at work draws no less than one on standby.
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
