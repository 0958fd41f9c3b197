//! Changes of tags. Tags are part of the gateway's own state, so that to change them sends nothing.

use super::errors::s3_error_of;
use super::listing::name_of;
use super::note::Note;
use super::objects::{BucketNote, bucket_note, find};
use super::tags::Tags;
use crate::gateway::{Gateway, Namespace};
use crate::shared::SharedGateway;
use s3s::S3Result;

/// Replaces the tags of an object.
pub fn put_of_object(front: &SharedGateway, bucket: &str, key: &str, tags: &Tags) -> S3Result<()> {
    let put = front.update_state(|gateway| {
        let known = match find(gateway, bucket, key) {
            Ok(known) => known,
            Err(error) => return Ok(Err(error)),
        };
        let note = Note { tags: tags.clone(), ..known.note };
        gateway.note(Namespace::Objects, &name_of(bucket, key), &note.bytes()).map(Ok)
    });
    put.map_err(|error| s3_error_of(&error))?
}

/// The tags of a bucket.
pub fn of_bucket(gateway: &Gateway, bucket: &str) -> S3Result<Tags> {
    Ok(bucket_note(gateway, bucket)?.tags)
}

/// Replaces the tags of a bucket.
pub fn put_of_bucket(front: &SharedGateway, bucket: &str, tags: &Tags) -> S3Result<()> {
    let put = front.update_state(|gateway| {
        let note = match bucket_note(gateway, bucket) {
            Ok(note) => BucketNote { tags: tags.clone(), ..note },
            Err(error) => return Ok(Err(error)),
        };
        gateway.note(Namespace::Buckets, bucket.as_bytes(), &note.bytes()).map(Ok)
    });
    put.map_err(|error| s3_error_of(&error))?
}
