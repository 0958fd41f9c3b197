//! Addresses of stores: an engine that is connected to later, and options of URLs.

use crate::client::BackgroundRuntime;
use crate::engine::{Engine, RequestError};
use crate::engine_state::EngineState;
use crate::engine_store::EngineStore;
use crate::names::StoreName;
use crate::retry::{COPY_PATIENCE, ONE_ATTEMPT, PATIENCE, Patience, persist};
use std::sync::Arc;
use std::time::Duration;
use traceless_cloud::gateway::StateLog;
use traceless_cloud::geometry::Geometry;
use traceless_cloud::store::{BoxedStore, OpenStore, Opening};
use traceless_cloud::{Error, Result};
use url::Url;

/// A store in an engine.
pub trait EngineAddress: OpenStore {
    /// Connects once, and fails if the engine cannot be reached or cannot keep a store.
    fn check(&self) -> Result<(), RequestError>;

    /// The same, but waits for an engine that is away or starts, as every request does.
    fn wait(&self) -> Result<(), RequestError>;

    /// A gateway's state at this address, instead of a store, for leases that last so long. Needs
    /// no connection yet.
    fn state_log(&self, lease: Duration) -> Result<Arc<dyn StateLog>>;

    /// Requests of a store at this address fail seconds after its engine goes away: the store is a
    /// second copy, and the first one goes on.
    fn set_as_copy(&mut self);
}

/// The address of an engine that a function connects to.
pub(crate) struct Address<F> {
    engine: F,
    patience: Patience,
}

impl<E, F> Address<F>
where
    E: Engine,
    F: Fn(Geometry) -> Result<E, RequestError> + Send + Sync + 'static,
{
    /// The address, if the function can make an engine, which needs no connection.
    pub(crate) fn boxed(engine: F) -> Result<Box<dyn EngineAddress>, String> {
        engine(SMALLEST).map_err(|failed| failed.message)?;
        Ok(Box::new(Self { engine, patience: PATIENCE }))
    }

    fn check_within(&self, patience: Patience) -> Result<(), RequestError> {
        // A check reads no stripe, so any shape will do.
        let engine = (self.engine)(SMALLEST)?;
        let runtime = BackgroundRuntime::new().map_err(RequestError::lasting)?;
        runtime.get().block_on(persist(patience, || engine.check()))
    }
}

impl<E, F> OpenStore for Address<F>
where
    E: Engine,
    F: Fn(Geometry) -> Result<E, RequestError> + Send + Sync + 'static,
{
    fn open(&self, geometry: Geometry, opening: Opening) -> Result<BoxedStore> {
        let engine = (self.engine)(geometry).map_err(|failed| Error::Engine(failed.message))?;
        let engine = Arc::new(engine);
        EngineStore::open(engine, geometry, opening, self.patience).map(BoxedStore::new)
    }
}

impl<E, F> EngineAddress for Address<F>
where
    E: Engine,
    F: Fn(Geometry) -> Result<E, RequestError> + Send + Sync + 'static,
{
    fn check(&self) -> Result<(), RequestError> {
        self.check_within(ONE_ATTEMPT)
    }

    fn wait(&self) -> Result<(), RequestError> {
        self.check_within(PATIENCE)
    }

    fn state_log(&self, lease: Duration) -> Result<Arc<dyn StateLog>> {
        let engine = (self.engine)(SMALLEST).map_err(|failed| Error::Engine(failed.message))?;
        Ok(Arc::new(EngineState::new(Arc::new(engine), lease)?))
    }

    fn set_as_copy(&mut self) {
        self.patience = COPY_PATIENCE;
    }
}

const SMALLEST: Geometry = Geometry {
    roots: 1,
    arity: 2,
    layers: 1,
    round_slots: 1,
    inner_slots: 1,
    leaf_slots: 1,
    block_len: 32,
    partition: 0,
};

/// Options of a URL that are this program's, as `store=NAME`.
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    /// Takes this program's options from a URL.
    pub(crate) fn take(url: &mut Url) -> Self {
        const NAMES: [&str; 15] = [
            "store",
            "replicas",
            "servers",
            "endpoint",
            "region",
            "sslmode",
            "sslrootcert",
            "sslcert",
            "sslkey",
            "ssl_ca_certs",
            "ssl_certfile",
            "ssl_keyfile",
            "sentinel_username",
            "sentinel_password",
            "sentinel_password_file",
        ];
        let all = url.query_pairs().into_owned();
        let (own, others): (Vec<_>, Vec<_>) =
            all.partition(|(name, _)| NAMES.contains(&name.as_str()));
        url.set_query(None);
        if !others.is_empty() {
            url.query_pairs_mut().extend_pairs(others);
            // Not every reader of URLs takes a plus for a blank.
            let query = url.query().unwrap_or_default().replace('+', "%20");
            url.set_query(Some(&query));
        }
        Self(own)
    }

    /// Adds an option, which a URL has in another place.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// Takes the value of an option.
    pub(crate) fn get(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Takes an option if it has this value.
    #[cfg(feature = "postgres")]
    pub(crate) fn take_if(&mut self, name: &str, value: &str) -> bool {
        let at = self.0.iter().position(|(known, found)| known == name && found == value);
        at.map(|at| self.0.swap_remove(at)).is_some()
    }

    /// Takes the name of a store in an engine that has several.
    pub(crate) fn store(&mut self) -> Result<StoreName, String> {
        self.get("store").map_or(Ok(StoreName::default()), |name| StoreName::parse(&name))
    }

    /// Fails if there is an option that was not taken, as a second one of a name.
    pub(crate) fn end(self) -> Result<(), String> {
        let unknown = |(name, _): &(String, String)| {
            format!("{name}= is no option of this engine, or is given twice")
        };
        self.0.first().map_or(Ok(()), |first| Err(unknown(first)))
    }
}

/// Fails if a URL still has an option of another name: the libraries of some engines ignore what
/// they do not know.
#[cfg(any(feature = "redis", feature = "s3"))]
pub(crate) fn refuse_unknown(url: &Url, known: &[&str]) -> Result<(), String> {
    let other = url.query_pairs().find(|(name, _)| !known.contains(&name.as_ref()));
    other.map_or(Ok(()), |(name, _)| Err(format!("{name}= is no option of this engine")))
}
