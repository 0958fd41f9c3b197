//! A trace cut into accesses, of whatever scheme it is.

use crate::cut::Begins;
use crate::requests::Requests;
use crate::template::Template;
use crate::touched::{Touch, Touched};
use std::collections::HashMap;
use std::sync::Arc;
use traceless::trace::{Asked, Event, Op};

/// Events of an access, at most: more are another one. What reads once and then writes for good has
/// no accesses.
const ACCESS_EVENTS_MAX: usize = 1 << 20;

/// How many places an access has, and which of them are the least and the greatest.
pub(crate) const PLACES: usize = 6;
pub(crate) const LOW: usize = 2;
pub(crate) const HIGH: usize = 3;

/// What is seen of one access.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Access {
    /// Operations, surfaces and lengths in order.
    pub kind: Template,
    /// The same and, of places, whether each lies above the one before, and which of the reads a
    /// write is at.
    pub template: Template,
    /// Where it begins, where its reads end, the least and the greatest byte that it touches, and
    /// its first and its last write: one of these tells its place.
    pub places: [u64; PLACES],
    /// Events before it, and when it began.
    pub seen: u64,
    began: u64,
    /// Its reads and writes among those that are kept.
    first: usize,
    events: usize,
}

/// The accesses of a trace: each is a row of reads and the writes after them. Where a trace has
/// only reads or only writes, it is what was seen at one time; without times, each event.
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    pub(crate) all: Vec<Access>,
    /// What was asked for when each began, numbered in order; 0 for nothing. Empty if it is not
    /// known.
    pub(crate) secrets: Vec<u64>,
    /// The same in bits: 1, whether it was a write, and the address, in the largest unit that all
    /// addresses are multiples of. 0 for nothing.
    pub(crate) asked: Vec<u64>,
    pub(crate) touched: Arc<Touched>,
    /// What each request caused, if it is known what was asked for.
    pub(crate) requests: Option<Requests>,
}

impl Accesses {
    /// Cuts a trace, which is read twice or three times: how accesses begin is known at its end
    /// only. A sync belongs to the access before it. So no more is held than what is kept of each
    /// access (96 bytes) and of its reads and writes (4 bytes each, of the first 16 million).
    ///
    /// # Errors
    /// The first failure of `read`, or of what it returns.
    pub fn cut<E, I>(mut read: impl FnMut() -> Result<I, E>) -> Result<Self, E>
    where
        I: Iterator<Item = Result<Event, E>>,
    {
        let begins = Begins::of(read()?)?;
        let cut = Self::cut_by(&begins, read()?)?;
        match begins.with_path_of(&cut) {
            Some(begins) => Self::cut_by(&begins, read()?),
            None => Ok(cut),
        }
    }

    fn cut_by<E>(
        begins: &Begins,
        trace: impl Iterator<Item = Result<Event, E>>,
    ) -> Result<Self, E> {
        let (mut all, mut touched) = (vec![], Touched::default());
        let (mut events, mut seen) = (Vec::<Event>::new(), 0);
        let mut cutter = begins.cutter();
        let mut end = |events: &mut Vec<Event>| {
            let access = Access { seen, first: touched.len(), ..Access::of(events) };
            for event in events.iter() {
                touched.see(event);
            }
            all.push(access);
            seen += events.len() as u64;
            events.clear();
        };
        for event in trace {
            let event = event?;
            let is_next = cutter.begins_with(&event);
            if is_next || events.len() == ACCESS_EVENTS_MAX {
                end(&mut events);
            }
            events.push(event);
        }
        if !events.is_empty() {
            end(&mut events);
        }
        Ok(Self { all, touched: Arc::new(touched), ..Self::default() })
    }

    /// The same with what was asked for, in the order in which it was. Each access belongs to what
    /// was asked for last when it began.
    ///
    /// # Errors
    /// The first failure of the reader.
    pub fn with_secrets<E>(
        mut self,
        asked: impl Iterator<Item = Result<Asked, E>>,
    ) -> Result<Self, E> {
        let asked: Vec<Asked> = asked.collect::<Result<_, E>>()?;
        let mut known: Vec<(u64, Op)> = asked.iter().map(|asked| (asked.at, asked.op)).collect();
        known.retain(|(_, op)| *op != Op::Sync);
        known.sort_unstable_by_key(|&(at, op)| (at, op as u8));
        known.dedup();
        let number = |asked: &Asked| match asked.op {
            Op::Sync => 0,
            op => {
                let key = (asked.at, op as u8);
                let place = known.binary_search_by_key(&key, |&(at, op)| (at, op as u8));
                place.expect("all are there") as u64 + 1
            }
        };
        let unit = known.iter().fold(0, |unit, &(at, _)| greatest_divisor(unit, at)).max(1);
        let bits = |asked: &Asked| match asked.op {
            Op::Sync => 0,
            op => (asked.at / unit) << 2 | u64::from(op == Op::Write) << 1 | 1,
        };
        let (mut next, mut current) = (asked.iter().peekable(), (0, 0));
        let secret = |access: &Access| {
            while let Some(asked) = next.next_if(|asked| asked.seen <= access.seen) {
                current = (number(asked), bits(asked));
            }
            current
        };
        (self.secrets, self.asked) = self.all.iter().map(secret).unzip();
        self.requests = Some(Requests::of(&self, &asked));
        Ok(self)
    }

    /// The reads and writes of an access; nothing if they were not kept.
    pub(crate) fn touches(&self, nth: usize) -> Option<impl ExactSizeIterator<Item = Touch>> {
        let Access { first, events, .. } = self.all[nth];
        self.touched.of(first, events)
    }

    /// Those of the accesses whose numbers are `nths`.
    pub(crate) fn part(&self, nths: &[usize]) -> Self {
        let secrets = if self.secrets.is_empty() { &[] } else { nths };
        Self {
            all: nths.iter().map(|&nth| self.all[nth]).collect(),
            secrets: secrets.iter().map(|&nth| self.secrets[nth]).collect(),
            asked: secrets.iter().map(|&nth| self.asked[nth]).collect(),
            touched: Arc::clone(&self.touched),
            requests: None,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The time from each to the next; none without times.
    pub fn gaps(&self) -> Vec<u64> {
        let gaps = self.all.windows(2).map(|two| two[1].began.saturating_sub(two[0].began));
        if self.all.iter().any(|access| access.began != 0) { gaps.collect() } else { vec![] }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Access {
    fn of(events: &[Event]) -> Self {
        let Event { at, time, .. } = events[0];
        let mut access =
            Self { places: [at, 0, u64::MAX, 0, at, at], began: time, ..Self::default() };
        let mut reads: HashMap<u64, u64> = HashMap::new();
        let (mut before, mut writes) = (0, false);
        for event in events {
            let op = event.op as u64;
            let what = u64::from(event.len) << 5 | (event.surface as u64) << 3 | op << 1;
            access.kind.see(what);
            access.template.see(what);
            if event.op == Op::Sync {
                continue;
            }
            access.events += 1;
            access.template.see(u64::from(event.at > before));
            before = event.at;
            let nth = reads.len() as u64;
            if event.op == Op::Read {
                reads.insert(event.at, nth);
            } else if has_reads(events) {
                access.template.see(reads.get(&event.at).copied().unwrap_or(u64::MAX));
            }
            let [_, end, low, high, first_write, last_write] = &mut access.places;
            if event.op == Op::Read || access.events == 1 {
                *end = event.at;
            }
            if event.op == Op::Write {
                if !writes {
                    *first_write = event.at;
                }
                writes = true;
                *last_write = event.at;
            }
            *low = event.at.min(*low);
            *high = event.at.max(*high);
        }
        access
    }
}

/// Euclid's: of 0 and another the other.
pub(crate) fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

fn has_reads(events: &[Event]) -> bool {
    events[0].op == Op::Read
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::convert::Infallible;
    use traceless::trace::Surface;

    fn cut(events: &[Event]) -> Accesses {
        Accesses::cut(|| Ok(events.iter().copied().map(Ok::<_, Infallible>))).unwrap()
    }

    #[test]
    fn an_access_ends_somewhere() {
        let event = |op| Event { time: 0, surface: Surface::Storage, op, at: 0, len: 1 };
        let mut events = vec![event(Op::Write); 2 * ACCESS_EVENTS_MAX];
        events[0].op = Op::Read;
        assert_eq!(cut(&events).len(), 2);
        assert_eq!(cut(&events).all[1].seen, ACCESS_EVENTS_MAX as u64);
    }

    #[test]
    fn a_reader_that_fails_is_told_of() {
        for fails in [1, 2] {
            let mut reads = 0;
            let read = || {
                reads += 1;
                if reads == fails { Err("gone") } else { Ok(std::iter::once(Err("broken"))) }
            };
            let found = Accesses::cut::<&str, std::iter::Once<Result<Event, &str>>>(read);
            assert_eq!(found.unwrap_err(), if fails == 1 { "gone" } else { "broken" });
        }
    }
}
