use super::tests::{server, store};
use super::*;
use crate::certificates::{EXPIRED, OF_ANOTHER, OF_CLIENT, OF_SERVER, TestCertificates, VALID};
use crate::conformance::conforms;
use crate::servers::{TestServer, free_port};
use crate::store_url::parse;
use crate::tls::PemFile;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Certificates, in a folder that ends with them.
struct Issued {
    certificates: TestCertificates,
    _folder: TempDir,
}

impl Issued {
    /// Certificates of servers, good and bad, and of clients.
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = TestCertificates::new(folder.path());
        certificates.make("server", "root", OF_SERVER, VALID);
        certificates.make("another", "root", OF_ANOTHER, VALID);
        certificates.make("expired", "root", OF_SERVER, EXPIRED);
        certificates.make("client", "root", OF_CLIENT, VALID);
        certificates.make("forged", "stranger", OF_CLIENT, VALID);
        Self { certificates, _folder: folder }
    }

    /// Options of a server that has a certificate and wants one of clients: `yes` or `no`.
    fn options(&self, own: &str, of_clients: &str) -> Vec<String> {
        let files = [("cert", own, "pem"), ("key", own, "key"), ("ca-cert", "root", "pem")];
        let file = |(option, name, end): (&str, &str, &str)| {
            let path = self.certificates.file(&format!("{name}.{end}"));
            [format!("--tls-{option}-file"), path]
        };
        let options = files.into_iter().flat_map(file);
        options.chain(["--tls-auth-clients".to_owned(), of_clients.to_owned()]).collect()
    }

    /// A server that speaks TLS alone.
    fn server(&self, own: &str, of_clients: &str) -> TestServer {
        let port = free_port().to_string();
        let mut options = vec!["--port", "0", "--tls-port", &port];
        let further = self.options(own, of_clients);
        options.extend(further.iter().map(String::as_str));
        server(port.parse().unwrap(), &options)
    }

    /// The options for this root, and a client's certificate.
    fn files(&self, root: &str, client: Option<&str>) -> String {
        let file = |name: &str, end: &str| self.certificates.file(&format!("{name}.{end}"));
        let root = format!("ssl_ca_certs={}", file(root, "pem"));
        client.map_or(root.clone(), |name| {
            format!("{root}&ssl_certfile={}&ssl_keyfile={}", file(name, "pem"), file(name, "key"))
        })
    }

    fn tls(&self) -> TlsFiles {
        let path = self.certificates.file("root.pem").into();
        TlsFiles { roots: Some(PemFile { option: TLS_OPTIONS[0], path }), identity: None }
    }
}

/// Whether a server is accepted; and if not, why for good.
fn check(server: &TestServer, options: &str) -> Result<(), String> {
    let url = format!("rediss://127.0.0.1:{}/?{options}", server.port);
    let checked = parse(&url, None)?.check();
    checked.map_err(|failed| {
        assert!(!failed.is_passing, "{options}: {failed:?}");
        failed.message
    })
}

#[track_caller]
fn is_refused(server: &TestServer, options: &str, reason: &str) {
    let refused = check(server, options).expect_err(options);
    assert!(refused.contains(reason), "{options}: {refused}");
}

#[test]
fn a_server_is_verified() {
    let issued = Issued::make();
    let good = issued.server("server", "no");
    check(&good, &issued.files("root", None)).unwrap();
    is_refused(&good, &issued.files("stranger", None), "none of the roots has signed it");
    // The system's roots have not signed it.
    is_refused(&good, "", "none of the roots has signed it");
    let root = issued.files("root", None);
    is_refused(&issued.server("another", "no"), &root, "not valid for name");
    is_refused(&issued.server("expired", "no"), &root, "expired");
}

#[test]
fn a_client_shows_its_certificate() {
    let issued = Issued::make();
    let picky = issued.server("server", "yes");
    check(&picky, &issued.files("root", Some("client"))).unwrap();
    is_refused(&picky, &issued.files("root", None), "another certificate of this client");
    is_refused(&picky, &issued.files("root", Some("forged")), "another certificate of this client");
    let mixed = issued.files("root", Some("client")).replace("client.key", "server.key");
    is_refused(&picky, &mixed, "TLS");
}

#[test]
fn a_server_without_tls_is_refused() {
    let (issued, plain) = (Issued::make(), server(free_port(), &[]));
    let url = format!("rediss://127.0.0.1:{}/?{}", plain.port, issued.files("root", None));
    // Whether it answers depends on random bytes of the first message.
    assert!(parse(&url, None).unwrap().check().is_err());
}

#[test]
fn a_cluster_conforms_over_tls() {
    let issued = Issued::make();
    let port = || loop {
        let port = free_port();
        if port < 55_000 {
            return port;
        }
    };
    let further = issued.options("server", "no");
    let servers: Vec<TestServer> = (0..3)
        .map(|_| {
            let port = port().to_string();
            let mut options = vec!["--port", "0", "--tls-port", &port, "--tls-cluster", "yes"];
            options.extend(["--tls-replication", "yes", "--cluster-enabled", "yes"]);
            options.extend(further.iter().map(String::as_str));
            server(port.parse().unwrap(), &options)
        })
        .collect();
    let root = issued.certificates.file("root.pem");
    let redis_cli = |words: &[String]| {
        let mut command = Command::new(crate::servers::program("redis-cli"));
        let done = command.args(["--tls", "--cacert", &root]).args(words).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let mut create = ["--cluster-yes", "--cluster", "create"].map(str::to_owned).to_vec();
    create.extend(servers.iter().map(|server| format!("127.0.0.1:{}", server.port)));
    redis_cli(&create);
    let is_up = |server: &TestServer| {
        let port = server.port.to_string();
        let state = ["-p", &port, "cluster", "info"].map(str::to_owned);
        redis_cli(&state).starts_with("cluster_state:ok")
    };
    while !servers.iter().all(is_up) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let first: Url = format!("rediss://127.0.0.1:{}/", servers[0].port).parse().unwrap();
    conforms(|number, g| {
        let cluster = Cluster::new(vec![first.clone()], issued.tls()).unwrap();
        RedisEngine::new(cluster, store(number), g, 0)
    });
    let refused = |options: &str| {
        let url = format!("rediss+cluster://127.0.0.1:{}/?{options}", servers[0].port);
        parse(&url, None).unwrap().check().unwrap_err()
    };
    let unknown = refused(&issued.files("stranger", None));
    assert!(!unknown.is_passing && unknown.message.contains("UnknownIssuer"), "{unknown:?}");
}

#[test]
fn sentinels_and_their_primary_speak_tls() {
    let issued = Issued::make();
    let primary = issued.server("server", "no");
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let file = folder.path().join("sentinel.conf");
    let mut text = format!("port 0\ntls-port {port}\ntls-replication yes\n");
    for option in issued.options("server", "no").chunks(2) {
        let line = format!("{} {}\n", option[0].trim_start_matches('-'), option[1]);
        text.push_str(&line);
    }
    let monitor = format!("sentinel monitor group 127.0.0.1 {} 1\n", primary.port);
    std::fs::write(&file, text + &monitor).unwrap();
    let mut command = Command::new(crate::servers::program("redis-server"));
    command.arg(&file).arg("--sentinel");
    let _sentinel = crate::servers::start(command, port, folder);
    let check = |scheme: &str, root: &str| {
        let options = if root.is_empty() { String::new() } else { issued.files(root, None) };
        parse(&format!("{scheme}://127.0.0.1:{port}/group?{options}"), None).unwrap().check()
    };
    check("rediss+sentinel", "root").unwrap();
    let unknown = check("rediss+sentinel", "stranger").unwrap_err();
    assert!(!unknown.is_passing && unknown.message.contains("UnknownIssuer"), "{unknown:?}");
    assert!(check("redis+sentinel", "").is_err());
}

#[test]
fn typos_are_refused_before_a_connection() {
    let issued = Issued::make();
    let root = issued.files("root", None);
    for (wrong, reason) in [
        ("rediss://host/?ssl_ca_cert=x".to_owned(), "ssl_ca_cert= is no option"),
        ("rediss://host/?ssl_ca_certs=/nonexistent/x".to_owned(), "ssl_ca_certs=/nonexistent/x: "),
        ("rediss://host/?ssl_cert_reqs=none".to_owned(), "ssl_cert_reqs= is no option"),
        ("rediss://host/?sslmode=disable".to_owned(), "sslmode= is no option"),
        ("rediss://host/#insecure".to_owned(), "# begins no option"),
        (format!("redis://host/?{root}"), "of rediss: URLs"),
        (format!("rediss://host/?{root}&ssl_certfile=x"), "need each other"),
        (format!("redis+cluster://host/?{root}"), "of rediss: URLs"),
    ] {
        let refused = parse(&wrong, None).err().expect(&wrong);
        assert!(refused.contains(reason), "{wrong}: {refused}");
    }
}
