//! Versions of objects.
//!
//! The current version of an object has the object's name, so that reads and lists that name no
//! version find nothing else. Older versions and delete markers are in the object's archive, newest
//! first. An object has no current version if its newest one is a delete marker.

use super::buckets::Versioning;
use super::names::{ID_LEN, ObjectPlace, is_id};
use super::note::Note;
use super::object_info::ObjectInfo;
use crate::gateway::{Gateway, NameChanges, Namespace, Object};
use core::ops::Bound;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use s3s::{S3Error, S3Result, s3_error};

/// The version of objects that were written without versions.
const NULL: &str = "null";
/// Bits that times are moved up by in the order of versions: several of a millisecond differ.
const ORDER_SHIFT: u32 = 16;

/// A version that a request names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VersionId {
    /// The one that was written without versions.
    Null,
    /// The one with this name.
    Named(String),
}

impl VersionId {
    /// Reads a request's version, if it names one.
    pub fn parse(text: Option<&str>) -> S3Result<Option<Self>> {
        match text {
            None => Ok(None),
            Some(NULL) => Ok(Some(Self::Null)),
            Some(id) if is_id(id.as_bytes()) => Ok(Some(Self::Named(id.to_owned()))),
            Some(_) => Err(s3_error!(InvalidArgument, "Invalid version id specified")),
        }
    }
}

/// When a version is written, and a random number that its name gets.
#[derive(Clone, Copy)]
pub struct Stamp {
    /// In milliseconds since 1970.
    pub now: u64,
    pub salt: u64,
}

/// The place of a version in the order of an object's versions.
pub fn order_of(id: &str) -> u64 {
    u64::from_str_radix(id.get(..16).unwrap_or_default(), 16).map_or(0, |number| !number)
}

fn id_of(order: u64, salt: u64) -> String {
    format!("{:016x}{salt:016x}", !order)
}

/// The archived versions of an object with their names, newest first, after `after` if it is one.
pub fn archived<'a>(
    gateway: &'a Gateway,
    place: &ObjectPlace,
    after: Option<&str>,
) -> impl Iterator<Item = S3Result<ObjectInfo>> + use<'a> {
    let base = place.archive();
    let from = match after {
        Some(id) => Bound::Excluded(place.archived(id)),
        None => Bound::Included(base.clone()),
    };
    let names = gateway.names_from(Namespace::Objects, from.as_ref().map(Vec::as_slice));
    let len = base.len() + ID_LEN;
    let own = names.take_while(move |(name, _)| name.starts_with(&base));
    // A key that goes on with the byte that ends keys has longer names.
    let own = own.filter(move |(name, _)| name.len() == len);
    own.map(|(name, object)| info(name, object))
}

fn info(name: &[u8], object: &Object) -> S3Result<ObjectInfo> {
    let note = Note::read(object.note())?;
    Ok(ObjectInfo { name: name.to_vec(), object: object.clone(), note })
}

/// The current version of an object, if there is one.
pub fn current(gateway: &Gateway, place: &ObjectPlace) -> S3Result<Option<ObjectInfo>> {
    let name = place.name();
    gateway.find(Namespace::Objects, &name).map(|object| info(&name, object)).transpose()
}

/// A version of an object, if there is one; it can be a delete marker.
pub fn find(
    gateway: &Gateway,
    place: &ObjectPlace,
    version: &VersionId,
) -> S3Result<Option<ObjectInfo>> {
    let is_it = |known: &ObjectInfo| match version {
        VersionId::Null => known.note.is_null(),
        VersionId::Named(id) => known.note.version.as_deref() == Some(id) && !known.note.is_null(),
    };
    if let Some(current) = current(gateway, place)?.filter(is_it) {
        return Ok(Some(current));
    }
    if let VersionId::Named(id) = version {
        let name = place.archived(id);
        let found = gateway.find(Namespace::Objects, &name).map(|object| info(&name, object));
        return Ok(found.transpose()?.filter(is_it));
    }
    let mut all = archived(gateway, place, None);
    all.find(|known| known.as_ref().map_or(true, is_it)).transpose()
}

/// The newest version of an object: an object or a delete marker.
pub fn newest(gateway: &Gateway, place: &ObjectPlace) -> S3Result<Option<ObjectInfo>> {
    match current(gateway, place)? {
        Some(current) => Ok(Some(current)),
        None => archived(gateway, place, None).next().transpose(),
    }
}

/// The changes of names that make room for a new version of an object, and the note of the new one.
/// The current version remains where it is if the new one replaces it.
pub fn make_room(
    gateway: &Gateway,
    versioning: Option<Versioning>,
    place: &ObjectPlace,
    note: Note,
    stamp: Stamp,
    changes: &mut NameChanges,
) -> S3Result<Note> {
    let Some(versioning) = versioning else { return Ok(note) };
    let newest = newest(gateway, place)?;
    let last = newest.as_ref().map_or(0, |newest| newest.note.order());
    let order = (stamp.now << ORDER_SHIFT).max(last + 1);
    let (id, is_null) = (id_of(order, stamp.salt), versioning == Versioning::Suspended);
    if is_null {
        let mut old = archived(gateway, place, None);
        let null = old.find(|known| known.as_ref().is_ok_and(|known| known.note.is_null()));
        if let Some(null) = null.transpose()? {
            changes.unbind(Namespace::Objects, &null.name);
        }
    }
    let current = newest.filter(|newest| newest.name == place.name());
    if let Some(current) = current.filter(|current| !(is_null && current.note.is_null())) {
        archive(place, current, changes);
    }
    Ok(Note { version: Some(id), has_null_version: is_null, ..note })
}

/// Moves the current version into the archive.
fn archive(place: &ObjectPlace, current: ObjectInfo, changes: &mut NameChanges) {
    let id = id_of(current.note.order(), 0);
    let id = current.note.version.clone().unwrap_or(id);
    let name = place.archived(&id);
    changes.rename(Namespace::Objects, &current.name, &name);
    if current.note.version.is_none() {
        let note = Note { version: Some(id), has_null_version: true, ..current.note };
        changes.note(Namespace::Objects, &name, &note.bytes());
    }
}

impl Note {
    /// Whether this is the version that was written without versions.
    pub fn is_null(&self) -> bool {
        self.version.is_none() || self.has_null_version
    }

    /// The version, as clients name it.
    pub fn version_id(&self) -> String {
        match &self.version {
            Some(id) if !self.has_null_version => id.clone(),
            _ => NULL.to_owned(),
        }
    }

    /// The version as replies to a write have it, which do not name `null`.
    pub fn new_version(&self) -> Option<String> {
        (!self.is_null()).then(|| self.version_id())
    }

    /// The version as other replies have it: none in a bucket that never kept versions.
    pub fn known_version(&self) -> Option<String> {
        self.version.is_some().then(|| self.version_id())
    }

    /// The place of the version in the order of an object's versions: newer ones have larger ones.
    pub fn order(&self) -> u64 {
        self.version.as_deref().map_or(self.modified << ORDER_SHIFT, order_of)
    }
}

/// What a removal has done.
#[derive(PartialEq, Eq, Default, Debug)]
pub struct Removal {
    /// Blocks of the removed version.
    pub blocks: usize,
    /// The delete marker that was written or removed, or the version that was removed; `None` in a
    /// bucket without versions.
    pub version: Option<String>,
    /// Whether it is a delete marker.
    pub is_marker: bool,
}

/// The changes of names that remove an object. Where versions are kept, they write a delete marker.
pub fn remove_object(
    gateway: &Gateway,
    versioning: Option<Versioning>,
    place: &ObjectPlace,
    stamp: Stamp,
    changes: &mut NameChanges,
) -> S3Result<Removal> {
    let current = current(gateway, place)?;
    let marker = Note { modified: stamp.now, is_marker: true, ..Note::default() };
    let marker = make_room(gateway, versioning, place, marker, stamp, changes)?;
    let is_versioned = marker.version.is_some();
    let stays =
        |current: &ObjectInfo| is_versioned && !(marker.is_null() && current.note.is_null());
    let removed = current.filter(|current| !stays(current));
    if let Some(removed) = &removed {
        changes.unbind(Namespace::Objects, &removed.name);
    }
    let blocks = removed.map_or(0, |removed| removed.object.blocks());
    let Some(id) = &marker.version else {
        return Ok(Removal { blocks, ..Removal::default() });
    };
    changes.bind(Namespace::Objects, &place.archived(id), None, &marker.bytes());
    Ok(Removal { blocks, version: Some(marker.version_id()), is_marker: true })
}

/// The changes of names that remove one version, after which the next newest is the current one
/// unless it is a delete marker. There need not be the version.
pub fn remove_version(
    gateway: &Gateway,
    versioning: Option<Versioning>,
    place: &ObjectPlace,
    version: &VersionId,
    check: impl FnOnce(&Note) -> S3Result<()>,
    changes: &mut NameChanges,
) -> S3Result<Removal> {
    let Some(known) = find(gateway, place, version)? else {
        let version = match version {
            VersionId::Null => NULL.to_owned(),
            VersionId::Named(id) => id.clone(),
        };
        return Ok(Removal { version: Some(version), ..Removal::default() });
    };
    check(&known.note)?;
    changes.unbind(Namespace::Objects, &known.name);
    let current = current(gateway, place)?;
    if current.is_none_or(|current| current.name == known.name) {
        let mut others = archived(gateway, place, None);
        let next = others.find(|next| next.as_ref().map_or(true, |next| next.name != known.name));
        if let Some(next) = next.transpose()?.filter(|next| !next.note.is_marker) {
            changes.rename(Namespace::Objects, &next.name, &place.name());
        }
    }
    Ok(Removal {
        blocks: known.object.blocks(),
        version: versioning.is_some().then(|| known.note.version_id()),
        is_marker: known.note.is_marker,
    })
}

/// The error of a request for an object that is a delete marker.
pub fn is_deleted(mut error: S3Error, marker: &Note) -> S3Error {
    let mut headers = HeaderMap::new();
    headers
        .insert(HeaderName::from_static("x-amz-delete-marker"), HeaderValue::from_static("true"));
    if let Ok(id) = HeaderValue::from_str(&marker.version_id()) {
        headers.insert(HeaderName::from_static("x-amz-version-id"), id);
    }
    error.set_headers(headers);
    error
}

#[cfg(test)]
mod tests;
