//! Runs the enclave for two checks: under memcheck, with its secrets marked, and from a file of all
//! its inputs, to trace every address that it accesses. `./test memcheck` runs both.
//!
//! `enclave_memcheck honest` must be clean. The planted faults must be found: `branch` branches on
//! the secret layer, and `index` moves rows straight to their targets.
//!
//! `enclave_memcheck prepare FILE SEED` writes the inputs of gateway and host to the enclave, with
//! secrets drawn from SEED. `enclave_memcheck run FILE` runs the enclave alone, which must access
//! the same addresses in the same order for all seeds. `enclave_memcheck run-index FILE` is the
//! planted fault.

use std::hint::black_box;
use traceless_cloud::channel::{Nonce, Receiver, Sender};
use traceless_cloud::enclave::{Evictor, NodeBytes, Querier, QueryReply, Session, Shared};
use traceless_cloud::enclave_orders::{Eviction, Location, Query, carried};
use traceless_cloud::geometry::Geometry;
use traceless_cloud::kernel::{Choice, Network};
use traceless_cloud::transport_seal::{TransportKeys, Version};
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::seal::Secret;
use traceless_sys::ct;
use traceless_sys::ct::secret::{classify, made_public};

const GATEWAY: Nonce = [1; 16];
const ENCLAVE: Nonce = [2; 16];
const ROUND: u64 = 7;
const OLD: u64 = 11;
const NEW: u64 = 12;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["honest"] => honest(),
        ["branch"] => branch(),
        ["index"] => index(),
        ["prepare", path, seed] => {
            let seed = seed.parse().expect("a number");
            std::fs::write(path, prepared(seed).to_bytes()).expect("a file");
        }
        ["run", path] => run(&Inputs::from_bytes(&std::fs::read(path).expect("a file"))),
        ["run-index", path] => {
            let inputs = Inputs::from_bytes(&std::fs::read(path).expect("a file"));
            move_straight(&inputs.dest);
        }
        _ => {
            eprintln!("usage: enclave_memcheck honest|branch|index|prepare|run|run-index");
            std::process::exit(2);
        }
    }
}

/// A tree with nodes of some dozens of pages in the enclave's memory.
fn geometry() -> Geometry {
    Geometry {
        roots: 1,
        arity: 3,
        layers: 3,
        round_slots: 15,
        inner_slots: 60,
        leaf_slots: 70,
        block_len: 64,
        partition: 0,
    }
}

fn shared() -> (Shared, Session) {
    let shared = Shared::new(geometry(), Choice::Benes, &Secret::from_bytes([5; 32]));
    let session = shared.session(&GATEWAY, &ENCLAVE);
    (shared, session)
}

/// All inputs of the enclave: queries with their slots, evictions with their nodes.
#[derive(Default)]
struct Inputs {
    /// An order and its slots.
    queries: Vec<[Vec<u8>; 2]>,
    /// An order, a node, and the slots carried into it.
    evictions: Vec<[Vec<u8>; 3]>,
    /// For the planted fault: the targets of the first node's rows.
    dest: Vec<u8>,
}

/// The inputs from a gateway and a host. The secrets, the wanted layers and the targets of rows,
/// are drawn from a seed.
fn prepared(seed: u64) -> Inputs {
    let (g, (shared, session)) = (geometry(), shared());
    let transport_keys = TransportKeys::new(&shared.transport, Choice::Benes);
    let salts = || Box::new(SeededRng::new(1));
    let mut queries = Sender::new(&session.query, salts());
    let mut evictions = Sender::new(&session.evict, salts());
    let mut rng = SeededRng::new(seed);
    let mut inputs = Inputs::default();
    for _ in 0..8 {
        let target = rng.below(g.layers as u64) as u32;
        let mut query = Query { round: ROUND, leaf: 5, locations: Default::default(), target };
        let mut slots = Vec::new();
        for layer in 0..g.layers {
            query.locations[layer] = Location { slot: 3, attempt: OLD };
            slots.extend(sealed(&g, &transport_keys, query.version(&g, layer), 3..4));
        }
        inputs.queries.push([queries.seal(&query.encode(&g)), slots]);
    }
    for layer in 0..g.layers {
        let node = g.node(layer, g.evicted(ROUND));
        let slots = g.slots(layer) as u32;
        let dest = shuffled(g.slots(layer) + g.round_slots, &mut rng);
        let control = Network::new(dest.len()).route(&dest);
        if inputs.dest.is_empty() {
            inputs.dest = dest.iter().flat_map(|to| to.to_le_bytes()).collect();
        }
        let order = Eviction {
            round: ROUND,
            node,
            in_round: true,
            before: OLD,
            attempt: NEW,
            zeroed: Vec::new(),
            control,
        };
        let bytes = sealed(&g, &transport_keys, order.old(&g), 0..slots);
        let incoming = carried(&g, layer, ROUND, NEW);
        let incoming = sealed(&g, &transport_keys, incoming, 0..g.round_slots as u32);
        inputs.evictions.push([evictions.seal(&order.encode()), bytes, incoming]);
    }
    inputs
}

fn sealed(
    g: &Geometry,
    transport_keys: &TransportKeys,
    version: Version,
    slots: std::ops::Range<u32>,
) -> Vec<u8> {
    let mut bytes = vec![0; slots.len() * g.slot_len()];
    let seal = transport_keys.seal(version);
    for (number, slot) in slots.zip(bytes.chunks_exact_mut(g.slot_len())) {
        seal.seal_slot(g, number, &vec![number as u8; g.sealed_len()], slot);
    }
    bytes
}

fn shuffled(rows: usize, rng: &mut SeededRng) -> Vec<u32> {
    let mut dest: Vec<u32> = (0..rows as u32).collect();
    for i in (1..rows).rev() {
        dest.swap(i, rng.below(i as u64 + 1) as usize);
    }
    dest
}

/// Runs the enclave alone.
fn run(inputs: &Inputs) {
    let (g, (shared, session)) = (geometry(), shared());
    let mut querier = Querier::new(&shared, &session, Box::new(SeededRng::new(1)));
    let mut replies = Receiver::new(&session.reply);
    for [order, slots] in &inputs.queries {
        let mut reply = querier.query(&mut order.clone(), slots).expect("a query is answered");
        let reply = replies.open(&mut reply).expect("a reply is authentic");
        let reply = QueryReply::decode(reply).expect("a reply has a block");
        assert!(reply.block.len() == g.sealed_len() && reply.damaged == 0);
    }
    let mut evictor = Evictor::new(&shared, &session).expect("it fits");
    for (layer, [order, node, incoming]) in inputs.evictions.iter().enumerate() {
        let mut new_node = vec![0; node.len()];
        let has_next_layer = layer + 1 < g.layers;
        let mut new_carried = vec![0; if has_next_layer { incoming.len() } else { 0 }];
        let bytes = NodeBytes {
            node,
            carried: incoming,
            new_node: &mut new_node,
            new_carried: &mut new_carried,
        };
        evictor.evict(&mut order.clone(), bytes).expect("a node is made anew");
        assert!(new_node != *node);
    }
}

fn honest() {
    println!("level {:?}", ct::level());
    for seed in 1..4 {
        run(&prepared(seed));
    }
    println!("24 queries and 9 evictions");
}

/// Shows that the wanted layer is marked as secret.
fn branch() {
    let mut target = [black_box(1_u32)];
    classify(&mut target);
    let rows = [[1_u8; 64], [2; 64]];
    println!("{}", if black_box(target[0]) == 1 { rows[1][0] } else { rows[0][0] });
}

/// Shows that the targets of rows are marked as secret.
fn index() {
    let mut dest = prepared(1).dest;
    classify(&mut dest);
    move_straight(&dest);
}

/// Moves rows straight to their targets.
fn move_straight(dest: &[u8]) {
    let mut rows = vec![[0_u64; 136]; dest.len() / 4];
    for (from, to) in dest.as_chunks().0.iter().enumerate() {
        rows[u32::from_le_bytes(*to) as usize] = black_box([from as u64; 136]);
    }
    println!("{}", made_public(rows[0][0]) < 1000);
}

impl Inputs {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut part = |part: &[u8]| {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        };
        part(&self.dest);
        self.queries.iter().flatten().for_each(|bytes| part(bytes));
        self.evictions.iter().flatten().for_each(|bytes| part(bytes));
        bytes
    }

    fn from_bytes(mut bytes: &[u8]) -> Self {
        let mut part = || {
            let (len, rest) = bytes.split_first_chunk().expect("a length");
            let (part, rest) = rest.split_at(u64::from_le_bytes(*len) as usize);
            bytes = rest;
            part.to_vec()
        };
        let dest = part();
        let queries = (0..8).map(|_| [part(), part()]).collect();
        let evictions = (0..geometry().layers).map(|_| [part(), part(), part()]).collect();
        Self { queries, evictions, dest }
    }
}
