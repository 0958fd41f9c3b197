//! Any change of an image by an adversary is an error or has no effect: never wrong data or a
//! panic.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions as FileOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use traceless_block::detwo::{DetWoGeometry, Refresh};
use traceless_block::plain::PlainScheme;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::seal::Cipher;
use traceless_core::store::Caching;
use traceless_volume::device::Device;
use traceless_volume::error::Error;
use traceless_volume::format::{AREAS_AT, Kdf, SUPERBLOCK_LEN, SUPERBLOCKS_AT, UserKey};
use traceless_volume::volume::{CreateOptions, OpenOptions, Volume, create};
use zeroize::Zeroizing;

const BLOCKS: u64 = 48;
const BLOCK_LEN: usize = 4096;
/// Most writes between two syncs: a 32nd of the blocks.
const S: u64 = 1;
const SECTOR: usize = 512;
const SUPERBLOCK_A: usize = SUPERBLOCKS_AT as usize;
const SUPERBLOCK_B: usize = SUPERBLOCK_A + SUPERBLOCK_LEN;
const AREAS: usize = AREAS_AT as usize;
/// Used bytes of a key slot.
const KEY_SLOT_USED: usize = 112;

/// The slots of one area: first byte, number of slots, bytes of an entry, slots in a stripe.
#[derive(Clone, Copy)]
struct Slots {
    first: usize,
    count: usize,
    entry_len: usize,
    stripe: usize,
}

impl Slots {
    fn header(self, slot: usize) -> usize {
        self.first + slot / self.stripe * (4096 + self.stripe * BLOCK_LEN)
    }

    fn entry(self, slot: usize) -> std::ops::Range<usize> {
        let at = self.header(slot) + slot % self.stripe * self.entry_len;
        at..at + self.entry_len
    }

    fn body(self, slot: usize) -> std::ops::Range<usize> {
        let at = self.header(slot) + 4096 + slot % self.stripe * BLOCK_LEN;
        at..at + BLOCK_LEN
    }

    fn end(self) -> usize {
        (self.body(self.count - 1).end).next_multiple_of(4096)
    }
}

/// The holding area and the main area (docs/format.md, sections 6 and 7).
fn areas(geometry: &DetWoGeometry) -> [Slots; 2] {
    let k = geometry.refresh;
    let hold_slots = k.writes_for(geometry.blocks) + geometry.unsynced_max + 64;
    let main_slots = geometry.blocks + k.at_most(geometry.unsynced_max + 1) + 128;
    let hold = Slots { first: AREAS, count: hold_slots as usize, entry_len: 64, stripe: 64 };
    let main = Slots { first: hold.end(), count: main_slots as usize, entry_len: 32, stripe: 128 };
    assert_eq!(main.end() as u64, AREAS_AT + geometry.store_len(), "docs/format.md, section 7");
    [hold, main]
}

fn key() -> UserKey {
    UserKey::from_file(Zeroizing::new(vec![7; 32])).expect("a key")
}

/// A closed volume with more writes than a refresh pass, and older copies of its image.
struct Subject {
    _folder: TempDir,
    path: PathBuf,
    anchor: PathBuf,
    file: File,
    /// The closed image.
    sound: Vec<u8>,
    /// The image before the first write.
    newborn: Vec<u8>,
    /// The image after the last opening but one.
    older: Vec<u8>,
    /// The image in the middle of the last opening.
    old: Vec<u8>,
    /// The block and the contents of each write.
    history: Vec<(usize, Vec<u8>)>,
    /// Whether the volume was left open: then the last writes may look lost in a crash.
    left_open: bool,
    geometry: DetWoGeometry,
}

/// The outcome of opening a changed image.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The volume does not open.
    Refused,
    /// This many blocks give an error; the rest are right.
    Blocks(usize),
    /// The volume looks like after a crash that lost the last `.0` writes; `.1` blocks give an
    /// error.
    WentBack(usize, usize),
}

impl Subject {
    fn detwo(seed: u64) -> Self {
        let geometry = DetWoGeometry::new(BLOCKS, BLOCK_LEN, Refresh::ONE, 0).expect("it works");
        Self::new(Arc::new(geometry), geometry, seed, true)
    }

    /// A volume that was flushed and not closed.
    fn left_open(seed: u64) -> Self {
        let geometry = DetWoGeometry::new(BLOCKS, BLOCK_LEN, Refresh::ONE, 0).expect("it works");
        assert_eq!(geometry.unsynced_max, S);
        Self::new(Arc::new(geometry), geometry, seed, false)
    }

    fn new(scheme: Arc<dyn BlockScheme>, geometry: DetWoGeometry, seed: u64, close: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, anchor) = (folder.path().join("image"), folder.path().join("anchor"));
        let anchored = Some(anchor.clone());
        let options = CreateOptions {
            scheme,
            cipher: Cipher::default(),
            kdf: Kdf::default(),
            force: false,
            unfilled: false,
            anchor: anchored.clone(),
        };
        create(&path, &key(), &options, &mut |_, _| true).expect("created");
        let (mut rng, mut history) = (SeededRng::new(seed), vec![]);
        let open = || {
            let options = OpenOptions { anchor: anchored.clone(), ..OpenOptions::default() };
            Volume::open(&path, &key(), &options, &mut |_, _| {}).expect("it opens")
        };
        let mut write = |volume: &Volume, writes| {
            for _ in 0..writes {
                let (block, mut data) = (rng.below(BLOCKS) as usize, vec![0; BLOCK_LEN]);
                rng.fill(&mut data);
                volume.write((block * BLOCK_LEN) as u64, &data).expect("written");
                history.push((block, data));
            }
            volume.flush().expect("flushed");
        };
        let image = || std::fs::read(&path).expect("an image");
        let newborn = image();
        let volume = open();
        write(&volume, 120);
        volume.close().expect("closed");
        drop(volume);
        let volume = open();
        write(&volume, 30);
        let older = image();
        volume.close().expect("closed");
        drop(volume);
        let volume = open();
        write(&volume, 130);
        let old = image();
        write(&volume, 127);
        if close {
            volume.close().expect("closed");
        }
        drop(volume);
        let file = FileOptions::new().write(true).open(&path).expect("opened");
        let sound = image();
        let left_open = !close;
        Self {
            _folder: folder,
            path,
            anchor,
            file,
            sound,
            newborn,
            older,
            old,
            history,
            left_open,
            geometry,
        }
    }

    /// The expected contents after `count` writes.
    fn model(&self, count: usize) -> Vec<u8> {
        let mut model = vec![0; BLOCKS as usize * BLOCK_LEN];
        for (block, data) in &self.history[..count] {
            model[block * BLOCK_LEN..][..BLOCK_LEN].copy_from_slice(data);
        }
        model
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.file.write_all_at(bytes, at as u64).expect("written");
    }

    /// Opens the image as it is and reads everything. Wrong data is an error, described in words.
    fn examine(&self, options: &OpenOptions) -> Result<Verdict, String> {
        let volume = match Volume::open(&self.path, &key(), options, &mut |_, _| {}) {
            Ok(volume) => volume,
            Err(Error::Busy(_) | Error::Io { .. }) => return Err("it cannot be tried".into()),
            Err(Error::Scheme(traceless_core::Error::Io(e))) => return Err(e.to_string()),
            Err(_) => return Ok(Verdict::Refused),
        };
        let (found, made) = (volume.writes() as usize, self.history.len());
        if found != made && !(found < made && self.left_open && options.anchor.is_none()) {
            return Err(format!("{found} writes, not {made}"));
        }
        let expected = self.model(found);
        let mut refused = 0;
        let mut block = vec![0; BLOCK_LEN];
        for (i, want) in expected.chunks_exact(BLOCK_LEN).enumerate() {
            match volume.read((i * BLOCK_LEN) as u64, &mut block) {
                Ok(()) if block == want => {}
                Ok(()) => return Err(format!("block {i} is wrong")),
                Err(_) => refused += 1,
            }
        }
        let mut damaged = 0;
        let verified = volume.verify(&mut |_, _| {}, &mut |_| damaged += 1);
        verified.map_err(|e| format!("verifying: {e}"))?;
        if damaged != refused {
            return Err(format!("{refused} blocks are refused, verifying finds {damaged}"));
        }
        let lost = made - found;
        Ok(if lost > 0 { Verdict::WentBack(lost, refused) } else { Verdict::Blocks(refused) })
    }

    /// Applies `changes` to the sound image, examines it, and undoes them.
    fn try_changes(&self, changes: &[(usize, &[u8])], read_only: bool) -> Verdict {
        for (at, bytes) in changes {
            self.put(*at, bytes);
        }
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        let verdict = self.examine(&options);
        // The result of the first opening's recovery must hold, too.
        let second = if read_only { Ok(Verdict::Refused) } else { self.examine(&options) };
        if read_only {
            for (at, bytes) in changes {
                self.put(*at, &self.sound[*at..*at + bytes.len()]);
            }
        } else {
            self.put(0, &self.sound);
        }
        let places: Vec<_> = changes.iter().map(|(at, b)| (self.name(*at), b.len())).collect();
        if let Err(what) = second {
            panic!("{places:?}, read_only {read_only}, at the second opening: {what}");
        }
        verdict.unwrap_or_else(|what| panic!("{places:?}, read_only {read_only}: {what}"))
    }

    fn flip(&self, at: usize, bit: usize, read_only: bool) -> Verdict {
        self.try_changes(&[(at, &[self.sound[at] ^ (1 << (bit % 8))])], read_only)
    }

    /// Describes the place of a byte in the image.
    fn name(&self, at: usize) -> String {
        let [hold, main] = areas(&self.geometry);
        let (name, area) = match at {
            ..SUPERBLOCK_A => return format!("header and key slots, byte {at}"),
            SUPERBLOCK_A..SUPERBLOCK_B => return format!("superblock A + {}", at - SUPERBLOCK_A),
            SUPERBLOCK_B..AREAS => return format!("superblock B + {}", at - SUPERBLOCK_B),
            _ if at < main.first => ("holding", hold),
            _ => ("main", main),
        };
        let stripe_len = 4096 + area.stripe * BLOCK_LEN;
        let (stripe, within) = ((at - area.first) / stripe_len, (at - area.first) % stripe_len);
        let slot = |bytes: usize, each| stripe * area.stripe + bytes / each;
        match within.checked_sub(4096) {
            None => format!(
                "{name}, entry {} + {}",
                slot(within, area.entry_len),
                within % area.entry_len
            ),
            Some(body) => format!("{name}, body {} + {}", slot(body, BLOCK_LEN), body % BLOCK_LEN),
        }
    }
}

/// Counts of verdicts, so that tests can assert that changes had effects.
#[derive(Default)]
struct Verdicts(BTreeMap<&'static str, usize>);

impl Verdicts {
    fn add(&mut self, verdict: &Verdict) {
        let kind = match verdict {
            Verdict::Refused => "refused",
            Verdict::Blocks(0) => "no effect",
            Verdict::WentBack(..) => "went back",
            Verdict::Blocks(_) => "some blocks refused",
        };
        *self.0.entry(kind).or_default() += 1;
    }

    fn count(&self, kind: &str) -> usize {
        self.0.get(kind).copied().unwrap_or_default()
    }
}

#[test]
fn flipped_bits_before_the_areas_are_refused() {
    let subject = Subject::detwo(1);
    assert_eq!(subject.try_changes(&[], true), Verdict::Blocks(0));
    assert_eq!(subject.try_changes(&[], false), Verdict::Blocks(0));
    for at in 0..4096 {
        assert_eq!(subject.flip(at, at, true), Verdict::Refused, "header, byte {at}");
    }
    let mut reserved = 0;
    for at in 4096..4096 + KEY_SLOT_USED {
        // Bytes 10..32 are reserved in the slot of a key file.
        match subject.flip(at, at, true) {
            Verdict::Refused => {}
            Verdict::WentBack(..) => panic!("a closed volume went back"),
            Verdict::Blocks(n) => {
                assert!(n == 0 && (10..32).contains(&(at - 4096)), "key slot, byte {at}");
                reserved += 1;
            }
        }
    }
    assert_eq!(reserved, 22);
    let mut rng = SeededRng::new(1);
    for sector in (4096 + SECTOR..SUPERBLOCK_A).step_by(SECTOR) {
        let at = sector + rng.below(SECTOR as u64) as usize;
        assert_eq!(subject.flip(at, at, true), Verdict::Blocks(0), "nothing lies at {at}");
    }
    for superblock in [SUPERBLOCK_A, SUPERBLOCK_B] {
        let ends = (0..40).chain(SUPERBLOCK_LEN - 20..SUPERBLOCK_LEN);
        for at in ends.chain((40..SUPERBLOCK_LEN).step_by(97)) {
            // The other superblock has the same state, as the close wrote both.
            let verdict = subject.flip(superblock + at, at, true);
            assert_eq!(verdict, Verdict::Blocks(0), "superblock, byte {at}");
        }
    }
    let both = |a: usize, b: usize| {
        let flipped = |at: usize| [subject.sound[at] ^ 16];
        let (a, b) = (SUPERBLOCK_A + a, SUPERBLOCK_B + b);
        subject.try_changes(&[(a, &flipped(a)), (b, &flipped(b))], true)
    };
    for at in (0..SUPERBLOCK_LEN).step_by(1009) {
        assert_eq!(both(at, SUPERBLOCK_LEN - 1 - at), Verdict::Refused);
    }
}

/// Changes of version, features, kind and cipher can come from a newer program or from damage. With
/// the key, the tag shows which.
#[test]
fn what_a_newer_program_may_write_is_damage_if_it_does_not_verify() {
    let subject = Subject::detwo(1);
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let open = |key: &UserKey| Volume::open(&subject.path, key, &options, &mut |_, _| {});
    let other = UserKey::from_file(Zeroizing::new(vec![8; 32])).expect("a key");
    let mut newer = 0;
    for bit in
        [8..10, 48..56, 80..82, 84..85].into_iter().flatten().flat_map(|at| at * 8..at * 8 + 8)
    {
        let at = bit / 8;
        subject.put(at, &[subject.sound[at] ^ (1 << (bit % 8))]);
        let opened = open(&key()).err();
        assert!(matches!(opened, Some(Error::HeaderDamaged)), "bit {bit}: {opened:?}");
        // Without a key the two cases cannot be distinguished.
        newer += usize::from(!matches!(
            open(&other).err(),
            Some(Error::WrongKey | Error::HeaderDamaged)
        ));
        subject.put(at, &[subject.sound[at]]);
    }
    assert!(newer > 16 + 62, "{newer}");
}

/// Cuts the image at each sector before the areas and each page in them, or appends bytes.
#[test]
fn every_cut_is_refused_and_tails_are_harmless() {
    let subject = Subject::detwo(3);
    let len = subject.sound.len();
    let sectors = (0..AREAS).step_by(SECTOR);
    for cut in sectors.chain((AREAS..len).step_by(BLOCK_LEN)).chain([1, 4095, 4097, len - 1]) {
        subject.file.set_len(cut as u64).expect("cut");
        let verdict = subject.examine(&OpenOptions::default());
        assert_eq!(verdict, Ok(Verdict::Refused), "cut at {cut}");
        assert_eq!(std::fs::metadata(&subject.path).expect("it is there").len(), cut as u64);
        subject.file.set_len(len as u64).expect("as long as before");
        subject.put(cut, &subject.sound[cut..]);
    }
    assert_eq!(subject.try_changes(&[], false), Verdict::Blocks(0));
    let (mut noise, mut rng) = (vec![0; 3 * BLOCK_LEN], SeededRng::new(4));
    for tail in [1, SECTOR, BLOCK_LEN, noise.len()] {
        for zeros in [true, false] {
            if zeros {
                noise.fill(0);
            } else {
                rng.fill(&mut noise);
            }
            subject.put(len, &noise[..tail]);
            assert_eq!(subject.try_changes(&[], true), Verdict::Blocks(0), "{tail}, {zeros}");
            assert_eq!(subject.try_changes(&[], false), Verdict::Blocks(0), "{tail}, {zeros}");
            subject.file.set_len(len as u64).expect("as long as before");
        }
    }
}

#[test]
fn flipped_bits_in_the_areas_change_nothing_unnoticed() {
    let subject = Subject::detwo(2);
    let mut rng = SeededRng::new(2);
    let mut verdicts = Verdicts::default();
    for sector in (AREAS..subject.sound.len()).step_by(SECTOR) {
        let at = sector + rng.below(SECTOR as u64) as usize;
        let read_only = !(sector / SECTOR).is_multiple_of(16);
        verdicts.add(&subject.flip(at, rng.below(8) as usize, read_only));
    }
    for area in areas(&subject.geometry) {
        for slot in 0..area.count {
            // Flips one bit of each byte of each entry, live or not.
            for at in area.entry(slot) {
                verdicts.add(&subject.flip(at, at, true));
            }
        }
    }
    println!("{:?}", verdicts.0);
    assert!(verdicts.count("refused") > 1000, "{:?}", verdicts.0);
    assert!(verdicts.count("some blocks refused") > 500, "{:?}", verdicts.0);
}

#[test]
fn old_sectors_and_pages_change_nothing_unnoticed() {
    let subject = Subject::detwo(3);
    let mut verdicts = Verdicts::default();
    for (n, image) in [&subject.old, &subject.older].into_iter().enumerate() {
        for unit in [SECTOR, 4096] {
            for (i, at) in (0..subject.sound.len()).step_by(unit).enumerate() {
                let before = &image[at..at + unit];
                if *before != subject.sound[at..at + unit] {
                    let read_only = !(i + n).is_multiple_of(24);
                    verdicts.add(&subject.try_changes(&[(at, before)], read_only));
                }
            }
        }
        // Restores older slots together with their entries, and all headers of an area at once.
        for area in areas(&subject.geometry) {
            for slot in 0..area.count {
                let [entry, body] = [area.entry(slot), area.body(slot)];
                let changes = [(entry.start, &image[entry]), (body.start, &image[body])];
                verdicts.add(&subject.try_changes(&changes, !slot.is_multiple_of(24)));
            }
            let headers: Vec<_> = (0..area.count)
                .step_by(area.stripe)
                .map(|slot| (area.header(slot), &image[area.header(slot)..][..4096]))
                .collect();
            verdicts.add(&subject.try_changes(&headers, true));
            verdicts.add(&subject.try_changes(&headers, false));
        }
    }
    println!("{:?}", verdicts.0);
    assert!(verdicts.count("refused") > 50, "{:?}", verdicts.0);
    assert!(verdicts.count("some blocks refused") > 100, "{:?}", verdicts.0);
}

#[test]
fn old_superblocks_and_old_images_are_refused() {
    let subject = Subject::detwo(4);
    let superblock = |image: &'static str, at: usize| {
        let image = if image == "old" { &subject.old } else { &subject.older };
        (at, &image[at..at + SUPERBLOCK_LEN])
    };
    for read_only in [true, false] {
        for image in ["old", "older"] {
            let [a, b] = [SUPERBLOCK_A, SUPERBLOCK_B].map(|at| superblock(image, at));
            assert_eq!(subject.try_changes(&[a], read_only), Verdict::Blocks(0));
            assert_eq!(subject.try_changes(&[b], read_only), Verdict::Blocks(0));
            // The last opening's superblocks from before the close are what a crash leaves. The
            // ones of the opening before do not fit the contents of the areas.
            let want = if image == "old" { Verdict::Blocks(0) } else { Verdict::Refused };
            assert_eq!(subject.try_changes(&[a, b], read_only), want, "{image}");
        }
    }
    for read_only in [true, false] {
        let anchor = Some(subject.anchor.clone());
        let options = OpenOptions { read_only, anchor, ..OpenOptions::default() };
        let anchored = std::fs::read(&subject.anchor).expect("an anchor");
        for image in [&subject.old, &subject.older, &subject.newborn] {
            subject.put(0, image);
            match Volume::open(&subject.path, &key(), &options, &mut |_, _| {}) {
                Err(
                    Error::RolledBack { .. }
                    | Error::Scheme(traceless_core::Error::RolledBack { .. }),
                ) => {}
                Err(other) => panic!("{other}"),
                Ok(_) => panic!("an older image was put back, and the anchor did not notice"),
            }
        }
        // Restores only the areas, or only the superblocks, of an older image.
        for image in [&subject.old, &subject.older, &subject.newborn] {
            for part in [AREAS..subject.sound.len(), SUPERBLOCK_A..AREAS] {
                subject.put(0, &subject.sound);
                subject.put(part.start, &image[part]);
                let verdict = subject.examine(&options).expect("never wrong data");
                assert_eq!(verdict, Verdict::Refused);
            }
        }
        subject.put(0, &subject.sound);
        std::fs::write(&subject.anchor, anchored).expect("written");
        assert_eq!(subject.examine(&options), Ok(Verdict::Blocks(0)));
    }
}

/// An image that was flushed and left open: a change is an error, has no effect, or looks exactly
/// like a crash a few writes ago. With an anchor even the latter is refused.
#[test]
fn a_volume_left_open_holds_a_prefix_of_its_writes() {
    let subject = Subject::left_open(10);
    let anchor = Some(subject.anchor.clone());
    let anchored = OpenOptions { read_only: true, anchor, ..OpenOptions::default() };
    assert_eq!(subject.examine(&anchored), Ok(Verdict::Blocks(0)));
    let mut rng = SeededRng::new(10);
    let mut verdicts = Verdicts::default();
    for at in (AREAS..subject.sound.len()).step_by(SECTOR) {
        let mut flipped = subject.sound[at..at + SECTOR].to_vec();
        flipped[rng.below(SECTOR as u64) as usize] ^= 1 << rng.below(8);
        for bytes in [&flipped, &subject.old[at..at + SECTOR]] {
            if *bytes == subject.sound[at..at + SECTOR] {
                continue;
            }
            subject.put(at, bytes);
            let verdict = subject.examine(&anchored);
            verdicts.add(&verdict.unwrap_or_else(|e| panic!("{}: {e}", subject.name(at))));
            let read_only = !(at / SECTOR).is_multiple_of(16);
            verdicts.add(&subject.try_changes(&[(at, bytes)], read_only));
        }
    }
    println!("{:?}", verdicts.0);
    assert!(verdicts.count("some blocks refused") > 200, "{:?}", verdicts.0);
    // An image from the same opening, some flushes ago, differs only in the number of writes.
    for part in [0..subject.sound.len(), AREAS..subject.sound.len()] {
        subject.put(part.start, &subject.old[part]);
        let opened = Volume::open(&subject.path, &key(), &anchored, &mut |_, _| {});
        assert!(matches!(opened, Err(Error::Scheme(traceless_core::Error::RolledBack { .. }))));
    }
}

/// If a volume was left open, its last S writes may look as if they had never arrived, even if they
/// were flushed (docs/security/volume.md). The loss of more writes must be noticed.
#[test]
fn damage_to_more_than_the_last_writes_is_noticed() {
    let subject = Subject::left_open(11);
    let [hold, _] = areas(&subject.geometry);
    let made = subject.history.len();
    let mut silent = vec![];
    for damaged in 1..=hold.count {
        let zeros = vec![0; hold.entry_len];
        let entries = (made - damaged..made).map(|p| hold.entry(p % hold.count).start);
        let changes: Vec<_> = entries.map(|at| (at, &zeros[..])).collect();
        match subject.try_changes(&changes, true) {
            Verdict::WentBack(lost, _) if lost > S as usize => silent.push(damaged),
            _ => {}
        }
    }
    assert!(silent.is_empty(), "S is {S}; zeroing the last n entries goes unnoticed: {silent:?}");
}

/// Superblocks from before the first write make the volume empty again, with any contents of the
/// areas: the same as restoring the whole image of that time. Only an anchor detects it.
#[test]
fn superblocks_of_a_newborn_make_an_empty_volume() {
    let subject = Subject::detwo(9);
    subject.put(SUPERBLOCK_A, &subject.newborn[SUPERBLOCK_A..AREAS]);
    let anchor = Some(subject.anchor.clone());
    let anchored = OpenOptions { read_only: true, anchor, ..OpenOptions::default() };
    assert_eq!(subject.examine(&anchored), Ok(Verdict::Refused));
    let volume = Volume::open(&subject.path, &key(), &OpenOptions::default(), &mut |_, _| {});
    let volume = volume.expect("without an anchor nobody can tell");
    let mut all = vec![1; BLOCKS as usize * BLOCK_LEN];
    volume.read(0, &mut all).expect("empty, not damaged");
    assert!(volume.writes() == 0 && all.iter().all(|&b| b == 0));
}

#[test]
fn swapped_slots_change_nothing_unnoticed() {
    let subject = Subject::detwo(5);
    let [hold, main] = areas(&subject.geometry);
    let mut rng = SeededRng::new(5);
    let mut verdicts = Verdicts::default();
    let image = &subject.sound;
    for round in 0..1500 {
        let area = if round % 2 == 0 { hold } else { main };
        let [one, two] = [0; 2].map(|_| rng.below(area.count as u64) as usize);
        let swap = |a: std::ops::Range<usize>, b: std::ops::Range<usize>| {
            [(a.start, &image[b.clone()]), (b.start, &image[a])]
        };
        let entries = swap(area.entry(one), area.entry(two));
        let bodies = swap(area.body(one), area.body(two));
        let changes = match round % 3 {
            0 => entries.to_vec(),
            1 => bodies.to_vec(),
            _ => [entries, bodies].concat(),
        };
        verdicts.add(&subject.try_changes(&changes, round % 16 != 0));
        let other = main.body(rng.below(main.count as u64) as usize);
        let across = swap(hold.body(rng.below(hold.count as u64) as usize), other);
        verdicts.add(&subject.try_changes(&across, round % 16 != 1));
    }
    println!("{:?}", verdicts.0);
    assert!(verdicts.count("some blocks refused") > 50, "{:?}", verdicts.0);
}

#[test]
fn another_volume_of_the_same_key_is_of_no_use() {
    let (subject, other) = (Subject::detwo(6), Subject::detwo(7));
    let mut verdicts = Verdicts::default();
    for area in areas(&subject.geometry) {
        for slot in 0..area.count {
            let [entry, body] = [area.entry(slot), area.body(slot)];
            let entry = (entry.start, &other.sound[entry]);
            let body = (body.start, &other.sound[body]);
            verdicts.add(&subject.try_changes(&[entry, body], slot % 24 != 0));
            verdicts.add(&subject.try_changes(&[body], slot % 24 != 1));
        }
    }
    println!("{:?}", verdicts.0);
    assert!(verdicts.count("some blocks refused") > 50, "{:?}", verdicts.0);
    let part = |from: usize, to: usize| (from, &other.sound[from..to]);
    let header = part(0, 4096);
    let key_slot = part(4096, 8192);
    let superblocks = part(SUPERBLOCK_A, AREAS);
    let all_areas = part(AREAS, other.sound.len());
    for changes in [
        vec![header],
        vec![key_slot],
        vec![header, key_slot],
        vec![superblocks],
        vec![all_areas],
        vec![superblocks, all_areas],
        vec![header, superblocks, all_areas],
        vec![key_slot, superblocks, all_areas],
        vec![header, key_slot, superblocks],
        vec![header, key_slot, all_areas],
    ] {
        for read_only in [true, false] {
            assert_eq!(subject.try_changes(&changes, read_only), Verdict::Refused);
        }
    }
}

/// Encryption in place has no freshness, as documented: restored old areas go unnoticed. This must
/// be visible to the test, or the test could not detect stale data at all.
#[test]
fn the_insecure_control_is_found_out() {
    let scheme = Arc::new(PlainScheme { blocks: BLOCKS, block_len: BLOCK_LEN });
    let geometry = DetWoGeometry::new(BLOCKS, BLOCK_LEN, Refresh::ONE, 0).expect("it works");
    let subject = Subject::new(scheme, geometry, 8, true);
    let options = OpenOptions { caching: Caching::Buffered, ..OpenOptions::default() };
    assert_eq!(subject.examine(&options), Ok(Verdict::Blocks(0)));
    subject.put(AREAS, &subject.old[AREAS..]);
    assert!(subject.examine(&options).expect_err("old data").contains("is wrong"));
}
