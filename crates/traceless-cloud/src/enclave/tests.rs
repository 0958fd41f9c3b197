use super::*;
use crate::channel::Sender;
use crate::enclave_orders::{Eviction, Location, Query};
use crate::error::Error;
use crate::fork_join::{ForkJoin, OneThread, THREAD_MIN, TwoThreads};
use crate::geometry::{Node, TAG_LEN, tests::small};
use crate::kernel::Network;
use crate::transport_seal::{TransportKeys, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use traceless_core::rng::SeededRng;

const GATEWAY: Nonce = [1; 16];
const ENCLAVE: Nonce = [2; 16];

/// Both sides of a session, and the gateway's seals.
struct Rig {
    shared: Shared,
    querier: Querier,
    evictor: Evictor,
    queries: Sender,
    evictions: Sender,
    replies: crate::channel::Receiver,
    transport_keys: TransportKeys,
}

fn rig(geometry: Geometry, choice: Choice) -> Rig {
    let shared = Shared::new(geometry, choice, &Secret::from_bytes([5; 32]));
    let session = shared.session(&GATEWAY, &ENCLAVE);
    Rig {
        querier: Querier::new(&shared, &session, Box::new(SeededRng::new(3))),
        evictor: Evictor::new(&shared, &session).unwrap(),
        queries: Sender::new(&session.query, Box::new(SeededRng::new(1))),
        evictions: Sender::new(&session.evict, Box::new(SeededRng::new(2))),
        replies: crate::channel::Receiver::new(&session.reply),
        transport_keys: TransportKeys::new(&shared.transport, choice),
        shared,
    }
}

/// A slot filled with one byte.
fn slot(rig: &Rig, version: Version, number: u32, byte: u8) -> Vec<u8> {
    let g = &rig.shared.geometry;
    let mut slot = vec![0; g.slot_len()];
    for part in 0..g.parts() {
        let sealed = &mut slot[g.part_at(part)..g.part_end(part)];
        rig.transport_keys.seal(version).seal(
            (number, part),
            &vec![byte; g.part_len(part)],
            sealed,
        );
    }
    slot
}

fn query(g: &Geometry, target: u32) -> Query {
    let mut query = Query { round: 7, leaf: 5, locations: Default::default(), target };
    for layer in 0..g.layers {
        query.locations[layer] = Location { slot: 3 + layer as u32, attempt: 10 + layer as u64 };
    }
    query
}

fn slots_of(rig: &Rig, query: &Query) -> Vec<u8> {
    let g = &rig.shared.geometry;
    let one = |layer: usize| {
        let location = query.locations[layer];
        slot(rig, query.version(g, layer), location.slot, layer as u8 + 1)
    };
    (0..g.layers).flat_map(one).collect()
}

/// The block and the damaged layers of the reply.
fn send_query(rig: &mut Rig, query: &Query, slots: &[u8]) -> Result<(Vec<u8>, u16), Error> {
    let mut order = rig.queries.seal(&query.encode(&rig.shared.geometry));
    let mut reply = rig.querier.query(&mut order, slots)?;
    let reply = QueryReply::decode(rig.replies.open(&mut reply).unwrap())?;
    Ok((reply.block.to_vec(), reply.damaged))
}

#[test]
fn a_query_returns_the_target_block() {
    for (choice, block_len) in [(Choice::Benes, 64), (Choice::Benes, 4096), (Choice::Paper, 64)] {
        let mut rig = rig(Geometry { block_len, ..small() }, choice);
        let g = rig.shared.geometry;
        for target in 0..g.layers as u32 {
            let query = query(&g, target);
            let slots = slots_of(&rig, &query);
            let reply = send_query(&mut rig, &query, &slots).unwrap();
            assert_eq!(reply, (vec![target as u8 + 1; g.sealed_len()], 0));
        }
    }
}

#[test]
fn a_node_that_was_never_written_holds_zeros() {
    let mut rig = rig(small(), Choice::Benes);
    let mut query = query(&rig.shared.geometry, 2);
    let slots = slots_of(&rig, &query);
    query.locations[2].attempt = 0;
    let (block, damaged) = send_query(&mut rig, &query, &slots).unwrap();
    assert!(block.iter().all(|&byte| byte == 0) && damaged == 0);
}

#[test]
fn a_corrupt_slot_reveals_nothing_about_the_layer() {
    let mut rig = rig(small(), Choice::Benes);
    let g = rig.shared.geometry;
    for corrupt in 0..g.layers {
        for target in 0..g.layers {
            let query = query(&g, target as u32);
            let mut slots = slots_of(&rig, &query);
            slots[corrupt * g.slot_len() + 9] ^= 1;
            let (block, damaged) = send_query(&mut rig, &query, &slots).unwrap();
            assert_eq!(damaged, 1 << corrupt, "whichever is the target");
            let wanted = if corrupt == target { 0 } else { target as u8 + 1 };
            assert!(block.iter().all(|&byte| byte == wanted), "{corrupt} {target}");
        }
    }
}

/// The planted fault: the paper, as printed, verifies the chosen block only.
#[test]
fn verifying_only_the_target_slot_would_reveal_its_layer() {
    let rig = rig(small(), Choice::Benes);
    let g = rig.shared.geometry;
    let results: Vec<bool> = (0..g.layers)
        .map(|target| {
            let query = query(&g, target as u32);
            let mut slots = slots_of(&rig, &query);
            slots[9] ^= 1;
            let chosen = &slots[target * g.slot_len()..][..g.slot_len()];
            let (len, number) = (g.part_len(0), query.locations[target].slot);
            let seal = rig.transport_keys.seal(query.version(&g, target));
            seal.open((number, 0), &chosen[..len + TAG_LEN], &mut vec![0; len]).is_ok()
        })
        .collect();
    assert_eq!(results, [false, true, true, true]);
}

#[test]
fn replayed_orders_and_older_slots_are_refused() {
    let mut rig = rig(small(), Choice::Benes);
    let g = rig.shared.geometry;
    let query = query(&g, 1);
    let slots = slots_of(&rig, &query);
    let order = rig.queries.seal(&query.encode(&g));
    rig.querier.query(&mut order.clone(), &slots).unwrap();
    let again = rig.querier.query(&mut order.clone(), &slots);
    assert!(matches!(again, Err(Error::Replayed)));
    // Slots of another epoch, attempt or path.
    for other in [
        Query { round: 1, ..query },
        Query { leaf: 6, ..query },
        Query { locations: [Location { slot: 3, attempt: 9 }; 12], ..query },
    ] {
        let (block, damaged) = send_query(&mut rig, &other, &slots).unwrap();
        let is_lost = damaged >> other.target & 1 == 1;
        assert!(damaged != 0 && is_lost == block.iter().all(|&byte| byte == 0), "{other:?}");
    }
    let short = send_query(&mut rig, &query, &slots[1..]);
    assert!(matches!(short, Err(Error::Malformed(_))));
}

/// The rows of a layer of a round, correctly sealed, each filled with its number.
fn node_in(rig: &Rig, order: &Eviction) -> (Vec<u8>, Vec<u8>) {
    let g = &rig.shared.geometry;
    let slots = g.slots(g.layer_of(order.node)) as u32;
    let node = (0..slots).flat_map(|i| slot(rig, order.old(g), i, i as u8)).collect();
    let carried = (0..g.round_slots as u32)
        .flat_map(|i| slot(rig, order.carried_in(g), i, (slots + i) as u8))
        .collect();
    (node, carried)
}

fn order_for(rig: &Rig, layer: usize, dest: &[u32]) -> Eviction {
    let g = &rig.shared.geometry;
    let control = match rig.shared.choice {
        Choice::Benes => Network::new(dest.len()).route(dest),
        Choice::Paper => dest.iter().flat_map(|&to| (to as u16).to_le_bytes()).collect(),
    };
    let node = g.node(layer, g.evicted(8));
    let (round, in_round, before, attempt, zeroed) = (8, true, 3, 4, Vec::new());
    Eviction { round, node, in_round, before, attempt, zeroed, control }
}

fn evict(
    rig: &mut Rig,
    order: &Eviction,
    (node, carried): &(Vec<u8>, Vec<u8>),
) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let (slots, _) = evict_and_verify(rig, order, (node, carried))?;
    Ok(slots)
}

fn damaged_slots(
    rig: &mut Rig,
    order: &Eviction,
    (node, carried): &(Vec<u8>, Vec<u8>),
) -> Result<DamagedSlots, Error> {
    Ok(evict_and_verify(rig, order, (node, carried))?.1)
}

/// New slots of the node and carried ones, and the damaged slots of the old node.
type EvictionOutcome = ((Vec<u8>, Vec<u8>), DamagedSlots);

fn evict_and_verify(
    rig: &mut Rig,
    order: &Eviction,
    (node, carried): (&[u8], &[u8]),
) -> Result<EvictionOutcome, Error> {
    let on = if order.carried_out(&rig.shared.geometry).is_some() { carried.len() } else { 0 };
    let (mut new_node, mut new_carried) = (vec![0; node.len()], vec![0; on]);
    let bytes = NodeBytes { node, carried, new_node: &mut new_node, new_carried: &mut new_carried };
    let mut message = rig.evictions.seal(&order.encode());
    let damaged = rig.evictor.evict(&mut message, bytes)?;
    Ok(((new_node, new_carried), damaged))
}

/// The byte that fills each slot of a version.
fn contents(rig: &Rig, version: Version, slots: &[u8]) -> Vec<u8> {
    let g = &rig.shared.geometry;
    let one = |(number, slot): (usize, &[u8])| {
        let mut bytes = Vec::new();
        for part in 0..g.parts() {
            let mut plain = vec![0; g.part_len(part)];
            let sealed = &slot[g.part_at(part)..g.part_end(part)];
            rig.transport_keys
                .seal(version)
                .open((number as u32, part), sealed, &mut plain)
                .unwrap();
            bytes.extend(plain);
        }
        assert!(bytes.iter().all(|&byte| byte == bytes[0]));
        bytes[0]
    };
    slots.chunks_exact(g.slot_len()).enumerate().map(one).collect()
}

fn spread(rows: usize) -> Vec<u32> {
    (0..rows as u32).map(|row| (row * 7 + 3) % rows as u32).collect()
}

#[test]
fn eviction_moves_rows_to_their_planned_targets() {
    for (choice, block_len) in [(Choice::Benes, 64), (Choice::Benes, 2048), (Choice::Paper, 2048)] {
        let mut rig =
            rig(Geometry { block_len, inner_slots: 22, leaf_slots: 27, ..small() }, choice);
        let g = rig.shared.geometry;
        for layer in 0..g.layers {
            let rows = g.slots(layer) + g.round_slots;
            let dest = spread(rows);
            let order = order_for(&rig, layer, &dest);
            let input = node_in(&rig, &order);
            let (node, carried) = evict(&mut rig, &order, &input).unwrap();
            let mut rows = contents(&rig, order.renewed(&g), &node);
            if let Some(version) = order.carried_out(&g) {
                rows.extend(contents(&rig, version, &carried));
            }
            for (row, &to) in dest.iter().enumerate() {
                assert!(rows.get(to as usize).is_none_or(|&byte| byte == row as u8));
            }
        }
    }
}

#[test]
fn both_kernels_produce_the_same_bytes() {
    let geometry = Geometry { block_len: 2048, ..small() };
    let mut paper = rig(geometry, Choice::Paper);
    let rows = geometry.inner_slots + geometry.round_slots;
    let dest: Vec<u32> = (0..rows as u32).map(|row| (row * 11 + 2) % rows as u32).collect();
    let order = order_for(&paper, 1, &dest);
    let input = node_in(&paper, &order);
    let nibbles = evict(&mut paper, &order, &input).unwrap();
    // The network with the paper's cipher: streams are removed and applied outside the kernel.
    paper.evictor.use_network();
    let order = Eviction { control: Network::new(rows).route(&dest), ..order };
    assert!(nibbles == evict(&mut paper, &order, &input).unwrap());
}

#[test]
fn eviction_by_whole_blocks_produces_the_same_bytes() {
    for (layer, block_len) in [(1, 2048), (3, 100)] {
        let geometry = Geometry { block_len, inner_slots: 21, leaf_slots: 26, ..small() };
        let (mut parts, mut blocks) = (rig(geometry, Choice::Benes), rig(geometry, Choice::Benes));
        blocks.evictor = blocks.evictor.by_whole_blocks(&blocks.shared);
        let order = order_for(&parts, layer, &spread(geometry.slots(layer) + geometry.round_slots));
        let input = node_in(&parts, &order);
        let output = evict(&mut parts, &order, &input).unwrap();
        assert!(output == evict(&mut blocks, &order, &input).unwrap());
        let mut changed = input.clone();
        changed.1[7] ^= 1;
        let result = evict(&mut blocks, &order, &changed);
        assert!(matches!(result, Err(Error::Tampered { slot: 0, .. })));
        damage_becomes_zeros(&mut blocks, layer, &input);
    }
}

#[test]
fn two_threads_produce_the_same_bytes() {
    for (choice, layer) in [(Choice::Benes, 1), (Choice::Benes, 3), (Choice::Paper, 1)] {
        let geometry = Geometry { block_len: 2048, inner_slots: 41, leaf_slots: 46, ..small() };
        assert!(geometry.slots(layer) * 2048 > THREAD_MIN, "enough for two");
        let (mut one, mut two) = (rig(geometry, choice), rig(geometry, choice));
        two.evictor = two.evictor.with_threads(Box::new(TwoThreads));
        let rows = geometry.slots(layer) + geometry.round_slots;
        let order = order_for(&one, layer, &spread(rows));
        let input = node_in(&one, &order);
        let output = evict(&mut one, &order, &input).unwrap();
        assert!(output == evict(&mut two, &order, &input).unwrap());
        let mut changed = input.clone();
        changed.1[7] ^= 1;
        let result = evict(&mut two, &order, &changed);
        assert!(matches!(result, Err(Error::Tampered { slot: 0, .. })));
        damage_becomes_zeros(&mut two, layer, &input);
    }
}

#[test]
fn every_carried_in_row_is_verified() {
    for choice in [Choice::Benes, Choice::Paper] {
        let mut rig = rig(small(), choice);
        let g = rig.shared.geometry;
        let order = order_for(&rig, 1, &spread(g.inner_slots + g.round_slots));
        let input = node_in(&rig, &order);
        for row in 0..g.inner_slots + g.round_slots {
            let mut changed = input.clone();
            let (bytes, at) = match row.checked_sub(g.inner_slots) {
                None => (&mut changed.0, row),
                Some(carried) => (&mut changed.1, carried),
            };
            bytes[at * g.slot_len() + 5] ^= 0x10;
            let result = damaged_slots(&mut rig, &order, &changed);
            if row < g.inner_slots {
                assert_eq!(result.unwrap(), DamagedSlots::from([at as u32]));
            } else {
                assert!(matches!(result, Err(Error::Tampered { slot, .. }) if slot == at as u32));
            }
        }
        // Two slots of one node are exchanged.
        let mut swapped = input.clone();
        let (a, b) = swapped.0.split_at_mut(g.slot_len());
        a.swap_with_slice(&mut b[..g.slot_len()]);
        let damaged = damaged_slots(&mut rig, &order, &swapped).unwrap();
        assert_eq!(damaged, DamagedSlots::from([0, 1]));
        assert!(damaged_slots(&mut rig, &order, &input).unwrap().is_empty());
    }
}

/// Damaged slots of the node are reported, and nothing is sealed. Under an order that names them
/// they become rows of zeros (with the paper's kernel rows of other bytes, which are no block) for
/// any bytes of the host, and all other rows are as they were.
fn damage_becomes_zeros(rig: &mut Rig, layer: usize, input: &(Vec<u8>, Vec<u8>)) {
    let g = rig.shared.geometry;
    let dest: Vec<u32> = (0..(g.slots(layer) + g.round_slots) as u32).rev().collect();
    let order = &order_for(rig, layer, &dest);
    let mut changed = input.clone();
    for slot in [3, 7] {
        // In the last part: all parts before it are whole.
        changed.0[(slot + 1) * g.slot_len() - TAG_LEN - 1] ^= 1;
    }
    assert_eq!(damaged_slots(rig, order, &changed).unwrap(), DamagedSlots::from([3, 7]));
    let last = g.parts() - 1;
    let (nothing, _) = evict(rig, order, &changed).unwrap();
    let last_parts = nothing.chunks_exact(g.slot_len()).map(|slot| &slot[g.part_at(last)..]);
    assert!(last_parts.flatten().all(|&byte| byte == 0), "nothing of the part is sealed");
    let naming = Eviction { zeroed: vec![3, 7], ..order.clone() };
    let before = evict(rig, order, input).unwrap();
    let after = evict(rig, &naming, &changed).unwrap();
    assert!(damaged_slots(rig, &naming, &changed).unwrap().is_empty());
    assert!(after == evict(rig, &naming, input).unwrap(), "the order alone decides");
    // A further slot is reported, and not sealed.
    changed.0[5 * g.slot_len() + 3] ^= 1;
    assert_eq!(damaged_slots(rig, &naming, &changed).unwrap(), DamagedSlots::from([5]));
    let targets = [3, 7].map(|slot| dest[slot] as usize);
    let [before, after] = [before, after].map(|(node, carried)| [node, carried].concat());
    let slots = before.chunks_exact(g.slot_len()).zip(after.chunks_exact(g.slot_len()));
    for (at, (before, after)) in slots.enumerate() {
        let is_target = targets.contains(&at);
        assert_eq!(before != after, is_target, "slot {at}");
        if !is_target || rig.shared.choice == Choice::Paper {
            continue;
        }
        let (version, number) = match at.checked_sub(g.slots(layer)) {
            None => (order.renewed(&g), at),
            Some(carried) => (order.carried_out(&g).unwrap(), carried),
        };
        let sealed = &after[g.part_at(last)..g.part_end(last)];
        let mut plain = vec![1; g.part_len(last)];
        let seal = rig.transport_keys.seal(version);
        seal.open((number as u32, last), sealed, &mut plain).unwrap();
        assert!(plain.iter().all(|&byte| byte == 0), "slot {at}");
    }
}

/// An order to verify finds what an eviction finds, and writes nothing.
#[test]
fn a_node_is_verified_without_a_new_version() {
    for choice in [Choice::Benes, Choice::Paper] {
        let mut rig = rig(Geometry { block_len: 2048, ..small() }, choice);
        let g = rig.shared.geometry;
        let (round, node) = (8, g.node(1, 5));
        let verify = Eviction::to_verify(round, node, 3);
        let mut bytes: Vec<u8> = (0..g.inner_slots as u32)
            .flat_map(|i| slot(&rig, verify.old(&g), i, i as u8))
            .collect();
        let input = (bytes.clone(), Vec::new());
        assert!(damaged_slots(&mut rig, &verify, &input).unwrap().is_empty());
        for slot in [0, 4, g.inner_slots - 1] {
            bytes[slot * g.slot_len() + 77] ^= 2;
        }
        let input = (bytes, Vec::new());
        let wanted = DamagedSlots::from([0, 4, g.inner_slots as u32 - 1]);
        assert_eq!(damaged_slots(&mut rig, &verify, &input).unwrap(), wanted);
        let (new_node, _) = evict(&mut rig, &verify, &input).unwrap();
        assert!(new_node.iter().all(|&byte| byte == 0), "nothing was written");
        // A node that was never written has no damage.
        let unwritten = Eviction::to_verify(round, node, 0);
        assert!(damaged_slots(&mut rig, &unwritten, &input).unwrap().is_empty());
    }
}

#[test]
fn a_single_node_is_renewed() {
    let mut rig = rig(small(), Choice::Benes);
    let g = rig.shared.geometry;
    let dest = spread(g.leaf_slots);
    let order = Eviction {
        node: Node(30),
        in_round: false,
        control: Network::new(g.leaf_slots).route(&dest),
        ..order_for(&rig, 0, &spread(30))
    };
    let node: Vec<u8> =
        (0..g.leaf_slots as u32).flat_map(|i| slot(&rig, order.old(&g), i, i as u8)).collect();
    let (node, carried) = evict(&mut rig, &order, &(node, Vec::new())).unwrap();
    assert!(carried.is_empty());
    assert_eq!(order.renewed(&g).epoch, order.old(&g).epoch);
    let rows = contents(&rig, order.renewed(&g), &node);
    assert!(dest.iter().enumerate().all(|(row, &to)| rows[to as usize] == row as u8));
}

#[test]
fn an_order_for_another_node_is_refused() {
    let mut rig = rig(small(), Choice::Benes);
    let g = rig.shared.geometry;
    let order = order_for(&rig, 1, &spread(30));
    let input = node_in(&rig, &order);
    let wrong = Eviction { control: vec![0; 3], ..order.clone() };
    assert!(matches!(evict(&mut rig, &wrong, &input), Err(Error::Malformed(_))));
    let short = (input.0[1..].to_vec(), input.1.clone());
    assert!(matches!(evict(&mut rig, &order, &short), Err(Error::Malformed(_))));
    let too_large = Geometry { leaf_slots: 60_000, ..g };
    let shared = Shared { geometry: too_large, ..rig.shared.clone() };
    let session = shared.session(&GATEWAY, &ENCLAVE);
    assert!(matches!(Evictor::new(&shared, &session), Err(Error::Parameters(_))));
    let shared =
        Shared { choice: Choice::Paper, geometry: Geometry { leaf_slots: 8200, ..g }, ..shared };
    assert!(matches!(Evictor::new(&shared, &session), Err(Error::Parameters(_))));
}

/// Runs on one thread, and counts the offers of work for two.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl ForkJoin for Counting {
    fn join(&self, a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
        self.0.fetch_add(1, Ordering::Relaxed);
        OneThread.join(a, b);
    }
}

#[test]
fn threads_are_used_for_large_work_only() {
    // The work is just large enough for two threads, or one row too small.
    let rows = THREAD_MIN / 1024;
    for (less, is_worth_it) in [(0, true), (1, false)] {
        let round_slots = small().round_slots;
        let inner_slots = rows - less - round_slots;
        let overhead = small().sealed_len() - small().block_len;
        let block_len = 1024 - overhead;
        let g = Geometry { block_len, inner_slots, leaf_slots: 80, ..small() };
        assert_eq!((g.parts(), g.part_len(0)), (1, 1024));
        let (counting, mut one) = (Counting::default(), rig(g, Choice::Benes));
        one.evictor = one.evictor.with_threads(Box::new(counting.clone()));
        let dest: Vec<u32> = (0..(rows - less) as u32).rev().collect();
        let order = order_for(&one, 1, &dest);
        let input = node_in(&one, &order);
        let output = evict(&mut one, &order, &input).unwrap();
        assert_eq!(counting.0.swap(0, Ordering::Relaxed) > 0, is_worth_it);
        // Part by part, then in whole blocks, which use no second thread.
        let (mut node, mut carried) = (vec![0; output.0.len()], vec![0; output.1.len()]);
        let mut bytes = NodeBytes {
            node: &input.0,
            carried: &input.1,
            new_node: &mut node,
            new_carried: &mut carried,
        };
        let mut message = one.evictions.seal(&order.encode());
        one.evictor.evict_by_parts(&mut message, &mut bytes).unwrap();
        assert!(output == (node, carried));
        counting.0.store(0, Ordering::Relaxed);
        one.evictor = one.evictor.by_whole_blocks(&one.shared);
        assert!(output == evict(&mut one, &order, &input).unwrap());
        assert_eq!(counting.0.load(Ordering::Relaxed), 0);
        assert!(one.evictor.working_set() > g.leaf_slots * g.part_len(0));
    }
}

#[test]
fn targets_that_are_no_permutation_are_refused() {
    let geometry = Geometry { block_len: 2048, ..small() };
    let mut rig = rig(geometry, Choice::Paper);
    let rows = geometry.inner_slots + geometry.round_slots;
    let order = order_for(&rig, 1, &spread(rows));
    let input = node_in(&rig, &order);
    let mut beyond = order.clone();
    beyond.control[..2].copy_from_slice(&(rows as u16).to_le_bytes());
    let shorter = Eviction { control: order.control[2..].to_vec(), ..order.clone() };
    let longer = Eviction { control: [&order.control[..], &[0; 2]].concat(), ..order.clone() };
    for wrong in [beyond, shorter, longer] {
        assert!(matches!(evict(&mut rig, &wrong, &input), Err(Error::Malformed(_))));
    }
    evict(&mut rig, &order, &input).unwrap();
}
