//! Conversions that several requests share. The types are the library's and have no common trait.

use s3s::auth::Credentials;
use s3s::dto::{AccessControlPolicy, Grant, Grantee, Owner, Permission, Type};
use s3s::{S3Result, s3_error};

/// The announced properties of an upload's bytes.
macro_rules! announced {
    ($input:ident, $trailers:ident) => {
        BodyClaims {
            len: length($input.content_length)?,
            md5: $input.content_md5,
            checksum: checksum!($input),
            algorithm: $input.checksum_algorithm.map(|one| one.as_str().to_owned()),
            kept: None,
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

/// Fails if the request sets rights that only access control lists give. Requests for buckets have
/// one more kind of them.
macro_rules! check_rights {
    ($input:ident $(, $more:ident)?) => {
        check_acl(
            $input.acl.as_ref().map(|acl| acl.as_str()),
            &[
                $input.grant_full_control.as_deref(),
                $input.grant_read.as_deref(),
                $input.grant_read_acp.as_deref(),
                $input.grant_write_acp.as_deref(),
                $($input.$more.as_deref(),)?
            ],
        )
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
            ..with_checksum!($put.checksum, $Output)
        }
    };
}

/// A checksum in different reply types.
macro_rules! with_checksum {
    ($checksum:expr, $Output:ident) => {{
        let checksum: dto::Checksum = $checksum;
        dto::$Output {
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            ..dto::$Output::default()
        }
    }};
}

/// The checksum that a request's headers announce.
macro_rules! checksum {
    ($input:ident) => {
        dto::Checksum {
            checksum_crc32: $input.checksum_crc32,
            checksum_crc32c: $input.checksum_crc32c,
            checksum_crc64nvme: $input.checksum_crc64nvme,
            checksum_sha1: $input.checksum_sha1,
            checksum_sha256: $input.checksum_sha256,
            ..dto::Checksum::default()
        }
    };
}

pub(super) use {
    announced, check_rights, checksum, copy_conditions, headers, locks, read_conditions,
    with_checksum, write_conditions, written,
};

/// The announced length.
pub(super) fn length(announced: Option<i64>) -> S3Result<Option<u64>> {
    announced.map(u64::try_from).transpose().map_err(|_| s3_error!(InvalidArgument))
}

/// The object's encoding, without the encoding of the request.
pub(super) fn own_encoding(encoding: &str) -> Option<String> {
    let own = encoding.split(',').map(str::trim).filter(|one| *one != "aws-chunked");
    let own = own.collect::<Vec<_>>().join(", ");
    Some(own).filter(|own| !own.is_empty())
}

/// The client as owner, with full control for itself alone. Real grants are not reported over S3.
pub(super) fn owner_alone(credentials: Option<Credentials>) -> S3Result<(Owner, Vec<Grant>)> {
    let known = credentials.ok_or_else(|| s3_error!(AccessDenied))?;
    let grantee = Grantee {
        id: Some(known.access_key.clone()),
        type_: Type::from_static(Type::CANONICAL_USER),
        display_name: Some(known.access_key.clone()),
        email_address: None,
        uri: None,
    };
    let permission = Permission::from_static(Permission::FULL_CONTROL);
    let grant = Grant { grantee: Some(grantee), permission: Some(permission) };
    Ok((owner(&known.access_key), vec![grant]))
}

/// A client as owner.
pub(super) fn owner(id: &str) -> Owner {
    Owner { id: Some(id.to_owned()), display_name: Some(id.to_owned()) }
}

/// Fails if a request sets rights that only access control lists give, which are disabled: each
/// object is its bucket owner's alone.
pub(super) fn check_acl(canned: Option<&str>, grants: &[Option<&str>]) -> S3Result<()> {
    let is_owners = matches!(canned, None | Some("private" | "bucket-owner-full-control"));
    if is_owners && grants.iter().all(Option::is_none) {
        return Ok(());
    }
    Err(s3_error!(AccessControlListNotSupported, "The bucket does not allow ACLs"))
}

/// Fails unless a list, if there is one, gives all rights to the client, and none to other clients:
/// the only list there is.
pub(super) fn check_list(policy: Option<&AccessControlPolicy>, client: &str) -> S3Result<()> {
    match policy {
        Some(policy) if !gives_owner_alone(policy, client) => check_acl(None, &[Some("")]),
        _ => Ok(()),
    }
}

fn gives_owner_alone(policy: &AccessControlPolicy, client: &str) -> bool {
    let owner = policy.owner.as_ref().and_then(|owner| owner.id.as_deref());
    let is_owners = |grant: &Grant| {
        let grantee = grant.grantee.as_ref().and_then(|grantee| grantee.id.as_deref());
        let permission = grant.permission.as_ref().map(Permission::as_str);
        owner == Some(client) && grantee == owner && permission == Some(Permission::FULL_CONTROL)
    };
    policy.grants.as_ref().is_some_and(|grants| !grants.is_empty() && grants.iter().all(is_owners))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owners_rights_are_accepted() {
        for own in [None, Some("private"), Some("bucket-owner-full-control")] {
            assert!(check_acl(own, &[None]).is_ok());
        }
        for other in ["public-read", "authenticated-read", "aws-exec-read", ""] {
            let error = check_acl(Some(other), &[]).unwrap_err();
            assert_eq!(error.code().as_str(), "AccessControlListNotSupported");
        }
        assert!(check_acl(None, &[None, Some("id=bob")]).is_err());
    }

    #[test]
    fn the_list_that_clients_read_can_be_written_back() {
        let key = Credentials { access_key: "ann".to_owned(), secret_key: "secret".into() };
        let (owner, grants) = owner_alone(Some(key)).unwrap();
        let policy = AccessControlPolicy { owner: Some(owner), grants: Some(grants) };
        assert!(gives_owner_alone(&policy, "ann"));
        assert!(!gives_owner_alone(&policy, "bob"));
        let mut foreign = policy.clone();
        foreign.owner = Some(super::owner("bob"));
        assert!(!gives_owner_alone(&foreign, "ann"));
        let mut reading = policy.clone();
        let grant = &mut reading.grants.as_mut().unwrap()[0];
        grant.permission = Some(Permission::from_static(Permission::READ));
        assert!(!gives_owner_alone(&reading, "ann"));
        assert!(!gives_owner_alone(&AccessControlPolicy { grants: None, ..policy }, "ann"));
    }

    #[test]
    fn the_transfer_encoding_of_a_request_is_not_stored() {
        assert_eq!(own_encoding("aws-chunked"), None);
        assert_eq!(own_encoding("aws-chunked, gzip").as_deref(), Some("gzip"));
    }
}
