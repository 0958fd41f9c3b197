//! Copies of objects, to other objects or to parts of uploads.

use super::bodies::DEFAULT_CHECKSUM;
use super::checksums::{Algorithm, StoredChecksum};
use super::errors::s3_error_of;
use super::note::Note;
use super::object_info::{ObjectInfo, Part};
use super::objects::{Target, bind, wait_for};
use super::times::timestamp;
use super::uploads::bind_part;
use crate::codec::hex;
use crate::gateway::{ByteRange, Draft, Object};
use crate::shared::{Protocol, SharedGateway};
use core::ops::Range;
use s3s::S3Result;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{Checksum, Timestamp};
use std::sync::Arc;

/// The target of a copy.
pub enum CopyOutcome {
    /// An object with this note, but for tag and time.
    Object { target: Box<Target>, note: Box<Note> },
    /// A part of an upload.
    Part { name: Vec<u8> },
}

/// A finished copy.
pub struct CopiedObject {
    pub etag: String,
    pub modified: Timestamp,
    pub checksum: Checksum,
    /// The version, in a bucket that keeps versions.
    pub version: Option<String>,
}

/// Copies bytes of an object with ordinary reads and writes. The copy has the given kind of
/// checksum, or that of its source.
pub async fn copy(
    front: Arc<SharedGateway>,
    source: ObjectInfo,
    part: Part,
    target: CopyOutcome,
    checksum: Option<Algorithm>,
) -> S3Result<CopiedObject> {
    wait_for(move || {
        let bytes = source.bytes(&part)?;
        let mut draft = Draft::default();
        let of_source = source.note.checksum.as_ref().map(|checksum| checksum.algorithm);
        let mut sums = ChecksumHasher::default();
        checksum.or(of_source).unwrap_or(DEFAULT_CHECKSUM).add_to(&mut sums);
        let done = copy_bytes(&front, source.object, bytes, &mut draft, &mut sums);
        let etag = match done {
            Ok(md5) => hex(&md5),
            Err(error) => {
                front.abandon(draft);
                return Err(error);
            }
        };
        let (modified, checksum) = (front.now_ms(), sums.finalize());
        let stored = StoredChecksum::first_of(&checksum);
        let mut draft = Some(draft);
        let bound = front.update_state(|gateway| {
            let draft = draft.take().expect("it is called once");
            match target {
                CopyOutcome::Object { target, mut note } => {
                    (note.etag, note.modified) = (etag.clone(), modified);
                    note.checksum = stored;
                    bind(gateway, &target, *note, draft)
                }
                CopyOutcome::Part { name } => {
                    let etag = etag.clone();
                    let note = Note { etag, modified, checksum: stored, ..Note::default() };
                    Ok(bind_part(gateway, &name, draft, &note)?.map(|()| None))
                }
            }
        });
        if let Some(draft) = draft {
            front.abandon(draft);
        }
        let version = bound.map_err(|error| s3_error_of(&error))??;
        Ok(CopiedObject { etag, modified: timestamp(modified), checksum, version })
    })
    .await
}

fn copy_bytes(
    front: &SharedGateway,
    object: Object,
    bytes: Range<u64>,
    draft: &mut Draft,
    sums: &mut ChecksumHasher,
) -> S3Result<[u8; 16]> {
    let mut reading = ByteRange::new(object, bytes);
    let mut md5 = Md5::new();
    while !reading.is_done() {
        let bytes = front.read(&mut reading).map_err(|error| s3_error_of(&error))?;
        md5.update(&bytes);
        sums.update(&bytes);
        front.metrics().took(Protocol::S3, bytes.len());
        front.append(draft, &bytes).map_err(|error| s3_error_of(&error))?;
    }
    front.complete(draft).map_err(|error| s3_error_of(&error))?;
    Ok(md5.finalize())
}
