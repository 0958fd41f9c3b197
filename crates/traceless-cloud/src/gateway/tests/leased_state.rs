//! States in a log that several gateways reach: damage of the log, and gateways that lost the
//! lease.

use super::crash::World;
use super::*;
use crate::state_log::memory::{MemoryLog, Stored};
use crate::state_log::{PieceName, StateLog as _};
use bytes::Bytes;

const BLOCKS: u64 = 300;

/// A world in which blocks were written before and after the state was saved.
fn filled(world: World) -> (World, Arc<MemoryLog>) {
    let mut world = world.leased();
    let log = world.log.clone().unwrap();
    let mut gateway = world.open(u64::MAX).unwrap();
    for id in 0..BLOCKS {
        gateway.put(id, &block(id, 1)).unwrap();
        if id == BLOCKS / 2 {
            gateway.save().unwrap();
        }
    }
    (world, log)
}

fn is_whole(gateway: &mut Gateway) -> bool {
    (0..BLOCKS).all(|id| gateway.get(id).unwrap() == block(id, 1))
}

/// Each stored value is changed in several places, cut off, replaced by zeros, lost, or exchanged
/// for another one. That the last entry was lost can be found by an anchor alone.
#[test]
fn damage_of_the_log_is_refused() {
    let (mut world, log) = filled(World::new(BLOCKS, 101));
    let whole = log.contents().stored.clone();
    let flipped = |bytes: &Bytes, at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        Bytes::from(bytes)
    };
    let mut damaged: Vec<Stored> = Vec::new();
    let mut damage = |bytes: &Bytes, put: &dyn Fn(&mut Stored, Option<Bytes>)| {
        let offsets = (0..bytes.len()).step_by((bytes.len() / 5).max(1));
        let changed = offsets.map(|at| Some(flipped(bytes, at)));
        let cut = bytes.slice(..bytes.len() - 1);
        let zeros = Bytes::from(vec![0; bytes.len()]);
        for value in changed.chain([Some(cut), Some(zeros), None]) {
            let mut stored = whole.clone();
            put(&mut stored, value);
            damaged.push(stored);
        }
    };
    let entries: Vec<u64> = whole.entries.keys().copied().collect();
    let some = entries.iter().step_by(entries.len() / 20);
    for position in some.chain(entries.last()) {
        damage(&whole.entries[position], &|stored, value| match value {
            Some(value) => _ = stored.entries.insert(*position, value),
            None => _ = stored.entries.remove(position),
        });
    }
    for (name, bytes) in &whole.pieces {
        damage(bytes, &|stored, value| match value {
            Some(value) => _ = stored.pieces.insert(*name, value),
            None => _ = stored.pieces.remove(name),
        });
    }
    let (included, checkpoint) = whole.checkpoint.clone().unwrap();
    damage(&checkpoint, &|stored, value| {
        stored.checkpoint = value.map(|value| (included, value));
    });
    for pair in entries.windows(2).step_by(entries.len() / 20) {
        let mut stored = whole.clone();
        stored.entries.insert(pair[0], whole.entries[&pair[1]].clone());
        stored.entries.insert(pair[1], whole.entries[&pair[0]].clone());
        damaged.push(stored);
    }
    assert!(damaged.len() > 150, "{}", damaged.len());
    for (number, stored) in damaged.into_iter().enumerate() {
        let is_cut = stored.entries.len() < whole.entries.len()
            && stored.entries.keys().eq(&entries[..entries.len() - 1]);
        log.contents().stored = stored;
        let opened = world.open(u64::MAX).map(drop);
        let is_refused = matches!(opened, Err(Error::State(_) | Error::Damaged { .. }));
        assert!(is_refused != is_cut, "{number}: {opened:?}");
    }
    log.contents().stored = whole;
    assert!(is_whole(&mut world.open(u64::MAX).unwrap()));
}

/// An old copy of the log is refused by the hosts once a round was committed since then, and by an
/// anchor in any case.
#[test]
fn an_old_copy_of_the_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for anchor in [None, Some(folder.path().join("anchor"))] {
        let is_anchored = anchor.is_some();
        let mut world = World::new(BLOCKS, 102);
        world.anchor = anchor;
        let (mut world, log) = filled(world);
        let old = log.contents().stored.clone();
        let mut gateway = world.open(u64::MAX).unwrap();
        let rounds = gateway.counts().rounds;
        if is_anchored {
            gateway.put(7, &block(7, 2)).unwrap();
        } else {
            let mut ids = (0..BLOCKS).cycle();
            while gateway.counts().rounds < rounds + 2 {
                gateway.put(ids.next().unwrap(), &block(7, 2)).unwrap();
            }
        }
        drop(gateway);
        log.contents().stored = old;
        match world.open(u64::MAX).map(drop) {
            Err(Error::Anchor { .. }) => assert!(is_anchored),
            Err(Error::RolledBack { .. }) => assert!(!is_anchored),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn pieces_of_replaced_states_are_removed() {
    let (mut world, log) = filled(World::new(BLOCKS, 103));
    for life in 0..10 {
        // Some gateways end while they save.
        if life % 2 == 0 {
            let mut gateway = world.open(u64::MAX).unwrap();
            log.contents().left = 1 + life / 2;
            let _ = gateway.save();
        }
        let mut gateway = world.open(u64::MAX).unwrap();
        assert!(is_whole(&mut gateway));
        let saves = |log: &MemoryLog| {
            let names: HashSet<u64> =
                log.contents().stored.pieces.keys().map(|name| name.save).collect();
            names.len()
        };
        assert_eq!(saves(&log), 1, "{life}");
        gateway.save().unwrap();
        assert_eq!(saves(&log), 1, "{life}");
    }
}

/// A gateway goes on after another one has taken over: it changes nothing.
#[test]
fn a_gateway_without_the_lease_changes_nothing() {
    let (mut world, log) = filled(World::new(BLOCKS, 104));
    let mut first = world.open(u64::MAX).unwrap();
    first.put(3, &block(3, 1)).unwrap();
    // The other gateway takes the lease just before the first one saves its state, and reads the
    // state afterwards.
    let (taken, taking) = (Arc::new(Mutex::new(None)), world.taking());
    let lease = taken.clone();
    log.at_next_checkpoint(move || *lease.lock().unwrap() = Some(taking().unwrap()));
    assert!(matches!(first.save(), Err(Error::Fenced { .. })), "the lease was lost meanwhile");
    let lease = taken.lock().unwrap().take().expect("a checkpoint was stored");
    let mut second = world.open_under(&lease).unwrap();
    assert!(is_whole(&mut second));
    let before = log.contents().stored.clone();
    assert!(first.put(4, &block(4, 2)).is_err());
    assert!(first.save().is_err(), "it failed before");
    assert!(first.check_host().is_err());
    assert!(log.contents().stored.checkpoint == before.checkpoint);
    second.put(5, &block(5, 1)).unwrap();
    second.close().unwrap();
    assert!(matches!(second.put(5, &block(5, 2)), Err(Error::Store(_))), "it was closed");
    drop((first, second));
    assert!(is_whole(&mut world.open(u64::MAX).unwrap()));
}

/// An opening that failed, perhaps after it wrote records, is repeated under the same lease.
#[test]
fn a_gateway_can_be_opened_again_under_its_lease() {
    let (mut world, log) = filled(World::new(BLOCKS, 106));
    let lease = world.take(&log).unwrap();
    for round in 0..3 {
        let mut gateway = world.open_under(&lease).unwrap();
        assert!(is_whole(&mut gateway), "{round}");
        gateway.put(round, &block(round, 1)).unwrap();
    }
    drop(lease);
    assert!(is_whole(&mut world.open(u64::MAX).unwrap()));
}

/// Records without a saved state, and records of a gateway that does not have the lease.
#[test]
fn entries_without_their_state_are_refused() {
    let mut world = World::new(BLOCKS, 111).leased();
    world.period = Duration::from_hours(1);
    let log = world.log.clone().unwrap();
    let lease = world.take(&log).unwrap();
    let junk = Bytes::from_static(b"tlen");
    log.append(2, junk.clone()).unwrap();
    let refused = world.open_under(&lease).map(drop);
    assert!(matches!(refused, Err(Error::State(_))), "{refused:?}");
    log.contents().stored.entries.remove(&2);
    drop(world.open_under(&lease).unwrap());
    let mut entries = log.contents().stored.entries.clone();
    let next = entries.pop_last().unwrap().0 + 1;
    log.append(next, junk).unwrap();
    let refused = world.open_under(&lease).map(drop);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
}

/// A later gateway takes the lease and writes pieces of its state before this one has listed the
/// pieces to remove.
#[test]
fn pieces_of_a_later_gateway_stay() {
    let (mut world, log) = filled(World::new(BLOCKS, 110));
    let lease = world.take(&log).unwrap();
    let (later, taking) = (Arc::new(Mutex::new(None)), world.taking());
    let name = PieceName { save: 1, piece: 0 };
    let (taken, other) = (later.clone(), log.clone());
    log.at_next_list(move || {
        *taken.lock().unwrap() = Some(taking().unwrap());
        other.write_pieces(vec![(name, Bytes::from_static(b"piece"))]).unwrap();
    });
    assert!(world.open_under(&lease).is_err() || lease.shared().check().is_err());
    assert!(later.lock().unwrap().is_some(), "pieces were listed");
    assert!(log.contents().stored.pieces.contains_key(&name));
}

/// Nothing is added to the log between two saves but entries of the lease.
#[test]
fn a_state_can_be_saved_twice_in_a_row() {
    let (mut world, log) = filled(World::new(BLOCKS, 107));
    world.period = Duration::from_hours(1);
    let mut gateway = world.open(u64::MAX).unwrap();
    for _ in 0..3 {
        gateway.save().unwrap();
    }
    gateway.close().unwrap();
    drop(gateway);
    let mut gateway = world.open(u64::MAX).unwrap();
    assert!(is_whole(&mut gateway));
    // A checkpoint that arrives late is older than the newest one.
    let (position, old) = log.contents().stored.checkpoint.clone().unwrap();
    gateway.save().unwrap();
    log.checkpoint(position, old).unwrap();
    assert!(log.contents().stored.checkpoint.as_ref().unwrap().0 > position);
    gateway.close().unwrap();
}

/// A gateway that cannot write its state any more gives its lease up.
#[test]
fn a_state_that_cannot_be_written_ends_the_lease() {
    for save in [false, true] {
        let (mut world, log) = filled(World::new(BLOCKS, 108));
        world.period = Duration::from_millis(30);
        let lease = world.take(&log).unwrap();
        let (lost, losses) = std::sync::mpsc::channel();
        lease.on_loss(move || lost.send(()).unwrap());
        let mut gateway = world.open_under(&lease).unwrap();
        gateway.put(1, &block(1, 1)).unwrap();
        gateway.check_host().unwrap();
        let failing = log.clone();
        let failed = if save {
            log.at_next_checkpoint(move || failing.contents().failures = 100);
            gateway.save()
        } else {
            log.contents().failures = 100;
            gateway.put(1, &block(1, 1))
        };
        assert!(failed.is_err());
        log.contents().failures = 0;
        assert!(gateway.check_host().is_err());
        losses.recv_timeout(Duration::from_secs(5)).unwrap();
    }
}

/// Entries of the lease alone make a log long, and a checkpoint removes them.
#[test]
fn a_log_without_requests_does_not_grow_for_ever() {
    let (mut world, log) = filled(World::new(BLOCKS, 109));
    let lease = world.take(&log).unwrap();
    let mut gateway = world.open_under(&lease).unwrap();
    for _ in 0..3000 {
        lease.shared().extend().unwrap();
    }
    assert!(log.contents().stored.entries.len() > 2900);
    gateway.save_if_long().unwrap();
    assert!(log.contents().stored.entries.len() < 100);
    gateway.save_if_long().unwrap();
    assert!(is_whole(&mut gateway));
}

/// Entries of a state show neither how long a record is, up to a page, nor what kind it is.
#[test]
fn entries_are_whole_pages() {
    let (mut world, log) = filled(World::new(BLOCKS, 105));
    let mut gateway = world.open(u64::MAX).unwrap();
    for len in 0..200_usize {
        gateway.store(b"name", &vec![1; len], b"").unwrap();
    }
    let contents = log.contents();
    let lens: HashSet<usize> = contents.stored.entries.values().map(Bytes::len).collect();
    let of_lease = lens.iter().filter(|len| *len % 4096 != 0).count();
    assert!(of_lease <= 1 && lens.len() <= 3, "{lens:?}");
}
