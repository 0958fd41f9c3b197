//! Requests for multipart uploads.

use super::Handlers;
use super::inputs::{
    announced, copy_conditions, headers, length, own_encoding, write_conditions, written,
};
use crate::s3::bodies::{BodyClaims, Trailers};
use crate::s3::conditions::Conditions;
use crate::s3::copies::{self, CopyOutcome};
use crate::s3::errors::read_state;
use crate::s3::listing::escape;
use crate::s3::note::{Headers, Note, http_date};
use crate::s3::objects::Part;
use crate::s3::tags::Tags;
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
        let note = Note::new(headers, input.metadata)?.tagged(tags);
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (input.bucket.clone(), input.key.clone());
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
        let (etag, modified) = copies::copy(self.front.clone(), source, part, target).await?;
        Ok(dto::UploadPartCopyOutput {
            copy_part_result: Some(dto::CopyPartResult {
                e_tag: Some(ETag::Strong(etag)),
                last_modified: Some(modified),
                ..dto::CopyPartResult::default()
            }),
            ..dto::UploadPartCopyOutput::default()
        })
    }

    fn part_name(&self, bucket: &str, key: &str, id: &str, number: i32) -> S3Result<Vec<u8>> {
        read_state(&self.front, |gateway| uploads::find(gateway, bucket, key, id))?;
        uploads::part_name(id, number)
    }

    pub(super) fn complete(
        &self,
        input: dto::CompleteMultipartUploadInput,
    ) -> S3Result<dto::CompleteMultipartUploadOutput> {
        let parts = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let conditions = write_conditions!(input);
        let place = (&input.bucket[..], &input.key[..]);
        let etag = uploads::complete(&self.front, place, &input.upload_id, &parts, &conditions)?;
        Ok(dto::CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, escape(&input.key, true))),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(etag)),
            ..dto::CompleteMultipartUploadOutput::default()
        })
    }
}
