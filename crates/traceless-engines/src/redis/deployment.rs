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
pub struct Cluster(ClusterClient);

impl Server {
    /// The server of a URL of the form `redis://` or `rediss://`.
    pub fn new(url: &str) -> RedisResult<Self> {
        Ok(Self(Client::open(url)?))
    }
}

impl Cluster {
    /// The cluster with the server of a URL of the form `redis://` or `rediss://`.
    pub fn new(url: &str) -> RedisResult<Self> {
        let builder = ClusterClientBuilder::new([url.into_connection_info()?]);
        // Waiting and repeating is the caller's, with one deadline.
        let builder = builder.retries(2).response_timeout(PATIENCE.attempt);
        Ok(Self(builder.connection_timeout(PATIENCE.attempt / 2).build()?))
    }
}

impl Deployment for Server {
    type Connection = MultiplexedConnection;
    const HAS_SEVERAL_SERVERS: bool = false;

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new();
        let config = config.set_connection_timeout(Some(PATIENCE.attempt));
        // The caller's deadline is the only one.
        let config = config.set_response_timeout(None);
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
            let (next, found): (u64, Vec<String>) = from_redis_value(answer)?;
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
        self.0.get_async_connection().await
    }

    async fn scan(
        &self,
        mut connection: ClusterConnection,
        pattern: &str,
    ) -> RedisResult<Vec<String>> {
        let mut keys = Vec::new();
        for (host, port) in primaries(&mut connection).await? {
            let mut cursor = 0;
            loop {
                let server = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port };
                let command = scan(cursor, pattern);
                let answer =
                    connection.route_command(command, RoutingInfo::SingleNode(server)).await?;
                let (next, found): (u64, Vec<String>) = from_redis_value(answer)?;
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

/// The addresses of the servers with slots, without duplicates.
async fn primaries(connection: &mut ClusterConnection) -> RedisResult<Vec<(String, u16)>> {
    let ranges: Vec<Vec<Value>> = cmd("CLUSTER").arg("SLOTS").query_async(connection).await?;
    let mut servers = Vec::new();
    for range in ranges {
        // The first and the last slot, the primary, and its replicas.
        let primary = range.into_iter().nth(2);
        let Some(Value::Array(mut primary)) =
            primary.filter(|primary| matches!(primary, Value::Array(parts) if parts.len() >= 2))
        else {
            return Err((ErrorKind::UnexpectedReturnType, "CLUSTER SLOTS").into());
        };
        let port = from_redis_value(primary.swap_remove(1))?;
        let server = (from_redis_value(primary.swap_remove(0))?, port);
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    Ok(servers)
}
