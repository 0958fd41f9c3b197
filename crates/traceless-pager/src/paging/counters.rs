//! The counters of paging. One thread counts; any other one may read at any time.

use super::error::Result;
use super::number_file::{AtomicNumbers, NumberFile};
use super::unpaged::Unpaged;
use crate::PAGE_LEN;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use serde::{Deserialize, Serialize};
use std::path::Path;
use traceless::clock::{Clock, MachineClock};
use traceless::stats::AtomicHistogram;

/// Enough buckets for two hours.
type Histogram = AtomicHistogram<640>;

/// The counters. They may lie in memory that another process maps, and begin as all zeros.
#[repr(C)]
pub struct Counters {
    /// Page faults served.
    pub faults: AtomicU64,
    /// Pages that left their frames.
    pub evictions: AtomicU64,
    /// Faults of pages that were present already: another thread's fault had brought them.
    pub already_there: AtomicU64,
    /// Faults of pages on the standby list: no page left for them.
    pub standby_hits: AtomicU64,
    /// Pages that could not leave since they were pinned, for instance by direct I/O.
    pub pinned: AtomicU64,
    /// Resident pages.
    pub resident: AtomicU64,
    /// Pages that are in the store only.
    pub outside: AtomicU64,
    /// The most resident pages at a time.
    pub resident_max: AtomicU64,
    /// A hash of the pages that came and left, in order. Two runs with the same hash replaced the
    /// same pages.
    pub order_hash: AtomicU64,
    /// Nanoseconds of processor time of the thread that serves faults.
    pub handler_cpu_ns: AtomicU64,
    /// Nanoseconds of processor time of all helpers.
    pub helper_cpu_ns: AtomicU64,
    /// Bytes of trusted memory beside the frames.
    pub trusted_bytes: AtomicU64,
    /// 1 if resident pages are locked in memory; else 0.
    pub locked: AtomicU64,
    /// Faults after which nothing is counted any more; 0 if all are counted.
    pub limit: AtomicU64,
    /// When the counting began, in nanoseconds of the system's monotonic clock; 0 outside files.
    pub begun_ns: AtomicU64,
    /// Nanoseconds from the first fault to the end of the last one.
    pub span_ns: AtomicU64,
    /// Nanoseconds of `span_ns` that the scheme took to put pages away and to bring pages.
    pub swap_ns: AtomicU64,
    /// Ticks at a constant rate.
    pub ticks: AtomicU64,
    /// Ticks that a fault used.
    pub ticks_used: AtomicU64,
    /// Ticks that were late by a period or more.
    pub ticks_late: AtomicU64,
    /// The longest delay of a tick, in nanoseconds.
    pub tick_delay_max_ns: AtomicU64,
    /// Bytes of the program's own memory that were not paged, at the time when these were the most:
    /// the first thread's stack.
    pub unpaged_stack: AtomicU64,
    /// The same of static data.
    pub unpaged_static: AtomicU64,
    /// The same of the heap behind the program.
    pub unpaged_break: AtomicU64,
    /// The same of all other memory.
    pub unpaged_other: AtomicU64,
    /// The most pages that were in use at a time, in memory and in the store.
    pub in_use_max: AtomicU64,
    first_ns: AtomicU64,
    service_ns: Histogram,
    between_ns: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            faults: zero(),
            evictions: zero(),
            already_there: zero(),
            standby_hits: zero(),
            pinned: zero(),
            resident: zero(),
            outside: zero(),
            resident_max: zero(),
            order_hash: zero(),
            handler_cpu_ns: zero(),
            helper_cpu_ns: zero(),
            trusted_bytes: zero(),
            locked: zero(),
            limit: zero(),
            begun_ns: zero(),
            span_ns: zero(),
            swap_ns: zero(),
            ticks: zero(),
            ticks_used: zero(),
            ticks_late: zero(),
            tick_delay_max_ns: zero(),
            unpaged_stack: zero(),
            unpaged_static: zero(),
            unpaged_break: zero(),
            unpaged_other: zero(),
            in_use_max: zero(),
            first_ns: zero(),
            service_ns: Histogram::default(),
            between_ns: Histogram::default(),
        }
    }
}

/// Adds one. Not atomic: only one thread counts.
pub(super) fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

impl Counters {
    /// Whether the next fault is counted.
    pub(super) fn is_open(&self) -> bool {
        let limit = self.limit.load(Relaxed);
        limit == 0 || self.faults.load(Relaxed) < limit
    }

    /// Counts a fault that was reported at `begun` and served at `ended`.
    pub(super) fn fault_served(&self, begun: u64, ended: u64) {
        self.service_ns.record(ended - begun);
        if self.span_ns.load(Relaxed) == 0 {
            self.first_ns.store(begun, Relaxed);
        }
        self.span_ns.store(ended.saturating_sub(self.first_ns.load(Relaxed)), Relaxed);
    }

    /// Counts a call of the scheme that took `ns` nanoseconds, `between` nanoseconds after the last
    /// one.
    pub(super) fn swap_done(&self, ns: u64, between: Option<u64>) {
        self.swap_ns.store(self.swap_ns.load(Relaxed) + ns, Relaxed);
        if let Some(between) = between {
            self.between_ns.record(between);
        }
    }

    pub(super) fn page_came(&self, page: usize) {
        self.hash_move(page, true);
    }

    pub(super) fn page_left(&self, page: usize) {
        bump(&self.evictions);
        self.hash_move(page, false);
    }

    fn hash_move(&self, page: usize, came: bool) {
        let event = (page as u64) << 1 | u64::from(came);
        // FNV-1a, eight bytes at a time.
        let hash = (self.order_hash.load(Relaxed) ^ event).wrapping_mul(0x0100_0000_01b3);
        self.order_hash.store(hash, Relaxed);
    }

    /// Notes how much of the program's own memory is not paged now, if that was never more.
    pub(super) fn note_unpaged(&self, unpaged: Unpaged) {
        if unpaged.total() < self.unpaged().total() {
            return;
        }
        self.unpaged_stack.store(unpaged.stack, Relaxed);
        self.unpaged_static.store(unpaged.static_data, Relaxed);
        self.unpaged_break.store(unpaged.program_break, Relaxed);
        self.unpaged_other.store(unpaged.other, Relaxed);
    }

    pub(super) fn unpaged(&self) -> Unpaged {
        Unpaged {
            stack: self.unpaged_stack.load(Relaxed),
            static_data: self.unpaged_static.load(Relaxed),
            program_break: self.unpaged_break.load(Relaxed),
            other: self.unpaged_other.load(Relaxed),
        }
    }

    /// Shows how many pages are in memory, and how many are in the store only.
    pub(super) fn show_places(&self, resident: u64, outside: u64) {
        self.resident.store(resident, Relaxed);
        self.outside.store(outside, Relaxed);
        self.in_use_max.fetch_max(resident + outside, Relaxed);
    }

    /// How much of the time between two calls of the scheme could be used, if each call could use
    /// up to `ns` nanoseconds: the sum over all of them, within a sixteenth.
    pub fn usable_ns(&self, ns: u64) -> u64 {
        self.between_ns.sum(|between| between.min(ns))
    }

    /// The counters' values now.
    pub fn summary(&self) -> Summary {
        Summary {
            faults: self.faults.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
            already_there: self.already_there.load(Relaxed),
            standby_hits: self.standby_hits.load(Relaxed),
            pinned: self.pinned.load(Relaxed),
            resident: self.resident.load(Relaxed),
            outside: self.outside.load(Relaxed),
            resident_max: self.resident_max.load(Relaxed),
            order_hash: self.order_hash.load(Relaxed),
            handler_cpu_ns: self.handler_cpu_ns.load(Relaxed),
            helper_cpu_ns: self.helper_cpu_ns.load(Relaxed),
            trusted_bytes: self.trusted_bytes.load(Relaxed),
            locked: self.locked.load(Relaxed) != 0,
            span_ns: self.span_ns.load(Relaxed),
            swap_ns: self.swap_ns.load(Relaxed),
            ticks: self.ticks.load(Relaxed),
            ticks_used: self.ticks_used.load(Relaxed),
            ticks_late: self.ticks_late.load(Relaxed),
            tick_delay_max_ns: self.tick_delay_max_ns.load(Relaxed),
            unpaged: self.unpaged(),
            paged_bytes: self.in_use_max.load(Relaxed) * PAGE_LEN as u64,
            service_ns_p50: self.service_ns.within(50),
            service_ns_p99: self.service_ns.within(99),
        }
    }
}

/// A copy of the counters, for people and scripts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Page faults served.
    pub faults: u64,
    /// Pages that left their frames.
    pub evictions: u64,
    /// Faults of pages that were present already.
    pub already_there: u64,
    /// Faults of pages on the standby list.
    #[serde(rename = "missed")]
    pub standby_hits: u64,
    /// Pages that could not leave since they were pinned.
    pub pinned: u64,
    /// Resident pages.
    #[serde(default)]
    pub resident: u64,
    /// Pages that are in the store only.
    #[serde(default)]
    pub outside: u64,
    /// The most resident pages at a time.
    pub resident_max: u64,
    /// A hash of the pages that came and left, in order.
    pub order_hash: u64,
    /// Nanoseconds of processor time of the thread that serves faults.
    pub handler_cpu_ns: u64,
    /// Nanoseconds of processor time of all helpers.
    pub helper_cpu_ns: u64,
    /// Bytes of trusted memory beside the frames.
    pub trusted_bytes: u64,
    /// Whether resident pages are locked in memory.
    pub locked: bool,
    /// Nanoseconds from the first fault to the end of the last one.
    pub span_ns: u64,
    /// Nanoseconds of `span_ns` that the scheme took.
    pub swap_ns: u64,
    /// Ticks at a constant rate.
    #[serde(default)]
    pub ticks: u64,
    /// Ticks that a fault used.
    #[serde(default)]
    pub ticks_used: u64,
    /// Ticks that were late by a period or more.
    #[serde(default)]
    pub ticks_late: u64,
    /// The longest delay of a tick, in nanoseconds.
    #[serde(default)]
    pub tick_delay_max_ns: u64,
    /// Bytes of the program's own memory that were not paged, when these were the most.
    #[serde(default)]
    pub unpaged: Unpaged,
    /// The most bytes that were paged at a time.
    #[serde(default)]
    pub paged_bytes: u64,
    /// Nanoseconds in which half of the faults were served, without the time to wake up threads.
    pub service_ns_p50: u64,
    /// Nanoseconds in which 99 of 100 faults were served.
    pub service_ns_p99: u64,
}

// SAFETY: `repr(C)`, and all fields are atomic numbers, or arrays of them.
unsafe impl AtomicNumbers for Counters {}

/// Counters in a file that another process reads while they count, and afterwards.
pub type CounterFile = NumberFile<Counters>;

impl CounterFile {
    /// Creates a file in `folder`, with a name that no other file has.
    pub fn create(folder: &Path) -> Result<Self> {
        Self::create_for(folder, std::process::id())
    }

    /// Creates a file for the counters of another process.
    pub fn create_for(folder: &Path, process: u32) -> Result<Self> {
        for nth in 0..u32::MAX {
            if let Some(counters) = Self::create_new(&folder.join(format!("{process}.{nth}")))? {
                counters.begun_ns.store(MachineClock.now(), Relaxed);
                return Ok(counters);
            }
        }
        unreachable!("no process has so many predecessors")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_service_times_are_right_to_a_sixteenth() {
        let counters = Counters::default();
        assert_eq!(counters.summary().service_ns_p50, 0);
        for ns in 1..=10_000 {
            counters.fault_served(0, ns);
        }
        let summary = counters.summary();
        let (p50, p99) = (summary.service_ns_p50, summary.service_ns_p99);
        assert!((4700..5300).contains(&p50), "{p50}");
        assert!((9500..10_300).contains(&p99), "{p99}");
        counters.fault_served(0, u64::MAX);
        assert_eq!(counters.service_ns.within(0), 1);
    }

    #[test]
    fn usable_time_between_swaps_is_bounded() {
        let counters = Counters::default();
        counters.swap_done(1000, None);
        for between in [10, 2000, 5000] {
            counters.swap_done(100, Some(between));
        }
        assert_eq!(counters.summary().swap_ns, 1300);
        assert_eq!(counters.usable_ns(10), 30);
        assert_eq!(counters.usable_ns(1000), 2010);
        let all = counters.usable_ns(u64::MAX);
        assert!((6600..7440).contains(&all), "{all}");
    }

    #[test]
    fn the_most_that_was_not_paged_is_kept() {
        let counters = Counters::default();
        for (stack, pages) in [(5, 1), (9, 7), (3, 2)] {
            counters.show_places(pages, 1);
            counters.note_unpaged(Unpaged { stack, other: 1, ..Unpaged::default() });
        }
        let summary = counters.summary();
        assert_eq!((summary.unpaged.total(), summary.paged_bytes), (10, 8 * PAGE_LEN as u64));
    }

    /// Counts `faults` faults, and returns the counters.
    fn summary_of(limit: u64, faults: u64) -> Summary {
        let counters = Counters::default();
        counters.limit.store(limit, Relaxed);
        for nth in (0..faults).take_while(|_| counters.is_open()) {
            counters.page_left(nth as usize);
            counters.swap_done(2, Some(3));
            counters.page_came(nth as usize + 1);
            bump(&counters.faults);
            counters.fault_served(100 * (nth + 1), 100 * (nth + 1) + 7);
        }
        counters.summary()
    }

    #[test]
    fn faults_after_the_limit_are_not_counted() {
        assert_eq!(summary_of(5, 9), summary_of(0, 5));
        assert_ne!(summary_of(0, 9), summary_of(0, 5));
        assert_eq!(summary_of(0, 5).span_ns, 407);
    }

    #[test]
    fn another_process_reads_counters_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) =
            (CounterFile::create(folder.path()), CounterFile::create(folder.path()));
        first.unwrap().faults.store(7, Relaxed);
        second.unwrap().faults.store(8, Relaxed);
        let read = |nth| {
            let path = folder.path().join(format!("{}.{nth}", std::process::id()));
            CounterFile::open(&path).unwrap().summary().faults
        };
        assert_eq!([read(0), read(1)], [7, 8]);
        let other = folder.path().join("other");
        std::fs::write(&other, "x").unwrap();
        assert!(CounterFile::open(&other).is_err());
    }

    #[test]
    fn order_hashes_of_different_orders_differ() {
        let hash = |pages: &[usize]| {
            let counters = Counters::default();
            for &page in pages {
                counters.page_came(page);
            }
            counters.summary().order_hash
        };
        assert_eq!(hash(&[1, 2, 3]), hash(&[1, 2, 3]));
        assert_ne!(hash(&[1, 2, 3]), hash(&[1, 3, 2]));
    }
}
