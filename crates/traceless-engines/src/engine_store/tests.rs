use super::log_end::ENTRIES_MAX;
use super::*;
use crate::conformance::{block_on, next_opening};
use crate::memory::MemoryEngine;
use futures_util::FutureExt as _;
use std::collections::HashMap;
use std::time::Duration;
use traceless_cloud::Error;
use traceless_cloud::store::suite::{
    behaves, bytes_of, check_round, path, reopens, shapes, write_round,
};
use traceless_core::rng::SeededRng;

/// So little that some failures reach the store.
const PATIENCE: Patience = Patience {
    attempt: Duration::from_secs(9),
    total: Duration::from_micros(500),
    pause: Duration::from_micros(100),
};

fn open(engine: &Arc<MemoryEngine>, g: Geometry) -> EngineStore<MemoryEngine> {
    EngineStore::open(engine.clone(), g, next_opening(), PATIENCE).unwrap()
}

/// Waits until the engine has as many stripes as the versions that can be read.
fn wait_for_removals(engine: &MemoryEngine, store: &EngineStore<MemoryEngine>) {
    let versions = store.reading();
    let known = versions.current().chain(versions.previous());
    let wanted = known.flat_map(|stored| store.stripes(value_name(stored))).count();
    for _ in 0..1000 {
        if engine.stripes() == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{} stripes instead of {wanted}", engine.stripes());
}

#[test]
fn an_engine_passes_the_store_tests_and_keeps_no_garbage() {
    for g in shapes() {
        let engine = Arc::new(MemoryEngine::new(1));
        behaves(&open(&engine, g), &g);
        wait_for_removals(&engine, &open(&engine, g));
        let engine = Arc::new(MemoryEngine::new(2));
        reopens(|| open(&engine, g), &g);
        let store = open(&engine, g);
        wait_for_removals(&engine, &store);
    }
}

/// A running host removes what it has given up, without being opened again.
#[test]
fn what_is_given_up_is_removed_before_the_store_is_opened_again() {
    let (g, engine) = (shapes()[0], Arc::new(MemoryEngine::new(9)));
    let store = open(&engine, g);
    write_round(&store, &g, 1);
    wait_for_removals(&engine, &store);
    let versions = path(&g, 1, 2);
    // A caller gives up a node after its stripes are written.
    let (known, bytes) = (engine.stripes(), bytes_of(&g, versions[0]));
    block_on(store.stage(versions[0], &bytes)).unwrap();
    while engine.stripes() == known {
        std::thread::yield_now();
    }
    block_on(store.abandon()).unwrap();
    wait_for_removals(&engine, &store);
    // A removal fails, and is made up for with the next one.
    block_on(store.stage(versions[1], &bytes_of(&g, versions[1]))).unwrap();
    block_on(store.finish_stages()).unwrap();
    engine.fail(100);
    block_on(store.abandon()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    engine.fail(0);
    assert!(engine.stripes() > known);
    write_round(&store, &g, 2);
    wait_for_removals(&engine, &store);
}

/// The nodes of a path are read from its beginning, and once.
#[test]
fn announced_nodes_are_read_before_they_are_used() {
    let (g, engine) = (shapes()[0], Arc::new(MemoryEngine::new(11)));
    let store = open(&engine, g);
    write_round(&store, &g, 1);
    let versions = path(&g, 0, 1);
    let before = engine.reads();
    store.announce(&versions);
    while engine.reads() < before + versions.len() {
        std::thread::yield_now();
    }
    for version in &versions {
        let mut bytes = vec![0; bytes_of(&g, *version).len()];
        block_on(store.read_node(*version, &mut bytes)).unwrap();
        assert!(bytes == bytes_of(&g, *version));
    }
    assert_eq!(engine.reads(), before + versions.len());
}

/// A node that could not be written is an error before the commit, and is not committed.
#[test]
fn nodes_that_are_not_written_are_not_committed() {
    let (g, engine) = (shapes()[0], Arc::new(MemoryEngine::new(12)));
    let store = open(&engine, g);
    write_round(&store, &g, 1);
    let versions = path(&g, 1, 2);
    engine.fail(100);
    for version in &versions {
        block_on(store.stage(*version, &bytes_of(&g, *version))).unwrap();
    }
    assert!(matches!(block_on(store.finish_stages()), Err(Error::Engine(_))));
    engine.fail(0);
    assert!(block_on(store.commit(2, &versions)).is_err());
    assert_eq!(block_on(store.sequence()).unwrap(), 1);
    block_on(store.abandon()).unwrap();
    write_round(&store, &g, 2);
    check_round(&store, &g, 2);
    // Late writes are found when the store is opened again.
    drop(store);
    wait_for_removals(&engine, &open(&engine, g));
}

#[test]
fn a_long_log_becomes_a_checkpoint() {
    let (g, engine) = (shapes()[1], Arc::new(MemoryEngine::new(3)));
    let rounds = 3 * ENTRIES_MAX;
    let store = open(&engine, g);
    for sequence in 1..=rounds {
        write_round(&store, &g, sequence);
        assert!(engine.entries() as u64 <= ENTRIES_MAX + 1);
    }
    drop(store);
    let store = open(&engine, g);
    check_round(&store, &g, rounds);
    check_round(&store, &g, rounds - 1);
    write_round(&store, &g, rounds + 1);
    check_round(&store, &g, rounds + 1);
}

#[test]
fn a_host_that_another_one_follows_changes_nothing_more() {
    let (g, engine) = (shapes()[0], Arc::new(MemoryEngine::new(4)));
    let first = open(&engine, g);
    write_round(&first, &g, 1);
    let staged = path(&g, 1, 2);
    for version in &staged {
        block_on(first.stage(*version, &bytes_of(&g, *version))).unwrap();
    }
    // What is written later is removed when the store is opened the next time.
    block_on(first.finish_stages()).unwrap();
    let second = open(&engine, g);
    for _ in 0..2 {
        assert!(matches!(block_on(first.commit(2, &staged)), Err(Error::InUse(_))));
        assert!(matches!(block_on(first.abandon()), Err(Error::InUse(_))));
        assert!(matches!(block_on(first.sequence()), Err(Error::InUse(_))));
    }
    for sequence in 2..=30 {
        write_round(&second, &g, sequence);
        check_round(&second, &g, sequence);
    }
    wait_for_removals(&engine, &second);
    // The first host's versions are gone, and that is no damage.
    let mut node = bytes_of(&g, path(&g, 0, 1)[0]);
    let gone = block_on(first.read_node(path(&g, 0, 1)[0], &mut node));
    assert!(matches!(gone, Err(Error::InUse(_))), "{gone:?}");
}

#[test]
fn a_lost_stripe_is_damage_of_its_slots_alone() {
    let (g, engine) = (shapes()[0], Arc::new(MemoryEngine::new(5)));
    let store = open(&engine, g);
    write_round(&store, &g, 1);
    let version = path(&g, 0, 1)[1];
    let per_stripe = store.slots_per_stripe();
    assert!(per_stripe > 1 && per_stripe < g.inner_slots);
    engine.lose(|name| name.value.version == version && name.stripe == 1);
    let lost = per_stripe * g.slot_len()..2 * per_stripe * g.slot_len();
    let mut wanted = bytes_of(&g, version);
    wanted[lost].fill(0);
    let before = engine.entries();
    let mut node = vec![1; wanted.len()];
    block_on(store.read_node(version, &mut node)).unwrap();
    assert!(node == wanted);
    assert_eq!(engine.entries(), before + 1, "one entry finds out that the store is still here");
    for (slot, wanted) in wanted.chunks(g.slot_len()).enumerate() {
        let mut into = vec![1; g.slot_len()];
        let read = SlotRead { version, slot: slot as u32, into: &mut into };
        block_on(store.read_slots(&mut [read])).unwrap();
        assert!(into == wanted);
    }
    // A node without any stripe can still be replaced.
    engine.lose(|name| name.value.version == version);
    block_on(store.read_node(version, &mut node)).unwrap();
    assert!(node.iter().all(|&byte| byte == 0));
    write_round(&store, &g, 2);
}

/// A list that another host overtook has stripes of that host, which are not garbage.
#[test]
fn a_slow_list_removes_nothing_of_a_later_host() {
    let (g, engine) = (shapes()[0], Arc::new(MemoryEngine::new(7)));
    write_round(&open(&engine, g), &g, 1);
    let later = engine.clone();
    engine.at_next_list(move || {
        let store = open(&later, g);
        write_round(&store, &g, 2);
        check_round(&store, &g, 2);
    });
    // The opening of the host that lists is older than the later one's.
    let slow = EngineStore::open(engine.clone(), g, next_opening(), PATIENCE);
    assert!(matches!(slow, Err(Error::Fenced { .. })));
    std::thread::sleep(Duration::from_millis(100));
    check_round(&open(&engine, g), &g, 2);
}

#[test]
fn a_log_with_impossible_numbers_is_refused() {
    let g = shapes()[0];
    for (position, sequence) in [(u64::MAX, 1), (u64::MAX - 1, 1), (3, u64::MAX)] {
        let engine = Arc::new(MemoryEngine::new(8));
        let opening = next_opening();
        let (previous, current) = (Vec::new(), Vec::new());
        let checkpoint = Entry::Checkpoint { geometry: g, opening, sequence, previous, current };
        let bytes = checkpoint.encode(&crate::entry::Mark { owner: [1; 16], number: 1 });
        block_on(engine.checkpoint(position, bytes.into())).unwrap();
        let refused = EngineStore::open(engine, g, next_opening(), PATIENCE);
        assert!(matches!(refused, Err(Error::State(_))), "{position} {sequence}");
    }
}

/// Requests and answers that get lost or arrive late never undo a commit, and never make a version
/// readable that was not committed.
#[test]
fn commits_survive_failures_and_late_requests() {
    for seed in 0..12 {
        let (g, engine) = (shapes()[seed as usize % 3], Arc::new(MemoryEngine::new(seed)));
        let (mut rng, mut store) = (SeededRng::new(seed), open(&engine, g));
        let (mut sequence, mut attempt, mut current) = (0, 0, HashMap::new());
        let mut is_committed = true;
        engine.fail(30);
        for _ in 0..200 {
            // After the end of a session a gateway sends an attempt again.
            if rng.below(2) == 0 || is_committed {
                attempt += 1;
            }
            if rng.below(12) == 0 {
                drop(store);
                engine.fail(0);
                store = open(&engine, g);
                engine.fail(30);
            }
            let versions = path(&g, sequence, attempt);
            let work = async {
                store.abandon().await?;
                for version in &versions {
                    store.stage(*version, &bytes_of(&g, *version)).await?;
                }
                store.commit(sequence + 1, &versions).await
            };
            let done = match rng.below(8) {
                // The caller gives up early.
                0 => work.now_or_never().unwrap_or(Err(Error::SessionLost)),
                _ => block_on(work),
            };
            if rng.below(2) == 0 {
                let _ = block_on(store.abandon());
            }
            engine.fail(0);
            let after = block_on(store.sequence()).unwrap();
            assert!(after == sequence + 1 || done.is_err() && after == sequence, "{seed}");
            is_committed = after > sequence;
            if is_committed {
                sequence = after;
                current.extend(versions.into_iter().map(|version| (version.node, version)));
            }
            for version in current.values() {
                let mut bytes = vec![0; bytes_of(&g, *version).len()];
                block_on(store.read_node(*version, &mut bytes)).unwrap();
                assert!(bytes == bytes_of(&g, *version), "{seed}");
            }
            engine.fail(30);
        }
        assert!(sequence > 10, "{seed}: {sequence}");
        drop(store);
        engine.fail(0);
        wait_for_removals(&engine, &open(&engine, g));
    }
}

#[test]
fn an_older_gateway_is_refused_and_a_newer_one_has_the_store() {
    let (g, engine) = (shapes()[1], Arc::new(MemoryEngine::new(6)));
    let [older, newer] = [next_opening(), next_opening()];
    let twin = Opening { instance: [2; 16], ..newer };
    let open = |opening| EngineStore::open(engine.clone(), g, opening, PATIENCE);
    let first = open(older).unwrap();
    write_round(&first, &g, 1);
    let second = open(newer).unwrap();
    for refused in [older, twin] {
        assert!(matches!(open(refused), Err(Error::Fenced { .. })));
        assert!(matches!(block_on(first.admit(refused)), Err(Error::Fenced { .. })));
        assert!(matches!(block_on(second.admit(refused)), Err(Error::Fenced { .. })));
    }
    // A refused opening takes the store from no host, also after many entries.
    for sequence in 2..=ENTRIES_MAX + 9 {
        write_round(&second, &g, sequence);
    }
    assert!(matches!(open(older), Err(Error::Fenced { .. })));
    // The same gateway, in its next session.
    block_on(second.admit(newer)).unwrap();
    write_round(&second, &g, ENTRIES_MAX + 10);
    block_on(first.admit(newer)).unwrap();
    assert_eq!(block_on(first.sequence()).unwrap(), ENTRIES_MAX + 10);
    assert!(matches!(block_on(second.commit(ENTRIES_MAX + 11, &[])), Err(Error::InUse(_))));
}
