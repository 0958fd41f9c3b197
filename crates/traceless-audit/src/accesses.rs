//! A trace of any scheme, cut into accesses.

use crate::access::Access;
use crate::footprint::{Footprint, FootprintEvent};
use crate::requests::RequestCounts;
use std::sync::Arc;
use traceless_core::trace::{Op, Request};

/// The accesses of a trace: each is a row of reads and the writes after them. In a trace of only
/// reads or only writes, an access is all events of one time; without times, each event.
///
/// A trace file is read, and cut into accesses of two reads and a write. The requests, from a file
/// beside it, are added:
///
/// ```
/// use traceless_audit::Accesses;
/// use traceless_core::trace::{Event, Op, Request, Surface};
/// use traceless_core::trace::{SecretReader, SecretWriter, TraceReader, TraceWriter};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (mut trace, mut secret) = (vec![], vec![]);
/// let mut events = TraceWriter::new(&mut trace)?;
/// let mut requests = SecretWriter::new(&mut secret)?;
/// for at in 0..10 {
///     let events_before = events.appended();
///     requests.append(Request { events_before, op: Op::Write, at, len: 1 })?;
///     for (op, at) in [(Op::Read, 0), (Op::Read, 64), (Op::Write, 64)] {
///         events.append(Event { time: 0, surface: Surface::Storage, op, at, len: 64 })?;
///     }
/// }
/// events.finish()?;
/// requests.finish()?;
///
/// let accesses = Accesses::segment(|| TraceReader::new(&trace[..]))?;
/// let accesses = accesses.with_secrets(SecretReader::new(&secret[..])?)?;
/// assert_eq!(accesses.len(), 10);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Accesses {
    pub(crate) all: Vec<Access>,
    /// The request under way when each access began, numbered in order of address and operation; 0
    /// for none. Empty if requests are not known.
    pub(crate) secrets: Vec<u64>,
    /// The same requests in bits: 1, whether it was a write, and the address, in the largest unit
    /// that divides all addresses. 0 for none.
    pub(crate) request_bits: Vec<u64>,
    pub(crate) footprint: Arc<Footprint>,
    /// The accesses that each request caused, if requests are known.
    pub(crate) request_counts: Option<RequestCounts>,
}

impl Accesses {
    /// Adds the requests, in their order. Each access belongs to the last request made before it
    /// began.
    ///
    /// # Errors
    /// The first failure of the reader.
    pub fn with_secrets<E>(
        mut self,
        requests: impl Iterator<Item = Result<Request, E>>,
    ) -> Result<Self, E> {
        let requests: Vec<Request> = requests.collect::<Result<_, E>>()?;
        let mut distinct: Vec<(u64, Op)> =
            requests.iter().map(|request| (request.at, request.op)).collect();
        distinct.retain(|(_, op)| *op != Op::Sync);
        distinct.sort_unstable_by_key(|&(at, op)| (at, op as u8));
        distinct.dedup();
        let number = |request: &Request| match request.op {
            Op::Sync => 0,
            op => {
                let key = (request.at, op as u8);
                let place = distinct.binary_search_by_key(&key, |&(at, op)| (at, op as u8));
                place.expect("all are there") as u64 + 1
            }
        };
        let unit = distinct.iter().fold(0, |unit, &(at, _)| greatest_divisor(unit, at)).max(1);
        let bits = |request: &Request| match request.op {
            Op::Sync => 0,
            op => (request.at / unit) << 2 | u64::from(op == Op::Write) << 1 | 1,
        };
        let (mut next, mut current) = (requests.iter().peekable(), (0, 0));
        let secret = |access: &Access| {
            while let Some(request) =
                next.next_if(|request| request.events_before <= access.events_before)
            {
                current = (number(request), bits(request));
            }
            current
        };
        (self.secrets, self.request_bits) = self.all.iter().map(secret).unzip();
        self.request_counts = Some(RequestCounts::of(&self.all, &requests));
        Ok(self)
    }

    /// The reads and writes of an access; nothing if they were not kept.
    pub(crate) fn footprint_of(
        &self,
        nth: usize,
    ) -> Option<impl ExactSizeIterator<Item = FootprintEvent>> {
        let Access { first, events, .. } = self.all[nth];
        self.footprint.of(first, events)
    }

    /// The accesses with the numbers `nths`.
    pub(crate) fn part(&self, nths: &[usize]) -> Self {
        let secrets = if self.secrets.is_empty() { &[] } else { nths };
        Self {
            all: nths.iter().map(|&nth| self.all[nth]).collect(),
            secrets: secrets.iter().map(|&nth| self.secrets[nth]).collect(),
            request_bits: secrets.iter().map(|&nth| self.request_bits[nth]).collect(),
            footprint: Arc::clone(&self.footprint),
            request_counts: None,
        }
    }

    /// The number of accesses.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The time from each access to the next; empty if the trace has no times.
    pub fn gaps(&self) -> Vec<u64> {
        let gaps = self.all.windows(2).map(|two| two[1].start.saturating_sub(two[0].start));
        if self.all.iter().any(|access| access.start != 0) { gaps.collect() } else { vec![] }
    }

    /// Whether there are no accesses.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Euclid's algorithm; with 0 as one number, the other number.
pub(crate) fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}
