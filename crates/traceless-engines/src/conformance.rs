//! The tests that every engine must pass, on the server that it is for.

use crate::engine::{Engine, StripeName, StripeRange, ValueName};
use crate::engine_state::EngineState;
use crate::engine_store::EngineStore;
use crate::retry::PATIENCE;
use crate::servers::TestServer;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use traceless_cloud::gateway::{Appended, PieceName, StateLog as _, StoredLog};
use traceless_cloud::gateway::{LEASE_MIN, LeaseOptions, StateLease};
use traceless_cloud::geometry::{Geometry, Node};
use traceless_cloud::store::suite::{
    behaves, check_round, is_copyable, removes, reopens, shapes, write_round,
};
use traceless_cloud::store::{NodeStore as _, NodeVersion, Opening};
use traceless_core::seal::Secret;

/// The longest stripe of these tests: an engine may allow any length.
const STRIPE_LEN_MAX: usize = 5 << 20;

/// How long a server that was killed is away.
const DOWN_TIME: Duration = Duration::from_millis(300);

/// Runs all tests. `connect` returns an engine with the store of a number, for a tree of a shape.
pub fn conforms<E: Engine>(connect: impl Fn(u32, Geometry) -> E) {
    let [whole, rootless, leaves] = shapes();
    keeps_stripes(&connect(1, whole));
    keeps_a_log(&connect(2, whole));
    assert_eq!(block_on(connect(3, whole).load()).unwrap(), StoredLog::default());
    for (number, g) in (10..).zip([whole, rootless, leaves]) {
        let open = |number| {
            EngineStore::open(Arc::new(connect(number, g)), g, next_opening(), PATIENCE).unwrap()
        };
        behaves(&open(number), &g);
        reopens(|| open(10 + number), &g);
        wait_until_tidy(&connect, 10 + number, g);
        is_copyable(|| open(20 + number), &g);
        removes(|| open(40 + number), &g);
    }
    takes_over(&connect, 40, whole);
    keeps_a_state(&connect, 60, whole);
}

/// Checks that a server that is killed and started again, often, costs a store time alone.
pub fn waits_for_restarts<E: Engine>(mut server: TestServer, engine: E) {
    let g = shapes()[0];
    let store = EngineStore::open(Arc::new(engine), g, next_opening(), PATIENCE).unwrap();
    for sequence in 1..=4 {
        write_round(&store, &g, sequence);
        server.kill();
        let restart = std::thread::spawn(move || {
            std::thread::sleep(DOWN_TIME);
            server.restart();
            server
        });
        check_round(&store, &g, sequence);
        server = restart.join().unwrap();
    }
}

/// Waits for a future, on a runtime that all tests share: a connection lives no longer than the
/// runtime that it was made on.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    static SHARED: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_multi_thread().enable_all().build().unwrap());
    SHARED.block_on(work)
}

/// An opening that is newer than all before.
pub fn next_opening() -> Opening {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    Opening { number: COUNT.fetch_add(1, Ordering::Relaxed), instance: [1; 16] }
}

fn stripe(node: u32, stripe: u32) -> StripeName {
    let version = NodeVersion { node: Node(node), attempt: u64::MAX - u64::from(node) };
    StripeName { value: ValueName { version, staging: 7 }, stripe }
}

fn keeps_stripes<E: Engine>(engine: &E) {
    block_on(async {
        let contents = |len: usize| -> Bytes { (0..len).map(|i| (i * i / 7) as u8).collect() };
        let whole = contents(engine.stripe_len_max().min(STRIPE_LEN_MAX));
        let names: Vec<StripeName> = (0..5).map(|number| stripe(number * 7, number)).collect();
        engine.write(names[0], whole.clone()).await.unwrap();
        for name in &names[1..] {
            engine.write(*name, contents(100)).await.unwrap();
            // A repeated request changes nothing.
            engine.write(*name, contents(100)).await.unwrap();
        }
        let range = |number: usize, at, len| StripeRange { name: names[number], at, len };
        let missing = StripeRange { name: stripe(3, 9), at: 0, len: 1 };
        let ranges = [range(0, 0, whole.len()), range(0, 777, 1000), range(4, 99, 1), missing];
        let found = engine.read(&ranges).await.unwrap();
        let wanted = [Some(whole.clone()), Some(whole.slice(777..1777))];
        assert!(found[..2] == wanted);
        assert_eq!(found[2..], [Some(contents(100).slice(99..)), None]);
        let short = engine.read(&[range(1, 90, 20)]).await.unwrap().pop().unwrap();
        assert!(short.is_none_or(|bytes| bytes.len() < 20), "the stripe ends within the range");
        assert!(engine.read(&[]).await.unwrap().is_empty());
        let mut listed = engine.list().await.unwrap();
        listed.sort();
        assert_eq!(listed, names);
        engine.remove(&[names[0], stripe(3, 9), names[3]]).await.unwrap();
        engine.remove(&[names[0]]).await.unwrap();
        let mut listed = engine.list().await.unwrap();
        listed.sort();
        assert_eq!(listed, [names[1], names[2], names[4]]);
        assert_eq!(engine.read(&[range(3, 0, 1)]).await.unwrap(), [None]);
        engine.remove(&names).await.unwrap();
    });
}

fn keeps_a_log<E: Engine>(engine: &E) {
    block_on(async {
        let entry = |number: u64| Bytes::from(vec![number as u8; 3000]);
        assert_eq!(engine.load().await.unwrap(), StoredLog::default());
        assert_eq!(engine.included().await.unwrap(), 0);
        for position in 1..=9 {
            let sent = entry(position);
            assert_eq!(engine.append(position, sent.clone()).await.unwrap(), Appended::Done);
            let again = engine.append(position, entry(0)).await.unwrap();
            assert_eq!(again, Appended::Taken(Some(sent.clone())));
            assert_eq!(engine.entry(position).await.unwrap(), Some(sent));
            assert_eq!(engine.entry(position + 1).await.unwrap(), None);
        }
        engine.checkpoint(6, Bytes::from_static(b"six")).await.unwrap();
        engine.checkpoint(4, Bytes::from_static(b"four")).await.unwrap();
        assert_eq!(engine.included().await.unwrap(), 6);
        let log = engine.load().await.unwrap();
        let six = Bytes::from_static(b"six");
        assert_eq!(log.checkpoint, Some((6, six)), "the newest");
        let mut entries = log.entries;
        entries.sort();
        entries.retain(|(position, _)| *position > 6);
        assert_eq!(entries, [7, 8, 9].map(|number| (number, entry(number))));
        assert_eq!(engine.entry(3).await.unwrap(), None, "a checkpoint includes it");
        // A position that the checkpoint includes is not free again.
        for position in 1..=9 {
            let late = engine.append(position, entry(0)).await.unwrap();
            assert!(matches!(late, Appended::Taken(_)), "{position}");
        }
        assert_eq!(engine.append(10, entry(10)).await.unwrap(), Appended::Done);
    });
}

/// Waits until nothing is stored but the versions that can be read: the current ones, and the ones
/// that the last commit replaced.
fn wait_until_tidy<E: Engine>(connect: &impl Fn(u32, Geometry) -> E, number: u32, g: Geometry) {
    let store =
        EngineStore::open(Arc::new(connect(number, g)), g, next_opening(), PATIENCE).unwrap();
    let engine = connect(number, g);
    let most = g.nodes() as usize + g.layers;
    for _ in 0..500 {
        if block_on(engine.list()).unwrap().len() <= most {
            drop(store);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("garbage remains");
}

fn takes_over<E: Engine>(connect: &impl Fn(u32, Geometry) -> E, number: u32, g: Geometry) {
    let open =
        || EngineStore::open(Arc::new(connect(number, g)), g, next_opening(), PATIENCE).unwrap();
    let first = open();
    write_round(&first, &g, 1);
    let second = open();
    assert!(block_on(first.commit(2, &[])).is_err() && block_on(first.abandon()).is_err());
    write_round(&second, &g, 2);
    assert_eq!(block_on(second.sequence()).unwrap(), 2);
    // A newer gateway comes back to the first host.
    block_on(first.admit(next_opening())).unwrap();
    check_round(&first, &g, 2);
    write_round(&first, &g, 3);
    assert!(block_on(second.commit(3, &[])).is_err());
}

/// A gateway's state in place of a tree: pieces, and a lease that one gateway at a time has.
fn keeps_a_state<E: Engine>(connect: &impl Fn(u32, Geometry) -> E, number: u32, g: Geometry) {
    let open = || Arc::new(EngineState::new(Arc::new(connect(number, g)), LEASE_MIN).unwrap());
    let (log, piece) = (open(), |save, piece| PieceName { save, piece });
    let contents = |len: usize| -> Bytes { (0..len).map(|i| (i * i / 11) as u8).collect() };
    let names = [piece(u64::MAX, 0), piece(u64::MAX, 1), piece(3, 0)];
    let lens = [1 << 20, 100, 5000];
    let pieces = names.into_iter().zip(lens.map(contents));
    log.write_pieces(pieces.collect()).unwrap();
    let wanted: Vec<(PieceName, usize)> =
        names.into_iter().zip(lens).chain([(piece(3, 1), 10), (names[1], 101)]).collect();
    let found = log.read_pieces(&wanted).unwrap();
    assert!(found[..3] == lens.map(|len| Some(contents(len))));
    assert_eq!(found[3..], [None, None], "missing, and shorter");
    log.remove_pieces(&names[..2]).unwrap();
    assert_eq!(log.list_pieces().unwrap(), names[2..]);
    let (master, waits) = (Secret::from_bytes([5; 32]), AtomicU64::new(0));
    let options = LeaseOptions {
        master: &master,
        period: LEASE_MIN,
        anchor: None,
        stands_by: true,
        is_stopped: &|| false,
        on_wait: &|| _ = waits.fetch_add(1, Ordering::Relaxed),
    };
    let take = || StateLease::take(open(), &options).unwrap().unwrap();
    // The first one ends without giving its lease up.
    let first = take().opening();
    let second = take();
    assert_eq!((first.number, second.opening().number), (1, 2));
    assert_eq!(waits.load(Ordering::Relaxed), 1);
}
