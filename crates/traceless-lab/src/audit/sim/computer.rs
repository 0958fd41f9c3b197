//! The simulated machine that all audited schemes run in, small enough to run hundreds of times.

use super::users::{CACHE_SETS, CACHE_WAYS};
use traceless::tree::Shape;
use traceless_sim::machine::Machine;
use traceless_sim::oram::{Config, Layout, LayoutKind};
use traceless_sim::workload::LINE_LEN;
use traceless_sim::{constant, dram, llc, processor};

/// Blocks that programs can use.
pub const BLOCKS: u64 = 2048;

pub const LEVELS: usize = 10;

/// Levels of the tree that the processor holds.
pub const CACHED: usize = 3;

/// The machine with a scheme as its memory controller.
pub fn machine(oram: Config, over: Over) -> Machine {
    Machine {
        processor: processor::Config::IN_ORDER,
        last_level: Some(LAST_LEVEL),
        oram: Some(oram),
        memory: MEMORY,
        constant: (over == Over::Bandwidth).then(constant::Config::default),
    }
}

/// The last cache.
pub const LAST_LEVEL: llc::Config = llc::Config {
    bytes: CACHE_SETS * CACHE_WAYS * LINE_LEN,
    ways: CACHE_WAYS as u32,
    latency: 10,
    reads_before_writes: false,
    brought_before: 0,
};

pub const MEMORY: dram::Config =
    dram::Config { map: dram::AddressMap::ROWS_TOGETHER, ..dram::Config::FOUR_CHANNELS };

/// The memory that holds the trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// Rows and banks: the time of a path depends on its place.
    Dram,
    /// A bandwidth only: all paths take the same time.
    Bandwidth,
}

/// Layouts of trees of these shapes, one after the other in memory.
pub fn layouts_of(shapes: &[Shape]) -> Vec<Layout> {
    let (row_len, channels) = (Config::default().row_len, MEMORY.channels_in_a_row());
    let mut end = 0;
    let layout = |shape| {
        let layout = Layout::new(LayoutKind::Spread, shape, row_len, channels, end);
        end = layout.end();
        layout
    };
    shapes.iter().map(layout).collect()
}
