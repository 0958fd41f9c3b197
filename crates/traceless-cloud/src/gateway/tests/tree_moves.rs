//! Trees that move to new hosts.

use super::failing_host::{Call, Planned, planned_at};
use super::partitions::watched;
use super::*;
use crate::gateway::record::Record;
use crate::gateway::rounds::Wait;
use crate::geometry::Node;
use traceless_core::trace::{Event, Op};

/// Trees of this many blocks have nine nodes each.
const BLOCKS: u64 = 10_000;

/// Moves all trees, with a few tries for each step. Returns the errors.
fn move_all(gateway: &mut Gateway) -> Vec<Error> {
    let mut errors = Vec::new();
    for _ in 0..10_000 {
        match gateway.move_step() {
            Ok(MoveStep::Done) => return errors,
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    panic!("it never ends: {:?}", errors.last());
}

fn filled(count: usize) -> (Gateway, Vec<Arc<Planned>>) {
    let (mut gateway, hosts) = planned_at(count, params(BLOCKS), None);
    gateway.gather_at_first();
    for id in 0..BLOCKS {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    (gateway, hosts)
}

/// A world with one host, and all blocks in its tree.
fn filled_world(seed: u64) -> crash::World {
    let mut world = crash::World::new(BLOCKS, seed);
    let mut gateway = world.open(u64::MAX).unwrap();
    for id in 0..BLOCKS {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.close().unwrap();
    world
}

/// The gateway after it was closed with its log alone, or with a saved state.
fn reopened(world: &mut crash::World, mut gateway: Gateway, saves: bool) -> Gateway {
    if saves {
        gateway.save().unwrap();
    } else {
        gateway.flush().unwrap();
    }
    drop(gateway);
    world.open(u64::MAX).unwrap()
}

fn check_all(gateway: &mut Gateway) {
    for id in 0..BLOCKS {
        assert!(gateway.get(id).unwrap() == block(id, 1), "{id}");
    }
}

#[test]
fn trees_move_beside_requests() {
    let (mut gateway, hosts, _) = watched(params(BLOCKS), 3, 90);
    gateway.gather_at_first();
    let mut array = vec![vec![0; BLOCK]; BLOCKS as usize];
    let (mut rng, mut moves, mut version) = (SeededRng::new(91), 0, 0);
    while gateway.has_moves() || version < 4000 {
        let id = rng.below(BLOCKS);
        if rng.below(2) == 0 {
            array[id as usize] = block(id, version);
            gateway.put(id, &array[id as usize]).unwrap();
        } else {
            assert!(gateway.get(id).unwrap() == array[id as usize]);
        }
        version += 1;
        // A third of the requests precede the moves.
        if version > 1500 {
            moves += u64::from(gateway.move_step().unwrap() == MoveStep::Moved);
        }
    }
    assert_eq!((moves, gateway.tree_counts()), (5, vec![3, 3, 2]));
    assert!(gateway.counts().copied > 5 * 2, "{:?}", gateway.counts());
    let before: Vec<u64> = hosts.iter().map(|host| host.queries.load(Ordering::SeqCst)).collect();
    for id in 0..BLOCKS {
        assert!(gateway.get(id).unwrap() == array[id as usize]);
    }
    for (host, before) in hosts.iter().zip(before) {
        assert!(host.queries.load(Ordering::SeqCst) > before + 100, "each host has its share");
    }
}

/// A restart goes on with the copies that there are, and a host more changes what is left to do.
#[test]
fn copies_survive_the_gateway() {
    let mut world = filled_world(92);
    world.add_hosts(1);
    let mut gateway = world.open(u64::MAX).unwrap();
    assert_eq!(gateway.tree_counts(), [8, 0]);
    let tree = gateway.state.partitions.next_move().unwrap();
    let all = gateway.state.versions_to_copy(tree.root).len();
    let copy_one = |gateway: &mut Gateway| {
        assert_eq!(gateway.move_step().unwrap(), MoveStep::Copying);
        gateway.finish(1, Wait::Long).unwrap();
        gateway.state.versions_to_copy(tree.root).len()
    };
    assert_eq!(copy_one(&mut gateway), all - 1);
    assert_eq!(copy_one(&mut gateway), all - 2);
    // The log alone, and a saved state.
    for saves in [false, true] {
        gateway = reopened(&mut world, gateway, saves);
        assert_eq!(gateway.state.versions_to_copy(tree.root).len(), all - 2);
    }
    // A host more: the tree may go to that one.
    drop(gateway);
    world.add_hosts(1);
    let mut gateway = world.open(u64::MAX).unwrap();
    assert_eq!(gateway.state.versions_to_copy(tree.root).len(), all);
    assert!(move_all(&mut gateway).is_empty());
    assert_eq!(gateway.tree_counts(), [3, 3, 2]);
    drop(gateway);
    let mut gateway = world.open(u64::MAX).unwrap();
    assert_eq!(gateway.tree_counts(), [3, 3, 2]);
    for id in 0..BLOCKS {
        assert!(gateway.get(id).unwrap() == block(id, 1));
    }
}

/// What was copied for a move to one host does not count for a move to another one.
#[test]
fn the_last_hosts_are_drained_and_can_have_trees_again() {
    let mut world = filled_world(93);
    world.add_hosts(2);
    let mut gateway = world.open(u64::MAX).unwrap();
    assert!(move_all(&mut gateway).is_empty());
    assert_eq!(gateway.tree_counts(), [3, 3, 2]);
    for wrong in [0, 4] {
        assert!(matches!(gateway.keep_trees_at(wrong), Err(Error::Parameters(_))));
    }
    gateway.keep_trees_at(2).unwrap();
    let tree = gateway.state.partitions.next_move().unwrap();
    let all = gateway.state.versions_to_copy(tree.root).len();
    assert_eq!(gateway.move_step().unwrap(), MoveStep::Copying);
    gateway.finish(tree.to, Wait::Long).unwrap();
    assert_eq!(gateway.state.versions_to_copy(tree.root).len(), all - 1);
    // The log alone, and a saved state.
    for saves in [false, true] {
        gateway = reopened(&mut world, gateway, saves);
        assert_eq!(gateway.state.partitions.next_move(), Some(tree));
        assert_eq!(gateway.state.versions_to_copy(tree.root).len(), all - 1);
    }
    gateway.keep_trees_at(3).unwrap();
    assert!(!gateway.has_moves());
    gateway.keep_trees_at(1).unwrap();
    assert_eq!(gateway.state.versions_to_copy(tree.root).len(), all, "no copy counts");
    assert!(move_all(&mut gateway).is_empty());
    assert_eq!(gateway.tree_counts(), [8, 0, 0]);
    check_all(&mut gateway);
    drop(gateway);
    let mut gateway = world.open(u64::MAX).unwrap();
    assert!(!gateway.has_moves());
    gateway.keep_trees_at(3).unwrap();
    assert!(move_all(&mut gateway).is_empty());
    assert_eq!(gateway.tree_counts(), [3, 3, 2]);
    check_all(&mut gateway);
}

/// Which session is lost, at which call, and whether the call takes effect.
#[test]
fn lost_sessions_end_no_move() {
    for (host, call) in [(0, Call::Node), (1, Call::Place), (1, Call::Commit), (1, Call::Stage)] {
        for takes_effect in [false, true] {
            let (mut gateway, hosts) = filled(2);
            gateway.save().unwrap();
            *hosts[host].loses.lock().unwrap() = Some((call, takes_effect));
            let errors = move_all(&mut gateway);
            assert!(errors.is_empty(), "{call:?} {takes_effect}: {errors:?}");
            assert_eq!((gateway.counts().sessions, gateway.tree_counts()), (1, vec![4, 4]));
            check_all(&mut gateway);
        }
    }
}

/// Requests go on while copies fail, and the move reports the failure.
#[test]
fn failed_copies_fail_no_request() {
    let (mut gateway, hosts) = filled(2);
    hosts[1].damages_placed.store(true, Ordering::SeqCst);
    for id in 0..400 {
        assert!(gateway.get(id).unwrap() == block(id, 1));
        let _ = gateway.move_step();
    }
    // Hits read no slots, so they wear no node out.
    let renewed = gateway.counts().renewed;
    let failure = (0..20_000).find_map(|_| {
        assert!(gateway.get(399).unwrap() == block(399, 1));
        gateway.move_step().err()
    });
    assert!(matches!(failure, Some(Error::Tampered { .. })), "{failure:?}");
    assert_eq!((gateway.counts().renewed, gateway.tree_counts()), (renewed, vec![8, 0]));
    *hosts[1].stage_error.lock().unwrap() = Some(Error::Store("planned"));
    hosts[1].damages_placed.store(false, Ordering::SeqCst);
    let errors = move_all(&mut gateway);
    assert!(errors.iter().any(|error| error.to_string().contains("planned")), "{errors:?}");
    assert_eq!(gateway.tree_counts(), [4, 4]);
    check_all(&mut gateway);
}

/// A host reports damage of a node that it was not sent: nothing is given up.
#[test]
fn reports_about_other_nodes_are_refused() {
    let (mut gateway, hosts) = filled(2);
    let root = gateway.params().geometry.node(0, 0);
    *hosts[1].reported.lock().unwrap() = Some(DamagedSlot { node: root, slot: 0 });
    let refused = (0..10_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        gateway.move_step().err()
    });
    assert!(matches!(refused, Some(Error::Malformed(_))), "{refused:?}");
    assert_eq!(gateway.lost_blocks(), 0);
    *hosts[1].reported.lock().unwrap() = None;
    move_all(&mut gateway);
    assert_eq!(gateway.tree_counts(), [4, 4]);
    check_all(&mut gateway);
}

/// The commit of a copy fails, and may have happened.
#[test]
fn a_copy_in_doubt_fails_no_request() {
    for takes_effect in [false, true] {
        let (mut gateway, hosts) = filled(2);
        *hosts[1].commit_error.lock().unwrap() = Some((Error::Store("planned"), takes_effect));
        let mut in_doubt = 0;
        // The copy goes on in another thread: on a busy machine it comes to its commit later.
        for request in 0..20_000 {
            let id = request % 300;
            assert!(gateway.get(id).unwrap() == block(id, 1));
            in_doubt += u32::from(gateway.host_in_doubt().is_some());
            // The step takes note of the doubt, or ends it.
            let _ = gateway.move_step();
            if request >= 300 && in_doubt > 5 {
                break;
            }
        }
        assert!(in_doubt > 5, "{in_doubt}");
        assert_eq!(gateway.tree_counts(), [8, 0]);
        *hosts[1].commit_error.lock().unwrap() = None;
        move_all(&mut gateway);
        assert_eq!(gateway.tree_counts(), [4, 4]);
        check_all(&mut gateway);
    }
}

/// A new host that is lost before it has a tree can be left out, or replaced by an empty one.
#[test]
fn hosts_without_trees_can_be_left_out() {
    let mut world = filled_world(96);
    world.add_hosts(1);
    let mut gateway = world.open(u64::MAX).unwrap();
    // The log ends with the beginning of a copy.
    assert_eq!(gateway.move_step().unwrap(), MoveStep::Copying);
    drop(gateway);
    world.remove_host();
    let gateway = world.open(u64::MAX).unwrap();
    assert_eq!(gateway.tree_counts(), [8]);
    drop(gateway);
    world.add_hosts(1);
    let mut gateway = world.open(u64::MAX).unwrap();
    move_all(&mut gateway);
    assert_eq!(gateway.tree_counts(), [4, 4]);
    check_all(&mut gateway);
    drop(gateway);
    world.remove_host();
    assert!(matches!(world.open(u64::MAX), Err(Error::Parameters(_))));
}

/// What is damaged at the old host is lost there, before the copy.
#[test]
fn damaged_nodes_are_written_anew_and_moved() {
    let (mut gateway, hosts) = filled(2);
    gateway.save().unwrap();
    let tree = gateway.state.partitions.next_move().unwrap();
    let version = gateway.state.versions_to_copy(tree.root).pop().unwrap();
    let slots: Vec<(u32, u32)> = gateway.state.index.blocks_of(version.node).collect();
    let (slot, lost) = slots[0];
    hosts[0].damage(version, slot);
    assert!(move_all(&mut gateway).is_empty());
    assert_eq!((gateway.lost_blocks(), gateway.tree_counts()), (1, vec![4, 4]));
    for id in 0..BLOCKS {
        match gateway.get(id) {
            Ok(bytes) => assert!(bytes == block(id, 1)),
            Err(error) => assert!(id == u64::from(lost), "{id}: {error}"),
        }
    }
}

/// With the same random numbers, hosts observe the same for other blocks and other contents.
#[test]
fn hosts_observe_the_same_moves_for_other_requests() {
    let observe = |id: fn(u64) -> u64, content: u64| {
        let (mut gateway, hosts, recorder) = watched(params(BLOCKS), 3, 95);
        gateway.gather_at_first();
        for number in 0..2400 {
            gateway.put(id(number), &block(number, content)).unwrap();
            gateway.finish_all(Wait::Long).unwrap();
            if number % 3 == 2 {
                gateway.move_step().unwrap();
                gateway.finish_all(Wait::Long).unwrap();
            }
        }
        assert_eq!(gateway.tree_counts(), [3, 3, 2]);
        drop((gateway, hosts));
        // The thread of a round reports beside the queries.
        let slot = params(BLOCKS).geometry.slot_len() as u32;
        let events = recorder.take().into_iter().map(|Event { op, at, len, .. }| (op, at, len));
        events.partition::<Vec<(Op, u64, u32)>, _>(|(_, _, len)| *len == slot)
    };
    let one = observe(|number| number, 1);
    assert!(one.0.len() == 2 * 2400 && one.1.len() > 5 * 9 * 2);
    assert!(one == observe(|number| BLOCKS - 1 - number, 2));
    // The planted fault: a block that is accessed twice in a row sends nothing.
    assert!(one != observe(|number| number / 2, 1));
}

#[test]
fn records_of_copies_that_do_not_fit_are_refused() {
    let params = params(BLOCKS);
    let state = || {
        let mut state = State::new(params);
        state.apply(state.partitions.divided_among(2)).unwrap();
        state
    };
    let copy = |partition, node, attempt| Record::Copy { partition, node, attempt };
    let own = params.geometry.nodes_of(0).next().unwrap().0;
    state().apply(copy(1, own, 3)).unwrap();
    let nodes = params.geometry.nodes();
    for wrong in [copy(0, own, 3), copy(2, own, 3), copy(1, own, 0), copy(1, nodes, 3)] {
        assert!(matches!(state().apply(wrong), Err(Error::State(_))));
    }
    let mut busy = state();
    busy.apply(copy(1, own, 3)).unwrap();
    assert!(busy.apply(copy(1, own, 3)).is_err());
    for (node, attempt) in [(nodes, 3), (own, 0)] {
        let copied = Record::Copied { nodes: vec![(node, attempt)] };
        assert!(matches!(state().apply(copied), Err(Error::State(_))));
    }
}

#[test]
fn every_node_is_of_one_tree() {
    let g = params(BLOCKS).geometry;
    let mut all: Vec<Node> = (0..g.roots as usize).flat_map(|root| g.nodes_of(root)).collect();
    for root in 0..g.roots as usize {
        assert!(
            g.nodes_of(root).all(|node| g.root_of(node) == root) && g.nodes_of(root).is_sorted()
        );
    }
    all.sort_unstable();
    assert!(all.into_iter().eq((0..g.nodes()).map(Node)));
}
