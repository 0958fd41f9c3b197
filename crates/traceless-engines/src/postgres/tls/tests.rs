use super::super::tests::server;
use super::*;
use crate::certificates::{EXPIRED, OF_ANOTHER, OF_CLIENT, OF_SERVER, TestCertificates, VALID};
use crate::conformance::conforms;
use crate::names::StoreName;
use crate::postgres::PostgresEngine;
use crate::servers::{TestServer, folder_of_user, give_to_user};
use crate::store_url::parse;
use crate::tls::PemFile;
use tempfile::TempDir;

/// A server with certificates: `certificate` is its own.
struct Secured {
    server: TestServer,
    certificates: TestCertificates,
    _folder: TempDir,
}

impl Secured {
    /// A server with the certificate that `make` makes, and further options. Each login needs what
    /// `method` says.
    fn start(make: impl FnOnce(&TestCertificates) -> &'static str, method: &str) -> Self {
        let folder = folder_of_user();
        let certificates = TestCertificates::new(folder.path());
        let own = make(&certificates);
        let access = folder.path().join("access");
        std::fs::write(&access, format!("hostssl all all all {method}\n")).unwrap();
        for file in [&format!("{own}.pem"), &format!("{own}.key"), "root.pem", "access"] {
            give_to_user(&folder.path().join(file));
        }
        let files = [
            ("ssl_cert_file", certificates.file(&format!("{own}.pem"))),
            ("ssl_key_file", certificates.file(&format!("{own}.key"))),
            ("ssl_ca_file", certificates.file("root.pem")),
            ("hba_file", certificates.file("access")),
        ];
        let mut options = vec!["-c".to_owned(), "ssl=on".to_owned()];
        for (name, file) in files {
            options.extend(["-c".to_owned(), format!("{name}={file}")]);
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Self { server: server(&options), certificates, _folder: folder }
    }

    fn trusting(make: impl FnOnce(&TestCertificates) -> &'static str) -> Self {
        Self::start(make, "trust")
    }

    /// A URL with these options, in which `{NAME.pem}` and the like stand for files.
    fn url(&self, options: &str) -> String {
        let mut options = options.to_owned();
        while let Some((begin, rest)) = options.split_once('{') {
            let (name, end) = rest.split_once('}').unwrap();
            options = format!("{begin}{}{end}", self.certificates.file(name));
        }
        format!("postgres://postgres:secret@127.0.0.1:{}/postgres?{options}", self.server.port)
    }

    /// Whether the server is accepted; and if not, why for good.
    fn check(&self, options: &str) -> Result<(), String> {
        let address = parse(&self.url(options), None)?;
        // A server that starts may refuse connections at first.
        address.wait().map_err(|failed| {
            assert!(!failed.is_passing, "{options}: {failed:?}");
            failed.message
        })
    }

    #[track_caller]
    fn refuses(&self, options: &str, reason: &str) {
        let refused = self.check(options).expect_err(options);
        assert!(refused.contains(reason), "{options}: {refused}");
    }
}

fn usual(certificates: &TestCertificates) -> &'static str {
    certificates.make("server", "root", OF_SERVER, VALID);
    "server"
}

#[test]
fn a_server_is_verified_as_far_as_its_mode_says() {
    let good = Secured::trusting(usual);
    for right in [
        "sslmode=verify-full&sslrootcert={root.pem}",
        "sslrootcert={root.pem}",
        "sslmode=verify-ca&sslrootcert={root.pem}",
        "sslmode=require&sslrootcert={root.pem}",
        "sslmode=require",
        "sslmode=prefer",
        "",
    ] {
        good.check(right).expect(right);
    }
    for wrong in ["verify-full", "verify-ca", "require", "prefer"] {
        good.refuses(&format!("sslmode={wrong}&sslrootcert={{stranger.pem}}"), "UnknownIssuer");
    }
    // The system's roots have not signed it.
    good.refuses("sslmode=verify-full", "none of the roots has signed it");
    good.refuses("sslrootcert=system", "none of the roots has signed it");
    // The server's rules want TLS.
    good.refuses("sslmode=disable", "no encryption");
}

#[test]
fn another_name_is_refused_by_the_mode_that_verifies_names() {
    let another = Secured::trusting(|certificates| {
        certificates.make("another", "root", OF_ANOTHER, VALID);
        "another"
    });
    another.refuses("sslrootcert={root.pem}", "not valid for name");
    another.check("sslmode=verify-ca&sslrootcert={root.pem}").unwrap();
}

#[test]
fn an_expired_certificate_is_refused() {
    let expired = Secured::trusting(|certificates| {
        certificates.make("expired", "root", OF_SERVER, EXPIRED);
        "expired"
    });
    for mode in ["verify-full", "verify-ca", "require"] {
        expired.refuses(&format!("sslmode={mode}&sslrootcert={{root.pem}}"), "expired");
    }
    expired.check("sslmode=require").unwrap();
}

#[test]
fn a_server_without_tls_is_refused_unless_the_mode_allows_it() {
    let plain = server(&[]);
    let check = |options: &str| {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres?{options}", plain.port);
        parse(&url, None).unwrap().wait()
    };
    for allowed in ["", "sslmode=prefer", "sslmode=disable"] {
        check(allowed).unwrap();
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        let refused = check(&format!("sslmode={mode}")).unwrap_err();
        assert!(!refused.is_passing, "{refused:?}");
        assert!(refused.message.contains("does not support TLS: use one"), "{refused:?}");
    }
}

#[test]
fn a_server_that_signed_its_own_certificate_is_known_by_it() {
    let own = Secured::trusting(|certificates| {
        certificates.make_own("own");
        "own"
    });
    own.check("sslmode=verify-full&sslrootcert={own.pem}").unwrap();
    own.refuses("sslmode=verify-full&sslrootcert={root.pem}", "CaUsedAsEndEntity");
}

#[test]
fn a_client_shows_its_certificate() {
    let picky = Secured::start(usual, "cert");
    let certificates = &picky.certificates;
    certificates.make("postgres", "root", OF_CLIENT, VALID);
    certificates.make("nobody", "root", OF_CLIENT, VALID);
    certificates.make("forged", "stranger", OF_CLIENT, VALID);
    let with = |name: &str| {
        format!("sslrootcert={{root.pem}}&sslcert={{{name}.pem}}&sslkey={{{name}.key}}")
    };
    picky.check(&with("postgres")).unwrap();
    picky.refuses(&with("nobody"), "certificate authentication failed");
    picky.refuses(&with("forged"), "another certificate of this client");
    picky.refuses("sslrootcert={root.pem}", "valid client certificate");
    let of_another = "sslrootcert={root.pem}&sslcert={postgres.pem}&sslkey={nobody.key}";
    picky.refuses(of_another, "sslcert and sslkey");
}

/// The digest is right, or the server would not let the client in.
#[test]
fn a_password_is_bound_to_the_certificate() {
    let secured = Secured::start(usual, "scram-sha-256");
    let options = "sslrootcert={root.pem}&channel_binding=require";
    secured.check(options).unwrap();
    let wrong = secured.url(options).replace(":secret@", ":wrong@");
    let refused = parse(&wrong, None).unwrap().check().unwrap_err();
    assert!(!refused.is_passing && refused.message.contains("password"), "{refused:?}");
}

#[test]
fn a_database_conforms_over_tls() {
    let secured = Secured::start(usual, "scram-sha-256");
    secured.check("sslrootcert={root.pem}").unwrap();
    let files = TlsFiles {
        roots: Some(PemFile {
            option: "sslrootcert",
            path: secured.certificates.file("root.pem").into(),
        }),
        identity: None,
    };
    let tls = TlsOptions { files, ..TlsOptions::default() };
    conforms(|number, _| {
        let store = StoreName::parse(&format!("store-{number}")).unwrap();
        PostgresEngine::new(&secured.url(""), &tls, store).unwrap()
    });
}

#[test]
fn typos_are_refused_before_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = TestCertificates::new(folder.path());
    let (root, key) = (certificates.file("root.pem"), certificates.file("root.key"));
    for (wrong, reason) in [
        ("sslmode=verify_full".to_owned(), "sslmode=verify_full is not disable"),
        ("sslmode=VERIFY-FULL".to_owned(), "is not disable"),
        ("sslmode=allow".to_owned(), "is not disable"),
        ("sslmode=".to_owned(), "is not disable"),
        ("sslmod=verify-full".to_owned(), "sslmod"),
        ("sslrootcrt=x".to_owned(), "sslrootcrt"),
        ("sslmode=verify-full&sslmode=disable".to_owned(), "given twice"),
        ("sslrootcert=/nonexistent/root.pem".to_owned(), "sslrootcert=/nonexistent/root.pem: "),
        (format!("sslrootcert={key}"), "no certificate in the file"),
        ("sslmode=require&sslrootcert=system".to_owned(), "sslmode is verify-full"),
        (format!("sslmode=disable&sslrootcert={root}"), "no use for sslrootcert"),
        (format!("sslcert={root}"), "sslcert= and sslkey= need each other"),
        (format!("sslkey={key}"), "sslcert= and sslkey= need each other"),
        (format!("sslcert={root}&sslkey={root}"), "no private key"),
        ("ssl_ca_certs=x".to_owned(), "ssl_ca_certs= is no option"),
    ] {
        let url = format!("postgres://user@host/database?{wrong}");
        let refused = parse(&url, None).err().expect(&wrong);
        assert!(refused.contains(reason), "{wrong}: {refused}");
    }
}

#[test]
fn only_servers_of_this_machine_need_no_verification() {
    for (servers, verification) in [
        ("host", Some(Verification::Name)),
        ("10.0.0.1", Some(Verification::Name)),
        ("localhost.example", Some(Verification::Name)),
        ("localhost", Some(Verification::Key)),
        ("127.0.0.1", Some(Verification::Key)),
        ("[::1]", Some(Verification::Key)),
        ("localhost,host", Some(Verification::Name)),
        ("%2Frun%2Fpostgresql,host", Some(Verification::Name)),
        ("%2Frun%2Fpostgresql", None),
    ] {
        let mut config: Config = format!("postgres://user@{servers}/").parse().unwrap();
        let tls = TlsOptions::default().apply(&mut config);
        assert_eq!(tls.map(|tls| tls.verification()), verification, "{servers}");
        let wanted = match verification {
            Some(Verification::Name) => SslMode::Require,
            Some(_) => SslMode::Prefer,
            None => SslMode::Disable,
        };
        assert_eq!(config.get_ssl_mode(), wanted, "{servers}");
    }
    let elsewhere = "postgres://user@localhost/?hostaddr=10.0.0.1";
    let tls = TlsOptions::default().apply(&mut elsewhere.parse().unwrap());
    assert_eq!(tls.map(|tls| tls.verification()), Some(Verification::Name));
}
