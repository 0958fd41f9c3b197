//! Counts the requests of a write-only scheme to its store: the cost of a write, and whether every
//! group of writes costs the same.

use super::super::client::NbdCommand;
use super::super::counts::Counts;
use super::super::failed;
use super::super::library::context;
use super::super::server::create_image;
use super::super::subjects::VolumeSubject;
use super::super::target::{BenchTarget, RecordedTarget};
use super::super::workload::SMALL;
use std::path::Path;
use std::sync::Arc;
use traceless::durable::MemVault;
use traceless::rng::{Rng, SeededRng, System};
use traceless::scheme::contract::BlockScheme;
use traceless::seal::Secret;
use traceless::store::{Store, WatchedStore};
use traceless::trace::Recorder;
use traceless::types::{Addr, Extent};
use traceless_cli::failure::Failure;

/// Writes counted together, as many as one flush of a queue has in a scheme with a queue.
pub const GROUP_WRITES: u64 = 256;

/// A run of random writes.
#[derive(Clone, Copy)]
pub struct FlushRun {
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Counted writes of one block each, at random.
    pub writes: u64,
    /// Writes before the counted ones.
    pub writes_before: u64,
    /// Writes from one FLUSH to the next; `None` for no FLUSH at all.
    pub flush_every: Option<u64>,
}

/// Requests to the store in each group of writes.
pub struct Groups(Vec<Counts>);

impl Groups {
    /// Counts writes to a new volume of `subject`, made in `folder`.
    pub fn count(subject: VolumeSubject, folder: &Path, run: FlushRun) -> Result<Self, Failure> {
        let create = [subject.create, &["--unfilled"]].concat();
        let image = create_image(folder, &subject.file_name(), run.volume_bytes, &create)?;
        let mut target = Box::new(RecordedTarget::open(&image)?);
        let mut rng = SeededRng::new(3);
        let blocks = run.volume_bytes / SMALL as u64;
        let mut groups = vec![];
        let mut head = 0;
        for number in 0..run.writes_before + run.writes {
            let at = rng.below(blocks) * SMALL as u64;
            target.run(&[(NbdCommand::Write, at)], SMALL)?;
            if run.flush_every.is_some_and(|every| (number + 1).is_multiple_of(every)) {
                target.flush()?;
            }
            if (number + 1).is_multiple_of(GROUP_WRITES) {
                let counts = Counts::of(&target.take_events(), &mut head);
                if number >= run.writes_before {
                    groups.push(counts);
                }
            }
        }
        target.close()?;
        std::fs::remove_file(image).map_err(failed)?;
        Ok(Self(groups))
    }

    /// Writes to a new `scheme` that is too large for any store at hand: what it writes is thrown
    /// away. It takes its blocks for lost then, which changes nothing of where it writes and
    /// reads. The writes of a flush are counted together.
    pub fn count_unstored(
        scheme: &dyn BlockScheme,
        before: u64,
        writes: u64,
    ) -> Result<Self, Failure> {
        let recorder = Arc::new(Recorder::default());
        let store =
            WatchedStore::new(DiscardingStore { len: scheme.store_len() }, recorder.clone());
        let (vault, key) = (MemVault::default(), Secret::random(&mut System));
        let context = context(Arc::new(store), &vault, &key);
        let mut oram = scheme.create(context).map_err(failed)?;
        let group = scheme.facts(0).bucket.unwrap_or(GROUP_WRITES);
        let block = vec![0x5a; scheme.block_len()];
        let mut rng = SeededRng::new(3);
        let (mut groups, mut head) = (vec![], 0);
        for number in 0..before.next_multiple_of(group) + writes {
            oram.write(Addr(rng.below(scheme.blocks())), &block).map_err(failed)?;
            if (number + 1).is_multiple_of(group) {
                let counts = Counts::of(&recorder.take(), &mut head);
                if number >= before.next_multiple_of(group) {
                    groups.push(counts);
                }
            }
        }
        Ok(Self(groups))
    }

    fn mean(&self, what: impl Fn(&Counts) -> u64) -> f64 {
        self.0.iter().map(what).sum::<u64>() as f64 / self.0.len() as f64
    }

    /// Bytes written to the store per byte written by the user.
    pub fn write_amplification(&self) -> f64 {
        self.mean(|counts| counts.bytes_written) / (GROUP_WRITES * SMALL as u64) as f64
    }

    /// Mean seeks of a group.
    pub fn seeks(&self) -> f64 {
        self.mean(|counts| counts.seeks)
    }

    /// The ratio of the worst group to the median one: of bytes read and written, and of seeks.
    pub fn worst_over_median(&self) -> (f64, f64) {
        let ratio = |what: fn(&Counts) -> u64| {
            let mut values: Vec<u64> = self.0.iter().map(what).collect();
            values.sort_unstable();
            values[values.len() - 1] as f64 / values[values.len() / 2].max(1) as f64
        };
        (ratio(Counts::bytes), ratio(|counts| counts.seeks))
    }
}

/// A store of any size that keeps nothing, and reads as zeros.
struct DiscardingStore {
    len: u64,
}

impl Store for DiscardingStore {
    fn len(&self) -> u64 {
        self.len
    }
    fn read(&self, _: &[Extent], into: &mut [u8]) -> traceless::Result {
        into.fill(0);
        Ok(())
    }
    fn write(&self, _: &[Extent], _: &[u8]) -> traceless::Result {
        Ok(())
    }
    fn sync(&self) -> traceless::Result {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_group_shows() {
        let usual = Counts { bytes_written: 2 << 20, seeks: 5, ..Counts::default() };
        let stall = Counts { bytes_read: 6 << 20, seeks: 10, ..usual };
        let groups = Groups([vec![usual; 9], vec![stall]].concat());
        assert_eq!(groups.worst_over_median(), (4.0, 2.0));
        assert!((groups.write_amplification() - 2.0).abs() < 1e-9);
        assert!((groups.seeks() - 5.5).abs() < 1e-9);
    }
}
