//! Out-of-order cores over a memory, as far as memory is concerned: a reorder buffer that stalls
//! while the instruction at its head waits for its data.
//!
//! The rules are USIMM's, cycle by cycle: retire, then memory, then fetch.
//!
//! A core that runs out of order waits for several reads at once; one that runs in order does not:
//!
//! ```
//! use traceless_sim::dram::{self, Memory};
//! use traceless_sim::processor::{self, Config};
//! use traceless_sim::workload::named;
//!
//! # fn main() -> traceless_sim::Result {
//! let cycles = |core: &Config| {
//!     let mut memory = Memory::new(dram::Config::FOUR_CHANNELS)?;
//!     let mut workloads = [named("uniform?bytes=64M&write_share=0&before=4", 1000, 1)?];
//!     processor::run(core, &mut memory, &mut workloads).map(|run| run.cycles)
//! };
//! assert!(cycles(&Config::IN_ORDER)? > 4 * cycles(&Config::FOUR_CHANNELS)?);
//! # Ok(())
//! # }
//! ```

mod rob;

use crate::backend::{Answer, Backend};
use crate::error::{Error, Result, within};
use crate::workload::{LINE_LEN, Op, Program, Record, Workload};
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

    /// An in-order core, as in the unified ORAM paper: an instruction begins when the one before it
    /// has ended. An instruction without memory takes a cycle, and a write is not waited for.
    pub const IN_ORDER: Self = Self { rob: 1, fetch: 1, retire: 1, depth: 0 };

    /// The core of USIMM's configuration with one channel.
    pub const ONE_CHANNEL: Self = Self { rob: 128, retire: 2, ..Self::FOUR_CHANNELS };
}

impl Config {
    /// Refuses values out of range.
    pub fn check(&self) -> Result {
        within("processor.rob", self.rob as u64, 1..=ROB_MAX)?;
        within("processor.fetch", self.fetch as u64, 1..=ROB_MAX)?;
        within("processor.retire", self.retire as u64, 1..=ROB_MAX)?;
        within("processor.depth", self.depth, 0..=DEPTH_MAX)
    }

    /// Instructions fetched and retired in a cycle when nothing stalls the core.
    fn rate(&self) -> usize {
        self.fetch.min(self.retire)
    }
}

/// The results of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Run {
    /// Cycles until all was retired and written.
    pub cycles: u64,
    /// Instructions retired, memory operations included.
    pub instructions: u64,
    /// Memory operations.
    pub records: u64,
}

/// The work of a core.
pub struct Task<'a> {
    /// The workload that the core runs.
    pub workload: &'a mut dyn Workload,
    /// The program that it belongs to: workloads of one program share a part of the memory.
    pub program: usize,
}

/// Makes each workload a program of its own.
pub fn apart(workloads: &mut [Box<dyn Workload>]) -> Vec<Task<'_>> {
    let tasks = workloads.iter_mut().enumerate();
    tasks.map(|(program, workload)| Task { workload: &mut **workload, program }).collect()
}

/// The threads of programs, each as a task.
pub fn together(programs: &mut [Program]) -> Vec<Task<'_>> {
    let tasks = programs.iter_mut().enumerate().flat_map(|(program, of)| {
        of.threads.iter_mut().map(move |thread| Task { workload: &mut **thread, program })
    });
    tasks.collect()
}

/// Runs each workload to its end, on a core of its own that has an equal part of the memory.
pub fn run<B: Backend>(
    config: &Config,
    memory: &mut B,
    workloads: &mut [Box<dyn Workload>],
) -> Result<Run> {
    run_tasks(config, memory, &mut apart(workloads))
}

/// Runs each task to its end, on a core of its own. Programs have equal parts of the memory.
pub fn run_tasks<B: Backend>(
    config: &Config,
    memory: &mut B,
    tasks: &mut [Task<'_>],
) -> Result<Run> {
    config.check()?;
    if tasks.is_empty() || tasks.len() > CORES_MAX {
        return Err(Error::Processor("it has 1 to 256 cores, each with a workload"));
    }
    let part = part_of_a_program(memory.capacity(), tasks)?;
    let mut cores = Vec::new();
    for (nth, task) in tasks.iter_mut().enumerate() {
        cores.push(Core::new(config, nth as u64, part, task)?);
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
        now += advance_all(&mut cores, now, memory);
        // Until then, only memory or an instruction that ends changes anything.
        let next = if memory.takes_writes() && cores.iter().any(Core::can_fetch) {
            now + 1
        } else {
            cores.iter().map(|core| core.retires_at(now)).fold(memory.wake(), u64::min)
        };
        assert!(next > now, "time goes on");
        now = next;
    }
    Ok(Run {
        cycles: now + 1,
        instructions: cores.iter().map(|core| core.rob.retired()).sum(),
        records: cores.iter().map(|core| core.records).sum(),
    })
}

/// Skipping fewer cycles than this at once is not worth the checks.
const ALIKE_MIN: u64 = 16;

/// Skips the next cycles, as long as each core does in them what it did in this one, and memory
/// does nothing: most cycles of a program that seldom accesses memory. Returns how many.
fn advance_all(cores: &mut [Core<'_>], now: u64, memory: &impl Backend) -> u64 {
    // Most often memory has something to do soon, and the cores need not be checked.
    let (mut alike, mut any_steady) = (memory.wake().saturating_sub(now + 1), false);
    if alike < ALIKE_MIN {
        return 0;
    }
    for core in &*cores {
        alike = alike.min(match core.pace(now) {
            CorePace::Varies => return 0,
            CorePace::Still(cycles) => cycles,
            CorePace::Steady(cycles) => {
                any_steady = true;
                cycles
            }
        });
    }
    if !any_steady || alike < ALIKE_MIN || !memory.takes_writes() {
        return 0;
    }
    for core in cores {
        core.advance(now, alike);
    }
    alike
}

/// The behaviour of a core in the given number of cycles after this one.
enum CorePace {
    /// Unknown.
    Varies,
    /// The core does nothing.
    Still(u64),
    /// The core fetches and retires instructions without memory, equally many in each cycle.
    Steady(u64),
}

/// Bytes of a memory that each program has for itself.
pub fn part_of_a_program(capacity: u64, tasks: &[Task<'_>]) -> Result<u64> {
    let programs = tasks.iter().map(|task| task.program + 1).max().unwrap_or(1);
    let part = capacity / programs.next_power_of_two() as u64;
    if part < LINE_LEN {
        return Err(Error::Processor("the memory has no line for each program"));
    }
    Ok(part)
}

const ROB_MAX: u64 = 1 << 20;
const DEPTH_MAX: u64 = 1 << 20;

/// The most cores that a processor has.
pub const CORES_MAX: usize = 256;

struct Core<'a> {
    config: Config,
    workload: &'a mut dyn Workload,
    /// Number of the core.
    nth: u64,
    /// First byte of its program's part of the memory, and its length.
    first: u64,
    part: u64,
    rob: Rob,
    /// The record that is fetched next; none at the end.
    next: Option<Record>,
    records: u64,
}

impl<'a> Core<'a> {
    fn new(config: &Config, nth: u64, part: u64, task: &'a mut Task<'_>) -> Result<Self> {
        Ok(Self {
            config: *config,
            next: task.workload.next()?,
            workload: &mut *task.workload,
            nth,
            first: part * task.program as u64,
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

    /// False if no core may fetch anything more in this cycle.
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

    #[inline]
    fn pace(&self, now: u64) -> CorePace {
        if let Some(Record { before, .. }) = self.next {
            let rate = self.config.rate() as u64;
            if before >= ALIKE_MIN * rate && self.rob.is_steady(now, &self.config) {
                return CorePace::Steady(before / rate);
            }
        }
        if self.can_fetch() {
            CorePace::Varies
        } else {
            CorePace::Still(self.retires_at(now) - (now + 1))
        }
    }

    /// Advances the core by so many cycles at its steady pace.
    fn advance(&mut self, now: u64, cycles: u64) {
        let (CorePace::Steady(_), Some(next)) = (self.pace(now), &mut self.next) else { return };
        next.before -= cycles * self.config.rate() as u64;
        self.rob.advance(now + cycles, cycles, &self.config);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dram::{self, Memory};
    use crate::workload::Record;
    use traceless::rng::{Rng, SeededRng};

    /// A memory that counts its ticks; with `each_cycle` it demands one in each cycle.
    struct Watched {
        memory: Memory,
        each_cycle: bool,
        now: u64,
        looks: u64,
    }

    impl Watched {
        fn new(each_cycle: bool) -> Self {
            let memory = Memory::new(dram::Config::FOUR_CHANNELS).unwrap();
            Self { memory, each_cycle, now: 0, looks: 0 }
        }
    }

    impl Backend for Watched {
        fn capacity(&self) -> u64 {
            Backend::capacity(&self.memory)
        }

        fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer> {
            Backend::read(&mut self.memory, now, addr, ticket)
        }

        fn write(&mut self, now: u64, addr: u64) -> Result {
            Backend::write(&mut self.memory, now, addr)
        }

        fn takes_writes(&self) -> bool {
            self.memory.takes_writes()
        }

        fn is_written(&self) -> bool {
            self.memory.is_written()
        }

        fn warm(&mut self, op: Op, addr: u64) -> Result {
            self.memory.warm(op, addr)
        }

        fn wake(&self) -> u64 {
            if self.each_cycle { self.now + 1 } else { Backend::wake(&self.memory) }
        }

        fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
            self.now = now;
            self.looks += 1;
            Backend::tick(&mut self.memory, now, done)
        }
    }

    fn workload(seed: u64, longest: u64) -> Box<dyn Workload> {
        let mut rng = SeededRng::new(seed);
        Box::new((0..400).map(move |_| Record {
            before: if rng.below(3) == 0 { rng.below(4) } else { rng.below(longest) },
            op: if rng.below(3) == 0 { Op::Write } else { Op::Read },
            addr: rng.below(1 << 34),
        }))
    }

    /// Runs the workloads with a tick in each cycle and with skipped cycles, and compares the
    /// results. Returns the cycles, and the ticks of the second run.
    fn both(config: &Config, longest: &[u64]) -> (u64, u64) {
        let runs = [true, false].map(|each_cycle| {
            let mut workloads: Vec<_> =
                (1..).zip(longest).map(|(seed, &longest)| workload(seed, longest)).collect();
            let mut memory = Watched::new(each_cycle);
            let run = run(config, &mut memory, &mut workloads).unwrap();
            (run, memory.memory.stats(run.cycles), memory.looks)
        });
        let [(run, stats, looks), (run_passing, stats_passing, looks_passing)] = runs;
        assert_eq!(run, run_passing, "{config:?} {longest:?}");
        assert_eq!(stats, stats_passing, "{config:?} {longest:?}");
        assert_eq!(looks, run.cycles, "{config:?} {longest:?}");
        (run.cycles, looks_passing)
    }

    #[test]
    fn cycles_that_are_passed_over_change_nothing() {
        let wide = Config { rob: 64, fetch: 8, retire: 3, depth: 7 };
        let narrow = Config { rob: 100, fetch: 2, retire: 4, depth: 3 };
        let short = Config { rob: 20, fetch: 4, retire: 4, depth: 10 };
        let known = [Config::FOUR_CHANNELS, Config::ONE_CHANNEL, Config::IN_ORDER];
        for config in known.into_iter().chain([wide, narrow]) {
            let (cycles, looks) = both(&config, &[9000]);
            assert!(looks * 4 < cycles, "{config:?}: {looks} of {cycles}");
        }
        for config in known.into_iter().chain([wide, narrow, short]) {
            both(&config, &[200]);
            both(&config, &[3000, 1, 500]);
        }
    }

    #[test]
    fn in_order_an_instruction_waits_for_the_one_before() {
        let record = |before, op, addr| Record { before, op, addr };
        let cycles = |records: Vec<Record>| {
            let mut memory = Memory::new(dram::Config::FOUR_CHANNELS).unwrap();
            let mut workloads: [Box<dyn Workload>; 1] = [Box::new(records.into_iter())];
            run(&Config::IN_ORDER, &mut memory, &mut workloads).unwrap().cycles
        };
        let one = cycles(vec![record(0, Op::Read, 0)]);
        assert_eq!(cycles(vec![record(100_000, Op::Read, 0)]), one + 100_000);
        let two = cycles(vec![record(0, Op::Read, 0), record(0, Op::Read, 1 << 20)]);
        assert!(two >= 2 * one - 8, "reads do not overlap: {two} and {one}");
    }
}
