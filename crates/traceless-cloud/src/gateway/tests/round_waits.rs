//! How queries wait for rounds, and the counters of these waits.

use super::failing_host::{no_job, planned};
use super::*;
use crate::gateway::query_pacing::QueryPacing;
use traceless_core::clock::{Clock as _, Monotonic};

#[test]
fn queries_that_wait_for_a_whole_round_are_counted() {
    let (mut gateway, host) = planned(params(300), None);
    let round_blocks = gateway.params().round_blocks;
    host.blocks_stages.store(true, Ordering::SeqCst);
    gateway.dummies(round_blocks + 1).unwrap();
    gateway.dummy().unwrap();
    let waits = gateway.counts().waits;
    host.blocks_stages.store(false, Ordering::SeqCst);
    assert_eq!(waits, 0, "a round that is still running is not waited for");
    gateway.save().unwrap();
    let before = gateway.counts().waits;
    // On a slow machine a round may end before the wait for it begins.
    let waited = (0..20).any(|_| {
        host.blocks_stages.store(true, Ordering::SeqCst);
        gateway.dummies(round_blocks).unwrap();
        let host = host.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            host.blocks_stages.store(false, Ordering::SeqCst);
        });
        gateway.save().unwrap();
        gateway.counts().waits > before
    });
    assert!(waited, "{:?}", gateway.counts());
}

#[test]
fn queries_wait_for_their_share_of_a_running_round() {
    let (mut gateway, host) = planned(params(300), None);
    // A round far longer than this test.
    gateway.links[0].pacing.took(Duration::from_secs(1_000_000));
    gateway.links[0].pacing.begin();
    gateway.dummies(5).unwrap();
    assert_eq!(gateway.counts().shares_ns, 0, "there is no round to wait for");
    host.blocks_stages.store(true, Ordering::SeqCst);
    gateway.dummies(gateway.params().round_blocks - 5).unwrap();
    gateway.links[0].pacing = QueryPacing::new();
    gateway.links[0].pacing.took(Duration::from_secs(1));
    let clock = Monotonic::start();
    gateway.dummies(10).unwrap();
    let (shares, took) = (gateway.counts().shares_ns, clock.now());
    host.blocks_stages.store(false, Ordering::SeqCst);
    assert!((1..=took).contains(&shares), "{shares} of {took}");
}

/// A commit at a host that is far away is made beside queries, which read old versions meanwhile.
#[test]
fn queries_do_not_wait_for_a_commit() {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let (flag, begun) = (is_stopped.clone(), Arc::new(AtomicU64::new(0)));
    let begun_there = begun.clone();
    let mut gateway = gateway_behind(params(1500), 91, |host| {
        HookedHost::new(host).at_commits(move |host, sequence, versions| {
            begun_there.store(sequence, Ordering::SeqCst);
            while flag.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_micros(100));
            }
            host.commit(sequence, versions)
        })
    });
    for id in 0..1500 {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.save().unwrap();
    let (commits, round_blocks) =
        (gateway.state.partitions.get(0).sequence, gateway.params().round_blocks as u64);
    is_stopped.store(true, Ordering::SeqCst);
    let mut id = 0;
    while !gateway.state.is_any_running() {
        assert!(gateway.get(id).unwrap() == block(id, 1));
        id += 1;
    }
    while begun.load(Ordering::SeqCst) == commits {
        std::thread::sleep(Duration::from_millis(1));
    }
    // As many as precede the next round, which waits for the commit.
    let left = round_blocks - gateway.state.queries as u64;
    assert!(left > round_blocks / 2);
    for id in id..id + left {
        assert!(gateway.get(id).unwrap() == block(id, 1));
    }
    assert_eq!(gateway.state.partitions.get(0).sequence, commits, "the commit has not happened");
    is_stopped.store(false, Ordering::SeqCst);
    for id in 0..1500 {
        assert!(gateway.get(id).unwrap() == block(id, 1));
    }
    assert!(gateway.state.partitions.get(0).sequence > commits);
}

/// The pace of queries depends on the measured time of a round.
#[test]
fn a_rounds_duration_includes_its_preparation() {
    const STAGE: Duration = Duration::from_millis(5);
    let (gateway, host) = planned(params(300), None);
    // Makes the thread's age far longer than the round.
    std::thread::sleep(Duration::from_millis(100));
    host.blocks_stages.store(true, Ordering::SeqCst);
    let (host_in_thread, clock) = (host.clone(), Monotonic::start());
    gateway.links[0].worker.begin(no_job());
    let opener = std::thread::spawn(move || {
        while host_in_thread.stages.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(STAGE);
        host_in_thread.blocks_stages.store(false, Ordering::SeqCst);
    });
    let outcome = gateway.links[0].worker.result(Wait::Long).unwrap();
    let all = Duration::from_nanos(clock.now());
    opener.join().unwrap();
    outcome.staged.unwrap();
    assert!((STAGE..=all).contains(&outcome.took), "{:?} of {all:?}", outcome.took);
}
