//! Which gateway has a lease, and until when.

use super::*;
use crate::log::{EntrySealer, Head, Position, SealProof};
use crate::state_log::Appended;
use crate::state_log::memory::MemoryLog;
use bytes::Bytes;
use std::sync::atomic::{AtomicU32, Ordering};
use traceless_core::clock::SimulatedClock;

const SECOND: Duration = Duration::from_secs(1);
const MASTER: [u8; 32] = [3; 32];

/// Takes the lease of a log. The clock shows that the lease of every other gateway is over.
fn take(log: &Arc<MemoryLog>, clock: &Arc<SimulatedClock>) -> Result<Arc<StateLease>> {
    take_for(log, clock, Duration::from_hours(1))
}

fn take_for(
    log: &Arc<MemoryLog>,
    clock: &Arc<SimulatedClock>,
    period: Duration,
) -> Result<Arc<StateLease>> {
    let master = Secret::from_bytes(MASTER);
    let (is_stopped, advance) = (|| false, clock.clone());
    // Time passes once the wait has begun.
    let passing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        advance.advance(2 * period.as_nanos() as u64);
    });
    let options = LeaseOptions {
        master: &master,
        period,
        anchor: None,
        stands_by: true,
        is_stopped: &is_stopped,
        on_wait: &|| {},
    };
    let taken = StateLease::take_with(log.clone(), &options, clock.clone());
    passing.join().unwrap();
    taken.map(|taken| taken.expect("it was not stopped"))
}

fn new_log() -> (Arc<MemoryLog>, Arc<SimulatedClock>) {
    (Arc::new(MemoryLog::new(5)), Arc::default())
}

#[test]
fn a_lease_ends_with_its_period_and_can_be_extended() {
    let (log, clock) = (Arc::new(MemoryLog::new(5)), Arc::new(SimulatedClock::default()));
    let lease = take(&log, &clock).unwrap();
    let shared = lease.shared();
    shared.extend().unwrap();
    let hour = 3600 * SECOND.as_nanos() as u64;
    shared.check().unwrap();
    clock.advance(hour - 1);
    shared.check().unwrap();
    clock.advance(1);
    assert!(shared.check().unwrap_err().is_passing());
    shared.write(&Bytes::from_static(b"record")).unwrap();
    shared.check().unwrap();
    // An extension without an answer extends nothing.
    clock.advance(hour - 1);
    log.contents().failures = 100;
    assert!(shared.extend().is_err());
    clock.advance(1);
    assert!(shared.check().is_err());
    log.contents().failures = 0;
    shared.extend().unwrap();
    shared.check().unwrap();
}

#[test]
fn the_newest_lease_fences_older_ones_off() {
    let (log, clock) = new_log();
    let first = take(&log, &clock).unwrap();
    first.shared().write(&Bytes::from_static(b"one")).unwrap();
    let losses = Arc::new(AtomicU32::new(0));
    let count = losses.clone();
    first.on_loss(move || _ = count.fetch_add(1, Ordering::SeqCst));
    let second = take(&log, &clock).unwrap();
    assert_eq!((first.opening().number, second.opening().number), (1, 2));
    let refused = first.shared().write(&Bytes::from_static(b"two"));
    assert!(matches!(refused, Err(Error::Fenced { own: 1, newest: 2 })), "{refused:?}");
    for refused in [first.shared().check(), first.shared().extend(), first.shared().release()] {
        assert!(matches!(refused, Err(Error::Fenced { own: 1, newest: 2 })), "{refused:?}");
    }
    second.shared().write(&Bytes::from_static(b"three")).unwrap();
    let entries = log.contents().stored.entries.clone();
    assert!(entries.values().any(|entry| entry == "one" || entry == "three"));
    assert!(entries.values().all(|entry| entry != "two"));
}

/// The thread that extends a lease notices its loss.
#[test]
fn a_loss_is_reported_once() {
    let (log, clock) = new_log();
    let first = take_for(&log, &clock, Duration::from_millis(50)).unwrap();
    let losses = Arc::new(AtomicU32::new(0));
    let count = losses.clone();
    first.on_loss(move || _ = count.fetch_add(1, Ordering::SeqCst));
    std::thread::sleep(Duration::from_millis(100));
    assert!(log.contents().stored.entries.len() > 2, "it was extended");
    assert_eq!(losses.load(Ordering::SeqCst), 0);
    let position = *log.contents().stored.entries.keys().next_back().unwrap() + 1;
    // Another gateway adds an entry without waiting.
    while !matches!(log.append(position, Bytes::from_static(b"x")), Ok(Appended::Done)) {
        assert!(log.append(position + 1, Bytes::from_static(b"x")).is_ok());
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(losses.load(Ordering::SeqCst), 1);
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let (log, clock) = new_log();
    let first = take(&log, &clock).unwrap();
    first.shared().release().unwrap();
    assert!(first.shared().extend().is_err() && first.shared().check().is_err());
    let master = Secret::from_bytes(MASTER);
    let options = LeaseOptions {
        master: &master,
        period: SECOND,
        anchor: None,
        stands_by: true,
        is_stopped: &|| panic!("it does not wait"),
        on_wait: &|| panic!("it does not wait"),
    };
    let second = StateLease::take(log, &options).unwrap().unwrap();
    assert_eq!(second.opening().number, 2);
}

#[test]
fn waiting_is_announced_and_can_be_stopped() {
    let (log, clock) = new_log();
    let _first = take(&log, &clock).unwrap();
    let (waits, looks) = (AtomicU32::new(0), AtomicU32::new(0));
    let master = Secret::from_bytes(MASTER);
    let options = LeaseOptions {
        master: &master,
        period: SECOND,
        anchor: None,
        stands_by: true,
        is_stopped: &|| looks.fetch_add(1, Ordering::SeqCst) == 3,
        on_wait: &|| _ = waits.fetch_add(1, Ordering::SeqCst),
    };
    assert!(StateLease::take(log.clone(), &options).unwrap().is_none());
    assert_eq!((waits.load(Ordering::SeqCst), looks.load(Ordering::SeqCst)), (1, 4));
    let short = LeaseOptions { period: LEASE_MIN / 2, ..options };
    assert!(matches!(StateLease::take(log, &short), Err(Error::Parameters(_))));
}

/// A command that does not stand by, as a backup, takes the lease of a gateway that was killed once
/// it has run out, and refuses to wait for a gateway that runs.
#[test]
fn a_command_waits_for_a_killed_gateway_and_not_for_one_that_runs() {
    let log = Arc::new(MemoryLog::new(9));
    let master = Secret::from_bytes(MASTER);
    let (period, waits) = (Duration::from_millis(600), AtomicU32::new(0));
    let options = LeaseOptions {
        master: &master,
        period,
        anchor: None,
        stands_by: false,
        is_stopped: &|| false,
        on_wait: &|| _ = waits.fetch_add(1, Ordering::SeqCst),
    };
    let take = || StateLease::take_with(log.clone(), &options, Arc::new(BootClock));
    let first = take().unwrap().unwrap();
    let began = BootClock.now();
    let refused = take().map(drop);
    assert!(matches!(refused, Err(Error::InUse(_))), "{refused:?}");
    assert!(BootClock.now() - began < period.as_nanos() as u64, "the next entry is enough");
    first.shared().write(&Bytes::from_static(b"record")).unwrap();
    // As if it were killed.
    drop(first);
    let began = BootClock.now();
    let second = take().unwrap().unwrap();
    assert!(BootClock.now() - began > period.as_nanos() as u64, "the lease has run out");
    assert_eq!((second.opening().number, waits.load(Ordering::SeqCst)), (2, 2));
    // A gateway runs, too, if a checkpoint has its new entries.
    log.contents().hides_entries = true;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| take().map(drop));
        while waits.load(Ordering::SeqCst) < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        second.shared().extend().unwrap();
        save_nothing(&second, &log);
        let refused = waiting.join().unwrap();
        assert!(matches!(refused, Err(Error::InUse(_))), "{refused:?}");
    });
    let failing = LeaseOptions { on_wait: &|| log.contents().left = 0, ..options };
    let failed = StateLease::take_with(log.clone(), &failing, Arc::new(BootClock)).map(drop);
    assert!(matches!(failed, Err(Error::Engine(_))), "{failed:?}");
}

/// A gateway that stands by takes over from one that adds entries all the time, and then ends.
#[test]
fn a_gateway_that_writes_is_not_replaced() {
    let log = Arc::new(MemoryLog::new(6));
    let master = Secret::from_bytes(MASTER);
    let period = Duration::from_millis(60);
    let options = LeaseOptions {
        master: &master,
        period,
        anchor: None,
        stands_by: true,
        is_stopped: &|| false,
        on_wait: &|| {},
    };
    let take = || StateLease::take_with(log.clone(), &options, Arc::new(BootClock)).unwrap();
    let first = take().unwrap();
    let is_ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (is_ended, first) = (&is_ended, first);
        scope.spawn(move || {
            let clock = BootClock;
            let end = clock.now() + 8 * period.as_nanos() as u64;
            while clock.now() < end {
                first.shared().write(&Bytes::from_static(b"record")).unwrap();
                std::thread::sleep(Duration::from_micros(100));
            }
            is_ended.store(true, Ordering::SeqCst);
        });
        let second = take().unwrap();
        assert!(is_ended.load(Ordering::SeqCst));
        assert_eq!(second.opening().number, 2);
    });
}

/// Calls fail, and half of the failed ones take effect: what was reported as written is in the log.
#[test]
fn lost_answers_lose_no_entry() {
    for seed in 0..50 {
        let log = Arc::new(MemoryLog::new(seed));
        let clock = Arc::new(SimulatedClock::default());
        let lease = take_for(&log, &clock, Duration::from_hours(1)).unwrap();
        log.contents().failures = 30;
        let mut written = Vec::new();
        for number in 0..40_u64 {
            let _ = lease.shared().extend();
            let entry = Bytes::copy_from_slice(&number.to_le_bytes());
            // After a failure nothing more is written: the entry may be in the log.
            if lease.shared().write(&entry).is_err() {
                break;
            }
            written.push(entry);
        }
        log.contents().failures = 0;
        let found: Vec<Bytes> = log
            .contents()
            .stored
            .entries
            .values()
            .filter(|entry| entry.len() == 8)
            .cloned()
            .collect();
        assert!(found.len() - written.len() <= 1, "{seed}");
        assert_eq!(found[..written.len()], written[..], "{seed}");
    }
}

/// An extension that had no answer was stored long ago, and counts from then on at most.
#[test]
fn an_extension_in_doubt_revives_no_lease() {
    let (log, clock) = new_log();
    let lease = take(&log, &clock).unwrap();
    let hour = 3600 * SECOND.as_nanos() as u64;
    let mut number = 0;
    // Half of the failed calls take effect.
    while log.contents().stored.entries.len() == 1 {
        log.contents().failures = 100;
        assert!(lease.shared().extend().is_err());
        number += 1;
    }
    log.contents().failures = 0;
    clock.advance(2 * hour);
    let second = take(&log, &clock).unwrap();
    assert_eq!(second.opening().number, 2);
    assert!(matches!(lease.shared().extend(), Err(Error::Fenced { .. })), "{number}");
    assert!(lease.shared().check().is_err());
}

/// An extension without an answer is in the log: the lease goes on behind it.
#[test]
fn an_extension_in_doubt_loses_no_lease() {
    let (log, clock) = new_log();
    let lease = take(&log, &clock).unwrap();
    while log.contents().stored.entries.len() < 4 {
        log.contents().failures = 100;
        assert!(lease.shared().extend().is_err());
        log.contents().failures = 0;
        lease.shared().write(&Bytes::from_static(b"record")).unwrap();
        lease.shared().check().unwrap();
    }
}

/// A gateway with a shorter lease waits for the longer one that another gateway has.
#[test]
fn the_longer_lease_counts() {
    let log = Arc::new(MemoryLog::new(7));
    let master = Secret::from_bytes(MASTER);
    let options = |period| LeaseOptions {
        master: &master,
        period,
        anchor: None,
        stands_by: true,
        is_stopped: &|| false,
        on_wait: &|| {},
    };
    let take =
        |period| StateLease::take_with(log.clone(), &options(period), Arc::new(BootClock)).unwrap();
    let first = take(Duration::from_millis(300)).unwrap();
    let began = BootClock.now();
    drop(first);
    take(Duration::from_millis(10)).unwrap();
    let waited = Duration::from_nanos(BootClock.now() - began);
    assert!(waited >= Duration::from_millis(280), "{waited:?}");
}

/// A checkpoint includes the entries that a gateway which stands by has not read: it notices the
/// end of the lease all the same.
#[test]
fn a_checkpoint_hides_no_released_lease() {
    let log = Arc::new(MemoryLog::new(8));
    let master = Secret::from_bytes(MASTER);
    let options = LeaseOptions {
        master: &master,
        period: 2 * SECOND,
        anchor: None,
        stands_by: true,
        is_stopped: &|| false,
        on_wait: &|| {},
    };
    let take = || StateLease::take(log.clone(), &options).unwrap().unwrap();
    let first = take();
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(take);
        std::thread::sleep(Duration::from_millis(100));
        // The gateway that stands by sees nothing of this.
        log.contents().hides_entries = true;
        for _ in 0..3 {
            first.shared().extend().unwrap();
        }
        save_nothing(&first, &log);
        first.shared().release().unwrap();
        let began = BootClock.now();
        let second = waiting.join().unwrap();
        (second, Duration::from_nanos(BootClock.now() - began))
    });
    assert_eq!(waiting.0.opening().number, 2);
    assert!(waiting.1 < Duration::from_millis(1500), "{:?}", waiting.1);
}

/// Stores a checkpoint of a state without pieces.
fn save_nothing(lease: &StateLease, log: &MemoryLog) {
    let (shared, state) = (lease.shared(), &lease.keys().state);
    let (opening, period_ms) = (shared.opening(), shared.period_ms());
    let about = GenerationAbout { parent: Position::default(), opening, period_ms, save: 9 };
    let head = Head::draw(HEAD_MAGIC, 1, about.encode(), &mut SystemStream::drawn());
    let rng = Box::new(SystemStream::drawn());
    let (_, head) = EntrySealer::<SealProof>::new(&head, &generation_key(state), rng);
    let checkpoint = Checkpoint { tree: *shared.tree(), head, lens: Vec::new() };
    log.checkpoint(shared.last(), checkpoint.encode(shared.last(), shared.key())).unwrap();
}

#[test]
fn a_log_that_refuses_its_next_entry_is_an_error() {
    let (log, clock) = new_log();
    take(&log, &clock).unwrap().shared().release().unwrap();
    log.contents().refuses_entries = true;
    let refused = take(&log, &clock).map(drop);
    assert!(matches!(refused, Err(Error::State(_))), "{refused:?}");
}

#[test]
fn logs_of_other_keys_and_with_gaps_are_refused() {
    let (log, clock) = new_log();
    let lease = take(&log, &clock).unwrap();
    for _ in 0..5 {
        lease.shared().extend().unwrap();
    }
    let other = Secret::from_bytes([4; 32]);
    let options = LeaseOptions {
        master: &other,
        period: SECOND,
        anchor: None,
        stands_by: true,
        is_stopped: &|| false,
        on_wait: &|| {},
    };
    let refused = StateLease::take(log.clone(), &options).map(drop);
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    log.contents().stored.entries.remove(&3);
    let refused = take(&log, &clock).map(drop);
    assert!(matches!(refused, Err(Error::State(_))), "{refused:?}");
}

/// What a later version of this program would have written, under the same key.
fn of_later_version(bytes: &Bytes, lease: &StateLease, prefix: &[u8]) -> Bytes {
    let content = &bytes[..bytes.len() - traceless_core::seal::SECRET_LEN];
    let mut content = content.to_vec();
    content[7] = b'9';
    let tag = lease.shared().key().mac(&[prefix, &content].concat());
    [&content[..], tag.bytes()].concat().into()
}

/// A log that a later version of this program has written to is refused, and stays as it is.
#[test]
fn a_log_of_a_later_version_is_refused() {
    let (log, clock) = new_log();
    let lease = take(&log, &clock).unwrap();
    save_nothing(&lease, &log);
    lease.shared().extend().unwrap();
    lease.shared().release().unwrap();
    let whole = log.contents().stored.clone();
    let (included, saved) = whole.checkpoint.clone().unwrap();
    let (last, entry) = whole.entries.last_key_value().unwrap();
    let mut later = vec![whole.clone(), whole.clone()];
    let position = included.to_le_bytes();
    later[0].checkpoint = Some((included, of_later_version(&saved, &lease, &position)));
    later[1].entries.insert(*last, of_later_version(entry, &lease, &[]));
    // The head of a generation is in a checkpoint of this version.
    let mut checkpoint = Checkpoint::decode(&saved, included, lease.shared().key()).unwrap();
    checkpoint.head[7] = b'9';
    later.push(whole.clone());
    let saved = checkpoint.encode(included, lease.shared().key());
    later[2].checkpoint = Some((included, saved));
    for (nth, later) in later.into_iter().enumerate() {
        log.contents().stored = later.clone();
        let refused = take(&log, &clock).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Format { .. }), "{nth}: {refused:?}");
        assert!(refused.to_string().ends_with("upgrade this program"), "{nth}: {refused}");
        let found = log.contents().stored.clone();
        assert_eq!((found.entries, found.checkpoint), (later.entries, later.checkpoint), "{nth}");
    }
    // A damaged number is damage.
    for byte in [1, 8] {
        log.contents().stored = whole.clone();
        let mut damaged = entry.to_vec();
        damaged[7] ^= byte;
        log.contents().stored.entries.insert(*last, damaged.into());
        let taken = take(&log, &clock).map(drop);
        assert!(!matches!(taken, Err(Error::Format { .. })), "{taken:?}");
    }
}

/// A gateway that stands by ends when one of a later version takes the state.
#[test]
fn a_gateway_does_not_stand_by_for_one_of_a_later_version() {
    let log = Arc::new(MemoryLog::new(10));
    let master = Secret::from_bytes(MASTER);
    let options = LeaseOptions {
        master: &master,
        period: Duration::from_hours(1),
        anchor: None,
        stands_by: true,
        is_stopped: &|| false,
        on_wait: &|| {},
    };
    let first = StateLease::take(log.clone(), &options).unwrap().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| StateLease::take(log.clone(), &options).map(drop));
        std::thread::sleep(Duration::from_millis(100));
        let stored = log.contents().stored.clone();
        let (last, entry) = stored.entries.last_key_value().unwrap();
        log.append(last + 1, of_later_version(entry, &first, &[])).unwrap();
        let refused = waiting.join().unwrap();
        assert!(matches!(refused, Err(Error::Format { found: 9, .. })), "{refused:?}");
    });
}
