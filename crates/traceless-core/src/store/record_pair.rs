//! A record in two places of a store, written in turns.
//!
//! A record has a number, and goes to the place of that number modulo 2. A crash during a write
//! leaves the record before it whole. Where each record must also survive damage to either place,
//! its owner writes it twice, under two numbers in a row.

use super::Store;
use crate::error::Result;
use crate::types::Extent;
use alloc::vec;

/// The two places of a record. A record goes to the place of its number modulo 2, so that a crash
/// during a write leaves the record before it whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordPair {
    /// First byte of the place for even numbers; the other place lies behind it.
    at: u64,
    /// Bytes of a place.
    len: usize,
}

impl RecordPair {
    /// Two places of `len` bytes each, from byte `at` on.
    pub const fn new(at: u64, len: usize) -> Self {
        Self { at, len }
    }

    /// The place of the record with this number.
    pub fn place(&self, number: u64) -> Extent {
        Extent::new(self.at + number % 2 * self.len as u64, self.len)
    }

    /// Opens both places in one round trip: what `open` makes of each, first that of even numbers.
    pub fn open_both<T>(
        &self,
        store: &dyn Store,
        open: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<[Option<T>; 2]> {
        let mut bytes = vec![0; 2 * self.len];
        store.read(&[Extent::new(self.at, bytes.len())], &mut bytes)?;
        let (even, odd) = bytes.split_at(self.len);
        Ok([open(even), open(odd)])
    }

    /// The record with the highest number that `open` accepts; `open` returns a record's number
    /// with its contents.
    pub fn newest<T>(
        &self,
        store: &dyn Store,
        open: impl Fn(&[u8]) -> Option<(u64, T)>,
    ) -> Result<Option<(u64, T)>> {
        let found = self.open_both(store, open)?.into_iter().flatten();
        Ok(found.max_by_key(|(number, _)| *number))
    }

    /// Writes the record with this number durably, over the one before the last. It may be shorter
    /// than its place.
    pub fn write(&self, store: &dyn Store, number: u64, record: &[u8]) -> Result {
        assert!(record.len() <= self.len, "a record fits its place");
        store.write(&[Extent::new(self.place(number).at, record.len())], record)?;
        store.sync()
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::store::MemStore;

    const PAIR: RecordPair = RecordPair::new(8, 16);

    /// A record that is its number and a byte that must be 7.
    fn open(bytes: &[u8]) -> Option<(u64, u8)> {
        let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        (bytes[8] == 7).then_some((number, bytes[9]))
    }

    fn record(number: u64, contents: u8) -> Vec<u8> {
        [&number.to_le_bytes()[..], &[7, contents]].concat()
    }

    #[test]
    fn the_newest_record_that_opens_counts() {
        let store = MemStore::new(64);
        assert_eq!(PAIR.newest(&store, open).unwrap(), None);
        for number in 1..6 {
            PAIR.write(&store, number, &record(number, number as u8 * 2)).unwrap();
            assert_eq!(PAIR.newest(&store, open).unwrap(), Some((number, number as u8 * 2)));
        }
        // The newest is torn: the one before it is whole.
        store.write(&[Extent::new(PAIR.place(5).at + 8, 1)], &[0]).unwrap();
        assert_eq!(PAIR.newest(&store, open).unwrap(), Some((4, 8)));
        let both = PAIR.open_both(&store, open).unwrap();
        assert_eq!(both, [Some((4, 8)), None]);
    }

    #[test]
    fn nothing_beside_the_places_is_written() {
        let store = MemStore::from_bytes(&[9; 64]);
        (1..4).for_each(|number| PAIR.write(&store, number, &[1; 16]).unwrap());
        let bytes = store.snapshot();
        assert!(bytes[..8].iter().chain(&bytes[40..]).all(|&byte| byte == 9));
    }
}
