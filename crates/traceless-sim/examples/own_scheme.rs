//! A user's own scheme in the simulator: below its processor and last cache, over its DRAM.
//!
//! The scheme is Path ORAM with larger buckets near the root, so that its stash is smaller. A
//! scheme is a [`Controller`] over trees that report each touched line to the simulator's
//! [`StepTrace`], and a [`SimController`] on top of that. The example runs one workload over it and
//! over the library's own Path ORAM:
//! `cargo run --release -p traceless-sim --example own_scheme`

use std::collections::VecDeque;
use std::error::Error;
use traceless::controller::{Controller, Serve, StepKind, StepOutcome};
use traceless::oram::Hides;
use traceless::posmap::Flat;
use traceless::rng::{Rng, SeededRng};
use traceless::tree::{Engine, GhostTree, Header, Shape};
use traceless::types::{Addr, Leaf};
use traceless_sim::dram::Memory;
use traceless_sim::llc::LastLevel;
use traceless_sim::machine::Machine;
use traceless_sim::oram::{Config, Counts, LayoutKind, Oram, Scheme, SimController, StepTrace};
use traceless_sim::processor;
use traceless_sim::workload::named;

const BLOCKS: u64 = 1 << 17;
const LEVELS: usize = 16;
const STASH_BLOCKS: usize = 200;
/// With more blocks in the stash than this, a step only empties it.
const DRAIN_ABOVE: usize = 100;
/// Bytes of a subtree that lies together in a DRAM row.
const ROW_LEN: usize = 32 << 10;

/// The scheme. All labels are in trusted memory.
struct FatPath {
    engine: Engine<GhostTree<StepTrace>>,
    map: Flat,
    requests: VecDeque<(u64, Addr)>,
    rng: SeededRng,
}

impl FatPath {
    fn new(step_trace: StepTrace) -> traceless::Result<Self> {
        let z = |level| if level < 4 { 8 } else { 4 };
        let shape = Shape::per_level((0..LEVELS).map(z).collect())?;
        let mut own = Self {
            engine: Engine::new(GhostTree::new(shape, ROW_LEN, step_trace), STASH_BLOCKS),
            map: Flat::new(BLOCKS as usize),
            requests: VecDeque::new(),
            rng: SeededRng::new(1),
        };
        own.fill()?;
        Ok(own)
    }

    /// Puts all blocks into the tree, each as deep as there is room.
    fn fill(&mut self) -> traceless::Result {
        for addr in (0..BLOCKS).map(Addr) {
            let leaf = self.draw();
            self.map.remap(addr, leaf);
            let header = Header::new(addr, leaf);
            if !self.engine.tree_mut().place(header) {
                self.engine.put(header, &[])?;
            }
        }
        Ok(())
    }

    fn draw(&mut self) -> Leaf {
        Leaf(self.rng.below(self.engine.shape().leaves()))
    }
}

impl Controller for FatPath {
    fn blocks(&self) -> u64 {
        BLOCKS
    }

    fn block_len(&self) -> usize {
        0
    }

    fn submit(&mut self, id: u64, addr: Addr) -> traceless::Result {
        if addr.0 >= BLOCKS {
            return Err(traceless::Error::OutOfRange { addr, blocks: BLOCKS });
        }
        self.requests.push_back((id, addr));
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.requests.len()
    }

    fn step(&mut self, serve: Serve<'_>) -> traceless::Result<StepOutcome> {
        let leaf = self.draw();
        if self.engine.stash().len() > DRAIN_ABOVE {
            self.engine.dummy(leaf)?;
            return Ok(StepOutcome { kind: StepKind::Eviction, finished: None });
        }
        let Some((id, addr)) = self.requests.pop_front() else {
            self.engine.dummy(leaf)?;
            return Ok(StepOutcome { kind: StepKind::Dummy, finished: None });
        };
        let old = self.map.remap(addr, leaf).expect("all blocks are in the tree");
        self.engine.fetch(old)?;
        let nth = self.engine.take(addr, leaf)?;
        serve(id, self.engine.stash_mut().body_mut(nth));
        self.engine.evict()?;
        Ok(StepOutcome { kind: StepKind::Data, finished: Some(id) })
    }

    fn sync(&mut self) -> traceless::Result {
        Ok(())
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

impl SimController for FatPath {
    fn stash(&self) -> usize {
        self.engine.stash().len()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let config = Config {
        scheme: Scheme::Path,
        blocks: Some(BLOCKS),
        levels: LEVELS,
        cached_levels: 0,
        layout: LayoutKind::Buckets,
        row_len: ROW_LEN,
        drain_above: Some(DRAIN_ABOVE),
        ..Config::default()
    };
    let memory = || Memory::new(Machine::ir_oram().memory);
    let own = Oram::over_dram_with(&config, memory()?, |step_trace| {
        Ok(Box::new(FatPath::new(step_trace)?))
    })?;
    let own = run("own", own)?;
    let path = run("path", Oram::over_dram(&config, memory()?)?)?;

    // Each access reads and writes a path of 16 buckets of four blocks; in ours, four hold eight.
    assert_eq!(own.lines, 2 * (12 * 4 + 4 * 8) * accesses(&own));
    assert_eq!(path.lines, 2 * 16 * 4 * accesses(&path));
    // Both schemes serve the same requests.
    assert_eq!(own.data, path.data);
    assert!(own.stash_peak < path.stash_peak);
    Ok(())
}

/// Runs a workload over `oram` with the processor and the last cache of the IR-ORAM paper.
fn run(name: &str, oram: Oram) -> Result<Counts, Box<dyn Error>> {
    let machine = Machine::ir_oram();
    let last_level = machine.last_level.ok_or("the machine has a last cache")?;
    let mut memory = LastLevel::new(&last_level, oram)?;
    let mut workloads = [named("uniform?bytes=8M&before=10", 5000, 1)?];
    let run = processor::run(&machine.processor, &mut memory, &mut workloads)?;
    let counts = memory.behind().counts();
    println!(
        "{name}: {} cycles, {} paths for data and {} others, {} lines, {} blocks in the stash",
        run.cycles,
        counts.data,
        accesses(&counts) - counts.data,
        counts.lines,
        counts.stash_peak,
    );
    Ok(counts)
}

/// All path accesses.
fn accesses(counts: &Counts) -> u64 {
    counts.data + counts.map + counts.dummy + counts.eviction + counts.early
}
