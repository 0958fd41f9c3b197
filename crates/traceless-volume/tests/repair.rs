//! Damage is reported, and repaired without harm to the rest.

use std::fs::OpenOptions as FileOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use traceless_block::detwo::{DetWoGeometry, Refresh};
use traceless_block::plain::PlainScheme;
use traceless_block::sq;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::seal::Cipher;
use traceless_volume::device::Device;
use traceless_volume::error::Error;
use traceless_volume::format::{AREAS_AT, Kdf, SUPERBLOCK_LEN, SUPERBLOCKS_AT, UserKey};
use traceless_volume::volume::{
    CreateOptions, OpenOptions, RepairReport, Volume, create, new_anchor, repair,
};
use zeroize::Zeroizing;

const BLOCK_LEN: usize = 4096;
const BLOCKS: usize = 300;
/// Slots in a stripe of the holding area, and bytes of an entry (docs/format.md, section 6).
const STRIPE: usize = 64;
const ENTRY_LEN: usize = 64;

fn key() -> UserKey {
    UserKey::from_file(Zeroizing::new(vec![1; 32])).expect("a key")
}

struct Subject {
    _folder: TempDir,
    path: PathBuf,
    anchor: PathBuf,
    /// All contents of each block, oldest first.
    history: Vec<Vec<Vec<u8>>>,
    writes: usize,
}

impl Subject {
    fn new(scheme: Arc<dyn BlockScheme>, writes: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, anchor) = (folder.path().join("image"), folder.path().join("anchor"));
        let options = CreateOptions {
            scheme,
            cipher: Cipher::default(),
            kdf: Kdf::default(),
            force: false,
            unfilled: false,
            anchor: Some(anchor.clone()),
        };
        create(&path, &key(), &options, &mut |_, _| true).expect("created");
        let mut history = vec![vec![vec![0; BLOCK_LEN]]; BLOCKS];
        let anchored = OpenOptions { anchor: Some(anchor.clone()), ..OpenOptions::default() };
        let volume = Volume::open(&path, &key(), &anchored, &mut |_, _| {}).expect("opened");
        let rng = &mut SeededRng::new(9);
        for _ in 0..writes {
            let (block, mut data) = (rng.below(BLOCKS as u64) as usize, vec![0; BLOCK_LEN]);
            rng.fill(&mut data);
            volume.write((block * BLOCK_LEN) as u64, &data).expect("written");
            history[block].push(data);
        }
        volume.close().expect("closed");
        Self { _folder: folder, path, anchor, history, writes }
    }

    fn open(&self, anchor: bool) -> Result<Volume, Error> {
        let anchor = anchor.then(|| self.anchor.clone());
        let options = OpenOptions { anchor, ..OpenOptions::default() };
        Volume::open(&self.path, &key(), &options, &mut |_, _| {})
    }

    fn repair(&self, accept_old_blocks: bool) -> Result<RepairReport, Error> {
        let options = OpenOptions { anchor: Some(self.anchor.clone()), ..OpenOptions::default() };
        repair(&self.path, &key(), &options, accept_old_blocks, &mut |_, _| {})
    }

    /// Flips a bit in each of `len` bytes.
    fn damage(&self, at: u64, len: usize) {
        let file = FileOptions::new().read(true).write(true).open(&self.path).expect("opened");
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at).expect("read");
        for byte in &mut bytes {
            *byte ^= 0x10;
        }
        file.write_all_at(&bytes, at).expect("written");
    }

    /// First byte of the stripe of a holding slot.
    fn stripe(slot: usize) -> u64 {
        AREAS_AT + (slot / STRIPE * (4096 + STRIPE * BLOCK_LEN)) as u64
    }

    fn entry(slot: usize) -> u64 {
        Self::stripe(slot) + (slot % STRIPE * ENTRY_LEN) as u64
    }

    fn body(slot: usize) -> u64 {
        Self::stripe(slot) + (4096 + slot % STRIPE * BLOCK_LEN) as u64
    }

    /// Checks that nothing is damaged, and that each block has its newest contents. Blocks for
    /// which `may_differ` is true may have older contents of the same block.
    fn assert_sound(&self, may_differ: impl Fn(usize) -> bool) -> usize {
        let volume = self.open(true).expect("opened");
        let mut damaged = volume.damaged_superblocks().expect("read").len();
        volume.verify(&mut |_, _| {}, &mut |_| damaged += 1).expect("verified");
        assert_eq!(damaged, 0);
        let mut different = 0;
        for (block, past) in self.history.iter().enumerate() {
            let mut found = vec![1; BLOCK_LEN];
            volume.read((block * BLOCK_LEN) as u64, &mut found).expect("read");
            if Some(&found) != past.last() {
                assert!(may_differ(block), "block {block}");
                assert!(past.contains(&found), "block {block} holds what it never held");
                different += 1;
            }
        }
        volume.close().expect("closed");
        different
    }
}

fn detwo() -> Arc<dyn BlockScheme> {
    let geometry = DetWoGeometry::new(BLOCKS as u64, BLOCK_LEN, Refresh::ONE, 0);
    Arc::new(geometry.expect("it works"))
}

#[test]
fn either_superblock_is_written_anew() {
    for (which, name) in ["superblock A", "superblock B"].into_iter().enumerate() {
        let subject = Subject::new(detwo(), 700);
        subject.damage(SUPERBLOCKS_AT + (which * SUPERBLOCK_LEN) as u64 + 40, 1);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let volume = Volume::open(&subject.path, &key(), &options, &mut |_, _| {}).expect("opened");
        assert_eq!(volume.damaged_superblocks().expect("read"), [name]);
        drop(volume);
        // Without the anchor: if the newest superblock is the damaged one, the anchor would take
        // the image for older.
        let options = OpenOptions::default();
        let done = repair(&subject.path, &key(), &options, false, &mut |_, _| {});
        let done = done.expect("repaired");
        assert!(done.zeroed.is_empty() && done.forgotten.is_empty());
        assert_eq!(subject.assert_sound(|_| false), 0);
    }
}

#[test]
fn only_damaged_blocks_become_zeros() {
    let plain: Arc<dyn BlockScheme> =
        Arc::new(PlainScheme { blocks: BLOCKS as u64, block_len: BLOCK_LEN });
    for scheme in [detwo(), plain] {
        let mut subject = Subject::new(scheme, 700);
        // Bodies in the holding area, of writes too old for a crash to have lost them.
        for slot in 267..297 {
            subject.damage(Subject::body(slot) + 99, 1);
        }
        let done = subject.repair(false).expect("repaired");
        assert!(!done.zeroed.is_empty() && done.zeroed.len() <= 30);
        assert!(done.forgotten.is_empty());
        for &block in &done.zeroed {
            subject.history[block as usize].push(vec![0; BLOCK_LEN]);
        }
        assert_eq!(subject.assert_sound(|_| false), 0);
        assert!(subject.repair(true).expect("nothing to do").zeroed.is_empty());
        assert_eq!(subject.assert_sound(|_| false), 0);
    }
}

#[test]
fn a_volume_that_damage_keeps_closed_opens_with_older_blocks() {
    let subject = Subject::new(detwo(), 700);
    let hold_slots = BLOCKS + BLOCKS / 32 + STRIPE;
    // Entries of live writes. A sector of a stripe's header has eight entries.
    let slot = (subject.writes - 150) % hold_slots / 8 * 8;
    subject.damage(Subject::entry(slot), 8 * ENTRY_LEN);
    assert!(matches!(
        subject.open(true),
        Err(Error::Scheme(traceless_core::Error::Tampered { .. }))
    ));
    assert!(subject.repair(false).is_err(), "only if it is accepted");
    let done = subject.repair(true).expect("repaired");
    assert_eq!(done.forgotten.len(), 8);
    assert!(done.forgotten.iter().all(|p| (slot as u64..slot as u64 + 8).contains(&p.slot)));
    let different = subject.assert_sound(|_| true);
    assert!((1..=8).contains(&(different + done.zeroed.len())), "{different}");
    // The volume can be closed and opened again, and takes writes.
    let volume = subject.open(true).expect("opened");
    for block in 0..BLOCKS {
        volume.write((block * BLOCK_LEN) as u64, &subject.history[block][0]).expect("written");
    }
    volume.close().expect("closed");
    drop(volume);
    subject.open(true).expect("opened");
}

#[test]
fn the_last_writes_of_a_closed_volume_may_be_forgotten_too() {
    let subject = Subject::new(detwo(), 700);
    let hold_slots = BLOCKS + BLOCKS / 32 + STRIPE;
    let slot = (subject.writes - 1) % hold_slots;
    subject.damage(Subject::entry(slot), 1);
    assert!(matches!(
        subject.open(true),
        Err(Error::Scheme(traceless_core::Error::RolledBack { .. }))
    ));
    let done = subject.repair(true).expect("repaired");
    assert_eq!(done.forgotten.len(), 1);
    assert!(subject.assert_sound(|_| true) <= 1);
}

#[test]
fn an_entry_of_any_level_of_sq_may_be_forgotten() {
    let geometry = sq::SqGeometry::with_shape(BLOCKS as u64, BLOCK_LEN, 4, 3, 3).expect("it works");
    let subject = Subject::new(Arc::new(geometry), 700);
    let whole = std::fs::read(&subject.path).expect("an image");
    let anchored = std::fs::read(&subject.anchor).expect("an anchor");
    for (name, at, _) in &geometry.areas()[..3] {
        // Finds the first entry that opening needs.
        let mut slot = 0;
        loop {
            subject.damage(at + Subject::entry(slot) + 20, 1);
            if subject.open(true).is_err() {
                break;
            }
            std::fs::write(&subject.path, &whole).expect("written");
            std::fs::write(&subject.anchor, &anchored).expect("written");
            slot += 1;
        }
        assert!(subject.repair(false).is_err(), "only if it is accepted");
        let done = subject.repair(true).expect("repaired");
        assert_eq!(done.forgotten.len(), 1);
        assert_eq!((done.forgotten[0].area, done.forgotten[0].slot), (*name, slot as u64));
        let zeros = vec![0; BLOCK_LEN];
        let mut different = 0;
        let volume = subject.open(true).expect("opened");
        volume.verify(&mut |_, _| {}, &mut |place| panic!("{place}")).expect("verified");
        for (block, past) in subject.history.iter().enumerate() {
            let mut found = vec![1; BLOCK_LEN];
            volume.read((block * BLOCK_LEN) as u64, &mut found).expect("read");
            if Some(&found) != past.last() {
                assert!(past.contains(&found) || found == zeros, "block {block}");
                different += 1;
            }
        }
        assert!(different <= 1, "{name}: {different}");
        drop(volume);
        std::fs::write(&subject.path, &whole).expect("written");
        std::fs::write(&subject.anchor, &anchored).expect("written");
    }
}

#[test]
fn a_lost_anchor_is_made_anew_and_holds() {
    let subject = Subject::new(detwo(), 50);
    std::fs::remove_file(&subject.anchor).expect("removed");
    assert!(subject.open(true).is_err());
    let old = std::fs::read(&subject.path).expect("an image");
    let volume = subject.open(false).expect("opened");
    volume.close().expect("closed");
    new_anchor(&subject.anchor, &volume).expect("made");
    drop(volume);
    assert_eq!(subject.assert_sound(|_| false), 0);
    std::fs::write(&subject.path, old).expect("written");
    assert!(matches!(subject.open(true), Err(Error::RolledBack { .. })));
    std::fs::write(&subject.anchor, b"something else").expect("written");
    let volume = subject.open(false).expect("opened");
    assert!(matches!(new_anchor(&subject.anchor, &volume), Err(Error::Exists(_))));
}
