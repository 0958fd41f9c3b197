//! Skewed requests at a constant rate of queries, with and without copies of blocks used lately.

use super::serving::ServingProcess;
use crate::report::{Row, failed, row};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use traceless::clock::{Clock, Monotonic};
use traceless_cli::failure::Failure;
use traceless_cli::output::print_error;
use traceless_sim::workload::{Op, Pattern, Record, Synthetic};

/// Clients, each with one request at a time.
const CLIENTS: usize = 16;
const VALUE_LEN: usize = 1024;
const TICKS_PER_SECOND: &str = "fixed=2000/s";
const SKEW: f64 = 0.99;
const WRITE_SHARE: f64 = 0.05;
/// Of the values, the share that fits into the copies.
const COPIED: u64 = 2;
const ROUNDS: usize = 3;
/// Values that one message sets while the gateway is filled.
const TOGETHER: u64 = 64;
const LINE_LEN: u64 = 64;

/// The row of requests a second with copies, of requests a second without.
pub fn requests(quick: bool) -> Result<Row, Failure> {
    let names: u64 = if quick { 20_000 } else { 200_000 };
    print_error(&format!("measuring skewed requests for {names} values at {TICKS_PER_SECOND}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    fill(&start(folder.path(), names, &[])?, names)?;
    let mut rates = [vec![], vec![]];
    let copies = (names * VALUE_LEN as u64 / COPIED).to_string();
    let rate = ["--rate", TICKS_PER_SECOND];
    for (rates, more) in rates.iter_mut().zip([&[][..], &["--copies", &copies]]) {
        let gateway = start(folder.path(), names, &[&rate, more].concat())?;
        let workload = Synthetic {
            bytes: names * LINE_LEN,
            write_share: WRITE_SHARE,
            ..Synthetic::new(Pattern::Zipf(SKEW))
        };
        let mut requests = workload.records(1).map_err(failed)?;
        // Until the copies are full.
        run(&gateway, &mut requests, 2 * names as usize)?;
        for _ in 0..ROUNDS {
            rates.push(run(&gateway, &mut requests, names as usize / 2)?);
        }
        print_error(&format!("requests a second: {rates:.0?}"));
    }
    let [without, with] = rates;
    let ratios = with.iter().zip(without).map(|(with, without)| with / without).collect();
    Ok(row("cloud-rate-copies", "ratio", ratios))
}

fn start(folder: &Path, names: u64, more: &[&str]) -> Result<ServingProcess, Failure> {
    let words = "gateway --resp 127.0.0.1:0 --allow-simulated-tee --durability process --blocks";
    let blocks = (names + names / 8).to_string();
    let mut all: Vec<&OsStr> = words.split(' ').chain([&*blocks]).map(OsStr::new).collect();
    all.extend([OsStr::new("--local"), folder.as_os_str()]);
    all.extend(more.iter().map(OsStr::new));
    ServingProcess::start(&all, "RESP")
}

fn fill(gateway: &ServingProcess, names: u64) -> Result<(), Failure> {
    let mut client = Client::connect(gateway)?;
    for first in (0..names).step_by(TOGETHER as usize) {
        let some = first..names.min(first + TOGETHER);
        for name in some.clone() {
            client.send_set(name)?;
        }
        for _ in some {
            client.expect_ok()?;
        }
    }
    Ok(())
}

/// Makes so many requests. Returns how many were made a second.
fn run(
    gateway: &ServingProcess,
    requests: &mut (impl Iterator<Item = Record> + Send),
    count: usize,
) -> Result<f64, Failure> {
    let requests = Mutex::new(requests.take(count));
    let clock = Monotonic::start();
    std::thread::scope(|scope| {
        let client = |_| {
            let requests = &requests;
            scope.spawn(move || {
                let mut client = Client::connect(gateway)?;
                let next = || requests.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(Record { op, addr, .. }) = next() {
                    client.request(op, addr / LINE_LEN)?;
                }
                Ok(())
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let panicked = |_| Err(failed("a client is gone"));
        clients.into_iter().try_for_each(|client| client.join().unwrap_or_else(panicked))
    })?;
    Ok(count as f64 * 1e9 / clock.now() as f64)
}

/// A connection that sets and gets values.
struct Client {
    stream: BufReader<TcpStream>,
    line: String,
    value: Vec<u8>,
}

impl Client {
    fn connect(gateway: &ServingProcess) -> Result<Self, Failure> {
        let stream = TcpStream::connect(&gateway.address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self { stream: BufReader::new(stream), line: String::new(), value: Vec::new() })
    }

    fn request(&mut self, op: Op, name: u64) -> Result<(), Failure> {
        if op == Op::Write {
            self.send_set(name)?;
            return self.expect_ok();
        }
        let get = format!("*2\r\n$3\r\nGET\r\n$12\r\n{name:012}\r\n");
        self.stream.get_mut().write_all(get.as_bytes()).map_err(failed)?;
        if self.read_line()? != format!("${VALUE_LEN}") {
            return Err(failed(format!("GET was answered with {}", self.line)));
        }
        self.value.resize(VALUE_LEN + 2, 0);
        self.stream.read_exact(&mut self.value).map_err(failed)?;
        if self.value[..8] != name.to_le_bytes() {
            return Err(failed(format!("the value {name} is another one")));
        }
        Ok(())
    }

    fn send_set(&mut self, name: u64) -> Result<(), Failure> {
        let set = format!("*3\r\n$3\r\nSET\r\n$12\r\n{name:012}\r\n${VALUE_LEN}\r\n");
        let mut message = set.into_bytes();
        let end = message.len() + VALUE_LEN;
        message.extend(name.to_le_bytes());
        message.resize(end, b'v');
        message.extend(b"\r\n");
        self.stream.get_mut().write_all(&message).map_err(failed)
    }

    fn expect_ok(&mut self) -> Result<(), Failure> {
        match self.read_line()? {
            "+OK" => Ok(()),
            other => Err(failed(format!("SET was answered with {other}"))),
        }
    }

    fn read_line(&mut self) -> Result<&str, Failure> {
        self.line.clear();
        self.stream.read_line(&mut self.line).map_err(failed)?;
        Ok(self.line.trim_end())
    }
}
