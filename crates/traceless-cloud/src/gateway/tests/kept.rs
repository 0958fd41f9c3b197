//! When records are written, and the files that a closed gateway leaves.

use super::planned::{keys, planned};
use super::*;
use crate::gateway::beat::{Beat, state_rounds};
use crate::gateway::inspect::{StateReport, check};
use crate::gateway::journal::generations;
use std::path::Path;
use traceless_core::clock::SimulatedClock;

fn beat() -> Beat {
    Beat::new(1000, Arc::new(SimulatedClock::default()), 0)
}

fn look(folder: &Path) -> StateReport {
    check(folder, &keys(), None).unwrap()
}

/// A gateway at a constant rate, with a block in the ring.
fn with_beat(folder: Option<&Path>) -> Gateway {
    let (mut gateway, _) = planned(params(300), folder);
    gateway.beat = Some(beat());
    gateway.put(1, &block(1, 1)).unwrap();
    gateway.fill_slot().unwrap();
    gateway
}

#[test]
fn what_is_promised_is_settled_with_the_next_slot() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = with_beat(Some(folder.path()));
    assert_eq!(gateway.promised(), None);
    gateway.put(1, &block(1, 2)).unwrap();
    let first = gateway.promised().unwrap();
    assert!(!gateway.is_settled(first));
    gateway.fill_slot().unwrap();
    assert!(gateway.is_settled(first) && gateway.promised().is_none());
    // Without a tick the record is written on request.
    gateway.put(1, &block(1, 3)).unwrap();
    let second = gateway.promised().unwrap();
    assert!(second > first && !gateway.is_settled(second));
    gateway.settle_promise(first).unwrap();
    assert!(!gateway.is_settled(second), "nothing is written for what is written already");
    gateway.settle_promise(second).unwrap();
    assert!(gateway.is_settled(second) && gateway.promised().is_none());
}

#[test]
fn nothing_is_promised_without_a_folder() {
    let mut gateway = with_beat(None);
    gateway.put(1, &block(1, 2)).unwrap();
    assert!(gateway.promised().is_none() && gateway.is_settled(100));
    gateway.settle_promise(100).unwrap();
}

#[test]
fn a_beat_keeps_the_whole_state_after_enough_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let (mut gateway, _) = planned(params(300), Some(folder.path()));
    gateway.beat = Some(beat());
    let params = *gateway.params();
    // As if all but the last of these rounds were over.
    gateway.state.round = state_rounds(&params, gateway.index_bytes()) - 2;
    gateway.save().unwrap();
    let mut newest = Vec::new();
    for round in 0..5 {
        let slots = if round == 0 {
            params.round_blocks + params.commit_after()
        } else {
            params.round_blocks
        };
        for _ in 0..slots {
            gateway.fill_slot().unwrap();
        }
        assert_eq!(gateway.counts().rounds, round + 1);
        newest.push(generations(folder.path()).unwrap().pop().unwrap());
    }
    let first = newest[0];
    assert_eq!(newest, [first, first + 1, first + 1, first + 1, first + 1]);
}

#[test]
fn a_gateway_that_was_closed_has_nothing_to_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let (mut gateway, _) = planned(params(300), Some(folder.path()));
    for id in 0..30 {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.close().unwrap();
    drop(gateway);
    assert_eq!(look(folder.path()).records, 0);
}

/// Saving the whole state would have to commit the running round off schedule.
#[test]
fn a_gateway_with_a_beat_writes_what_happened_when_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = with_beat(Some(folder.path()));
    gateway.put(1, &block(1, 2)).unwrap();
    let promised = gateway.promised().unwrap();
    gateway.close().unwrap();
    assert!(gateway.is_settled(promised));
    drop(gateway);
    assert!(look(folder.path()).records > 0);
}

/// The running round cannot end without the host, so records are written to the log.
#[test]
fn a_gateway_whose_host_is_gone_is_closed_all_the_same() {
    let close = |error: Error| {
        let folder = tempfile::tempdir().unwrap();
        let (mut gateway, host) = planned(params(300), Some(folder.path()));
        *host.stage_error.lock().unwrap() = Some(error);
        host.holds_stages.store(true, Ordering::SeqCst);
        for id in 0..=gateway.params().round_blocks as u64 {
            gateway.put(id, &block(id, 1)).unwrap();
        }
        host.holds_stages.store(false, Ordering::SeqCst);
        let closed = gateway.close();
        drop(gateway);
        let (opened, _) = planned(params(300), Some(folder.path()));
        (closed, opened.state.pending.is_empty())
    };
    let (closed, is_all_written) = close(Error::Unreachable("planned".into()));
    assert!(closed.is_ok() && is_all_written);
    // An error of a reachable host is returned.
    assert!(matches!(close(Error::Store("planned")).0, Err(Error::Store("planned"))));
}
