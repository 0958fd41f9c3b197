//! Buckets and their metadata.

use super::access::AccessKeys;
use super::cors::CorsRule;
use super::errors::{read_state, s3_error_of};
use super::lifecycle::Rule;
use super::locks::BucketLock;
use super::names::{archives_of, name_of};
use super::note::Note;
use super::tags::Tags;
use super::times::timestamp;
use crate::gateway::{Gateway, NameChanges, Namespace, Object};
use crate::shared::SharedGateway;
use core::ops::Bound;
use s3s::dto::Bucket;
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

/// Whether a bucket keeps the old versions of its objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Versioning {
    /// All of them.
    Enabled,
    /// Versions that were written before; new ones replace each other.
    Suspended,
}

/// The block of public access, as its owner has set it.
#[expect(clippy::struct_excessive_bools, reason = "S3 has four switches")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PublicAccessBlock {
    pub acls: bool,
    pub policy: bool,
    pub ignores_acls: bool,
    pub restricts: bool,
}

/// A bucket's metadata.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct BucketNote {
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// Tags of the bucket.
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// Whether new versions of objects leave the old ones; `None` if they never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versioning: Option<Versioning>,
    /// The access key that created it; buckets of older gateways have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What the owner has set of the block of public access, which is in force all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_access: Option<PublicAccessBlock>,
    /// Rules by which objects expire.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lifecycle: Vec<Rule>,
    /// Rules by which browsers let pages from elsewhere read replies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cors: Vec<CorsRule>,
    /// Object Lock, if it is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<BucketLock>,
}

impl BucketNote {
    /// The note of a bucket, which must exist.
    pub fn find(gateway: &Gateway, bucket: &str) -> S3Result<Self> {
        let found = gateway.find(Namespace::Buckets, bucket.as_bytes());
        Self::read(found.ok_or_else(|| s3_error!(NoSuchBucket))?.note())
    }

    /// Decodes a note of the gateway.
    pub fn read(bytes: &[u8]) -> S3Result<Self> {
        serde_json::from_slice(bytes).map_err(|_| s3_error!(InternalError, "a note is damaged"))
    }

    /// Encodes the note for the gateway.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is text")
    }
}

/// Fails unless the bucket exists.
pub fn check_bucket(gateway: &Gateway, bucket: &str) -> S3Result<()> {
    let found = gateway.find(Namespace::Buckets, bucket.as_bytes());
    found.map(drop).ok_or_else(|| s3_error!(NoSuchBucket))
}

/// Changes the note of a bucket, which must exist. This sends nothing.
pub fn change_bucket(
    front: &SharedGateway,
    bucket: &str,
    change: impl FnOnce(&mut BucketNote) -> S3Result<()>,
) -> S3Result<()> {
    let changed = front.update_state(|gateway| {
        let note =
            BucketNote::find(gateway, bucket).and_then(|mut note| change(&mut note).map(|()| note));
        match note {
            Ok(note) => gateway.note(Namespace::Buckets, bucket.as_bytes(), &note.bytes()).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    });
    changed.map_err(|error| s3_error_of(&error))?
}

/// Creates a bucket, with Object Lock if it `is_locked`. Its owner may do so again.
pub fn create_bucket(
    front: &SharedGateway,
    bucket: &str,
    owner: &str,
    is_locked: bool,
) -> S3Result<()> {
    let note = BucketNote {
        owner: Some(owner.to_owned()),
        created: front.now_ms(),
        versioning: is_locked.then_some(Versioning::Enabled),
        lock: is_locked.then(BucketLock::default),
        ..BucketNote::default()
    };
    let note = note.bytes();
    let result = front.update_state(|gateway| {
        if gateway.find(Namespace::Buckets, bucket.as_bytes()).is_some() {
            let known = BucketNote::find(gateway, bucket);
            return Ok(known.and_then(|known| match known.owner {
                Some(other) if other != owner => Err(s3_error!(BucketAlreadyExists)),
                _ if is_locked && known.lock.is_none() => Err(s3_error!(BucketAlreadyOwnedByYou)),
                _ => Ok(()),
            }));
        }
        gateway.bind(Namespace::Buckets, bucket.as_bytes(), None, &note).map(Ok)
    });
    result.map_err(|error| s3_error_of(&error))?
}

/// Removes a bucket, which must be empty, also of old versions. Its unfinished uploads go with it.
pub fn delete_bucket(front: &SharedGateway, bucket: &str) -> S3Result<()> {
    let removed = front.update_state(|gateway| {
        if let Err(error) = check_bucket(gateway, bucket) {
            return Ok(Err(error));
        }
        let is_any = |base: &[u8]| {
            let mut names = gateway.names_from(Namespace::Objects, Bound::Included(base));
            names.next().is_some_and(|(first, _)| first.starts_with(base))
        };
        if is_any(&name_of(bucket, "")) || is_any(&archives_of(bucket, "")) {
            return Ok(Err(s3_error!(BucketNotEmpty)));
        }
        let mut changes = NameChanges::default();
        changes.unbind(Namespace::Buckets, bucket.as_bytes());
        let all = gateway.names_from(Namespace::Uploads, Bound::Unbounded);
        let mut own: Option<&[u8]> = None;
        for (name, object) in all {
            // The parts of an upload follow it.
            if own.is_none_or(|upload| !name.starts_with(upload)) {
                let upload = Note::read(object.note()).ok().and_then(|note| note.object);
                own = upload.filter(|(of, _)| of == bucket).map(|_| name);
            }
            if own.is_some() {
                changes.unbind(Namespace::Uploads, name);
            }
        }
        gateway.change_names(changes).map(Ok)
    });
    removed.map_err(|error| s3_error_of(&error))?
}

/// Which buckets are listed.
pub struct BucketRequest<'a> {
    /// The access key, which has rights on them.
    pub id: &'a str,
    pub prefix: &'a str,
    /// The name after which to begin.
    pub after: &'a str,
    /// The most buckets of a page.
    pub len: usize,
}

/// Some of the buckets, in order, and the name of the last one if more follow.
pub fn buckets(
    front: &SharedGateway,
    keys: &AccessKeys,
    request: &BucketRequest<'_>,
) -> S3Result<(Vec<Bucket>, Option<String>)> {
    let BucketRequest { id, prefix, after, len } = *request;
    let (mut found, more) = read_state(front, |gateway| {
        let all = gateway.names_from(Namespace::Buckets, Bound::Excluded(after.as_bytes()));
        let all = all.map(|(name, object)| (String::from_utf8_lossy(name).into_owned(), object));
        let visible =
            all.filter(|(name, _)| name.starts_with(prefix) && keys.grant(id, name).is_some());
        let bucket = |(name, object): (String, &Object)| {
            let note = BucketNote::read(object.note())?;
            let creation_date = Some(timestamp(note.created));
            Ok(Bucket { name: Some(name), creation_date, ..Bucket::default() })
        };
        let found: Vec<_> =
            visible.take(len.saturating_add(1)).map(bucket).collect::<S3Result<_>>()?;
        let more = found.len() > len;
        Ok((found, more))
    })?;
    found.truncate(len);
    let last = found.last().and_then(|last| last.name.clone());
    Ok((found, last.filter(|_| more)))
}
