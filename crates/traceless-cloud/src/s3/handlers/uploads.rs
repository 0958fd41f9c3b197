//! Requests for multipart uploads.

use super::Handlers;
use super::inputs::{
    announced, check_acl, check_rights, checksum, copy_conditions, headers, length, locks,
    own_encoding, with_checksum, write_conditions, written,
};
use crate::s3::bodies::{BodyClaims, Trailers};
use crate::s3::checksums::{StoredChecksum, UploadChecksum};
use crate::s3::conditions::Conditions;
use crate::s3::copies::{self, CopyOutcome};
use crate::s3::errors::read_state;
use crate::s3::listing::escape;
use crate::s3::locks::Locks;
use crate::s3::names::ObjectPlace;
use crate::s3::note::{Headers, Note};
use crate::s3::object_info::Part;
use crate::s3::tags::Tags;
use crate::s3::times::http_date;
use crate::s3::uploads::{self, UploadClaims};
use s3s::dto::{self, ETag};
use s3s::{S3Result, s3_error};
use std::sync::PoisonError;

impl Handlers {
    pub(super) fn begin(
        &self,
        input: dto::CreateMultipartUploadInput,
    ) -> S3Result<dto::CreateMultipartUploadOutput> {
        check_rights!(input)?;
        let headers = headers!(input);
        let tags = Tags::of_header(input.tagging.as_deref())?;
        let locks = locks!(input, self.front.now_ms());
        let checksum = UploadChecksum::of_request(
            input.checksum_algorithm.as_ref().map(dto::ChecksumAlgorithm::as_str),
            input.checksum_type.as_ref().map(dto::ChecksumType::as_str),
        )?;
        let mut note = Note::new(headers, input.metadata)?.tagged(tags).locked(locks);
        note.upload_checksum = checksum;
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let place = ObjectPlace::new(&input.bucket[..], &input.key[..]);
        let id = uploads::begin(&self.front, place, note, &mut *rng)?;
        Ok(dto::CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: checksum.map(checksum_type),
            ..dto::CreateMultipartUploadOutput::default()
        })
    }

    pub(super) async fn put_part(
        &self,
        input: dto::UploadPartInput,
        trailers: Trailers,
    ) -> S3Result<dto::UploadPartOutput> {
        let (name, checksum) =
            self.part(&input.bucket, &input.key, &input.upload_id, input.part_number)?;
        let mut announced = announced!(input, trailers);
        announced.kept = Some(checksum.algorithm);
        let put = uploads::put_part(self.front.clone(), name, input.body, announced).await?;
        Ok(written!(put, UploadPartOutput))
    }

    pub(super) async fn copy_part(
        &self,
        input: dto::UploadPartCopyInput,
    ) -> S3Result<dto::UploadPartCopyOutput> {
        let (name, checksum) =
            self.part(&input.bucket, &input.key, &input.upload_id, input.part_number)?;
        let conditions = copy_conditions!(input);
        let source = self.source(&input.copy_source, &conditions)?;
        let range = input.copy_source_range.as_deref().map(dto::Range::parse).transpose();
        let range = range.map_err(|_| s3_error!(InvalidArgument))?;
        if let Some(dto::Range::Int { last: Some(last), .. }) = range
            && last >= source.object.len()
        {
            return Err(s3_error!(InvalidRange, "the range ends behind the object"));
        }
        let part = range.map_or(Part::Whole, Part::Range);
        let target = CopyOutcome::Part { name };
        let (source_version, algorithm) = (source.note.known_version(), Some(checksum.algorithm));
        let copied = copies::copy(self.front.clone(), source, part, target, algorithm).await?;
        Ok(dto::UploadPartCopyOutput {
            copy_part_result: Some(dto::CopyPartResult {
                e_tag: Some(ETag::Strong(copied.etag)),
                last_modified: Some(copied.modified),
                ..with_checksum!(copied.checksum, CopyPartResult)
            }),
            copy_source_version_id: source_version,
            ..dto::UploadPartCopyOutput::default()
        })
    }

    /// The name of a part, and the checksum of its upload.
    fn part(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        number: i32,
    ) -> S3Result<(Vec<u8>, UploadChecksum)> {
        let place = ObjectPlace::new(bucket, key);
        let upload = read_state(&self.front, |gateway| uploads::find(gateway, &place, id))?;
        Ok((uploads::part_name(id, number)?, upload.checksum()))
    }

    pub(super) fn complete(
        &self,
        input: dto::CompleteMultipartUploadInput,
    ) -> S3Result<dto::CompleteMultipartUploadOutput> {
        let parts = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let conditions = write_conditions!(input);
        let target = self.target(&input.bucket, &input.key, conditions);
        let claims = UploadClaims { parts, checksum: checksum!(input) };
        let note = uploads::complete(&self.front, &target, &input.upload_id, &claims)?;
        let checksum = note.checksum.as_ref();
        Ok(dto::CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, escape(&input.key, true))),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(note.etag()),
            version_id: note.new_version(),
            checksum_type: checksum.map(StoredChecksum::kind),
            ..with_checksum!(
                checksum.map(StoredChecksum::field).unwrap_or_default(),
                CompleteMultipartUploadOutput
            )
        })
    }
}

fn checksum_type(checksum: UploadChecksum) -> dto::ChecksumType {
    dto::ChecksumType::from_static(if checksum.is_composite {
        dto::ChecksumType::COMPOSITE
    } else {
        dto::ChecksumType::FULL_OBJECT
    })
}
