//! Authenticates clients, and checks what they may do in a bucket.

use super::access::{AccessKeys, Grant};
use super::buckets::BucketNote;
use crate::connection::Connection;
use crate::shared::SharedGateway;
use async_trait::async_trait;
use hyper::HeaderMap;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{CopyObjectInput, CopySource, UploadPartCopyInput};
use s3s::path::S3Path;
use s3s::{S3Request, S3Result, s3_error};
use std::sync::Arc;

/// Names the access key that has created the bucket, as the client believes.
const EXPECTED_OWNER: &str = "x-amz-expected-bucket-owner";
/// The same of the bucket that an object is copied from.
const EXPECTED_SOURCE_OWNER: &str = "x-amz-source-expected-bucket-owner";

/// Authenticates clients and checks their rights.
#[derive(Clone)]
pub struct Door {
    keys: Arc<AccessKeys>,
    front: Arc<SharedGateway>,
}

impl Door {
    pub fn new(keys: Arc<AccessKeys>, front: Arc<SharedGateway>) -> Self {
        Self { keys, front }
    }

    /// Fails unless a client may read the bucket of an object that it copies.
    fn check_source<T>(&self, request: &S3Request<T>, source: &CopySource) -> S3Result<()> {
        let CopySource::Bucket { bucket, .. } = source else {
            return Err(s3_error!(NotImplemented));
        };
        let id = request.credentials.as_ref().map(|known| &*known.access_key);
        let grant = id.and_then(|id| self.keys.grant(id, bucket));
        grant.map(drop).ok_or_else(|| s3_error!(AccessDenied))?;
        self.check_owner(&request.headers, EXPECTED_SOURCE_OWNER, bucket)
    }

    /// Fails if a header names an owner, and the bucket is there and has another one.
    fn check_owner(&self, headers: &HeaderMap, header: &str, bucket: &str) -> S3Result<()> {
        let Some(expected) = headers.get(header) else { return Ok(()) };
        let note = self.front.read_state(|gateway| BucketNote::find(gateway, bucket));
        // What else is wrong is found by the request itself.
        let Ok(Ok(BucketNote { owner, .. })) = note else { return Ok(()) };
        if owner.is_some_and(|owner| owner.as_bytes() == expected.as_bytes()) {
            return Ok(());
        }
        Err(s3_error!(AccessDenied, "the bucket has another owner than {header} says"))
    }
}

#[async_trait]
impl S3Auth for Door {
    async fn get_secret_key(&self, id: &str) -> S3Result<SecretKey> {
        self.keys.secret(id).cloned().ok_or_else(|| s3_error!(InvalidAccessKeyId))
    }
}

#[async_trait]
impl S3Access for Door {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        // The library has verified the signature before it calls this.
        if request.credentials().is_some()
            && let Some(connection) = request.extensions_mut().get::<Connection>()
        {
            connection.keep();
        }
        let known = request.credentials().ok_or_else(|| s3_error!(AccessDenied))?;
        let bucket = match request.s3_path() {
            // The reply lists only the buckets of this key.
            S3Path::Root if request.s3_op().name() == "ListBuckets" => return Ok(()),
            S3Path::Root => return Err(s3_error!(AccessDenied)),
            S3Path::Bucket { bucket } | S3Path::Object { bucket, .. } => bucket,
        };
        let grant = self.keys.grant(&known.access_key, bucket);
        if grant.is_some_and(|grant| grant >= needed(request.s3_op().name())) {
            return self.check_owner(request.headers(), EXPECTED_OWNER, bucket);
        }
        Err(s3_error!(AccessDenied))
    }

    async fn copy_object(&self, request: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        self.check_source(request, &request.input.copy_source)
    }

    async fn upload_part_copy(&self, request: &mut S3Request<UploadPartCopyInput>) -> S3Result<()> {
        self.check_source(request, &request.input.copy_source)
    }
}

/// The rights that an operation needs.
fn needed(operation: &str) -> Grant {
    let reads = ["Get", "Head", "List"].iter().any(|verb| operation.starts_with(verb));
    // Uploads and their parts are listed only by clients that write.
    if reads && !matches!(operation, "ListParts" | "ListMultipartUploads") {
        Grant::ReadOnly
    } else {
        Grant::ReadWrite
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_operations_need_the_write_grant() {
        for operation in ["GetObject", "HeadObject", "ListObjectsV2", "GetBucketLocation"] {
            assert_eq!(needed(operation), Grant::ReadOnly);
        }
        for operation in ["PutObject", "DeleteObjects", "CopyObject", "ListParts", "PostObject"] {
            assert_eq!(needed(operation), Grant::ReadWrite);
        }
    }
}
