//! Requests for what buckets and objects have beside their bytes: tags, versions and locks.

use super::Handlers;
use crate::s3::buckets::{BucketNote, Versioning, change_bucket};
use crate::s3::errors::read_state;
use crate::s3::locks::{BucketLock, Retention, read_hold};
use crate::s3::names::Place;
use crate::s3::note::Note;
use crate::s3::objects;
use crate::s3::tags::Tags;
use crate::s3::versions::VersionId;
use s3s::dto::{self, BucketVersioningStatus, ObjectLockLegalHold};
use s3s::{S3Result, s3_error};

impl Handlers {
    fn bucket_note(&self, bucket: &str) -> S3Result<BucketNote> {
        read_state(&self.front, |gateway| BucketNote::find(gateway, bucket))
    }

    /// The note of an object or a version.
    fn note(&self, bucket: &str, key: &str, version: Option<&str>) -> S3Result<Note> {
        let version = VersionId::parse(version)?;
        let place = Place::new(bucket, key);
        let known =
            read_state(&self.front, |gateway| objects::find(gateway, &place, version.as_ref()));
        Ok(known?.note)
    }

    /// Changes the note of an object or a version.
    fn change(
        &self,
        (bucket, key, version): (&str, &str, Option<&str>),
        change: impl FnOnce(&mut Note) -> S3Result<()>,
    ) -> S3Result<Note> {
        let version = VersionId::parse(version)?;
        let place = Place::new(bucket, key);
        objects::change_note(&self.front, &place, version.as_ref(), change)
    }

    pub(super) fn tags(
        &self,
        input: &dto::GetObjectTaggingInput,
    ) -> S3Result<dto::GetObjectTaggingOutput> {
        let note = self.note(&input.bucket, &input.key, input.version_id.as_deref())?;
        Ok(dto::GetObjectTaggingOutput {
            tag_set: note.tags.set(),
            version_id: note.version.is_some().then(|| note.version_id()),
        })
    }

    /// Replaces the tags of an object. Returns its version, in a bucket that keeps versions.
    pub(super) fn put_tags(
        &self,
        object: (&str, &str, Option<&str>),
        tags: Tags,
    ) -> S3Result<Option<String>> {
        let put = |note: &mut Note| {
            note.tags = tags;
            Ok(())
        };
        let note = self.change(object, put)?;
        Ok(note.version.is_some().then(|| note.version_id()))
    }

    pub(super) fn bucket_tags(&self, bucket: &str) -> S3Result<dto::GetBucketTaggingOutput> {
        let tags = self.bucket_note(bucket)?.tags;
        if tags.is_empty() {
            return Err(s3_error!(NoSuchTagSet));
        }
        Ok(dto::GetBucketTaggingOutput { tag_set: tags.set() })
    }

    pub(super) fn put_bucket_tags(&self, bucket: &str, tags: Tags) -> S3Result<()> {
        change_bucket(&self.front, bucket, |note| {
            note.tags = tags;
            Ok(())
        })
    }

    pub(super) fn versioning(&self, bucket: &str) -> S3Result<dto::GetBucketVersioningOutput> {
        let word = |versioning| match versioning {
            Versioning::Enabled => BucketVersioningStatus::ENABLED,
            Versioning::Suspended => BucketVersioningStatus::SUSPENDED,
        };
        let status = self.bucket_note(bucket)?.versioning.map(word);
        let status = status.map(BucketVersioningStatus::from_static);
        Ok(dto::GetBucketVersioningOutput { status, ..dto::GetBucketVersioningOutput::default() })
    }

    pub(super) fn put_versioning(&self, input: &dto::PutBucketVersioningInput) -> S3Result<()> {
        let configuration = &input.versioning_configuration;
        let mfa = configuration.mfa_delete.as_ref().map(|status| status.as_str());
        if mfa.is_some_and(|status| status != dto::MFADelete::DISABLED) {
            return Err(s3_error!(NotImplemented, "there is no MFA delete"));
        }
        let versioning = match configuration.status.as_ref().map(|status| status.as_str()) {
            Some(BucketVersioningStatus::ENABLED) => Versioning::Enabled,
            Some(BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
            _ => return Err(s3_error!(MalformedXML, "versions are Enabled or Suspended")),
        };
        change_bucket(&self.front, &input.bucket, |note| {
            if note.lock.is_some() && versioning == Versioning::Suspended {
                let text = "a bucket with Object Lock keeps versions";
                return Err(s3_error!(InvalidBucketState, "{text}"));
            }
            note.versioning = Some(versioning);
            Ok(())
        })
    }

    pub(super) fn bucket_lock(
        &self,
        bucket: &str,
    ) -> S3Result<dto::GetObjectLockConfigurationOutput> {
        let lock = self.bucket_note(bucket)?.lock;
        let lock = lock.ok_or_else(|| s3_error!(ObjectLockConfigurationNotFoundError))?;
        Ok(dto::GetObjectLockConfigurationOutput { object_lock_configuration: Some(lock.body()) })
    }

    pub(super) fn put_bucket_lock(
        &self,
        input: dto::PutObjectLockConfigurationInput,
    ) -> S3Result<()> {
        let lock = BucketLock::of_body(input.object_lock_configuration)?;
        change_bucket(&self.front, &input.bucket, |note| {
            if note.versioning != Some(Versioning::Enabled) {
                let text = "versions must be enabled before Object Lock";
                return Err(s3_error!(InvalidBucketState, "{text}"));
            }
            note.lock = Some(lock);
            Ok(())
        })
    }

    /// Fails unless a bucket has Object Lock.
    fn check_lock(&self, bucket: &str) -> S3Result<()> {
        let lock = self.bucket_note(bucket)?.lock;
        let missing = || s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration");
        lock.map(drop).ok_or_else(missing)
    }

    pub(super) fn retention(
        &self,
        input: &dto::GetObjectRetentionInput,
    ) -> S3Result<dto::GetObjectRetentionOutput> {
        self.check_lock(&input.bucket)?;
        let note = self.note(&input.bucket, &input.key, input.version_id.as_deref())?;
        let retention =
            note.locks.retention.ok_or_else(|| s3_error!(NoSuchObjectLockConfiguration))?;
        Ok(dto::GetObjectRetentionOutput { retention: Some(retention.body()) })
    }

    pub(super) fn put_retention(&self, input: &dto::PutObjectRetentionInput) -> S3Result<()> {
        self.check_lock(&input.bucket)?;
        let now = self.front.now_ms();
        let retention = Retention::of_body(input.retention.as_ref(), now)?;
        let bypass = input.bypass_governance_retention == Some(true);
        self.change((&input.bucket, &input.key, input.version_id.as_deref()), |note| {
            note.locks.check_change(retention, now, bypass)?;
            note.locks.retention = retention;
            Ok(())
        })
        .map(drop)
    }

    pub(super) fn legal_hold(
        &self,
        input: &dto::GetObjectLegalHoldInput,
    ) -> S3Result<dto::GetObjectLegalHoldOutput> {
        self.check_lock(&input.bucket)?;
        let note = self.note(&input.bucket, &input.key, input.version_id.as_deref())?;
        let status = note.locks.hold_status();
        let status = status.ok_or_else(|| s3_error!(NoSuchObjectLockConfiguration))?;
        let legal_hold = Some(ObjectLockLegalHold { status: Some(status) });
        Ok(dto::GetObjectLegalHoldOutput { legal_hold })
    }

    pub(super) fn put_legal_hold(&self, input: &dto::PutObjectLegalHoldInput) -> S3Result<()> {
        self.check_lock(&input.bucket)?;
        let status = input.legal_hold.as_ref().and_then(|hold| hold.status.as_ref());
        let on = read_hold(status.map(|status| status.as_str()).unwrap_or_default())?;
        self.change((&input.bucket, &input.key, input.version_id.as_deref()), |note| {
            note.locks.legal_hold = Some(on);
            Ok(())
        })
        .map(drop)
    }
}
