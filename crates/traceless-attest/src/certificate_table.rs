//! The certificates that a host passes to its guest with a report (GHCB specification, 4.1.8.1).

use crate::error::{Error, Result};

/// Bytes of an entry: an identifier, the certificate's offset and its length.
const ENTRY_LEN: usize = 24;
/// Certificates that a table may have: more than any kind that is known needs.
const CERTIFICATES_MAX: usize = 16;

/// The certificates of a table, in DER. An empty table has none.
pub fn certificates(table: &[u8]) -> Result<Vec<&[u8]>> {
    let malformed = || Error::Malformed("its certificate table is damaged".into());
    let mut found = Vec::new();
    for entry in table.chunks(ENTRY_LEN) {
        let (identifier, place) = entry.split_first_chunk::<16>().ok_or_else(malformed)?;
        let (offset, len) = place.split_first_chunk().ok_or_else(malformed)?;
        let len = len.first_chunk().ok_or_else(malformed)?;
        if *identifier == [0; 16] {
            break;
        }
        let offset = u32::from_le_bytes(*offset) as usize;
        let end = offset.checked_add(u32::from_le_bytes(*len) as usize).ok_or_else(malformed)?;
        if found.len() == CERTIFICATES_MAX {
            return Err(malformed());
        }
        found.push(table.get(offset..end).ok_or_else(malformed)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u32, len: u32) -> Vec<u8> {
        [&[7; 16][..], &offset.to_le_bytes(), &len.to_le_bytes()].concat()
    }

    #[test]
    fn certificates_are_found_and_damage_is_refused() {
        let table = [entry(72, 3), entry(75, 2), vec![0; 24], b"abcde".to_vec()].concat();
        assert_eq!(certificates(&table).unwrap(), [b"abc".as_slice(), b"de"]);
        assert_eq!(certificates(&[]).unwrap(), [b""; 0]);
        assert_eq!(certificates(&[0; 24]).unwrap(), [b""; 0]);
        for damaged in
            [entry(72, 3), entry(u32::MAX, u32::MAX), vec![1; 23], entry(0, 0).repeat(17)]
        {
            assert!(certificates(&damaged).is_err(), "{damaged:?}");
        }
    }
}
