//! HTTP/1.1 for clients: metrics and S3.
//!
//! The readiness of a gateway, as an orchestrator reads it:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//! use traceless_cloud::http::Http;
//! use traceless_cloud::shared::{Health, Metrics, Stop};
//!
//! # fn main() -> std::io::Result<()> {
//! let (stop, metrics) = (Stop::default(), Arc::new(Metrics::default()));
//! let mut http = Http::start(&stop)?;
//! let address = http.metrics("127.0.0.1:0", &metrics, None)?;
//! metrics.set_health(Health::Ready);
//!
//! let mut client = std::net::TcpStream::connect(address)?;
//! client.write_all(b"GET /healthz HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")?;
//! let mut reply = String::new();
//! client.read_to_string(&mut reply)?;
//! assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("ready\n"));
//! stop.request();
//! http.finish();
//! # Ok(())
//! # }
//! ```

use crate::connection::{Connection, Ender, Wire};
use crate::connection_places::{ConnectionPlaces, Place, REST, STRANGER_TIME};
use crate::resp::Password;
use crate::s3::{self, AccessKeys};
use crate::shared::{Health, Metrics, Protocol, SharedGateway, Stop};
use crate::tls::Tls;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, EXPECT, HeaderValue, WWW_AUTHENTICATE,
};
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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use traceless_core::rng::{Rng as _, SeededRng, System};
use traceless_sys::listen::{self, Clients};

/// Connections at once, for each listening address. A further connection replaces the oldest one
/// with an unauthenticated client.
const CONNECTIONS_MAX: usize = 1024;
/// Longest head of a request, in bytes.
const HEAD_LEN_MAX: usize = 64 << 10;
/// How long a client may take for a request's head, and how long a connection may be idle.
const HEAD_TIME: Duration = Duration::from_secs(75);
/// How long a TLS handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long running requests may take after a stop is requested.
const GRACE: Duration = Duration::from_secs(10);
/// How often objects expire.
const EXPIRY_PERIOD: Duration = Duration::from_hours(1);
/// The media type of metrics.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

type AnyError = Box<dyn core::error::Error + Send + Sync>;

/// The HTTP server.
pub struct Http {
    runtime: tokio::runtime::Runtime,
    stopped: watch::Receiver<bool>,
    tasks: Vec<JoinHandle<()>>,
    stranger_time: Duration,
}

impl Http {
    /// Starts the server's threads. No address is served yet.
    pub fn start(stop: &Stop) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("http")
            .enable_all()
            .build()?;
        let (stopping, stopped) = watch::channel(false);
        stop.on_stop(move || {
            // Without a listener there is no server left to stop.
            let _ = stopping.send(true);
        });
        Ok(Self { runtime, stopped, tasks: Vec::new(), stranger_time: STRANGER_TIME })
    }

    /// Sets how long a client may take from the connection until it is authenticated.
    pub fn set_stranger_time(&mut self, longest: Duration) {
        self.stranger_time = longest;
    }

    /// Serves metrics at `/metrics` and readiness at `/healthz`. If a password is given, clients
    /// must send it.
    pub fn metrics(
        &mut self,
        address: &str,
        metrics: &Arc<Metrics>,
        password: Option<Password>,
    ) -> io::Result<SocketAddr> {
        let metrics = metrics.clone();
        let clients = metrics_clients(password.is_some());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let is_known = password.as_ref().is_none_or(|password| knows(&request, password));
            if is_known && let Some(connection) = request.extensions().get::<Connection>() {
                connection.keep();
            }
            let reply = if is_known { serve_metrics(&request, &metrics) } else { refuse() };
            async move { Ok::<_, core::convert::Infallible>(reply) }
        });
        self.serve((address, clients), None, service, None)
    }

    /// Serves S3 to clients with one of these keys. Names below one of the domains are buckets.
    pub fn s3(
        &mut self,
        address: &str,
        front: &Arc<SharedGateway>,
        keys: AccessKeys,
        domains: Vec<String>,
        tls: Option<&Tls>,
    ) -> io::Result<SocketAddr> {
        let metrics = front.metrics().clone();
        let new_rules = Arc::new(Notify::new());
        let service = s3::S3::new(front.clone(), keys, domains, new_rules.clone());
        let expiring = expire_objects(front.clone(), new_rules, self.stopped.clone());
        self.tasks.push(self.runtime.spawn(expiring));
        self.serve((address, Clients::Authenticated), tls, service, Some(metrics))
    }

    /// Waits until all running requests are answered.
    pub fn finish(self) {
        let Self { runtime, tasks, .. } = self;
        runtime.block_on(async {
            for task in tasks {
                // A task that panicked has no replies left.
                let _ = task.await;
            }
        });
        runtime.shutdown_timeout(GRACE);
    }

    fn serve<S, B>(
        &mut self,
        (address, clients): (&str, Clients),
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
        let listener = listen::bind(address, clients)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let _runtime = self.runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let tls = tls.map(|tls| TlsAcceptor::from(tls.config()));
        let (stopped, stranger_time) = (self.stopped.clone(), self.stranger_time);
        let server = Server { listener, tls, service, metrics, stopped, stranger_time };
        self.tasks.push(self.runtime.spawn(server.run()));
        Ok(bound)
    }
}

/// Carries out the rules by which objects expire, now and then and when there are new ones.
async fn expire_objects(
    front: Arc<SharedGateway>,
    new_rules: Arc<Notify>,
    mut stopped: watch::Receiver<bool>,
) {
    while !*stopped.borrow() {
        let (front, is_stopped) = (front.clone(), stopped.clone());
        let expired = tokio::task::spawn_blocking(move || {
            let mut rng = SeededRng::drawn(&mut System);
            s3::expire(&front, &mut || rng.next_u64(), &|| *is_stopped.borrow())
        });
        match expired.await {
            Ok(Ok(count)) if count.versions + count.uploads > 0 => {
                tracing::info!(versions = count.versions, uploads = count.uploads, "expired");
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(kind = error.kind(), "objects do not expire"),
            Err(_) => return,
        }
        tokio::select! {
            () = new_rules.notified() => {}
            () = tokio::time::sleep(EXPIRY_PERIOD) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }
}

/// How clients of metrics authenticate.
pub fn metrics_clients(has_password: bool) -> Clients {
    if has_password {
        return Clients::Authenticated;
    }
    Clients::Anyone { remedy: "give --metrics-password-file" }
}

fn knows(request: &Request<Incoming>, password: &Password) -> bool {
    let header = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    header
        .and_then(|header| header.strip_prefix(b"Bearer "))
        .is_some_and(|header| password.is(header))
}

fn refuse() -> Response<Full<Bytes>> {
    let text = "give the password as Authorization: Bearer PASSWORD\n";
    let mut reply = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *reply.status_mut() = StatusCode::UNAUTHORIZED;
    reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    reply
}

fn serve_metrics(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
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
    stranger_time: Duration,
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
        let places = ConnectionPlaces::new(CONNECTIONS_MAX);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = self.stopped.wait_for(|stopped| *stopped) => break,
            };
            let Ok((stream, peer)) = accepted else {
                places.make_room();
                tokio::time::sleep(REST).await;
                continue;
            };
            let ender = Ender::default();
            let Some(place) = places.enter(ender.clone()) else { continue };
            let connection = Connection::new(place, self.wire_to(peer));
            let overdue = overdue(connection.place(), self.stranger_time);
            let served = self.serve(stream, connection, graceful.watcher());
            tokio::spawn(async move {
                tokio::select! {
                    () = served => {}
                    () = ender.ended() => {}
                    () = overdue => {}
                }
            });
        }
        // Requests that take longer are cut off.
        let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    }

    fn wire_to(&self, peer: SocketAddr) -> Wire {
        match &self.tls {
            Some(_) => Wire::Tls,
            None if listen::is_loopback(peer) => Wire::Loopback,
            None => Wire::Network,
        }
    }

    /// Serves one connection.
    fn serve(
        &self,
        stream: TcpStream,
        connection: Connection,
        watcher: Watcher,
    ) -> impl Future<Output = ()> + Send + use<S, B> {
        let (tls, service) = (self.tls.clone(), self.service.clone());
        let counted = ConnectionGauge::new(self.metrics.clone());
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(connection.clone());
            let waits = request.headers().contains_key(EXPECT);
            let answer = service.clone().call(request);
            async move {
                let mut answer = answer.await?;
                if waits && !answer.status().is_success() {
                    // The client does not send the body. The first byte of its next request would
                    // be taken for it.
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, S::Error>(answer)
            }
        });
        async move {
            // Replies are small or in large pieces, so Nagle's delay gains nothing.
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
            drop(counted);
        }
    }
}

/// Ends after `longest` if the client is not authenticated by then; otherwise it never ends.
async fn overdue(place: Arc<Place<Ender>>, longest: Duration) {
    tokio::time::sleep(longest).await;
    if !place.is_strangers() {
        drop(place);
        core::future::pending::<()>().await;
    }
}

/// Counts a connection in the metrics until it is dropped.
struct ConnectionGauge(Option<Arc<Metrics>>);

impl ConnectionGauge {
    fn new(metrics: Option<Arc<Metrics>>) -> Self {
        Self(metrics.inspect(|one| one.connected(Protocol::S3)))
    }
}

impl Drop for ConnectionGauge {
    fn drop(&mut self) {
        if let Some(metrics) = &self.0 {
            metrics.disconnected(Protocol::S3);
        }
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
    // A client that closes its connection early is not an error of the server.
    let _ = watcher.watch(connection).await;
}
