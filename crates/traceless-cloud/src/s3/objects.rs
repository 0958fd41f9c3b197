//! Buckets and objects.

use super::access::AccessKeys;
use super::bodies::{BodyClaims, UploadBytes, receive, send_object};
use super::conditions::Conditions;
use super::errors::{read_state, s3_error_of};
use super::listing::name_of;
use super::note::{Note, timestamp};
use super::tags::Tags;
use crate::codec::hex;
use crate::error::Result;
use crate::gateway::{Draft, Gateway, Namespace, Object, size_class};
use crate::shared::SharedGateway;
use core::ops::Range;
use s3s::dto::{Bucket, Checksum, StreamingBlob};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A bucket's metadata.
#[derive(Serialize, Deserialize)]
pub struct BucketNote {
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// Tags of the bucket.
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
}

impl BucketNote {
    /// Encodes the note for the gateway.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is text")
    }

    fn read(bytes: &[u8]) -> S3Result<Self> {
        serde_json::from_slice(bytes).map_err(|_| s3_error!(InternalError, "a note is damaged"))
    }
}

/// An object and its metadata.
pub struct ObjectInfo {
    pub object: Object,
    pub note: Note,
}

/// Which bytes of an object are wanted.
pub enum Part {
    /// All bytes.
    Whole,
    /// A range of bytes.
    Range(s3s::dto::Range),
    /// The bytes of one part of the upload, counted from 1.
    Number(i32),
}

impl ObjectInfo {
    /// The range of the wanted bytes.
    pub fn bytes(&self, part: &Part) -> S3Result<Range<u64>> {
        let len = self.object.len();
        match part {
            Part::Whole => Ok(0..len),
            Part::Range(range) => Ok(range.check(len)?),
            Part::Number(number) => {
                let index = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
                let pieces = self.object.pieces();
                let index = index.filter(|&index| index < pieces.len());
                let index = index.ok_or_else(|| s3_error!(InvalidRange))?;
                let first: u64 = pieces[..index].iter().sum();
                Ok(first..first + pieces[index])
            }
        }
    }
}

/// Fails unless the bucket exists.
pub fn check_bucket(gateway: &Gateway, bucket: &str) -> S3Result<()> {
    let found = gateway.find(Namespace::Buckets, bucket.as_bytes());
    found.map(drop).ok_or_else(|| s3_error!(NoSuchBucket))
}

/// The note of a bucket, which must exist.
pub fn bucket_note(gateway: &Gateway, bucket: &str) -> S3Result<BucketNote> {
    let found = gateway.find(Namespace::Buckets, bucket.as_bytes());
    BucketNote::read(found.ok_or_else(|| s3_error!(NoSuchBucket))?.note())
}

/// An object, if it exists.
pub fn find_info(gateway: &Gateway, bucket: &str, key: &str) -> S3Result<Option<ObjectInfo>> {
    check_bucket(gateway, bucket)?;
    let Some(object) = gateway.find(Namespace::Objects, &name_of(bucket, key)).cloned() else {
        return Ok(None);
    };
    let note = Note::read(object.note())?;
    Ok(Some(ObjectInfo { object, note }))
}

/// An object, which must exist.
pub fn find(gateway: &Gateway, bucket: &str, key: &str) -> S3Result<ObjectInfo> {
    find_info(gateway, bucket, key)?.ok_or_else(|| s3_error!(NoSuchKey))
}

/// Creates a bucket.
pub fn create_bucket(front: &SharedGateway, bucket: &str) -> S3Result<()> {
    let note = BucketNote { created: front.now_ms(), tags: Tags::default() }.bytes();
    let result = front.update_state(|gateway| {
        if gateway.find(Namespace::Buckets, bucket.as_bytes()).is_some() {
            return Ok(Err(s3_error!(BucketAlreadyOwnedByYou)));
        }
        gateway.bind(Namespace::Buckets, bucket.as_bytes(), None, &note).map(Ok)
    });
    result.map_err(|error| s3_error_of(&error))?
}

/// Removes a bucket, which must be empty.
pub fn delete_bucket(front: &SharedGateway, bucket: &str) -> S3Result<()> {
    let name = name_of(bucket, "");
    let removed = front.update_state(|gateway| {
        if let Err(error) = check_bucket(gateway, bucket) {
            return Ok(Err(error));
        }
        let from = core::ops::Bound::Included(&name[..]);
        let first = gateway.names_from(Namespace::Objects, from).next();
        if first.is_some_and(|(first, _)| first.starts_with(&name)) {
            return Ok(Err(s3_error!(BucketNotEmpty)));
        }
        gateway.unbind(Namespace::Buckets, bucket.as_bytes()).map(Ok)
    });
    removed.map_err(|error| s3_error_of(&error))?
}

/// The buckets that a key has rights on.
pub fn buckets(front: &SharedGateway, keys: &AccessKeys, id: &str) -> S3Result<Vec<Bucket>> {
    read_state(front, |gateway| {
        let all = gateway.names_from(Namespace::Buckets, core::ops::Bound::Unbounded);
        let all = all.map(|(name, object)| (String::from_utf8_lossy(name).into_owned(), object));
        let visible = all.filter(|(name, _)| keys.grant(id, name).is_some());
        let bucket = |(name, object): (String, &Object)| {
            let note = BucketNote::read(object.note())?;
            let creation_date = Some(timestamp(note.created));
            Ok(Bucket { name: Some(name), creation_date, ..Bucket::default() })
        };
        visible.map(bucket).collect()
    })
}

/// Tag and checksums of a written object.
pub struct WrittenObject {
    pub etag: String,
    pub checksum: Checksum,
}

/// Writes an object.
pub async fn put(
    front: Arc<SharedGateway>,
    (bucket, key): (String, String),
    mut note: Note,
    body: Option<StreamingBlob>,
    announced: BodyClaims,
    conditions: Conditions,
) -> S3Result<WrittenObject> {
    read_state(&front, |gateway| check_place(gateway, &bucket, &key, &conditions))?;
    let now = front.now_ms();
    receive(front, body, announced, move |gateway, received| {
        let UploadBytes { draft, md5, checksum } = received;
        (note.etag, note.modified) = (hex(&md5), now);
        let put = WrittenObject { etag: note.etag.clone(), checksum };
        Ok(bind(gateway, (&bucket, &key), &note, draft, &conditions)?.map(|()| put))
    })
    .await
}

/// Fails unless an object may be written at this key.
pub fn check_place(
    gateway: &Gateway,
    bucket: &str,
    key: &str,
    conditions: &Conditions,
) -> S3Result<()> {
    conditions.check_write(find_info(gateway, bucket, key)?.as_ref().map(|known| &known.note))
}

/// Binds a key to a draft, if the conditions hold.
pub fn bind(
    gateway: &mut Gateway,
    (bucket, key): (&str, &str),
    note: &Note,
    draft: Draft,
    conditions: &Conditions,
) -> Result<S3Result<()>> {
    if let Err(error) = check_place(gateway, bucket, key, conditions) {
        gateway.abandon(draft);
        return Ok(Err(error));
    }
    gateway.bind(Namespace::Objects, &name_of(bucket, key), Some(draft), &note.bytes()).map(Ok)
}

/// Streams bytes of an object.
pub async fn get(
    front: Arc<SharedGateway>,
    known: &ObjectInfo,
    part: &Part,
) -> S3Result<StreamingBlob> {
    send_object(front, known.object.clone(), known.bytes(part)?).await
}

/// Removes an object, if it exists. This makes as many queries as a read.
pub async fn delete(
    front: Arc<SharedGateway>,
    (bucket, key): (String, String),
    conditions: Conditions,
) -> S3Result<()> {
    wait_for(move || {
        let name = name_of(&bucket, &key);
        let removed = front.update_state(|gateway| {
            let known = match find_info(gateway, &bucket, &key) {
                Ok(Some(known)) => known,
                Ok(None) => return Ok(Ok(0)),
                Err(error) => return Ok(Err(error)),
            };
            if let Err(error) = conditions.check_write(Some(&known.note)) {
                return Ok(Err(error));
            }
            gateway.unbind(Namespace::Objects, &name)?;
            Ok(Ok(known.object.blocks()))
        });
        let blocks = removed.map_err(|error| s3_error_of(&error))??;
        front.send_dummies(size_class(blocks)).map_err(|error| s3_error_of(&error))
    })
    .await
}

/// Runs work that may block in a thread.
pub async fn wait_for<T: Send + 'static>(
    work: impl FnOnce() -> S3Result<T> + Send + 'static,
) -> S3Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| s3_error!(e, InternalError))?
}
