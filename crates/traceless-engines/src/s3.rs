//! Any store that speaks S3.
//!
//! | object, below the store's prefix | content |
//! |---|---|
//! | `nodes/NODE-ATTEMPT-STAGING-0` | a version of a node |
//! | `log/POSITION` | an entry of the log |
//! | `checkpoints/POSITION` | a checkpoint |
//!
//! A node is one object, because requests are dear and bytes are cheap. The server must refuse to
//! replace an object if the request says `If-None-Match: *`: this decides which host has the store.

use crate::address::{Address, EngineAddress, Options, refuse_unknown};
use crate::engine::{Engine, RequestError, StripeName, StripeRange};
use crate::names::StripeText;
use crate::retry::PATIENCE;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
    RetryConfig,
};
use traceless_cloud::gateway::{Appended, StoredLog};
use traceless_core::rng::{Rng as _, System};
use url::Url;

/// Ranges that are read, or entries that are loaded, at once.
const READS_MAX: usize = 64;
/// The statuses of replies to requests that will never be carried out.
const LASTING: [&str; 5] = ["400", "401", "403", "404", "405"];
/// Codes of errors with one of these statuses that may be over when the request is repeated.
const PASSING: [&str; 2] = ["RequestTimeout", "RequestTimeTooSkewed"];
/// Digits of a position, so that the order of names is the order of positions.
const DIGITS: usize = 20;

/// A store in a bucket.
pub struct S3Engine {
    client: AmazonS3,
    /// `nodes`, `log` and `checkpoints` below the store's prefix.
    nodes: Path,
    log: Path,
    checkpoints: Path,
    prefix: Path,
}

/// The address of a bucket, and the credentials for it. What is missing here comes from variables
/// of the environment as `AWS_ACCESS_KEY_ID`, or from the machine's role.
#[derive(Clone, Default)]
pub struct Bucket {
    /// The bucket's name.
    pub name: String,
    /// The URL of the server; without it, of Amazon.
    pub endpoint: Option<String>,
    /// The server's region.
    pub region: Option<String>,
    /// Access key and secret.
    pub keys: Option<(String, String)>,
}

impl S3Engine {
    /// The store with a prefix in a bucket.
    pub fn new(bucket: &Bucket, prefix: &str) -> Result<Self, RequestError> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&bucket.name);
        if let Some(endpoint) = &bucket.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &bucket.region {
            builder = builder.with_region(region);
        }
        if let Some((key, secret)) = &bucket.keys {
            builder = builder.with_access_key_id(key).with_secret_access_key(secret);
        }
        let options = ClientOptions::new().with_connect_timeout(PATIENCE.attempt);
        // Slots are sealed, and signatures cover requests: TLS is up to the endpoint's URL.
        let options = options.with_timeout_disabled().with_allow_http(true);
        // Waiting and repeating is the caller's, with one deadline.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let builder = builder.with_client_options(options);
        let client = builder.with_retry(retry).build().map_err(RequestError::lasting)?;
        let prefix = Path::from_url_path(prefix).map_err(RequestError::lasting)?;
        let [nodes, log, checkpoints] =
            ["nodes", "log", "checkpoints"].map(|part| prefix.clone().join(part));
        Ok(Self { client, nodes, log, checkpoints, prefix })
    }

    /// Creates an object, unless there is one.
    async fn create(&self, path: &Path, bytes: Bytes) -> Result<bool, RequestError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.client.put_opts(path, PutPayload::from(bytes), options).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    async fn read_one(&self, range: &StripeRange) -> Result<Option<Bytes>, RequestError> {
        let path = self.node(range.name);
        let (at, end) = (range.at as u64, (range.at + range.len) as u64);
        match self.client.get_range(&path, at..end).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(failed) => match self.client.head(&path).await {
                // An object that was cut off ends before the range does.
                Ok(object) if object.size < end => Ok(None),
                _ => Err(failed.into()),
            },
        }
    }

    /// An object's bytes, if there is one.
    async fn get(&self, path: &Path) -> Result<Option<Bytes>, RequestError> {
        match self.client.get(path).await {
            Ok(found) => Ok(Some(found.bytes().await?)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// The positions with objects in `folder`, after one.
    async fn positions(&self, folder: &Path, after: u64) -> Result<Vec<u64>, RequestError> {
        let listed = self.client.list_with_offset(Some(folder), &numbered(folder, after));
        let listed = listed.try_filter_map(|object| async move {
            Ok(object.location.filename().and_then(|name| name.parse::<u64>().ok()))
        });
        let mut positions: Vec<u64> = listed.try_collect().await?;
        positions.sort_unstable();
        Ok(positions)
    }

    /// Removes objects, as far as they exist.
    async fn delete(&self, paths: Vec<Path>) -> Result<(), RequestError> {
        let mut deleted = self.client.delete_stream(stream::iter(paths).map(Ok).boxed());
        while let Some(done) = deleted.next().await {
            match done {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    }

    fn node(&self, name: StripeName) -> Path {
        self.nodes.clone().join(StripeText { name, separator: '-' }.to_string())
    }
}

impl Engine for S3Engine {
    fn stripe_len_max(&self) -> usize {
        usize::MAX
    }

    async fn check(&self) -> Result<(), RequestError> {
        // A server that replaces an object in spite of If-None-Match is refused.
        let mut number = [0; 8];
        System.fill(&mut number);
        let number = u64::from_le_bytes(number);
        let probe = self.prefix.clone().join(format!("probe-{number:016x}"));
        self.create(&probe, Bytes::from_static(b"1")).await?;
        let again = self.create(&probe, Bytes::from_static(b"2")).await;
        // What remains of a failed check disturbs nothing.
        let _ = self.client.delete(&probe).await;
        if again? {
            let message =
                "this server ignores If-None-Match, so that two hosts could write at once";
            return Err(RequestError::lasting(message));
        }
        Ok(())
    }

    async fn read(&self, ranges: &[StripeRange]) -> Result<Vec<Option<Bytes>>, RequestError> {
        let reads: Vec<_> = ranges.iter().map(|range| self.read_one(range)).collect();
        stream::iter(reads).buffered(READS_MAX).try_collect().await
    }

    async fn write(&self, name: StripeName, bytes: Bytes) -> Result<(), RequestError> {
        self.client.put(&self.node(name), bytes.into()).await?;
        Ok(())
    }

    async fn remove(&self, names: &[StripeName]) -> Result<(), RequestError> {
        self.delete(names.iter().map(|name| self.node(*name)).collect()).await
    }

    async fn list(&self) -> Result<Vec<StripeName>, RequestError> {
        let listed = self.client.list(Some(&self.nodes)).try_filter_map(|object| async move {
            Ok(object.location.filename().and_then(|name| StripeText::parse(name, '-')))
        });
        Ok(listed.try_collect().await?)
    }

    async fn append(&self, position: u64, entry: Bytes) -> Result<Appended, RequestError> {
        let path = numbered(&self.log, position);
        let is_created = self.create(&path, entry).await?;
        // A checkpoint is stored before the entries that it includes are removed. So if the
        // position was free because its entry was removed, the checkpoint is there now.
        let included = self.positions(&self.checkpoints, position.saturating_sub(1)).await?;
        match (is_created, included.is_empty()) {
            (true, true) => Ok(Appended::Done),
            (false, true) => match self.get(&path).await? {
                Some(found) => Ok(Appended::Taken(Some(found))),
                // Another request for the same object is under way, as an earlier one of this host.
                None => Err(RequestError::passing("a conflict of conditional requests")),
            },
            // The object has no meaning, whichever request made it.
            (_, false) => {
                let _ = self.delete(vec![path]).await;
                Ok(Appended::Taken(None))
            }
        }
    }

    async fn entry(&self, position: u64) -> Result<Option<Bytes>, RequestError> {
        self.get(&numbered(&self.log, position)).await
    }

    async fn included(&self) -> Result<u64, RequestError> {
        Ok(self.positions(&self.checkpoints, 0).await?.pop().unwrap_or(0))
    }

    async fn load(&self) -> Result<StoredLog, RequestError> {
        let newest = self.positions(&self.checkpoints, 0).await?.pop();
        // Another host may replace it meanwhile. Then the log is loaded again.
        let gone = || RequestError::passing("the log was shortened meanwhile");
        let checkpoint = match newest {
            None => None,
            Some(position) => {
                let bytes = self.get(&numbered(&self.checkpoints, position)).await?;
                Some((position, bytes.ok_or_else(gone)?))
            }
        };
        let positions = self.positions(&self.log, newest.unwrap_or(0)).await?;
        let entries = positions.into_iter().map(|position| async move {
            let bytes = self.get(&numbered(&self.log, position)).await?;
            Ok::<_, RequestError>((position, bytes.ok_or_else(gone)?))
        });
        let entries: Vec<_> = entries.collect();
        let entries = stream::iter(entries).buffered(READS_MAX).try_collect().await?;
        // Entries that a newer checkpoint includes may have been removed before they were listed.
        if !self.positions(&self.checkpoints, newest.unwrap_or(0)).await?.is_empty() {
            return Err(gone());
        }
        Ok(StoredLog { checkpoint, entries })
    }

    async fn checkpoint(&self, position: u64, bytes: Bytes) -> Result<(), RequestError> {
        if !self.positions(&self.checkpoints, position).await?.is_empty() {
            return Ok(());
        }
        let path = numbered(&self.checkpoints, position);
        self.client.put(&path, bytes.into()).await?;
        let older = |positions: Vec<u64>, end: u64, folder: &Path| {
            let older = positions.into_iter().filter(move |&position| position < end);
            older.map(|position| numbered(folder, position)).collect::<Vec<Path>>()
        };
        let entries = self.positions(&self.log, 0).await?;
        self.delete(older(entries, position + 1, &self.log)).await?;
        let checkpoints = self.positions(&self.checkpoints, 0).await?;
        self.delete(older(checkpoints, position, &self.checkpoints)).await
    }
}

/// The store of this URL.
pub(crate) fn address(url: &Url, mut options: Options) -> Result<Box<dyn EngineAddress>, String> {
    refuse_unknown(url, &[])?;
    let name = url.host_str().filter(|name| !name.is_empty());
    let name = name.ok_or("s3: has no bucket: s3://BUCKET/PREFIX")?.to_owned();
    if url.password().is_some() || !url.username().is_empty() {
        return Err("the keys of s3: are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".into());
    }
    let (endpoint, region) = (options.get("endpoint"), options.get("region"));
    options.end()?;
    let bucket = Bucket { name, endpoint, region, keys: None };
    let prefix = url.path().trim_matches('/').to_owned();
    Address::boxed(move |_| S3Engine::new(&bucket, &prefix))
}

/// The object of a position.
fn numbered(folder: &Path, position: u64) -> Path {
    folder.clone().join(format!("{position:0DIGITS$}"))
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let is_lasting = match error {
            Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. }
            | Error::NotFound { .. } => true,
            // The library does not give the status of other replies but in its text.
            _ => {
                let has = |status: &&str| message.contains(&format!("status code: {status}"));
                LASTING.iter().any(has) && !PASSING.iter().any(|code| message.contains(code))
            }
        };
        RequestError { message, is_passing: !is_lasting }
    }
}

#[cfg(test)]
mod tests;
