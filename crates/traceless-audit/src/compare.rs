//! Tests whether two traces are equal, and finds where they first differ.

use crate::grouped::grouped;
use crate::normal::{Counts, Epoch, Epochs, Stretch};
use core::convert::Infallible;
use serde::Serialize;
use traceless_core::trace::{Event, Op};

/// The properties that are compared. By default: which bytes were written between which syncs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Compare {
    /// Compare reads, too.
    pub reads: bool,
    /// Compare times, too. Times belong to single events, so the order must then be exact.
    pub times: bool,
    /// Compare the order of events, and how they are cut into requests, too.
    pub exact_order: bool,
}

/// The result of a comparison.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Comparison {
    /// Whether there is no difference.
    pub equal: bool,
    /// Where the traces first differ, if they do.
    pub first_difference: Option<Difference>,
    /// The counts of all compared events of the first trace.
    pub counts_a: Counts,
    /// The counts of all compared events of the second trace.
    pub counts_b: Counts,
}

/// The first place where two traces differ.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// The number of equal items before it: events if the order is exact, otherwise joined
    /// stretches and syncs.
    pub index: u64,
    /// Syncs before it.
    pub epoch: u64,
    /// The item of the first trace; nothing if the trace has ended.
    pub in_a: Option<Stretch>,
    /// The item of the second trace; nothing if the trace has ended.
    pub in_b: Option<Stretch>,
    /// The difference as a sentence.
    pub message: String,
}

/// Compares two traces that are in memory.
///
/// ```
/// use traceless_audit::{Compare, compare};
/// use traceless_core::trace::{Event, Op, Surface};
///
/// let write = |at| Event { time: 0, surface: Surface::Storage, op: Op::Write, at, len: 512 };
/// // A cache may write blocks between two syncs in any order.
/// let (a, b) = ([write(0), write(4096)], [write(4096), write(0)]);
/// assert!(compare(a, b, Compare::default()).equal);
///
/// let exact = compare(a, b, Compare { exact_order: true, ..Compare::default() });
/// let message = exact.first_difference.expect("the order differs").message;
/// let expected = "A has a write of 512 bytes at 0, B has a write of 512 bytes at 4096";
/// assert_eq!(message, format!("item 0, after 0 syncs: {expected}"));
/// ```
pub fn compare(
    a: impl IntoIterator<Item = Event>,
    b: impl IntoIterator<Item = Event>,
    how: Compare,
) -> Comparison {
    let (a, b) = (a.into_iter().map(Ok::<_, Infallible>), b.into_iter().map(Ok));
    let Ok(comparison) = try_compare(a, b, how);
    comparison
}

/// Compares two traces while they are read, to the end of both. With exact order it keeps no events
/// in memory, otherwise one epoch of each trace.
///
/// The traces are compared as they are read from trace files; here the second file is cut:
///
/// ```
/// use traceless_audit::{Compare, try_compare};
/// use traceless_core::trace::{Event, Op, Surface, TraceError, TraceReader, TraceWriter};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut file = vec![];
/// let mut writer = TraceWriter::new(&mut file)?;
/// for at in 0..1000 {
///     writer.append(Event { time: 0, surface: Surface::Storage, op: Op::Write, at, len: 1 })?;
/// }
/// writer.finish()?;
///
/// let read = |len| TraceReader::new(&file[..len]);
/// let found = try_compare(read(file.len())?, read(file.len())?, Compare::default())?;
/// assert!(found.equal && found.counts_a.writes == 1000);
/// let cut = try_compare(read(file.len())?, read(file.len() - 1)?, Compare::default());
/// assert!(matches!(cut, Err(TraceError::Cut { .. })));
/// # Ok(())
/// # }
/// ```
pub fn try_compare<E>(
    a: impl IntoIterator<Item = Result<Event, E>>,
    b: impl IntoIterator<Item = Result<Event, E>>,
    how: Compare,
) -> Result<Comparison, E> {
    let (a, b) = (a.into_iter(), b.into_iter());
    if how.exact_order || how.times {
        in_exact_order(a, b, how)
    } else {
        by_epochs(Epochs::new(a, how.reads), Epochs::new(b, how.reads))
    }
}

impl Comparison {
    fn new(difference: Option<Difference>, counts_a: Counts, counts_b: Counts) -> Self {
        let equal = difference.is_none();
        Self { equal, first_difference: difference, counts_a, counts_b }
    }

    /// The comparison as text: counts of the events, and the first difference.
    pub fn text(&self) -> String {
        let (a, b) = (&self.counts_a, &self.counts_b);
        let Some(difference) = &self.first_difference else {
            let reads = if a.reads + b.reads > 0 {
                format!(", {} reads", grouped(a.reads))
            } else {
                String::new()
            };
            let (writes, syncs) = (grouped(a.writes), grouped(a.syncs));
            return format!("equal: {writes} write events, {syncs} syncs{reads}\n");
        };
        let totals = |counts: &Counts| {
            let (writes, bytes) = (grouped(counts.writes), grouped(counts.bytes_written));
            format!("{writes} write events of {bytes} bytes, {} syncs", grouped(counts.syncs))
        };
        let (a, b) = (totals(a), totals(b));
        format!("different: {}\nA in all: {a}\nB in all: {b}\n", difference.message)
    }
}

impl Difference {
    fn new(index: u64, epoch: u64, in_a: Option<Stretch>, in_b: Option<Stretch>) -> Self {
        let describe = |there: Option<Stretch>| match there {
            Some(stretch) => format!("has {stretch}"),
            None => "has nothing more".to_owned(),
        };
        let syncs = if epoch == 1 { "sync" } else { "syncs" };
        let (a, b) = (describe(in_a), describe(in_b));
        let message = format!("item {index}, after {epoch} {syncs}: A {a}, B {b}");
        Self { index, epoch, in_a, in_b, message }
    }
}

fn in_exact_order<E>(
    mut a: impl Iterator<Item = Result<Event, E>>,
    mut b: impl Iterator<Item = Result<Event, E>>,
    how: Compare,
) -> Result<Comparison, E> {
    let (mut counts_a, mut counts_b) = (Counts::default(), Counts::default());
    let mut difference = None;
    let mut index = 0;
    loop {
        let epoch = counts_a.syncs;
        let next_a = next_kept(&mut a, how, &mut counts_a)?;
        let next_b = next_kept(&mut b, how, &mut counts_b)?;
        if next_a.is_none() && next_b.is_none() {
            return Ok(Comparison::new(difference, counts_a, counts_b));
        }
        if difference.is_none() && !same(next_a, next_b, how) {
            difference = Some(differs(index, epoch, next_a, next_b));
        }
        index += 1;
    }
}

fn next_kept<E>(
    events: &mut impl Iterator<Item = Result<Event, E>>,
    how: Compare,
    counts: &mut Counts,
) -> Result<Option<Event>, E> {
    for event in events {
        let event = event?;
        if how.reads || event.op != Op::Read {
            counts.add(&event);
            return Ok(Some(event));
        }
    }
    Ok(None)
}

fn same(a: Option<Event>, b: Option<Event>, how: Compare) -> bool {
    let key = |e: &Event| (Stretch::of(e), how.times.then_some(e.time));
    a.as_ref().map(key) == b.as_ref().map(key)
}

fn differs(index: u64, epoch: u64, a: Option<Event>, b: Option<Event>) -> Difference {
    let (in_a, in_b) = (a.as_ref().map(Stretch::of), b.as_ref().map(Stretch::of));
    let mut difference = Difference::new(index, epoch, in_a, in_b);
    if let (Some(a), Some(b)) = (a, b)
        && in_a == in_b
    {
        let message = &mut difference.message;
        *message = format!("{message}, but A at time {}, B at time {}", a.time, b.time);
    }
    difference
}

fn by_epochs<E>(
    mut a: impl Iterator<Item = Result<Epoch, E>>,
    mut b: impl Iterator<Item = Result<Epoch, E>>,
) -> Result<Comparison, E> {
    let (mut counts_a, mut counts_b) = (Counts::default(), Counts::default());
    let mut difference = None;
    let (mut index, mut number) = (0, 0);
    loop {
        let (next_a, next_b) = (a.next().transpose()?, b.next().transpose()?);
        if next_a.is_none() && next_b.is_none() {
            return Ok(Comparison::new(difference, counts_a, counts_b));
        }
        for (epoch, counts) in [(&next_a, &mut counts_a), (&next_b, &mut counts_b)] {
            if let Some(epoch) = epoch {
                counts.add_all(&epoch.counts);
            }
        }
        let (mut list_a, mut list_b) = (items(next_a.as_ref()), items(next_b.as_ref()));
        let equal = list_a.clone().zip(list_b.clone()).take_while(|(a, b)| a == b).count();
        let (in_a, in_b) = (list_a.nth(equal), list_b.nth(equal));
        index += equal as u64;
        if difference.is_none() && (in_a.is_some() || in_b.is_some()) {
            difference = Some(Difference::new(index, number, in_a, in_b));
        }
        number += 1;
    }
}

/// The stretches of an epoch, and the sync that ends it.
fn items(epoch: Option<&Epoch>) -> impl Iterator<Item = Stretch> + Clone + '_ {
    let sync = epoch.is_some_and(|e| e.synced).then_some(Stretch::SYNC);
    epoch.into_iter().flat_map(|e| e.stretches.iter().copied()).chain(sync)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal::tests::{read, sync, write};

    const SETS: Compare = Compare { reads: false, times: false, exact_order: false };
    const ORDER: Compare = Compare { exact_order: true, ..SETS };

    fn at(a: &[Event], b: &[Event], how: Compare) -> Option<(u64, u64)> {
        let there = compare(a.to_vec(), b.to_vec(), how);
        let back = compare(b.to_vec(), a.to_vec(), how);
        assert_eq!(there.equal, there.first_difference.is_none());
        assert_eq!((there.counts_a, there.counts_b), (back.counts_b, back.counts_a));
        let place = |c: Comparison| c.first_difference.map(|d| (d.index, d.epoch));
        let place_back = place(back);
        let place = place(there);
        assert_eq!(place, place_back, "the same seen from either side");
        place
    }

    #[test]
    fn equal_traces_compare_equal() {
        let trace = [write(0, 4), sync(), write(9, 1), read(3, 3)];
        for how in [SETS, ORDER] {
            assert_eq!(at(&trace, &trace, how), None);
            assert_eq!(at(&[], &[], how), None);
        }
        let found = compare(trace, trace, SETS);
        assert_eq!(found.counts_a, Counts { writes: 2, bytes_written: 5, syncs: 1, reads: 0 });
        assert_eq!(found.counts_a.events(), 3);
    }

    #[test]
    fn order_and_splitting_count_only_in_exact_comparisons() {
        let whole = [write(0, 8), write(20, 4), sync()];
        let split = [write(20, 4), write(4, 4), write(0, 4), sync()];
        assert_eq!(at(&whole, &split, SETS), None);
        assert_eq!(at(&whole, &split, ORDER), Some((0, 0)));
    }

    #[test]
    fn the_first_difference_is_reported_with_its_position() {
        let a = [write(0, 4), sync(), write(4, 4), write(100, 4), sync()];
        let mut b = a;
        b[3] = write(104, 4);
        assert_eq!(at(&a, &b, SETS), Some((3, 1)));
        assert_eq!(at(&a, &b, ORDER), Some((3, 1)));
        let found = compare(a, b, SETS).first_difference.unwrap();
        assert_eq!(found.in_a.unwrap().at, 100);
        assert_eq!(found.in_b.unwrap().at, 104);
        assert_eq!(
            found.message,
            "item 3, after 1 sync: A has a write of 4 bytes at 100, B has a write of 4 bytes at 104"
        );
    }

    #[test]
    fn a_longer_trace_differs_at_the_end_of_the_shorter() {
        let a = [write(0, 4), sync(), write(4, 4)];
        for how in [SETS, ORDER] {
            assert_eq!(at(&a, &a[..2], how), Some((2, 1)));
            assert_eq!(at(&a, &a[..1], how), Some((1, 0)));
            assert_eq!(at(&a, &[], how), Some((0, 0)));
        }
        let found = compare(a, a[..2].to_vec(), SETS).first_difference.unwrap();
        assert!(found.in_b.is_none());
        assert!(found.message.ends_with("B has nothing more"), "{}", found.message);
    }

    #[test]
    fn traces_with_syncs_at_different_positions_differ() {
        let early = [write(0, 4), sync(), write(10, 4), sync()];
        let late = [write(0, 4), write(10, 4), sync(), sync()];
        assert_eq!(at(&early, &late, SETS), Some((1, 0)));
        assert_eq!(at(&early, &late, ORDER), Some((1, 0)));
        let without = [write(0, 4), write(10, 4)];
        assert_eq!(at(&without, &[without[0], without[1], sync()], SETS), Some((2, 0)));
    }

    #[test]
    fn reads_count_only_if_compared() {
        let a = [read(0, 4), write(0, 4)];
        let b = [read(8, 4), write(0, 4)];
        for how in [SETS, ORDER] {
            assert_eq!(at(&a, &b, how), None);
            assert_eq!(at(&a, &b, Compare { reads: true, ..how }), Some((0, 0)));
        }
    }

    #[test]
    fn times_count_only_if_compared() {
        let a = [write(0, 4), write(8, 4)];
        let late = [write(0, 4), Event { time: 5, ..write(8, 4) }];
        assert_eq!(at(&a, &late, SETS), None);
        assert_eq!(at(&a, &late, ORDER), None);
        let timed = Compare { times: true, ..SETS };
        assert_eq!(at(&a, &late, timed), Some((1, 0)));
        let message = compare(a, late, timed).first_difference.unwrap().message;
        assert!(message.ends_with("but A at time 0, B at time 5"), "{message}");
    }

    #[test]
    fn a_reader_failure_is_not_a_difference() {
        let good = || [Ok(write(0, 4)), Ok(write(8, 4))];
        let bad = || [Ok(write(0, 4)), Err("torn")];
        for how in [SETS, ORDER] {
            assert_eq!(try_compare(good(), bad(), how), Err("torn"));
            assert_eq!(try_compare(bad(), good(), how), Err("torn"));
        }
    }

    #[test]
    fn a_difference_in_the_last_of_many_events_is_found() {
        let trace = |last: u64| {
            (0..100_000u64).map(move |i| {
                if i % 100 == 99 { sync() } else { write(if i == 99_998 { last } else { i }, 1) }
            })
        };
        for how in [SETS, ORDER] {
            assert!(compare(trace(0), trace(0), how).equal);
            let found = compare(trace(0), trace(1), how).first_difference.unwrap();
            assert_eq!(found.epoch, 999);
        }
    }
}
