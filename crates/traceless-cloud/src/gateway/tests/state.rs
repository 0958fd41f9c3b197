//! The contents of records are checked before they are applied.

use super::*;

#[test]
fn a_query_that_does_not_fit_the_tree_is_refused() {
    // Layers of different sizes.
    let params = params(6000);
    let g = params.geometry;
    let is_accepted = |leaf: u32, slots: Vec<usize>| {
        let slots = slots.into_iter().map(|slot| slot as u32).collect();
        let query = Record::Query { leaf, slots, id: Some(1), target: None, write: None };
        match State::new(params).apply(query) {
            Ok(_) => true,
            Err(Error::State("the gateway's log")) => false,
            Err(other) => panic!("{other}"),
        }
    };
    let last = |layer| g.slots(layer) - 1;
    let deepest = g.layers - 1;
    let path: Vec<usize> = (0..g.layers).map(last).collect();
    assert!(is_accepted(g.leaves() - 1, path.clone()));
    for layer in [0, deepest] {
        let mut beyond = path.clone();
        beyond[layer] += 1;
        assert!(!is_accepted(0, beyond), "no such slot in layer {layer}");
    }
    assert!(!is_accepted(g.leaves(), path.clone()), "no such path");
    assert!(!is_accepted(0, path[..deepest].to_vec()), "a layer is missing");
    assert!(!is_accepted(0, [&path[..], &[0]].concat()), "a layer too many");
}

#[test]
fn rounds_and_single_renewals_are_distinguished() {
    for node in [None, Some(0)] {
        let mut state = State::new(params(300));
        state.queries = state.params.round_blocks;
        state.apply(Record::Begin { attempt: 1, seed: [0; 32], node }).unwrap();
        assert_eq!(state.running(0).unwrap().round().is_some(), node.is_none());
    }
}

/// More reads of a node would exhaust its dummies.
#[test]
fn no_node_is_read_more_often_than_it_has_dummies() {
    for mut params in [Params::printed(500, BLOCK, 4).unwrap(), params(6000)] {
        let spare = params.reads_max(1) / 3;
        params.geometry.leaf_slots = params.leaf_blocks + spare;
        params.geometry.inner_slots = params.inner_blocks + params.round_blocks / 2;
        let mut reads = std::collections::HashMap::new();
        for (leaf, locations) in observed_queries(params, 24, (0..params.blocks).cycle().take(3000))
        {
            for (layer, location) in locations.iter().enumerate() {
                let version = (params.geometry.node(layer, leaf), location.attempt);
                let reads = reads.entry(version).or_insert(0);
                *reads += 1;
                assert!(*reads <= params.reads_max(layer), "{version:?}");
            }
        }
    }
}
