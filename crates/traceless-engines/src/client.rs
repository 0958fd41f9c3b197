//! Carries requests to an engine out on threads of their own.

use crate::engine::{Engine, RequestError};
use crate::outage::Outage;
use crate::retry::{Patience, persist, persist_observed};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use traceless_cloud::{Error, Result};

/// Threads that wait for an engine and copy its bytes.
const THREADS: usize = 2;

/// An engine and the threads that wait for it.
pub struct EngineClient<E> {
    engine: Arc<E>,
    patience: Patience,
    outage: Arc<Outage>,
    runtime: BackgroundRuntime,
}

impl<E: Engine> EngineClient<E> {
    /// A client of an engine.
    pub fn new(engine: Arc<E>, patience: Patience) -> Result<Self> {
        Ok(Self { engine, patience, outage: Arc::default(), runtime: BackgroundRuntime::new()? })
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Waits for a future on this thread, which must not be one of a runtime.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.get().block_on(work)
    }

    /// Carries out a request that moves so many bytes, again and again until it succeeds or the
    /// patience is at its end. Any thread may wait for the result. If the future is dropped, no
    /// further attempt begins.
    pub async fn request<T, F>(
        &self,
        bytes: usize,
        request: impl Fn(Arc<E>) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RequestError>> + Send + 'static,
    {
        self.begin(self.repeated(bytes, request)).finish().await
    }

    /// The same with one attempt.
    pub async fn once<T, F>(
        &self,
        request: impl Fn(Arc<E>) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RequestError>> + Send + 'static,
    {
        let patience = Patience { total: Duration::ZERO, ..self.patience };
        let engine = self.engine.clone();
        let attempt = async move { persist(patience, || request(engine.clone())).await };
        self.begin(attempt).finish().await
    }

    /// The same as a future for [`Self::begin`].
    pub fn repeated<T, F, R>(
        &self,
        bytes: usize,
        request: R,
    ) -> impl Future<Output = Result<T, RequestError>> + Send + use<T, F, R, E>
    where
        R: Fn(Arc<E>) -> F + Send + Sync + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T, RequestError>> + Send + 'static,
    {
        let (engine, patience) = (self.engine.clone(), self.patience.for_bytes(bytes));
        let outage = self.outage.clone();
        async move {
            let observe = |failed: Option<&RequestError>| outage.observe(failed);
            persist_observed(patience, || request(engine.clone()), observe).await
        }
    }

    /// Begins work, which goes on whether it is waited for or not.
    pub fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, RequestError>> + Send + 'static,
    ) -> WorkUnderWay<T> {
        WorkUnderWay(AbortedOnDrop(self.runtime.get().spawn(work)))
    }

    /// Does some work in the background.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.get().spawn(work);
    }

    /// The engine and the patience, for work in the background.
    pub fn parts(&self) -> (Arc<E>, Patience) {
        (self.engine.clone(), self.patience)
    }
}

/// Work for an engine, which ends when this is dropped.
pub struct WorkUnderWay<T>(AbortedOnDrop<Result<T, RequestError>>);

impl<T> WorkUnderWay<T> {
    /// Waits for the result. Any thread may wait.
    pub async fn finish(mut self) -> Result<T> {
        match (&mut self.0.0).await {
            Ok(done) => done.map_err(|failed| Error::Engine(failed.message)),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => Err(Error::Engine("it was closed".to_owned())),
        }
    }
}

/// A runtime that is dropped without waiting for its tasks.
pub struct BackgroundRuntime(Option<Runtime>);

impl BackgroundRuntime {
    /// Starts the threads.
    pub fn new() -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).thread_name("storage engine").enable_all();
        Ok(Self(Some(builder.build()?)))
    }

    /// The runtime.
    pub fn get(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until the end")
    }
}

impl Drop for BackgroundRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A task that ends when this is dropped.
pub struct AbortedOnDrop<T>(pub JoinHandle<T>);

impl<T> Drop for AbortedOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
