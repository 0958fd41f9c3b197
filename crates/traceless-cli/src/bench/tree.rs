//! `traceless bench tree`: one scheme in memory, one access after the other.

use crate::args::{Client, Seal, TreeArgs, TreeScheme};
use crate::failure::Failure;
use crate::numbers::{Hardware, failed, peak_memory, summary};
use crate::output::{say, say_json};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use traceless::clock::{Clock, Monotonic};
use traceless::controller::{Controller, Stepped};
use traceless::posmap::LABEL_LEN;
use traceless::rng::{Rng, Seeded, System};
use traceless::scheme::path::PathOram;
use traceless::scheme::pmmac::Pmmac;
use traceless::seal::{Aead, Aegis, Hashed, Masked, Sealer, Secret, TAG_LEN, Unsealed};
use traceless::store::MemStore;
use traceless::tree::{BucketTree, GhostTree, Header, STASH_BLOCKS, SealedTree, Shape, Treetop};
use traceless::types::{Addr, Leaf};

/// Slots for each block, at least: so a tree is at most 5/8 full.
const SLOTS_PER_BLOCK: f64 = 1.6;

/// Bytes of a row of the DRAM that a simulated tree lies in.
const ROW_LEN: usize = 8192;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    machine: Hardware,
    what: What,
    numbers: Numbers,
}

/// What was measured, so that no two rows are compared that do not do the same.
#[derive(Serialize)]
struct What {
    scheme: &'static str,
    client: &'static str,
    blocks: u64,
    block_len: usize,
    cipher: &'static str,
    encrypted: bool,
    authenticated: bool,
    fresh: bool,
    levels: usize,
    z: u8,
    cached_levels: usize,
    maps_in_trees: usize,
}

#[derive(Serialize, Deserialize)]
pub struct Numbers {
    pub accesses_per_cpu_second: f64,
    pub accesses_per_second: f64,
    pub cpu_us_per_access: f64,
    /// Largest less smallest round, as a share of the median.
    pub spread: f64,
    pub paths_per_access: f64,
    /// Moved between store and trusted memory.
    pub bytes_per_access: f64,
    pub init_seconds: f64,
    pub peak_memory_bytes: u64,
    pub memory_over_payload: f64,
}

pub fn run(args: &TreeArgs) -> Result<(), Failure> {
    let report = Report {
        schema: "traceless.bench.tree.v1",
        machine: Hardware::here(),
        what: What::of(args)?,
        numbers: measure(args)?,
    };
    if args.json {
        return say_json(&report);
    }
    let (what, numbers) = (&report.what, &report.numbers);
    say(&report.machine.to_string());
    say(&format!(
        "{}, {} client, {} blocks of {} bytes; {}; {} levels, Z = {}, {} cached; {} maps in trees",
        what.scheme,
        what.client,
        what.blocks,
        what.block_len,
        what.cipher,
        what.levels,
        what.z,
        what.cached_levels,
        what.maps_in_trees,
    ));
    let lines = [
        ("an access, CPU", numbers.cpu_us_per_access, "us"),
        ("accesses a second, CPU", numbers.accesses_per_cpu_second, ""),
        ("accesses a second, wall", numbers.accesses_per_second, ""),
        ("spread", numbers.spread * 100.0, "%"),
        ("paths an access", numbers.paths_per_access, ""),
        ("bytes moved an access", numbers.bytes_per_access, ""),
        ("initialisation", numbers.init_seconds, "s"),
        ("peak memory over payload", numbers.memory_over_payload, ""),
    ];
    for (name, value, unit) in lines {
        say(&format!("{name:<28}{value:>14.3} {unit}"));
    }
    Ok(())
}

impl What {
    fn of(args: &TreeArgs) -> Result<Self, Failure> {
        let cipher = match args.seal {
            _ if args.block_len == 0 => "none",
            Seal::None => "none",
            Seal::Aead => "AES-256-GCM, a tag a bucket",
            Seal::Aegis => "AEGIS-256, a tag a bucket",
            Seal::Pmmac => "AES-256-CTR, AEGIS-256, a tag a block",
            Seal::Merkle => "AES-256-CTR, SHA-256, a hash a bucket",
        };
        let sealed = cipher != "none";
        Ok(Self {
            scheme: match args.scheme {
                TreeScheme::Path => "path",
            },
            client: match args.client {
                Client::Plain => "plain",
            },
            blocks: args.blocks,
            block_len: args.block_len,
            cipher,
            encrypted: sealed,
            authenticated: sealed,
            fresh: sealed,
            levels: shape(args, args.blocks)?.levels(),
            z: args.z,
            cached_levels: args.cached,
            maps_in_trees: args.maps,
        })
    }
}

fn measure(args: &TreeArgs) -> Result<Numbers, Failure> {
    if args.block_len == 0 {
        return measure_ghost(args);
    }
    let key = || Secret::random(&mut System);
    match args.seal {
        Seal::None => measure_sealed(args, || Unsealed),
        Seal::Aead => measure_sealed(args, || Aead::new(&key())),
        Seal::Aegis => measure_sealed(args, || Aegis::new(&key())),
        Seal::Pmmac => measure_pmmac(args),
        Seal::Merkle => measure_sealed(args, || Hashed::new(&key())),
    }
}

/// A simulated tree that holds all blocks already: dummies, since the blocks' labels are its own.
fn measure_ghost(args: &TreeArgs) -> Result<Numbers, Failure> {
    let start = cpu_seconds();
    let mut tree = GhostTree::new(shape(args, args.blocks)?, ROW_LEN, ());
    let mut rng = Seeded::new(1);
    let leaves = tree.shape().leaves();
    for addr in 0..args.blocks {
        let header = Header::new(Addr(addr), Leaf(rng.below(leaves)));
        if !tree.place(header) {
            return Err(Failure::usage("the tree is too full: choose more --levels"));
        }
    }
    let path_len = tree.shape().path_slots() * traceless::tree::HEADER_LEN;
    let path = PathOram::new(1, vec![tree], STASH_BLOCKS, Box::new(Seeded::new(2)));
    let mut path = path.map_err(Failure::usage)?;
    let init_seconds = cpu_seconds() - start;
    let timed = time(args, |_| path.step(&mut |_, _| {}).map(|_| ()))?;
    let paths = timed.accesses(args);
    timed.into_numbers(args, init_seconds, paths, path_len)
}

type SealedPath<C> = PathOram<Treetop<SealedTree<C>>>;

fn measure_sealed<C: Sealer>(args: &TreeArgs, cipher: impl Fn() -> C) -> Result<Numbers, Failure> {
    let start = cpu_seconds();
    let (path, path_len) = sealed_path(args, args.block_len, cipher)?;
    let init_seconds = cpu_seconds() - start;
    measure_path(args, path, |path| path, init_seconds, path_len)
}

/// A tag travels with each block. Only labels in trusted memory are safe then.
fn measure_pmmac(args: &TreeArgs) -> Result<Numbers, Failure> {
    if args.maps > 0 {
        return Err(Failure::usage("PMMAC needs the whole map in memory: --maps 0"));
    }
    let start = cpu_seconds();
    let key = || Secret::random(&mut System);
    let (path, path_len) = sealed_path(args, args.block_len + TAG_LEN, || Masked::new(&key()))?;
    let pmmac = Pmmac::new(path, Aegis::new(&key())).map_err(Failure::usage)?;
    let init_seconds = cpu_seconds() - start;
    measure_path(args, pmmac, Pmmac::inner, init_seconds, path_len)
}

/// A Path ORAM in memory, and the bytes of a path of all its trees.
fn sealed_path<C: Sealer>(
    args: &TreeArgs,
    block_len: usize,
    cipher: impl Fn() -> C,
) -> Result<(SealedPath<C>, usize), Failure> {
    let (mut trees, mut path_len, mut blocks) = (vec![], 0, args.blocks);
    for nth in 0..=args.maps {
        let len = if nth == 0 { block_len } else { args.map_block_len };
        if nth > 0 {
            blocks = blocks.div_ceil((len / LABEL_LEN).max(1) as u64);
        }
        let tree = sealed_tree(args, blocks, len, cipher())?;
        path_len += tree.inner().path_len();
        trees.push(tree);
    }
    let rng = Box::new(Seeded::drawn(&mut System));
    let path = PathOram::new(args.blocks, trees, STASH_BLOCKS, rng).map_err(Failure::usage)?;
    Ok((path, path_len))
}

fn measure_path<C: Controller, S: Sealer>(
    args: &TreeArgs,
    controller: C,
    path: impl Fn(&C) -> &SealedPath<S>,
    init_seconds: f64,
    path_len: usize,
) -> Result<Numbers, Failure> {
    let mut oram = Stepped::new(controller);
    for addr in 0..args.blocks {
        oram.access(Addr(addr), |block| block.fill(1)).map_err(failed)?;
    }
    let mut rng = Seeded::new(2);
    let mut sum = 0u64;
    let paths = |oram: &Stepped<C>| {
        let engines = path(oram.controller()).engines().iter();
        engines.map(|e| e.tree().inner().path_writes()).sum::<u64>()
    };
    let before = paths(&oram);
    let timed = time(args, |nth| {
        let addr = Addr(rng.below(args.blocks));
        // Half of them read, half of them write.
        oram.access(addr, |block| {
            if nth % 2 == 0 { sum += u64::from(block[0]) } else { block.fill(nth as u8) }
        })
    })?;
    std::hint::black_box(sum);
    timed.into_numbers(args, init_seconds, paths(&oram) - before, path_len)
}

fn sealed_tree<C: Sealer>(
    args: &TreeArgs,
    blocks: u64,
    body_len: usize,
    cipher: C,
) -> Result<Treetop<SealedTree<C>>, Failure> {
    let shape = shape(args, blocks)?;
    let cached = args.cached.min(shape.levels() - 1);
    let below = shape.only(|level| level >= cached);
    let store = Arc::new(MemStore::new(SealedTree::store_len(&below, body_len, &cipher)));
    let tree = SealedTree::create(store, 0, "tree", below, body_len, cipher);
    Treetop::new(shape, cached, tree.map_err(Failure::usage)?).map_err(Failure::usage)
}

fn shape(args: &TreeArgs, blocks: u64) -> Result<Shape, Failure> {
    match args.levels.filter(|_| blocks == args.blocks) {
        Some(levels) => Shape::uniform(levels, args.z),
        None => Shape::for_blocks(blocks, args.z, SLOTS_PER_BLOCK),
    }
    .map_err(Failure::usage)
}

/// Microseconds of CPU and of wall time for each access, round by round.
struct Timed {
    cpu_us: Vec<f64>,
    wall_us: Vec<f64>,
}

/// Runs the rounds. `access` does one access, and is told its number.
fn time(
    args: &TreeArgs,
    mut access: impl FnMut(u64) -> traceless::Result,
) -> Result<Timed, Failure> {
    let mut timed = Timed { cpu_us: vec![], wall_us: vec![] };
    for _ in 0..args.rounds.max(1) {
        let (clock, cpu) = (Monotonic::start(), cpu_seconds());
        for nth in 0..args.accesses.max(1) {
            access(nth).map_err(failed)?;
        }
        let count = args.accesses.max(1) as f64;
        timed.cpu_us.push((cpu_seconds() - cpu) * 1e6 / count);
        timed.wall_us.push(clock.now() as f64 / 1e3 / count);
    }
    Ok(timed)
}

impl Timed {
    fn accesses(&self, args: &TreeArgs) -> u64 {
        self.cpu_us.len() as u64 * args.accesses.max(1)
    }

    fn into_numbers(
        self,
        args: &TreeArgs,
        init_seconds: f64,
        paths: u64,
        path_len: usize,
    ) -> Result<Numbers, Failure> {
        let paths_per_access = paths as f64 / self.accesses(args) as f64;
        let (cpu_us, spread) = summary(self.cpu_us);
        let (wall_us, _) = summary(self.wall_us);
        let peak = peak_memory("self")?;
        Ok(Numbers {
            accesses_per_cpu_second: 1e6 / cpu_us,
            accesses_per_second: 1e6 / wall_us,
            cpu_us_per_access: cpu_us,
            spread,
            paths_per_access,
            bytes_per_access: 2.0 * path_len as f64 * paths_per_access / (1 + args.maps) as f64,
            init_seconds,
            peak_memory_bytes: peak,
            memory_over_payload: peak as f64 / (args.blocks * args.block_len.max(1) as u64) as f64,
        })
    }
}

/// Time that this process has spent computing.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
