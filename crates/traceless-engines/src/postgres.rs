//! PostgreSQL.
//!
//! The tables are in the schema `traceless`. One statement is one transaction, so each change of
//! the log is atomic; it locks the row with the store's next position.

mod channel_binding;
mod tls;
mod verifier;

use crate::address::{Address, EngineAddress, Options};
use crate::client::AbortedOnDrop;
use crate::engine::{Engine, RequestError, StripeName, StripeRange, ValueName};
use crate::link::Link;
use crate::names::StoreName;
use crate::retry::PATIENCE;
use crate::tls::refusal;
use bytes::Bytes;
use std::time::Duration;
use tls::{ServerTls, TlsOptions, is_on_this_machine};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Socket, Statement};
use traceless_cloud::gateway::{Appended, StoredLog};
use traceless_cloud::geometry::Node;
use traceless_cloud::store::NodeVersion;
use url::Url;
use verifier::Verification;

/// A statement reads a part of a value without the rest, and one of this length is soon written.
const STRIPE_LEN_MAX: usize = 256 << 10;
/// After so long without a packet from the server, the connection is probed.
const SILENCE: Duration = Duration::from_secs(10);

/// Errors that another session may not have: of a server that is no longer the primary one, and of
/// prepared statements that a pool has lost.
const OF_SESSION: [SqlState; 3] = [
    SqlState::READ_ONLY_SQL_TRANSACTION,
    SqlState::INVALID_SQL_STATEMENT_NAME,
    SqlState::FEATURE_NOT_SUPPORTED,
];

/// What the library says of a server that cannot agree with this client on a login.
const DISAGREEMENTS: [&str; 2] = ["authentication error", "invalid configuration"];
/// What the library says of a server that has no TLS.
const NO_TLS: &str = "server does not support TLS";

/// Makes the tables. The lock keeps two hosts from doing it at once.
const SCHEMA: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(7236828379);
    CREATE SCHEMA IF NOT EXISTS traceless;
    CREATE TABLE IF NOT EXISTS traceless.stores (
        store text PRIMARY KEY, next_position bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS traceless.log (
        store text, position bigint, entry bytea NOT NULL, PRIMARY KEY (store, position));
    CREATE TABLE IF NOT EXISTS traceless.checkpoints (
        store text PRIMARY KEY, position bigint NOT NULL, bytes bytea NOT NULL);
    CREATE TABLE IF NOT EXISTS traceless.stripes (
        store text, node bigint, attempt bigint, staging bigint, stripe bigint,
        bytes bytea NOT NULL, PRIMARY KEY (store, node, attempt, staging, stripe));
    ALTER TABLE traceless.stripes ALTER COLUMN bytes SET STORAGE EXTERNAL;
    COMMIT";
const HAS_SCHEMA: &str = "SELECT to_regclass('traceless.stripes') IS NOT NULL";
/// A commit must be on the disk, also if the server's default is weaker. A statement that waits for
/// a lock ends before its attempt does, and any statement ends at last, so that sessions that were
/// given up do not take all the connections of the server.
const SESSION: &str = "
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local');
    SET lock_timeout = '3s';
    SET statement_timeout = '30s'";
const HAS_STORE: &str = "SELECT FROM traceless.stores WHERE store = $1";
const ADD_STORE: &str =
    "INSERT INTO traceless.stores VALUES ($1, 1) ON CONFLICT (store) DO NOTHING";
const READ: &str = "
    SELECT r.number, substr(s.bytes, r.at::int + 1, r.len::int)
    FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
        WITH ORDINALITY AS r(node, attempt, staging, stripe, at, len, number)
    JOIN traceless.stripes s ON s.store = $1 AND s.node = r.node AND s.attempt = r.attempt
        AND s.staging = r.staging AND s.stripe = r.stripe";
const WRITE: &str = "
    INSERT INTO traceless.stripes VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
const REMOVE: &str = "
    DELETE FROM traceless.stripes s
    USING unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        AS r(node, attempt, staging, stripe)
    WHERE s.store = $1 AND s.node = r.node AND s.attempt = r.attempt
        AND s.staging = r.staging AND s.stripe = r.stripe";
const LIST: &str = "SELECT node, attempt, staging, stripe FROM traceless.stripes WHERE store = $1";
const APPEND: &str = "
    WITH taken AS (
        UPDATE traceless.stores SET next_position = next_position + 1
        WHERE store = $1 AND next_position = $2 RETURNING 1)
    INSERT INTO traceless.log SELECT $1, $2, $3 FROM taken";
const ENTRY: &str = "SELECT entry FROM traceless.log WHERE store = $1 AND position = $2";
const INCLUDED: &str = "SELECT position FROM traceless.checkpoints WHERE store = $1";
const LOAD: &str = "
    SELECT true, position, bytes FROM traceless.checkpoints WHERE store = $1
    UNION ALL SELECT false, position, entry FROM traceless.log WHERE store = $1";
const REPLACE: &str = "
    WITH newer AS (
        INSERT INTO traceless.checkpoints AS c VALUES ($1, $2, $3)
        ON CONFLICT (store) DO UPDATE SET position = $2, bytes = $3 WHERE c.position < $2
        RETURNING 1)
    DELETE FROM traceless.log WHERE store = $1 AND position <= $2 AND EXISTS (SELECT FROM newer)";

/// A store in a database.
pub struct PostgresEngine {
    config: Config,
    /// How the server is reached by TLS, if it is.
    tls: Option<ServerTls>,
    /// Whether the server is on another machine.
    is_far: bool,
    store: StoreName,
    /// For slots, the log and names.
    small: Link<Session>,
    /// For whole stripes, which slots should not wait for.
    large: Link<Session>,
}

/// A connection with its prepared statements.
struct Session {
    client: Client,
    read: Statement,
    write: Statement,
    remove: Statement,
    /// Passes bytes, and ends with the session also if the server keeps it waiting.
    _task: ConnectionTask,
}

/// What passes the bytes of a connection.
type ConnectionTask = AbortedOnDrop<Result<(), tokio_postgres::Error>>;

impl PostgresEngine {
    /// The store of a name in the database of a URL of the form `postgres://`, without options of
    /// TLS.
    pub fn new(url: &str, tls: &TlsOptions, store: StoreName) -> Result<Self, RequestError> {
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            RequestError { is_passing: false, ..RequestError::from(error) }
        })?;
        config.connect_timeout(PATIENCE.attempt).tcp_user_timeout(SILENCE);
        config.keepalives_idle(SILENCE).application_name("traceless");
        let (tls, is_far) = (tls.apply(&mut config), !is_on_this_machine(&config));
        Ok(Self { config, tls, is_far, store, small: Link::default(), large: Link::default() })
    }

    /// Connects with these means of TLS.
    async fn open<T>(&self, tls: T) -> Result<(Client, ConnectionTask), tokio_postgres::Error>
    where
        T: MakeTlsConnect<Socket, Stream: Send + 'static>,
    {
        let (client, connection) = self.config.connect(tls).await?;
        Ok((client, AbortedOnDrop(tokio::spawn(connection))))
    }

    async fn connect(&self) -> Result<Session, RequestError> {
        let (client, task) = match &self.tls {
            None => self.open(NoTls).await?,
            Some(tls) => self.open(tls.connector()?).await?,
        };
        if !client.query_one(HAS_SCHEMA, &[]).await?.try_get::<_, bool>(0)? {
            client.batch_execute(SCHEMA).await?;
        }
        client.batch_execute(SESSION).await?;
        // A server that may only be read for now can still be read.
        if client.query_opt(HAS_STORE, &[&self.store.as_str()]).await?.is_none() {
            client.execute(ADD_STORE, &[&self.store.as_str()]).await?;
        }
        let read = client.prepare(READ).await?;
        let write = client.prepare(WRITE).await?;
        let remove = client.prepare(REMOVE).await?;
        Ok(Session { client, read, write, remove, _task: task })
    }

    /// Does some work on a connection.
    async fn on<T>(
        &self,
        link: &Link<Session>,
        work: impl AsyncFnOnce(&Session) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, RequestError> {
        let used = link.get(|| self.connect()).await?;
        let done = work(used.connection()).await;
        let needs_another = |error: &tokio_postgres::Error| {
            error.code().is_some_and(|code| OF_SESSION.contains(code))
        };
        let is_usable = !used.connection().client.is_closed()
            && !done.as_ref().err().is_some_and(needs_another);
        used.end(is_usable);
        Ok(done?)
    }

    async fn execute(
        &self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, RequestError> {
        self.on(&self.small, async |on| on.client.execute(statement, parameters).await).await
    }

    async fn query(
        &self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, RequestError> {
        self.on(&self.small, async |on| on.client.query(statement, parameters).await).await
    }
}

impl Engine for PostgresEngine {
    fn stripe_len_max(&self) -> usize {
        STRIPE_LEN_MAX
    }

    async fn check(&self) -> Result<(), RequestError> {
        self.load().await?;
        let is_unknown = |tls: &ServerTls| tls.verification() == Verification::Key;
        if self.is_far && self.tls.as_ref().is_none_or(is_unknown) {
            tracing::warn!("with this sslmode another server may answer in the place of this one");
        }
        Ok(())
    }

    async fn read(&self, ranges: &[StripeRange]) -> Result<Vec<Option<Bytes>>, RequestError> {
        let names = Columns::of(ranges.iter().map(|range| range.name));
        let number = |number: usize| (number as u64).cast_signed();
        let ats: Vec<i64> = ranges.iter().map(|range| number(range.at)).collect();
        let lens: Vec<i64> = ranges.iter().map(|range| number(range.len)).collect();
        let total: usize = ranges.iter().map(|range| range.len).sum();
        let link = if total > STRIPE_LEN_MAX { &self.large } else { &self.small };
        let (store, Columns { nodes, attempts, stagings, stripes }) = (self.store.as_str(), names);
        let rows = self.on(link, async |on| {
            let all: [&(dyn ToSql + Sync); 7] =
                [&store, &nodes, &attempts, &stagings, &stripes, &ats, &lens];
            on.client.query(&on.read, &all).await
        });
        let mut found = vec![None; ranges.len()];
        for row in rows.await? {
            let number: i64 = row.try_get(0)?;
            let bytes: Vec<u8> = row.try_get(1)?;
            let range = usize::try_from(number - 1).ok().and_then(|at| found.get_mut(at));
            let range =
                range.ok_or_else(|| RequestError::passing("an answer without a question"))?;
            *range = Some(Bytes::from(bytes));
        }
        Ok(found)
    }

    async fn write(&self, name: StripeName, bytes: Bytes) -> Result<(), RequestError> {
        let (store, [node, attempt, staging, stripe]) = (self.store.as_str(), numbers(name));
        let bytes = &bytes[..];
        let written = self.on(&self.large, async |on| {
            on.client
                .execute(&on.write, &[&store, &node, &attempt, &staging, &stripe, &bytes])
                .await
        });
        written.await.map(drop)
    }

    async fn remove(&self, names: &[StripeName]) -> Result<(), RequestError> {
        let store = self.store.as_str();
        let Columns { nodes, attempts, stagings, stripes } = Columns::of(names.iter().copied());
        let removed = self.on(&self.large, async |on| {
            let all: [&(dyn ToSql + Sync); 5] = [&store, &nodes, &attempts, &stagings, &stripes];
            on.client.execute(&on.remove, &all).await
        });
        removed.await.map(drop)
    }

    async fn list(&self) -> Result<Vec<StripeName>, RequestError> {
        let rows = self.query(LIST, &[&self.store.as_str()]).await?;
        Ok(rows.iter().map(name_in).collect::<Result<_, _>>()?)
    }

    async fn append(&self, position: u64, entry: Bytes) -> Result<Appended, RequestError> {
        let store = self.store.as_str();
        if self.execute(APPEND, &[&store, &position.cast_signed(), &&entry[..]]).await? == 1 {
            return Ok(Appended::Done);
        }
        self.entry(position).await.map(Appended::Taken)
    }

    async fn entry(&self, position: u64) -> Result<Option<Bytes>, RequestError> {
        let (store, position) = (self.store.as_str(), position.cast_signed());
        let rows = self.query(ENTRY, &[&store, &position]).await?;
        let found = rows.first().map(|row| row.try_get::<_, Vec<u8>>(0)).transpose();
        Ok(found?.map(Bytes::from))
    }

    async fn included(&self) -> Result<u64, RequestError> {
        let rows = self.query(INCLUDED, &[&self.store.as_str()]).await?;
        let found = rows.first().map(|row| row.try_get::<_, i64>(0)).transpose();
        Ok(found?.map_or(0, i64::cast_unsigned))
    }

    async fn load(&self) -> Result<StoredLog, RequestError> {
        let mut log = StoredLog::default();
        for row in self.query(LOAD, &[&self.store.as_str()]).await? {
            let (position, bytes): (i64, Vec<u8>) = (row.try_get(1)?, row.try_get(2)?);
            let entry = (position.cast_unsigned(), Bytes::from(bytes));
            if row.try_get(0)? {
                log.checkpoint = Some(entry);
            } else {
                log.entries.push(entry);
            }
        }
        Ok(log)
    }

    async fn checkpoint(&self, position: u64, bytes: Bytes) -> Result<(), RequestError> {
        let (store, position) = (self.store.as_str(), position.cast_signed());
        self.execute(REPLACE, &[&store, &position, &&bytes[..]]).await.map(drop)
    }
}

/// The store of this URL.
pub(crate) fn address(url: &Url, mut options: Options) -> Result<Box<dyn EngineAddress>, String> {
    let (store, tls) = (options.store()?, TlsOptions::take(&mut options)?);
    options.end()?;
    let url = url.to_string();
    Address::boxed(move |_| PostgresEngine::new(&url, &tls, store.clone()))
}

/// The numbers of stripes, column by column.
struct Columns {
    nodes: Vec<i64>,
    attempts: Vec<i64>,
    stagings: Vec<i64>,
    stripes: Vec<i64>,
}

impl Columns {
    fn of(names: impl Iterator<Item = StripeName>) -> Self {
        let (mut nodes, mut attempts) = (Vec::new(), Vec::new());
        let (mut stagings, mut stripes) = (Vec::new(), Vec::new());
        for [node, attempt, staging, stripe] in names.map(numbers) {
            nodes.push(node);
            attempts.push(attempt);
            stagings.push(staging);
            stripes.push(stripe);
        }
        Self { nodes, attempts, stagings, stripes }
    }
}

/// Node, attempt, staging and stripe, with the bits of the unsigned numbers.
fn numbers(name: StripeName) -> [i64; 4] {
    let ValueName { version, staging } = name.value;
    let node = i64::from(version.node.0);
    [node, version.attempt.cast_signed(), staging.cast_signed(), i64::from(name.stripe)]
}

fn name_in(row: &Row) -> Result<StripeName, tokio_postgres::Error> {
    let number = |column: usize| row.try_get::<_, i64>(column);
    let (node, attempt) = (Node(number(0)? as u32), number(1)?.cast_unsigned());
    let value =
        ValueName { version: NodeVersion { node, attempt }, staging: number(2)?.cast_unsigned() };
    Ok(StripeName { value, stripe: number(3)? as u32 })
}

impl From<tokio_postgres::Error> for RequestError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(refused) = refusal(&error) {
            return refused;
        }
        let may_pass = match error.code() {
            // Without a code the connection failed, or what was to be agreed on it.
            None => !DISAGREEMENTS.contains(&error.to_string().as_str()),
            // Classes of SQLSTATE: connection, rollback, resources, operator, system.
            Some(code) => {
                OF_SESSION.contains(code)
                    || *code == SqlState::LOCK_NOT_AVAILABLE
                    || ["08", "40", "53", "57", "58"]
                        .iter()
                        .any(|class| code.code().starts_with(class))
            }
        };
        let of_server = error.as_db_error().map(ToString::to_string);
        let source = || std::error::Error::source(&error).map(ToString::to_string);
        let message = of_server.or_else(source).unwrap_or_else(|| error.to_string());
        if message == NO_TLS {
            let advice = "use one that has it, or sslmode=disable on a network of your own";
            return RequestError::lasting(format!("{message}: {advice}"));
        }
        RequestError { message, is_passing: may_pass }
    }
}

#[cfg(test)]
mod tests;
