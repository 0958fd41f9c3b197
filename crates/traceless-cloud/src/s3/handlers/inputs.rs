//! Conversions that several requests share. The types are the library's and have no common trait.

use s3s::auth::Credentials;
use s3s::dto::{Grant, Grantee, Owner, Permission, Type};
use s3s::{S3Result, s3_error};

/// The announced properties of an upload's bytes.
macro_rules! announced {
    ($input:ident, $trailers:ident) => {
        BodyClaims {
            len: length($input.content_length)?,
            md5: $input.content_md5,
            checksum: dto::Checksum {
                checksum_crc32: $input.checksum_crc32,
                checksum_crc32c: $input.checksum_crc32c,
                checksum_crc64nvme: $input.checksum_crc64nvme,
                checksum_sha1: $input.checksum_sha1,
                checksum_sha256: $input.checksum_sha256,
                ..dto::Checksum::default()
            },
            algorithm: $input.checksum_algorithm.map(|one| one.as_str().to_owned()),
            trailers: $trailers,
        }
    };
}

/// The headers that are kept with an object.
macro_rules! headers {
    ($input:ident) => {
        Headers {
            content_type: $input.content_type,
            content_encoding: $input.content_encoding.as_deref().and_then(own_encoding),
            content_disposition: $input.content_disposition,
            content_language: $input.content_language,
            cache_control: $input.cache_control,
            expires: http_date($input.expires.as_ref()),
        }
    };
}

/// Conditions of a read.
macro_rules! read_conditions {
    ($input:ident) => {
        Conditions {
            matches: $input.if_match,
            matches_not: $input.if_none_match,
            modified_since: $input.if_modified_since,
            unmodified_since: $input.if_unmodified_since,
        }
    };
}

/// Conditions of a copy on its source.
macro_rules! copy_conditions {
    ($input:ident) => {
        Conditions {
            matches: $input.copy_source_if_match,
            matches_not: $input.copy_source_if_none_match,
            modified_since: $input.copy_source_if_modified_since,
            unmodified_since: $input.copy_source_if_unmodified_since,
        }
    };
}

/// Conditions of a write.
macro_rules! write_conditions {
    ($input:ident) => {
        Conditions {
            matches: $input.if_match,
            matches_not: $input.if_none_match,
            ..Conditions::default()
        }
    };
}

/// The locks that a request's headers set.
macro_rules! locks {
    ($input:ident, $now:expr) => {
        Locks::of_headers(
            $input.object_lock_mode.as_ref().map(|mode| mode.as_str()),
            $input.object_lock_retain_until_date.as_ref(),
            $input.object_lock_legal_hold_status.as_ref(),
            $now,
        )?
    };
}

/// Tag and checksums of written bytes, for different reply types.
macro_rules! written {
    ($put:ident, $Output:ident) => {
        dto::$Output {
            e_tag: Some(ETag::Strong($put.etag)),
            checksum_crc32: $put.checksum.checksum_crc32,
            checksum_crc32c: $put.checksum.checksum_crc32c,
            checksum_crc64nvme: $put.checksum.checksum_crc64nvme,
            checksum_sha1: $put.checksum.checksum_sha1,
            checksum_sha256: $put.checksum.checksum_sha256,
            ..dto::$Output::default()
        }
    };
}

pub(super) use {
    announced, copy_conditions, headers, locks, read_conditions, write_conditions, written,
};

/// The announced length.
pub(super) fn length(announced: Option<i64>) -> S3Result<Option<u64>> {
    announced.map(u64::try_from).transpose().map_err(|_| s3_error!(InvalidArgument))
}

/// The object's encoding, without the encoding of the request.
pub(super) fn own_encoding(encoding: &str) -> Option<String> {
    let own = encoding.split(',').map(str::trim).filter(|one| *one != "aws-chunked");
    let own = own.collect::<Vec<_>>().join(",");
    Some(own).filter(|own| !own.is_empty())
}

/// The client as owner, with full control for itself alone. Real grants are not reported over S3.
pub(super) fn owner_alone(credentials: Option<Credentials>) -> S3Result<(Owner, Vec<Grant>)> {
    let known = credentials.ok_or_else(|| s3_error!(AccessDenied))?;
    let grantee = Grantee {
        id: Some(known.access_key.clone()),
        type_: Type::from_static(Type::CANONICAL_USER),
        display_name: None,
        email_address: None,
        uri: None,
    };
    let permission = Permission::from_static(Permission::FULL_CONTROL);
    let grant = Grant { grantee: Some(grantee), permission: Some(permission) };
    Ok((Owner { id: Some(known.access_key), ..Owner::default() }, vec![grant]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transfer_encoding_of_a_request_is_not_stored() {
        assert_eq!(own_encoding("aws-chunked"), None);
        assert_eq!(own_encoding("aws-chunked, gzip").as_deref(), Some("gzip"));
    }
}
