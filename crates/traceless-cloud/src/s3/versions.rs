//! Versions of objects, of which buckets have none: each object is the version `null`.

use s3s::dto::{Object, ObjectVersion, ObjectVersionStorageClass, Owner};
use s3s::{S3Result, s3_error};

/// The version of an object in a bucket without versions.
pub const ONLY_VERSION: &str = "null";

/// Fails if a request is for another version of an object than the only one.
pub fn check_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some(ONLY_VERSION) => Ok(()),
        Some(_) => Err(s3_error!(NoSuchVersion)),
    }
}

/// The only version of a listed object.
pub fn only_version(object: Object, owner: &Owner) -> ObjectVersion {
    ObjectVersion {
        version_id: Some(ONLY_VERSION.to_owned()),
        is_latest: Some(true),
        key: object.key,
        e_tag: object.e_tag,
        last_modified: object.last_modified,
        size: object.size,
        storage_class: Some(ObjectVersionStorageClass::from_static("STANDARD")),
        owner: Some(owner.clone()),
        ..ObjectVersion::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_one_version() {
        assert!(check_version(None).is_ok() && check_version(Some("null")).is_ok());
        for other in ["", "NULL", "3HL4kqtJlcpXroDTDmJ"] {
            assert_eq!(check_version(Some(other)).unwrap_err().code().as_str(), "NoSuchVersion");
        }
    }
}
