//! The rows of the group python: what a call of the Python package costs beside the same call of
//! the library in Rust, and a sweep on a cluster of Ray beside one without.

use crate::args::PythonBenchArgs;
use crate::report::{Row, failed, print_rows};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use traceless::clock::{Clock, Monotonic};
use traceless::{Array, Map};
use traceless_cli::failure::Failure;

const SCRIPT: &str = include_str!("python.py");
const RAY_SCRIPT: &str = include_str!("python_ray.py");

/// What is swept, records of each run, and rounds: a sweep of half a minute.
const SWEPT: &str = "experiments/ir-oram/fig12.toml";
const SWEPT_RECORDS: u64 = 20_000;
const SWEEPS: u64 = 3;

// The sizes in the script.
const BLOCKS: u64 = 4096;
const BLOCK_LEN: usize = 4096;
const BATCH: u64 = 1000;
/// Of what single calls are of: what the library does in them is then not most of the time, and
/// what Python adds does not depend on the size.
const FEW_BLOCKS: u64 = 4;
const FEW_ENTRIES: u64 = 8;
/// Spreads addresses.
const STEP: u64 = 1237;

/// Rounds, each of turns of both. The median over a round's turns is what the round counts: of
/// longer turns, a processor that changes its speed would be most of the difference.
const ROUNDS: u64 = 5;
const TURNS: u64 = 128;

pub fn run(args: &PythonBenchArgs) -> Result<(), Failure> {
    let mut python = PythonProcess::start(args)?;
    let mut library = Library::new()?;
    let share = if args.quick { 8 } else { 1 };
    let (mut read, mut read_many, mut get) = (vec![], vec![], vec![]);
    for nth in 0..ROUNDS {
        let mut round = |name: &'static str, count: u64, compare: fn(f64, f64) -> f64| {
            let turn = |turn: u64| {
                let count = (count / share / TURNS).max(1);
                let is_first = (nth + turn).is_multiple_of(2);
                let before = if is_first { Some(python.time(name, count)?) } else { None };
                let rust = library.time(name, count)?;
                let python = before.map_or_else(|| python.time(name, count), Ok)?;
                Ok::<_, Failure>(compare(python, rust))
            };
            Ok::<_, Failure>(median((0..TURNS).map(turn).collect::<Result<_, _>>()?))
        };
        read.push(round("read", 32_000, |python, rust| python - rust)?);
        read_many.push(round("read-many", 16, |python, rust| python / rust)?);
        get.push(round("get", 128_000, |python, rust| python - rust)?);
    }
    let rows = vec![
        Row::of("python-read", "ns", read.into()),
        Row::of("python-read-many", "ratio", read_many.into()),
        Row::of("python-map-get", "ns", get.into()),
        ray_sweep(args)?,
    ];
    print_rows("traceless.python.bench.v1", &rows, args.json)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    f64::midpoint(values[middle], values[values.len() - 1 - middle])
}

/// The speed of a sweep on two workers of Ray, of the same sweep with two jobs.
fn ray_sweep(args: &PythonBenchArgs) -> Result<Row, Failure> {
    let (name, unit) = ("python-ray-sweep", "ratio");
    let (records, rounds) =
        if args.quick { (SWEPT_RECORDS / 4, 1) } else { (SWEPT_RECORDS, SWEEPS) };
    let mut command = Command::new(&args.python);
    command.args(["-c", RAY_SCRIPT, SWEPT, &records.to_string(), &rounds.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(why) = text.strip_prefix("absent: ") {
        return Ok(Row::absent(name, unit, why.trim().to_owned()));
    }
    let ratios: Result<Vec<f64>, _> = text.lines().map(str::parse).collect();
    match ratios {
        Ok(ratios) if output.status.success() && !ratios.is_empty() => {
            Ok(Row::of(name, unit, ratios.into()))
        }
        _ => Err(failed("the sweep on a cluster of Ray failed; its error is above")),
    }
}

/// A Python that runs the script.
struct PythonProcess {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl PythonProcess {
    fn start(args: &PythonBenchArgs) -> Result<Self, Failure> {
        let mut command = Command::new(&args.python);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let requests = child.stdin.take().expect("it was asked for");
        let replies = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok(Self { child, requests, replies })
    }

    /// The nanoseconds of one of `count` operations.
    fn time(&mut self, name: &str, count: u64) -> Result<f64, Failure> {
        writeln!(self.requests, "{name} {count}").map_err(failed)?;
        let mut line = String::new();
        self.replies.read_line(&mut line).map_err(failed)?;
        line.trim().parse().map_err(|_| failed("the script has ended; its error is above"))
    }
}

impl Drop for PythonProcess {
    fn drop(&mut self) {
        // Fails if the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same array and map in Rust.
struct Library {
    clock: Monotonic,
    few: Array,
    array: Array,
    batch: Vec<u64>,
    buffer: Vec<u8>,
    map: Map,
    keys: Vec<Vec<u8>>,
}

impl Library {
    fn new() -> Result<Self, Failure> {
        let [few, array] = [FEW_BLOCKS, BLOCKS].map(array_of);
        let (few, array) = (few?, array?);
        let built = Map::builder().capacity(FEW_ENTRIES).key_len(16).value_len(8).build();
        let mut map = built.map_err(failed)?;
        let keys: Vec<_> = (0..FEW_ENTRIES).map(|nth| format!("key {nth}").into_bytes()).collect();
        for key in &keys {
            map.insert(key, b"value").map_err(failed)?;
        }
        let batch = (0..BATCH).map(|nth| nth * STEP % BLOCKS).collect();
        let buffer = vec![0; BATCH as usize * BLOCK_LEN];
        Ok(Self { clock: Monotonic::start(), few, array, batch, buffer, map, keys })
    }

    /// The nanoseconds of one of `count` operations.
    fn time(&mut self, name: &str, count: u64) -> Result<f64, Failure> {
        let began = self.clock.now();
        for nth in 0..count {
            self.operate(name, nth).map_err(failed)?;
        }
        Ok((self.clock.now() - began) as f64 / count as f64)
    }

    fn operate(&mut self, name: &str, nth: u64) -> traceless::Result {
        match name {
            "read" => drop(black_box(self.few.read(nth % FEW_BLOCKS)?)),
            "read-many" => self.array.read_many(&self.batch, &mut self.buffer)?,
            _ => drop(black_box(self.map.get(&self.keys[(nth % FEW_ENTRIES) as usize])?)),
        }
        Ok(())
    }
}

/// An array of so many blocks, all of them written.
fn array_of(blocks: u64) -> Result<Array, Failure> {
    let built = Array::builder().blocks(blocks).block_len(BLOCK_LEN).build();
    let mut array = built.map_err(failed)?;
    for nth in 0..blocks {
        array.write(nth, &[nth as u8; BLOCK_LEN]).map_err(failed)?;
    }
    Ok(array)
}
