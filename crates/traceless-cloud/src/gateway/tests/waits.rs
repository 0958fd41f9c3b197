//! How queries wait for rounds, and the counters of these waits.

use super::planned::{no_job, planned};
use super::*;
use traceless_core::clock::{Clock as _, Monotonic};

#[test]
fn queries_that_wait_for_a_whole_round_are_counted() {
    let (mut gateway, host) = planned(params(300), None);
    let round_blocks = gateway.params().round_blocks;
    host.holds_stages.store(true, Ordering::SeqCst);
    gateway.dummies(round_blocks + 1).unwrap();
    gateway.dummy().unwrap();
    let looked_at = gateway.counts().waits;
    host.holds_stages.store(false, Ordering::SeqCst);
    assert_eq!(looked_at, 0, "it was looked at, and not waited for");
    gateway.save().unwrap();
    let before = gateway.counts().waits;
    // On a slow machine a round may end before the wait for it begins.
    let waited = (0..20).any(|_| {
        host.holds_stages.store(true, Ordering::SeqCst);
        gateway.dummies(round_blocks).unwrap();
        let host = host.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            host.holds_stages.store(false, Ordering::SeqCst);
        });
        gateway.save().unwrap();
        gateway.counts().waits > before
    });
    assert!(waited, "{:?}", gateway.counts());
}

#[test]
fn shares_are_waited_for_and_counted_while_a_round_is_on_its_way() {
    let (mut gateway, host) = planned(params(300), None);
    // A round far longer than this test.
    gateway.pace.took(Duration::from_secs(1_000_000));
    gateway.pace.begin();
    gateway.dummies(5).unwrap();
    assert_eq!(gateway.counts().shares_ns, 0, "there is no round to wait for");
    host.holds_stages.store(true, Ordering::SeqCst);
    gateway.dummies(gateway.params().round_blocks - 5).unwrap();
    gateway.pace = Pace::new();
    gateway.pace.took(Duration::from_secs(1));
    let clock = Monotonic::start();
    gateway.dummies(10).unwrap();
    let (shares, took) = (gateway.counts().shares_ns, clock.now());
    host.holds_stages.store(false, Ordering::SeqCst);
    assert!((1..=took).contains(&shares), "{shares} of {took}");
}

/// The pace of queries depends on the measured time of a round.
#[test]
fn a_round_takes_from_its_beginning_to_its_end() {
    const STAGE: Duration = Duration::from_millis(5);
    let (gateway, host) = planned(params(300), None);
    // Makes the thread's age far longer than the round.
    std::thread::sleep(Duration::from_millis(100));
    host.holds_stages.store(true, Ordering::SeqCst);
    let (held, clock) = (host.clone(), Monotonic::start());
    gateway.worker.begin(no_job());
    let opener = std::thread::spawn(move || {
        while held.stages.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(STAGE);
        held.holds_stages.store(false, Ordering::SeqCst);
    });
    let outcome = gateway.worker.result(Wait::Long).unwrap();
    let all = Duration::from_nanos(clock.now());
    opener.join().unwrap();
    outcome.staged.unwrap();
    assert!((STAGE..=all).contains(&outcome.took), "{:?} of {all:?}", outcome.took);
}
