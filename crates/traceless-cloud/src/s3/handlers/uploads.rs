//! Requests for multipart uploads.

use super::Handlers;
use super::inputs::{
    announced, copy_conditions, headers, length, locks, own_encoding, write_conditions, written,
};
use crate::s3::bodies::{BodyClaims, Trailers};
use crate::s3::conditions::Conditions;
use crate::s3::copies::{self, CopyOutcome};
use crate::s3::errors::read_state;
use crate::s3::listing::escape;
use crate::s3::locks::Locks;
use crate::s3::names::Place;
use crate::s3::note::{Headers, Note};
use crate::s3::object_info::Part;
use crate::s3::tags::Tags;
use crate::s3::times::http_date;
use crate::s3::uploads;
use s3s::dto::{self, ETag};
use s3s::{S3Result, s3_error};
use std::sync::PoisonError;

impl Handlers {
    pub(super) fn begin(
        &self,
        input: dto::CreateMultipartUploadInput,
    ) -> S3Result<dto::CreateMultipartUploadOutput> {
        let headers = headers!(input);
        let tags = Tags::of_header(input.tagging.as_deref())?;
        let locks = locks!(input, self.front.now_ms());
        let note = Note::new(headers, input.metadata)?.tagged(tags).locked(locks);
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Place::new(&input.bucket[..], &input.key[..]);
        let id = uploads::begin(&self.front, place, note, &mut *rng)?;
        Ok(dto::CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..dto::CreateMultipartUploadOutput::default()
        })
    }

    pub(super) async fn put_part(
        &self,
        input: dto::UploadPartInput,
        trailers: Trailers,
    ) -> S3Result<dto::UploadPartOutput> {
        let name =
            self.part_name(&input.bucket, &input.key, &input.upload_id, input.part_number)?;
        let announced = announced!(input, trailers);
        let put = uploads::put_part(self.front.clone(), name, input.body, announced).await?;
        Ok(written!(put, UploadPartOutput))
    }

    pub(super) async fn copy_part(
        &self,
        input: dto::UploadPartCopyInput,
    ) -> S3Result<dto::UploadPartCopyOutput> {
        let name =
            self.part_name(&input.bucket, &input.key, &input.upload_id, input.part_number)?;
        let conditions = copy_conditions!(input);
        let source = self.source(&input.copy_source, &conditions)?;
        let range = input.copy_source_range.as_deref().map(dto::Range::parse).transpose();
        let range = range.map_err(|_| s3_error!(InvalidArgument))?;
        let part = range.map_or(Part::Whole, Part::Range);
        let target = CopyOutcome::Part { name };
        let source_version = source.note.version.is_some().then(|| source.note.version_id());
        let copied = copies::copy(self.front.clone(), source, part, target).await?;
        Ok(dto::UploadPartCopyOutput {
            copy_part_result: Some(dto::CopyPartResult {
                e_tag: Some(ETag::Strong(copied.etag)),
                last_modified: Some(copied.modified),
                ..dto::CopyPartResult::default()
            }),
            copy_source_version_id: source_version,
            ..dto::UploadPartCopyOutput::default()
        })
    }

    fn part_name(&self, bucket: &str, key: &str, id: &str, number: i32) -> S3Result<Vec<u8>> {
        let place = Place::new(bucket, key);
        read_state(&self.front, |gateway| uploads::find(gateway, &place, id))?;
        uploads::part_name(id, number)
    }

    pub(super) fn complete(
        &self,
        input: dto::CompleteMultipartUploadInput,
    ) -> S3Result<dto::CompleteMultipartUploadOutput> {
        let parts = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let conditions = write_conditions!(input);
        let target = self.target(&input.bucket, &input.key, conditions);
        let (etag, version) = uploads::complete(&self.front, &target, &input.upload_id, &parts)?;
        Ok(dto::CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, escape(&input.key, true))),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(etag)),
            version_id: version,
            ..dto::CompleteMultipartUploadOutput::default()
        })
    }
}
