use super::*;
use crate::format::{Kdf, UserKey};
use std::fs::OpenOptions as FileOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use traceless_block::detwo::{DetWoGeometry, Refresh};
use traceless_block::plain::PlainScheme;
use traceless_block::sq;
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::seal::Cipher;
use traceless_core::trace::{Op, Recorder};
use traceless_core::types::Extent;
use zeroize::Zeroizing;

fn key(byte: u8) -> UserKey {
    UserKey::from_file(Zeroizing::new(vec![byte; 32])).unwrap()
}

fn detwo(blocks: u64) -> Arc<dyn BlockScheme> {
    Arc::new(DetWoGeometry::new(blocks, 4096, Refresh::ONE, 0).unwrap())
}

pub(super) fn options(scheme: Arc<dyn BlockScheme>) -> CreateOptions {
    let (cipher, kdf) = (Cipher::default(), Kdf::default());
    CreateOptions { scheme, cipher, kdf, force: false, unfilled: false, anchor: None }
}

pub(super) fn make(path: &Path, options: &CreateOptions) {
    create(path, &key(1), options, &mut |_, _| true).unwrap();
}

pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Volume> {
    Volume::open(path, &key(1), options, &mut |_, _| {})
}

fn anchored(path: &Path) -> OpenOptions {
    OpenOptions { anchor: Some(path.into()), ..OpenOptions::default() }
}

#[test]
fn bytes_of_any_alignment_come_back_after_a_close_and_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let plain: Arc<dyn BlockScheme> = Arc::new(PlainScheme { blocks: 50, block_len: 4096 });
    for (name, scheme) in [("d", detwo(50)), ("p", plain)] {
        let path = folder.path().join(name);
        make(&path, &options(scheme));
        let mut model = vec![0; 50 * 4096];
        for round in 0..6u64 {
            let volume = open(&path, &OpenOptions::default()).unwrap();
            for (i, len) in [1, 511, 512, 4096, 5000, 20000, 4095].into_iter().enumerate() {
                let at = (round * 7919 + i as u64 * 12345) % (50 * 4096 - len);
                let data = vec![(round * 10 + i as u64) as u8 + 1; len as usize];
                volume.write(at, &data).unwrap();
                model[at as usize..(at + len) as usize].copy_from_slice(&data);
            }
            let mut back = vec![0; model.len() - 3];
            volume.read(3, &mut back).unwrap();
            assert!(back == model[3..]);
            volume.flush().unwrap();
            assert!(volume.write(50 * 4096 - 1, &[0; 2]).is_err());
            assert!(volume.read(50 * 4096, &mut [0]).is_err());
            if round % 2 == 0 {
                volume.close().unwrap();
                assert!(volume.write(0, &[1]).is_err());
            }
        }
    }
}

/// On a machine that computes the volume's cipher wrongly.
#[test]
fn a_cipher_that_is_computed_wrongly_is_refused_and_nothing_is_written() {
    use traceless_core::Error::CipherUnsound;
    use traceless_core::seal::{Aead, DoubleAegis, wrong_machine::with};

    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["image", "other"].map(|name| folder.path().join(name));
    let of = |cipher| CreateOptions { cipher, ..options(detwo(50)) };
    let (unsound, sound) = (of(Cipher::Aegis256X2), of(Cipher::Aegis256X4));
    make(&path, &unsound);
    make(&other, &sound);
    let before = std::fs::read(&path).unwrap();
    let is_refused = |done: Result| match done {
        Err(Error::Scheme(CipherUnsound("aegis-256x2"))) => {}
        other => panic!("{other:?}"),
    };
    let change = Rebuild::Reencrypt {
        also: vec![],
        drop_other_keys: false,
        cipher: Some(Cipher::Aegis256X2),
    };
    with::<DoubleAegis, _>(|| {
        let new = folder.path().join("new");
        is_refused(create(&new, &key(1), &unsound, &mut |_, _| true).map(drop));
        let new_deniable = DeniableCreateOptions {
            size: Some(8 << 20),
            cipher: Cipher::Aegis256X2,
            anchor: None,
            force: false,
        };
        is_refused(create_deniable(&new, &key(1), &new_deniable, &mut |_, _| true).map(drop));
        for read_only in [false, true] {
            let options = OpenOptions { read_only, ..OpenOptions::default() };
            is_refused(open(&path, &options).map(drop));
        }
        let rebuilt =
            rebuild(&other, &key(1), &change, &RebuildOptions::default(), &mut |_, _, _| true);
        is_refused(rebuilt.map(drop));
        open(&other, &OpenOptions::default()).unwrap().close().unwrap();
    });
    assert!(std::fs::read(&path).unwrap() == before);
    // Superblocks and key slots have a cipher of their own.
    let made = with::<Aead, _>(|| {
        create(&folder.path().join("new"), &key(1), &sound, &mut |_, _| true).map(drop)
    });
    assert!(matches!(made, Err(Error::Scheme(CipherUnsound("aes-256-gcm")))), "{made:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no file is left");
    open(&path, &OpenOptions::default()).unwrap().close().unwrap();
}

#[test]
fn requests_together_are_as_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let plain: Arc<dyn BlockScheme> = Arc::new(PlainScheme { blocks: 50, block_len: 4096 });
    for (name, scheme) in [("d", detwo(50)), ("p", plain)] {
        let path = folder.path().join(name);
        make(&path, &options(scheme));
        let witness = Arc::new(Recorder::default());
        let watched = OpenOptions { witness: Some(witness.clone()), ..OpenOptions::default() };
        let volume = open(&path, &watched).unwrap();
        let mut model = vec![0; 50 * 4096];
        // Blocks in a row and again, parts of blocks, and blocks behind them.
        let places =
            [(8192, 8192), (40960, 4096), (8192, 4096), (100, 5000), (12288, 4096), (0, 8)];
        let places = places.map(|(at, len)| Extent::new(at, len));
        let mut data = Vec::new();
        for (nth, place) in places.iter().enumerate() {
            let bytes = vec![nth as u8 + 1; place.len];
            model[place.at as usize..place.end() as usize].copy_from_slice(&bytes);
            data.extend(bytes);
        }
        volume.write_many(&places, &data).unwrap();
        let mut back = vec![0; data.len()];
        volume.read_many(&places, &mut back).unwrap();
        let expected = places.iter().map(|place| &model[place.at as usize..place.end() as usize]);
        assert!(back == expected.collect::<Vec<_>>().concat());
        let beyond = [Extent::new(0, 4096), Extent::new(50 * 4096, 4096)];
        assert!(volume.write_many(&beyond, &[9; 8192]).is_err());
        assert!(volume.read_many(&beyond, &mut [0; 8192]).is_err());
        let mut back = vec![0; model.len()];
        volume.read(0, &mut back).unwrap();
        assert!(back == model, "what is refused changes nothing");
        // Single blocks together are written as one long write is.
        let trace = |write: &dyn Fn()| {
            witness.take();
            write();
            let ops = witness.take().into_iter().map(|event| event.op);
            ops.filter(|op| *op != Op::Read).collect::<Vec<_>>()
        };
        let singles: Vec<_> = (20..28).map(|block| Extent::new(block * 4096, 4096)).collect();
        let data = vec![7; 8 * 4096];
        let together = trace(&|| volume.write_many(&singles, &data).unwrap());
        let long = trace(&|| volume.write(20 * 4096, &data).unwrap());
        assert_eq!(together, long);
        volume.close().unwrap();
    }
}

fn with_discards(blocks: u64) -> Arc<dyn BlockScheme> {
    let geometry = DetWoGeometry::new(blocks, 4096, Refresh::ONE, 0).unwrap();
    Arc::new(geometry.with_discards().unwrap())
}

/// Parts of blocks, whole blocks, the whole volume and nothing.
#[test]
fn discarded_bytes_are_zeros_after_a_close_and_after_a_crash() {
    const LEN: u64 = 50 * 4096;
    let folder = tempfile::tempdir().unwrap();
    let geometry = sq::SqGeometry::new(50, 4096, sq::SqPreferences::default()).unwrap();
    for (name, scheme) in [("d", with_discards(50)), ("w", detwo(50)), ("s", Arc::new(geometry))] {
        let path = folder.path().join(name);
        make(&path, &options(scheme));
        let ranges = [
            (0, LEN),
            (4096, 8192),
            (5000, 9),
            (4000, 200),
            (100, 4096),
            (1, LEN - 2),
            (LEN, 0),
            (9, 0),
            (LEN - 4096, 4096),
        ];
        for (round, (at, len)) in ranges.into_iter().enumerate() {
            let volume = open(&path, &OpenOptions::default()).unwrap();
            assert_eq!(volume.keeps_discards(), name == "d");
            let mut model = vec![round as u8 + 1; LEN as usize];
            volume.write(0, &model).unwrap();
            volume.discard(at, len).unwrap();
            model[at as usize..][..len as usize].fill(0);
            volume.write(8191, &[9; 3]).unwrap();
            model[8191..8194].fill(9);
            for (at, len) in [(0, LEN + 1), (LEN, 1), (u64::MAX, 1), (9, u64::MAX)] {
                assert!(volume.discard(at, len).is_err(), "{at} {len}");
            }
            volume.flush().unwrap();
            let mut back = vec![7; LEN as usize];
            volume.read(0, &mut back).unwrap();
            assert!(back == model, "{name} {round}");
            if round % 2 == 0 {
                volume.close().unwrap();
                assert!(volume.discard(0, 4096).is_err());
            }
            drop(volume);
            let reading = OpenOptions { read_only: true, ..OpenOptions::default() };
            let volume = open(&path, &reading).unwrap();
            volume.read(0, &mut back).unwrap();
            assert!(back == model, "{name} {round}, opened again");
            assert_eq!(volume.discard(0, 1).unwrap_err().raw_os_error(), Some(30));
        }
    }
}

/// A sync must cover the writes that the scheme holds back, as a rebuild's record counts them.
#[test]
fn a_sync_covers_what_a_scheme_holds_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let geometry = sq::SqGeometry::new(200, 4096, sq::SqPreferences::default()).unwrap();
    make(&path, &options(Arc::new(geometry)));
    let volume = open(&path, &OpenOptions::default()).unwrap();
    volume.write(0, &[7; 4096]).unwrap();
    assert_eq!(volume.sync().unwrap(), 1);
    drop(volume);
    let volume = open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(volume.writes(), 1);
    let mut block = [0; 4096];
    volume.read(0, &mut block).unwrap();
    assert_eq!(block, [7; 4096]);
}

#[test]
fn reading_only_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    make(&path, &options(detwo(64)));
    let volume = open(&path, &OpenOptions::default()).unwrap();
    volume.write(4096, &[7; 4096]).unwrap();
    volume.flush().unwrap();
    drop(volume);
    let before = std::fs::read(&path).unwrap();
    let volume = open(&path, &OpenOptions { read_only: true, ..OpenOptions::default() }).unwrap();
    let mut block = [0; 4096];
    volume.read(4096, &mut block).unwrap();
    assert_eq!(block, [7; 4096]);
    assert_eq!(volume.write(0, &[1]).unwrap_err().raw_os_error(), Some(30));
    volume.flush().unwrap();
    volume.close().unwrap();
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn only_one_may_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    make(&path, &options(detwo(64)));
    let volume = open(&path, &OpenOptions::default()).unwrap();
    assert!(matches!(open(&path, &OpenOptions::default()), Err(Error::Busy(_))));
    let status_now = status(&path, &key(1)).unwrap();
    assert!(status_now.in_use && !status_now.clean);
    assert!(matches!(add_key(&path, &key(1), &key(2), Kdf::default()), Err(Error::Busy(_))));
    volume.write(0, &[1; 8192]).unwrap();
    volume.close().unwrap();
    drop(volume);
    let status_now = status(&path, &key(1)).unwrap();
    assert!(!status_now.in_use && status_now.clean && status_now.writes == 2);
}

#[test]
fn keys_are_added_changed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    make(&path, &options(detwo(64)));
    let opens = |k: u8| match Volume::open(&path, &key(k), &OpenOptions::default(), &mut |_, _| {})
    {
        Ok(_) => true,
        Err(Error::WrongKey) => false,
        Err(other) => panic!("{other}"),
    };
    assert!(opens(1) && !opens(2));
    assert!(matches!(remove_key(&path, &key(1), None), Err(Error::LastKey)));
    assert_eq!(add_key(&path, &key(1), &key(2), Kdf::default()).unwrap(), 1);
    let backup_at = folder.path().join("backup");
    backup_header(&path, &key(2), &backup_at).unwrap();
    let again = backup_header(&path, &key(2), &backup_at);
    assert!(matches!(again, Err(Error::BackupExists(_))));
    assert_eq!(change_key(&path, &key(1), &key(3), Kdf::default()).unwrap(), 2);
    assert!(!opens(1) && opens(2) && opens(3));
    assert!(matches!(remove_key(&path, &key(2), Some(5)), Err(Error::KeySlotEmpty(5))));
    remove_key(&path, &key(2), None).unwrap();
    assert!(!opens(2) && opens(3));
    for k in 4..11 {
        add_key(&path, &key(3), &key(k), Kdf::default()).unwrap();
    }
    let full = add_key(&path, &key(3), &key(12), Kdf::default());
    assert!(matches!(full, Err(Error::KeySlotsFull(8))));
    // Restoring a backup restores a lost header, and also the keys that were removed since.
    FileOptions::new().write(true).open(&path).unwrap().write_all_at(&vec![0; 36864], 0).unwrap();
    assert!(matches!(open(&path, &OpenOptions::default()), Err(Error::NotAVolume(_))));
    let backup = Backup::read(&backup_at).unwrap();
    assert!(matches!(restore_header(&path, &key(9), &backup), Err(Error::WrongKey)));
    restore_header(&path, &key(1), &backup).unwrap();
    assert!(opens(1) && opens(2) && !opens(3));
    let other = folder.path().join("other");
    make(&other, &options(detwo(64)));
    assert!(matches!(restore_header(&other, &key(1), &backup), Err(Error::Backup)));
}

#[test]
fn an_anchor_refuses_older_images_and_forks() {
    let folder = tempfile::tempdir().unwrap();
    let (path, anchor) = (folder.path().join("image"), folder.path().join("anchor"));
    let options = CreateOptions { anchor: Some(anchor.clone()), ..options(detwo(64)) };
    make(&path, &options);
    let write = |byte: u8, with: &OpenOptions| -> Result {
        let volume = open(&path, with)?;
        volume.write(0, &[byte; 4096]).unwrap();
        volume.flush().unwrap();
        Ok(())
    };
    write(1, &anchored(&anchor)).unwrap();
    let old = std::fs::read(&path).unwrap();
    write(2, &anchored(&anchor)).unwrap();
    let new = std::fs::read(&path).unwrap();
    let refused = |with: &OpenOptions| matches!(open(&path, with), Err(Error::RolledBack { .. }));
    std::fs::write(&path, &old).unwrap();
    assert!(refused(&anchored(&anchor)), "an older generation");
    write(3, &OpenOptions::default()).expect("without an anchor nobody can tell");
    assert!(refused(&anchored(&anchor)), "another chain at the same generation");
    std::fs::write(&path, &new).unwrap();
    let volume = open(&path, &anchored(&anchor)).unwrap();
    let opened = std::fs::read(&path).unwrap();
    volume.write(0, &[4; 4096]).unwrap();
    volume.flush().unwrap();
    drop(volume);
    std::fs::write(&path, &opened).unwrap();
    match open(&path, &anchored(&anchor)) {
        Err(Error::Scheme(traceless_core::Error::RolledBack { expected: 3, found: 2 })) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the last flushed write is gone, and the anchor did not notice"),
    }
}

#[test]
fn creation_leaves_nothing_half_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let stopped = create(&path, &key(1), &options(detwo(64)), &mut |_, _| false);
    assert!(matches!(stopped, Err(Error::Interrupted)));
    assert!(!path.exists());
    make(&path, &options(detwo(64)));
    let again = create(&path, &key(1), &options(detwo(64)), &mut |_, _| true);
    assert!(matches!(again, Err(Error::Exists(_))));
    let forced = CreateOptions { force: true, ..options(detwo(100)) };
    create(&path, &key(2), &forced, &mut |_, _| true).unwrap();
    assert!(matches!(open(&path, &OpenOptions::default()), Err(Error::WrongKey)));
    // Every page of the image was filled: none is a hole or a pattern.
    let image = std::fs::read(&path).unwrap();
    for (i, page) in image.chunks(4096).enumerate().skip(1) {
        let distinct = page.iter().collect::<std::collections::HashSet<_>>().len();
        assert!(distinct > 200, "page {i} is not filled");
    }
    let file = FileOptions::new().write(true).open(&path).unwrap();
    file.set_len(image.len() as u64 - 4096).unwrap();
    let cut = Volume::open(&path, &key(2), &OpenOptions::default(), &mut |_, _| {});
    assert!(matches!(cut, Err(Error::Truncated { .. })));
}

#[test]
fn ten_tebibytes_open_with_the_map_on_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let blocks = (10u64 << 40) / 4096;
    let tiers = DetWoGeometry::map_tiers_for(blocks, 64 << 20);
    assert!(tiers > 0);
    let geometry = DetWoGeometry::new(blocks, 4096, Refresh::new(3, 1).unwrap(), tiers).unwrap();
    let unfilled = CreateOptions { unfilled: true, ..options(Arc::new(geometry)) };
    make(&path, &unfilled);
    for round in 0..2u8 {
        let volume = open(&path, &OpenOptions::default()).unwrap();
        for at in [0, 5 << 40, (10 << 40) - 4096] {
            let mut block = [9; 4096];
            volume.read(at, &mut block).unwrap();
            assert_eq!(block, [round; 4096]);
            volume.write(at, &[round + 1; 4096]).unwrap();
            volume.read(at, &mut block).unwrap();
            assert_eq!(block, [round + 1; 4096]);
        }
        volume.flush().unwrap();
    }
}
