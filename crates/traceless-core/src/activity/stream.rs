//! What is counted and sampled of a stream of events, or of requests.

use super::samples::{Sample, SampleRing};
use crate::clock::Clock;
use crate::trace::Op;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Equal parts of the space that events are counted in.
pub const PLACES: usize = 128;
/// Samples a second that are enough for a picture.
pub const SAMPLES_PER_SECOND: u64 = 1000;
/// After so many samples a writer looks at the clock whether they come too fast.
const CHECK_EVERY: u64 = 256;
/// Of 2^24 events, one sample at least.
const SHIFT_MAX: u64 = 24;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// Least time between two readings that a rate is taken from.
const RATE_NS: u64 = NS_PER_SECOND / 10;

/// Counters of one operation, in a cache line of their own.
#[derive(Default)]
#[repr(C, align(64))]
struct OpCount {
    events: AtomicU64,
    bytes: AtomicU64,
}

/// Counts and samples of events. Recording takes no lock and never waits. Zeros are a stream
/// without events.
#[repr(C)]
pub struct EventStream {
    space: AtomicU64,
    counts: [OpCount; 3],
    places: [[AtomicU64; PLACES]; 2],
    samples: SampleRing,
    /// One of `2^shift` events is sampled.
    shift: AtomicU64,
    /// When the last [`CHECK_EVERY`] samples began.
    checked: AtomicU64,
    /// Time of the last reading, and the events before it.
    read_at: AtomicU64,
    read_events: AtomicU64,
}

/// A reading of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamReading {
    /// Bytes of the space.
    pub space: u64,
    /// Events and bytes of reads, writes and syncs.
    pub counts: [(u64, u64); 3],
    /// Reads and writes that began in each part of the space.
    pub places: [Vec<u64>; 2],
    /// One of so many events is sampled now.
    pub stride: u64,
    /// The samples since the last reading.
    pub samples: Vec<Sample>,
    /// The number that the next reading begins with.
    pub next: u64,
}

impl Default for EventStream {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            space: zero(),
            counts: Default::default(),
            places: core::array::from_fn(|_| core::array::from_fn(|_| zero())),
            samples: SampleRing::default(),
            shift: zero(),
            checked: zero(),
            read_at: zero(),
            read_events: zero(),
        }
    }
}

impl EventStream {
    /// Sets the size of the space that events touch, in bytes. Before that no places are counted.
    pub fn set_space(&self, bytes: u64) {
        self.space.store(bytes, Relaxed);
    }

    /// Counts an event, and samples it if it is its turn. Returns whether it was.
    #[inline]
    pub fn record(&self, clock: &impl Clock, op: Op, at: u64, len: u32) -> bool {
        let count = &self.counts[op as usize];
        let number = count.events.fetch_add(1, Relaxed);
        count.bytes.fetch_add(u64::from(len), Relaxed);
        let space = self.space.load(Relaxed);
        if let (Some(places), true) = (self.places.get(op as usize), space > 0) {
            places[place_of(at, space)].fetch_add(1, Relaxed);
        }
        let is_sample = is_sampled(number, self.shift());
        if is_sample {
            self.sample(Sample { time: clock.now(), op, at, len });
        }
        is_sample
    }

    #[cold]
    fn sample(&self, sample: Sample) {
        let number = self.samples.push(sample);
        if number.is_multiple_of(CHECK_EVERY) {
            let began = self.checked.swap(sample.time, Relaxed);
            let is_fast = sample.time.saturating_sub(began)
                < CHECK_EVERY * NS_PER_SECOND / SAMPLES_PER_SECOND;
            let shift = self.shift();
            if number > 0 && is_fast && shift < SHIFT_MAX {
                self.shift.store(shift + 1, Relaxed);
            }
        }
    }

    /// All counts, and the samples from the number `first` on.
    pub fn read(&self, clock: &impl Clock, first: u64) -> StreamReading {
        self.sample_more(clock.now());
        let (samples, next) = self.samples.since(first);
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        StreamReading {
            space: load(&self.space),
            counts: self.counts().map(|count| (load(&count.events), load(&count.bytes))),
            places: [0, 1].map(|op| self.places[op].iter().map(load).collect()),
            stride: 1 << self.shift(),
            samples,
            next,
        }
    }

    /// Events and bytes of reads, writes and syncs.
    pub fn totals(&self) -> [(u64, u64); 3] {
        self.counts().map(|count| (count.events.load(Relaxed), count.bytes.load(Relaxed)))
    }

    /// The shift. Other processes may have written any number.
    #[inline]
    fn shift(&self) -> u64 {
        self.shift.load(Relaxed).min(SHIFT_MAX)
    }

    fn counts(&self) -> [&OpCount; 3] {
        let [reads, writes, syncs] = &self.counts;
        [reads, writes, syncs]
    }

    /// Takes more samples again if fewer events come than before. Writers take fewer by themselves.
    fn sample_more(&self, now: u64) {
        let before = self.read_at.load(Relaxed);
        let elapsed = now.saturating_sub(before);
        // Of two readers one is enough.
        let order = (Relaxed, Relaxed);
        if elapsed < RATE_NS
            || self.read_at.compare_exchange(before, now, order.0, order.1).is_err()
        {
            return;
        }
        let events = self.totals().iter().fold(0, |sum: u64, count| sum.wrapping_add(count.0));
        let new = events.saturating_sub(self.read_events.swap(events, Relaxed));
        if before == 0 {
            // The first reading: it is not known since when the events came.
            return;
        }
        let wanted = shift_of(new, elapsed);
        if wanted < self.shift.load(Relaxed) {
            self.shift.store(wanted, Relaxed);
        }
    }
}

/// The shift that makes enough samples of `events` in `ns` nanoseconds.
fn shift_of(events: u64, ns: u64) -> u64 {
    let per_second = u128::from(events) * u128::from(NS_PER_SECOND) / u128::from(ns.max(1));
    let too_many = per_second.div_ceil(u128::from(SAMPLES_PER_SECOND)).max(1);
    u64::from(too_many.next_power_of_two().ilog2()).min(SHIFT_MAX)
}

/// Whether the event of this number is one of `2^shift`. Multiplied, as the events of a scheme come
/// in periods, and every 2^n-th event could always be of the same kind.
#[inline]
fn is_sampled(number: u64, shift: u64) -> bool {
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    shift == 0 || spread >> (64 - shift) == 0
}

#[inline]
fn place_of(at: u64, space: u64) -> usize {
    // Without the 128 bits of a product: a part is rounded up, so that the last one is the last.
    let part = space.div_ceil(PLACES as u64);
    ((at / part) as usize).min(PLACES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimulatedClock;
    use alloc::vec;

    #[test]
    fn events_are_counted_where_they_begin() {
        let (stream, clock) = (EventStream::default(), SimulatedClock::default());
        stream.record(&clock, Op::Write, 77, 1);
        stream.set_space(1280);
        for (op, at, len) in [
            (Op::Write, 0, 5),
            (Op::Write, 9, 6),
            (Op::Write, 10, 7),
            (Op::Read, 1279, 1),
            (Op::Read, 5000, 1),
            (Op::Sync, 0, 0),
        ] {
            stream.record(&clock, op, at, len);
        }
        let reading = stream.read(&clock, 0);
        assert_eq!(reading.counts, [(2, 2), (4, 19), (1, 0)]);
        assert_eq!((reading.places[1][0], reading.places[1][1]), (2, 1));
        assert_eq!(reading.places[1].iter().sum::<u64>(), 3, "one came before the space");
        assert_eq!((reading.places[0][PLACES - 1], reading.space), (2, 1280));
        let wanted = Sample { time: 0, op: Op::Write, at: 9, len: 6 };
        assert_eq!((reading.samples.len(), reading.samples[2]), (7, wanted));
        assert_eq!((reading.stride, reading.next), (1, 7));
    }

    #[test]
    fn every_part_of_a_small_or_odd_space_is_within() {
        for space in [1, 5, 127, 128, 129, 4096, u64::MAX] {
            assert_eq!(place_of(0, space), 0);
            assert!(place_of(space - 1, space) < PLACES && place_of(u64::MAX, space) < PLACES);
        }
        assert_eq!(place_of(u64::MAX, u64::MAX), PLACES - 1);
    }

    /// Records `events` in one second.
    fn one_second(stream: &EventStream, clock: &SimulatedClock, events: u64) {
        for nth in 0..events {
            clock.advance(NS_PER_SECOND / events);
            stream.record(clock, [Op::Read, Op::Write][(nth % 2) as usize], nth, 1);
        }
    }

    #[test]
    fn samples_stay_few_at_any_rate() {
        let (stream, clock) = (EventStream::default(), SimulatedClock::default());
        let mut next = 0;
        for (events, least, most) in [
            (500, 500, 500),
            (2_000_000, 500, 5 * SAMPLES_PER_SECOND),
            (2_000_000, 500, SAMPLES_PER_SECOND + 100),
            (4_000_000, 500, 2 * SAMPLES_PER_SECOND),
        ] {
            one_second(&stream, &clock, events);
            let after = stream.samples.next();
            assert!((least..=most).contains(&(after - next)), "{} of {events}", after - next);
            next = stream.read(&clock, next).next;
        }
        // As soon as it is read again, everything is sampled again.
        one_second(&stream, &clock, 50);
        let reading = stream.read(&clock, next);
        assert_eq!(reading.stride, 1);
        one_second(&stream, &clock, 50);
        assert_eq!(stream.read(&clock, reading.next).samples.len(), 50);
        assert_eq!(stream.totals()[0].0, (500 + 8_000_000 + 100) / 2);
    }

    #[test]
    fn samples_of_periodic_events_are_of_all_kinds() {
        for period in [2, 3, 4, 8, 64] {
            let sampled = (0..1 << 16).filter(|number| is_sampled(*number, 6));
            let mut kinds = vec![0; period as usize];
            sampled.for_each(|number| kinds[(number % period) as usize] += 1);
            let fair = (1 << 10) / period;
            assert!(kinds.iter().all(|kind| (fair / 2..=fair * 2).contains(kind)), "{kinds:?}");
        }
    }

    /// Memory that processes share may hold anything.
    #[test]
    fn any_bits_are_a_stream() {
        let clock = SimulatedClock::default();
        clock.advance(u64::MAX);
        for bits in [u64::MAX, u64::MAX - 1, 64, 1 << 63] {
            let stream = EventStream::default();
            let counts = stream.counts().map(|count| [&count.events, &count.bytes]);
            let own = [&stream.space, &stream.shift, &stream.checked, &stream.read_events];
            for word in counts.iter().flatten().chain(&own) {
                word.store(bits, Relaxed);
            }
            stream.samples.set_next(bits);
            for at in 0..600 {
                stream.record(&clock, Op::Write, u64::MAX - at, 7);
            }
            for (read_at, first) in [(1, 0), (bits, bits), (0, u64::MAX)] {
                stream.read_at.store(read_at, Relaxed);
                assert!(stream.read(&clock, first).stride <= 1 << SHIFT_MAX);
            }
        }
    }

    #[test]
    fn the_shift_follows_the_rate() {
        let second = NS_PER_SECOND;
        for (events, ns, shift) in [
            (0, second, 0),
            (SAMPLES_PER_SECOND, second, 0),
            (SAMPLES_PER_SECOND + 1, second, 1),
            (SAMPLES_PER_SECOND, second / 4, 2),
            (u64::MAX, 1, SHIFT_MAX),
            (1, 0, 20),
        ] {
            assert_eq!(shift_of(events, ns), shift, "{events} in {ns}");
        }
    }
}
