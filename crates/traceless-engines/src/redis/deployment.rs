//! One server, or a cluster of them.

use crate::retry::PATIENCE;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, IntoConnectionInfo as _, RedisResult, Value,
    cmd, from_redis_value,
};
use std::sync::{Mutex, PoisonError};
use url::Url;

/// Keys that a server looks at for one answer to SCAN.
const SCAN_COUNT: usize = 1000;

/// How Redis is deployed.
pub trait Deployment: Send + Sync + 'static {
    /// A connection that many requests share.
    type Connection: ConnectionLike + Clone + Send + Sync + 'static;
    /// Whether keys of different subtrees may lie on different servers.
    const HAS_SEVERAL_SERVERS: bool;

    /// Connects.
    fn connect(&self) -> impl Future<Output = RedisResult<Self::Connection>> + Send;

    /// All keys of a pattern.
    fn scan(
        &self,
        connection: Self::Connection,
        pattern: &str,
    ) -> impl Future<Output = RedisResult<Vec<String>>> + Send;
}

/// One server.
pub struct Server(Client);

/// A cluster.
pub struct Cluster {
    /// A server, for its scheme and password.
    first: Url,
    /// Servers that were in the cluster when it was last looked at, and the ones of the URL.
    servers: Mutex<Vec<Url>>,
}

impl Server {
    /// The server of a URL of the form `redis://` or `rediss://`.
    pub fn new(url: &str) -> RedisResult<Self> {
        Ok(Self(Client::open(url)?))
    }
}

impl Cluster {
    /// The cluster with these servers, of which one must answer when the host starts.
    pub fn new(servers: Vec<Url>) -> RedisResult<Self> {
        let missing = (ErrorKind::InvalidClientConfig, "a cluster has a server");
        let first = servers.first().cloned().ok_or(missing)?;
        let cluster = Self { first, servers: Mutex::new(servers) };
        cluster.client()?;
        Ok(cluster)
    }

    fn client(&self) -> RedisResult<ClusterClient> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = servers.iter().map(|url| url.as_str().into_connection_info());
        let builder = ClusterClientBuilder::new(servers.collect::<RedisResult<Vec<_>>>()?);
        // Waiting and repeating is the caller's, with one deadline. The library repeats a command
        // that another server has the slot of, and may have to do so more than once.
        let builder = builder.retries(5).min_retry_wait(20).max_retry_wait(200);
        let builder = builder.response_timeout(PATIENCE.attempt);
        builder.connection_timeout(PATIENCE.attempt / 2).build()
    }

    /// Remembers the servers of the cluster, so that later connections do not depend on the ones of
    /// the URL.
    async fn remember(&self, connection: &mut ClusterConnection) -> RedisResult<()> {
        let found = servers(connection, usize::MAX).await?;
        let mut known = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        for (host, port) in found {
            let mut url = self.first.clone();
            let is_set = url.set_host(Some(&host)).is_ok() && url.set_port(Some(port)).is_ok();
            if is_set && !known.contains(&url) {
                known.push(url);
            }
        }
        Ok(())
    }
}

impl Deployment for Server {
    type Connection = MultiplexedConnection;
    const HAS_SEVERAL_SERVERS: bool = false;

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new();
        let config = config.set_connection_timeout(PATIENCE.attempt);
        self.0.get_multiplexed_async_connection_with_config(&config).await
    }

    async fn scan(
        &self,
        mut connection: MultiplexedConnection,
        pattern: &str,
    ) -> RedisResult<Vec<String>> {
        let mut keys = Vec::new();
        let mut cursor = 0;
        loop {
            let answer = connection.req_packed_command(&scan(cursor, pattern)).await?;
            let (next, found): (u64, Vec<String>) = from_redis_value(&answer)?;
            keys.extend(found);
            cursor = next;
            if cursor == 0 {
                return Ok(keys);
            }
        }
    }
}

impl Deployment for Cluster {
    type Connection = ClusterConnection;
    const HAS_SEVERAL_SERVERS: bool = true;

    async fn connect(&self) -> RedisResult<ClusterConnection> {
        let mut connection = self.client()?.get_async_connection().await?;
        // Without it the cluster is reached by the servers that are known.
        let _ = self.remember(&mut connection).await;
        Ok(connection)
    }

    async fn scan(
        &self,
        mut connection: ClusterConnection,
        pattern: &str,
    ) -> RedisResult<Vec<String>> {
        let mut keys = Vec::new();
        for (host, port) in servers(&mut connection, 1).await? {
            let mut cursor = 0;
            loop {
                let server = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port };
                let command = scan(cursor, pattern);
                let answer =
                    connection.route_command(&command, RoutingInfo::SingleNode(server)).await?;
                let (next, found): (u64, Vec<String>) = from_redis_value(&answer)?;
                keys.extend(found);
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(keys)
    }
}

fn scan(cursor: u64, pattern: &str) -> Cmd {
    let mut command = cmd("SCAN");
    command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
    command
}

/// The addresses of servers of each range of slots, without duplicates: the primary first, and then
/// its replicas, at most so many of each.
async fn servers(
    connection: &mut ClusterConnection,
    most: usize,
) -> RedisResult<Vec<(String, u16)>> {
    let ranges: Vec<Vec<Value>> = cmd("CLUSTER").arg("SLOTS").query_async(connection).await?;
    let mut all = Vec::new();
    for range in ranges {
        // The first and the last slot come before the servers.
        for server in range.into_iter().skip(2).take(most) {
            let Some(mut parts) = array(server).filter(|parts| parts.len() >= 2) else {
                return Err((ErrorKind::TypeError, "CLUSTER SLOTS").into());
            };
            let port = from_redis_value(&parts.swap_remove(1))?;
            let address = (from_redis_value(&parts.swap_remove(0))?, port);
            if !all.contains(&address) {
                all.push(address);
            }
        }
    }
    Ok(all)
}

fn array(value: Value) -> Option<Vec<Value>> {
    if let Value::Array(parts) = value { Some(parts) } else { None }
}
