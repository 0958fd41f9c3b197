//! What a gateway reports of itself, and when it refuses every operation.

use super::failing_host::planned;
use super::*;

#[test]
fn the_observer_gets_each_access_with_its_byte_range() {
    let mut gateway = in_memory(300, 80);
    let accesses: Arc<Mutex<Vec<(Op, u64, u32)>>> = Arc::default();
    let log = accesses.clone();
    gateway.set_observer(Box::new(move |op, at, len| log.lock().unwrap().push((op, at, len))));
    gateway.put(3, &block(3, 1)).unwrap();
    gateway.get_many(&[200, 3]).unwrap();
    gateway.dummies(2).unwrap();
    let len = BLOCK as u64;
    let expected = [(Op::Write, 3 * len), (Op::Read, 200 * len), (Op::Read, 3 * len)];
    assert_eq!(*accesses.lock().unwrap(), expected.map(|(op, at)| (op, at, len as u32)));
}

#[test]
fn blocks_stay_in_the_stash_until_a_round_commits() {
    let mut gateway = in_memory(300, 81);
    assert_eq!(gateway.stash_len(), 0);
    assert!((0..=301).all(|id| !gateway.is_in_stash(id)));
    for id in 0..3 {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    assert_eq!(gateway.stash_len(), 3);
    assert!((0..300).all(|id| gateway.is_in_stash(id) == (id < 3)));
    // One round for each tree below the root, and one that begins after them.
    let rounds = gateway.params().geometry.roots as usize + 1;
    gateway.dummies(rounds * gateway.params().round_blocks + 1).unwrap();
    gateway.save().unwrap();
    assert_eq!(gateway.stash_len(), 0);
    assert!((0..3).all(|id| !gateway.is_in_stash(id)));
}

/// The map has at least the place of each block, and the block of each slot.
#[test]
fn the_index_is_as_large_as_the_tree() {
    for blocks in [300, 3000] {
        let gateway = in_memory(blocks, 82);
        let slots = gateway.params().geometry.slots_in_all();
        let entries = 4 * (blocks + slots) as usize;
        let bytes = gateway.index_bytes();
        assert!((entries..2 * entries).contains(&bytes), "{bytes} {entries}");
    }
}

#[test]
fn a_fenced_gateway_refuses_all_operations() {
    let (mut gateway, host) = planned(params(300), None);
    gateway.check_host().unwrap();
    *host.newest.lock().unwrap() = Some(7);
    let done = [gateway.check_host(), gateway.get(1).map(drop), gateway.dummy()];
    assert!(done.iter().all(|done| matches!(done, Err(Error::Fenced { own: 1, newest: 7 }))));
    assert_eq!(gateway.counts().queries, 0);
}

#[test]
fn stash_overflow_is_an_error() {
    let mut gateway = in_memory(3000, 83);
    let limit = gateway.params().stash_max();
    for id in 0..limit {
        gateway.state.stash.put(id as u32, 0, block(id as u64, 1));
    }
    gateway.dummy().unwrap();
    for more in [1, 2] {
        gateway.state.stash.put((limit + more) as u32, 0, block(0, 1));
        let Err(Error::StashOverflow { blocks, limit: reported }) = gateway.dummy() else {
            panic!("{} blocks wait", gateway.stash_len());
        };
        assert_eq!((blocks, reported), (limit + more, limit));
    }
}
