//! Requests for what buckets and objects have beside their bytes: tags, versions and locks.

use super::Handlers;
use super::inputs::{check_acl, check_list, check_rights};
use crate::s3::buckets::{BucketNote, PublicAccessBlock, Versioning, change_bucket, create_bucket};
use crate::s3::cors::CorsRule;
use crate::s3::errors::read_state;
use crate::s3::lifecycle::Rule;
use crate::s3::locks::{BucketLock, Retention, read_hold};
use crate::s3::names::ObjectPlace;
use crate::s3::note::Note;
use crate::s3::objects;
use crate::s3::tags::Tags;
use crate::s3::versions::VersionId;
use s3s::dto::{self, BucketVersioningStatus, ObjectLockLegalHold, ObjectOwnership};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

impl Handlers {
    /// Creates a bucket. Returns its location.
    pub(super) fn create(&self, input: &dto::CreateBucketInput, owner: &str) -> S3Result<String> {
        check_rights!(input, grant_write)?;
        let ownership = input.object_ownership.as_ref().map(ObjectOwnership::as_str);
        check_ownership(ownership.is_none_or(|one| one == ObjectOwnership::BUCKET_OWNER_ENFORCED))?;
        let is_locked = input.object_lock_enabled_for_bucket == Some(true);
        create_bucket(&self.front, &input.bucket, owner, is_locked)?;
        Ok(format!("/{}", input.bucket))
    }

    /// Accepts the only list of rights that there is.
    pub(super) fn put_bucket_acl_of(
        &self,
        input: &dto::PutBucketAclInput,
        id: &str,
    ) -> S3Result<()> {
        self.bucket_note(&input.bucket)?;
        check_list(input.access_control_policy.as_ref(), id)?;
        check_rights!(input, grant_write)
    }

    /// Accepts the only list of rights that there is.
    pub(super) fn put_object_acl_of(
        &self,
        input: &dto::PutObjectAclInput,
        id: &str,
    ) -> S3Result<()> {
        self.note(&input.bucket, &input.key, input.version_id.as_deref())?;
        check_list(input.access_control_policy.as_ref(), id)?;
        check_rights!(input, grant_write)
    }

    fn bucket_note(&self, bucket: &str) -> S3Result<BucketNote> {
        read_state(&self.front, |gateway| BucketNote::find(gateway, bucket))
    }

    /// The note of an object or a version.
    fn note(&self, bucket: &str, key: &str, version: Option<&str>) -> S3Result<Note> {
        let version = VersionId::parse(version)?;
        let place = ObjectPlace::new(bucket, key);
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
        let place = ObjectPlace::new(bucket, key);
        objects::change_note(&self.front, &place, version.as_ref(), change)
    }

    pub(super) fn tags(
        &self,
        input: &dto::GetObjectTaggingInput,
    ) -> S3Result<dto::GetObjectTaggingOutput> {
        let note = self.note(&input.bucket, &input.key, input.version_id.as_deref())?;
        Ok(dto::GetObjectTaggingOutput {
            tag_set: note.tags.set(),
            version_id: note.known_version(),
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
        Ok(note.known_version())
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
        let mfa = configuration.mfa_delete.as_ref().map(dto::MFADelete::as_str);
        if mfa.is_some_and(|status| status != dto::MFADelete::DISABLED) {
            return Err(s3_error!(NotImplemented, "there is no MFA delete"));
        }
        let versioning = match configuration.status.as_ref().map(BucketVersioningStatus::as_str) {
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

    pub(super) fn lifecycle(
        &self,
        bucket: &str,
    ) -> S3Result<dto::GetBucketLifecycleConfigurationOutput> {
        let rules = self.bucket_note(bucket)?.lifecycle;
        if rules.is_empty() {
            return Err(s3_error!(NoSuchLifecycleConfiguration));
        }
        Ok(dto::GetBucketLifecycleConfigurationOutput {
            rules: Some(rules.iter().map(Rule::reply).collect()),
            ..dto::GetBucketLifecycleConfigurationOutput::default()
        })
    }

    /// Replaces the rules of a bucket, which are carried out soon.
    pub(super) fn put_lifecycle(&self, bucket: &str, rules: Vec<Rule>) -> S3Result<()> {
        change_bucket(&self.front, bucket, |note| {
            note.lifecycle = rules;
            Ok(())
        })?;
        self.new_rules.notify_one();
        Ok(())
    }

    pub(super) fn cors(&self, bucket: &str) -> S3Result<dto::GetBucketCorsOutput> {
        let rules = self.bucket_note(bucket)?.cors;
        if rules.is_empty() {
            return Err(s3_error!(NoSuchCORSConfiguration));
        }
        let cors_rules = Some(rules.iter().map(CorsRule::reply).collect());
        Ok(dto::GetBucketCorsOutput { cors_rules })
    }

    pub(super) fn put_cors(&self, bucket: &str, rules: Vec<CorsRule>) -> S3Result<()> {
        change_bucket(&self.front, bucket, |note| {
            note.cors = rules;
            Ok(())
        })
    }

    pub(super) fn public_access(&self, bucket: &str) -> S3Result<dto::GetPublicAccessBlockOutput> {
        let block = self.bucket_note(bucket)?.public_access.ok_or_else(|| {
            let code = S3ErrorCode::Custom("NoSuchPublicAccessBlockConfiguration".into());
            let mut error = S3Error::with_message(code, "the bucket has no such configuration");
            error.set_status_code(hyper::StatusCode::NOT_FOUND);
            error
        })?;
        let configuration = dto::PublicAccessBlockConfiguration {
            block_public_acls: Some(block.acls),
            block_public_policy: Some(block.policy),
            ignore_public_acls: Some(block.ignores_acls),
            restrict_public_buckets: Some(block.restricts),
        };
        Ok(dto::GetPublicAccessBlockOutput {
            public_access_block_configuration: Some(configuration),
        })
    }

    /// Keeps what clients set. There is no public access, whether they block it or not.
    pub(super) fn put_public_access(
        &self,
        bucket: &str,
        configuration: Option<dto::PublicAccessBlockConfiguration>,
    ) -> S3Result<()> {
        let block = configuration.map(|configuration| PublicAccessBlock {
            acls: configuration.block_public_acls == Some(true),
            policy: configuration.block_public_policy == Some(true),
            ignores_acls: configuration.ignore_public_acls == Some(true),
            restricts: configuration.restrict_public_buckets == Some(true),
        });
        change_bucket(&self.front, bucket, |note| {
            note.public_access = block;
            Ok(())
        })
    }

    /// The owner of objects: always the bucket's owner.
    pub(super) fn ownership(
        &self,
        bucket: &str,
    ) -> S3Result<dto::GetBucketOwnershipControlsOutput> {
        self.bucket_note(bucket)?;
        let enforced = ObjectOwnership::from_static(ObjectOwnership::BUCKET_OWNER_ENFORCED);
        let rules = vec![dto::OwnershipControlsRule { object_ownership: enforced }];
        let ownership_controls = Some(dto::OwnershipControls { rules });
        Ok(dto::GetBucketOwnershipControlsOutput { ownership_controls })
    }

    pub(super) fn put_ownership(
        &self,
        input: &dto::PutBucketOwnershipControlsInput,
    ) -> S3Result<()> {
        self.bucket_note(&input.bucket)?;
        let rules = &input.ownership_controls.rules;
        let is_enforced = |rule: &dto::OwnershipControlsRule| {
            rule.object_ownership.as_str() == ObjectOwnership::BUCKET_OWNER_ENFORCED
        };
        if rules.len() != 1 {
            return Err(s3_error!(MalformedXML, "there is one rule"));
        }
        check_ownership(rules.iter().all(is_enforced))
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
        let on = read_hold(status.map_or("", dto::ObjectLockLegalHoldStatus::as_str))?;
        self.change((&input.bucket, &input.key, input.version_id.as_deref()), |note| {
            note.locks.legal_hold = Some(on);
            Ok(())
        })
        .map(drop)
    }
}

/// Fails unless objects are to belong to the bucket's owner.
pub(super) fn check_ownership(is_enforced: bool) -> S3Result<()> {
    let text = "objects belong to the owner of their bucket: BucketOwnerEnforced";
    if is_enforced { Ok(()) } else { Err(s3_error!(NotImplemented, "{text}")) }
}
