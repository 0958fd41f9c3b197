//! Lists versions of objects: in the order of keys, the newest first, under a prefix, and grouped
//! by a delimiter.

use super::listing::{ListRequest, behind_all, escape, rolled_up};
use super::names::{ObjectPlace, archives_of, key_and_version, name_of};
use super::object_info::ObjectInfo;
use super::versions::{VersionId, archived, current, find, newest, order_of};
use crate::gateway::{Gateway, Namespace};
use core::ops::Bound;
use s3s::S3Result;
use s3s::dto::CommonPrefix;

/// A version of an object, or a delete marker.
pub struct ListedVersion {
    /// The key, as the reply has it.
    pub key: String,
    pub known: ObjectInfo,
    /// Whether it is the newest of its object.
    pub is_latest: bool,
}

/// A page of versions.
#[derive(Default)]
pub struct VersionPage {
    pub versions: Vec<ListedVersion>,
    pub prefixes: Vec<CommonPrefix>,
    /// Key and version of the last entry, if more follow. A prefix has no version.
    pub next: Option<(String, String)>,
}

impl VersionPage {
    fn len(&self) -> usize {
        self.versions.len() + self.prefixes.len()
    }
}

/// The next page of a list that begins after a version, or after all versions of a key.
pub fn version_page(
    gateway: &Gateway,
    request: &ListRequest<'_>,
    after_version: Option<&VersionId>,
) -> S3Result<VersionPage> {
    let ListRequest { bucket, prefix, delimiter, after, len, escaped } = *request;
    let mut page = VersionPage::default();
    let mut last = (String::new(), String::new());
    let mut from = match rolled_up(after, prefix, delimiter) {
        _ if after < prefix => Bound::Included(prefix.as_bytes().to_vec()),
        Some(rolled) if rolled == after => Bound::Included(behind_all(rolled.as_bytes())),
        _ => Bound::Excluded(after.as_bytes().to_vec()),
    };
    let is_own = after.starts_with(prefix) && rolled_up(after, prefix, delimiter).is_none();
    let mut rest = match after_version.filter(|_| is_own && !after.is_empty()) {
        Some(version) => {
            versions_after(gateway, &ObjectPlace::new(bucket, after), version, len + 1)?
        }
        None => Vec::new(),
    };
    let mut key = after.to_owned();
    loop {
        for (known, is_latest) in rest.drain(..) {
            if page.len() == len {
                page.next = Some(last).filter(|_| len > 0);
                return Ok(page);
            }
            last = (key.clone(), known.note.version_id());
            page.versions.push(ListedVersion { key: escape(&key, escaped), known, is_latest });
        }
        let Some(next) = next_key(gateway, bucket, prefix, &from) else { return Ok(page) };
        key = next;
        if let Some(rolled) = rolled_up(&key, prefix, delimiter) {
            if page.len() == len {
                page.next = Some(last).filter(|_| len > 0);
                return Ok(page);
            }
            page.prefixes.push(CommonPrefix { prefix: Some(escape(rolled, escaped)) });
            from = Bound::Included(behind_all(rolled.as_bytes()));
            last = (rolled.to_owned(), String::new());
        } else {
            let room = len - page.len() + 1;
            rest = all_versions(gateway, &ObjectPlace::new(bucket, &key[..]), room)?;
            from = Bound::Excluded(key.clone().into_bytes());
        }
    }
}

/// Up to `most` versions of an object, newest first, and whether each one is the newest.
fn all_versions(
    gateway: &Gateway,
    place: &ObjectPlace,
    most: usize,
) -> S3Result<Vec<(ObjectInfo, bool)>> {
    let current = current(gateway, place)?.map(Ok);
    let all = current.into_iter().chain(archived(gateway, place, None));
    all.take(most).enumerate().map(|(index, known)| Ok((known?, index == 0))).collect()
}

/// Up to `most` versions of an object that are older than one of them. That one may be gone: then
/// the current version can be older, too.
fn versions_after(
    gateway: &Gateway,
    place: &ObjectPlace,
    version: &VersionId,
    most: usize,
) -> S3Result<Vec<(ObjectInfo, bool)>> {
    let current = current(gateway, place)?;
    let (current, after) = match (find(gateway, place, version)?, version) {
        (Some(known), _) if known.name == place.name() => (None, None),
        (Some(known), _) => (None, known.note.version),
        (None, VersionId::Named(id)) => {
            let is_older = |current: &ObjectInfo| current.note.order() < order_of(id);
            (current.filter(is_older), Some(id.clone()))
        }
        // Its place in the order is not known, so all versions follow.
        (None, VersionId::Null) => (current, None),
    };
    let rest = archived(gateway, place, after.as_deref());
    let rest = current.into_iter().map(Ok).chain(rest).take(most);
    let newest = newest(gateway, place)?.map(|newest| newest.name);
    rest.map(|known| {
        let known = known?;
        let is_latest = newest.as_ref() == Some(&known.name);
        Ok((known, is_latest))
    })
    .collect()
}

/// The first key of a bucket, from a bound on, that has a version.
pub fn next_key(
    gateway: &Gateway,
    bucket: &str,
    prefix: &str,
    from: &Bound<Vec<u8>>,
) -> Option<String> {
    let name = |base: Vec<u8>, key: &[u8], end: &[u8]| [&base, key, end].concat();
    let (current, archive) = (name_of(bucket, ""), archives_of(bucket, ""));
    let (current, archive) = match from {
        Bound::Included(key) => (Bound::Included(name(current, key, b"")), name(archive, key, b"")),
        // Names of versions of this key go on with a zero.
        Bound::Excluded(key) => {
            (Bound::Excluded(name(current, key, b"")), name(archive, key, b"\x01"))
        }
        Bound::Unbounded => (Bound::Included(current), archive),
    };
    let base = name_of(bucket, "");
    let under = name_of(bucket, prefix);
    let mut names = gateway.names_from(Namespace::Objects, current.as_ref().map(Vec::as_slice));
    let current = names.next().filter(|(name, _)| name.starts_with(&under));
    let current = current.and_then(|(name, _)| core::str::from_utf8(&name[base.len()..]).ok());
    let under = archives_of(bucket, prefix);
    let archive = gateway.names_from(Namespace::Objects, Bound::Included(&archive[..]));
    let mut archive = archive.take_while(|(name, _)| name.starts_with(&under));
    let is_behind = |key: &&str| match from {
        Bound::Excluded(after) => key.as_bytes() > &after[..],
        _ => true,
    };
    let archive = archive
        .find_map(|(name, _)| key_and_version(bucket, name).map(|(key, _)| key).filter(is_behind));
    current.into_iter().chain(archive).min().map(str::to_owned)
}

#[cfg(test)]
mod tests;
