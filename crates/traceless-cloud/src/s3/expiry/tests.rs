use super::*;
use crate::gateway::testing::in_memory;
use crate::s3::buckets::{change_bucket, create_bucket};
use crate::s3::conditions::Conditions;
use crate::s3::lifecycle::{Filter, NoncurrentExpiration};
use crate::s3::locks::{LockMode, Locks, Retention};
use crate::s3::note::Note;
use crate::s3::objects::{Target, bind, change_note};
use crate::s3::times::DAY_MS;
use crate::s3::versions::{VersionId, make_room};
use crate::shared::Metrics;
use std::sync::Arc;
use traceless_core::clock::{SimulatedClock, Timer as _};
use traceless_core::rng::SeededRng;

struct Buckets {
    front: SharedGateway,
    clock: Arc<SimulatedClock>,
}

impl Buckets {
    fn new(versioning: Option<Versioning>, rules: &[Rule]) -> Self {
        let clock = Arc::new(SimulatedClock::default());
        let gateway = in_memory(400, 1);
        let front = SharedGateway::new(gateway, Arc::new(Metrics::default()), clock.clone());
        for bucket in ["b", "other"] {
            create_bucket(&front, bucket, "ann", false).unwrap();
            change_bucket(&front, bucket, |note| {
                note.versioning = versioning;
                note.lifecycle = if bucket == "b" { rules.to_vec() } else { Vec::new() };
                Ok(())
            })
            .unwrap();
        }
        let buckets = Self { front, clock };
        buckets.at(0);
        buckets
    }

    fn at(&self, days: u64) {
        self.clock.wait_until((1000 + days) * DAY_MS);
    }

    fn put(&self, bucket: &str, key: &str) {
        let stamp = Stamp { now: self.front.now_ms(), salt: 0 };
        let place = ObjectPlace::new(bucket, key);
        let target = Target { place, conditions: Conditions::default(), stamp };
        let note = Note { modified: stamp.now, ..Note::default() };
        let mut draft = crate::gateway::Draft::default();
        self.front.complete(&mut draft).unwrap();
        let mut draft = Some(draft);
        let bound = self.front.update_state(|gateway| {
            bind(gateway, &target, note, draft.take().expect("it is called once"))
        });
        bound.unwrap().unwrap();
    }

    /// Expires what is to expire, and returns how much that was. It sends nothing.
    fn expire(&self) -> (usize, usize) {
        let queries = self.front.inspect(|gateway| gateway.counts().queries);
        let count = expire(&self.front, &mut || 7, &|| false).unwrap();
        assert_eq!(self.front.inspect(|gateway| gateway.counts().queries), queries);
        (count.versions, count.uploads)
    }

    /// The versions of all keys of a bucket: `x` is a delete marker.
    fn list(&self, bucket: &str) -> String {
        self.front.inspect(|gateway| {
            let (mut words, mut from) = (Vec::new(), Bound::Unbounded);
            while let Some(key) = next_key(gateway, bucket, "", &from) {
                let place = ObjectPlace::new(bucket, &key[..]);
                let current = current(gateway, &place).unwrap().map(Ok).into_iter();
                for known in current.chain(archived(gateway, &place, None)) {
                    let marker = if known.unwrap().note.is_marker { "x" } else { "" };
                    words.push(format!("{key}{marker}"));
                }
                from = Bound::Excluded(key.into_bytes());
            }
            words.join(" ")
        })
    }
}

fn rule(prefix: &str) -> Rule {
    let filter = Filter { prefix: prefix.to_owned(), ..Filter::default() };
    let (expiration, noncurrent, abort_days) = (None, None, None);
    Rule { id: prefix.to_owned(), is_enabled: true, filter, expiration, noncurrent, abort_days }
}

#[test]
fn objects_expire_after_days_or_at_a_date() {
    let buckets = Buckets::new(
        None,
        &[
            Rule { expiration: Some(Expiration::Days(3)), ..rule("a") },
            Rule { expiration: Some(Expiration::Date(1005 * DAY_MS)), ..rule("b") },
            Rule { is_enabled: false, expiration: Some(Expiration::Days(1)), ..rule("c") },
        ],
    );
    for key in ["a1", "b1", "c1"] {
        buckets.put("b", key);
        buckets.put("other", key);
    }
    buckets.at(2);
    buckets.put("b", "a2");
    assert_eq!((buckets.expire(), buckets.list("b")), ((0, 0), "a1 a2 b1 c1".to_owned()));
    buckets.at(3);
    assert_eq!((buckets.expire(), buckets.list("b")), ((1, 0), "a2 b1 c1".to_owned()));
    buckets.at(9);
    assert_eq!((buckets.expire(), buckets.list("b")), ((2, 0), "c1".to_owned()));
    assert_eq!(buckets.list("other"), "a1 b1 c1");
    assert_eq!(buckets.front.inspect(Gateway::blocks_used), 4);
}

#[test]
fn old_versions_expire_but_for_some_and_locked_ones() {
    let noncurrent = Some(NoncurrentExpiration { days: 2, newer: 1 });
    let buckets = Buckets::new(Some(Versioning::Enabled), &[Rule { noncurrent, ..rule("") }]);
    for day in 0..5 {
        buckets.at(day);
        buckets.put("b", "k");
    }
    let oldest = buckets.front.inspect(|gateway| {
        archived(gateway, &ObjectPlace::new("b", "k"), None).last().unwrap().unwrap()
    });
    let version = VersionId::Named(oldest.note.version.unwrap());
    let locks = Locks { legal_hold: Some(true), ..Locks::default() };
    let lock = |locks| {
        change_note(&buckets.front, &ObjectPlace::new("b", "k"), Some(&version), |note| {
            note.locks = locks;
            Ok(())
        })
        .unwrap();
    };
    lock(locks);
    // Written on the days 0 to 4: 0 is locked, 1 and 2 became old on 2 and 3, and 3 is the newest.
    assert_eq!((buckets.expire(), buckets.list("b")), ((1, 0), "k k k k".to_owned()));
    buckets.at(9);
    assert_eq!((buckets.expire(), buckets.list("b")), ((1, 0), "k k k".to_owned()));
    let retention = Retention { mode: LockMode::Governance, until: 1010 * DAY_MS };
    lock(Locks { retention: Some(retention), legal_hold: Some(false) });
    assert_eq!(buckets.expire(), (0, 0), "it is retained");
    buckets.at(10);
    assert_eq!((buckets.expire(), buckets.list("b")), ((1, 0), "k k".to_owned()));
}

#[test]
fn expired_objects_leave_markers_where_versions_are_kept() {
    let buckets = Buckets::new(
        Some(Versioning::Enabled),
        &[
            Rule {
                expiration: Some(Expiration::Days(3)),
                noncurrent: Some(NoncurrentExpiration { days: 5, newer: 0 }),
                ..rule("a")
            },
            Rule { expiration: Some(Expiration::Marker), ..rule("b") },
        ],
    );
    buckets.put("b", "a");
    buckets.at(3);
    assert_eq!((buckets.expire(), buckets.list("b")), ((1, 0), "ax a".to_owned()));
    assert_eq!((buckets.expire(), buckets.list("b")), ((0, 0), "ax a".to_owned()));
    buckets.at(8);
    // The old version goes, and then the marker, which is as old.
    assert_eq!((buckets.expire(), buckets.list("b")), ((2, 0), String::new()));
    let stamp = Stamp { now: buckets.front.now_ms(), salt: 0 };
    let place = ObjectPlace::new("b", "b");
    let marked = buckets.front.update_state(|gateway| {
        let mut changes = NameChanges::default();
        remove_object(gateway, Some(Versioning::Enabled), &place, stamp, &mut changes).unwrap();
        gateway.change_names(changes)
    });
    marked.unwrap();
    assert_eq!(buckets.list("b"), "bx");
    assert_eq!((buckets.expire(), buckets.list("b")), ((1, 0), String::new()));
    assert_eq!(buckets.front.inspect(Gateway::blocks_used), 0);
}

#[test]
fn unfinished_uploads_are_aborted() {
    let buckets = Buckets::new(None, &[Rule { abort_days: Some(2), ..rule("a") }]);
    let mut rng = SeededRng::new(1);
    for (bucket, key) in [("b", "a1"), ("b", "c"), ("other", "a1")] {
        let place = ObjectPlace::new(bucket, key);
        uploads::begin(&buckets.front, place, Note::default(), &mut rng).unwrap();
    }
    buckets.at(1);
    assert_eq!(buckets.expire(), (0, 0));
    buckets.at(2);
    assert_eq!(buckets.expire(), (0, 1));
    let left = |bucket| {
        let all = buckets.front.inspect(|gateway| uploads::of_bucket(gateway, bucket)).unwrap();
        all.into_iter().map(|upload| upload.key).collect::<Vec<_>>()
    };
    assert_eq!((left("b"), left("other")), (vec!["c".to_owned()], vec!["a1".to_owned()]));
}

/// More keys than are looked at in one turn, and an end in between.
#[test]
fn many_objects_expire_in_turns() {
    let buckets = Buckets::new(None, &[Rule { expiration: Some(Expiration::Days(1)), ..rule("") }]);
    for n in 0..150 {
        buckets.put("b", &format!("{n:03}"));
    }
    buckets.at(1);
    let stopped = expire(&buckets.front, &mut || 7, &|| true).unwrap();
    assert_eq!(stopped, ExpiredCount::default());
    assert_eq!((buckets.expire(), buckets.list("b")), ((150, 0), String::new()));
}

/// More old versions than are removed in one turn.
#[test]
fn many_old_versions_expire_in_turns() {
    let noncurrent = Some(NoncurrentExpiration { days: 1, newer: 2 });
    let buckets = Buckets::new(Some(Versioning::Enabled), &[Rule { noncurrent, ..rule("") }]);
    let place = ObjectPlace::new("b", "k");
    for _ in 0..REMOVALS_AT_A_TIME + 100 {
        let stamp = Stamp { now: buckets.front.now_ms(), salt: 0 };
        let written = buckets.front.update_state(|gateway| {
            let mut changes = NameChanges::default();
            let note = Note { modified: stamp.now, ..Note::default() };
            let note =
                make_room(gateway, Some(Versioning::Enabled), &place, note, stamp, &mut changes)
                    .unwrap();
            changes.bind(Namespace::Objects, &place.name(), None, &note.bytes());
            gateway.change_names(changes)
        });
        written.unwrap();
    }
    buckets.at(1);
    assert_eq!(buckets.expire(), (REMOVALS_AT_A_TIME + 97, 0));
    assert_eq!(buckets.list("b"), "k k k");
}

/// Rules that are withdrawn while they are carried out are carried out no longer.
#[test]
fn withdrawn_rules_end_a_sweep() {
    let buckets = Buckets::new(None, &[Rule { expiration: Some(Expiration::Days(1)), ..rule("") }]);
    for n in 0..3 * KEYS_AT_A_TIME {
        buckets.put("b", &format!("{n:03}"));
    }
    buckets.at(1);
    let mut turns = 0;
    let mut salt = || {
        turns += 1;
        if turns == 2 {
            change_bucket(&buckets.front, "b", |note| {
                note.lifecycle.clear();
                Ok(())
            })
            .unwrap();
        }
        7
    };
    let count = expire(&buckets.front, &mut salt, &|| false).unwrap();
    assert_eq!(count.versions, KEYS_AT_A_TIME);
}
