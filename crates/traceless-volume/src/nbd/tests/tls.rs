use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use super::*;
use crate::nbd::{Error, TlsFiles};

/// A certificate authority, with certificates for a server and a client.
struct Authority(TempDir);

impl Authority {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        for name in ["localhost", "client"] {
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            fs::write(folder.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            fs::write(folder.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn files(&self, mutual: bool) -> TlsFiles {
        TlsFiles {
            certificates: self.path("localhost.pem"),
            key: self.path("localhost.key"),
            client_ca: mutual.then(|| self.path("ca.pem")),
        }
    }

    /// Puts a stream under TLS, with the client's certificate if `own` is set.
    fn wrap<S: Read + Write>(&self, stream: S, own: bool) -> StreamOwned<ClientConnection, S> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = if own {
            let chain = vec![CertificateDer::from_pem_file(self.path("client.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(self.path("client.key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        let name = "localhost".try_into().unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
    }
}

/// Starts a TLS server on TCP, and returns a function that connects to it.
fn serve(files: TlsFiles) -> (Running, impl Fn() -> Client<TcpStream>) {
    let options = Options { tls: Some(files), ..Options::default() };
    let endpoint = Endpoint::Tcp((Ipv4Addr::LOCALHOST, 0).into());
    let server = Server::bind(endpoint, &options).unwrap();
    let port = server.tcp_address().unwrap().port();
    let running = Running::start(server, Arc::new(Probe::default()));
    (running, move || Client::greet(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()))
}

#[test]
fn on_tcp_nothing_is_said_before_tls() {
    let authority = Authority::new();
    let (_running, connect) = serve(authority.files(false));
    let mut client = connect();
    for option in [opt::LIST, opt::INFO, opt::GO, opt::STRUCTURED_REPLY, 10, 99] {
        assert_eq!(client.option(option, &[])[0].0, rep::ERR_TLS_REQD);
    }
    assert_eq!(client.option(opt::STARTTLS, b"x")[0].0, rep::ERR_INVALID);
    assert_eq!(client.option(opt::STARTTLS, &[]), [(rep::ACK, vec![])]);
    let mut client = Client(authority.wrap(client.0, false));
    assert_eq!(client.option(opt::STARTTLS, &[])[0].0, rep::ERR_INVALID, "once is enough");
    assert_eq!(client.option(opt::STRUCTURED_REPLY, &[]), [(rep::ACK, vec![])]);
    client.go();
    assert_eq!(client.write(4096, &vec![1; 300_000]), Ok(vec![]));
    assert!(client.read(4096, 1 << 20) == Ok(vec![7; 1 << 20]));
    client.send(&request(0, cmd::DISC, 0, 0));
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "the end is announced");

    let mut client = connect();
    client.send(&option_bytes(opt::EXPORT_NAME, b""));
    assert!(client.at_end());
    let mut client = connect();
    assert_eq!(client.option(opt::ABORT, &[]), [(rep::ACK, vec![])]);
}

#[test]
fn what_was_sent_in_the_clear_is_not_taken_for_tls() {
    let authority = Authority::new();
    let (_running, connect) = serve(authority.files(false));
    let mut client = connect();
    let injected = option_bytes(opt::LIST, &[]);
    client.send(&[option_bytes(opt::STARTTLS, &[]), injected].concat());
    client.take(20);
    let mut stream = authority.wrap(client.0, false);
    assert!(stream.write_all(&[0]).is_err() || stream.read(&mut [0]).is_err());
}

#[test]
fn clients_must_show_certificates_if_configured() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let (_running, connect) = serve(authority.files(true));
    let start = || {
        let mut client = connect();
        assert_eq!(client.option(opt::STARTTLS, &[]), [(rep::ACK, vec![])]);
        client.0
    };
    let mut client = Client(authority.wrap(start(), true));
    client.go();
    assert_eq!(client.read(0, 1), Ok(vec![7]));

    let refused = |mut stream: StreamOwned<_, _>| {
        let hello = option_bytes(opt::LIST, &[]);
        stream.write_all(&hello).is_err() || stream.read(&mut [0]).is_err()
    };
    assert!(refused(authority.wrap(start(), false)), "no certificate");
    fs::copy(stranger.path("client.pem"), authority.path("client.pem")).unwrap();
    fs::copy(stranger.path("client.key"), authority.path("client.key")).unwrap();
    assert!(refused(authority.wrap(start(), true)), "one from somebody else");
}

#[test]
fn on_a_unix_socket_tls_is_a_choice() {
    let authority = Authority::new();
    let path = authority.path("socket");
    let options = Options { tls: Some(authority.files(false)), ..Options::default() };
    let server = Server::bind(Endpoint::Unix(path.clone()), &options).unwrap();
    let _running = Running::start(server, Arc::new(Probe::default()));
    let connect = || UnixStream::connect(&path).unwrap();
    assert_eq!(Client::ready(connect(), false).read(0, 1), Ok(vec![7]));

    let mut client = Client::greet(connect());
    assert_eq!(client.option(opt::STRUCTURED_REPLY, &[]), [(rep::ACK, vec![])]);
    assert_eq!(client.option(opt::STARTTLS, &[]), [(rep::ACK, vec![])]);
    let mut client = Client(authority.wrap(client.0, false));
    assert_eq!(client.go() & flag::SEND_DF, 0, "what was agreed in the clear is forgotten");
    assert_eq!(client.read(0, 1), Ok(vec![7]));
}

#[test]
fn files_that_do_not_do_are_explained() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let bind = |files: TlsFiles| {
        let endpoint = Endpoint::Tcp((Ipv4Addr::LOCALHOST, 0).into());
        let options = Options { tls: Some(files), ..Options::default() };
        Server::bind(endpoint, &options).err().expect("these must not do")
    };
    let good = authority.files(false);
    let missing = authority.path("missing.pem");
    let wrong_kind = bind(TlsFiles { certificates: good.key.clone(), ..good.clone() });
    assert!(matches!(wrong_kind, Error::TlsFile { .. }));
    assert!(wrong_kind.to_string().contains("there is no certificate in it"), "{wrong_kind}");
    let no_key = bind(TlsFiles { key: good.certificates.clone(), ..good.clone() });
    assert!(no_key.to_string().contains("a private key"), "{no_key}");
    let no_file = bind(TlsFiles { client_ca: Some(missing), ..good.clone() });
    assert!(no_file.to_string().contains("missing.pem"), "{no_file}");
    let mismatch = bind(TlsFiles { key: stranger.path("localhost.key"), ..good });
    assert!(matches!(mismatch, Error::Tls { .. }), "{mismatch}");
}

#[test]
fn a_network_is_served_only_with_certificates_of_clients() {
    let authority = Authority::new();
    let bind = |mutual: bool| {
        let tls = Some(authority.files(mutual));
        let everywhere = Endpoint::Tcp((Ipv4Addr::UNSPECIFIED, 0).into());
        Server::bind(everywhere, &Options { tls, ..Options::default() })
    };
    let error = bind(false).err().expect("nobody would be asked who they are");
    assert!(matches!(error, Error::Exposed { .. }), "{error}");
    assert!(error.to_string().contains("--tls-client-ca"), "{error}");
    let server = bind(true).unwrap();
    let address = (Ipv4Addr::LOCALHOST, server.tcp_address().unwrap().port());
    let _running = Running::start(server, Arc::new(Probe::default()));
    let mut client = Client::greet(TcpStream::connect(address).unwrap());
    assert_eq!(client.option(opt::STARTTLS, &[]), [(rep::ACK, vec![])]);
    let mut client = Client(authority.wrap(client.0, true));
    client.go();
    assert_eq!(client.read(0, 1), Ok(vec![7]));
}

#[test]
fn shaking_hands_byte_by_byte_ends_with_the_negotiation() {
    let authority = Authority::new();
    let options = Options { tls: Some(authority.files(true)), negotiation_time: SHORT };
    let server = Server::bind(Endpoint::Tcp((Ipv4Addr::LOCALHOST, 0).into()), &options).unwrap();
    let address = server.tcp_address().unwrap();
    let _running = Running::start(server, Arc::new(Probe::default()));
    let mut client = Client::greet(TcpStream::connect(address).unwrap());
    assert_eq!(client.option(opt::STARTTLS, &[]), [(rep::ACK, vec![])]);
    // The head of a record of 512 bytes, and then the first byte of a hello again and again.
    let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    assert!(trickle(&mut client.0, hello.into_iter().chain(std::iter::repeat_n(0, 500))));
}
