//! Certificates for tests, made by `openssl`.

use crate::servers::program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The extensions of a server's certificate for a server of a test.
pub const OF_SERVER: &str = "subjectAltName=IP:127.0.0.1,DNS:localhost";
/// The same for a server elsewhere.
pub const OF_ANOTHER: &str = "subjectAltName=DNS:another.example";
/// The extensions of a client's certificate.
pub const OF_CLIENT: &str = "extendedKeyUsage=clientAuth";

/// Certificates below roots, in a folder: `NAME.pem` and `NAME.key`.
pub struct TestCertificates(PathBuf);

impl TestCertificates {
    /// Two roots, `root` and `stranger`.
    pub fn new(folder: &Path) -> Self {
        let made = Self(folder.to_owned());
        for name in ["root", "stranger"] {
            made.make_own(name);
        }
        made
    }

    /// A certificate that its own key has signed, for any use.
    pub fn make_own(&self, name: &str) {
        let subject = format!("/CN={name}");
        self.openssl(
            &["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"],
            &["-subj", &subject, "-days", "2", "-addext", OF_SERVER],
            &[("-keyout", format!("{name}.key")), ("-out", format!("{name}.pem"))],
        );
    }

    /// A certificate that a root has signed, with these extensions. `dates` are of the form
    /// `YYYYMMDDHHMMSSZ`.
    pub fn make(&self, name: &str, root: &str, extensions: &str, dates: [&str; 2]) {
        let subject = format!("/CN={name}");
        self.openssl(
            &["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"],
            &["-subj", &subject],
            &[("-keyout", format!("{name}.key")), ("-out", format!("{name}.csr"))],
        );
        let config = "[ca]\ndefault_ca=here\n[here]\ndatabase=index\nnew_certs_dir=.\n\
                      rand_serial=yes\ndefault_md=sha384\npolicy=any\n[any]\n\
                      commonName=supplied\n";
        fs::write(self.0.join("ca.conf"), config).unwrap();
        fs::write(self.0.join("extensions"), format!("{extensions}\n")).unwrap();
        fs::write(self.0.join("index"), "").unwrap();
        self.openssl(
            &["ca", "-batch", "-notext", "-config", "ca.conf", "-extfile", "extensions"],
            &["-startdate", dates[0], "-enddate", dates[1]],
            &[
                ("-cert", format!("{root}.pem")),
                ("-keyfile", format!("{root}.key")),
                ("-in", format!("{name}.csr")),
                ("-out", format!("{name}.pem")),
            ],
        );
    }

    /// The file of a certificate, as `NAME.pem`, or of its key.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn openssl(&self, begin: &[&str], options: &[&str], files: &[(&str, String)]) {
        let mut command = Command::new(program("openssl"));
        command.current_dir(&self.0).args(begin).args(options);
        for (option, file) in files {
            command.args([option, file.as_str()]);
        }
        let done = command.output().unwrap();
        assert!(done.status.success(), "{command:?}: {done:?}");
    }
}

/// Dates of a certificate that is valid now.
pub const VALID: [&str; 2] = ["20240101000000Z", "20990101000000Z"];
/// Dates of one that was valid.
pub const EXPIRED: [&str; 2] = ["20240101000000Z", "20250101000000Z"];
