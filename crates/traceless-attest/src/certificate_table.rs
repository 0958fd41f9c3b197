//! The certificates that a host passes to its guest with a report (GHCB specification, 4.1.8.1).

use crate::error::{Error, Result};

/// Bytes of an entry: an identifier, the certificate's offset and its length.
const ENTRY_LEN: usize = 24;
/// Certificates that a table may have: more than any kind that is known needs.
const CERTIFICATES_MAX: usize = 16;

/// A certificate of a table.
pub struct TableEntry<'a> {
    /// The identifier of its kind, an UUID.
    pub kind: [u8; 16],
    /// The certificate, in DER.
    pub certificate: &'a [u8],
}

/// The certificates of a table. An empty table has none.
pub fn certificates(table: &[u8]) -> Result<Vec<TableEntry<'_>>> {
    let malformed = || Error::Malformed("its certificate table is damaged".into());
    let mut found = Vec::new();
    for entry in table.chunks(ENTRY_LEN) {
        let (kind, place) = entry.split_first_chunk::<16>().ok_or_else(malformed)?;
        let (offset, len) = place.split_first_chunk().ok_or_else(malformed)?;
        let len = len.first_chunk().ok_or_else(malformed)?;
        if *kind == [0; 16] {
            break;
        }
        let offset = u32::from_le_bytes(*offset) as usize;
        let end = offset.checked_add(u32::from_le_bytes(*len) as usize).ok_or_else(malformed)?;
        if found.len() == CERTIFICATES_MAX {
            return Err(malformed());
        }
        let certificate = table.get(offset..end).ok_or_else(malformed)?;
        found.push(TableEntry { kind: *kind, certificate });
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
        let found: Vec<_> = certificates(&table).unwrap().iter().map(|e| e.certificate).collect();
        assert_eq!(found, [b"abc".as_slice(), b"de"]);
        assert!(certificates(&[]).unwrap().is_empty());
        assert!(certificates(&[0; 24]).unwrap().is_empty());
        for damaged in
            [entry(72, 3), entry(u32::MAX, u32::MAX), vec![1; 23], entry(0, 0).repeat(17)]
        {
            assert!(certificates(&damaged).is_err(), "{damaged:?}");
        }
    }
}
