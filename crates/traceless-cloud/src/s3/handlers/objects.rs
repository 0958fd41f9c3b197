//! Requests for one object, or for several by name.

use super::Handlers;
use super::inputs::{
    announced, copy_conditions, headers, length, own_encoding, read_conditions, write_conditions,
    written,
};
use crate::s3::bodies::{BodyClaims, Trailers};
use crate::s3::conditions::Conditions;
use crate::s3::copies::{self, CopyOutcome};
use crate::s3::errors::read_state;
use crate::s3::listing::{PAGE_LEN_MAX, count, size};
use crate::s3::note::{Headers, Note, http_date};
use crate::s3::objects::{self, ObjectInfo, Part};
use crate::s3::tags::Tags;
use crate::s3::versions::check_version;
use s3s::dto::{self, CopySource, ETag, MetadataDirective, TaggingDirective};
use s3s::{S3Result, s3_error};

/// Properties of an object from its bytes and note, for different reply types.
macro_rules! found {
    ($Output:ident, $known:ident, $part:ident, $bytes:ident) => {{
        let note = &$known.note;
        let headers = note.headers.clone();
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
            ..dto::$Output::default()
        }
    }};
}

impl Handlers {
    pub(super) async fn object(
        &self,
        input: dto::GetObjectInput,
    ) -> S3Result<dto::GetObjectOutput> {
        check_version(input.version_id.as_deref())?;
        let conditions = read_conditions!(input);
        let known = self.found(&input.bucket, &input.key, &conditions)?;
        let part = part_of(input.range, input.part_number)?;
        let bytes = known.bytes(&part)?;
        let body = objects::get(self.front.clone(), &known, &part).await?;
        let output = found!(GetObjectOutput, known, part, bytes);
        Ok(dto::GetObjectOutput {
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
        check_version(input.version_id.as_deref())?;
        let conditions = read_conditions!(input);
        let known = self.found(&input.bucket, &input.key, &conditions)?;
        let part = part_of(input.range, input.part_number)?;
        let bytes = known.bytes(&part)?;
        Ok((found!(HeadObjectOutput, known, part, bytes), known.note.tags.count()))
    }

    pub(super) async fn put(
        &self,
        input: dto::PutObjectInput,
        trailers: Trailers,
    ) -> S3Result<dto::PutObjectOutput> {
        let headers = headers!(input);
        let tags = Tags::of_header(input.tagging.as_deref())?;
        let note = Note::new(headers, input.metadata)?.tagged(tags);
        let announced = announced!(input, trailers);
        let conditions = write_conditions!(input);
        let place = (input.bucket, input.key);
        let put = objects::put(self.front.clone(), place, note, input.body, announced, conditions)
            .await?;
        Ok(written!(put, PutObjectOutput))
    }

    pub(super) async fn delete(
        &self,
        input: dto::DeleteObjectInput,
    ) -> S3Result<dto::DeleteObjectOutput> {
        check_version(input.version_id.as_deref())?;
        let conditions = Conditions { matches: input.if_match, ..Conditions::default() };
        objects::delete(self.front.clone(), (input.bucket, input.key), conditions).await?;
        Ok(dto::DeleteObjectOutput::default())
    }

    pub(super) async fn delete_all(
        &self,
        input: dto::DeleteObjectsInput,
    ) -> S3Result<dto::DeleteObjectsOutput> {
        if input.delete.objects.len() > PAGE_LEN_MAX {
            return Err(s3_error!(MalformedXML, "1000 objects is the most"));
        }
        read_state(&self.front, |gateway| objects::check_bucket(gateway, &input.bucket))?;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for one in input.delete.objects {
            let place = (input.bucket.clone(), one.key.clone());
            let conditions = Conditions {
                matches: one.e_tag.map(dto::ETagCondition::ETag),
                ..Conditions::default()
            };
            let removed = match check_version(one.version_id.as_deref()) {
                Ok(()) => objects::delete(self.front.clone(), place, conditions).await,
                wrong => wrong,
            };
            match removed {
                Ok(()) => deleted.push(dto::DeletedObject {
                    key: Some(one.key),
                    version_id: one.version_id,
                    ..dto::DeletedObject::default()
                }),
                Err(error) => errors.push(dto::Error {
                    key: Some(one.key),
                    version_id: one.version_id,
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

    pub(super) async fn copy(
        &self,
        input: dto::CopyObjectInput,
    ) -> S3Result<dto::CopyObjectOutput> {
        let conditions = copy_conditions!(input);
        let source = self.source(&input.copy_source, &conditions)?;
        let replaces = input
            .metadata_directive
            .is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        let onto_itself = matches!(&input.copy_source, CopySource::Bucket { bucket, key, .. }
            if **bucket == *input.bucket && **key == *input.key);
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
        let note = if replaces {
            Note::new(headers, input.metadata)?.tagged(tags)
        } else {
            source.note.clone().tagged(tags)
        };
        let target =
            CopyOutcome::Object { bucket: input.bucket, key: input.key, note: Box::new(note) };
        let (etag, modified) =
            copies::copy(self.front.clone(), source, Part::Whole, target).await?;
        Ok(dto::CopyObjectOutput {
            copy_object_result: Some(dto::CopyObjectResult {
                e_tag: Some(ETag::Strong(etag)),
                last_modified: Some(modified),
                ..dto::CopyObjectResult::default()
            }),
            ..dto::CopyObjectOutput::default()
        })
    }
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
