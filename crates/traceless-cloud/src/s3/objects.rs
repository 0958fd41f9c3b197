//! Objects.

use super::bodies::{BodyClaims, UploadBytes, receive, send_object};
use super::buckets::{BucketNote, check_bucket};
use super::checksums::StoredChecksum;
use super::conditions::Conditions;
use super::errors::{read_state, s3_error_of};
use super::names::ObjectPlace;
use super::note::Note;
use super::object_info::{ObjectInfo, Part};
use super::versions::{self, Removal, Stamp, VersionId, is_deleted};
use crate::codec::hex;
use crate::error::Result;
use crate::gateway::{Draft, Gateway, NameChanges, Namespace, size_class};
use crate::shared::SharedGateway;
use s3s::dto::{Checksum, StreamingBlob};
use s3s::{S3Result, s3_error};
use std::sync::Arc;

/// An object, which must exist: a version of it, or the current one.
pub fn find(
    gateway: &Gateway,
    place: &ObjectPlace,
    version: Option<&VersionId>,
) -> S3Result<ObjectInfo> {
    check_bucket(gateway, &place.bucket)?;
    let Some(version) = version else {
        return match versions::newest(gateway, place)? {
            Some(newest) if newest.name == place.name() => Ok(newest),
            Some(newest) if newest.note.is_marker => {
                Err(is_deleted(s3_error!(NoSuchKey), &newest.note))
            }
            // The current version was lost with damage, and given up: older ones do not replace it.
            _ => Err(s3_error!(NoSuchKey)),
        };
    };
    match versions::find(gateway, place, version)? {
        Some(known) if known.note.is_marker => {
            Err(is_deleted(s3_error!(MethodNotAllowed), &known.note))
        }
        Some(known) => Ok(known),
        None => Err(s3_error!(NoSuchVersion)),
    }
}

/// Where and under which conditions an object is written.
#[derive(Clone)]
pub struct Target {
    pub place: ObjectPlace,
    pub conditions: Conditions,
    pub stamp: Stamp,
}

/// Tag, checksums and version of a written object.
pub struct WrittenObject {
    pub etag: String,
    pub checksum: Checksum,
    /// The version, in a bucket that keeps versions.
    pub version: Option<String>,
}

/// Writes an object.
pub async fn put(
    front: Arc<SharedGateway>,
    target: Target,
    mut note: Note,
    body: Option<StreamingBlob>,
    announced: BodyClaims,
) -> S3Result<WrittenObject> {
    read_state(&front, |gateway| check_target(gateway, &target, &note).map(drop))?;
    receive(front, body, announced, move |gateway, received| {
        let UploadBytes { draft, md5, checksum } = received;
        let etag = hex(&md5);
        (note.etag, note.modified) = (etag.clone(), target.stamp.now);
        note.checksum = StoredChecksum::first_of(&checksum);
        let bound = bind(gateway, &target, note, draft)?;
        Ok(bound.map(|version| WrittenObject { etag, checksum, version }))
    })
    .await
}

/// The bucket of an object that may be written. Fails if it may not.
pub fn check_target(gateway: &Gateway, target: &Target, note: &Note) -> S3Result<BucketNote> {
    let Target { place, conditions, .. } = target;
    let bucket = BucketNote::find(gateway, &place.bucket)?;
    if place.key.contains('\0') {
        return Err(s3_error!(InvalidArgument, "a key has no zero byte"));
    }
    check_locks(&bucket, note)?;
    let current = versions::current(gateway, place)?;
    conditions.check_write(current.as_ref().map(|known| &known.note))?;
    Ok(bucket)
}

/// Fails if a note has locks, and its bucket has no Object Lock.
pub fn check_locks(bucket: &BucketNote, note: &Note) -> S3Result<()> {
    if bucket.lock.is_none() && !note.locks.is_none() {
        return Err(s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration"));
    }
    Ok(())
}

/// The changes of names that make room for a new version, and its note, with the retention of its
/// bucket unless it has one of its own.
pub fn plan(
    gateway: &Gateway,
    target: &Target,
    mut note: Note,
    changes: &mut NameChanges,
) -> S3Result<Note> {
    let bucket = check_target(gateway, target, &note)?;
    let default = bucket.lock.and_then(|lock| lock.retention(target.stamp.now));
    note.locks.retention = note.locks.retention.or(default);
    let Target { place, stamp, .. } = target;
    versions::make_room(gateway, bucket.versioning, place, note, *stamp, changes)
}

/// Binds a key to a draft, if the conditions hold. Returns the version.
pub fn bind(
    gateway: &mut Gateway,
    target: &Target,
    note: Note,
    draft: Draft,
) -> Result<S3Result<Option<String>>> {
    let mut changes = NameChanges::default();
    let note = match plan(gateway, target, note, &mut changes) {
        Ok(note) => note,
        Err(error) => {
            gateway.abandon(draft);
            return Ok(Err(error));
        }
    };
    let name = target.place.name();
    changes.bind(Namespace::Objects, &name, Some(draft), &note.bytes());
    gateway.change_names(changes)?;
    Ok(Ok(note.new_version()))
}

/// Streams bytes of an object.
pub async fn get(
    front: Arc<SharedGateway>,
    known: &ObjectInfo,
    part: &Part,
) -> S3Result<StreamingBlob> {
    send_object(front, known.object.clone(), known.bytes(part)?).await
}

/// What is to be removed.
pub struct RemovalRequest {
    pub target: Target,
    /// The version that is removed for good. Without it, a bucket with versions gets a delete
    /// marker.
    pub version: Option<VersionId>,
    /// Whether it ends a retention of governance.
    pub bypass: bool,
}

/// Removes an object or a version, if it exists. This makes as many queries as reading what is
/// removed; a delete marker needs none.
pub async fn delete(front: Arc<SharedGateway>, request: RemovalRequest) -> S3Result<Removal> {
    wait_for(move || {
        let removed = front.update_state(|gateway| {
            let mut changes = NameChanges::default();
            match plan_removal(gateway, &request, &mut changes) {
                Ok(removal) => gateway.change_names(changes).map(|()| Ok(removal)),
                Err(error) => Ok(Err(error)),
            }
        });
        let removal = removed.map_err(|error| s3_error_of(&error))??;
        if removal.blocks > 0 {
            let class = size_class(removal.blocks);
            front.send_dummies(class).map_err(|error| s3_error_of(&error))?;
        }
        Ok(removal)
    })
    .await
}

fn plan_removal(
    gateway: &Gateway,
    RemovalRequest { target, version, bypass }: &RemovalRequest,
    changes: &mut NameChanges,
) -> S3Result<Removal> {
    let Target { place, conditions, stamp } = target;
    let versioning = BucketNote::find(gateway, &place.bucket)?.versioning;
    let known = match version {
        None => versions::current(gateway, place)?,
        Some(version) => versions::find(gateway, place, version)?,
    };
    if let Some(known) = known {
        conditions.check_write(Some(&known.note))?;
    }
    match version {
        None => versions::remove_object(gateway, versioning, place, *stamp, changes),
        Some(version) => {
            let check = |note: &Note| note.locks.check_removal(stamp.now, *bypass);
            versions::remove_version(gateway, versioning, place, version, check, changes)
        }
    }
}

/// Changes the note of an object, which must exist. This sends nothing.
pub fn change_note(
    front: &SharedGateway,
    place: &ObjectPlace,
    version: Option<&VersionId>,
    change: impl FnOnce(&mut Note) -> S3Result<()>,
) -> S3Result<Note> {
    let changed = front.update_state(|gateway| {
        let changed = find(gateway, place, version)
            .and_then(|mut known| change(&mut known.note).map(|()| known));
        match changed {
            Ok(ObjectInfo { name, note, .. }) => {
                gateway.note(Namespace::Objects, &name, &note.bytes()).map(|()| Ok(note))
            }
            Err(error) => Ok(Err(error)),
        }
    });
    changed.map_err(|error| s3_error_of(&error))?
}

/// Runs work that may block in a thread.
pub async fn wait_for<T: Send + 'static>(
    work: impl FnOnce() -> S3Result<T> + Send + 'static,
) -> S3Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| s3_error!(e, InternalError))?
}
