//! TLS to PostgreSQL: `sslmode` and its files, as libpq understands them.
//!
//! | `sslmode` | TLS | the server's certificate |
//! |---|---|---|
//! | `disable` | never | |
//! | `prefer` | if the server has it | as for `require` |
//! | `require` | always | a root of `sslrootcert` has signed it, if that is given |
//! | `verify-ca` | always | a root has signed it |
//! | `verify-full` | always | a root has signed it, for the server's name |
//!
//! Without `sslmode` it is `verify-full`, but `prefer` for a server on this machine. Without
//! `sslrootcert` the roots are the system's. Unlike libpq, `prefer` does not go on without TLS once
//! TLS has failed.

use super::channel_binding::end_point_digest;
use super::verifier::{CertificateVerifier, Verification};
use crate::address::Options;
use crate::engine::RequestError;
use crate::tls::{TlsContents, TlsFiles};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

/// The protocol inside TLS.
const PROTOCOL: &[u8] = b"postgresql";
/// The `sslrootcert` that means the system's roots.
const SYSTEM: &str = "system";
const MODES: &str = "disable, prefer, require, verify-ca or verify-full";

/// What a URL says about TLS.
#[derive(Clone, Default, Debug)]
pub struct TlsOptions {
    mode: Option<TlsMode>,
    files: TlsFiles,
    has_system_roots: bool,
}

/// A value of `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TlsMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// How servers are reached by TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerTls {
    files: TlsFiles,
    verification: Verification,
}

/// Begins TLS on connections.
#[derive(Clone)]
pub struct PostgresConnector(TlsConnector);

/// Begins TLS on one connection, to a server of this name.
pub struct PostgresHandshake(TlsConnector, String);

/// A connection inside TLS.
pub struct TlsSocket<S>(client::TlsStream<S>);

impl TlsOptions {
    /// Takes the options from a URL.
    pub fn take(options: &mut Options) -> Result<Self, String> {
        let mode = options.get("sslmode").map(|text| TlsMode::parse(&text)).transpose()?;
        let has_system_roots = options.take_if("sslrootcert", SYSTEM);
        let files = TlsFiles::take(options, ["sslrootcert", "sslcert", "sslkey"])?;
        match mode {
            Some(mode) if has_system_roots && mode != TlsMode::VerifyFull => {
                return Err("with sslrootcert=system sslmode is verify-full".to_owned());
            }
            Some(TlsMode::Disable) if !files.is_empty() => {
                let message = "sslmode=disable has no use for sslrootcert, sslcert and sslkey";
                return Err(message.to_owned());
            }
            _ => {}
        }
        Ok(Self { mode, files, has_system_roots })
    }

    /// Chooses how the servers of a configuration are reached: by TLS, or without.
    pub fn apply(&self, config: &mut Config) -> Option<ServerTls> {
        let is_plain = is_on_this_machine(config) && !self.has_system_roots;
        let is_plain = is_plain && self.files.is_empty();
        let default = if is_plain { TlsMode::Prefer } else { TlsMode::VerifyFull };
        let mode = self.mode.unwrap_or(default);
        // Sockets of this machine have no TLS, as in libpq.
        let are_sockets = |hosts: &[Host]| hosts.iter().all(|host| matches!(host, Host::Unix(_)));
        if mode == TlsMode::Disable
            || !config.get_hosts().is_empty() && are_sockets(config.get_hosts())
        {
            config.ssl_mode(SslMode::Disable);
            return None;
        }
        config.ssl_mode(match mode {
            TlsMode::Prefer => SslMode::Prefer,
            _ => SslMode::Require,
        });
        let verification = match mode {
            TlsMode::VerifyFull => Verification::Name,
            TlsMode::VerifyCa => Verification::Signature,
            _ if self.files.roots.is_some() => Verification::Signature,
            _ => Verification::Key,
        };
        Some(ServerTls { files: self.files.clone(), verification })
    }
}

impl TlsMode {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return Err(format!("sslmode={text} is not {MODES}")),
        })
    }
}

/// Whether the way to all servers is within this machine.
pub fn is_on_this_machine(config: &Config) -> bool {
    let is_local = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        }
    };
    let has_names = config.get_hosts().iter().all(is_local);
    has_names && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

impl ServerTls {
    /// What is verified of a server.
    pub fn verification(&self) -> Verification {
        self.verification
    }

    /// Reads the files, for one connection.
    pub fn connector(&self) -> Result<PostgresConnector, RequestError> {
        let TlsContents { roots, identity } = self.files.read_again()?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = match roots {
            Some(pem) => certificates(&pem)?,
            None if self.verification == Verification::Key => Vec::new(),
            None => rustls_native_certs::load_native_certs().certs,
        };
        let verifier = CertificateVerifier::new(self.verification, roots, provider.clone())?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(RequestError::lasting)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(&key).map_err(RequestError::passing)?;
                let made = builder.with_client_auth_cert(certificates(&chain)?, key);
                made.map_err(|e| RequestError::lasting(format!("sslcert and sslkey: {e}")))?
            }
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(PostgresConnector(TlsConnector::from(Arc::new(config))))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, RequestError> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>();
    all.map_err(RequestError::passing)
}

impl<S> MakeTlsConnect<S> for PostgresConnector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = TlsSocket<S>;
    type TlsConnect = PostgresHandshake;
    type Error = Infallible;

    fn make_tls_connect(&mut self, server: &str) -> Result<PostgresHandshake, Infallible> {
        Ok(PostgresHandshake(self.0.clone(), server.to_owned()))
    }
}

impl<S> TlsConnect<S> for PostgresHandshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = TlsSocket<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsSocket<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let server = ServerName::try_from(self.1).map_err(io::Error::other)?;
            self.0.connect(server, stream).await.map(TlsSocket)
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for TlsSocket<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let chain = self.0.get_ref().1.peer_certificates();
        let digest = chain.and_then(|chain| end_point_digest(chain.first()?));
        digest.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
