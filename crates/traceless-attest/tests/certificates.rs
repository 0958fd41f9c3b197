//! Certificates of TLS with evidence for their key, from a made-up machine.

mod made_up;

use made_up::{Chip, NOW};
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, crypto::aws_lc_rs};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use traceless_attest::CertificateEvidence;
use traceless_sys::listen::{self, Clients};

/// Runs the command in a folder, where a made-up kernel waits for its process.
fn run_in_machine(chip: &Arc<Chip>, folder: &Path, arguments: &[&str]) -> Output {
    // The name of the entry has the number of the process, which waits for the entry.
    let child = Command::new("sh")
        .args([
            "-c",
            "until [ -e tsm/traceless-$$/provider ]; do sleep 0.02; done; exec \"$@\"",
            "sh",
        ])
        .arg(env!("CARGO_BIN_EXE_traceless-attest"))
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let entry = folder.join(format!("tsm/traceless-{}", child.id()));
    let kernel = chip.clone();
    thread::spawn(move || kernel.serve(&entry));
    child.wait_with_output().unwrap()
}

fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let command = Command::new(env!("CARGO_BIN_EXE_traceless-attest"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = [command.stdout, command.stderr].concat();
    (command.status.code(), String::from_utf8(said).unwrap())
}

struct World {
    folder: tempfile::TempDir,
}

impl World {
    /// A machine with a certificate for `localhost`.
    fn new() -> Self {
        let (chip, folder) = (Arc::new(Chip::new()), tempfile::tempdir().unwrap());
        let path = folder.path();
        fs::write(path.join("root.pem"), chip.root_pem()).unwrap();
        fs::write(path.join("chain.pem"), chip.chain_pem()).unwrap();
        let policy = format!("measurement = [\"{}\"]\ntcb-min = {{ snp = 20 }}", "a5".repeat(48));
        fs::write(path.join("policy.toml"), format!("[[accept]]\ntee = \"snp\"\n{policy}\n"))
            .unwrap();
        let output = run_in_machine(
            &chip,
            path,
            &["certify", "localhost", "--cert", "own.pem", "--key", "own.key", "--evidence", "tsm"],
        );
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command with the world's policy, root and time.
    fn judge(&self, command: &[&str]) -> (Option<i32>, String) {
        let now = NOW.to_string();
        let fixed = ["--policy", "policy.toml", "--at", &now, "--collateral", "chain.pem"];
        run(self.path(), &[command, &fixed, &["--made-up-root", "root.pem"]].concat())
    }

    /// A server with this certificate and key. Returns its address.
    fn serve(&self, certificate: &str, key: &str) -> String {
        let chain = vec![CertificateDer::from_pem_file(self.path().join(certificate)).unwrap()];
        let key = PrivateKeyDer::from_pem_file(self.path().join(key)).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(
                rustls::sign::CertifiedKey::new(
                    chain,
                    aws_lc_rs::sign::any_supported_type(&key).unwrap(),
                ),
            )));
        let anyone = Clients::Anyone { remedy: "a test has no passwords" };
        let listener = listen::bind("127.0.0.1:0", anyone).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut session = ServerConnection::new(Arc::new(config.clone())).unwrap();
                let mut stream = stream.unwrap();
                while session.is_handshaking() && session.complete_io(&mut stream).is_ok() {}
            }
        });
        format!("localhost:{port}")
    }
}

#[test]
fn a_certificate_carries_evidence_for_its_key() {
    let world = World::new();
    let (code, said) = world.judge(&["verify", "own.pem"]);
    assert!(code == Some(0) && said.ends_with("ACCEPTED\n"), "{said}");
    let mode = fs::metadata(world.path().join("own.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // Neither file is replaced.
    let again = ["certify", "localhost", "--cert", "new.pem", "--key", "own.key"];
    let (code, said) = run(world.path(), &again);
    assert!(code == Some(4) && said.contains("exists already"), "{said}");
    // Elsewhere there is no evidence, and nothing is left behind.
    let (code, said) =
        run(world.path(), &["certify", "localhost", "--cert", "new.pem", "--key", "new.key"]);
    assert!(code == Some(4) && said.contains("no confidential virtual machine"), "{said}");
    assert!(!world.path().join("new.key").exists() && !world.path().join("new.pem").exists());
}

/// Another key with the same evidence, one bit of each byte, and a certificate without evidence.
#[test]
fn evidence_for_another_key_is_refused() {
    let world = World::new();
    let text = fs::read(world.path().join("own.pem")).unwrap();
    let honest = CertificateDer::pem_slice_iter(&text).next().unwrap().unwrap().to_vec();
    let evidence = CertificateEvidence::read(&honest).unwrap().unwrap();
    assert!(evidence.evidence.len() > 1000);
    let key = key_of(&honest);
    let at = honest.windows(key.len()).position(|window| window == key).unwrap();
    for byte in at..at + key.len() {
        let mut changed = honest.clone();
        changed[byte] ^= 1 << (byte % 8);
        let read = CertificateEvidence::read(&changed);
        assert!(!matches!(read, Some(Ok(_))), "{byte}");
    }
    // Clients would trust both. openssl takes the second form, too.
    let trusted =
        String::from_utf8(text.clone()).unwrap().replace("CERTIFICATE", "TRUSTED CERTIFICATE");
    for more in [&text[..], trusted.as_bytes()] {
        fs::write(world.path().join("two.pem"), [&text[..], b"\n", more].concat()).unwrap();
        let (code, said) = world.judge(&["verify", "two.pem"]);
        assert!(code == Some(1) && said.contains("this one alone"), "{said}");
    }
    let plain = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    fs::write(world.path().join("plain.pem"), plain.cert.pem()).unwrap();
    let (code, said) = world.judge(&["verify", "plain.pem"]);
    assert!(code == Some(1) && said.contains("no evidence in the certificate"), "{said}");

    let key = KeyPair::generate().unwrap();
    let extension = {
        use der::Decode;
        let certificate = x509_cert::Certificate::from_der(&honest).unwrap();
        let extensions = certificate.tbs_certificate().extensions().unwrap().clone();
        let name = "2.23.133.5.4.9";
        let found = extensions.iter().find(|each| each.extn_id.to_string() == name).unwrap();
        found.extn_value.as_bytes().to_vec()
    };
    // Claims for the other key, beside evidence that is bound to the honest claims.
    let own = Sha256::digest(key_of(&honest));
    let other = Sha256::digest(key.subject_public_key_info());
    let at = extension.windows(32).position(|window| window == own.as_slice()).unwrap();
    let mut forged = extension.clone();
    forged[at..at + 32].copy_from_slice(&other);
    for (extension, reason) in [(extension, "for another key"), (forged, "is not bound to")] {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        let extension = rcgen::CustomExtension::from_oid_content(&[2, 23, 133, 5, 4, 9], extension);
        params.custom_extensions.push(extension);
        let stolen = params.self_signed(&key).unwrap().pem();
        fs::write(world.path().join("stolen.pem"), stolen).unwrap();
        let (code, said) = world.judge(&["verify", "stolen.pem"]);
        assert!(code == Some(1) && said.contains(reason), "{said}");
    }
}

/// The public key of a certificate, in DER.
fn key_of(certificate: &[u8]) -> Vec<u8> {
    use der::{Decode, Encode};
    let certificate = x509_cert::Certificate::from_der(certificate).unwrap();
    certificate.tbs_certificate().subject_public_key_info().to_der().unwrap()
}

#[test]
fn clients_get_a_certificate_to_trust_only_if_it_is_accepted() {
    let world = World::new();
    let server = world.serve("own.pem", "own.key");
    let (code, said) = world.judge(&["pin", &server, "--out", "trusted.pem"]);
    assert!(code == Some(0) && said.contains("ACCEPTED"), "{said}");
    let read = |name: &str| {
        CertificateDer::from_pem_file(world.path().join(name)).unwrap().as_ref().to_vec()
    };
    assert_eq!(read("trusted.pem"), read("own.pem"));
    let mode = fs::metadata(world.path().join("trusted.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);

    // The certificate of a machine, sent without its key.
    fs::write(world.path().join("other.key"), KeyPair::generate().unwrap().serialize_pem())
        .unwrap();
    let impostor = world.serve("own.pem", "other.key");
    let (code, said) = world.judge(&["pin", &impostor, "--out", "trusted.pem"]);
    assert!(code == Some(4) && said.contains("cannot be used"), "{said}");

    let plain = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    fs::write(world.path().join("plain.pem"), plain.cert.pem()).unwrap();
    fs::write(world.path().join("plain.key"), plain.signing_key.serialize_pem()).unwrap();
    let server = world.serve("plain.pem", "plain.key");
    let (code, said) = world.judge(&["pin", &server, "--out", "trusted.pem"]);
    assert!(code == Some(1) && said.contains("no evidence in the certificate"), "{said}");
    assert_eq!(read("trusted.pem"), read("own.pem"), "what was trusted stays");
    assert_eq!(world.judge(&["pin", "localhost:1", "--out", "trusted.pem"]).0, Some(4));
    assert_eq!(world.judge(&["pin", "localhost", "--out", "trusted.pem"]).0, Some(4));
}
