//! Out-of-order cores over a memory, as far as memory is concerned: a reorder buffer that stands
//! still while the instruction at its head waits for its data.
//!
//! The rules are USIMM's, cycle by cycle: retire, then memory, then fetch.

mod rob;

use crate::backend::{Answer, Backend};
use crate::error::{Error, Result};
use crate::workload::{LINE_LEN, Op, Record, Workload};
use rob::{NOT_YET, Rob};
use serde::{Deserialize, Serialize};

/// A core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Instructions in the reorder buffer.
    pub rob: usize,
    /// Instructions fetched in a cycle.
    pub fetch: usize,
    /// Instructions retired in a cycle.
    pub retire: usize,
    /// Cycles from fetching an instruction to its end, if it does not wait for memory.
    pub depth: u64,
}

impl Config {
    /// The core of USIMM's configuration with four channels.
    pub const FOUR_CHANNELS: Self = Self { rob: 160, fetch: 4, retire: 4, depth: 10 };

    /// That of its configuration with one channel.
    pub const ONE_CHANNEL: Self = Self { rob: 128, retire: 2, ..Self::FOUR_CHANNELS };
}

/// What a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Run {
    /// Cycles until all was retired and written.
    pub cycles: u64,
    /// Instructions retired, memory operations included.
    pub instructions: u64,
    /// Memory operations.
    pub records: u64,
}

/// Runs each workload to its end, on a core of its own that has an equal part of the memory.
pub fn run<B: Backend>(
    config: &Config,
    memory: &mut B,
    workloads: &mut [Box<dyn Workload>],
) -> Result<Run> {
    if config.rob == 0 || config.fetch == 0 || config.retire == 0 {
        return Err(Error::Processor("reorder buffer, fetch and retire are at least 1"));
    }
    if config.rob > ROB_MAX || config.depth > DEPTH_MAX {
        return Err(Error::Processor("the reorder buffer or the pipeline is longer than 2^20"));
    }
    if workloads.is_empty() || workloads.len() > CORES_MAX {
        return Err(Error::Processor("it has 1 to 256 cores, each with a workload"));
    }
    let part = part_of_a_core(memory.capacity(), workloads.len())?;
    let mut cores = Vec::new();
    for (nth, workload) in workloads.iter_mut().enumerate() {
        cores.push(Core::new(config, nth as u64, part, &mut **workload)?);
    }
    let mut now = 0;
    loop {
        for core in &mut cores {
            core.retire(now);
        }
        memory.tick(now, &mut |ticket, there| {
            let (core, instruction) = (ticket as usize % CORES_MAX, ticket / CORES_MAX as u64);
            cores[core].rob.finish(instruction, there + config.depth);
        })?;
        let mut fetches = memory.takes_writes();
        for core in &mut cores {
            fetches = fetches && core.fetch(now, memory)?;
        }
        let idle = cores.iter().all(Core::has_ended);
        if idle && memory.is_written() {
            break;
        }
        // Else only memory, or an instruction that ends, changes anything.
        now = if memory.takes_writes() && cores.iter().any(Core::can_fetch) {
            now + 1
        } else {
            cores.iter().map(|core| core.retires_at(now)).fold(memory.wake(), u64::min)
        };
    }
    Ok(Run {
        cycles: now + 1,
        instructions: cores.iter().map(|core| core.rob.retired()).sum(),
        records: cores.iter().map(|core| core.records).sum(),
    })
}

/// Bytes of a memory that each of so many cores has for itself.
pub fn part_of_a_core(capacity: u64, cores: usize) -> Result<u64> {
    let part = capacity / cores.next_power_of_two() as u64;
    if part < LINE_LEN {
        return Err(Error::Processor("the memory has no line for each core"));
    }
    Ok(part)
}

const ROB_MAX: usize = 1 << 20;
const DEPTH_MAX: u64 = 1 << 20;

/// Cores of a processor.
pub const CORES_MAX: usize = 256;

struct Core<'a> {
    config: Config,
    workload: &'a mut dyn Workload,
    /// Number of the core.
    nth: u64,
    /// First byte of its part of the memory, and its length.
    first: u64,
    part: u64,
    rob: Rob,
    /// What is fetched next; none at the end.
    next: Option<Record>,
    records: u64,
}

impl<'a> Core<'a> {
    fn new(config: &Config, nth: u64, part: u64, workload: &'a mut dyn Workload) -> Result<Self> {
        Ok(Self {
            config: *config,
            next: workload.next()?,
            workload,
            nth,
            first: part * nth,
            part,
            rob: Rob::new(config.rob),
            records: 0,
        })
    }

    #[inline]
    fn retire(&mut self, now: u64) {
        for _ in 0..self.config.retire {
            if self.rob.oldest().is_none_or(|end| end >= now) {
                return;
            }
            self.rob.retire();
        }
    }

    /// False if nothing more may be fetched in this cycle, by nobody.
    #[inline]
    fn fetch(&mut self, now: u64, memory: &mut impl Backend) -> Result<bool> {
        let mut room = self.config.fetch.min(self.rob.room());
        while room > 0 {
            let Some(Record { before, op, addr }) = &mut self.next else { return Ok(true) };
            if *before > 0 {
                let n = (*before).min(room as u64);
                *before -= n;
                self.rob.push(n as usize, now + self.config.depth);
                room -= n as usize;
                continue;
            }
            room -= 1;
            let addr = self.first + *addr % self.part;
            let end = match op {
                Op::Read => {
                    let ticket = self.rob.fetched() * CORES_MAX as u64 + self.nth;
                    match memory.read(now, addr, ticket)? {
                        Answer::At(there) => there + self.config.depth,
                        Answer::Later => NOT_YET,
                    }
                }
                Op::Write => {
                    memory.write(now, addr)?;
                    now + self.config.depth
                }
            };
            self.rob.push(1, end);
            self.records += 1;
            let written = *op == Op::Write;
            self.next = self.workload.next()?;
            if written && !memory.takes_writes() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn can_fetch(&self) -> bool {
        self.next.is_some() && self.rob.room() > 0
    }

    /// The first time after `now` at which an instruction may retire, as far as that is known.
    fn retires_at(&self, now: u64) -> u64 {
        self.rob.oldest().map_or(NOT_YET, |end| end.saturating_add(1).max(now + 1))
    }

    fn has_ended(&self) -> bool {
        self.next.is_none() && self.rob.oldest().is_none()
    }
}
