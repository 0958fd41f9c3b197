use super::*;
use crate::gateway::testing::in_memory;
use crate::s3::buckets::{BucketNote, change_bucket, create_bucket};
use crate::s3::conditions::Conditions;
use crate::s3::locks::{BucketLock, DefaultRetention, LockMode, Locks, Period, Retention};
use crate::s3::objects::{RemovalRequest, Target, bind, delete, find as find_object};
use crate::s3::times::DAY_MS;
use crate::shared::{Metrics, SharedGateway, Wall};
use std::sync::Arc;
use traceless_core::rng::{Rng as _, SeededRng};

/// A bucket, and what is known of its versions.
struct Bucket {
    front: Arc<SharedGateway>,
    now: u64,
    /// The state of the bucket.
    versioning: Option<Versioning>,
    /// By key: name, tag and whether it is a delete marker, newest first.
    model: Vec<Vec<(String, String, bool)>>,
}

const KEYS: [&str; 3] = ["a", "a/b", "b"];

impl Bucket {
    fn new() -> Self {
        let gateway = in_memory(400, 1);
        let front = SharedGateway::new(gateway, Arc::new(Metrics::default()), Arc::new(Wall));
        create_bucket(&front, "b", "ann", false).unwrap();
        let model = vec![Vec::new(); KEYS.len()];
        Self { front: Arc::new(front), now: 1000, versioning: None, model }
    }

    fn target(&mut self, key: usize, salt: u64) -> Target {
        // Several versions are of one millisecond, and clocks are put back.
        self.now = if salt.is_multiple_of(5) { self.now - 1 } else { self.now + salt % 2 };
        let place = ObjectPlace::new("b", KEYS[key]);
        let stamp = Stamp { now: self.now, salt };
        Target { place, conditions: Conditions::default(), stamp }
    }

    fn switch(&mut self, versioning: Versioning) {
        let switch = |note: &mut BucketNote| {
            note.versioning = Some(versioning);
            Ok(())
        };
        change_bucket(&self.front, "b", switch).unwrap();
        self.versioning = Some(versioning);
    }

    /// Removes what a new version of the model replaces, and adds it.
    fn add(&mut self, key: usize, id: Option<String>, etag: &str, is_marker: bool) {
        let id = id.unwrap_or_else(|| "null".to_owned());
        let versions = &mut self.model[key];
        if id == "null" {
            versions.retain(|(old, ..)| old != "null");
        } else {
            assert!(versions.iter().all(|(old, ..)| *old != id), "each version has its own name");
        }
        versions.insert(0, (id, etag.to_owned(), is_marker));
    }

    fn put(&mut self, key: usize, salt: u64) {
        let target = self.target(key, salt);
        let etag = format!("{salt}");
        let note = Note { etag: etag.clone(), modified: self.now, ..Note::default() };
        let mut draft = crate::gateway::Draft::default();
        self.front.complete(&mut draft).unwrap();
        let mut draft = Some(draft);
        let bound = self.front.update_state(|gateway| {
            bind(gateway, &target, note, draft.take().expect("it is called once"))
        });
        let version = bound.unwrap().unwrap();
        assert_eq!(version.is_some(), self.versioning == Some(Versioning::Enabled));
        self.add(key, version, &etag, false);
    }

    fn remove(&mut self, key: usize, version: Option<&str>, salt: u64) -> S3Result<Removal> {
        let target = self.target(key, salt);
        let version = VersionId::parse(version)?;
        let request = RemovalRequest { target, version, bypass: false };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(delete(self.front.clone(), request))
    }

    fn remove_newest(&mut self, key: usize, salt: u64) {
        let removal = self.remove(key, None, salt).unwrap();
        assert_eq!(removal.is_marker, self.versioning.is_some());
        match removal.version {
            Some(id) => self.add(key, Some(id), "", true),
            None => self.model[key].clear(),
        }
    }

    fn remove_some_version(&mut self, key: usize, salt: u64) {
        let at = salt as usize % (self.model[key].len() + 1);
        let Some((id, _, is_marker)) = self.model[key].get(at).cloned() else {
            let id = id_of(7, salt);
            assert!(!self.remove(key, Some(&id), salt).unwrap().is_marker);
            return;
        };
        let removal = self.remove(key, Some(&id), salt).unwrap();
        assert_eq!(removal.is_marker, is_marker);
        assert_eq!(removal.version, self.versioning.map(|_| id));
        self.model[key].remove(at);
    }

    fn check(&self) {
        let objects = self.model.iter().flatten().filter(|(.., is_marker)| !is_marker);
        let used = self.front.inspect(Gateway::blocks_used);
        assert_eq!(used, objects.count(), "each version has a block, and each block a version");
        for (key, versions) in KEYS.iter().zip(&self.model) {
            let place = ObjectPlace::new("b", *key);
            self.front.inspect(|gateway| {
                let found = find_object(gateway, &place, None);
                match versions.first() {
                    Some((id, etag, false)) => {
                        let found = found.unwrap();
                        assert_eq!((&found.note.version_id(), &found.note.etag), (id, etag));
                    }
                    Some((id, _, true)) => {
                        let error = found.err().unwrap();
                        assert_eq!(error.code().as_str(), "NoSuchKey");
                        let headers = error.headers().unwrap();
                        assert_eq!(headers["x-amz-version-id"], id[..]);
                    }
                    None => {
                        let error = found.err().unwrap();
                        assert!(error.code().as_str() == "NoSuchKey" && error.headers().is_none());
                    }
                }
                for (id, etag, is_marker) in versions {
                    let version = VersionId::parse(Some(id)).unwrap();
                    let found = find_object(gateway, &place, version.as_ref());
                    if *is_marker {
                        assert_eq!(found.err().unwrap().code().as_str(), "MethodNotAllowed");
                    } else {
                        assert_eq!(found.unwrap().note.etag, *etag);
                    }
                }
                let current = current(gateway, &place).unwrap();
                let all = current.map(Ok).into_iter().chain(archived(gateway, &place, None));
                let all: Vec<_> = all.map(|known| known.unwrap().note.version_id()).collect();
                let model: Vec<_> = versions.iter().map(|(id, ..)| id.clone()).collect();
                assert_eq!(all, model, "{key}");
            });
        }
    }
}

#[test]
fn versions_follow_a_model() {
    for seed in 0..6 {
        let (mut bucket, mut rng) = (Bucket::new(), SeededRng::new(seed));
        for step in 0..200 {
            if step >= 20 && step % 30 == 20 {
                bucket.switch(if step % 60 == 20 {
                    Versioning::Enabled
                } else {
                    Versioning::Suspended
                });
            }
            let salt = rng.next_u64() >> 8;
            let key = salt as usize % KEYS.len();
            match (salt >> 10) % 6 {
                0..3 => bucket.put(key, salt),
                3 => bucket.remove_newest(key, salt),
                _ => bucket.remove_some_version(key, salt),
            }
            bucket.check();
        }
        let longest = bucket.model.iter().map(Vec::len).max();
        assert!(longest > Some(4), "{longest:?}");
    }
}

#[test]
fn locked_versions_are_not_removed_but_by_markers() {
    let mut bucket = Bucket::new();
    bucket.switch(Versioning::Enabled);
    bucket.put(0, 1);
    let id = bucket.model[0][0].0.clone();
    let until = Retention { mode: LockMode::Compliance, until: u64::MAX };
    let lock = |locks: Locks| {
        let place = ObjectPlace::new("b", KEYS[0]);
        let version = VersionId::parse(Some(&id)).unwrap();
        crate::s3::objects::change_note(&bucket.front, &place, version.as_ref(), |note| {
            note.locks = locks;
            Ok(())
        })
        .unwrap();
    };
    lock(Locks { retention: Some(until), legal_hold: None });
    assert_eq!(bucket.remove(0, Some(&id), 3).unwrap_err().code().as_str(), "AccessDenied");
    bucket.remove_newest(0, 3);
    bucket.check();
    assert_eq!(
        bucket.remove(0, Some(&id), 3).unwrap_err().code().as_str(),
        "AccessDenied",
        "it is archived now"
    );
    bucket.check();
}

#[test]
fn new_versions_are_retained_as_their_bucket_says() {
    let mut bucket = Bucket::new();
    bucket.switch(Versioning::Enabled);
    let period = Period::Days(2);
    change_bucket(&bucket.front, "b", |note| {
        let default = DefaultRetention { mode: LockMode::Governance, period };
        note.lock = Some(BucketLock { default: Some(default) });
        Ok(())
    })
    .unwrap();
    bucket.put(0, 1);
    let place = ObjectPlace::new("b", KEYS[0]);
    let found = bucket.front.inspect(|gateway| find_object(gateway, &place, None)).unwrap();
    let until = bucket.now + 2 * DAY_MS;
    let retention = Retention { mode: LockMode::Governance, until };
    assert_eq!(found.note.locks.retention, Some(retention));
    let id = found.note.version_id();
    assert_eq!(bucket.remove(0, Some(&id), 3).unwrap_err().code().as_str(), "AccessDenied");
}

#[test]
fn versions_are_read() {
    let id = id_of(5, 9);
    assert_eq!((id.len(), order_of(&id)), (ID_LEN, 5));
    assert_eq!(VersionId::parse(Some(&id)).unwrap(), Some(VersionId::Named(id.clone())));
    assert_eq!(VersionId::parse(Some("null")).unwrap(), Some(VersionId::Null));
    assert_eq!(VersionId::parse(None).unwrap(), None);
    for wrong in ["", "NULL", "3HL4kqtJlcpXroDTDmJ", &id.to_uppercase()] {
        let error = VersionId::parse(Some(wrong)).unwrap_err();
        assert_eq!(error.code().as_str(), "InvalidArgument", "{wrong}");
    }
    assert!(id_of(6, 0) < id_of(5, 9), "newer versions are first");
}
