//! Redis and Valkey: one server, a cluster, or the primary that sentinels choose.
//!
//! | key | value |
//! |---|---|
//! | `{STORE:SUBTREE}:NODE:ATTEMPT:STAGING:STRIPE` | a stripe |
//! | `{STORE}:log` | a hash: `next`, the next position; and the entry of each position |
//! | `{STORE}:checkpoint` | a hash: `position` and `bytes` |
//! | `{STORE}:count` | how often the log was to be changed |
//!
//! Braces surround what decides on which server of a cluster a key lies. A *subtree* is a node of
//! the first layer with many nodes and all nodes below it, so the lower part of a path is on one
//! server. Scripts make a change of the log atomic.

mod deployment;
mod sentinel;
mod service;

use deployment::scan;
pub use deployment::{Cluster, Deployment, Server};

use crate::address::{Address, EngineAddress, Options, refuse_unknown};
use crate::engine::{Engine, RequestError, StripeName, StripeRange};
use crate::link::{Link, Use};
use crate::names::{StoreName, StripeText};
use crate::tls::{TlsFiles, refusal};
use bytes::Bytes;
use futures_util::future::try_join_all;
use redis::{ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, pipe};
use std::collections::{BTreeMap, HashMap};
use traceless_cloud::gateway::{Appended, StoredLog};
use traceless_cloud::geometry::{Geometry, Node};
use url::Url;

/// Large enough for few commands, and small enough that a slot does not wait long behind one.
const STRIPE_LEN_MAX: usize = 256 << 10;
/// Stripes of one request that reads whole nodes.
const STRIPES_AT_ONCE: usize = 16;
/// The first layer with so many nodes has the roots of the subtrees.
const SUBTREES_MIN: u32 = 64;
/// Milliseconds that a replica may take to have a change. Several changes may wait in a row.
const REPLICA_PATIENCE_MS: u64 = 400;

/// Codes of errors that may be over when a command is repeated: memory, replicas, time or a primary
/// are missing, or a slot moves from one server to another.
const PASSING: [&str; 12] = [
    "UNBLOCKED",
    "MISCONF",
    "OOM",
    "NOREPLICAS",
    "BUSY",
    "MASTERDOWN",
    "LOADING",
    "READONLY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MOVED",
    "ASK",
];

/// The errors of a server after which another server may be the primary.
const OF_PRIMARY: [&str; 5] = ["UNBLOCKED", "NOREPLICAS", "MASTERDOWN", "LOADING", "READONLY"];

/// What connections say of passwords and certificates that are refused.
const REFUSALS: [&str; 3] = ["WRONGPASS", "NOAUTH", "invalid peer certificate"];

/// Options for roots, the client's certificate and its key, as clients in Python name them.
const TLS_OPTIONS: [&str; 3] = ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"];

/// Takes a position of the log. Returns nothing if it was free, and else its entry. It always
/// writes something: a server that may not write must not answer, and WAIT waits for this
/// connection's writes alone.
const APPEND: &str = "
    redis.call('INCR', KEYS[2])
    if tonumber(redis.call('HGET', KEYS[1], 'next') or '1') ~= tonumber(ARGV[1]) then
        return redis.call('HGET', KEYS[1], ARGV[1]) or ''
    end
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], 'next', ARGV[3])
    return false";

/// Replaces the checkpoint by a newer one, and removes the entries that it includes.
const REPLACE: &str = "
    redis.call('INCR', KEYS[3])
    local position = tonumber(ARGV[1])
    if tonumber(redis.call('HGET', KEYS[2], 'position') or '0') >= position then
        return 0
    end
    redis.call('HSET', KEYS[2], 'position', ARGV[1], 'bytes', ARGV[2])
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
        if field ~= 'next' and tonumber(field) <= position then
            redis.call('HDEL', KEYS[1], field)
        end
    end
    return 1";

/// Reads checkpoint and log at one moment.
const LOAD: &str = "
    local position, bytes = unpack(redis.call('HMGET', KEYS[2], 'position', 'bytes'))
    return {position, bytes, redis.call('HGETALL', KEYS[1])}";

/// The position and bytes of a checkpoint, and the fields of a log.
type LoadedLog = (Option<u64>, Option<Vec<u8>>, HashMap<String, Vec<u8>>);

/// A store in Redis.
pub struct RedisEngine<D: Deployment> {
    deployment: D,
    store: StoreName,
    geometry: Geometry,
    /// How many replicas must have a change before it counts as durable.
    replicas: u32,
    /// For slots and names.
    small: Link<D::Connection>,
    /// For the log, which may wait for replicas.
    log: Link<D::Connection>,
    /// For whole stripes, which slots should not wait for.
    large: Link<D::Connection>,
}

impl<D: Deployment> RedisEngine<D> {
    /// The store of a tree of this shape. Changes wait until so many replicas have them.
    pub fn new(deployment: D, store: StoreName, geometry: Geometry, replicas: u32) -> Self {
        let (small, log, large) = (Link::default(), Link::default(), Link::default());
        Self { deployment, store, geometry, replicas, small, log, large }
    }

    /// A setting of the server, if it may be known: many services do not let their users ask.
    async fn setting(&self, name: &str) -> Option<String> {
        let mut command = pipe();
        command.cmd("CONFIG").arg("GET").arg(name);
        let found = self.query::<(HashMap<String, String>,)>(&self.small, &command).await;
        found.ok().and_then(|(mut found,)| found.remove(name))
    }

    async fn query<T: FromRedisValue>(
        &self,
        link: &Link<D::Connection>,
        commands: &Pipeline,
    ) -> Result<T, RequestError> {
        self.on(link, async |mut connection| commands.query_async(&mut connection).await).await
    }

    /// Carries out commands one by one: while a subtree moves to another server, each of its keys
    /// is on one of both, and only a single command is sent on to the right one.
    async fn query_singly<T: FromRedisValue + Send>(
        &self,
        link: &Link<D::Connection>,
        commands: &Pipeline,
    ) -> Result<Vec<T>, RequestError> {
        let mut all = Vec::with_capacity(commands.len());
        // One after the other: what lets a server answer for a slot that moves is said before each
        // command, and holds for the next one on the connection.
        for command in commands.cmd_iter() {
            let done =
                self.on(link, async |mut connection| command.query_async(&mut connection).await);
            all.push(done.await?);
        }
        Ok(all)
    }

    /// Does some work on a connection.
    async fn on<T>(
        &self,
        link: &Link<D::Connection>,
        work: impl AsyncFnOnce(D::Connection) -> RedisResult<T>,
    ) -> Result<T, RequestError> {
        let used = self.linked(link).await?;
        let done = work(used.connection().clone()).await;
        used.end(done.as_ref().err().is_none_or(is_of_command));
        Ok(done?)
    }

    /// A connection to a server that has the keys.
    async fn linked(&self, link: &Link<D::Connection>) -> Result<Use<D::Connection>, RequestError> {
        let used = link.get(|| self.deployment.connect()).await?;
        if self.deployment.is_current(used.connection()) {
            return Ok(used);
        }
        used.end(false);
        link.get(|| self.deployment.connect()).await
    }

    /// Carries out a command that changes something, and waits for the replicas.
    async fn change<T: FromRedisValue>(
        &self,
        link: &Link<D::Connection>,
        mut command: Pipeline,
    ) -> Result<T, RequestError> {
        if self.replicas == 0 {
            return self.query::<(T,)>(link, &command).await.map(|(done,)| done);
        }
        command.cmd("WAIT").arg(self.replicas).arg(REPLICA_PATIENCE_MS);
        let used = self.linked(link).await?;
        let done = command.query_async::<(T, u32)>(&mut used.connection().clone()).await;
        // A server without replicas may have lost its place to one of them.
        used.end(match &done {
            Ok((_, reached)) => *reached >= self.replicas,
            Err(failed) => is_of_command(failed),
        });
        let (done, reached) = done?;
        if reached < self.replicas {
            let message = format!("{reached} of {} replicas have a change", self.replicas);
            return Err(RequestError::passing(message));
        }
        Ok(done)
    }

    /// Reads ranges that lie on one server.
    async fn read_part(
        &self,
        link: &Link<D::Connection>,
        ranges: &[(usize, &StripeRange)],
    ) -> Result<Vec<(usize, Option<Bytes>)>, RequestError> {
        let mut commands = pipe();
        for (_, range) in ranges {
            let last = range.at + range.len - 1;
            commands.cmd("GETRANGE").arg(self.key(range.name)).arg(range.at).arg(last);
        }
        let found: Vec<Vec<u8>> = match self.query(link, &commands).await {
            Err(_) if D::HAS_SEVERAL_SERVERS => self.query_singly(link, &commands).await?,
            other => other?,
        };
        // A missing key reads as one without bytes.
        let some = |bytes: Vec<u8>| (!bytes.is_empty()).then(|| Bytes::from(bytes));
        Ok(ranges.iter().map(|(number, _)| *number).zip(found.into_iter().map(some)).collect())
    }

    fn key(&self, name: StripeName) -> String {
        let subtree = subtree(&self.geometry, name.value.version.node).0;
        let stripe = StripeText { name, separator: ':' };
        format!("{{{}:{subtree:x}}}:{stripe}", self.store.as_str())
    }

    fn log_key(&self) -> String {
        format!("{{{}}}:log", self.store.as_str())
    }

    fn count_key(&self) -> String {
        format!("{{{}}}:count", self.store.as_str())
    }

    fn checkpoint_key(&self) -> String {
        format!("{{{}}}:checkpoint", self.store.as_str())
    }
}

impl<D: Deployment> Engine for RedisEngine<D> {
    fn stripe_len_max(&self) -> usize {
        STRIPE_LEN_MAX
    }

    async fn check(&self) -> Result<(), RequestError> {
        self.load().await?;
        let policy = self.setting("maxmemory-policy").await;
        if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
            return Err(RequestError::lasting(format!(
                "this Redis forgets values when its memory is full (maxmemory-policy {policy}): \
                 use one with noeviction"
            )));
        }
        if self.setting("appendonly").await.is_some_and(|value| value == "no") {
            tracing::warn!("this Redis keeps the tree in memory (appendonly no): its end loses it");
        }
        Ok(())
    }

    async fn read(&self, ranges: &[StripeRange]) -> Result<Vec<Option<Bytes>>, RequestError> {
        let total: usize = ranges.iter().map(|range| range.len).sum();
        let (link, most) = if total > STRIPE_LEN_MAX {
            (&self.large, STRIPES_AT_ONCE)
        } else {
            (&self.small, ranges.len())
        };
        // One server answers for all subtrees at once.
        let mut subtrees: BTreeMap<Option<Node>, Vec<(usize, &StripeRange)>> = BTreeMap::new();
        for (number, range) in ranges.iter().enumerate() {
            let subtree = subtree(&self.geometry, range.name.value.version.node);
            let subtree = D::HAS_SEVERAL_SERVERS.then_some(subtree);
            subtrees.entry(subtree).or_default().push((number, range));
        }
        let parts = subtrees.values().flat_map(|ranges| ranges.chunks(most.max(1)));
        let parts = try_join_all(parts.map(|part| self.read_part(link, part))).await?;
        let mut found = vec![None; ranges.len()];
        for (number, bytes) in parts.into_iter().flatten() {
            found[number] = bytes;
        }
        Ok(found)
    }

    async fn write(&self, name: StripeName, bytes: Bytes) -> Result<(), RequestError> {
        let mut command = pipe();
        command.cmd("SET").arg(self.key(name)).arg(&bytes[..]);
        self.change(&self.large, command).await
    }

    async fn remove(&self, names: &[StripeName]) -> Result<(), RequestError> {
        let mut subtrees: HashMap<Node, Pipeline> = HashMap::new();
        for &name in names {
            let subtree = subtree(&self.geometry, name.value.version.node);
            // Memory is released by another thread of the server.
            subtrees.entry(subtree).or_default().cmd("UNLINK").arg(self.key(name));
        }
        let all = subtrees.values().map(|commands| async {
            let removed: Result<Vec<u64>, _> = self.query(&self.large, commands).await;
            match removed {
                Err(_) if D::HAS_SEVERAL_SERVERS => {
                    self.query_singly::<u64>(&self.large, commands).await.map(drop)
                }
                other => other.map(drop),
            }
        });
        try_join_all(all).await.map(drop)
    }

    async fn list(&self) -> Result<Vec<StripeName>, RequestError> {
        let begin = format!("{{{}:", self.store.as_str());
        let pattern = format!("{begin}*");
        let found = self
            .on(&self.large, async |connection| scan(&self.deployment, connection, &pattern).await);
        let found = found.await?;
        let name = |key: String| StripeText::parse(key.split_once("}:")?.1, ':');
        Ok(found.into_iter().filter_map(name).collect())
    }

    async fn append(&self, position: u64, entry: Bytes) -> Result<Appended, RequestError> {
        let mut command = pipe();
        command.cmd("EVAL").arg(APPEND).arg(2).arg(self.log_key()).arg(self.count_key());
        command.arg(position).arg(&entry[..]).arg(position + 1);
        let found: Option<Vec<u8>> = self.change(&self.log, command).await?;
        Ok(match found {
            None => Appended::Done,
            Some(entry) if entry.is_empty() => Appended::Taken(None),
            Some(entry) => Appended::Taken(Some(entry.into())),
        })
    }

    async fn entry(&self, position: u64) -> Result<Option<Bytes>, RequestError> {
        let mut command = pipe();
        command.cmd("HGET").arg(self.log_key()).arg(position);
        let (found,): (Option<Vec<u8>>,) = self.query(&self.log, &command).await?;
        Ok(found.map(Bytes::from))
    }

    async fn included(&self) -> Result<u64, RequestError> {
        let mut command = pipe();
        command.cmd("HGET").arg(self.checkpoint_key()).arg("position");
        let (found,): (Option<u64>,) = self.query(&self.log, &command).await?;
        Ok(found.unwrap_or(0))
    }

    async fn load(&self) -> Result<StoredLog, RequestError> {
        let mut command = pipe();
        command.cmd("EVAL").arg(LOAD).arg(2).arg(self.log_key()).arg(self.checkpoint_key());
        let ((position, bytes, log),): (LoadedLog,) = self.query(&self.log, &command).await?;
        let checkpoint = position.zip(bytes.map(Bytes::from));
        let entry = |(field, bytes): (String, Vec<u8>)| Some((field.parse().ok()?, bytes.into()));
        Ok(StoredLog { checkpoint, entries: log.into_iter().filter_map(entry).collect() })
    }

    async fn checkpoint(&self, position: u64, bytes: Bytes) -> Result<(), RequestError> {
        let mut command = pipe();
        command.cmd("EVAL").arg(REPLACE).arg(3).arg(self.log_key()).arg(self.checkpoint_key());
        command.arg(self.count_key()).arg(position).arg(&bytes[..]);
        self.change::<u32>(&self.log, command).await.map(drop)
    }
}

/// The store of this URL.
pub(crate) fn address(url: &Url, mut options: Options) -> Result<Box<dyn EngineAddress>, String> {
    refuse_unknown(url, &["protocol"])?;
    let store = options.store()?;
    let replicas = options.get("replicas").map(|number| number.parse());
    let replicas = replicas.transpose().map_err(|_| "replicas= is a number")?.unwrap_or(0);
    let tls = TlsFiles::take(&mut options, TLS_OPTIONS)?;
    if !tls.is_empty() && !url.scheme().starts_with("rediss") {
        return Err("TLS and its files are of rediss: URLs".to_owned());
    }
    if url.scheme().ends_with("+sentinel") {
        let service = service::of_url(url, &mut options, tls)?;
        options.end()?;
        return Address::boxed(move |geometry| {
            Ok(RedisEngine::new(service.clone(), store.clone(), geometry, replicas))
        });
    }
    if url.scheme().ends_with("+cluster") {
        let servers = service::servers(url, &mut options, None)?;
        options.end()?;
        return Address::boxed(move |geometry| {
            let cluster = Cluster::new(servers.clone(), tls.clone())?;
            Ok(RedisEngine::new(cluster, store.clone(), geometry, replicas))
        });
    }
    options.end()?;
    let server = url.to_string();
    Address::boxed(move |geometry| {
        let server = Server::new(&server, tls.clone())?;
        Ok(RedisEngine::new(server, store.clone(), geometry, replicas))
    })
}

/// The root of the subtree with this node.
fn subtree(g: &Geometry, node: Node) -> Node {
    let roots = (0..g.layers).find(|&layer| g.width(layer) >= SUBTREES_MIN);
    let (layer, roots) = (g.layer_of(node), roots.unwrap_or(g.layers - 1));
    if layer <= roots {
        return node;
    }
    // The nodes of a path have equal numbers in their layers, modulo the width of the layer above.
    g.node(roots, node.0 - g.node(layer, 0).0)
}

/// Whether the error is of one command, so that the connection can serve further ones.
fn is_of_command(error: &RedisError) -> bool {
    let Some(code) = error.code() else { return false };
    !OF_PRIMARY.contains(&code) && !is_demoted(error)
}

/// Whether the server has become a replica of another one. Scripts hide the code in their message.
fn is_demoted(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    error.code() == Some("READONLY")
        || detail.contains("READONLY")
        || detail.contains("WAIT cannot be used with replica")
}

impl From<RedisError> for RequestError {
    fn from(error: RedisError) -> Self {
        if let Some(refused) = refusal(&error) {
            return refused;
        }
        if let Some(code) = error.code() {
            let message = format!("{code} {}", error.detail().unwrap_or_default());
            let is_passing = PASSING.contains(&code) || is_demoted(&error);
            return Self { message, is_passing };
        }
        let is_lasting = match error.kind() {
            ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => true,
            ErrorKind::IoError | ErrorKind::ClusterConnectionNotFound => false,
            _ => error.is_unrecoverable_error(),
        };
        let message = error.to_string();
        // A cluster's connection reports these as failed connections.
        let is_refused = REFUSALS.iter().any(|text| message.contains(text));
        Self { message, is_passing: !is_lasting && !is_refused }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
