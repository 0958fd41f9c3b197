//! Carries out the rules by which objects expire.
//!
//! Names are removed from the gateway's own state, which sends nothing: the host does not learn
//! that anything expires.

use super::buckets::{BucketNote, Versioning};
use super::lifecycle::{Expiration, Rule, is_past};
use super::names::ObjectPlace;
use super::object_info::ObjectInfo;
use super::uploads::{self, UploadInfo};
use super::version_listing::next_key;
use super::versions::{Stamp, archived, current, remove_object};
use crate::error::Result;
use crate::gateway::{Gateway, NameChanges, Namespace};
use crate::shared::SharedGateway;
use core::ops::Bound;
use s3s::S3Result;

/// Keys that are looked at before requests of clients have their turn.
const KEYS_AT_A_TIME: usize = 64;
/// Old versions of a key that are removed before requests of clients have their turn.
const REMOVALS_AT_A_TIME: usize = 2048;

/// What has expired.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExpiredCount {
    /// Objects, old versions and delete markers.
    pub versions: usize,
    pub uploads: usize,
}

/// Carries out the rules of all buckets, until `is_stopped`. `salt` gives random numbers.
pub fn expire(
    front: &SharedGateway,
    salt: &mut dyn FnMut() -> u64,
    is_stopped: &dyn Fn() -> bool,
) -> Result<ExpiredCount> {
    let mut count = ExpiredCount::default();
    let buckets: Vec<String> = front.read_state(|gateway| {
        let all = gateway.names_from(Namespace::Buckets, Bound::Unbounded);
        all.filter_map(|(name, _)| String::from_utf8(name.to_vec()).ok()).collect()
    })?;
    for bucket in &buckets {
        let now = front.now_ms();
        count.uploads += front.update_state(|gateway| {
            let (rules, _) = rules_of(gateway, bucket);
            abort_uploads(gateway, bucket, &rules, now)
        })?;
        let mut from = Some(Bound::Unbounded);
        while let Some(next) = from.take()
            && !is_stopped()
        {
            let stamp = Stamp { now: front.now_ms(), salt: salt() };
            let expired =
                front.update_state(|gateway| expire_some(gateway, bucket, next, stamp))?;
            count.versions += expired.0;
            from = expired.1;
        }
    }
    Ok(count)
}

/// The rules of a bucket that are in force now, and whether it keeps versions.
fn rules_of(gateway: &Gateway, bucket: &str) -> (Vec<Rule>, Option<Versioning>) {
    let BucketNote { lifecycle, versioning, .. } =
        BucketNote::find(gateway, bucket).unwrap_or_default();
    (lifecycle.into_iter().filter(|rule| rule.is_enabled).collect(), versioning)
}

/// Carries out the rules for some keys. Returns how many versions it removed, and where to go on.
fn expire_some(
    gateway: &mut Gateway,
    bucket: &str,
    mut from: Bound<Vec<u8>>,
    stamp: Stamp,
) -> Result<(usize, Option<Bound<Vec<u8>>>)> {
    let ((rules, versioning), mut removed) = (rules_of(gateway, bucket), 0);
    if rules.is_empty() {
        return Ok((0, None));
    }
    for _ in 0..KEYS_AT_A_TIME {
        let Some(key) = next_key(gateway, bucket, "", &from) else { return Ok((removed, None)) };
        let place = ObjectPlace::new(bucket, &key[..]);
        // What is damaged stays.
        let due = due_changes(gateway, versioning, &place, &rules, stamp).unwrap_or_default();
        removed += due.count;
        gateway.change_names(due.changes)?;
        let key = key.into_bytes();
        if due.count >= REMOVALS_AT_A_TIME {
            return Ok((removed, Some(Bound::Included(key))));
        }
        from = Bound::Excluded(key);
    }
    Ok((removed, Some(from)))
}

/// Changes of names that carry out rules.
#[derive(Default)]
struct DueChanges {
    changes: NameChanges,
    /// How many versions they remove or hide.
    count: usize,
}

/// The changes of names that carry out rules for the versions of an object.
fn due_changes(
    gateway: &Gateway,
    versioning: Option<Versioning>,
    place: &ObjectPlace,
    rules: &[Rule],
    stamp: Stamp,
) -> S3Result<DueChanges> {
    let current = current(gateway, place)?;
    let all = current.into_iter().map(Ok).chain(archived(gateway, place, None));
    let all: Vec<ObjectInfo> = all.collect::<S3Result<_>>()?;
    let mut due = DueChanges::default();
    let Some((newest, old)) = all.split_first() else { return Ok(due) };
    let mut left = old.len();
    for (index, version) in old.iter().enumerate() {
        // It is an old version since the next newer one was written.
        let since = all[index].note.modified;
        let ends = |rule: &Rule| {
            let includes = rule.filter.includes(&place.key, &version.note, version.object.len());
            includes
                && rule.noncurrent.is_some_and(|of| {
                    index >= of.newer as usize && is_past(since, of.days, stamp.now)
                })
        };
        let is_locked = version.note.locks.check_removal(stamp.now, false).is_err();
        if !is_locked && rules.iter().any(ends) {
            if due.count == REMOVALS_AT_A_TIME {
                return Ok(due);
            }
            due.changes.unbind(Namespace::Objects, &version.name);
            due.count += 1;
            left -= 1;
        }
    }
    if newest.note.is_marker {
        if left == 0 && rules.iter().any(|rule| ends_marker(rule, place, newest, stamp.now)) {
            due.changes.unbind(Namespace::Objects, &newest.name);
            due.count += 1;
        }
    } else if rules.iter().any(|rule| expires(rule, place, newest, stamp.now)) {
        remove_object(gateway, versioning, place, stamp, &mut due.changes)?;
        due.count += 1;
    }
    Ok(due)
}

fn expires(rule: &Rule, place: &ObjectPlace, known: &ObjectInfo, now: u64) -> bool {
    let is_time = match rule.expiration {
        Some(Expiration::Days(days)) => is_past(known.note.modified, days, now),
        Some(Expiration::Date(date)) => date <= now,
        Some(Expiration::Marker) | None => false,
    };
    is_time && rule.filter.includes(&place.key, &known.note, known.object.len())
}

/// Whether a delete marker without other versions is removed.
fn ends_marker(rule: &Rule, place: &ObjectPlace, marker: &ObjectInfo, now: u64) -> bool {
    let is_time = match rule.expiration {
        Some(Expiration::Marker) => true,
        Some(Expiration::Days(days)) => is_past(marker.note.modified, days, now),
        Some(Expiration::Date(date)) => date <= now,
        None => false,
    };
    is_time && rule.filter.includes(&place.key, &marker.note, 0)
}

/// Aborts uploads that were begun long ago. Returns how many.
fn abort_uploads(gateway: &mut Gateway, bucket: &str, rules: &[Rule], now: u64) -> Result<usize> {
    let ends = |upload: &UploadInfo| {
        rules.iter().any(|rule| {
            upload.key.starts_with(&rule.filter.prefix)
                && rule.abort_days.is_some_and(|days| is_past(upload.begun, days, now))
        })
    };
    let Ok(all) = uploads::of_bucket(gateway, bucket) else { return Ok(0) };
    let ended: Vec<_> = all.into_iter().filter(ends).collect();
    for upload in &ended {
        let mut changes = NameChanges::default();
        for (name, _) in uploads::names_of(gateway, &upload.id) {
            changes.unbind(Namespace::Uploads, &name);
        }
        gateway.change_names(changes)?;
    }
    Ok(ended.len())
}

#[cfg(test)]
mod tests;
