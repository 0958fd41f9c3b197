//! Requests that list objects, uploads and parts.

use super::Handlers;
use super::inputs::owner;
use crate::codec::hex;
use crate::s3::buckets::{BucketRequest, buckets, check_bucket};
use crate::s3::checksums::StoredChecksum;
use crate::s3::errors::read_state;
use crate::s3::listing::{ListRequest, Page, count, escape, is_escaped, page, page_len, size};
use crate::s3::names::ObjectPlace;
use crate::s3::uploads;
use crate::s3::version_listing::{ListedVersion, version_page};
use crate::s3::versions::VersionId;
use s3s::dto;
use s3s::{S3Result, s3_error};

impl Handlers {
    pub(super) fn buckets(
        &self,
        input: &dto::ListBucketsInput,
        id: &str,
    ) -> S3Result<dto::ListBucketsOutput> {
        let after = input.continuation_token.as_deref().map(read_token).transpose()?;
        let len = input.max_buckets.map_or(Ok(usize::MAX), usize::try_from);
        let request = BucketRequest {
            id,
            prefix: input.prefix.as_deref().unwrap_or_default(),
            after: after.as_deref().unwrap_or_default(),
            len: len.map_err(|_| s3_error!(InvalidArgument))?,
        };
        let (found, next) = buckets(&self.front, &self.keys, &request)?;
        Ok(dto::ListBucketsOutput {
            buckets: Some(found),
            continuation_token: next.as_deref().map(write_token),
            owner: Some(owner(id)),
            prefix: input.prefix.clone(),
        })
    }

    /// The next page of a list: names under a prefix, grouped by a delimiter, after one of them.
    fn page(
        &self,
        bucket: &str,
        names: [Option<&str>; 3],
        len: usize,
        escaped: bool,
    ) -> S3Result<Page> {
        let [prefix, delimiter, after] = names.map(Option::unwrap_or_default);
        read_state(&self.front, |gateway| {
            check_bucket(gateway, bucket)?;
            page(gateway, &ListRequest { bucket, prefix, delimiter, after, len, escaped })
        })
    }

    pub(super) fn list(
        &self,
        input: dto::ListObjectsInput,
        owner: &dto::Owner,
    ) -> S3Result<dto::ListObjectsOutput> {
        let len = page_len(input.max_keys)?;
        let escaped = is_escaped(input.encoding_type.as_ref());
        let names = [input.prefix.as_deref(), input.delimiter.as_deref(), input.marker.as_deref()];
        let page = self.page(&input.bucket, names, len, escaped)?;
        let escaped_text = |text: Option<String>| text.map(|text| escape(&text, escaped));
        Ok(dto::ListObjectsOutput {
            is_truncated: Some(page.next.is_some()),
            next_marker: escaped_text(page.next),
            contents: Some(owned(page.objects, owner)),
            common_prefixes: Some(page.prefixes),
            name: Some(input.bucket),
            prefix: escaped_text(Some(input.prefix.unwrap_or_default())),
            marker: escaped_text(Some(input.marker.unwrap_or_default())),
            delimiter: escaped_text(input.delimiter.filter(|delimiter| !delimiter.is_empty())),
            max_keys: Some(count(len)),
            encoding_type: input.encoding_type,
            ..dto::ListObjectsOutput::default()
        })
    }

    pub(super) fn list_v2(
        &self,
        input: dto::ListObjectsV2Input,
        owner: &dto::Owner,
    ) -> S3Result<dto::ListObjectsV2Output> {
        let len = page_len(input.max_keys)?;
        let escaped = is_escaped(input.encoding_type.as_ref());
        let token = input.continuation_token.as_deref().map(read_token).transpose()?;
        let after = token.as_deref().or(input.start_after.as_deref());
        let names = [input.prefix.as_deref(), input.delimiter.as_deref(), after];
        let page = self.page(&input.bucket, names, len, escaped)?;
        let escaped_text = |text: Option<String>| text.map(|text| escape(&text, escaped));
        let objects = match input.fetch_owner {
            Some(true) => owned(page.objects, owner),
            _ => page.objects,
        };
        Ok(dto::ListObjectsV2Output {
            is_truncated: Some(page.next.is_some()),
            key_count: Some(count(objects.len() + page.prefixes.len())),
            next_continuation_token: page.next.as_deref().map(write_token),
            contents: Some(objects),
            common_prefixes: Some(page.prefixes),
            name: Some(input.bucket),
            prefix: escaped_text(Some(input.prefix.unwrap_or_default())),
            start_after: escaped_text(input.start_after),
            delimiter: escaped_text(input.delimiter.filter(|delimiter| !delimiter.is_empty())),
            max_keys: Some(count(len)),
            continuation_token: input.continuation_token,
            encoding_type: input.encoding_type,
            ..dto::ListObjectsV2Output::default()
        })
    }

    pub(super) fn versions(
        &self,
        input: dto::ListObjectVersionsInput,
        owner: &dto::Owner,
    ) -> S3Result<dto::ListObjectVersionsOutput> {
        let len = page_len(input.max_keys)?;
        let escaped = is_escaped(input.encoding_type.as_ref());
        let [prefix, delimiter, after] =
            [&input.prefix, &input.delimiter, &input.key_marker].map(|text| text.as_deref());
        let [prefix, delimiter, after] = [prefix, delimiter, after].map(Option::unwrap_or_default);
        let marker = input.version_id_marker.as_deref().filter(|marker| !marker.is_empty());
        if marker.is_some() && after.is_empty() {
            return Err(s3_error!(InvalidArgument, "a version to begin after needs its key"));
        }
        let marker = VersionId::parse(marker)?;
        let bucket = &input.bucket[..];
        let page = read_state(&self.front, |gateway| {
            check_bucket(gateway, bucket)?;
            let request = ListRequest { bucket, prefix, delimiter, after, len, escaped };
            version_page(gateway, &request, marker.as_ref())
        })?;
        let (markers, versions): (Vec<_>, Vec<_>) =
            page.versions.into_iter().partition(|version| version.known.note.is_marker);
        let escaped_text = |text: Option<String>| text.map(|text| escape(&text, escaped));
        let (next_key, next_version) = page.next.unzip();
        Ok(dto::ListObjectVersionsOutput {
            is_truncated: Some(next_key.is_some()),
            next_version_id_marker: next_version.filter(|version| !version.is_empty()),
            next_key_marker: escaped_text(next_key),
            versions: Some(versions.into_iter().map(|one| object_version(one, owner)).collect()),
            delete_markers: Some(markers.into_iter().map(|one| marker_entry(one, owner)).collect()),
            common_prefixes: Some(page.prefixes),
            name: Some(input.bucket),
            prefix: escaped_text(Some(input.prefix.unwrap_or_default())),
            key_marker: escaped_text(Some(input.key_marker.unwrap_or_default())),
            version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
            delimiter: escaped_text(input.delimiter.filter(|delimiter| !delimiter.is_empty())),
            max_keys: Some(count(len)),
            encoding_type: input.encoding_type,
            ..dto::ListObjectVersionsOutput::default()
        })
    }

    pub(super) fn parts(&self, input: dto::ListPartsInput) -> S3Result<dto::ListPartsOutput> {
        let len = page_len(input.max_parts)?;
        let after = input.part_number_marker.unwrap_or_default();
        let mut parts = read_state(&self.front, |gateway| {
            let place = ObjectPlace::new(&input.bucket[..], &input.key[..]);
            let upload = uploads::find(gateway, &place, &input.upload_id)?;
            uploads::parts(gateway, &upload.id, after, len + 1)
        })?;
        let is_cut = parts.len() > len;
        parts.truncate(len);
        Ok(dto::ListPartsOutput {
            next_part_number_marker: parts.last().and_then(|part| part.part_number),
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            parts: Some(parts),
            is_truncated: Some(is_cut),
            max_parts: Some(count(len)),
            part_number_marker: Some(after),
            ..dto::ListPartsOutput::default()
        })
    }

    pub(super) fn uploads(
        &self,
        input: dto::ListMultipartUploadsInput,
    ) -> S3Result<dto::ListMultipartUploadsOutput> {
        let len = page_len(input.max_uploads)?;
        let escaped = is_escaped(input.encoding_type.as_ref());
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let after = (
            input.key_marker.as_deref().unwrap_or_default(),
            input.upload_id_marker.as_deref().unwrap_or_default(),
        );
        let (mut uploads, is_cut) = read_state(&self.front, |gateway| {
            uploads::uploads(gateway, &input.bucket, prefix, after, len)
        })?;
        for upload in &mut uploads {
            upload.key = upload.key.take().map(|key| escape(&key, escaped));
        }
        let last = uploads.last().filter(|_| is_cut);
        Ok(dto::ListMultipartUploadsOutput {
            next_key_marker: last.and_then(|last| last.key.clone()),
            next_upload_id_marker: last.and_then(|last| last.upload_id.clone()),
            bucket: Some(input.bucket),
            prefix: input.prefix.map(|prefix| escape(&prefix, escaped)),
            uploads: Some(uploads),
            is_truncated: Some(is_cut),
            max_uploads: Some(count(len)),
            encoding_type: input.encoding_type,
            ..dto::ListMultipartUploadsOutput::default()
        })
    }
}

/// Listed objects with their owner.
fn owned(objects: Vec<dto::Object>, owner: &dto::Owner) -> Vec<dto::Object> {
    let with_owner = |object| dto::Object { owner: Some(owner.clone()), ..object };
    objects.into_iter().map(with_owner).collect()
}

fn object_version(listed: ListedVersion, owner: &dto::Owner) -> dto::ObjectVersion {
    let ListedVersion { key, known, is_latest } = listed;
    dto::ObjectVersion {
        version_id: Some(known.note.version_id()),
        is_latest: Some(is_latest),
        key: Some(key),
        checksum_algorithm: known.note.checksum.as_ref().map(|one| vec![one.algorithm()]),
        checksum_type: known.note.checksum.as_ref().map(StoredChecksum::kind),
        e_tag: Some(known.note.etag()),
        last_modified: Some(known.note.modified()),
        size: Some(size(known.object.len())),
        storage_class: Some(dto::ObjectVersionStorageClass::from_static("STANDARD")),
        owner: Some(owner.clone()),
        ..dto::ObjectVersion::default()
    }
}

fn marker_entry(listed: ListedVersion, owner: &dto::Owner) -> dto::DeleteMarkerEntry {
    let ListedVersion { key, known, is_latest } = listed;
    dto::DeleteMarkerEntry {
        version_id: Some(known.note.version_id()),
        is_latest: Some(is_latest),
        key: Some(key),
        last_modified: Some(known.note.modified()),
        owner: Some(owner.clone()),
    }
}

/// A continuation token, made of characters that are valid in any URL.
fn write_token(after: &str) -> String {
    hex(after.as_bytes())
}

fn read_token(token: &str) -> S3Result<String> {
    let byte = |at: usize| u8::from_str_radix(token.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..token.len()).step_by(2).map(byte).collect();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| s3_error!(InvalidArgument, "no such continuation token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_invalid_ones_are_refused() {
        assert_eq!(read_token(&write_token("a/\u{e4} b")).unwrap(), "a/\u{e4} b");
        for wrong in ["6", "zz", "ff", "\u{e4}\u{e4}"] {
            assert!(read_token(wrong).is_err(), "{wrong}");
        }
    }
}
