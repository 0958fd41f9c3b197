//! Lost sessions: unfinished work is sent again, or found to have happened.

use super::failing_host::{Call, ends, planned};
use super::*;

/// Writes three rounds' worth of blocks, and reads them.
fn writes_and_reads(gateway: &mut Gateway, version: u64) {
    let count = 3 * gateway.params().round_blocks as u64;
    for id in 0..count {
        gateway.put(id, &block(id, version)).unwrap();
    }
    for id in 0..count {
        assert!(gateway.get(id).unwrap() == block(id, version), "{id}");
    }
}

#[test]
fn every_operation_survives_a_lost_session() {
    for call in [Call::Query, Call::Stage, Call::Commit] {
        for takes_effect in [false, true] {
            ends(move || {
                let (mut gateway, host) = planned(params(600), None);
                *host.loses.lock().unwrap() = Some((call, takes_effect));
                writes_and_reads(&mut gateway, 1);
                let counts = gateway.counts();
                assert_eq!(counts.sessions, 1, "{call:?} {takes_effect}");
                assert!(counts.rounds >= 2, "{counts:?}");
            });
        }
    }
}

/// The worker's result for a round of a lost session is not taken for the next round's.
#[test]
fn a_round_is_repeated_after_a_lost_session() {
    ends(|| {
        let (mut gateway, host) = planned(params(600), None);
        host.blocks_stages.store(true, Ordering::SeqCst);
        let round_blocks = gateway.params().round_blocks;
        gateway.dummies(round_blocks + 1).unwrap();
        assert!(gateway.state.is_any_running(), "its stage is held");
        *host.loses.lock().unwrap() = Some((Call::Query, false));
        gateway.put(1, &block(1, 1)).unwrap();
        assert!(!gateway.state.is_any_running() && gateway.state.queries > round_blocks);
        writes_and_reads(&mut gateway, 2);
        assert_eq!(gateway.counts().sessions, 1);
    });
}

#[test]
fn the_hosts_sequence_decides_whether_a_round_committed() {
    let (mut gateway, host) = planned(params(600), None);
    let outcome = |gateway: &Gateway, says| {
        *host.sequence.lock().unwrap() = Some(says);
        match gateway.outcome(0) {
            Err(Error::RolledBack { host, gateway: 5 }) if host == says => Err(()),
            other => Ok(other.unwrap()),
        }
    };
    gateway.state.partitions.get_mut(0).sequence = 5;
    let idle = [4, 5, 6].map(|says| outcome(&gateway, says));
    assert_eq!(idle, [Err(()), Ok(None), Err(())]);
    gateway.state.queries = gateway.params().round_blocks;
    gateway.begin(None).unwrap();
    let (failed, committed) =
        (Ok(Some(Record::Fail { partition: 0 })), Ok(Some(Record::Commit { partition: 0 })));
    let on_its_way = [4, 5, 6, 7].map(|says| outcome(&gateway, says));
    assert_eq!(on_its_way, [Err(()), failed, committed, Err(())]);
}
