//! The view of an adversary with two copies of a disk: which blocks changed, and the distribution
//! of the changed bytes.

use serde::Serialize;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// The unit of comparison: the bytes that a disk writes at once.
pub const SNAPSHOT_BLOCK_LEN: usize = 4096;

/// Bytes read at a time.
const CHUNK_LEN: usize = 256 * SNAPSHOT_BLOCK_LEN;

/// Neighbouring blocks that changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ChangedRun {
    /// Number of the first block.
    pub first: u64,
    /// The number of blocks.
    pub blocks: u64,
}

/// The differences of two snapshots.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SnapshotDiff {
    /// Bytes of a block.
    pub block_len: u64,
    /// Blocks of an image; the last one may be short.
    pub blocks: u64,
    /// Blocks that differ.
    pub changed_blocks: u64,
    /// Bytes that differ.
    pub changed_bytes: u64,
    /// Entropy of the new values of changed bytes, in bits per byte. Ciphertext comes close to 8; a
    /// small sample cannot.
    pub entropy: f64,
    /// Share of bytes that differ, in the changed blocks. Fresh ciphertext differs in 255 of 256.
    pub changed_share: f64,
    /// The changed blocks, in order; neighbours form one run.
    pub runs: Vec<ChangedRun>,
}

/// The reason why two images cannot be compared.
#[derive(Debug)]
pub enum SnapshotError {
    /// The first image could not be read.
    Old(io::Error),
    /// The second image could not be read.
    New(io::Error),
    /// The images have these lengths in bytes, so they are no snapshots of one image.
    Lengths(u64, u64),
}

/// [`diff`] of two images in files or on block devices.
pub fn diff_images(old: &Path, new: &Path) -> Result<SnapshotDiff, SnapshotError> {
    let (old, old_len) = open(old).map_err(SnapshotError::Old)?;
    let (new, new_len) = open(new).map_err(SnapshotError::New)?;
    if old_len != new_len {
        return Err(SnapshotError::Lengths(old_len, new_len));
    }
    diff(old, new, old_len)
}

/// Opens an image, and returns its length in bytes.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut file = File::open(path)?;
    // Seeking also gives the length of a block device, which its metadata does not have.
    let len = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    Ok((file, len))
}

/// Compares two images of `len` bytes, in blocks of [`SNAPSHOT_BLOCK_LEN`], while they are read.
///
/// ```
/// use traceless_audit::{ChangedRun, SNAPSHOT_BLOCK_LEN, diff};
///
/// # fn main() -> Result<(), traceless_audit::SnapshotError> {
/// let old = vec![0; 8 * SNAPSHOT_BLOCK_LEN];
/// let mut new = old.clone();
/// // Bytes at the end of one block and at the beginning of the next.
/// new[3 * SNAPSHOT_BLOCK_LEN - 10..][..20].fill(1);
/// let found = diff(&old[..], &new[..], old.len() as u64)?;
/// assert_eq!(found.runs, [ChangedRun { first: 2, blocks: 2 }]);
/// assert_eq!((found.blocks, found.changed_bytes), (8, 20));
/// # Ok(())
/// # }
/// ```
pub fn diff(
    mut old: impl Read,
    mut new: impl Read,
    len: u64,
) -> Result<SnapshotDiff, SnapshotError> {
    let (mut a, mut b) = (vec![0; CHUNK_LEN], vec![0; CHUNK_LEN]);
    let mut found = Differences { runs: vec![], values: [0; 256], bytes_in_changed: 0 };
    let mut at = 0;
    while at < len {
        let n = usize::try_from(len - at).unwrap_or(CHUNK_LEN).min(CHUNK_LEN);
        old.read_exact(&mut a[..n]).map_err(SnapshotError::Old)?;
        new.read_exact(&mut b[..n]).map_err(SnapshotError::New)?;
        let first = at / SNAPSHOT_BLOCK_LEN as u64;
        let blocks = a[..n].chunks(SNAPSHOT_BLOCK_LEN).zip(b[..n].chunks(SNAPSHOT_BLOCK_LEN));
        for (block, (old, new)) in (first..).zip(blocks) {
            if old != new {
                found.add(block, old, new);
            }
        }
        at += n as u64;
    }
    Ok(found.summary(len.div_ceil(SNAPSHOT_BLOCK_LEN as u64)))
}

struct Differences {
    runs: Vec<ChangedRun>,
    /// How often each value appears among the changed bytes.
    values: [u64; 256],
    bytes_in_changed: u64,
}

impl Differences {
    fn add(&mut self, block: u64, old: &[u8], new: &[u8]) {
        match self.runs.last_mut() {
            Some(run) if run.first + run.blocks == block => run.blocks += 1,
            _ => self.runs.push(ChangedRun { first: block, blocks: 1 }),
        }
        self.bytes_in_changed += new.len() as u64;
        for (_, &value) in old.iter().zip(new).filter(|(old, new)| old != new) {
            self.values[usize::from(value)] += 1;
        }
    }

    fn summary(self, blocks: u64) -> SnapshotDiff {
        let changed_bytes: u64 = self.values.iter().sum();
        SnapshotDiff {
            block_len: SNAPSHOT_BLOCK_LEN as u64,
            blocks,
            changed_blocks: self.runs.iter().map(|run| run.blocks).sum(),
            changed_bytes,
            entropy: entropy(&self.values),
            changed_share: changed_bytes as f64 / self.bytes_in_changed.max(1) as f64,
            runs: self.runs,
        }
    }
}

/// Shannon's entropy of a histogram, in bits.
fn entropy(values: &[u64; 256]) -> f64 {
    let all = values.iter().sum::<u64>() as f64;
    let bits = |&n: &u64| {
        let share = n as f64 / all;
        share * -share.log2()
    };
    values.iter().filter(|&&n| n > 0).map(bits).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(len: usize, at: &[usize]) -> SnapshotDiff {
        let old = vec![0u8; len];
        let mut new = old.clone();
        for &byte in at {
            new[byte] = 1;
        }
        diff(&old[..], &new[..], len as u64).unwrap()
    }

    #[test]
    fn equal_images_reveal_nothing() {
        let found = changed(10_000, &[]);
        assert_eq!((found.blocks, found.changed_blocks, found.changed_bytes), (3, 0, 0));
        assert!(found.runs.is_empty());
        assert!(found.entropy.abs() < 1e-9 && found.changed_share.abs() < 1e-9);
        assert_eq!(changed(0, &[]).blocks, 0);
    }

    #[test]
    fn neighbouring_blocks_are_one_run_across_chunks() {
        let block = SNAPSHOT_BLOCK_LEN;
        let at = [0, block, 5 * block, CHUNK_LEN - 1, CHUNK_LEN, 2 * CHUNK_LEN + 6];
        let found = changed(2 * CHUNK_LEN + 7, &at);
        let run = |first, blocks| ChangedRun { first, blocks };
        assert_eq!(found.runs, [run(0, 2), run(5, 1), run(255, 2), run(512, 1)]);
        assert_eq!((found.blocks, found.changed_blocks, found.changed_bytes), (513, 6, 6));
    }

    #[test]
    fn entropy_distinguishes_text_from_noise() {
        let old = vec![0u8; 1 << 16];
        let noise: Vec<u8> = (0..1u32 << 16).map(|i| (i % 256) as u8).collect();
        let found = diff(&old[..], &noise[..], 1 << 16).unwrap();
        assert!(found.entropy > 7.99, "{}", found.entropy);
        assert!((found.changed_share - 255.0 / 256.0).abs() < 1e-9);
        assert!(changed(100, &[3, 4]).entropy < 1e-9);
    }

    #[test]
    fn a_short_image_is_named() {
        assert!(matches!(diff(&[0; 9][..], &[0; 10][..], 10), Err(SnapshotError::Old(_))));
        assert!(matches!(diff(&[0; 10][..], &[0; 9][..], 10), Err(SnapshotError::New(_))));
    }

    #[test]
    fn images_of_different_lengths_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, missing] = ["old", "new", "missing"].map(|name| folder.path().join(name));
        std::fs::write(&old, [1; 9]).unwrap();
        std::fs::write(&new, [2; 10]).unwrap();
        assert!(matches!(diff_images(&old, &new), Err(SnapshotError::Lengths(9, 10))));
        assert!(matches!(diff_images(&missing, &new), Err(SnapshotError::Old(_))));
        assert!(matches!(diff_images(&old, &missing), Err(SnapshotError::New(_))));
        assert_eq!(diff_images(&old, &old).unwrap().changed_blocks, 0);
    }
}
