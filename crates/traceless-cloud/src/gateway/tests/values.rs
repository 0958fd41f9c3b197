//! Values and objects under names: the queries that they take, the records that they write, and the
//! ones that are refused.

use super::crash::World;
use super::*;
use crate::gateway::journal::{SavedState, generations};

/// Numbers of blocks: three below their size class, and one below it.
const LONG: usize = 33;
const SHORT: usize = 9;

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| i as u8 ^ seed).collect()
}

/// A call's result, and how many queries it made.
fn queries<T>(gateway: &mut Gateway, call: impl FnOnce(&mut Gateway) -> T) -> (T, u64) {
    let before = gateway.counts().queries;
    let done = call(gateway);
    (done, gateway.counts().queries - before)
}

/// Sends so many queries that no later access is a cache hit.
fn pass_a_round(gateway: &mut Gateway) {
    gateway.dummies(gateway.params().round_blocks + 1).unwrap();
}

#[test]
fn values_cost_as_many_queries_as_their_size_class() {
    assert_eq!((size_class(LONG), size_class(SHORT)), (36, 10));
    let mut gateway = in_memory(200, 31);
    let (long, short) = (bytes(LONG * BLOCK - 5, 1), bytes(SHORT * BLOCK, 2));
    let values = [(&b"long"[..], &long), (b"short", &short), (b"empty", &Vec::new())];
    let values = values.map(|(name, bytes)| Value { name, bytes, note: b"" });
    let (stored, sent) = queries(&mut gateway, |gateway| gateway.store_many(&values));
    assert_eq!((stored.is_ok(), sent), (true, 36 + 10 + 1));
    pass_a_round(&mut gateway);
    let names = [&b"long"[..], b"none", b"short", b"empty"];
    let (loaded, sent) = queries(&mut gateway, |gateway| gateway.load_many(&names).unwrap());
    let loaded: Vec<_> = loaded.into_iter().map(|value| value.map(Result::unwrap)).collect();
    assert_eq!(loaded, [Some(long), None, Some(short), Some(Vec::new())]);
    assert_eq!(sent, 36 + 10 + 1);
    let (removed, sent) = queries(&mut gateway, |gateway| gateway.remove(b"long").unwrap());
    assert_eq!((removed, sent), (true, 36));
}

/// Conditions are checked when the step is planned, and again at its end.
#[test]
fn of_two_steps_that_store_a_new_name_one_does() {
    let mut gateway = in_memory(200, 35);
    let new = |bytes: &[u8], wanted| {
        StoreStep::new(&[Value { name: b"a", bytes, note: b"n" }]).only_if(Some(wanted))
    };
    let (mut early, mut first) = (new(&[1; BLOCK], true), new(&[2; 3 * BLOCK], false));
    let mut second = new(&[3; 3 * BLOCK], false);
    let (outcomes, sent) = queries(&mut gateway, |gateway| {
        gateway.run_steps(&mut [&mut early, &mut first, &mut second])
    });
    assert!(outcomes.iter().all(Result::is_ok));
    let stored = [&early, &first, &second].map(|step| step.is_stored);
    assert_eq!((stored, sent), ([false, true, false], 6));
    assert_eq!(gateway.load(b"a").unwrap().unwrap(), [2; 3 * BLOCK]);
    assert_eq!(gateway.blocks_used(), 3, "nothing stays reserved");
    let mut late = new(&[4; BLOCK], true).keeping_notes(true);
    gateway.run_step(&mut late).unwrap();
    assert!(late.is_stored);
    assert_eq!(gateway.find(Namespace::Values, b"a").unwrap().note(), b"n");
}

/// A name that another step binds meanwhile is removed, too: all names go at once.
#[test]
fn a_removal_removes_what_is_there_at_its_end() {
    let mut gateway = in_memory(200, 37);
    gateway.store(b"b", b"1", b"").unwrap();
    let mut store = StoreStep::new(&[Value { name: b"a", bytes: b"2", note: b"" }]);
    let names = [&b"a"[..], b"b"].map(<[u8]>::to_vec).to_vec();
    let mut remove = RemoveStep::new(names, Box::new(|_: &[u8], _: Option<&Object>, _: &[u8]| {}));
    let outcomes = gateway.run_steps(&mut [&mut store, &mut remove]);
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!((remove.removed, gateway.names(Namespace::Values)), (2, 0));
}

#[test]
fn removals_in_one_step_cost_as_many_queries_as_reads() {
    let mut gateway = in_memory(200, 36);
    let (long, short) = (bytes(LONG * BLOCK, 1), bytes(BLOCK, 2));
    for (name, bytes) in [(b"a", &long), (b"b", &short), (b"c", &short)] {
        gateway.store(name, bytes, b"").unwrap();
    }
    let removed = Arc::new(Mutex::new(Vec::new()));
    let of_step = removed.clone();
    let observer = move |name: &[u8], old: Option<&Object>, _: &[u8]| {
        of_step.lock().unwrap().push((name.to_vec(), old.map(Object::blocks)));
    };
    let names = [&b"a"[..], b"none", b"b", b"a"].map(<[u8]>::to_vec).to_vec();
    let mut step = RemoveStep::new(names, Box::new(observer));
    let (done, sent) = queries(&mut gateway, |gateway| gateway.run_step(&mut step));
    done.unwrap();
    assert_eq!((step.removed, sent), (2, 36 + 1));
    assert_eq!(*removed.lock().unwrap(), [(b"a".to_vec(), Some(LONG)), (b"b".to_vec(), Some(1))]);
    assert_eq!((gateway.names(Namespace::Values), gateway.blocks_used()), (1, 1));
}

#[test]
fn names_and_values_of_maximum_length_are_accepted() {
    let mut gateway = in_memory(10, 32);
    gateway.store(&[b'n'; NAME_LEN_MAX], b"value", b"").unwrap();
    let too_long = gateway.store(&[b'n'; NAME_LEN_MAX + 1], b"value", b"");
    assert!(matches!(too_long, Err(Error::Malformed(_))));
    // The tree is too small for the value, which is checked after the length.
    let mut value = vec![0; VALUE_LEN_MAX];
    assert!(matches!(gateway.store(b"n", &value, b""), Err(Error::Full { blocks: 10 })));
    value.push(0);
    assert!(matches!(gateway.store(b"n", &value, b""), Err(Error::Malformed(_))));
}

/// How many entries a call adds to the log of the gateway's state.
fn entries(world: &World, call: impl FnOnce()) -> u64 {
    let folder = world.folder.path();
    let count = || {
        let newest = generations(folder).unwrap().pop().unwrap();
        let saved = SavedState::read_whole_part(folder, newest, &world.keys.state).unwrap();
        saved.ok().unwrap().found.position.entries
    };
    let before = count();
    call();
    count() - before
}

/// One entry for all queries, and one for all names.
#[test]
fn batched_values_share_one_log_entry() {
    let mut world = World::new(100, 33);
    let mut gateway = world.open(u64::MAX).unwrap();
    for count in [1, 5] {
        let names: Vec<[u8; 1]> = (0..count).map(|nth| [nth]).collect();
        let value = |name| Value { name, bytes: b"value", note: b"" };
        let values: Vec<Value<'_>> = names.iter().map(|name| value(&name[..])).collect();
        assert_eq!(entries(&world, || gateway.store_many(&values).unwrap()), 2, "{count}");
    }
}

#[test]
fn full_blocks_are_written_in_one_batch() {
    let mut world = World::new(100, 34);
    let mut gateway = world.open(u64::MAX).unwrap();
    let mut draft = Draft::default();
    let object = bytes((TOGETHER_MAX + 6) * BLOCK + 3, 3);
    assert_eq!(entries(&world, || gateway.append(&mut draft, &object).unwrap()), 2);
    gateway.bind(Namespace::Objects, b"b/k", Some(draft), b"").unwrap();
    let found = gateway.find(Namespace::Objects, b"b/k").unwrap().clone();
    let mut reading = ByteRange::new(found, 0..object.len() as u64);
    assert!(gateway.read(&mut reading, object.len()).unwrap() == object);
}

/// An object can be written and read in small portions, with other work in between.
#[test]
fn an_object_is_written_and_read_in_portions() {
    let mut gateway = in_memory(200, 35);
    let object = bytes(LONG * BLOCK, 4);
    let mut draft = Draft::default();
    assert!(draft.is_empty());
    for part in object.chunks(100) {
        gateway.append(&mut draft, part).unwrap();
    }
    assert_eq!((draft.len(), draft.is_empty()), (object.len() as u64, false));
    let mut complete = || queries(&mut gateway, |gateway| gateway.complete(&mut draft, 2).unwrap());
    assert_eq!([complete(), complete(), complete()], [(false, 2), (true, 1), (true, 0)]);
    let bind =
        |gateway: &mut Gateway| gateway.bind(Namespace::Objects, b"b/k", Some(draft), b"").unwrap();
    assert_eq!(queries(&mut gateway, bind), ((), 0));
    let found = gateway.find(Namespace::Objects, b"b/k").unwrap().clone();
    assert_eq!((found.len(), found.blocks()), (object.len() as u64, LONG));

    pass_a_round(&mut gateway);
    let mut reading = ByteRange::new(found, 0..object.len() as u64);
    let (mut read, mut sent) = (Vec::new(), Vec::new());
    while !reading.is_done() {
        let next = |gateway: &mut Gateway| gateway.read(&mut reading, 2 * BLOCK).unwrap();
        let (part, queries) = queries(&mut gateway, next);
        sent.push((part.len(), queries));
        read.extend(part);
    }
    assert!(read == object);
    let (rest, last) = (LONG / 2, [(BLOCK, 1), (0, 2), (0, 1)]);
    assert_eq!(sent, [&vec![(2 * BLOCK, 2); rest][..], &last].concat());
}

#[test]
fn all_unused_blocks_can_be_allocated() {
    let mut gateway = in_memory(10, 36);
    let fits = |gateway: &Gateway, len: usize| match gateway.check_room(len as u64) {
        Ok(()) => true,
        Err(Error::Full { blocks: 10 }) => false,
        Err(other) => panic!("{other}"),
    };
    for (used, len) in [(0, 10 * BLOCK), (4, 6 * BLOCK)] {
        assert_eq!(gateway.blocks_used(), used);
        let room = [len, len + 1, len + BLOCK + 1].map(|len| fits(&gateway, len));
        assert_eq!(room, [true, false, false]);
        gateway.store(b"n", &[0; 4 * BLOCK], b"").unwrap();
    }
}

#[test]
fn blocks_of_abandoned_drafts_are_reused() {
    let mut gateway = in_memory(10, 37);
    let mut draft = Draft::default();
    gateway.append(&mut draft, &[1; 8 * BLOCK]).unwrap();
    assert!(matches!(gateway.store(b"n", &[2; 9 * BLOCK], b""), Err(Error::Full { .. })));
    gateway.abandon(draft);
    assert_eq!(gateway.blocks_used(), 0);
    gateway.store(b"n", &[2; 9 * BLOCK], b"").unwrap();
    assert!(gateway.load(b"n").unwrap().unwrap() == [2; 9 * BLOCK]);
}
