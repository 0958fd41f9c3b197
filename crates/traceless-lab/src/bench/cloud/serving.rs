//! The program `traceless` in separate processes, and `redis-benchmark` as a client.

use crate::program;
use crate::report::failed;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use traceless_cli::failure::{DEVICE, Failure};

/// A process that serves until this is dropped.
pub struct ServingProcess {
    child: Child,
    /// The address at which it serves.
    pub address: String,
}

impl ServingProcess {
    /// Starts the program `traceless`, which prints `"{what} at ADDRESS"` once it serves.
    pub fn start(args: &[&OsStr], what: &str) -> Result<Self, Failure> {
        let mut command = program::traceless();
        // Its warnings are for a server in production, so they are dropped.
        let command = command.args(args).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
        let address_of = |line: String| {
            let (_, rest) = line.split_once(&format!("{what} at "))?;
            rest.split([',', ' ']).next().map(str::to_owned)
        };
        let address = lines.map_while(Result::ok).find_map(address_of);
        // If there is no address, dropping this ends the child.
        let serving = Self { child, address: address.clone().unwrap_or_default() };
        match address {
            Some(_) => Ok(serving),
            None => Err(failed(format!("traceless {} did not begin to serve", args[0].display()))),
        }
    }
}

impl ServingProcess {
    /// Seconds of processors that the threads of this process and of its children have taken.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds_of(self.child.id())
    }
}

fn cpu_seconds_of(process: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let own = tasks.flatten().filter_map(|task| {
        let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        times.split(' ').next()?.parse::<f64>().ok()
    });
    own.sum::<f64>() / 1e9 + children(process).into_iter().map(cpu_seconds_of).sum::<f64>()
}

fn children(process: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |number: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        // The name before it may hold anything; then come the state and the parent.
        let rest = stat.rsplit(") ").next().unwrap_or_default();
        rest.split(' ').nth(1) == Some(&process.to_string())
    };
    numbers.filter(is_child).collect()
}

impl Drop for ServingProcess {
    fn drop(&mut self) {
        // Fails if the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `redis-benchmark` sends: sets and gets of values of 1 KiB.
#[derive(Clone, Copy)]
pub struct RedisLoad {
    pub clients: u32,
    /// Commands that a client sends at once.
    pub pipelined: u32,
    /// Requests of each kind.
    pub requests: u64,
    /// The names are drawn from so many.
    pub names: u32,
}

impl RedisLoad {
    /// Many clients with pipelining.
    pub fn pipelined(requests: u64) -> Self {
        Self { clients: 50, pipelined: 16, requests, names: 100_000 }
    }
}

/// Requests per second of `redis-benchmark`: sets and gets.
pub fn redis_benchmark(gateway: &ServingProcess, load: &RedisLoad) -> Result<[f64; 2], Failure> {
    let port = gateway.address.rsplit(':').next().unwrap_or_default();
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", port, "-t", "set,get", "-d", "1024", "--csv"]);
    let RedisLoad { clients, pipelined, requests, names } = load;
    for (option, value) in
        [("-c", clients.to_string()), ("-P", pipelined.to_string()), ("-r", names.to_string())]
    {
        command.args([option, &value]);
    }
    command.args(["-n", &requests.to_string()]);
    let output = command.output().map_err(|e| {
        Failure::new(DEVICE, format!("redis-benchmark: {e}; it is in Debian's redis-tools"))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("\"{name}\",\"")));
        line.and_then(|rest| rest.split('"').next()).and_then(|rate| rate.parse().ok())
    };
    let stderr = || String::from_utf8_lossy(&output.stderr);
    of("SET").zip(of("GET")).map_or_else(
        || Err(failed(format!("redis-benchmark: {}{}", text.trim(), stderr().trim()))),
        |(set, get)| Ok([set, get]),
    )
}
