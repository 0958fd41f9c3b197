//! Space that a volume gives back: which bytes these are is public, and all that it holds stays.
#![cfg(target_os = "linux")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use traceless_block::detwo::{DetWoGeometry, Refresh};
use traceless_block::sq::SqGeometry;
use traceless_core::activity::{AuditCounts, EventAudit};
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::seal::Cipher;
use traceless_core::store::Caching;
use traceless_core::trace::{Event, Op, Recorder};
use traceless_volume::Error;
use traceless_volume::device::Device;
use traceless_volume::error::Kind;
use traceless_volume::format::{Kdf, UserKey};
use traceless_volume::volume::{CreateOptions, OpenOptions, Volume, create};

const BLOCKS: u64 = 1500;

fn key() -> UserKey {
    UserKey::from_file(vec![7; 32].into()).unwrap()
}

fn make(path: &Path, scheme: Arc<dyn BlockScheme>) {
    let (cipher, kdf) = (Cipher::default(), Kdf::default());
    let options =
        CreateOptions { scheme, cipher, kdf, force: false, unfilled: false, anchor: None };
    create(path, &key(), &options, &mut |_, _| true).unwrap();
}

/// Two levels of four before the last, and buckets of a stripe.
fn sq() -> Arc<dyn BlockScheme> {
    let shape = SqGeometry::with_shape(BLOCKS, 4096, 64, 4, 2).unwrap();
    Arc::new(SqGeometry { unsynced_max: 128, ..shape })
}

/// A user's life with a volume: openings with random writes in between. Returns the writes and
/// syncs that the image saw without their times, and bytes of the image after each opening.
fn live(path: &Path, caching: Caching, seed: u64) -> (Vec<Event>, Vec<u64>) {
    make(path, sq());
    let taken = || path.metadata().unwrap().blocks() * 512;
    let (witness, mut sizes) = (Arc::new(Recorder::default()), vec![taken()]);
    let (mut rng, mut events) = (SeededRng::new(seed), vec![]);
    let mut holds = vec![0; BLOCKS as usize];
    for opening in 0..4 {
        let options = OpenOptions {
            caching,
            witness: Some(witness.clone()),
            event_times: false,
            discard: true,
            ..OpenOptions::default()
        };
        let volume = Volume::open(path, &key(), &options, &mut |_, _| {}).unwrap();
        let (mut audit, counts) = (volume.place_audit(), AuditCounts::default());
        sizes.push(taken());
        events.extend(witness.take());
        for _ in 0..700 {
            let (block, byte) = (rng.below(BLOCKS), rng.next_u64() as u8);
            volume.write(block * 4096, &[byte; 4096]).unwrap();
            holds[block as usize] = byte;
        }
        volume.flush().unwrap();
        let of_writes = witness.take();
        for event in &of_writes {
            audit.record(event, &counts);
        }
        assert_eq!(counts.read().out_of_turn, 0, "{:?}", counts.read());
        events.extend(of_writes);
        let mut block = [0; 4096];
        for (nth, &byte) in (0..).zip(&holds) {
            volume.read(nth * 4096, &mut block).unwrap();
            assert!(block == [byte; 4096], "block {nth}");
        }
        volume.verify(&mut |_, _| {}, &mut |place| panic!("{place}")).unwrap();
        if opening % 2 == 0 {
            volume.close().unwrap();
        }
        sizes.push(taken());
        events.extend(witness.take());
    }
    // Opened without discards it is a volume like any other.
    let volume = Volume::open(path, &key(), &OpenOptions::default(), &mut |_, _| {}).unwrap();
    volume.write(0, &[1; 4096]).unwrap();
    volume.close().unwrap();
    events.retain(|event| event.op != Op::Read);
    (events, sizes)
}

#[test]
fn a_file_shrinks_by_what_is_dead_alike_for_all_users() {
    let folder = tempfile::tempdir().unwrap();
    for (name, caching) in [("direct", Caching::Direct), ("buffered", Caching::Buffered)] {
        let image = |user: u64| folder.path().join(format!("{name}-{user}"));
        let [one, other] = [1, 2].map(|user| live(&image(user), caching, user));
        assert!(one.0 == other.0, "{name}: the traces differ");
        // But for a few blocks of the file system's own.
        let is_near = |(a, b): (&u64, &u64)| a.abs_diff(*b) <= 64 << 10;
        assert!(one.1.iter().zip(&other.1).all(is_near), "{:?} {:?}", one.1, other.1);
        let (whole, new) = (one.1[0], one.1[1]);
        assert!(whole > BLOCKS * 4096 && new < whole * 3 / 4, "{name}: {:?}", one.1);
        assert!(one.1[2..].iter().all(|&taken| new < taken && taken < whole), "{:?}", one.1);
        // It is given back while the volume is open, too.
        let volumes = one.0.iter().filter(|event| event.op == Op::Write && event.at > 4096);
        assert!(volumes.filter(|event| event.len > 65 * 4096).count() > 8);
    }
}

#[test]
fn a_scheme_without_dead_runs_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    make(&path, Arc::new(DetWoGeometry::new(64, 4096, Refresh::ONE, 0).unwrap()));
    let before = std::fs::read(&path).unwrap();
    let options = OpenOptions { discard: true, ..OpenOptions::default() };
    let refused = Volume::open(&path, &key(), &options, &mut |_, _| {}).err().unwrap();
    assert!(matches!(refused, Error::NoDeadRuns("detwo")), "{refused}");
    assert_eq!(refused.kind(), Kind::Usage);
    assert!(std::fs::read(&path).unwrap() == before);
}
