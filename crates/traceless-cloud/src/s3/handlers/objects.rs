//! Requests for one object, or for several by name.

use super::Handlers;
use super::inputs::{
    announced, check_acl, check_rights, checksum, copy_conditions, headers, length, locks,
    own_encoding, read_conditions, with_checksum, write_conditions, written,
};
use crate::s3::bodies::{BodyClaims, Trailers};
use crate::s3::buckets::check_bucket;
use crate::s3::checksums::{Algorithm, StoredChecksum};
use crate::s3::conditions::Conditions;
use crate::s3::copies::{self, CopyOutcome};
use crate::s3::errors::read_state;
use crate::s3::listing::{PAGE_LEN_MAX, count, page_len, size};
use crate::s3::locks::Locks;
use crate::s3::names::ObjectPlace;
use crate::s3::note::{Headers, Note};
use crate::s3::object_info::{ObjectInfo, Part};
use crate::s3::objects::{self, RemovalRequest, check_target};
use crate::s3::tags::Tags;
use crate::s3::times::{http_date, timestamp};
use crate::s3::versions::{Removal, VersionId};
use s3s::dto::{self, CopySource, ETag, MetadataDirective, TaggingDirective};
use s3s::{S3Result, s3_error};

/// Properties of an object from its bytes and note, for different reply types.
macro_rules! found {
    ($Output:ident, $known:ident, $part:ident, $bytes:ident, $input:ident) => {{
        let note = &$known.note;
        let headers = note.headers.clone();
        let is_wanted =
            $input.checksum_mode.as_ref().is_some_and(|mode| mode.as_str() == "ENABLED");
        let checksum = match $part {
            Part::Whole if is_wanted => note.checksum.clone(),
            Part::Number(number) => usize::try_from(number - 1)
                .ok()
                .and_then(|index| note.part_checksum(index))
                .or_else(|| note.checksum.clone().filter(|_| $known.object.pieces().len() == 1)),
            _ => None,
        };
        let kind = checksum.as_ref().and(note.checksum.as_ref()).map(StoredChecksum::kind);
        let checksum = checksum.as_ref();
        dto::$Output {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(size($bytes.end - $bytes.start)),
            content_range: content_range(&$part, &$bytes, $known.object.len()),
            parts_count: parts_count(&$part, &$known),
            e_tag: Some(note.etag()),
            last_modified: Some(note.modified()),
            metadata: Some(note.metadata()),
            content_type: Some(note.content_type()),
            content_encoding: headers.content_encoding,
            content_disposition: headers.content_disposition,
            content_language: headers.content_language,
            cache_control: headers.cache_control,
            expires: note.expires(),
            version_id: note.known_version(),
            object_lock_mode: note
                .locks
                .retention
                .map(|retention| dto::ObjectLockMode::from_static(retention.mode.word())),
            object_lock_retain_until_date: note
                .locks
                .retention
                .map(|retention| timestamp(retention.until)),
            object_lock_legal_hold_status: note.locks.hold_status(),
            checksum_type: kind,
            ..with_checksum!(checksum.map(StoredChecksum::field).unwrap_or_default(), $Output)
        }
    }};
}

impl Handlers {
    pub(super) async fn object(
        &self,
        input: dto::GetObjectInput,
    ) -> S3Result<dto::GetObjectOutput> {
        let version = VersionId::parse(input.version_id.as_deref())?;
        let conditions = read_conditions!(input);
        let place = ObjectPlace::new(&input.bucket[..], &input.key[..]);
        let known = self.found(&place, version.as_ref(), &conditions)?;
        let part = part_of(input.range, input.part_number)?;
        let bytes = known.bytes(&part)?;
        let body = objects::get(self.front.clone(), &known, &part).await?;
        let output = found!(GetObjectOutput, known, part, bytes, input);
        let expiration = version.is_none().then(|| self.expiration_of(&place)).flatten();
        Ok(dto::GetObjectOutput {
            expiration,
            tag_count: known.note.tags.count(),
            body: Some(body),
            content_type: input.response_content_type.or(output.content_type),
            content_encoding: input.response_content_encoding.or(output.content_encoding),
            content_disposition: input.response_content_disposition.or(output.content_disposition),
            content_language: input.response_content_language.or(output.content_language),
            cache_control: input.response_cache_control.or(output.cache_control),
            expires: input.response_expires.or(output.expires),
            ..output
        })
    }

    /// What is known of an object, and how many tags it has, if any.
    pub(super) fn head(
        &self,
        input: dto::HeadObjectInput,
    ) -> S3Result<(dto::HeadObjectOutput, Option<i32>)> {
        let version = VersionId::parse(input.version_id.as_deref())?;
        let conditions = read_conditions!(input);
        let place = ObjectPlace::new(&input.bucket[..], &input.key[..]);
        let known = self.found(&place, version.as_ref(), &conditions)?;
        let part = part_of(input.range, input.part_number)?;
        let bytes = known.bytes(&part)?;
        let expiration = version.is_none().then(|| self.expiration_of(&place)).flatten();
        let output = found!(HeadObjectOutput, known, part, bytes, input);
        Ok((dto::HeadObjectOutput { expiration, ..output }, known.note.tags.count()))
    }

    pub(super) async fn put(
        &self,
        input: dto::PutObjectInput,
        trailers: Trailers,
    ) -> S3Result<dto::PutObjectOutput> {
        check_rights!(input)?;
        let headers = headers!(input);
        let tags = Tags::of_header(input.tagging.as_deref())?;
        let target = self.target(&input.bucket, &input.key, write_conditions!(input));
        let locks = locks!(input, target.stamp.now);
        let note = Note::new(headers, input.metadata)?.tagged(tags).locked(locks);
        let announced = announced!(input, trailers);
        let place = target.place.clone();
        let put = objects::put(self.front.clone(), target, note, input.body, announced).await?;
        let (version_id, expiration) = (put.version, self.expiration_of(&place));
        Ok(dto::PutObjectOutput { version_id, expiration, ..written!(put, PutObjectOutput) })
    }

    pub(super) async fn delete(
        &self,
        input: dto::DeleteObjectInput,
    ) -> S3Result<dto::DeleteObjectOutput> {
        let conditions = Conditions { matches: input.if_match, ..Conditions::default() };
        let request = RemovalRequest {
            target: self.target(&input.bucket, &input.key, conditions),
            version: VersionId::parse(input.version_id.as_deref())?,
            bypass: input.bypass_governance_retention == Some(true),
        };
        let removal = objects::delete(self.front.clone(), request).await?;
        Ok(dto::DeleteObjectOutput {
            delete_marker: removal.is_marker.then_some(true),
            version_id: removal.version,
            ..dto::DeleteObjectOutput::default()
        })
    }

    pub(super) async fn delete_all(
        &self,
        input: dto::DeleteObjectsInput,
    ) -> S3Result<dto::DeleteObjectsOutput> {
        if input.delete.objects.len() > PAGE_LEN_MAX {
            return Err(s3_error!(MalformedXML, "1000 objects is the most"));
        }
        read_state(&self.front, |gateway| check_bucket(gateway, &input.bucket))?;
        let bypass = input.bypass_governance_retention == Some(true);
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for one in input.delete.objects {
            let dto::ObjectIdentifier { key, version_id, .. } = one.clone();
            match self.delete_one(&input.bucket, one, bypass).await {
                Ok(removal) => {
                    let marker = removal.version.filter(|_| removal.is_marker);
                    deleted.push(dto::DeletedObject {
                        key: Some(key),
                        delete_marker: marker.is_some().then_some(true),
                        delete_marker_version_id: marker,
                        version_id,
                    });
                }
                Err(error) => errors.push(dto::Error {
                    key: Some(key),
                    version_id,
                    code: Some(error.code().as_str().to_owned()),
                    message: error.message().map(str::to_owned),
                }),
            }
        }
        let quiet = input.delete.quiet == Some(true);
        Ok(dto::DeleteObjectsOutput {
            deleted: (!quiet).then_some(deleted),
            errors: Some(errors).filter(|errors| !errors.is_empty()),
            ..dto::DeleteObjectsOutput::default()
        })
    }

    /// Removes one of several objects or versions.
    async fn delete_one(
        &self,
        bucket: &str,
        one: dto::ObjectIdentifier,
        bypass: bool,
    ) -> S3Result<Removal> {
        let matches = one.e_tag.map(dto::ETagCondition::ETag);
        let request = RemovalRequest {
            target: self.target(bucket, &one.key, Conditions { matches, ..Conditions::default() }),
            version: VersionId::parse(one.version_id.as_deref())?,
            bypass,
        };
        objects::delete(self.front.clone(), request).await
    }

    pub(super) async fn copy(
        &self,
        input: dto::CopyObjectInput,
    ) -> S3Result<dto::CopyObjectOutput> {
        check_rights!(input)?;
        let conditions = copy_conditions!(input);
        let source = self.source(&input.copy_source, &conditions)?;
        let replaces = input
            .metadata_directive
            .is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        let onto_itself = match &input.copy_source {
            CopySource::Bucket { bucket, key, version_id: None } => {
                **bucket == *input.bucket && **key == *input.key
            }
            _ => false,
        };
        let replaces_tags = input
            .tagging_directive
            .is_some_and(|directive| directive.as_str() == TaggingDirective::REPLACE);
        if onto_itself && !replaces && !replaces_tags {
            return Err(s3_error!(InvalidRequest, "a copy onto itself must replace its metadata"));
        }
        let tags = if replaces_tags {
            Tags::of_header(input.tagging.as_deref())?
        } else {
            source.note.tags.clone()
        };
        let headers = headers!(input);
        let target = self.target(&input.bucket, &input.key, Conditions::default());
        let locks = locks!(input, target.stamp.now);
        let note = if replaces {
            Note::new(headers, input.metadata)?
        } else {
            source.note.clone().of_copy()
        };
        let note = Box::new(note.tagged(tags).locked(locks));
        read_state(&self.front, |gateway| check_target(gateway, &target, &note).map(drop))?;
        let target = CopyOutcome::Object { target: Box::new(target), note };
        let source_version = source.note.known_version();
        let algorithm = input.checksum_algorithm.as_ref();
        let algorithm = algorithm.map(|one| Algorithm::parse(one.as_str())).transpose()?;
        let copied =
            copies::copy(self.front.clone(), source, Part::Whole, target, algorithm).await?;
        Ok(dto::CopyObjectOutput {
            copy_object_result: Some(dto::CopyObjectResult {
                e_tag: Some(ETag::Strong(copied.etag)),
                last_modified: Some(copied.modified),
                ..with_checksum!(copied.checksum, CopyObjectResult)
            }),
            copy_source_version_id: source_version,
            version_id: copied.version,
            ..dto::CopyObjectOutput::default()
        })
    }
}

impl Handlers {
    /// Properties of an object that a request names, without its bytes.
    pub(super) fn attributes(
        &self,
        input: &dto::GetObjectAttributesInput,
    ) -> S3Result<dto::GetObjectAttributesOutput> {
        let version = VersionId::parse(input.version_id.as_deref())?;
        let place = ObjectPlace::new(&input.bucket[..], &input.key[..]);
        let known = self.found(&place, version.as_ref(), &Conditions::default())?;
        // Some clients send one header with all names.
        let names = || input.object_attributes.iter().flat_map(|one| one.as_str().split(','));
        let wants = |name| names().any(|one| one.trim() == name);
        let note = &known.note;
        let pieces = known.object.pieces();
        let is_upload = note.etag.contains('-');
        let parts = (is_upload && wants(dto::ObjectAttributes::OBJECT_PARTS))
            .then(|| part_list(note, pieces, input.part_number_marker, input.max_parts))
            .transpose()?;
        let checksum = note.checksum.as_ref().filter(|_| wants(dto::ObjectAttributes::CHECKSUM));
        Ok(dto::GetObjectAttributesOutput {
            checksum: checksum.map(StoredChecksum::field),
            e_tag: wants(dto::ObjectAttributes::ETAG).then(|| note.etag()),
            last_modified: Some(note.modified()),
            object_parts: parts,
            object_size: wants(dto::ObjectAttributes::OBJECT_SIZE)
                .then(|| size(known.object.len())),
            storage_class: wants(dto::ObjectAttributes::STORAGE_CLASS)
                .then(|| dto::StorageClass::from_static(dto::StorageClass::STANDARD)),
            version_id: note.known_version(),
            ..dto::GetObjectAttributesOutput::default()
        })
    }
}

/// Numbers, lengths and checksums of the parts of an upload, after one of them.
fn part_list(
    note: &Note,
    pieces: &[u64],
    after: Option<i32>,
    most: Option<i32>,
) -> S3Result<dto::GetObjectAttributesParts> {
    let most = page_len(most)?;
    let skipped =
        usize::try_from(after.unwrap_or_default()).map_err(|_| s3_error!(InvalidArgument))?;
    let rest = pieces.iter().enumerate().skip(skipped);
    let parts: Vec<_> = rest
        .take(most)
        .map(|(index, len)| {
            let checksum = note.part_checksum(index);
            dto::ObjectPart {
                part_number: Some(count(index + 1)),
                size: Some(size(*len)),
                ..with_checksum!(
                    checksum.as_ref().map(StoredChecksum::field).unwrap_or_default(),
                    ObjectPart
                )
            }
        })
        .collect();
    Ok(dto::GetObjectAttributesParts {
        is_truncated: Some(skipped + parts.len() < pieces.len()),
        max_parts: Some(count(most)),
        next_part_number_marker: parts.last().and_then(|part| part.part_number),
        part_number_marker: Some(count(skipped)),
        parts: Some(parts),
        total_parts_count: Some(count(pieces.len())),
    })
}

fn part_of(range: Option<dto::Range>, number: Option<i32>) -> S3Result<Part> {
    match (range, number) {
        (None, None) => Ok(Part::Whole),
        (Some(range), None) => Ok(Part::Range(range)),
        (None, Some(number)) => Ok(Part::Number(number)),
        (Some(_), Some(_)) => Err(s3_error!(InvalidRequest, "a range, or a part, but not both")),
    }
}

fn content_range(part: &Part, bytes: &core::ops::Range<u64>, len: u64) -> Option<String> {
    let is_part = !matches!(part, Part::Whole) && !bytes.is_empty();
    is_part.then(|| format!("bytes {}-{}/{len}", bytes.start, bytes.end - 1))
}

fn parts_count(part: &Part, known: &ObjectInfo) -> Option<i32> {
    matches!(part, Part::Number(_)).then(|| count(known.object.pieces().len()))
}
