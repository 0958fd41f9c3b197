//! PostgreSQL with its processes paged, beside the same server without paging: transactions a
//! second of pgbench. Its server forks a process for each client.

use crate::program;
use crate::report::{Row, failed, row};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use traceless_cli::failure::Failure;

/// The row.
pub const NAME: &str = "pager-postgres";

/// Where Debian has each version's programs.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that the server runs as, if this process is root: PostgreSQL refuses root.
const ORDINARY_USER: u32 = 65534;
/// Scale of pgbench's tables: 100,000 rows each.
const SCALE: &str = "4";
const CLIENTS: &str = "8";
/// Memory that the processes share. It is not paged.
const SHARED_BUFFERS: &str = "64MB";
/// How often to look whether a server has started.
const START_INTERVAL: Duration = Duration::from_millis(50);
const START_POLLS: u32 = 600;

/// Measures in `rounds`, each of so many `seconds` with paging, and as many without.
pub fn measure(rounds: u64, seconds: u64) -> Result<Row, Failure> {
    let Some(programs) = programs() else {
        let why = "PostgreSQL is not installed (Debian: apt install postgresql)";
        return Ok(Row::absent(NAME, "ratio", why));
    };
    let folder = tempfile::tempdir_in("/var/tmp").map_err(failed)?;
    if rustix::process::geteuid().is_root() {
        let user = Some(ORDINARY_USER);
        std::os::unix::fs::chown(folder.path(), user, user).map_err(failed)?;
    }
    let bench = ServerBench { programs, folder: folder.path() };
    bench.initialize()?;
    let mut ratios = vec![];
    for _ in 0..rounds {
        let native = bench.rate(false, seconds)?;
        ratios.push(bench.rate(true, seconds)? / native);
    }
    Ok(row(NAME, "ratio", ratios))
}

/// The folder with the programs of the latest version.
fn programs() -> Option<PathBuf> {
    let folders = std::fs::read_dir(VERSIONS).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let all = folders.map(|folder| folder.join("bin"));
    all.filter(|folder| folder.join("pgbench").exists()).max()
}

struct ServerBench<'a> {
    programs: PathBuf,
    folder: &'a Path,
}

impl ServerBench<'_> {
    /// A program of PostgreSQL, as an ordinary user.
    fn program(&self, name: &str) -> Command {
        self.as_ordinary_user(&self.programs.join(name))
    }

    /// A program as a user that may page a program, and has no other right.
    fn as_ordinary_user(&self, path: &Path) -> Command {
        let mut command = if rustix::process::geteuid().is_root() {
            let rights = "+sys_ptrace,+ipc_lock";
            let user = ORDINARY_USER.to_string();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
            command.args(["--inh-caps", rights, "--ambient-caps", rights]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir(self.folder).stdin(Stdio::null()).env("LC_ALL", "C.UTF-8");
        command
    }

    fn initialize(&self) -> Result<(), Failure> {
        output_of(self.program("initdb").args(["-D", "data", "-U", "bench", "-A", "trust"]))?;
        let _server = self.start(false)?;
        output_of(self.client("createdb").arg("bench"))?;
        output_of(self.client("pgbench").args(["-i", "-q", "-s", SCALE, "bench"])).map(drop)
    }

    /// A client program of the server that runs.
    fn client(&self, name: &str) -> Command {
        let mut command = self.program(name);
        command.arg("-h").arg(self.folder).args(["-U", "bench"]);
        command
    }

    /// Transactions a second.
    fn rate(&self, is_paged: bool, seconds: u64) -> Result<f64, Failure> {
        let _server = self.start(is_paged)?;
        let mut client = self.client("pgbench");
        client.args(["-c", CLIENTS, "-j", "2", "-T", &seconds.to_string(), "bench"]);
        let text = output_of(&mut client)?;
        let line = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let number = line.and_then(|rest| rest.split(' ').next()?.parse().ok());
        number.ok_or_else(|| failed(format!("pgbench printed no rate: {text}")))
    }

    /// Starts the server, and waits until it answers.
    fn start(&self, is_paged: bool) -> Result<Server, Failure> {
        let postgres = self.programs.join("postgres");
        let mut command = if is_paged {
            let traceless = program::traceless();
            let mut command = self.as_ordinary_user(Path::new(traceless.get_program()));
            command.args(["run", "--"]).arg(postgres);
            command
        } else {
            self.as_ordinary_user(&postgres)
        };
        let buffers = format!("shared_buffers={SHARED_BUFFERS}");
        command.args(["-D", "data", "-c", "listen_addresses=", "-c", &buffers]);
        command.arg("-k").arg(self.folder).stdout(Stdio::null());
        let log = self.folder.join("log");
        let child = command.stderr(File::create(&log).map_err(failed)?).spawn().map_err(failed)?;
        let server = Server(child);
        for _ in 0..START_POLLS {
            if output_of(&mut self.client("pg_isready")).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(START_INTERVAL);
        }
        let why = std::fs::read_to_string(&log).unwrap_or_default();
        Err(failed(format!("PostgreSQL does not start: {why}")))
    }
}

/// A server. Dropping it ends it in order.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// What a command prints; a failure with what it said if it fails.
fn output_of(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(failed)?;
    if !output.status.success() {
        let name = command.get_program().display();
        return Err(failed(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
