//! HTTP/1.1 towards clients: metrics, and what S3 is served over.

use crate::front::{Front, Health, Metrics, Protocol, Stop};
use crate::s3::{self, Keys};
use crate::tls::Tls;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Connections at once, of each address.
const CONNECTIONS_MAX: usize = 1024;
/// Bytes of the head of a request.
const HEAD_LEN_MAX: usize = 64 << 10;
/// How long a client may take for the head of a request, and stay without asking.
const HEAD_TIME: Duration = Duration::from_secs(75);
/// How long a client may take to shake hands.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long requests that were begun may take once it is to stop.
const GRACE: Duration = Duration::from_secs(10);
/// How long nobody is let in when the system has no room for one more.
const REST: Duration = Duration::from_millis(50);
/// The media type of metrics.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

type AnyError = Box<dyn core::error::Error + Send + Sync>;

/// What serves HTTP.
pub struct Http {
    runtime: tokio::runtime::Runtime,
    stopped: watch::Receiver<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Http {
    /// Starts threads, which serve nothing yet.
    pub fn start(stop: &Stop) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("http")
            .enable_all()
            .build()?;
        let (stopping, stopped) = watch::channel(false);
        stop.when_asked(move || {
            // If nobody listens any more, nobody has to stop.
            let _ = stopping.send(true);
        });
        Ok(Self { runtime, stopped, tasks: Vec::new() })
    }

    /// Serves metrics at `/metrics` and readiness at `/healthz`.
    pub fn metrics(&mut self, address: &str, metrics: &Arc<Metrics>) -> io::Result<SocketAddr> {
        let metrics = metrics.clone();
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let reply = tell(&request, &metrics);
            async move { Ok::<_, core::convert::Infallible>(reply) }
        });
        self.serve(address, None, service, None)
    }

    /// Serves S3 to whoever has one of these keys.
    pub fn s3(
        &mut self,
        address: &str,
        front: &Arc<Front>,
        keys: Keys,
        tls: Option<&Tls>,
    ) -> io::Result<SocketAddr> {
        let metrics = front.metrics().clone();
        let service = s3::S3::new(front.clone(), keys);
        self.serve(address, tls, service, Some(metrics))
    }

    /// Waits until what was begun is answered.
    pub fn finish(self) {
        let Self { runtime, tasks, .. } = self;
        runtime.block_on(async {
            for task in tasks {
                // A task that panicked has nothing left to answer.
                let _ = task.await;
            }
        });
        runtime.shutdown_timeout(GRACE);
    }

    fn serve<S, B>(
        &mut self,
        address: &str,
        tls: Option<&Tls>,
        service: S,
        metrics: Option<Arc<Metrics>>,
    ) -> io::Result<SocketAddr>
    where
        S: HttpService<Incoming, ResBody = B> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<AnyError>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<AnyError>,
    {
        let listener = self.runtime.block_on(TcpListener::bind(address))?;
        let bound = listener.local_addr()?;
        let tls = tls.map(|tls| TlsAcceptor::from(tls.config()));
        let server = Server { listener, tls, service, metrics, stopped: self.stopped.clone() };
        self.tasks.push(self.runtime.spawn(server.run()));
        Ok(bound)
    }
}

fn tell(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&(Method::GET | Method::HEAD), "/metrics") => (StatusCode::OK, metrics.text()),
        (&(Method::GET | Method::HEAD), "/healthz") => {
            let (status, word) = match metrics.health() {
                Health::Ready => (StatusCode::OK, "ready"),
                Health::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
                Health::Failing => (StatusCode::SERVICE_UNAVAILABLE, "failing"),
                Health::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
            };
            (status, format!("{word}\n"))
        }
        (&(Method::GET | Method::HEAD), _) => {
            (StatusCode::NOT_FOUND, "there are /metrics and /healthz\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned()),
    };
    let mut reply = Response::new(Full::new(Bytes::from(text)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE));
    reply
}

struct Server<S> {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    service: S,
    metrics: Option<Arc<Metrics>>,
    stopped: watch::Receiver<bool>,
}

impl<S, B> Server<S>
where
    S: HttpService<Incoming, ResBody = B> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<AnyError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<AnyError>,
{
    async fn run(mut self) {
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(place) = room.clone().acquire_owned().await else { break };
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = self.stopped.wait_for(|stopped| *stopped) => break,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(REST).await;
                continue;
            };
            let (tls, service, watcher) =
                (self.tls.clone(), self.service.clone(), graceful.watcher());
            let metrics = self.metrics.clone();
            tokio::spawn(async move {
                let count = metrics.as_deref().inspect(|one| one.connected(Protocol::S3));
                // Replies are small or in large pieces: to wait for more gains nothing.
                let _ = stream.set_nodelay(true);
                match tls {
                    None => converse(stream, service, watcher).await,
                    Some(tls) => {
                        let hands = tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream)).await;
                        if let Ok(Ok(stream)) = hands {
                            converse(stream, service, watcher).await;
                        }
                    }
                }
                if let Some(metrics) = count {
                    metrics.disconnected(Protocol::S3);
                }
                drop(place);
            });
        }
        // Whoever takes longer is cut off.
        let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    }
}

async fn converse<S, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: S,
    watcher: Watcher,
) where
    S: HttpService<Incoming, ResBody = B> + Send + 'static,
    S::Future: Send,
    S::Error: Into<AnyError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<AnyError>,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_LEN_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    // A client that breaks off is no failure of ours.
    let _ = watcher.watch(connection).await;
}
