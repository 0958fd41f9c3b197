//! Access keys, and the rights of each key on each bucket.

use crate::codec::hex;
use crate::connection::Connection;
use crate::error::{Error, Result};
use async_trait::async_trait;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{CopyObjectInput, CopySource, UploadPartCopyInput};
use s3s::path::S3Path;
use s3s::{S3Request, S3Result, s3_error};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use traceless_core::rng::Rng;
use zeroize::Zeroizing;

/// Shortest access key and shortest secret, in bytes.
const LEN_MIN: usize = 3;
const SECRET_LEN_MIN: usize = 8;

/// The rights of a key on a bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Grant {
    /// Read and list.
    ReadOnly,
    /// Everything, including creating and removing the bucket.
    ReadWrite,
}

struct Key {
    secret: SecretKey,
    /// By bucket; `*` stands for all other buckets.
    grants: BTreeMap<String, Grant>,
}

/// Access keys.
pub struct AccessKeys(HashMap<String, Key>);

impl AccessKeys {
    /// Reads a file: on each line a key, its secret, and any number of `BUCKET=ro` or `BUCKET=rw`,
    /// with `*` for all other buckets; without any, everything is allowed. `#` begins a remark.
    pub fn read(path: &Path) -> Result<Self> {
        let text = Zeroizing::new(std::fs::read_to_string(path)?);
        Self::parse(&text)
    }

    /// The text of a file with one random key, which may do everything.
    pub fn draw(rng: &mut dyn Rng) -> Zeroizing<String> {
        let mut word = |bytes: usize| {
            let mut drawn = Zeroizing::new(vec![0; bytes]);
            rng.fill(&mut drawn);
            Zeroizing::new(hex(&drawn))
        };
        let (id, secret) = (word(8), word(20));
        Zeroizing::new(format!("# KEY SECRET [BUCKET=ro|rw]...\nTL{} {}\n", &*id, &*secret))
    }

    fn parse(text: &str) -> Result<Self> {
        const WRONG: Error =
            Error::Parameters("a line of the keys file is KEY SECRET [BUCKET=ro|BUCKET=rw]...");
        let mut keys = HashMap::new();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(id) = words.next() else { continue };
            let secret = words.next().ok_or(WRONG)?;
            if id.len() < LEN_MIN || secret.len() < SECRET_LEN_MIN || id.contains('/') {
                return Err(Error::Parameters("a key has 3 characters, its secret 8, at least"));
            }
            let mut grants = BTreeMap::new();
            for word in words {
                let (bucket, grant) = match word.split_once('=') {
                    Some((bucket, "ro")) => (bucket, Grant::ReadOnly),
                    Some((bucket, "rw")) => (bucket, Grant::ReadWrite),
                    _ => return Err(WRONG),
                };
                grants.insert(bucket.to_owned(), grant);
            }
            if grants.is_empty() {
                grants.insert("*".to_owned(), Grant::ReadWrite);
            }
            let key = Key { secret: SecretKey::from(secret), grants };
            if keys.insert(id.to_owned(), key).is_some() {
                return Err(Error::Parameters("a key is in the keys file twice"));
            }
        }
        if keys.is_empty() {
            return Err(Error::Parameters("there is no key in the keys file"));
        }
        Ok(Self(keys))
    }

    /// The rights of a key on a bucket, if it has any.
    pub fn grant(&self, id: &str, bucket: &str) -> Option<Grant> {
        let grants = &self.0.get(id)?.grants;
        grants.get(bucket).or_else(|| grants.get("*")).copied()
    }

    fn check<T>(&self, request: &S3Request<T>, bucket: &str) -> S3Result<()> {
        let id = request.credentials.as_ref().map(|known| &*known.access_key);
        let grant = id.and_then(|id| self.grant(id, bucket));
        grant.map(drop).ok_or_else(|| s3_error!(AccessDenied))
    }
}

/// Authenticates clients and checks their rights.
pub struct Door(pub Arc<AccessKeys>);

#[async_trait]
impl S3Auth for Door {
    async fn get_secret_key(&self, id: &str) -> S3Result<SecretKey> {
        let key = self.0.0.get(id).ok_or_else(|| s3_error!(InvalidAccessKeyId))?;
        Ok(key.secret.clone())
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
        let grant = self.0.grant(&known.access_key, bucket);
        if grant.is_some_and(|grant| grant >= needed(request.s3_op().name())) {
            return Ok(());
        }
        Err(s3_error!(AccessDenied))
    }

    async fn copy_object(&self, request: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        self.0.check(request, source_bucket(&request.input.copy_source)?)
    }

    async fn upload_part_copy(&self, request: &mut S3Request<UploadPartCopyInput>) -> S3Result<()> {
        self.0.check(request, source_bucket(&request.input.copy_source)?)
    }
}

fn source_bucket(source: &CopySource) -> S3Result<&str> {
    match source {
        CopySource::Bucket { bucket, .. } => Ok(bucket),
        _ => Err(s3_error!(NotImplemented)),
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
    use traceless_core::rng::SeededRng;

    #[test]
    fn keys_have_grants() {
        let text = "# remark\n\nalice secret-of-alice\nbob secret-of-bob logs=ro drop=rw # more\n\
            carol secret-of-carol *=ro own=rw\n";
        let keys = AccessKeys::parse(text).unwrap();
        assert_eq!(keys.grant("alice", "any"), Some(Grant::ReadWrite));
        assert_eq!(keys.grant("bob", "logs"), Some(Grant::ReadOnly));
        assert_eq!(keys.grant("bob", "drop"), Some(Grant::ReadWrite));
        assert_eq!((keys.grant("bob", "any"), keys.grant("dave", "any")), (None, None));
        assert_eq!(keys.grant("carol", "own"), Some(Grant::ReadWrite));
        assert_eq!(keys.grant("carol", "any"), Some(Grant::ReadOnly));
        for wrong in [
            "",
            "alice",
            "al secret-of-al",
            "alice short",
            "alice secret-of-a x=y",
            "alice secret-of-a x",
            "a/c secret-of-ac",
            "alice secret-1\nalice secret-2",
        ] {
            assert!(AccessKeys::parse(wrong).is_err(), "{wrong}");
        }
        let drawn = AccessKeys::parse(&AccessKeys::draw(&mut SeededRng::new(1))).unwrap();
        assert_eq!(drawn.0.len(), 1);
    }

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
