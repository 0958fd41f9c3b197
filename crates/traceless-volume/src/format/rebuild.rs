//! The record of a rebuild in progress, in the spare bytes of the image that is being made. It says
//! which volume is copied, and how far the copy has come.
//!
//! There are two records of 4096 bytes, written in turn. Each is sealed as a whole under a fresh
//! salt, so it looks like the bytes that fill a new image. The future header of the image lies
//! before the records. The place of the header stays empty until the image is whole, so that it is
//! not a volume earlier.

use super::{HEADER_LEN, Keys, u64_at};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use traceless_core::rng::Rng;
use traceless_core::seal::{Aead, Nonce, Sealer, TAG_LEN};
use traceless_core::store::Store;
use traceless_core::types::Extent;

/// First byte of the spare part, which holds the future header, followed by the records.
pub const SPARE_AT: u64 = (HEADER_LEN * 9) as u64;

/// Bytes of the spare part.
pub const SPARE_LEN: usize = HEADER_LEN * 7;

const RECORD_LEN: usize = HEADER_LEN;
const RECORDS_AT: u64 = SPARE_AT + HEADER_LEN as u64;
const SALT_LEN: usize = 16;
const CONTENTS_LEN: usize = RECORD_LEN - SALT_LEN - TAG_LEN;

/// The state of a volume. No two states of a volume are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceState {
    /// Generation of the volume's newest superblock.
    pub generation: u64,
    /// Chain of the newest superblock.
    pub chain: [u8; 32],
    /// Writes that the volume has made.
    pub writes: u64,
}

/// The progress of a rebuild.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RebuildRecord {
    /// Records written before this one.
    pub sequence: u64,
    /// The state of the volume that is copied.
    pub source: SourceState,
    /// Whether the new image is filled, and its scheme made.
    pub made: bool,
    /// Number of blocks copied durably, from the first on.
    pub copied: u64,
    /// Writes that the new volume had made when this record was written.
    pub writes: u64,
}

impl RebuildRecord {
    /// The record of a rebuild that has just begun.
    pub fn new(source: SourceState) -> Self {
        Self { sequence: 0, source, made: false, copied: 0, writes: 0 }
    }

    /// The newest record in `image` that opens with `keys`.
    pub fn read(image: &File, keys: &Keys) -> io::Result<Option<Self>> {
        let mut bytes = vec![0; 2 * RECORD_LEN];
        image.read_exact_at(&mut bytes, RECORDS_AT)?;
        let records = bytes.chunks_exact(RECORD_LEN).filter_map(|page| Self::open(keys, page));
        Ok(records.max_by_key(|record| record.sequence))
    }

    /// Writes the next record, durably.
    pub fn write(
        &mut self,
        store: &dyn Store,
        keys: &Keys,
        rng: &mut dyn Rng,
    ) -> traceless_core::Result {
        self.sequence += 1;
        let at = RECORDS_AT + (self.sequence % 2) * RECORD_LEN as u64;
        store.write(&[Extent::new(at, RECORD_LEN)], &self.seal(keys, rng))?;
        store.sync()
    }

    fn seal(&self, keys: &Keys, rng: &mut dyn Rng) -> Vec<u8> {
        let mut contents = vec![0; CONTENTS_LEN];
        contents[..8].copy_from_slice(&self.sequence.to_le_bytes());
        contents[8..16].copy_from_slice(&self.source.generation.to_le_bytes());
        contents[16..48].copy_from_slice(&self.source.chain);
        contents[48..56].copy_from_slice(&self.source.writes.to_le_bytes());
        contents[56..64].copy_from_slice(&u64::from(self.made).to_le_bytes());
        contents[64..72].copy_from_slice(&self.copied.to_le_bytes());
        contents[72..80].copy_from_slice(&self.writes.to_le_bytes());
        let mut out = vec![0; RECORD_LEN];
        let (salt, rest) = out.split_at_mut(SALT_LEN);
        rng.fill(salt);
        let (body, tag) = rest.split_at_mut(CONTENTS_LEN);
        // A fresh salt makes a fresh key, so version 0 is used once.
        sealer(keys, salt).seal(Nonce::of_fresh_key(0), &[], &contents, body, tag);
        out
    }

    fn open(keys: &Keys, page: &[u8]) -> Option<Self> {
        let (salt, rest) = page.split_at(SALT_LEN);
        let (body, tag) = rest.split_at(CONTENTS_LEN);
        let mut contents = vec![0; CONTENTS_LEN];
        sealer(keys, salt).open(Nonce::of_fresh_key(0), &[], body, tag, &mut contents).ok()?;
        Some(Self {
            sequence: u64_at(&contents, 0),
            source: SourceState {
                generation: u64_at(&contents, 8),
                chain: contents[16..48].try_into().expect("32 bytes"),
                writes: u64_at(&contents, 48),
            },
            made: u64_at(&contents, 56) == 1,
            copied: u64_at(&contents, 64),
            writes: u64_at(&contents, 72),
        })
    }
}

fn sealer(keys: &Keys, salt: &[u8]) -> Aead {
    Aead::new(&keys.rebuild().derive(&[salt]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;
    use traceless_core::store::{Caching, FileStore};

    #[test]
    fn the_newest_whole_record_counts() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(super::super::AREAS_AT).unwrap();
        let store =
            FileStore::new(file.try_clone().unwrap(), super::super::AREAS_AT, Caching::Buffered);
        let (keys, rng) = (Keys::for_fuzzing(), &mut SeededRng::new(1));
        assert_eq!(RebuildRecord::read(&file, &keys).unwrap(), None);
        let source = SourceState { generation: 8, chain: [3; 32], writes: 77 };
        let mut record = RebuildRecord::new(source);
        for copied in 1..5 {
            (record.copied, record.writes, record.made) = (copied, copied + 1, true);
            record.write(&store, &keys, rng).unwrap();
            assert_eq!(RebuildRecord::read(&file, &keys).unwrap(), Some(record));
        }
        // With the newest record torn, the one before it counts.
        let at = RECORDS_AT + (record.sequence % 2) * RECORD_LEN as u64;
        file.write_all_at(&[0; 512], at + 1024).unwrap();
        assert_eq!(RebuildRecord::read(&file, &keys).unwrap().unwrap().copied, 3);
    }
}
