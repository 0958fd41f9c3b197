//! Damaged, lost and old states: no acknowledged write is lost without an error.

use super::crash::World;
use super::*;
use crate::gateway::inspect::{check, new_anchor, repair};
use crate::gateway::journal::{SavedState, generations, path_of};
use crate::log::testing::{Judged, damages, every_damage};
use std::collections::HashMap;
use std::path::Path;

const BLOCKS: u64 = 20;

/// A world with some acknowledged writes, and the last content of each block.
fn written(seed: u64, writes: u64) -> (World, HashMap<u32, Vec<u8>>) {
    let mut world = World::new(BLOCKS, seed);
    let mut gateway = world.open(u64::MAX).unwrap();
    gateway.put(0, &block(0, 1000)).unwrap();
    gateway.save().unwrap();
    let mut model = HashMap::from([(0, block(0, 1000))]);
    for version in 0..writes {
        let id = version % BLOCKS;
        gateway.put(id, &block(id, version)).unwrap();
        model.insert(id as u32, block(id, version));
    }
    (world, model)
}

fn newest(world: &World) -> (u64, Vec<u8>) {
    let newest = generations(world.folder.path()).unwrap().pop().unwrap();
    (newest, std::fs::read(path_of(world.folder.path(), newest)).unwrap())
}

/// Whether a state has all acknowledged writes. An unanswered write is in its query.
fn has(state: &State, model: &HashMap<u32, Vec<u8>>) -> bool {
    let pending = |id: u32| state.pending.iter().find(|query| query.id == Some(id));
    model.iter().all(|(&id, bytes)| {
        let pending_write = pending(id).and_then(|query| query.write.as_ref());
        pending_write.or(state.stash.get(id).map(<[u8]>::to_vec).as_ref()) == Some(bytes)
    })
}

#[test]
fn no_damage_of_a_journal_loses_an_acknowledged_write() {
    let (mut world, model) = written(41, 6);
    let (generation, whole) = newest(&world);
    every_damage(&whole, |bytes| match SavedState::parse(bytes, generation, &world.keys.state) {
        Ok(saved) if saved.found.damage.is_none() => {
            let state = saved.state(&world.params).unwrap();
            assert!(has(&state, &model), "a write is lost");
            Judged::Opened
        }
        _ => Judged::Refused,
    });
    // Opens a gateway with some of the damage.
    let mut refused = 0;
    for damaged in damages(&whole).step_by(5003).chain([[&whole[..], &[0; 4096]].concat()]) {
        for old in generations(world.folder.path()).unwrap() {
            std::fs::remove_file(path_of(world.folder.path(), old)).unwrap();
        }
        let path = path_of(world.folder.path(), generation);
        std::fs::write(&path, &damaged).unwrap();
        match world.open(u64::MAX) {
            Ok(mut gateway) => {
                for (id, bytes) in &model {
                    assert!(gateway.get(u64::from(*id)).unwrap() == *bytes, "{id}");
                }
            }
            Err(Error::Damaged { .. }) => {
                assert!(std::fs::read(&path).unwrap() == damaged, "the file is as it was");
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn a_state_of_another_tree_or_under_another_name_is_refused() {
    let (mut world, model) = written(42, 3);
    let (generation, whole) = newest(&world);
    let own = world.params;
    world.params = params(BLOCKS + 1);
    assert!(matches!(world.open(u64::MAX), Err(Error::Parameters(_))));
    world.params = own;
    let other = path_of(world.folder.path(), generation + 7);
    std::fs::rename(path_of(world.folder.path(), generation), &other).unwrap();
    assert!(matches!(world.open(u64::MAX), Err(Error::Damaged { entry: 0, .. })));
    std::fs::remove_file(other).unwrap();
    std::fs::write(path_of(world.folder.path(), generation), whole).unwrap();
    let mut gateway = world.open(u64::MAX).unwrap();
    assert!(gateway.get(1).unwrap() == model[&1]);
}

/// A state of another version is refused by everything that reads it, also by a repair that may
/// lose what cannot be read. A damaged number in it is damage.
#[test]
fn a_state_of_another_version_is_refused_and_stays() {
    let (mut world, _) = written(44, 3);
    let (generation, whole) = newest(&world);
    let path = path_of(world.folder.path(), generation);
    for (number, advice) in [(b'5', "upgrade this program"), (b'3', "restore that with this one")] {
        let mut other = whole.clone();
        (other[7], other[16]) = (number, !other[16]);
        std::fs::write(&path, &other).unwrap();
        let folder = world.folder.path().to_owned();
        let mut rng = SeededRng::new(1);
        for refused in [
            world.open(u64::MAX).map(drop),
            check(&folder, &world.keys, None).map(drop),
            repair(&folder, &world.keys, None, &mut rng).map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, Error::Format { known: 4, .. }), "{refused:?}");
            assert!(refused.to_string().ends_with(advice), "{refused}");
        }
        assert!(std::fs::read(&path).unwrap() == other, "the file is as it was");
        assert_eq!(generations(&folder).unwrap(), [generation]);
    }
    let mut damaged = whole.clone();
    damaged[7] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    assert!(matches!(world.open(u64::MAX), Err(Error::Damaged { .. })));
}

/// A crash before the old generation is removed, then damage of the newest: the gateway must not
/// fall back to the old one.
#[test]
fn an_old_generation_does_not_replace_a_damaged_one() {
    let (mut world, model) = written(43, 4);
    let (old, old_bytes) = newest(&world);
    drop(world.open(u64::MAX).unwrap());
    let (generation, bytes) = newest(&world);
    let path = |generation| path_of(world.folder.path(), generation);
    assert!(generation > old);
    std::fs::write(path(old), &old_bytes).unwrap();
    let mut damaged = bytes.clone();
    damaged[crate::log::ENTRIES_AT + 70] ^= 1;
    std::fs::write(path(generation), &damaged).unwrap();
    let (path_old, path_new) = (path(old), path(generation));
    assert!(matches!(world.open(u64::MAX), Err(Error::Damaged { .. })));
    assert!(path_old.exists(), "nothing was removed");
    let checked = check(world.folder.path(), &world.keys, None).unwrap();
    assert_eq!(checked.lost.unwrap().repairable, Some(old));
    std::fs::write(path_new, &bytes).unwrap();
    let mut gateway = world.open(u64::MAX).unwrap();
    assert!(!path_old.exists(), "it is removed with the next opening");
    assert!(gateway.get(2).unwrap() == model[&2]);
}

#[test]
fn a_repair_keeps_whole_records_and_the_damaged_file() {
    let (mut world, model) = written(44, 6);
    let (generation, whole) = newest(&world);
    let folder = world.folder.path().to_owned();
    let sound = check(&folder, &world.keys, None).unwrap();
    assert!(sound.lost.is_none() && sound.generation == generation && sound.records > 0);
    let saved = SavedState::parse(whole.clone(), generation, &world.keys.state).ok().unwrap();
    // The last write, and the reply to the previous one.
    let at = saved.found.entries.last().unwrap().body.start;
    let mut damaged = whole.clone();
    damaged[at] ^= 1;
    std::fs::write(path_of(&folder, generation), &damaged).unwrap();
    let checked = check(&folder, &world.keys, None).unwrap();
    let lost = checked.lost.unwrap();
    assert_eq!((lost.entry, lost.entries), (sound.entries, 1));
    assert_eq!((checked.entries, lost.repairable), (sound.entries - 1, Some(generation)));
    assert_eq!(lost.records + checked.records, sound.records);
    assert!(std::fs::read(path_of(&folder, generation)).unwrap() == damaged, "only looked at");
    let kept = repair(&folder, &world.keys, None, &mut SeededRng::new(1)).unwrap();
    assert!(std::fs::read(kept).unwrap() == damaged);
    let repaired = check(&folder, &world.keys, None).unwrap();
    assert!(repaired.lost.is_none() && repaired.generation == generation + 1, "{repaired:?}");
    let mut gateway = world.open(u64::MAX).unwrap();
    for id in 0..5 {
        assert!(gateway.get(id).unwrap() == model[&(id as u32)], "{id}");
    }
    assert!(gateway.get(5).unwrap() == vec![0; BLOCK], "what was said to be lost");
}

/// An interrupted repair is repeated, and the file that an older repair kept stays.
#[test]
fn an_interrupted_repair_can_be_repeated() {
    let (world, _) = written(46, 6);
    let (generation, whole) = newest(&world);
    let folder = world.folder.path();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(path_of(folder, generation), &damaged).unwrap();
    let first = folder.join(format!("damaged.{generation}"));
    std::fs::write(&first, "of an older repair").unwrap();
    // The damaged file has its second name, and nothing else was done.
    let second = folder.join(format!("damaged.{generation}.1"));
    std::fs::hard_link(path_of(folder, generation), &second).unwrap();
    let kept = repair(folder, &world.keys, None, &mut SeededRng::new(1)).unwrap();
    assert_eq!(kept, second);
    assert!(std::fs::read(kept).unwrap() == damaged);
    assert_eq!(std::fs::read(first).unwrap(), b"of an older repair");
    assert!(check(folder, &world.keys, None).unwrap().lost.is_none());
}

/// A file that cannot become the anchor is refused before the repair begins.
#[test]
fn a_repair_with_a_foreign_anchor_changes_nothing() {
    let (world, _) = written(47, 6);
    let (generation, mut damaged) = newest(&world);
    let folder = world.folder.path();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(path_of(folder, generation), &damaged).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = elsewhere.path().join("letter");
    std::fs::write(&other, "a letter").unwrap();
    let refused = repair(folder, &world.keys, Some(&other), &mut SeededRng::new(1));
    assert!(matches!(refused, Err(Error::Anchor { .. })));
    assert_eq!(std::fs::read(&other).unwrap(), b"a letter");
    assert!(newest(&world) == (generation, damaged), "nothing was repaired");
    let anchor = elsewhere.path().join("anchor");
    repair(folder, &world.keys, Some(&anchor), &mut SeededRng::new(1)).unwrap();
    assert!(check(folder, &world.keys, Some(&anchor)).unwrap().anchor.is_none());
}

fn copy(from: &Path, to: &Path) {
    for name in std::fs::read_dir(to).unwrap().map(|entry| entry.unwrap().path()) {
        std::fs::remove_file(name).unwrap();
    }
    for name in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().file_name()) {
        std::fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

/// The folder is restored to each moment between two acknowledged writes, together with the store,
/// so that the host cannot detect it.
#[test]
fn an_anchor_refuses_every_older_state() {
    let (elsewhere, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let anchor = elsewhere.path().join("anchor");
    let mut world = World::anchored(45, &anchor);
    let moment = |number: u64| copies.path().join(number.to_string());
    let mut moments = 0;
    for life in 0..3 {
        let mut gateway = world.open(u64::MAX).unwrap();
        for version in 0..4 {
            gateway.put(version, &block(version, life)).unwrap();
            if version == 2 {
                gateway.save().unwrap();
            }
            std::fs::create_dir(moment(moments)).unwrap();
            copy(world.folder.path(), &moment(moments));
            moments += 1;
        }
    }
    for number in 0..moments - 1 {
        copy(&moment(number), world.folder.path());
        assert!(matches!(world.open(u64::MAX), Err(Error::Anchor { .. })), "moment {number}");
        // The limit of protection: without an anchor the old state is accepted.
        world.anchor = None;
        assert!(world.open(u64::MAX).is_ok());
        world.anchor = Some(anchor.clone());
    }
    // An empty folder.
    let empty = tempfile::tempdir().unwrap();
    copy(empty.path(), world.folder.path());
    assert!(matches!(world.open(u64::MAX), Err(Error::Anchor { .. })));
    copy(&moment(moments - 1), world.folder.path());
    let mut gateway = world.open(u64::MAX).unwrap();
    assert!(gateway.get(3).unwrap() == block(3, 2));
}

/// A state that continued without the anchor, or branched off, is refused until it is accepted.
#[test]
fn an_anchor_refuses_a_fork() {
    let (elsewhere, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let anchor = elsewhere.path().join("anchor");
    let mut world = World::anchored(46, &anchor);
    let mut gateway = world.open(u64::MAX).unwrap();
    gateway.put(1, &block(1, 1)).unwrap();
    copy(world.folder.path(), copies.path());
    gateway.put(2, &block(2, 1)).unwrap();
    assert!(matches!(world.open(u64::MAX), Err(Error::InUse(_))));
    drop(gateway);
    let refused = |world: &mut World| matches!(world.open(u64::MAX), Err(Error::Anchor { .. }));
    for writes in [1, 50] {
        copy(copies.path(), world.folder.path());
        world.anchor = None;
        let mut other = world.open(u64::MAX).unwrap();
        for version in 0..writes {
            other.put(3, &block(3, version)).unwrap();
        }
        drop(other);
        world.anchor = Some(anchor.clone());
        assert!(refused(&mut world));
    }
    let checked = check(world.folder.path(), &world.keys, Some(&anchor)).unwrap();
    assert!(checked.anchor.is_some() && checked.lost.is_none());
    new_anchor(world.folder.path(), &world.keys, &anchor).unwrap();
    assert_eq!(check(world.folder.path(), &world.keys, Some(&anchor)).unwrap().anchor, None);
    drop(world.open(u64::MAX).unwrap());
    // Another gateway's anchor, another file, and no file.
    let other = World::new(BLOCKS, 47);
    world.keys = other.keys;
    assert!(world.open(u64::MAX).is_err());
    let file = elsewhere.path().join("letter");
    std::fs::write(&file, b"dear reader").unwrap();
    let (mut world, _) = written(48, 2);
    for other in [&file, &anchor, &elsewhere.path().join("none")] {
        world.anchor = Some(other.clone());
        assert!(refused(&mut world), "{}", other.display());
    }
    assert!(matches!(
        new_anchor(world.folder.path(), &world.keys, &file),
        Err(Error::Anchor { .. })
    ));
    assert_eq!(std::fs::read(&file).unwrap(), b"dear reader");
}

/// A gateway may end between a write of its state and the anchor's update.
#[test]
fn an_anchor_is_never_ahead_of_the_state() {
    let elsewhere = tempfile::tempdir().unwrap();
    let anchor = elsewhere.path().join("anchor");
    let mut world = World::anchored(49, &anchor);
    let mut gateway = world.open(u64::MAX).unwrap();
    let mut before = Vec::new();
    for version in 0..3 {
        before = std::fs::read(&anchor).unwrap();
        gateway.put(version, &block(version, 1)).unwrap();
    }
    drop(gateway);
    std::fs::write(&anchor, before).unwrap();
    drop(world.open(u64::MAX).unwrap());
    let before = std::fs::read(&anchor).unwrap();
    let (generation, _) = newest(&world);
    drop(world.open(u64::MAX).unwrap());
    assert!(newest(&world).0 > generation && std::fs::read(&anchor).unwrap() != before);
    std::fs::write(&anchor, before).unwrap();
    let mut gateway = world.open(u64::MAX).unwrap();
    assert!(gateway.get(2).unwrap() == block(2, 1));
}

/// Flushing without new records writes nothing.
#[test]
fn records_of_failed_operations_are_not_written() {
    let mut world = written(47, 3).0;
    let mut gateway = world.open(u64::MAX).unwrap();
    gateway.put(1, &block(1, 99)).unwrap();
    let before = newest(&world);
    for _ in 0..3 {
        gateway.flush().unwrap();
    }
    assert!(newest(&world) == before);
}
