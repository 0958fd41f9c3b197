//! One server, or a cluster of them.

use crate::engine::RequestError;
use crate::retry::PATIENCE;
use crate::tls::{TlsContents, TlsFiles};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo as _, RedisResult, TlsCertificates, Value, cmd, from_redis_value,
};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use url::Url;

/// Keys that a server looks at for one answer to SCAN.
const SCAN_COUNT: usize = 1000;

/// How Redis is deployed.
pub trait Deployment: Send + Sync + 'static {
    /// A connection that many requests share.
    type Connection: ConnectionLike + Clone + Send + Sync + 'static;
    /// Identifies a server that has keys.
    type Primary: Send + Sync;
    /// Whether keys of different subtrees may lie on different servers.
    const HAS_SEVERAL_SERVERS: bool;

    /// Connects.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, RequestError>> + Send;

    /// Whether a connection is to a server that has keys, as far as is known.
    fn is_current(&self, _: &Self::Connection) -> bool {
        true
    }

    /// The servers that have keys, without duplicates.
    fn primaries(
        &self,
        connection: &mut Self::Connection,
    ) -> impl Future<Output = RedisResult<Vec<Self::Primary>>> + Send;

    /// The answer of one of these servers to a command.
    fn ask(
        &self,
        connection: &mut Self::Connection,
        primary: &Self::Primary,
        command: &Cmd,
    ) -> impl Future<Output = RedisResult<Value>> + Send;
}

/// All keys of a pattern.
pub async fn scan<D: Deployment>(
    deployment: &D,
    mut connection: D::Connection,
    pattern: &str,
) -> RedisResult<Vec<String>> {
    let mut keys = Vec::new();
    for primary in deployment.primaries(&mut connection).await? {
        let mut cursor = 0_u64;
        loop {
            let mut command = cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
            let answer = deployment.ask(&mut connection, &primary, &command).await?;
            let found: Vec<String>;
            (cursor, found) = from_redis_value(&answer)?;
            keys.extend(found);
            if cursor == 0 {
                break;
            }
        }
    }
    Ok(keys)
}

/// A client of a server, which reads the files of TLS if the server is reached by it.
fn client(server: &ConnectionInfo, tls: &TlsFiles) -> Result<Client, RequestError> {
    if matches!(server.addr, ConnectionAddr::TcpTls { .. }) {
        return Ok(Client::build_with_tls(server.clone(), certificates(tls)?)?);
    }
    Ok(Client::open(server.clone())?)
}

/// Connects to a server in this time.
pub async fn connect(
    server: &ConnectionInfo,
    tls: &TlsFiles,
    patience: Duration,
) -> Result<MultiplexedConnection, RequestError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(patience);
    Ok(client(server, tls)?.get_multiplexed_async_connection_with_config(&config).await?)
}

fn certificates(tls: &TlsFiles) -> Result<TlsCertificates, RequestError> {
    let TlsContents { roots, identity } = tls.read_again()?;
    let client_tls = identity.map(|(client_cert, key)| {
        let client_key = key.to_vec();
        ClientTlsConfig { client_cert, client_key }
    });
    Ok(TlsCertificates { client_tls, root_cert: roots })
}

/// One server.
pub struct Server {
    info: ConnectionInfo,
    tls: TlsFiles,
}

/// A cluster.
pub struct Cluster {
    /// A server, for its scheme and password.
    first: Url,
    /// Servers that were in the cluster when it was last looked at, and the ones of the URL.
    servers: Mutex<Vec<Url>>,
    tls: TlsFiles,
}

impl Server {
    /// The server of a URL of the form `redis://` or `rediss://`, and files for the latter.
    pub fn new(url: &str, tls: TlsFiles) -> RedisResult<Self> {
        Ok(Self { info: url.into_connection_info()?, tls })
    }
}

impl Cluster {
    /// The cluster with these servers, of which one must answer when the host starts.
    pub fn new(servers: Vec<Url>, tls: TlsFiles) -> Result<Self, RequestError> {
        let missing = || RequestError::lasting("a cluster has a server");
        let first = servers.first().cloned().ok_or_else(missing)?;
        let cluster = Self { first, servers: Mutex::new(servers), tls };
        cluster.client()?;
        Ok(cluster)
    }

    fn client(&self) -> Result<ClusterClient, RequestError> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = servers.iter().map(|url| url.as_str().into_connection_info());
        let builder = ClusterClientBuilder::new(servers.collect::<RedisResult<Vec<_>>>()?);
        // Waiting and repeating is the caller's, with one deadline. The library repeats a command
        // that another server has the slot of, and may have to do so more than once.
        let builder = builder.retries(5).min_retry_wait(20).max_retry_wait(200);
        let mut builder = builder.response_timeout(PATIENCE.attempt);
        if self.first.scheme() == "rediss" {
            builder = builder.certs(certificates(&self.tls)?);
        }
        Ok(builder.connection_timeout(PATIENCE.attempt / 2).build()?)
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
    type Primary = ();
    const HAS_SEVERAL_SERVERS: bool = false;

    async fn connect(&self) -> Result<MultiplexedConnection, RequestError> {
        connect(&self.info, &self.tls, PATIENCE.attempt / 2).await
    }

    async fn primaries(&self, _: &mut MultiplexedConnection) -> RedisResult<Vec<()>> {
        Ok(vec![()])
    }

    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        (): &(),
        command: &Cmd,
    ) -> RedisResult<Value> {
        connection.req_packed_command(command).await
    }
}

impl Deployment for Cluster {
    type Connection = ClusterConnection;
    /// Host and port.
    type Primary = (String, u16);
    const HAS_SEVERAL_SERVERS: bool = true;

    async fn connect(&self) -> Result<ClusterConnection, RequestError> {
        let mut connection = self.client()?.get_async_connection().await?;
        // Without it the cluster is reached by the servers that are known.
        let _ = self.remember(&mut connection).await;
        Ok(connection)
    }

    async fn primaries(
        &self,
        connection: &mut ClusterConnection,
    ) -> RedisResult<Vec<(String, u16)>> {
        servers(connection, 1).await
    }

    async fn ask(
        &self,
        connection: &mut ClusterConnection,
        (host, port): &(String, u16),
        command: &Cmd,
    ) -> RedisResult<Value> {
        let server = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port };
        connection.route_command(command, RoutingInfo::SingleNode(server)).await
    }
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
