//! Repairing a deniable image: what cannot be read becomes zeros, in the public volume and in the
//! hidden ones that are open.
//!
//! Zeros in hidden volumes are hidden writes: they wait for public ones, and make none.

use super::repair::unreadable;
use super::{DENIABLE_BLOCK_LEN, DeniableVolume};
use crate::error::Result;
use traceless_block::deniable::HIDDEN_MAX;
use traceless_core::types::Addr;

/// Blocks of hidden volumes that one repair mends, at most: fewer than may wait for their slots.
const WAITING_MAX: usize = 512;

/// The outcome of a repair of a deniable image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeniableRepairReport {
    /// Blocks of the public volume that could not be read, and now hold zeros.
    pub public: Vec<u64>,
    /// The same of each open hidden volume, the least secret first, once they have their slots.
    pub hidden: Vec<Vec<u64>>,
    /// Open hidden volumes, counted from 0 for the least secret, that their own keys did not open,
    /// as their records were damaged. The keys open them again once the records have their slots.
    pub records: Vec<usize>,
}

impl DeniableVolume {
    /// Makes blocks that cannot be read zeros, of hidden volumes `hidden_max` at most: these are
    /// durable once as many slots were free among public writes, and were synced. Another repair
    /// goes on with the rest.
    pub fn repair(
        &self,
        hidden_max: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DeniableRepairReport> {
        let volume = self.volume();
        let zeros = vec![0; DENIABLE_BLOCK_LEN];
        let public = volume.unreadable(progress)?;
        for &block in &public {
            volume.write_blocks(block, &zeros)?;
        }
        let mut left = hidden_max.min(WAITING_MAX);
        let records = self.restore_records(left)?;
        left -= records.len();
        let mut repaired = DeniableRepairReport { public, hidden: vec![], records };
        for hidden in (0..HIDDEN_MAX).filter_map(|number| self.lane.volume(number)) {
            let addrs = |first, len: usize| -> Vec<Addr> {
                (first..first + (len / DENIABLE_BLOCK_LEN) as u64).map(Addr).collect()
            };
            let read = |first, into: &mut [u8]| Ok(hidden.read(&addrs(first, into.len()), into)?);
            let mut found = unreadable(hidden.blocks(), DENIABLE_BLOCK_LEN, read, progress)?;
            found.truncate(left);
            left -= found.len();
            for &block in &found {
                hidden.write(&[Addr(block)], &zeros)?;
            }
            repaired.hidden.push(found);
        }
        Ok(repaired)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DeniableCreateOptions, DeniableOptions, OpenOptions, create_deniable};
    use super::*;
    use crate::device::Device;
    use crate::error::Error;
    use crate::format::{AREAS_AT, UserKey};
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::sync::Arc;
    use traceless_core::seal::Cipher;
    use traceless_core::trace::{Event, Op, Recorder};

    fn key(byte: u8) -> UserKey {
        UserKey::from_file(vec![byte; 32].into()).unwrap()
    }

    fn open(path: &Path, byte: u8, witness: Option<Arc<Recorder>>) -> DeniableVolume {
        open_with(path, &[byte], witness)
    }

    fn open_with(path: &Path, keys: &[u8], witness: Option<Arc<Recorder>>) -> DeniableVolume {
        let witness = witness.map(|witness| witness as _);
        let open = OpenOptions { witness, event_times: false, ..OpenOptions::default() };
        let options =
            DeniableOptions { open, overwrite_hidden: true, ..DeniableOptions::default() };
        let keys: Vec<UserKey> = keys.iter().map(|byte| key(*byte)).collect();
        DeniableVolume::open(path, &keys, &options, &mut |_, _| {}).unwrap()
    }

    /// A new image with the public volume alone.
    fn make_public(path: &Path) {
        let (size, cipher) = (Some(8 << 20), Cipher::AesGcm);
        let options = DeniableCreateOptions { size, cipher, force: false, anchor: None };
        create_deniable(path, &key(0), &options, &mut |_, _| true).unwrap();
    }

    /// An image with contents in each block of its volumes, hidden ones with the keys 1 to `hidden`
    /// among them. Of two images that differ in that, the public requests are the same.
    fn make(path: &Path, hidden: u8) {
        make_public(path);
        for byte in 1..=2 {
            let opened = open(path, (byte - 1).min(hidden), None);
            if byte <= hidden {
                opened.add_hidden(&key(byte), 1 << 18).unwrap();
            }
            opened.cover(40).unwrap();
            opened.volume().close().unwrap();
        }
        let opened = open(path, hidden, None);
        for (nth, device) in (1..).zip(opened.hidden()) {
            device.write(0, &vec![nth; 1 << 18]).unwrap();
        }
        for block in 0..400 {
            opened.volume().write_at(block * 4096, &[9; 4096]).unwrap();
        }
        opened.volume().flush_all().unwrap();
        assert!(!opened.has_waiting());
        opened.volume().close().unwrap();
    }

    /// Spoils a bit of every `step`-th body of the areas.
    fn damage(path: &Path, step: usize) {
        flip(path, &bodies(path).into_iter().step_by(step).collect::<Vec<_>>());
    }

    /// Where the bodies of the areas begin.
    fn bodies(path: &Path) -> Vec<u64> {
        let areas = {
            let opened = open(path, 0, None);
            opened.volume().header().scheme.slots_in_turn()
        };
        let places = areas.iter().flat_map(|(first, layout)| {
            let slots = (0..layout.len())
                .step_by(4096)
                .filter(|at| layout.slot_with_body_at(*at).is_some());
            slots.map(move |at| AREAS_AT + first + at)
        });
        places.collect()
    }

    /// Flips a bit of each of these bodies; a second time brings them back.
    fn flip(path: &Path, places: &[u64]) {
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        for at in places {
            let mut byte = [0];
            file.read_exact_at(&mut byte, *at + 5).unwrap();
            file.write_all_at(&[byte[0] ^ 1], *at + 5).unwrap();
        }
    }

    fn damaged(opened: &DeniableVolume) -> usize {
        let mut places = vec![];
        opened.volume().verify(&mut |_, _| {}, &mut |place| places.push(place)).unwrap();
        places.len()
    }

    #[test]
    fn what_cannot_be_read_is_zeros_afterwards_and_all_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        make(&path, 2);
        damage(&path, 40);
        let opened = open(&path, 2, None);
        assert!(damaged(&opened) > 10);
        let repaired = opened.repair(64, &mut |_, _| {}).unwrap();
        assert!(!repaired.public.is_empty() && repaired.hidden.iter().any(|list| !list.is_empty()));
        opened.cover(64).unwrap();
        assert!(!opened.has_waiting());
        opened.volume().close().unwrap();
        drop(opened);

        let opened = open(&path, 2, None);
        assert_eq!((damaged(&opened), opened.hidden().len()), (0, 2));
        let mut block = [1; 4096];
        for nth in 0..400 {
            opened.volume().read_at(nth * 4096, &mut block).unwrap();
            assert_eq!(block, [if repaired.public.contains(&nth) { 0 } else { 9 }; 4096]);
        }
        for (byte, (device, lost)) in (1..).zip(opened.hidden().iter().zip(&repaired.hidden)) {
            for nth in 0..device.len() / 4096 {
                device.read(nth * 4096, &mut block).unwrap();
                assert_eq!(block, [if lost.contains(&nth) { 0 } else { byte }; 4096], "{nth}");
            }
        }
        assert_eq!(opened.repair(64, &mut |_, _| {}).unwrap().hidden, vec![Vec::<u64>::new(); 2]);
    }

    #[test]
    fn a_repair_mends_no_more_hidden_blocks_than_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        make(&path, 2);
        damage(&path, 20);
        let opened = open(&path, 2, None);
        let mended: Vec<usize> = (0..3)
            .map(|_| {
                let hidden = opened.repair(2, &mut |_, _| {}).unwrap().hidden;
                opened.cover(20).unwrap();
                hidden.iter().map(Vec::len).sum()
            })
            .collect();
        assert_eq!(mended[..2], [2, 2], "{mended:?}");
        opened.repair(64, &mut |_, _| {}).unwrap();
        opened.cover(40).unwrap();
        assert_eq!(damaged(&opened), 0);
    }

    /// Spoils the record of the hidden volume of a key, so that the key opens nothing.
    fn damage_record(path: &Path, byte: u8) {
        let is_lost = || {
            let options = DeniableOptions::default();
            let opened = DeniableVolume::open(path, &[key(byte)], &options, &mut |_, _| {});
            matches!(opened, Err(Error::WrongKey))
        };
        let mut suspects = bodies(path);
        while suspects.len() > 1 {
            let rest = suspects.split_off(suspects.len() / 2);
            flip(path, &suspects);
            let found = is_lost();
            flip(path, &suspects);
            suspects = if found { suspects } else { rest };
        }
        flip(path, &suspects);
        assert!(is_lost());
    }

    /// A passphrase that is given up must not open what its volume was not made beside.
    #[test]
    fn a_restored_record_names_no_volume_of_a_further_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        make_public(&path);
        for (byte, beside) in [(1, 0), (2, 0), (3, 2)] {
            let opened = open(&path, beside, None);
            opened.add_hidden(&key(byte), 1 << 16).unwrap();
            opened.cover(10).unwrap();
            assert!(!opened.has_waiting());
            opened.volume().close().unwrap();
        }
        damage_record(&path, 2);
        let opened = open_with(&path, &[1, 3], None);
        assert_eq!(opened.hidden().len(), 3);
        assert_eq!(opened.repair(64, &mut |_, _| {}).unwrap().records, [1]);
        opened.cover(10).unwrap();
        opened.volume().close().unwrap();
        drop(opened);
        assert_eq!(open(&path, 2, None).hidden().len(), 1, "not the one of key 1");
        assert_eq!(open(&path, 3, None).hidden().len(), 2);
    }

    #[test]
    fn a_damaged_record_closes_no_other_volume_and_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        make(&path, 2);
        damage_record(&path, 1);
        let opened = open(&path, 2, None);
        assert_eq!((damaged(&opened), opened.hidden().len()), (1, 2));
        let repaired = opened.repair(64, &mut |_, _| {}).unwrap();
        assert_eq!((repaired.records, repaired.hidden), (vec![0], vec![vec![], vec![]]));
        opened.cover(10).unwrap();
        assert_eq!(damaged(&opened), 0);
        opened.volume().close().unwrap();
        drop(opened);
        let opened = open(&path, 1, None);
        assert_eq!(opened.hidden().len(), 1);
        let mut block = [0; 4096];
        opened.hidden()[0].read(0, &mut block).unwrap();
        assert_eq!(block, [1; 4096]);
        assert_eq!(opened.repair(64, &mut |_, _| {}).unwrap().records, Vec::<usize>::new());
    }

    /// What the disk sees of a repair, and the blocks of the public volume that it mended.
    fn repair_events(path: &Path, hidden: u8) -> (Vec<Event>, DeniableRepairReport) {
        make(path, hidden);
        damage(path, 40);
        let witness = Arc::new(Recorder::default());
        let opened = open(path, hidden, Some(witness.clone()));
        let repaired = opened.repair(64, &mut |_, _| {}).unwrap();
        opened.cover(64).unwrap();
        opened.volume().close().unwrap();
        let mut events = witness.take();
        events.retain(|event| event.op != Op::Read);
        (events, repaired)
    }

    #[test]
    fn a_repair_writes_the_same_with_and_without_hidden_volumes() {
        let folder = tempfile::tempdir().unwrap();
        let [none, two] =
            [0, 2].map(|hidden| repair_events(&folder.path().join(hidden.to_string()), hidden));
        assert_eq!(none.1.public, two.1.public);
        assert!(none.1.hidden.is_empty() && two.1.hidden.iter().any(|list| !list.is_empty()));
        assert!(none.0 == two.0, "{} and {} events", none.0.len(), two.0.len());
    }

    #[test]
    fn with_the_public_key_alone_nothing_is_mended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        make(&path, 1);
        damage(&path, 40);
        let options = DeniableOptions::default();
        let opened = DeniableVolume::open(&path, &[key(0)], &options, &mut |_, _| {}).unwrap();
        let refused = opened.repair(64, &mut |_, _| {});
        assert!(matches!(refused, Err(Error::Scheme(traceless_core::Error::ReadOnly))));
    }
}
