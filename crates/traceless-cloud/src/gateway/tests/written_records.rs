//! When records are written, and the files that a closed gateway leaves.

use super::failing_host::{keys, planned};
use super::*;
use crate::gateway::constant_rate::{ConstantRate, rounds_per_save};
use crate::gateway::inspect::{StateReport, check};
use crate::gateway::journal::generations;
use std::path::Path;
use traceless_core::clock::SimulatedClock;

fn constant_rate() -> ConstantRate {
    ConstantRate::new(1000, 1, Arc::new(SimulatedClock::default()), 0)
}

fn report(folder: &Path) -> StateReport {
    check(folder, &keys(), None).unwrap()
}

/// A gateway at a constant rate, with a block in the ring.
fn with_constant_rate(folder: Option<&Path>) -> Gateway {
    let (mut gateway, _) = planned(params(300), folder);
    gateway.constant_rate = Some(constant_rate());
    gateway.put(1, &block(1, 1)).unwrap();
    gateway.fill_tick().unwrap();
    gateway
}

#[test]
fn deferred_acks_end_with_the_next_tick() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = with_constant_rate(Some(folder.path()));
    assert_eq!(gateway.deferred_ack(), None);
    gateway.put(1, &block(1, 2)).unwrap();
    let first = gateway.deferred_ack().unwrap();
    assert!(!is_written_or_failed(&gateway, first));
    gateway.fill_tick().unwrap();
    assert!(is_written_or_failed(&gateway, first) && gateway.deferred_ack().is_none());
    // Without a tick the record is written on request.
    gateway.put(1, &block(1, 3)).unwrap();
    let second = gateway.deferred_ack().unwrap();
    assert!(second > first && !is_written_or_failed(&gateway, second));
    gateway.ensure_written(first).unwrap();
    assert!(
        !is_written_or_failed(&gateway, second),
        "nothing is written for what is written already"
    );
    gateway.ensure_written(second).unwrap();
    assert!(is_written_or_failed(&gateway, second) && gateway.deferred_ack().is_none());
}

#[test]
fn no_ack_is_deferred_without_a_folder() {
    let mut gateway = with_constant_rate(None);
    gateway.put(1, &block(1, 2)).unwrap();
    assert!(gateway.deferred_ack().is_none() && is_written_or_failed(&gateway, 100));
    gateway.ensure_written(100).unwrap();
}

#[test]
fn a_constant_rate_saves_the_whole_state_after_enough_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let (mut gateway, _) = planned(params(300), Some(folder.path()));
    gateway.constant_rate = Some(constant_rate());
    let params = *gateway.params();
    // As if all but the last of these rounds were over.
    let rounds = rounds_per_save(&params, gateway.index_bytes()) - 2;
    gateway.state.partitions.set_begun(rounds);
    gateway.save().unwrap();
    let mut newest = Vec::new();
    for round in 0..5 {
        let slots = if round == 0 {
            params.round_blocks + params.commit_after()
        } else {
            params.round_blocks
        };
        for _ in 0..slots {
            gateway.fill_tick().unwrap();
        }
        assert_eq!(gateway.counts().rounds, round + 1);
        newest.push(generations(folder.path()).unwrap().pop().unwrap());
    }
    let first = newest[0];
    assert_eq!(newest, [first, first + 1, first + 1, first + 1, first + 1]);
}

#[test]
fn a_closed_gateway_leaves_no_records_to_replay() {
    let folder = tempfile::tempdir().unwrap();
    let (mut gateway, _) = planned(params(300), Some(folder.path()));
    for id in 0..30 {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.close().unwrap();
    drop(gateway);
    assert_eq!(report(folder.path()).records, 0);
}

/// Saving the whole state would have to commit the running round off schedule.
#[test]
fn closing_at_a_constant_rate_writes_pending_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = with_constant_rate(Some(folder.path()));
    gateway.put(1, &block(1, 2)).unwrap();
    let deferred_ack = gateway.deferred_ack().unwrap();
    gateway.close().unwrap();
    assert!(is_written_or_failed(&gateway, deferred_ack));
    drop(gateway);
    assert!(report(folder.path()).records > 0);
}

/// The running round cannot end without the host, so records are written to the log.
#[test]
fn closing_succeeds_without_a_host() {
    let close = |error: Error| {
        let folder = tempfile::tempdir().unwrap();
        let (mut gateway, host) = planned(params(300), Some(folder.path()));
        *host.stage_error.lock().unwrap() = Some(error);
        host.blocks_stages.store(true, Ordering::SeqCst);
        for id in 0..=gateway.params().round_blocks as u64 {
            gateway.put(id, &block(id, 1)).unwrap();
        }
        host.blocks_stages.store(false, Ordering::SeqCst);
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

fn is_written_or_failed(gateway: &Gateway, record: u64) -> bool {
    gateway.written_records().is_none_or(|written| written >= record)
}
