//! Starts servers for tests, from the packages of the system.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use traceless_sys::listen::{self, Clients};

/// How long a server may take to start.
const START_TIME: Duration = Duration::from_mins(1);
/// How long a test waits before it looks again.
const PAUSE: Duration = Duration::from_millis(20);
/// The number of the user and group that run servers if root runs the tests.
const ORDINARY_USER: u32 = 65534;

/// A server on this machine, which ends with its value.
pub struct TestServer {
    command: Command,
    child: Child,
    /// The server's port.
    pub port: u16,
    folder: TempDir,
}

impl TestServer {
    /// Starts the server again, with its files.
    pub fn restart(&mut self) {
        self.child = self.command.spawn().expect("it was started before");
        self.wait();
    }

    /// Waits until the server listens.
    fn wait(&mut self) {
        let mut pauses = 0;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let has_ended = self.child.try_wait().unwrap().is_some();
            let log = || fs::read_to_string(self.folder.path().join("server.log"));
            assert!(!has_ended && pauses * PAUSE < START_TIME, "{}", log().unwrap());
            std::thread::sleep(PAUSE);
            pauses += 1;
        }
    }

    /// Ends the server at once, as a crash does.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child of this process");
        self.child.wait().expect("a child of this process");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nothing uses now.
pub fn free_port() -> u16 {
    let listener = listen::bind("127.0.0.1:0", Clients::Authenticated).unwrap();
    listener.local_addr().unwrap().port()
}

/// Runs a program of a server in a folder, and waits until it listens.
pub fn start(mut command: Command, port: u16, folder: TempDir) -> TestServer {
    let log = fs::File::create(folder.path().join("server.log")).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}; run ./test unit"));
    let mut server = TestServer { command, child, port, folder };
    server.wait();
    server
}

/// A program of a package, in the search path or where the package puts it.
pub fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Debian has several versions of PostgreSQL side by side.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let programs = folders.into_iter().map(|folder| folder.join(name));
    programs.into_iter().find(|path| path.exists()).unwrap_or_else(|| name.into())
}

/// A folder that the user of [`as_user`] owns.
pub fn folder_of_user() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    give_to_user(folder.path());
    folder
}

/// Makes the user of [`as_user`] the owner of a file.
pub fn give_to_user(path: &Path) {
    if is_root() {
        chown(path, Some(ORDINARY_USER), Some(ORDINARY_USER)).unwrap();
    }
}

/// A command that runs a program as an ordinary user, even for root: PostgreSQL insists on it.
pub fn as_user(program: &Path) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(program);
    if is_root() {
        command.uid(ORDINARY_USER).gid(ORDINARY_USER);
    }
    command
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
