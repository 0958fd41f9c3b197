//! Stand-ins for the 13 benchmarks of the IR-ORAM paper's Table II.
//!
//! They are not SPEC or PARSEC: recordings of these are not available. Each misses caches as often
//! as the table says; `docs/workloads.md` describes what else each is fitted to.
//!
//! ```
//! use traceless_sim::workload::Op;
//! use traceless_sim::workload::table_2::{Benchmark, Options};
//!
//! # fn main() -> traceless_sim::Result {
//! let (nth, lbm) = Benchmark::named("lbm").expect("a benchmark of the table");
//! let program = lbm.program(nth, &Options { bytes: 4 << 20 }, 1)?;
//! // In the table, all of its misses are by operations that write.
//! assert!(program.take(1000).all(|record| record.op == Op::Write));
//! assert_eq!((lbm.read_misses, lbm.write_misses), (0.0, 45.3));
//! # Ok(())
//! # }
//! ```

use super::permutation::Permutation;
use super::synthetic::unit;
use super::{LINE_LEN, Op, Record};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use traceless::rng::SeededRng;

/// One of the benchmarks.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Benchmark {
    /// The paper's abbreviation of its name.
    pub name: &'static str,
    /// Misses of the last cache in a thousand instructions, by operations that read.
    pub read_misses: f64,
    /// Misses of the last cache in a thousand instructions, by operations that write.
    pub write_misses: f64,
    /// Of the operations that pass the first cache, the share that also misses the last one.
    pub miss_share: f64,
    /// Of the misses, the share of a single stream. Its write-backs follow as far behind as the
    /// last cache is large.
    pub alone_share: f64,
    /// Of the other misses, the share at scattered lines.
    pub scattered_share: f64,
    /// The range of the scattered lines, in MiB.
    pub scattered_mib: u64,
    /// Lines from one access of a stream to its next. The rest of the misses are streams side by
    /// side.
    pub stride: u64,
}

/// The benchmarks, in the order of the table.
pub const TABLE_2: [Benchmark; 13] = [
    bench("gcc", (0.1, 0.3), 0.1025, (0.0, 0.003), 16, 5),
    bench("mcf", (19.5, 0.1), 0.533, (0.0, 0.09), 8, 5),
    bench("xz", (24.9, 29.6), 0.5, (0.0, 0.5), 32, 1),
    bench("xal", (0.05, 0.1), 0.0149, (0.0, 0.005), 8, 5),
    bench("dee", (0.0, 5.7), 1.0, (1.0, 0.0), 16, 1),
    bench("bwa", (0.0, 20.7), 0.216, (0.0, 0.04), 16, 5),
    bench("lbm", (0.0, 45.3), 0.706, (0.0, 0.0), 16, 7),
    bench("cam", (0.01, 8.8), 0.998, (0.29, 0.0), 16, 1),
    bench("ima", (0.3, 2.9), 0.188, (0.0, 0.9), 128, 1),
    bench("rom", (0.02, 23.0), 0.365, (0.0, 0.1), 32, 3),
    bench("bla", (2.6, 0.4), 0.5, (0.0, 0.0), 16, 1),
    bench("str", (2.7, 0.5), 0.5, (0.0, 0.1), 16, 1),
    bench("fre", (2.1, 0.4), 0.5, (0.0, 0.6), 64, 1),
];

const fn bench(
    name: &'static str,
    (read_misses, write_misses): (f64, f64),
    miss_share: f64,
    (alone_share, scattered_share): (f64, f64),
    scattered_mib: u64,
    stride: u64,
) -> Benchmark {
    Benchmark {
        name,
        read_misses,
        write_misses,
        miss_share,
        alone_share,
        scattered_share,
        scattered_mib,
        stride,
    }
}

/// The layout of a stand-in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The working set: bytes that streams go through, and twice the most that scattered lines
    /// span.
    pub bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { bytes: 192 << 20 }
    }
}

/// Bytes from the beginning of one benchmark to that of the next, so that each has its own range in
/// the 4 GiB of the paper.
const APART: u64 = 312 << 20;

/// The smallest working set: beyond a last cache of 2 MiB.
pub const BYTES_MIN: u64 = 4 << 20;
/// The largest working set.
pub const BYTES_MAX: u64 = 192 << 20;

/// Streams side by side. Not two or four: their write-backs would follow a whole MiB behind.
const STREAMS: u64 = 3;

/// Lines by which the beginning of a stream is shifted against the one before, so that neither
/// streams nor their write-backs fall on the same places of a PLB.
const STAGGER: u64 = 75_000;

/// Lines that are used over and over: twice as many as the first cache holds, so that they miss it,
/// but so few that each is used again before it leaves the last cache.
const KEPT: u64 = 8192;

/// Misses of a turn of the single stream and of the other misses together.
const TURN: u64 = 400_000;

/// The operations of a benchmark, without end.
pub struct TableProgram {
    benchmark: Benchmark,
    rng: SeededRng,
    first: u64,
    /// Twice the mean number of instructions before an operation; and the fraction cut off so far.
    twice_before: f64,
    cut_off: f64,
    write_share: f64,
    kept: Permutation,
    nth_kept: u64,
    scattered: Permutation,
    scattered_len: u64,
    nth_scattered: u64,
    streams: [u64; STREAMS as usize],
    stream_len: u64,
    nth_stream: usize,
    alone: u64,
    misses: u64,
}

impl Benchmark {
    /// The benchmark of this name.
    pub fn named(name: &str) -> Option<(usize, Self)> {
        let nth = TABLE_2.iter().position(|benchmark| benchmark.name == name)?;
        Some((nth, TABLE_2[nth]))
    }

    /// The operations of the benchmark at place `nth` of the table.
    pub fn program(self, nth: usize, options: &Options, seed: u64) -> Result<TableProgram> {
        if !(BYTES_MIN..=BYTES_MAX).contains(&options.bytes) {
            return Err(Error::Synthetic("the working set of a benchmark is 4 to 192 MiB"));
        }
        let mut rng = SeededRng::new(seed);
        let scattered_len = (self.scattered_mib << 20).min(options.bytes / 2) / LINE_LEN;
        let stream_len = stream_len(options.bytes / LINE_LEN / STREAMS, self.stride);
        let misses = self.read_misses + self.write_misses;
        let streams = core::array::from_fn(|nth| nth as u64 * STAGGER % stream_len);
        Ok(TableProgram {
            benchmark: self,
            first: nth as u64 * APART / LINE_LEN,
            twice_before: 2.0 * (1000.0 * self.miss_share / misses - 1.0),
            cut_off: 0.0,
            write_share: self.write_misses / misses,
            kept: Permutation::new(KEPT, &mut rng),
            nth_kept: 0,
            scattered: Permutation::new(scattered_len, &mut rng),
            scattered_len,
            nth_scattered: 0,
            streams,
            stream_len,
            nth_stream: 0,
            alone: 0,
            misses: 0,
            rng,
        })
    }
}

/// The longest stream of up to `lines_max` lines that reaches each of its lines: a stream with a
/// length that is a multiple of `stride` reaches only the same few again and again.
const fn stream_len(lines_max: u64, stride: u64) -> u64 {
    if stride > 1 && lines_max.is_multiple_of(stride) { lines_max - 1 } else { lines_max }
}

impl TableProgram {
    /// A line that is in the last cache, but not in the first.
    fn kept(&mut self) -> u64 {
        self.nth_kept = (self.nth_kept + 1) % KEPT;
        self.kept.at(self.nth_kept)
    }

    /// A line that is in neither cache.
    fn missed(&mut self) -> u64 {
        let Benchmark { alone_share, scattered_share, stride, .. } = self.benchmark;
        let turn = self.misses % TURN;
        self.misses += 1;
        let streams = KEPT + self.scattered_len;
        if (turn as f64) < TURN as f64 * alone_share {
            self.alone = (self.alone + 1) % (self.stream_len * STREAMS);
            return streams + self.alone;
        }
        if unit(&mut self.rng) < scattered_share {
            self.nth_scattered = (self.nth_scattered + 1) % self.scattered_len;
            return KEPT + self.scattered.at(self.nth_scattered);
        }
        self.nth_stream = (self.nth_stream + 1) % self.streams.len();
        let stream = &mut self.streams[self.nth_stream];
        *stream = (*stream + stride) % self.stream_len;
        streams + self.nth_stream as u64 * self.stream_len + *stream
    }
}

impl Iterator for TableProgram {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let due = self.cut_off + unit(&mut self.rng) * self.twice_before;
        let before = due as u64;
        self.cut_off = due - before as f64;
        let misses = unit(&mut self.rng) < self.benchmark.miss_share;
        let line = if misses { self.missed() } else { self.kept() };
        let writes = unit(&mut self.rng) < self.write_share;
        let op = if writes { Op::Write } else { Op::Read };
        Some(Record { before, op, addr: (self.first + line) * LINE_LEN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, Config, Lookup};

    const MEASURED: usize = 2_000_000;

    /// Operations until the last cache is full.
    fn warm_up(nth: usize) -> usize {
        (50_000.0 / TABLE_2[nth].miss_share) as usize
    }

    fn program(nth: usize) -> TableProgram {
        program_of(nth, Options::default().bytes)
    }

    fn program_of(nth: usize, bytes: u64) -> TableProgram {
        TABLE_2[nth].program(nth, &Options { bytes }, 1).unwrap()
    }

    #[test]
    fn caches_miss_as_often_as_in_the_table() {
        for (nth, benchmark) in TABLE_2.iter().enumerate() {
            misses_as_often_as_in_the_table(nth, benchmark, Options::default().bytes, 0.05);
            // With so few bytes, the single stream of cam finds lines that the other streams left.
            misses_as_often_as_in_the_table(nth, benchmark, BYTES_MIN, 0.06);
        }
    }

    fn misses_as_often_as_in_the_table(
        nth: usize,
        benchmark: &Benchmark,
        bytes: u64,
        tolerance: f64,
    ) {
        let mut cache = Cache::new(&Config::LLC).unwrap();
        let (mut instructions, mut reads, mut writes) = (0, 0, 0);
        let warm_up = warm_up(nth);
        for (count, record) in program_of(nth, bytes).take(warm_up + MEASURED).enumerate() {
            let missed = cache.access(record.addr, record.op) != Lookup::Hit;
            if count < warm_up {
                continue;
            }
            instructions += record.before + 1;
            match record.op {
                Op::Read => reads += u64::from(missed),
                Op::Write => writes += u64::from(missed),
            }
        }
        let per_kilo = |n: u64| n as f64 * 1e3 / instructions as f64;
        for (measured, printed) in
            [(per_kilo(reads), benchmark.read_misses), (per_kilo(writes), benchmark.write_misses)]
        {
            let off = (measured - printed).abs();
            let name = benchmark.name;
            assert!(off <= tolerance * printed, "{name}, {bytes}: {measured} for {printed}");
        }
    }

    /// The counts of a benchmark's archived run: records, requests, and how many requests missed
    /// the PLB for the first level of the map, and for the second.
    const ARCHIVED: [(&str, u64, u64, u64, u64); 9] = [
        ("gcc", 1_000_003, 179_363, 62_002, 6_946),
        ("mcf", 1_000_002, 535_293, 192_708, 49_397),
        ("xal", 1_000_100, 24_899, 8_833, 954),
        ("dee", 248_000, 496_001, 496_001, 2_432),
        ("bwa", 1_000_013, 432_376, 194_645, 32_482),
        ("lbm", 492_000, 694_505, 285_602, 17_679),
        ("cam", 382_000, 761_908, 230_042, 3_620),
        ("ima", 620_000, 222_221, 209_988, 185_262),
        ("rom", 772_001, 562_631, 281_690, 90_887),
    ];

    /// A direct-mapped PLB.
    struct AtHand([u64; 1024]);

    impl AtHand {
        fn misses(&mut self, level: u64, block: u64) -> bool {
            let place = &mut self.0[(block % 1024) as usize];
            let tag = level << 60 | block;
            core::mem::replace(place, tag) != tag
        }
    }

    /// Requests behind the last cache, and how many of them miss the PLB at each level.
    fn requests(nth: usize, records: usize) -> [u64; 3] {
        let mut cache = Cache::new(&Config::LLC).unwrap();
        let mut plb = AtHand([0; 1024]);
        let (mut counts, warm_up) = ([0; 3], warm_up(nth));
        for (count, record) in program(nth).take(warm_up + records).enumerate() {
            let Lookup::Miss { victim } = cache.access(record.addr, record.op) else { continue };
            if count < warm_up {
                continue;
            }
            for addr in [Some(record.addr), victim].into_iter().flatten() {
                let line = addr / LINE_LEN;
                counts[0] += 1;
                if !plb.misses(1, line / 16) {
                    continue;
                }
                counts[1] += 1;
                counts[2] += u64::from(plb.misses(2, line / 256));
            }
        }
        counts
    }

    #[test]
    fn they_go_where_the_archive_says() {
        for (name, records, requested, missed, missed_twice) in ARCHIVED {
            let (nth, _) = Benchmark::named(name).unwrap();
            let found = requests(nth, MEASURED);
            let near = |what, found: f64, archived: f64, tolerance: f64| {
                let off = (found - archived).abs();
                assert!(off <= tolerance * archived, "{name}, {what}: {found} for {archived}");
            };
            let share = |part: u64, whole: u64| part as f64 / whole as f64;
            let [found_requested, first, second] = found;
            near(
                "requests",
                share(found_requested, MEASURED as u64),
                share(requested, records),
                0.05,
            );
            near("first level", share(first, found_requested), share(missed, requested), 0.1);
            let map = share(first + second, found_requested);
            near("map", map, share(missed + missed_twice, requested), 0.1);
        }
    }

    /// The benchmarks model accesses behind a first cache: another one hits few of them.
    #[test]
    fn a_first_cache_has_filtered_them_already() {
        for (nth, benchmark) in TABLE_2.iter().enumerate() {
            let mut cache = Cache::new(&Config::L1).unwrap();
            let missed = |record: &Record| cache.access(record.addr, record.op) != Lookup::Hit;
            let passed = program(nth).take(MEASURED).filter(missed).count();
            let share = passed as f64 / MEASURED as f64;
            assert!(share > 0.9, "{}: {share} pass", benchmark.name);
        }
    }

    #[test]
    fn each_has_a_place_of_its_own_in_4_gib() {
        for nth in 0..TABLE_2.len() {
            let place = nth as u64 * APART..(nth as u64 + 1) * APART;
            assert!(place.end <= 4 << 30);
            assert!(program(nth).take(100_000).all(|record| place.contains(&record.addr)));
        }
    }
}
