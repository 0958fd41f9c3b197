//! The anchor: a small record, kept away from the image, of how far a volume had come. An image
//! that is older than its anchor was rolled back.
//!
//! Where the record lies is an [`AnchorPlace`]: a file, a server, a counter of a TPM.

use super::{Keys, SourceState, u64_at};
use crate::error::{Error, Result};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

pub(crate) const MAGIC: [u8; 8] = *b"TLANCHOR";
const TAG_AT: usize = 88;
/// Bytes of a record.
pub(crate) const ANCHOR_LEN: usize = TAG_AT + 32;
/// Generations that a crash may leave between an image and its anchor: as many as a keeping makes.
const GENERATIONS_AHEAD_MAX: u64 = 2;

/// The contents of an anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AnchorState {
    /// Records written before this one.
    pub sequence: u64,
    /// Generation of the newest superblock.
    pub generation: u64,
    /// Chain of the newest superblock.
    pub chain: [u8; 32],
    /// Number of writes that an acknowledged flush made durable.
    pub count: u64,
    /// Value of the hardware counter that the record is bound to; 0 without one.
    pub counter: u64,
}

impl AnchorState {
    /// The record in `bytes`, if it is whole and of this volume.
    pub fn decode(keys: &Keys, bytes: &[u8]) -> Option<Self> {
        if bytes.len() < ANCHOR_LEN || bytes[..8] != MAGIC || bytes[8..24] != *keys.uuid() {
            return None;
        }
        let fits = keys.anchor().mac(&bytes[..TAG_AT]).fits(&bytes[TAG_AT..ANCHOR_LEN]);
        fits.then(|| Self {
            sequence: u64_at(bytes, 24),
            generation: u64_at(bytes, 32),
            chain: bytes[40..72].try_into().expect("32 bytes"),
            count: u64_at(bytes, 72),
            counter: u64_at(bytes, 80),
        })
    }

    fn seal(&self, keys: &Keys) -> AnchorRecord {
        let mut bytes = [0; ANCHOR_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(keys.uuid());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.generation.to_le_bytes());
        bytes[40..72].copy_from_slice(&self.chain);
        bytes[72..80].copy_from_slice(&self.count.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.counter.to_le_bytes());
        let tag = keys.anchor().mac(&bytes[..TAG_AT]);
        bytes[TAG_AT..].copy_from_slice(tag.bytes());
        AnchorRecord { sequence: self.sequence, counter: self.counter, bytes }
    }
}

/// A record as its place stores it.
#[derive(Clone)]
pub(crate) struct AnchorRecord {
    pub sequence: u64,
    pub counter: u64,
    pub bytes: [u8; ANCHOR_LEN],
}

/// What lies at an anchor's place. Records that do not verify may be among it.
#[derive(Default)]
pub(crate) struct FoundRecords {
    /// Records of the volume; the one with the highest sequence counts.
    pub current: Vec<Vec<u8>>,
    /// Records of an image that a rebuild has made, and that may have taken the volume's place.
    pub coming: Vec<Vec<u8>>,
}

/// What an anchor's place is about to be used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnchorUse {
    /// A new anchor. One that exists is overwritten only with `force`.
    Create {
        /// Whether it may be overwritten.
        force: bool,
    },
    /// The anchor goes on.
    Advance,
    /// The anchor is replaced by another one, or is lost and made anew.
    Replace,
}

/// Where an anchor's record lies. What was put there stays, and comes back whole, or the place
/// returns an error.
///
/// Of two that have read the same record, at most one replaces it: the other one's error is
/// [`Error::AnchorTaken`] or [`Error::Busy`].
pub(crate) trait AnchorPlace: Send {
    /// The place in messages, without a password.
    fn name(&self) -> PathBuf;

    /// Called once, before anything is changed; not called by what only reads.
    fn claim(&mut self, anchor_use: AnchorUse) -> Result;

    /// Reads all records.
    fn read(&mut self) -> Result<FoundRecords>;

    /// Fails if another record has replaced the newest one, which no lock keeps out.
    fn confirm(&mut self) -> Result {
        Ok(())
    }

    /// Replaces the newest record, durably.
    fn put(&mut self, record: &AnchorRecord) -> Result;

    /// Puts a record of the image that will replace the volume's beside the newest one.
    fn put_coming(&mut self, record: &AnchorRecord) -> Result;

    /// Puts the record beside the newest one into its place.
    fn promote(&mut self) -> Result;

    /// Removes the record beside the newest one, if there is one.
    fn forget_coming(&mut self) -> Result;

    /// Whether a record may be older than the image by more than a crash explains: the user keeps
    /// copies of it.
    fn may_lag(&self) -> bool {
        false
    }

    /// The counter's value for the next record; `opening` says that it has a new generation.
    fn next_counter(&self, opening: bool) -> u64 {
        let _ = opening;
        0
    }

    /// Fails if a record with this counter is not the newest one.
    fn check_counter(&mut self, counter: u64) -> Result {
        let _ = counter;
        Ok(())
    }
}

/// An open anchor.
pub struct Anchor {
    keys: Arc<Keys>,
    open: Mutex<OpenAnchor>,
    is_coming: bool,
}

struct OpenAnchor {
    place: Box<dyn AnchorPlace>,
    state: AnchorState,
}

impl Anchor {
    /// Makes a new anchor. An existing one is overwritten only with `force`.
    pub(crate) fn create(
        mut place: Box<dyn AnchorPlace>,
        keys: Arc<Keys>,
        force: bool,
    ) -> Result<Self> {
        place.claim(AnchorUse::Create { force })?;
        let open = OpenAnchor { place, state: AnchorState::default() };
        let anchor = Self { keys, open: Mutex::new(open), is_coming: false };
        anchor.note(true, |_| {})?;
        Ok(anchor)
    }

    /// Opens an anchor of this volume. With `read_only` it must not be changed.
    pub(crate) fn open(
        mut place: Box<dyn AnchorPlace>,
        keys: Arc<Keys>,
        read_only: bool,
    ) -> Result<Self> {
        if !read_only {
            place.claim(AnchorUse::Advance)?;
        }
        let FoundRecords { current, coming } = place.read()?;
        let newest = |records: &[Vec<u8>]| {
            let states = records.iter().filter_map(|record| AnchorState::decode(&keys, record));
            states.max_by_key(|state| state.sequence)
        };
        let (state, is_coming) = match newest(&coming) {
            Some(state) => (state, true),
            None => (newest(&current).ok_or_else(|| Error::Anchor(place.name()))?, false),
        };
        place.check_counter(state.counter)?;
        Ok(Self { keys, open: Mutex::new(OpenAnchor { place, state }), is_coming })
    }

    /// Puts the record of a volume in this state beside the newest one, which it will replace.
    pub(crate) fn prepare(
        mut place: Box<dyn AnchorPlace>,
        keys: &Keys,
        state: &SourceState,
    ) -> Result<PreparedAnchor> {
        place.claim(AnchorUse::Replace)?;
        let state = AnchorState {
            // A file has a record of an even number in its first bytes, which say what it is.
            sequence: 2,
            generation: state.generation,
            chain: state.chain,
            count: state.writes,
            counter: place.next_counter(true),
        };
        place.put_coming(&state.seal(keys))?;
        Ok(PreparedAnchor(place))
    }

    /// The recorded state.
    pub fn state(&self) -> AnchorState {
        self.open.lock().expect(POISONED).state
    }

    /// Fails if an image with a superblock of this generation and chain is older than its anchor,
    /// or newer than a crash explains. Whether all writes are there is checked when the scheme is
    /// opened.
    pub(crate) fn compare(&self, generation: u64, chain: &[u8; 32]) -> Result {
        let open = self.open.lock().expect(POISONED);
        let known = &open.state;
        if generation < known.generation {
            let known = known.generation;
            let what = format!("the anchor knows generation {known}, the image has {generation}");
            return Err(Error::RolledBack { what });
        }
        if generation == known.generation && *chain != known.chain {
            let what = format!(
                "generation {generation} is not the one that the anchor knows: it is of a copy \
                 that went another way"
            );
            return Err(Error::RolledBack { what });
        }
        if generation - known.generation > GENERATIONS_AHEAD_MAX && !open.place.may_lag() {
            let known = known.generation;
            let what = format!("it knows generation {known}, the image has {generation}");
            return Err(Error::AnchorWentBack { place: open.place.name(), what });
        }
        Ok(())
    }

    /// Completes or undoes a rebuild that was interrupted, and records the image's superblock: so
    /// the anchor is never further behind than by one keeping.
    pub(crate) fn settle(&self, generation: u64, chain: [u8; 32]) -> Result {
        {
            let mut open = self.open.lock().expect(POISONED);
            if self.is_coming {
                open.place.promote()?;
            } else {
                open.place.forget_coming()?;
            }
            if generation == open.state.generation || open.place.may_lag() {
                return Ok(());
            }
        }
        self.note_generation(generation, chain)
    }

    /// Fails if another opening has taken over the anchor: the image may be that one's.
    pub fn confirm(&self) -> Result {
        self.open.lock().expect(POISONED).place.confirm()
    }

    /// Records a new superblock, durably.
    pub fn note_generation(&self, generation: u64, chain: [u8; 32]) -> Result {
        self.note(true, |state| {
            state.generation = generation;
            state.chain = chain;
        })
    }

    /// Records durably that `count` writes are durable.
    pub fn note_count(&self, count: u64) -> Result {
        if self.state().count >= count {
            return Ok(());
        }
        self.note(false, |state| state.count = state.count.max(count))
    }

    fn note(&self, opening: bool, change: impl FnOnce(&mut AnchorState)) -> Result {
        let mut open = self.open.lock().expect(POISONED);
        let mut next = open.state;
        change(&mut next);
        next.sequence += 1;
        next.counter = open.place.next_counter(opening);
        open.place.put(&next.seal(&self.keys))?;
        open.state = next;
        Ok(())
    }
}

const POISONED: &str = "nothing panics under this lock";

/// The record of an image that will replace the volume's.
pub(crate) struct PreparedAnchor(Box<dyn AnchorPlace>);

impl PreparedAnchor {
    /// Puts it into the place of the newest record.
    pub fn replace(mut self) -> Result {
        self.0.promote()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anchor_places::place_at;
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    /// Bytes of a file from one record to the next.
    const SLOT_LEN: u64 = 4096;

    fn place(path: &Path) -> Box<dyn AnchorPlace> {
        place_at(path, Path::new("image")).unwrap()
    }

    #[test]
    fn remembers_through_damage_to_one_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anchor");
        let keys = Arc::new(Keys::for_fuzzing());
        let create = || Anchor::create(place(&path), keys.clone(), false);
        let open = || Anchor::open(place(&path), keys.clone(), false);
        let anchor = create().unwrap();
        anchor.note_generation(7, [1; 32]).unwrap();
        anchor.note_count(40).unwrap();
        anchor.note_count(41).unwrap();
        let state = anchor.state();
        assert!(matches!(open(), Err(Error::Busy(_))));
        drop(anchor);
        assert!(matches!(create(), Err(Error::Exists(_))));
        assert_eq!(open().unwrap().state(), state);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0xff], (state.sequence % 2) * SLOT_LEN + 75).unwrap();
        assert_eq!(open().unwrap().state().count, 40);
        file.set_len(0).unwrap();
        assert!(matches!(open(), Err(Error::Anchor(_))));
    }

    #[test]
    fn a_record_is_whole_and_of_this_volume() {
        let keys = Keys::for_fuzzing();
        let state =
            AnchorState { sequence: 3, generation: 2, chain: [9; 32], count: 7, counter: 5 };
        let record = state.seal(&keys).bytes;
        for len in 0..record.len() {
            assert_eq!(AnchorState::decode(&keys, &record[..len]), None, "{len} bytes");
        }
        let longer = [&record[..], &[0; 9]].concat();
        assert_eq!(AnchorState::decode(&keys, &longer), Some(state));
        // Records with a wrong magic or volume, but with a valid tag, as a holder of the key could
        // make.
        for byte in [0, 7, 8, 23] {
            let mut other = record;
            other[byte] ^= 1;
            let tag = keys.anchor().mac(&other[..TAG_AT]);
            other[TAG_AT..].copy_from_slice(tag.bytes());
            assert_eq!(AnchorState::decode(&keys, &other), None, "byte {byte}");
        }
    }

    #[test]
    fn failures_are_named_for_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, file) = (folder.path().join("none/anchor"), folder.path().join("file"));
        let keys = Arc::new(Keys::for_fuzzing());
        let created = Anchor::create(place(&missing), keys.clone(), false).map(drop);
        assert!(matches!(created, Err(Error::Io { .. })), "{created:?}");
        let opened = Anchor::open(place(&file), keys, false).map(drop);
        assert!(matches!(opened, Err(Error::Io { what: "open", .. })), "{opened:?}");
        std::fs::write(&file, "something else").unwrap();
        let absent = place(&folder.path().join("absent")).claim(AnchorUse::Replace);
        assert!(absent.is_ok(), "there is nothing to refuse");
        for other in [&file, &file.join("below"), &folder.path().to_owned()] {
            let refused = place(other).claim(AnchorUse::Replace);
            assert!(matches!(refused, Err(Error::Exists(_))), "{refused:?}");
        }
        assert!(place(&file).forget_coming().is_ok(), "none was prepared");
        std::fs::create_dir(folder.path().join("file.new")).unwrap();
        assert!(place(&file).forget_coming().is_err(), "it is there and stays");
    }
}
