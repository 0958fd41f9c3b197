//! Growing and re-encrypting: an interruption at any point loses nothing, and no part of the old
//! image can pass for a part of the new one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use traceless_block::detwo::{DetWoGeometry, Refresh};
use traceless_block::plain::PlainScheme;
use traceless_block::ring::RingGeometry;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::seal::Cipher;
use traceless_core::trace::{Event, Op, Witness};
use traceless_volume::device::Device;
use traceless_volume::error::Error;
use traceless_volume::format::{AREAS_AT, Kdf, UserKey};
use traceless_volume::volume::{
    CreateOptions, OpenOptions, Rebuild, RebuildOptions, Rebuilt, Volume, add_key, create, rebuild,
    remove_key, status,
};
use zeroize::Zeroizing;

const BLOCK_LEN: u64 = 4096;
const BLOCKS: u64 = 700;
const MORE: Rebuild = Rebuild::Grow { size: 1000 * BLOCK_LEN };

fn key(byte: u8) -> UserKey {
    UserKey::from_file(Zeroizing::new(vec![byte; 32])).expect("a key")
}

fn new_key() -> Rebuild {
    Rebuild::Reencrypt { also: vec![], drop_other_keys: false, cipher: None }
}

struct Subject {
    folder: TempDir,
    path: PathBuf,
    anchor: PathBuf,
    /// The expected contents.
    model: Vec<u8>,
}

impl Subject {
    /// A volume with `written` of its blocks written.
    fn new(scheme: Arc<dyn BlockScheme>, written: u64, seed: u64) -> Self {
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
        create(&path, &key(1), &options, &mut |_, _| true).expect("created");
        let mut model = vec![0; (BLOCKS * BLOCK_LEN) as usize];
        let rng = &mut SeededRng::new(seed);
        let volume = open(&path, Some(&anchor)).expect("opened");
        for _ in 0..written {
            let at = (rng.below(BLOCKS) * BLOCK_LEN) as usize;
            let block = &mut model[at..at + BLOCK_LEN as usize];
            rng.fill(block);
            volume.write(at as u64, block).expect("written");
        }
        if volume.keeps_discards() {
            volume.discard(9000, 300 * BLOCK_LEN).expect("discarded");
            model[9000..][..300 * BLOCK_LEN as usize].fill(0);
            volume.write(100 * BLOCK_LEN, &[7; 5000]).expect("written");
            model[100 * BLOCK_LEN as usize..][..5000].fill(7);
        }
        volume.flush().expect("flushed");
        volume.close().expect("closed");
        Self { folder, path, anchor, model }
    }

    fn detwo(written: u64, seed: u64) -> Self {
        Self::new(detwo(), written, seed)
    }

    fn staging(&self) -> PathBuf {
        self.folder.path().join("image.rebuild")
    }

    fn anchored(&self) -> RebuildOptions {
        RebuildOptions { anchor: Some(self.anchor.clone()), ..RebuildOptions::default() }
    }

    fn rebuild(&self, what: &Rebuild) -> Result<Rebuilt, Error> {
        rebuild(&self.path, &key(1), what, &self.anchored(), &mut |_, _, _| true)
    }

    /// Checks that the volume has its old contents, followed by zeros.
    fn assert_sound(&self, blocks: u64) {
        let volume = open(&self.path, Some(&self.anchor)).expect("opened");
        assert_eq!(volume.len(), blocks * BLOCK_LEN);
        let mut found = vec![1; volume.len() as usize];
        volume.read(0, &mut found).expect("read");
        let (before, behind) = found.split_at(self.model.len());
        assert!(before == self.model);
        assert!(behind.iter().all(|&byte| byte == 0));
        let mut damaged = 0;
        volume.verify(&mut |_, _| {}, &mut |_| damaged += 1).expect("verified");
        assert_eq!(damaged, 0);
        volume.write(volume.len() - BLOCK_LEN, &[0; BLOCK_LEN as usize]).expect("written");
        volume.close().expect("closed");
    }
}

fn detwo() -> Arc<dyn BlockScheme> {
    Arc::new(DetWoGeometry::new(BLOCKS, 4096, Refresh::ONE, 0).expect("it works"))
}

fn open(path: &Path, anchor: Option<&Path>) -> Result<Volume, Error> {
    let options = OpenOptions { anchor: anchor.map(PathBuf::from), ..OpenOptions::default() };
    Volume::open(path, &key(1), &options, &mut |_, _| {})
}

#[test]
fn every_scheme_keeps_its_contents_and_its_anchor() {
    let on_disk = DetWoGeometry::new(BLOCKS, 4096, Refresh::new(1, 3).expect("a ratio"), 1);
    let plain = Arc::new(PlainScheme { blocks: BLOCKS, block_len: 4096 });
    let discards =
        DetWoGeometry::new(BLOCKS, 4096, Refresh::ONE, 0).and_then(DetWoGeometry::with_discards);
    let ring = RingGeometry::with_buckets(BLOCKS, 4096, 16, &[3, 9]);
    let schemes: [Arc<dyn BlockScheme>; 5] = [
        detwo(),
        Arc::new(ring.expect("it works")),
        Arc::new(on_disk.expect("it works")),
        plain,
        Arc::new(discards.expect("it works")),
    ];
    for (i, scheme) in schemes.into_iter().enumerate() {
        let subject = Subject::new(scheme, 900, i as u64);
        let before = status(&subject.path, &key(1)).expect("the status is readable");
        let old = std::fs::read(&subject.path).expect("an image");
        let done = subject.rebuild(&MORE).expect("grown");
        assert_eq!((done.blocks_before, done.copied, done.resumed), (BLOCKS, BLOCKS, false));
        assert!(done.generation > before.generation);
        subject.assert_sound(1000);
        let after = status(&subject.path, &key(1)).expect("the status is readable");
        assert_eq!(
            (after.uuid, after.refresh, after.map),
            (before.uuid, before.refresh, before.map)
        );
        // Growing to the same size does nothing, and shrinking is refused.
        assert_eq!(subject.rebuild(&MORE).expect("as it is").copied, 0);
        let less = subject.rebuild(&Rebuild::Grow { size: BLOCKS * BLOCK_LEN });
        assert!(matches!(less, Err(Error::Shrink { blocks: 1000, wanted: BLOCKS })));
        let grown = std::fs::read(&subject.path).expect("an image");
        assert_eq!(subject.rebuild(&new_key()).expect("re-encrypted").copied, 1000);
        subject.assert_sound(1000);
        assert!(!subject.staging().exists());
        // The anchor refuses the old images, and no part of them opens together with the new one.
        for past in [old, grown] {
            let new = std::fs::read(&subject.path).expect("an image");
            std::fs::write(&subject.path, &past).expect("written");
            assert!(matches!(open(&subject.path, Some(&subject.anchor)), Err(Error::Anchor(_))));
            let mut mixed = new.clone();
            mixed[65536..AREAS_AT as usize].copy_from_slice(&past[65536..AREAS_AT as usize]);
            std::fs::write(&subject.path, &mixed).expect("written");
            assert!(matches!(open(&subject.path, None), Err(Error::SuperblockDamaged)));
            std::fs::write(&subject.path, &new).expect("written");
        }
        subject.assert_sound(1000);
    }
}

#[test]
fn what_was_cut_short_goes_on() {
    for (seed, what, blocks) in [(1, MORE, 1000), (2, new_key(), BLOCKS)] {
        let subject = Subject::detwo(1500, seed);
        let image = std::fs::read(&subject.path).expect("an image");
        let (mut runs, mut copied) = (0, 0);
        let done = loop {
            // The first run is stopped while it fills; each further run at its second report of
            // copying.
            let mut calls = 0;
            let stopped =
                rebuild(&subject.path, &key(1), &what, &subject.anchored(), &mut |work, _, _| {
                    calls += u64::from(work == "copying");
                    runs != 0 && calls < 2 || runs == 0 && work != "filling"
                });
            runs += 1;
            match stopped {
                Ok(done) => break done,
                Err(Error::Interrupted) => assert_eq!(runs, 1),
                Err(Error::Paused(at)) => assert_eq!(at, subject.staging()),
                Err(other) => panic!("{other}"),
            }
            assert!(std::fs::read(&subject.path).expect("an image") == image, "run {runs}");
            copied += 1;
        };
        assert!(runs > 3 && copied > 2 && done.resumed && done.copied < BLOCKS);
        subject.assert_sound(blocks);
    }
}

/// A run that was killed after it wrote the header and before the record leaves nothing to resume.
#[test]
fn what_has_no_record_begins_anew() {
    const RECORDS: std::ops::Range<usize> = 10 * 4096..16 * 4096;
    let subject = Subject::detwo(1500, 3);
    let run = |goes_on: bool| {
        rebuild(&subject.path, &key(1), &MORE, &subject.anchored(), &mut |work, _, _| {
            goes_on || work != "copying"
        })
    };
    assert!(matches!(run(false), Err(Error::Paused(_))));
    let mut begun = std::fs::read(subject.staging()).expect("what was begun");
    begun[RECORDS].fill(0x5a);
    std::fs::write(subject.staging(), begun).expect("without its record");
    assert!(!run(true).expect("done").resumed);
    subject.assert_sound(1000);
}

#[test]
fn the_last_steps_may_be_cut_short_anywhere() {
    for what in [MORE, new_key()] {
        let subject = Subject::detwo(800, 5);
        let (old, old_anchor) = (read(&subject.path), read(&subject.anchor));
        let mut copy = vec![];
        rebuild(&subject.path, &key(1), &what, &subject.anchored(), &mut |work, done, all| {
            if work == "copying" && done == all {
                copy = read(&subject.staging());
            }
            true
        })
        .expect("rebuilt");
        let (new, new_anchor) = (read(&subject.path), read(&subject.anchor));
        let blocks = status(&subject.path, &key(1)).expect("the status is readable").blocks;
        let coming = subject.folder.path().join("anchor.new");
        let put = |image: &[u8], staging: Option<&[u8]>, anchor: &[u8], next: Option<&[u8]>| {
            std::fs::write(&subject.path, image).expect("written");
            std::fs::write(&subject.anchor, anchor).expect("written");
            for (path, bytes) in [(&subject.staging(), staging), (&coming, next)] {
                match bytes {
                    Some(bytes) => std::fs::write(path, bytes).expect("written"),
                    None => drop(std::fs::remove_file(path)),
                }
            }
        };
        // Everything is copied; with and without the header and the prepared anchor.
        for (staging, next) in [(&copy, None), (&new, Some(&new_anchor[..]))] {
            let mut staging = staging.clone();
            staging[36864..65536].copy_from_slice(&copy[36864..65536]);
            put(&old, Some(&staging), &old_anchor, next);
            let done = subject.rebuild(&what).expect("it goes on");
            assert!(done.resumed && done.copied == 0);
            assert!(!coming.exists());
            subject.assert_sound(blocks);
        }
        // The image is in place, but its anchor is not.
        put(&new, None, &old_anchor, Some(&new_anchor));
        subject.assert_sound(blocks);
        assert!(!coming.exists());
        put(&old, None, &new_anchor, None);
        assert!(matches!(open(&subject.path, Some(&subject.anchor)), Err(Error::Anchor(_))));
        // The rebuild was abandoned: the prepared anchor goes, and the copy fits no anchor any
        // more.
        put(&old, Some(&new), &old_anchor, Some(&new_anchor));
        subject.assert_sound(BLOCKS);
        assert!(!coming.exists());
        std::fs::rename(subject.staging(), &subject.path).expect("renamed");
        assert!(matches!(open(&subject.path, Some(&subject.anchor)), Err(Error::Anchor(_))));
    }
}

#[test]
fn what_does_not_fit_is_refused_until_it_is_overwritten() {
    let subject = Subject::detwo(300, 3);
    let pause = |what: &Rebuild| {
        let mut calls = 0;
        let paused =
            rebuild(&subject.path, &key(1), what, &subject.anchored(), &mut |work, _, _| {
                calls += u64::from(work == "copying");
                calls < 2
            });
        assert!(matches!(paused, Err(Error::Paused(_))));
    };
    let refused = |what: &Rebuild| matches!(subject.rebuild(what), Err(Error::Staging { .. }));
    pause(&MORE);
    assert!(refused(&Rebuild::Grow { size: 2000 * BLOCK_LEN }), "another size");
    assert!(refused(&new_key()), "another kind");
    drop(open(&subject.path, Some(&subject.anchor)).expect("opened"));
    assert!(refused(&MORE), "the volume went on");
    let anew = RebuildOptions { restart: true, ..subject.anchored() };
    rebuild(&subject.path, &key(1), &MORE, &anew, &mut |_, _, _| true).expect("begun anew");
    subject.assert_sound(1000);
    // The copy is older than its record, so writes to it are lost.
    pause(&new_key());
    let mut staging = read(&subject.staging());
    pause(&new_key());
    let later = read(&subject.staging());
    let records = 40960..49152;
    staging[records.clone()].copy_from_slice(&later[records]);
    std::fs::write(subject.staging(), &staging).expect("written");
    let lost = subject.rebuild(&new_key());
    assert!(matches!(lost, Err(Error::Staging { why, .. }) if why.contains("are gone")));
    std::fs::write(subject.staging(), b"mine").expect("written");
    assert!(subject.rebuild(&new_key()).is_err());
    assert_eq!(read(&subject.staging()), b"mine");
    // The volume is in use.
    let volume = open(&subject.path, Some(&subject.anchor)).expect("opened");
    assert!(matches!(subject.rebuild(&new_key()), Err(Error::Busy(_))));
    drop(volume);
    let wrong = rebuild(&subject.path, &key(9), &new_key(), &anew, &mut |_, _, _| true);
    assert!(matches!(wrong, Err(Error::WrongKey)));
}

#[test]
fn keys_are_carried_over_or_requested() {
    let subject = Subject::detwo(10, 4);
    for extra in [2, 3, 4] {
        add_key(&subject.path, &key(1), &key(extra), Kdf::default()).expect("added");
    }
    let opens = |byte: u8| status(&subject.path, &key(byte)).is_ok();
    subject.rebuild(&MORE).expect("grown");
    assert!((1..5).all(opens));
    let reencrypt = |also, drop_other_keys| {
        let cipher = Some(Cipher::Aegis256X2);
        subject.rebuild(&Rebuild::Reencrypt { also, drop_other_keys, cipher })
    };
    assert!(matches!(reencrypt(vec![], false), Err(Error::OtherKeys(3))));
    assert!(matches!(reencrypt(vec![key(2), key(2)], false), Err(Error::OtherKeys(2))));
    assert!(matches!(reencrypt(vec![key(9)], false), Err(Error::WrongKey)));
    assert_eq!(reencrypt(vec![key(2), key(4), key(3)], false).expect("done").key_slots, 4);
    assert!((1..5).all(opens));
    assert_eq!(reencrypt(vec![key(3)], true).expect("done").key_slots, 2);
    assert_eq!([1, 2, 3, 4].map(opens), [true, false, true, false]);
    // A key that is removed while the rebuild is interrupted does not come back.
    let larger = Rebuild::Grow { size: 1100 * BLOCK_LEN };
    let paused =
        rebuild(&subject.path, &key(1), &larger, &subject.anchored(), &mut |w, done, _| {
            w != "copying" || done == 0
        });
    assert!(matches!(paused, Err(Error::Paused(_))));
    remove_key(&subject.path, &key(3), None).expect("removed");
    assert!(subject.rebuild(&larger).expect("grown").resumed);
    assert_eq!([1, 2, 3, 4].map(opens), [true, false, false, false]);
    subject.assert_sound(1100);
}

#[test]
fn another_place_leaves_the_old_image_alone() {
    let subject = Subject::detwo(600, 6);
    let (old, elsewhere) = (read(&subject.path), subject.folder.path().join("elsewhere"));
    let into = RebuildOptions { into: Some(elsewhere.clone()), ..subject.anchored() };
    let same = RebuildOptions { into: Some(subject.path.clone()), ..subject.anchored() };
    let onto_itself = rebuild(&subject.path, &key(1), &MORE, &same, &mut |_, _, _| true);
    assert!(matches!(onto_itself, Err(Error::Busy(_))));
    std::fs::write(&elsewhere, vec![1; 1 << 20]).expect("written");
    let taken = rebuild(&subject.path, &key(1), &MORE, &into, &mut |_, _, _| true);
    assert!(matches!(taken, Err(Error::Staging { .. })));
    std::fs::remove_file(&elsewhere).expect("removed");
    rebuild(&subject.path, &key(1), &MORE, &into, &mut |_, _, _| true).expect("grown");
    assert!(read(&subject.path) == old);
    std::fs::rename(&elsewhere, &subject.path).expect("renamed");
    subject.assert_sound(1000);
}

/// Records writes and syncs.
#[derive(Default)]
struct Recorder(Mutex<Vec<(Op, u64, u32)>>);

impl Witness for Recorder {
    fn record(&self, event: Event) {
        if event.op != Op::Read {
            self.0.lock().expect("no recorder panics").push((event.op, event.at, event.len));
        }
    }
}

#[test]
fn a_rebuilt_image_reveals_nothing_of_the_old_one() {
    for what in [MORE, new_key()] {
        let traces = [0, 40, 2000].map(|written| {
            let subject = Subject::detwo(written, written);
            let recorder = Arc::new(Recorder::default());
            let options =
                RebuildOptions { witness: Some(recorder.clone()), ..RebuildOptions::default() };
            rebuild(&subject.path, &key(1), &what, &options, &mut |_, _, _| true).expect("done");
            std::mem::take(&mut *recorder.0.lock().expect("no recorder panics"))
        });
        assert!(traces[0].len() > BLOCKS as usize / 64);
        assert!(traces[0] == traces[1] && traces[1] == traces[2]);
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}
