//! A primary that sentinels choose: they know which server it is, and put a replica in its place.
//!
//! Each connection begins with a question to all sentinels, and the answer of the newest epoch
//! counts: a sentinel that was cut off knows an older primary. The server must say itself that it
//! is a primary. Once one connection is to another server, connections to the former one are given
//! up, as they are when a server may not write or its replicas are missing.

use super::deployment::{Deployment, connect};
use crate::engine::RequestError;
use crate::retry::PATIENCE;
use crate::tls::TlsFiles;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisError, RedisFuture, RedisResult, Value,
    cmd, pipe,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long sentinels may take for an answer: after it the ones that did are believed.
const SENTINEL_PATIENCE: Duration = Duration::from_secs(1);

/// What a sentinel says of a service that it does not know.
const UNKNOWN_SERVICE: &str = "No such master";

/// A service that sentinels watch.
#[derive(Clone)]
pub struct Sentinels {
    all: Vec<ConnectionInfo>,
    service: String,
    /// Reaches the primary, but for its address.
    server: ConnectionInfo,
    tls: TlsFiles,
    /// Where the last connection was made to.
    primary: Arc<Mutex<Option<ServerAddress>>>,
}

/// Host and port of a server.
type ServerAddress = (String, u16);

/// What a sentinel knows of a service.
struct ServiceState {
    /// Grows with each failover.
    epoch: u64,
    primary: ServerAddress,
}

/// A connection to a primary.
#[derive(Clone)]
pub struct PrimaryConnection {
    connection: MultiplexedConnection,
    address: ServerAddress,
}

impl Sentinels {
    /// The service of this name, which all these sentinels watch. The primary is reached as
    /// `server` says, but at its own address.
    pub fn new(
        all: Vec<ConnectionInfo>,
        service: String,
        server: ConnectionInfo,
        tls: TlsFiles,
    ) -> Self {
        Self { all, service, server, tls, primary: Arc::default() }
    }

    /// The state of the service in the newest epoch that is known to the sentinels that answer
    /// first: more than half of all, or as many as there are in time.
    async fn ask_sentinels(&self) -> Result<ServiceState, RequestError> {
        let end = Instant::now() + SENTINEL_PATIENCE;
        let questions = self.all.iter().map(|sentinel| self.ask_sentinel(sentinel));
        let mut questions: FuturesUnordered<_> = questions.collect();
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        while answers.len() <= self.all.len() / 2 {
            match timeout_at(end, questions.next()).await {
                Ok(Some(Ok(answer))) => answers.push(answer),
                Ok(Some(Err(failed))) => failures.push(failed),
                Ok(None) | Err(_) => break,
            }
        }
        let has_answers = !answers.is_empty();
        let newest = answers.into_iter().flatten().max_by_key(|known| known.epoch);
        newest.ok_or_else(|| {
            if has_answers {
                let service = &self.service;
                return RequestError::lasting(format!("no sentinel knows a service {service}"));
            }
            // A wrong password is a better reason than the silence of the rest.
            let lasting = failures.iter().position(|failed| !failed.is_passing);
            let first = (!failures.is_empty()).then(|| failures.swap_remove(lasting.unwrap_or(0)));
            let failed = first.unwrap_or_else(|| RequestError::passing("no answer"));
            RequestError { message: format!("sentinel: {}", failed.message), ..failed }
        })
    }

    /// What a sentinel knows; nothing if it does not know the service.
    async fn ask_sentinel(
        &self,
        sentinel: &ConnectionInfo,
    ) -> Result<Option<ServiceState>, RequestError> {
        let mut connection = connect(sentinel, &self.tls, SENTINEL_PATIENCE).await?;
        let mut questions = pipe();
        // If the state changes in between, it is newer than its epoch says, which does no harm.
        questions.cmd("SENTINEL").arg("MASTER").arg(&self.service);
        questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answers: RedisResult<(HashMap<String, String>, Option<ServerAddress>)> =
            questions.query_async(&mut connection).await;
        let (state, primary) = match answers {
            Err(error) if is_unknown(&error) => return Ok(None),
            other => other?,
        };
        let epoch = state.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok(primary.map(|primary| ServiceState { epoch, primary }))
    }

    /// The primary that connections are to.
    fn primary(&self) -> Option<ServerAddress> {
        self.primary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn is_unknown(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains(UNKNOWN_SERVICE))
}

impl Deployment for Sentinels {
    type Connection = PrimaryConnection;
    type Primary = ();
    const HAS_SEVERAL_SERVERS: bool = false;

    async fn connect(&self) -> Result<PrimaryConnection, RequestError> {
        let ServiceState { primary, .. } = self.ask_sentinels().await?;
        let (host, port) = primary.clone();
        let addr = match &self.server.addr {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        let info = ConnectionInfo { addr, redis: self.server.redis.clone() };
        let mut connection = connect(&info, &self.tls, PATIENCE.attempt / 2).await?;
        let role: Vec<Value> = cmd("ROLE").query_async(&mut connection).await?;
        if role.first() != Some(&Value::BulkString(b"master".to_vec())) {
            let (host, port) = primary;
            return Err(RequestError::passing(format!("{host}:{port} is no primary yet")));
        }
        *self.primary.lock().unwrap_or_else(PoisonError::into_inner) = Some(primary.clone());
        Ok(PrimaryConnection { connection, address: primary })
    }

    fn is_current(&self, connection: &PrimaryConnection) -> bool {
        self.primary().as_ref() == Some(&connection.address)
    }

    async fn primaries(&self, _: &mut PrimaryConnection) -> RedisResult<Vec<()>> {
        Ok(vec![()])
    }

    async fn ask(
        &self,
        connection: &mut PrimaryConnection,
        (): &(),
        command: &Cmd,
    ) -> RedisResult<Value> {
        connection.req_packed_command(command).await
    }
}

impl ConnectionLike for PrimaryConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.connection.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

#[cfg(test)]
mod tests;
