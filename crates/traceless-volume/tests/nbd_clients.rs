//! Real NBD clients against the server: nbdinfo, nbdcopy, qemu-img and fio.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use tempfile::TempDir;
use traceless_volume::device::Device;
use traceless_volume::nbd::{self, Endpoint, Handle, Options, Server, TlsFiles};

const MIB: usize = 1 << 20;
const DISK_LEN: usize = 24 * MIB;

#[test]
fn nbdinfo_sees_what_is_offered() {
    let served = Served::on_unix(DISK_LEN);
    let json = run("nbdinfo", &["--json", &served.uri]);
    for expected in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"TLS\": false",
        "\"structured\": true",
        &format!("\"export-size\": {DISK_LEN}"),
        "\"description\": \"Traceless volume\"",
        "\"is_read_only\": false",
        "\"can_df\": true",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": false",
        "\"can_zero\": true",
        "\"can_fast_zero\": false",
        "\"block_size_minimum\": 512",
        "\"block_size_preferred\": 4096",
        &format!("\"block_size_maximum\": {}", 32 * MIB),
    ] {
        assert!(json.contains(expected), "no {expected} in {json}");
    }
    let list = run("nbdinfo", &["--list", &served.uri]);
    assert!(list.contains("export=\"\""), "{list}");
}

#[test]
fn nbdcopy_brings_back_what_it_took() {
    let served = Served::on_unix(DISK_LEN);
    copy_there_and_back(&served, &served.uri);
    assert!(served.disk.flushes.load(Ordering::Relaxed) > 0, "--flush has reached the device");
}

#[test]
fn nbdcopy_speaks_tls() {
    let authority = Authority::new();
    let served = Served::on_tcp(DISK_LEN, authority.files(false));
    copy_there_and_back(&served, &authority.uri(&served));
    let plain = served.uri.replace("nbds:", "nbd:");
    let output = output("nbdinfo", &["--size", &plain]);
    assert!(!output.status.success(), "TLS is not optional on TCP");
}

#[test]
fn a_client_must_show_its_certificate_if_that_is_wanted() {
    let authority = Authority::new();
    let served = Served::on_tcp(DISK_LEN, authority.files(true));
    let uri = authority.uri(&served);
    run("nbdinfo", &["--size", &uri]);
    for file in ["client-cert.pem", "client-key.pem"] {
        std::fs::remove_file(authority.folder.path().join(file)).unwrap();
    }
    let output = output("nbdinfo", &["--size", &uri]);
    assert!(!output.status.success(), "it has none any more");
}

#[test]
fn qemu_img_converts_and_compares() {
    let served = Served::on_unix(DISK_LEN);
    let folder = TempDir::new().unwrap();
    let image = image(folder.path());
    let image = image.to_str().unwrap();
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &served.uri]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &served.uri]);
    let back = folder.path().join("back.img");
    let back = back.to_str().unwrap();
    run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &served.uri, back]);
    assert!(std::fs::read(image).unwrap() == std::fs::read(back).unwrap());
}

#[test]
fn fio_verifies_what_it_wrote() {
    let served = Served::on_unix(DISK_LEN);
    let fio = |cell: &str| served.fio(&format!("--rw=randwrite --verify=crc32c {cell}"));
    fio("--bs=4k --iodepth=32 --size=8m --fsync=100");
    fio("--bsrange=512-256k --blockalign=512 --iodepth=8 --size=16m");
    assert!(served.disk.flushes.load(Ordering::Relaxed) >= 20, "fsyncs have become flushes");
}

/// Measures, and asserts nothing: `cargo test --release -p traceless-volume --test nbd_clients --
/// --ignored --nocapture`.
#[test]
#[ignore = "takes half a minute and wants a quiet machine"]
fn speed() {
    let cells = [
        ("4 KiB random read, depth 32", "--rw=randread --bs=4k --iodepth=32"),
        ("4 KiB random write, depth 32", "--rw=randwrite --bs=4k --iodepth=32"),
        ("4 KiB random read, depth 1", "--rw=randread --bs=4k --iodepth=1"),
        ("4 KiB random write, depth 1", "--rw=randwrite --bs=4k --iodepth=1"),
        ("1 MiB write, depth 4", "--rw=write --bs=1m --iodepth=4"),
        ("1 MiB read, depth 4", "--rw=read --bs=1m --iodepth=4"),
    ];
    for round in 0..3 {
        for (what, cell) in cells {
            let served = Served::on_unix(512 * MIB);
            let limits = "--size=512m --time_based --runtime=2 --minimal";
            let terse = served.fio(&format!("{cell} {limits}"));
            let fields: Vec<f64> =
                terse.trim().split(';').map(|field| field.parse().unwrap_or(0.0)).collect();
            // Terse format 3: bandwidth in KiB/s and IOPS of reads, then of writes.
            let (rate, iops) = (fields[6] + fields[47], fields[7] + fields[48]);
            let rate = rate * 1024.0 / 1e9;
            println!("round {round}: {what:<30} {iops:>8.0} IOPS {rate:>6.2} GB/s");
        }
    }
}

/// A server in a thread, on a disk in memory. Drop ends it.
struct Served {
    uri: String,
    socket: PathBuf,
    disk: Arc<MemoryDisk>,
    handle: Handle,
    thread: Option<JoinHandle<nbd::Result<()>>>,
    folder: TempDir,
}

impl Served {
    fn on_unix(len: usize) -> Self {
        Self::start(len, Endpoint::Unix, &Options::default())
    }

    fn on_tcp(len: usize, tls: TlsFiles) -> Self {
        let endpoint = |_| Endpoint::Tcp(([127, 0, 0, 1], 0).into());
        Self::start(len, endpoint, &Options { tls: Some(tls), ..Options::default() })
    }

    fn start(len: usize, endpoint: impl Fn(PathBuf) -> Endpoint, options: &Options) -> Self {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("nbd.sock");
        let server = Server::bind(endpoint(socket.clone()), options).unwrap();
        let uri = match server.tcp_address() {
            Some(address) => format!("nbds://localhost:{}/", address.port()),
            None => format!("nbd+unix:///?socket={}", socket.display()),
        };
        let handle = server.handle();
        let disk = Arc::new(MemoryDisk::new(len));
        let device: Arc<dyn Device> = disk.clone();
        let thread = Some(std::thread::spawn(move || server.run(&device)));
        Self { uri, socket, disk, handle, thread, folder }
    }

    fn fio(&self, arguments: &str) -> String {
        let uri = format!("--uri={}", self.uri);
        // fio writes the state of a verification into its current folder unless given another.
        let aux = format!("--aux-path={}", self.folder.path().display());
        let mut all = vec!["--name=test", "--ioengine=nbd", "--verify_state_save=0", &uri, &aux];
        all.extend(arguments.split(' '));
        run("fio", &all)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.shutdown();
        let result = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap().unwrap();
            assert!(!self.socket.exists(), "the socket is removed");
        }
    }
}

struct MemoryDisk {
    regions: Vec<RwLock<Vec<u8>>>,
    flushes: AtomicUsize,
}

impl MemoryDisk {
    fn new(len: usize) -> Self {
        // Not zeros, so that a client that relies on zeros fails, and so that the memory is
        // allocated.
        let regions = (0..len / MIB).map(|_| RwLock::new(vec![0xa5; MIB])).collect();
        Self { regions, flushes: AtomicUsize::new(0) }
    }

    /// Calls `act` for each region that a request touches, with the region, the offset in it, the
    /// offset in the request, and the length.
    fn pieces(at: u64, len: usize, mut act: impl FnMut(usize, usize, usize, usize)) {
        let (mut at, mut done) = (at as usize, 0);
        while done < len {
            let step = (MIB - at % MIB).min(len - done);
            act(at / MIB, at % MIB, done, step);
            at += step;
            done += step;
        }
    }
}

impl Device for MemoryDisk {
    fn len(&self) -> u64 {
        (self.regions.len() * MIB) as u64
    }

    fn block_len(&self) -> u32 {
        4096
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        Self::pieces(at, into.len(), |region, place, done, len| {
            let region = self.regions[region].read().unwrap();
            into[done..done + len].copy_from_slice(&region[place..place + len]);
        });
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        Self::pieces(at, from.len(), |region, place, done, len| {
            let mut region = self.regions[region].write().unwrap();
            region[place..place + len].copy_from_slice(&from[done..done + len]);
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A certificate authority. Its folder also serves as the client's.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca-cert.pem"), certificate.pem()).unwrap();
        let authority = Self { folder, issuer: Issuer::new(params, key) };
        authority.sign("localhost", "server", ExtendedKeyUsagePurpose::ServerAuth);
        authority.sign("client", "client", ExtendedKeyUsagePurpose::ClientAuth);
        authority
    }

    fn sign(&self, name: &str, files: &str, purpose: ExtendedKeyUsagePurpose) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |what: &str| self.folder.path().join(format!("{files}-{what}.pem"));
        std::fs::write(path("cert"), certificate.pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
    }

    fn files(&self, mutual: bool) -> TlsFiles {
        let path = |file: &str| self.folder.path().join(file);
        TlsFiles {
            certificates: path("server-cert.pem"),
            key: path("server-key.pem"),
            client_ca: mutual.then(|| path("ca-cert.pem")),
        }
    }

    fn uri(&self, served: &Served) -> String {
        let folder = self.folder.path().display();
        format!("{}?tls-certificates={folder}&tls-verify-peer=true", served.uri)
    }
}

/// Writes an image with data, zeros and more data.
fn image(folder: &Path) -> PathBuf {
    let mut state = 1u64;
    let mut bytes: Vec<u8> = (0..DISK_LEN / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()
        })
        .collect();
    bytes[5 * MIB + 512..17 * MIB].fill(0);
    let path = folder.join("in.img");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn copy_there_and_back(served: &Served, uri: &str) {
    let folder = TempDir::new().unwrap();
    let image = image(folder.path());
    let back = folder.path().join("back.img");
    run("nbdcopy", &["--flush", image.to_str().unwrap(), uri]);
    let mut held = vec![0; DISK_LEN];
    served.disk.read(0, &mut held).unwrap();
    let expected = std::fs::read(image).unwrap();
    assert!(held == expected, "the device holds the image");
    run("nbdcopy", &[uri, back.to_str().unwrap()]);
    assert!(std::fs::read(back).unwrap() == expected, "the copy is the image");
}

/// Runs a client that must succeed, and returns its output.
fn run(client: &str, arguments: &[&str]) -> String {
    let output = output(client, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{client} {arguments:?} failed: {errors}{text}");
    text
}

fn output(client: &str, arguments: &[&str]) -> Output {
    let package = match client {
        "qemu-img" => "qemu-utils",
        "fio" => "fio",
        _ => "libnbd-bin",
    };
    // `timeout` makes a client that hangs fail.
    let mut command = Command::new("timeout");
    command.arg("60").arg(client).args(arguments);
    let output = command.output().expect("timeout is missing: install coreutils");
    assert_ne!(output.status.code(), Some(127), "{client} is missing: install {package}");
    output
}
