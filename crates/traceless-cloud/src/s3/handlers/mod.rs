//! The operations of S3, as the protocol's library calls them.

mod configurations;
mod forms;
mod inputs;
mod listing;
mod objects;
mod uploads;

pub use forms::FormUpload;

use super::access::AccessKeys;
use super::bodies::Trailers;
use super::buckets;
use super::conditions::Conditions;
use super::cors::CorsRule;
use super::errors::read_state;
use super::expiry_header::expiry_header;
use super::lifecycle::Rule;
use super::names::ObjectPlace;
use super::object_info::ObjectInfo;
use super::objects::{self as objects_of, Target};
use super::tags::Tags;
use super::unsized_bodies::UnsizedBody;
use super::uploads as uploads_of;
use super::versions::{Stamp, VersionId};
use crate::connection::Connection;
use crate::shared::{Kind, Protocol, SharedGateway};
use async_trait::async_trait;
use hyper::http::Extensions;
use s3s::dto::{self, CopySource};
use s3s::{Body, S3, S3Error, S3Request, S3Response, S3Result, s3_error};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use traceless_core::rng::{Rng as _, SeededRng, System};

type Answer<T> = S3Result<S3Response<T>>;

/// How many tags an object has.
const TAG_COUNT: &str = "x-amz-tagging-count";

/// Answers requests.
#[derive(Clone)]
pub struct Handlers {
    front: Arc<SharedGateway>,
    keys: Arc<AccessKeys>,
    /// Source of names of uploads and versions.
    rng: Arc<Mutex<SeededRng>>,
    /// Wakes what carries out the rules by which objects expire.
    new_rules: Arc<Notify>,
}

impl Handlers {
    pub fn new(front: Arc<SharedGateway>, keys: Arc<AccessKeys>, new_rules: Arc<Notify>) -> Self {
        let rng = Arc::new(Mutex::new(SeededRng::drawn(&mut System)));
        Self { front, keys, rng, new_rules }
    }

    /// Answers a form, of which the protocol's library knows nothing.
    pub async fn answer_form(
        &self,
        form: FormUpload,
        connection: Option<Connection>,
    ) -> S3Result<hyper::Response<Body>> {
        let put = self.put_form(form, connection.as_ref());
        Ok(self.counted(Kind::Write, put).await?.output)
    }

    /// Counts and times an answer.
    async fn counted<T>(&self, kind: Kind, answer: impl Future<Output = S3Result<T>>) -> Answer<T> {
        let metrics = self.front.metrics().clone();
        let request = metrics.request(Protocol::S3, kind);
        let answer = answer.await;
        request.answered(answer.is_ok());
        answer.map(S3Response::new)
    }

    /// An object to be read, if its conditions hold.
    fn found(
        &self,
        place: &ObjectPlace,
        version: Option<&VersionId>,
        conditions: &Conditions,
    ) -> S3Result<ObjectInfo> {
        let known = read_state(&self.front, |gateway| objects_of::find(gateway, place, version))?;
        conditions.check_read(&known.note)?;
        Ok(known)
    }

    /// The header that says when the current version of an object expires.
    fn expiration_of(&self, place: &ObjectPlace) -> Option<String> {
        let found = read_state(&self.front, |gateway| {
            let bucket = buckets::BucketNote::find(gateway, &place.bucket)?;
            let known = objects_of::find(gateway, place, None)?;
            Ok(expiry_header(&bucket, &place.key, &known))
        });
        // A request that has been answered does not fail for it.
        found.ok().flatten()
    }

    /// An object to be copied, if its conditions hold.
    fn source(&self, source: &CopySource, conditions: &Conditions) -> S3Result<ObjectInfo> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(s3_error!(NotImplemented));
        };
        let version = VersionId::parse(version_id.as_deref())?;
        let place = ObjectPlace::new(&bucket[..], &key[..]);
        let known =
            read_state(&self.front, |gateway| objects_of::find(gateway, &place, version.as_ref()))?;
        conditions.check_copy(&known.note)?;
        Ok(known)
    }

    /// Where an object is written now.
    fn target(&self, bucket: &str, key: &str, conditions: Conditions) -> Target {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp { now: self.front.now_ms(), salt: rng.next_u64() };
        Target { place: ObjectPlace::new(bucket, key), conditions, stamp }
    }

    /// Reports `none` if a bucket exists: it lacks a configuration that clients look up beforehand.
    async fn has_none<T>(&self, bucket: &str, none: S3Error) -> Answer<T> {
        let found = read_state(&self.front, |gateway| buckets::check_bucket(gateway, bucket));
        self.counted(Kind::State, async { Err(found.err().unwrap_or(none)) }).await
    }
}

/// Gives an upload without a length the body that has passed the library by.
fn attach(extensions: &Extensions, body: &mut Option<dto::StreamingBlob>) {
    if let Some(unsized_body) = extensions.get::<UnsizedBody>() {
        *body = unsized_body.take();
    }
}

#[async_trait]
impl S3 for Handlers {
    async fn list_buckets(
        &self,
        request: S3Request<dto::ListBucketsInput>,
    ) -> Answer<dto::ListBucketsOutput> {
        let listed = async {
            let known = request.credentials.ok_or_else(|| s3_error!(AccessDenied))?;
            self.buckets(&request.input, &known.access_key)
        };
        self.counted(Kind::State, listed).await
    }

    async fn create_bucket(
        &self,
        request: S3Request<dto::CreateBucketInput>,
    ) -> Answer<dto::CreateBucketOutput> {
        let created = async {
            let known = request.credentials.ok_or_else(|| s3_error!(AccessDenied))?;
            let location = self.create(&request.input, &known.access_key)?;
            Ok(dto::CreateBucketOutput { location: Some(location) })
        };
        self.counted(Kind::State, created).await
    }

    async fn delete_bucket(
        &self,
        request: S3Request<dto::DeleteBucketInput>,
    ) -> Answer<dto::DeleteBucketOutput> {
        let removed = async {
            buckets::delete_bucket(&self.front, &request.input.bucket)?;
            Ok(dto::DeleteBucketOutput::default())
        };
        self.counted(Kind::State, removed).await
    }

    async fn head_bucket(
        &self,
        request: S3Request<dto::HeadBucketInput>,
    ) -> Answer<dto::HeadBucketOutput> {
        let found = async {
            read_state(&self.front, |gateway| {
                buckets::check_bucket(gateway, &request.input.bucket)
            })?;
            Ok(dto::HeadBucketOutput::default())
        };
        self.counted(Kind::State, found).await
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<dto::GetBucketLocationInput>,
    ) -> Answer<dto::GetBucketLocationOutput> {
        let found = async {
            read_state(&self.front, |gateway| {
                buckets::check_bucket(gateway, &request.input.bucket)
            })?;
            // No location means the first region, which clients expect by default.
            Ok(dto::GetBucketLocationOutput::default())
        };
        self.counted(Kind::State, found).await
    }

    async fn get_bucket_acl(
        &self,
        request: S3Request<dto::GetBucketAclInput>,
    ) -> Answer<dto::GetBucketAclOutput> {
        let found = async {
            read_state(&self.front, |gateway| {
                buckets::check_bucket(gateway, &request.input.bucket)
            })?;
            let (owner, grants) = inputs::owner_alone(request.credentials)?;
            Ok(dto::GetBucketAclOutput { owner: Some(owner), grants: Some(grants) })
        };
        self.counted(Kind::State, found).await
    }

    async fn get_object_acl(
        &self,
        request: S3Request<dto::GetObjectAclInput>,
    ) -> Answer<dto::GetObjectAclOutput> {
        let found = async {
            let dto::GetObjectAclInput { bucket, key, version_id, .. } = &request.input;
            let version = VersionId::parse(version_id.as_deref())?;
            let place = ObjectPlace::new(&bucket[..], &key[..]);
            self.found(&place, version.as_ref(), &Conditions::default())?;
            let (owner, grants) = inputs::owner_alone(request.credentials)?;
            Ok(dto::GetObjectAclOutput {
                owner: Some(owner),
                grants: Some(grants),
                ..dto::GetObjectAclOutput::default()
            })
        };
        self.counted(Kind::State, found).await
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<dto::GetObjectTaggingInput>,
    ) -> Answer<dto::GetObjectTaggingOutput> {
        self.counted(Kind::State, async { self.tags(&request.input) }).await
    }

    async fn put_object_tagging(
        &self,
        request: S3Request<dto::PutObjectTaggingInput>,
    ) -> Answer<dto::PutObjectTaggingOutput> {
        let put = async {
            let dto::PutObjectTaggingInput { bucket, key, version_id, tagging, .. } = request.input;
            let tags = Tags::of_object(tagging.tag_set)?;
            let version_id = self.put_tags((&bucket, &key, version_id.as_deref()), tags)?;
            Ok(dto::PutObjectTaggingOutput { version_id })
        };
        self.counted(Kind::State, put).await
    }

    async fn delete_object_tagging(
        &self,
        request: S3Request<dto::DeleteObjectTaggingInput>,
    ) -> Answer<dto::DeleteObjectTaggingOutput> {
        let deleted = async {
            let dto::DeleteObjectTaggingInput { bucket, key, version_id, .. } = request.input;
            let object = (&bucket[..], &key[..], version_id.as_deref());
            let version_id = self.put_tags(object, Tags::default())?;
            Ok(dto::DeleteObjectTaggingOutput { version_id })
        };
        self.counted(Kind::State, deleted).await
    }

    async fn get_bucket_tagging(
        &self,
        request: S3Request<dto::GetBucketTaggingInput>,
    ) -> Answer<dto::GetBucketTaggingOutput> {
        self.counted(Kind::State, async { self.bucket_tags(&request.input.bucket) }).await
    }

    async fn put_bucket_tagging(
        &self,
        request: S3Request<dto::PutBucketTaggingInput>,
    ) -> Answer<dto::PutBucketTaggingOutput> {
        let put = async {
            let dto::PutBucketTaggingInput { bucket, tagging, .. } = request.input;
            let tags = Tags::of_bucket(tagging.tag_set)?;
            self.put_bucket_tags(&bucket, tags)?;
            Ok(dto::PutBucketTaggingOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn delete_bucket_tagging(
        &self,
        request: S3Request<dto::DeleteBucketTaggingInput>,
    ) -> Answer<dto::DeleteBucketTaggingOutput> {
        let deleted = async {
            self.put_bucket_tags(&request.input.bucket, Tags::default())?;
            Ok(dto::DeleteBucketTaggingOutput::default())
        };
        self.counted(Kind::State, deleted).await
    }

    async fn get_bucket_policy(
        &self,
        request: S3Request<dto::GetBucketPolicyInput>,
    ) -> Answer<dto::GetBucketPolicyOutput> {
        self.has_none(&request.input.bucket, s3_error!(NoSuchBucketPolicy)).await
    }

    async fn get_bucket_cors(
        &self,
        request: S3Request<dto::GetBucketCorsInput>,
    ) -> Answer<dto::GetBucketCorsOutput> {
        self.counted(Kind::State, async { self.cors(&request.input.bucket) }).await
    }

    async fn put_bucket_cors(
        &self,
        request: S3Request<dto::PutBucketCorsInput>,
    ) -> Answer<dto::PutBucketCorsOutput> {
        let put = async {
            let dto::PutBucketCorsInput { bucket, cors_configuration, .. } = request.input;
            self.put_cors(&bucket, CorsRule::of_request(cors_configuration)?)?;
            Ok(dto::PutBucketCorsOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn delete_bucket_cors(
        &self,
        request: S3Request<dto::DeleteBucketCorsInput>,
    ) -> Answer<dto::DeleteBucketCorsOutput> {
        let deleted = async {
            self.put_cors(&request.input.bucket, Vec::new())?;
            Ok(dto::DeleteBucketCorsOutput::default())
        };
        self.counted(Kind::State, deleted).await
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<dto::GetBucketLifecycleConfigurationInput>,
    ) -> Answer<dto::GetBucketLifecycleConfigurationOutput> {
        self.counted(Kind::State, async { self.lifecycle(&request.input.bucket) }).await
    }

    async fn put_bucket_lifecycle_configuration(
        &self,
        request: S3Request<dto::PutBucketLifecycleConfigurationInput>,
    ) -> Answer<dto::PutBucketLifecycleConfigurationOutput> {
        let put = async {
            let rules = Rule::of_request(request.input.lifecycle_configuration)?;
            self.put_lifecycle(&request.input.bucket, rules)?;
            Ok(dto::PutBucketLifecycleConfigurationOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn delete_bucket_lifecycle(
        &self,
        request: S3Request<dto::DeleteBucketLifecycleInput>,
    ) -> Answer<dto::DeleteBucketLifecycleOutput> {
        let deleted = async {
            self.put_lifecycle(&request.input.bucket, Vec::new())?;
            Ok(dto::DeleteBucketLifecycleOutput::default())
        };
        self.counted(Kind::State, deleted).await
    }

    async fn get_bucket_encryption(
        &self,
        request: S3Request<dto::GetBucketEncryptionInput>,
    ) -> Answer<dto::GetBucketEncryptionOutput> {
        self.has_none(
            &request.input.bucket,
            s3_error!(ServerSideEncryptionConfigurationNotFoundError),
        )
        .await
    }

    async fn get_bucket_website(
        &self,
        request: S3Request<dto::GetBucketWebsiteInput>,
    ) -> Answer<dto::GetBucketWebsiteOutput> {
        self.has_none(&request.input.bucket, s3_error!(NoSuchWebsiteConfiguration)).await
    }

    async fn get_object_lock_configuration(
        &self,
        request: S3Request<dto::GetObjectLockConfigurationInput>,
    ) -> Answer<dto::GetObjectLockConfigurationOutput> {
        self.counted(Kind::State, async { self.bucket_lock(&request.input.bucket) }).await
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<dto::GetBucketVersioningInput>,
    ) -> Answer<dto::GetBucketVersioningOutput> {
        self.counted(Kind::State, async { self.versioning(&request.input.bucket) }).await
    }

    async fn put_bucket_versioning(
        &self,
        request: S3Request<dto::PutBucketVersioningInput>,
    ) -> Answer<dto::PutBucketVersioningOutput> {
        let put = async {
            self.put_versioning(&request.input)?;
            Ok(dto::PutBucketVersioningOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn put_object_lock_configuration(
        &self,
        request: S3Request<dto::PutObjectLockConfigurationInput>,
    ) -> Answer<dto::PutObjectLockConfigurationOutput> {
        let put = async {
            self.put_bucket_lock(request.input)?;
            Ok(dto::PutObjectLockConfigurationOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn get_object_retention(
        &self,
        request: S3Request<dto::GetObjectRetentionInput>,
    ) -> Answer<dto::GetObjectRetentionOutput> {
        self.counted(Kind::State, async { self.retention(&request.input) }).await
    }

    async fn put_object_retention(
        &self,
        request: S3Request<dto::PutObjectRetentionInput>,
    ) -> Answer<dto::PutObjectRetentionOutput> {
        let put = async {
            self.put_retention(&request.input)?;
            Ok(dto::PutObjectRetentionOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn get_object_legal_hold(
        &self,
        request: S3Request<dto::GetObjectLegalHoldInput>,
    ) -> Answer<dto::GetObjectLegalHoldOutput> {
        self.counted(Kind::State, async { self.legal_hold(&request.input) }).await
    }

    async fn put_object_legal_hold(
        &self,
        request: S3Request<dto::PutObjectLegalHoldInput>,
    ) -> Answer<dto::PutObjectLegalHoldOutput> {
        let put = async {
            self.put_legal_hold(&request.input)?;
            Ok(dto::PutObjectLegalHoldOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn put_bucket_acl(
        &self,
        request: S3Request<dto::PutBucketAclInput>,
    ) -> Answer<dto::PutBucketAclOutput> {
        let put = async {
            let known = request.credentials.ok_or_else(|| s3_error!(AccessDenied))?;
            self.put_bucket_acl_of(&request.input, &known.access_key)?;
            Ok(dto::PutBucketAclOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn put_object_acl(
        &self,
        request: S3Request<dto::PutObjectAclInput>,
    ) -> Answer<dto::PutObjectAclOutput> {
        let put = async {
            let known = request.credentials.ok_or_else(|| s3_error!(AccessDenied))?;
            self.put_object_acl_of(&request.input, &known.access_key)?;
            Ok(dto::PutObjectAclOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn get_public_access_block(
        &self,
        request: S3Request<dto::GetPublicAccessBlockInput>,
    ) -> Answer<dto::GetPublicAccessBlockOutput> {
        self.counted(Kind::State, async { self.public_access(&request.input.bucket) }).await
    }

    async fn put_public_access_block(
        &self,
        request: S3Request<dto::PutPublicAccessBlockInput>,
    ) -> Answer<dto::PutPublicAccessBlockOutput> {
        let put = async {
            let configuration = request.input.public_access_block_configuration;
            self.put_public_access(&request.input.bucket, Some(configuration))?;
            Ok(dto::PutPublicAccessBlockOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn delete_public_access_block(
        &self,
        request: S3Request<dto::DeletePublicAccessBlockInput>,
    ) -> Answer<dto::DeletePublicAccessBlockOutput> {
        let deleted = async {
            self.put_public_access(&request.input.bucket, None)?;
            Ok(dto::DeletePublicAccessBlockOutput::default())
        };
        self.counted(Kind::State, deleted).await
    }

    async fn get_bucket_ownership_controls(
        &self,
        request: S3Request<dto::GetBucketOwnershipControlsInput>,
    ) -> Answer<dto::GetBucketOwnershipControlsOutput> {
        self.counted(Kind::State, async { self.ownership(&request.input.bucket) }).await
    }

    async fn put_bucket_ownership_controls(
        &self,
        request: S3Request<dto::PutBucketOwnershipControlsInput>,
    ) -> Answer<dto::PutBucketOwnershipControlsOutput> {
        let put = async {
            self.put_ownership(&request.input)?;
            Ok(dto::PutBucketOwnershipControlsOutput::default())
        };
        self.counted(Kind::State, put).await
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<dto::GetObjectAttributesInput>,
    ) -> Answer<dto::GetObjectAttributesOutput> {
        self.counted(Kind::State, async { self.attributes(&request.input) }).await
    }

    async fn get_object(
        &self,
        request: S3Request<dto::GetObjectInput>,
    ) -> Answer<dto::GetObjectOutput> {
        self.counted(Kind::Read, self.object(request.input)).await
    }

    async fn head_object(
        &self,
        request: S3Request<dto::HeadObjectInput>,
    ) -> Answer<dto::HeadObjectOutput> {
        let found = self.counted(Kind::State, async { self.head(request.input) }).await?;
        let S3Response { output: (output, tags), .. } = found;
        let mut response = S3Response::new(output);
        // The library's reply has no field for it.
        if let Some(count) = tags {
            response.headers.insert(TAG_COUNT, count.into());
        }
        Ok(response)
    }

    async fn put_object(
        &self,
        mut request: S3Request<dto::PutObjectInput>,
    ) -> Answer<dto::PutObjectOutput> {
        let trailers = Trailers::of(&mut request);
        attach(&request.extensions, &mut request.input.body);
        self.counted(Kind::Write, self.put(request.input, trailers)).await
    }

    async fn delete_object(
        &self,
        request: S3Request<dto::DeleteObjectInput>,
    ) -> Answer<dto::DeleteObjectOutput> {
        self.counted(Kind::Remove, self.delete(request.input)).await
    }

    async fn delete_objects(
        &self,
        request: S3Request<dto::DeleteObjectsInput>,
    ) -> Answer<dto::DeleteObjectsOutput> {
        self.counted(Kind::Remove, self.delete_all(request.input)).await
    }

    async fn copy_object(
        &self,
        request: S3Request<dto::CopyObjectInput>,
    ) -> Answer<dto::CopyObjectOutput> {
        self.counted(Kind::Write, self.copy(request.input)).await
    }

    async fn list_objects(
        &self,
        request: S3Request<dto::ListObjectsInput>,
    ) -> Answer<dto::ListObjectsOutput> {
        let listed = async {
            let (owner, _) = inputs::owner_alone(request.credentials)?;
            self.list(request.input, &owner)
        };
        self.counted(Kind::State, listed).await
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<dto::ListObjectsV2Input>,
    ) -> Answer<dto::ListObjectsV2Output> {
        let listed = async {
            let (owner, _) = inputs::owner_alone(request.credentials)?;
            self.list_v2(request.input, &owner)
        };
        self.counted(Kind::State, listed).await
    }

    async fn list_object_versions(
        &self,
        request: S3Request<dto::ListObjectVersionsInput>,
    ) -> Answer<dto::ListObjectVersionsOutput> {
        let listed = async {
            let (owner, _) = inputs::owner_alone(request.credentials)?;
            self.versions(request.input, &owner)
        };
        self.counted(Kind::State, listed).await
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<dto::CreateMultipartUploadInput>,
    ) -> Answer<dto::CreateMultipartUploadOutput> {
        self.counted(Kind::State, async { self.begin(request.input) }).await
    }

    async fn upload_part(
        &self,
        mut request: S3Request<dto::UploadPartInput>,
    ) -> Answer<dto::UploadPartOutput> {
        let trailers = Trailers::of(&mut request);
        attach(&request.extensions, &mut request.input.body);
        self.counted(Kind::Write, self.put_part(request.input, trailers)).await
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<dto::UploadPartCopyInput>,
    ) -> Answer<dto::UploadPartCopyOutput> {
        self.counted(Kind::Write, self.copy_part(request.input)).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<dto::CompleteMultipartUploadInput>,
    ) -> Answer<dto::CompleteMultipartUploadOutput> {
        self.counted(Kind::State, async { self.complete(request.input) }).await
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<dto::AbortMultipartUploadInput>,
    ) -> Answer<dto::AbortMultipartUploadOutput> {
        let dto::AbortMultipartUploadInput { bucket, key, upload_id, .. } = request.input;
        let aborted = async {
            uploads_of::abort(self.front.clone(), ObjectPlace::new(bucket, key), upload_id).await?;
            Ok(dto::AbortMultipartUploadOutput::default())
        };
        self.counted(Kind::Remove, aborted).await
    }

    async fn list_parts(
        &self,
        request: S3Request<dto::ListPartsInput>,
    ) -> Answer<dto::ListPartsOutput> {
        self.counted(Kind::State, async { self.parts(request.input) }).await
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<dto::ListMultipartUploadsInput>,
    ) -> Answer<dto::ListMultipartUploadsOutput> {
        self.counted(Kind::State, async { self.uploads(request.input) }).await
    }
}
