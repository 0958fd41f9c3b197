//! Carries out the rules by which objects expire.
//!
//! Names are removed from the gateway's own state, which sends nothing: the host does not learn
//! that anything expires.

use super::buckets::BucketNote;
use super::lifecycle::{Expiration, Rule, is_past};
use super::names::ObjectPlace;
use super::note::Note;
use super::object_info::ObjectInfo;
use super::uploads::{self, UploadInfo};
use super::version_listing::next_key;
use super::versions::{Stamp, VersionId, archived, current, remove_object, remove_version};
use crate::error::Result;
use crate::gateway::{Gateway, NameChanges, Namespace};
use crate::shared::SharedGateway;
use core::ops::Bound;
use s3s::S3Result;

/// Keys that are looked at before requests of clients have their turn.
const KEYS_AT_A_TIME: usize = 64;

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
    let buckets: Vec<(String, Vec<Rule>)> = front.read_state(|gateway| {
        let all = gateway.names_from(Namespace::Buckets, Bound::Unbounded);
        let rules = all.filter_map(|(name, object)| {
            let rules = BucketNote::read(object.note()).ok()?.lifecycle;
            let rules: Vec<_> = rules.into_iter().filter(|rule| rule.is_enabled).collect();
            Some((String::from_utf8(name.to_vec()).ok()?, rules))
        });
        rules.filter(|(_, rules)| !rules.is_empty()).collect()
    })?;
    for (bucket, rules) in &buckets {
        count.uploads +=
            front.update_state(|gateway| abort_uploads(gateway, bucket, rules, front.now_ms()))?;
        let mut from = Bound::Unbounded;
        while !is_stopped() {
            let stamp = Stamp { now: front.now_ms(), salt: salt() };
            let (versions, next) =
                front.update_state(|gateway| expire_some(gateway, (bucket, rules), from, stamp))?;
            count.versions += versions;
            match next {
                Some(key) => from = Bound::Excluded(key),
                None => break,
            }
        }
    }
    Ok(count)
}

/// Carries out the rules for some keys. Returns how many versions it removed, and the last key if
/// more follow.
fn expire_some(
    gateway: &mut Gateway,
    (bucket, rules): (&str, &[Rule]),
    mut from: Bound<Vec<u8>>,
    stamp: Stamp,
) -> Result<(usize, Option<Vec<u8>>)> {
    let mut removed = 0;
    for _ in 0..KEYS_AT_A_TIME {
        let Some(key) = next_key(gateway, bucket, "", &from) else { return Ok((removed, None)) };
        let place = ObjectPlace::new(bucket, &key[..]);
        // What is damaged stays.
        while let Ok(Some(changes)) = next_change(gateway, &place, rules, stamp) {
            gateway.change_names(changes)?;
            removed += 1;
        }
        from = Bound::Excluded(key.into_bytes());
    }
    let last = match from {
        Bound::Excluded(key) => Some(key),
        _ => None,
    };
    Ok((removed, last))
}

/// The changes of names that carry out a rule for one version of an object, if there is one.
fn next_change(
    gateway: &Gateway,
    place: &ObjectPlace,
    rules: &[Rule],
    stamp: Stamp,
) -> S3Result<Option<NameChanges>> {
    let current = current(gateway, place)?;
    let all = current.into_iter().map(Ok).chain(archived(gateway, place, None));
    let all: Vec<ObjectInfo> = all.collect::<S3Result<_>>()?;
    let mut changes = NameChanges::default();
    let Some((newest, old)) = all.split_first() else { return Ok(None) };
    if newest.note.is_marker {
        if old.is_empty() && rules.iter().any(|rule| ends_marker(rule, place, newest, stamp.now)) {
            remove(gateway, place, newest, &mut changes)?;
            return Ok(Some(changes));
        }
    } else if rules.iter().any(|rule| expires(rule, place, newest, stamp.now)) {
        remove_object(gateway, place, stamp, &mut changes)?;
        return Ok(Some(changes));
    }
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
            remove(gateway, place, version, &mut changes)?;
            return Ok(Some(changes));
        }
    }
    Ok(None)
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

fn remove(
    gateway: &Gateway,
    place: &ObjectPlace,
    known: &ObjectInfo,
    changes: &mut NameChanges,
) -> S3Result<()> {
    let version = match &known.note.version {
        Some(id) if !known.note.is_null() => VersionId::Named(id.clone()),
        _ => VersionId::Null,
    };
    let any = |_: &Note| Ok(());
    remove_version(gateway, place, &version, any, changes).map(drop)
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
