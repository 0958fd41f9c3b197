//! Multipart uploads. Each part is in the tree under its own name, and a completed object consists
//! of the blocks of its parts, one after another.

use super::bodies::{BodyClaims, DEFAULT_CHECKSUM, UploadBytes, receive};
use super::buckets::{BucketNote, check_bucket};
use super::checksums::{Algorithm, StoredChecksum, UploadChecksum};
use super::errors::s3_error_of;
use super::listing::size;
use super::names::ObjectPlace;
use super::note::Note;
use super::objects::{Target, WrittenObject, check_locks, plan, wait_for};
use super::times::timestamp;
use crate::codec::hex;
use crate::error::Result;
use crate::gateway::{Draft, Gateway, NameChanges, Namespace, Object, size_class};
use crate::shared::SharedGateway;
use core::ops::Bound;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{Checksum, CompletedPart, MultipartUpload, Part, StreamingBlob};
use s3s::{S3Error, S3Result, s3_error};
use std::sync::Arc;
use traceless_core::rng::Rng;

/// Most parts of an object.
const PARTS_MAX: i32 = 10_000;
/// Shortest part in bytes, except for the last part.
const PART_LEN_MIN: u64 = 5 << 20;
/// Characters of an upload's name.
const ID_LEN: usize = 32;

/// An upload in progress.
pub struct Upload {
    pub id: String,
    pub note: Note,
}

impl Upload {
    /// The checksum that the object gets.
    pub fn checksum(&self) -> UploadChecksum {
        let default = UploadChecksum { algorithm: DEFAULT_CHECKSUM, is_composite: false };
        self.note.upload_checksum.unwrap_or(default)
    }
}

/// Begins an upload.
pub fn begin(
    front: &SharedGateway,
    place: ObjectPlace,
    mut note: Note,
    rng: &mut dyn Rng,
) -> S3Result<String> {
    let mut id = [0; ID_LEN / 2];
    rng.fill(&mut id);
    let id = hex(&id);
    note.modified = front.now_ms();
    let begun = front.update_state(|gateway| {
        let bucket = BucketNote::find(gateway, &place.bucket);
        if let Err(error) = bucket.and_then(|bucket| check_locks(&bucket, &note)) {
            return Ok(Err(error));
        }
        note.object = Some((place.bucket, place.key));
        gateway.bind(Namespace::Uploads, id.as_bytes(), None, &note.bytes()).map(Ok)
    });
    begun.map_err(|error| s3_error_of(&error))??;
    Ok(id)
}

/// Fails unless this upload of this object exists.
pub fn find(
    gateway: &Gateway,
    ObjectPlace { bucket, key }: &ObjectPlace,
    id: &str,
) -> S3Result<Upload> {
    check_bucket(gateway, bucket)?;
    let found = gateway.find(Namespace::Uploads, id.as_bytes()).filter(|_| id.len() == ID_LEN);
    let note = Note::read(found.ok_or_else(|| s3_error!(NoSuchUpload))?.note())?;
    let is_it = note.object.as_ref().is_some_and(|(b, k)| b == bucket && k == key);
    if !is_it {
        return Err(s3_error!(NoSuchUpload));
    }
    Ok(Upload { id: id.to_owned(), note })
}

/// The name of a part. Parts are counted from 1.
pub fn part_name(id: &str, number: i32) -> S3Result<Vec<u8>> {
    if !(1..=PARTS_MAX).contains(&number) {
        return Err(s3_error!(InvalidArgument, "parts have numbers from 1 to 10000"));
    }
    Ok(format!("{id}/{number:05}").into_bytes())
}

/// Receives a part.
pub async fn put_part(
    front: Arc<SharedGateway>,
    name: Vec<u8>,
    body: Option<StreamingBlob>,
    announced: BodyClaims,
) -> S3Result<WrittenObject> {
    let (modified, kept) = (front.now_ms(), announced.kept.unwrap_or(DEFAULT_CHECKSUM));
    receive(front, body, announced, move |gateway, received| {
        let UploadBytes { draft, md5, checksum } = received;
        let stored = StoredChecksum::of(&checksum, kept);
        let note = Note { etag: hex(&md5), modified, checksum: stored, ..Note::default() };
        let bound = bind_part(gateway, &name, draft, &note)?;
        Ok(bound.map(|()| WrittenObject { etag: note.etag, checksum, version: None }))
    })
    .await
}

/// Keeps a part, unless its upload has ended meanwhile.
pub fn bind_part(
    gateway: &mut Gateway,
    name: &[u8],
    draft: Draft,
    note: &Note,
) -> Result<S3Result<()>> {
    let upload = &name[..ID_LEN.min(name.len())];
    if gateway.find(Namespace::Uploads, upload).is_none() {
        gateway.abandon(draft);
        return Ok(Err(s3_error!(NoSuchUpload)));
    }
    gateway.bind(Namespace::Uploads, name, Some(draft), &note.bytes()).map(Ok)
}

/// Up to `count` uploaded parts with numbers after `after`.
pub fn parts(gateway: &Gateway, id: &str, after: i32, count: usize) -> S3Result<Vec<Part>> {
    let from = format!("{id}/{after:05}");
    let names = gateway.names_from(Namespace::Uploads, Bound::Excluded(from.as_bytes()));
    let own = names.take_while(|(name, _)| name.starts_with(id.as_bytes()));
    let part = |(name, object): (&[u8], &Object)| {
        let number = core::str::from_utf8(&name[ID_LEN + 1..]).ok().and_then(|n| n.parse().ok());
        let note = Note::read(object.note())?;
        let checksum = note.checksum.as_ref().map(StoredChecksum::field).unwrap_or_default();
        Ok(Part {
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            part_number: number,
            e_tag: Some(note.etag()),
            last_modified: Some(note.modified()),
            size: Some(size(object.len())),
        })
    };
    own.take(count).map(part).collect()
}

/// What a client says about the object of an upload.
pub struct UploadClaims {
    pub parts: Vec<CompletedPart>,
    /// The checksum of the object, in its field.
    pub checksum: Checksum,
}

/// Makes the object of its parts. Returns its note, also if that was done before: a client that got
/// no reply repeats its request.
pub fn complete(
    front: &SharedGateway,
    target: &Target,
    id: &str,
    claims: &UploadClaims,
) -> S3Result<Note> {
    let joined = front.update_state(|gateway| {
        if let Some(note) = completed(gateway, &target.place, id) {
            return Ok(Ok(note));
        }
        let mut changes = NameChanges::default();
        let planned = plan_object(gateway, &target.place, id, claims).and_then(|(note, parts)| {
            let upload = Some(id.to_owned());
            let note = Note { modified: target.stamp.now, upload, ..note };
            Ok((plan(gateway, target, note, &mut changes)?, parts))
        });
        let (note, parts) = match planned {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(error)),
        };
        changes.join(id.as_bytes(), parts, &target.place.name(), &note.bytes());
        gateway.change_names(changes)?;
        Ok(Ok(note))
    });
    joined.map_err(|error| s3_error_of(&error))?
}

/// The note of the current object, if it was made of this upload.
fn completed(gateway: &Gateway, place: &ObjectPlace, id: &str) -> Option<Note> {
    let object = gateway.find(Namespace::Objects, &place.name())?;
    Note::read(object.note()).ok().filter(|note| note.upload.as_deref() == Some(id))
}

/// The note of the future object, and the names of its parts.
fn plan_object(
    gateway: &Gateway,
    place: &ObjectPlace,
    id: &str,
    claims: &UploadClaims,
) -> S3Result<(Note, Vec<Vec<u8>>)> {
    let (upload, requested) = (find(gateway, place, id)?, &claims.parts);
    let (kind, mut note, mut checksums) = (upload.checksum(), upload.note, Vec::new());
    if requested.is_empty() {
        return Err(s3_error!(InvalidRequest, "an object is made of one part at least"));
    }
    let (mut names, mut md5, mut last) = (Vec::new(), Md5::new(), 0);
    for (index, part) in requested.iter().enumerate() {
        let number = part.part_number.unwrap_or_default();
        if number <= last {
            return Err(s3_error!(InvalidPartOrder));
        }
        last = number;
        let name = part_name(id, number).map_err(|_| s3_error!(InvalidPart))?;
        let object =
            gateway.find(Namespace::Uploads, &name).ok_or_else(|| s3_error!(InvalidPart))?;
        let Note { etag, checksum, .. } = Note::read(object.note())?;
        // A checksum of another kind was compared when the part arrived.
        let same = checksum.as_ref().map(|checksum| checksum.algorithm);
        let claim = same.and_then(|same| StoredChecksum::of(&part_checksum(part), same));
        if claim.is_some() && claim != checksum {
            return Err(s3_error!(InvalidPart));
        }
        checksums.push((checksum, object.len()));
        if part.e_tag.as_ref().is_some_and(|tag| tag.value() != etag) {
            return Err(s3_error!(InvalidPart));
        }
        if object.len() < PART_LEN_MIN && index + 1 < requested.len() {
            return Err(s3_error!(EntityTooSmall));
        }
        md5.update(&digest(&etag)?);
        names.push(name);
    }
    note.etag = format!("{}-{}", hex(&md5.finalize()), names.len());
    (note.object, note.upload_checksum) = (None, None);
    note.checksum = kind.join(&checksums);
    if note.checksum.is_some() {
        let values = checksums.into_iter().filter_map(|(checksum, _)| checksum);
        note.part_checksums = values.map(|checksum| checksum.value).collect();
    }
    let wrong = || s3_error!(BadDigest, "the parts do not have the checksum that was announced");
    check_claims(&claims.checksum, note.checksum.as_ref(), wrong)?;
    Ok((note, names))
}

fn part_checksum(part: &CompletedPart) -> Checksum {
    let part = part.clone();
    Checksum {
        checksum_crc32: part.checksum_crc32,
        checksum_crc32c: part.checksum_crc32c,
        checksum_crc64nvme: part.checksum_crc64nvme,
        checksum_sha1: part.checksum_sha1,
        checksum_sha256: part.checksum_sha256,
        ..Checksum::default()
    }
}

/// Fails if a client has announced another checksum than there is.
fn check_claims(
    announced: &Checksum,
    found: Option<&StoredChecksum>,
    error: impl Fn() -> S3Error,
) -> S3Result<()> {
    let mut announced = announced.clone();
    for algorithm in Algorithm::ALL {
        let Some(value) = algorithm.field(&mut announced).take() else { continue };
        let found = found.filter(|found| found.algorithm == algorithm);
        if found.is_none_or(|found| found.value != value) {
            return Err(error());
        }
    }
    Ok(())
}

fn digest(etag: &str) -> S3Result<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(etag.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..etag.len()).step_by(2).map(byte).collect();
    bytes.ok_or_else(|| s3_error!(InternalError, "a note is damaged"))
}

/// Removes an upload and its parts, with as many queries as reading them takes.
pub async fn abort(front: Arc<SharedGateway>, place: ObjectPlace, id: String) -> S3Result<()> {
    wait_for(move || {
        let aborted = front.update_state(|gateway| {
            if let Err(error) = find(gateway, &place, &id) {
                return Ok(Err(error));
            }
            let (own, mut changes) = (names_of(gateway, &id), NameChanges::default());
            for (name, _) in &own {
                changes.unbind(Namespace::Uploads, name);
            }
            gateway.change_names(changes)?;
            Ok(Ok(own.iter().map(|(_, blocks)| size_class(*blocks)).sum()))
        });
        let queries = aborted.map_err(|error| s3_error_of(&error))??;
        front.send_dummies(queries).map_err(|error| s3_error_of(&error))
    })
    .await
}

/// The names of an upload and its parts, and how many blocks each has.
pub fn names_of(gateway: &Gateway, id: &str) -> Vec<(Vec<u8>, usize)> {
    let own = gateway.names_from(Namespace::Uploads, Bound::Included(id.as_bytes()));
    let own = own.take_while(|(name, _)| name.starts_with(id.as_bytes()));
    own.map(|(name, object)| (name.to_vec(), object.blocks())).collect()
}

/// An upload in progress, as lists have it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UploadInfo {
    pub key: String,
    pub id: String,
    /// In milliseconds since 1970.
    pub begun: u64,
}

/// A bucket's uploads in progress, in order of their keys.
pub fn of_bucket(gateway: &Gateway, bucket: &str) -> S3Result<Vec<UploadInfo>> {
    check_bucket(gateway, bucket)?;
    let mut found = Vec::new();
    for (name, object) in gateway.names_from(Namespace::Uploads, Bound::Unbounded) {
        if name.len() != ID_LEN {
            continue;
        }
        let Note { object: Some((own, key)), modified: begun, .. } = Note::read(object.note())?
        else {
            continue;
        };
        if own == bucket {
            found.push(UploadInfo { key, id: String::from_utf8_lossy(name).into_owned(), begun });
        }
    }
    found.sort();
    Ok(found)
}

/// A bucket's uploads in progress, in order of their keys, after `after`.
pub fn uploads(
    gateway: &Gateway,
    bucket: &str,
    prefix: &str,
    after: (&str, &str),
    count: usize,
) -> S3Result<(Vec<MultipartUpload>, bool)> {
    let mut found = of_bucket(gateway, bucket)?;
    found.retain(|UploadInfo { key, id, .. }| {
        let is_behind = (&key[..], &id[..]) > after && (key != after.0 || !after.1.is_empty());
        key.starts_with(prefix) && is_behind
    });
    let is_cut = found.len() > count;
    found.truncate(count);
    let upload = |UploadInfo { key, id, begun }| MultipartUpload {
        key: Some(key),
        upload_id: Some(id),
        initiated: Some(timestamp(begun)),
        ..MultipartUpload::default()
    };
    Ok((found.into_iter().map(upload).collect(), is_cut))
}
