//! The place of an address in the DRAM: channel, rank, bank, row and column.

use super::geometry::Geometry;
use crate::workload::LINE_LEN;
use serde::{Deserialize, Serialize};

/// A part of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// Which row of the bank.
    Row,
    /// Which line of the row.
    Column,
    /// Which rank of the channel.
    Rank,
    /// Which bank of the rank.
    Bank,
    /// Which channel.
    Channel,
}

/// The parts of an address from its highest bits to its lowest; below them is the byte of the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct AddressMap(pub [Field; 5]);

impl AddressMap {
    /// Neighbours lie in different channels and banks: USIMM's map 0.
    pub const CHANNELS_LAST: Self =
        Self([Field::Row, Field::Column, Field::Rank, Field::Bank, Field::Channel]);

    /// Neighbours lie in one row: USIMM's map 1.
    pub const COLUMNS_LAST: Self =
        Self([Field::Row, Field::Rank, Field::Bank, Field::Channel, Field::Column]);

    /// Neighbours lie in one row of each channel: a subtree that is contiguous stays together in
    /// every channel.
    pub const ROWS_TOGETHER: Self =
        Self([Field::Row, Field::Rank, Field::Bank, Field::Column, Field::Channel]);

    /// Whether the map has each part once: otherwise different lines would lie in one place.
    pub fn is_whole(&self) -> bool {
        let fields = [Field::Row, Field::Column, Field::Rank, Field::Bank, Field::Channel];
        fields.iter().all(|field| self.0.contains(field))
    }

    /// Where byte `addr` lies. Addresses past the end wrap around.
    #[inline]
    pub fn locate(&self, geometry: &Geometry, addr: u64) -> Location {
        let mut rest = addr / LINE_LEN;
        let mut location = Location { channel: 0, rank: 0, bank: 0, row: 0, column: 0 };
        for field in self.0.into_iter().rev() {
            let (part, size) = match field {
                Field::Row => (&mut location.row, geometry.rows),
                Field::Column => (&mut location.column, geometry.columns),
                Field::Rank => (&mut location.rank, geometry.ranks),
                Field::Bank => (&mut location.bank, geometry.banks),
                Field::Channel => (&mut location.channel, geometry.channels),
            };
            *part = (rest & u64::from(size - 1)) as u32;
            rest >>= size.ilog2();
        }
        location
    }
}

/// Where a line lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// Which channel.
    pub channel: u32,
    /// Which rank of the channel.
    pub rank: u32,
    /// Which bank of the rank.
    pub bank: u32,
    /// Which row of the bank.
    pub row: u32,
    /// Which line of the row.
    pub column: u32,
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    /// The bit positions are the ones that USIMM prints for its configurations.
    #[test]
    fn fields_take_their_bits() {
        let bits = |config: Config, addr| {
            let l = config.map.locate(&config.geometry, addr);
            [l.channel, l.rank, l.bank, l.row, l.column]
        };
        let four = |addr| bits(Config::FOUR_CHANNELS, addr);
        assert_eq!(four(63), [0; 5]);
        assert_eq!(four(0b11 << 6), [3, 0, 0, 0, 0]);
        assert_eq!(four(0b111 << 8), [0, 0, 7, 0, 0]);
        assert_eq!(four(1 << 11), [0, 1, 0, 0, 0]);
        assert_eq!(four(127 << 12), [0, 0, 0, 0, 127]);
        assert_eq!(four(32_767 << 19), [0, 0, 0, 32_767, 0]);
        assert_eq!(four(1 << 34), [0; 5]);
        let one = |addr| bits(Config::ONE_CHANNEL, addr);
        assert_eq!(one(127 << 6), [0, 0, 0, 0, 127]);
        assert_eq!(one(0b111 << 13), [0, 0, 7, 0, 0]);
        assert_eq!(one(1 << 16), [0, 1, 0, 0, 0]);
        assert_eq!(one(32_767 << 17), [0, 0, 0, 32_767, 0]);
    }
}
