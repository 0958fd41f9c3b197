//! A witness that writes to files.

use super::{Event, Op, Request, SecretWriter, TraceWriter, Witness};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// Writes events to a file and, optionally, client requests to a second file. The first failure is
/// kept and reported by [`finish`](Self::finish).
pub struct FileWitness<W: Write + Send>(Mutex<Inner<W>>);

struct Inner<W: Write> {
    /// `None` once the trace is finished.
    trace: Option<TraceWriter<W>>,
    secrets: Option<SecretWriter<W>>,
    failed: Option<io::Error>,
}

impl<W: Write + Send> FileWitness<W> {
    /// Starts a trace in `out` and writes its header at once.
    pub fn new(out: W) -> io::Result<Self> {
        Self::of(out, None)
    }

    /// Like [`new`](Self::new), and writes client requests
    /// ([`record_request`](Self::record_request)) to `secrets`.
    pub fn with_secrets(out: W, secrets: W) -> io::Result<Self> {
        Self::of(out, Some(SecretWriter::new(secrets)?))
    }

    fn of(out: W, secrets: Option<SecretWriter<W>>) -> io::Result<Self> {
        let trace = Some(TraceWriter::new(out)?);
        Ok(Self(Mutex::new(Inner { trace, secrets, failed: None })))
    }

    /// Records a client's request before the events that it causes. Without a file for secrets the
    /// request is dropped.
    pub fn record_request(&self, op: Op, at: u64, len: u32) {
        self.with(|inner| match (&inner.trace, &mut inner.secrets) {
            (Some(trace), Some(secrets)) => {
                secrets.append(Request { events_before: trace.appended(), op, at, len })
            }
            _ => Ok(()),
        });
    }

    /// Number of events recorded.
    pub fn events(&self) -> u64 {
        let inner = self.0.lock().expect("no witness panics");
        inner.trace.as_ref().map_or(0, TraceWriter::appended)
    }

    /// Records a request that the client made earlier.
    pub fn record_earlier_request(&self, request: Request) {
        self.with(|inner| inner.secrets.as_mut().map_or(Ok(()), |to| to.append(request)));
    }

    /// Writes buffered events, so that none is left to write. Reports the first failure.
    pub fn flush(&self) -> io::Result<()> {
        let inner = &mut *self.0.lock().expect("no witness panics");
        if let Some(error) = inner.failed.take() {
            return Err(error);
        }
        inner.trace.as_mut().map_or(Ok(()), TraceWriter::write_events)
    }

    /// Writes buffered events and the end mark; later events are dropped. Reports the first
    /// failure.
    pub fn finish(&self) -> io::Result<()> {
        let inner = &mut *self.0.lock().expect("no witness panics");
        let (trace, secrets) = (inner.trace.take(), inner.secrets.take());
        if let Some(error) = inner.failed.take() {
            return Err(error);
        }
        trace.map_or(Ok(()), TraceWriter::finish)?;
        secrets.map_or(Ok(()), SecretWriter::finish)
    }

    fn with(&self, append: impl FnOnce(&mut Inner<W>) -> io::Result<()>) {
        let inner = &mut *self.0.lock().expect("no witness panics");
        if inner.failed.is_none() {
            inner.failed = append(inner).err();
        }
    }
}

/// Two witnesses of the same events.
pub struct WitnessPair(pub Arc<dyn Witness>, pub Arc<dyn Witness>);

impl WitnessPair {
    /// Both witnesses as one, or the one that there is.
    pub fn of(
        one: Option<Arc<dyn Witness>>,
        other: Option<Arc<dyn Witness>>,
    ) -> Option<Arc<dyn Witness>> {
        match (one, other) {
            (Some(one), Some(other)) => Some(Arc::new(Self(one, other))),
            (one, other) => one.or(other),
        }
    }
}

impl Witness for WitnessPair {
    fn record(&self, event: Event) {
        self.0.record(event);
        self.1.record(event);
    }
}

impl<W: Write + Send> Witness for FileWitness<W> {
    fn record(&self, event: Event) {
        self.with(|inner| inner.trace.as_mut().map_or(Ok(()), |trace| trace.append(event)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SecretReader, Surface, TraceReader};
    use super::*;
    use std::sync::Arc;

    /// Bytes that outlive their writer. Writing fails beyond this many bytes; 0 is no limit.
    #[derive(Clone, Default)]
    struct SharedBytes(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for SharedBytes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut kept = self.0.lock().unwrap();
            if self.1 > 0 && kept.len() + bytes.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            kept.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn event(at: u64) -> Event {
        Event { time: 0, surface: Surface::Storage, op: Op::Write, at, len: 16 }
    }

    #[test]
    fn requests_are_recorded_with_the_events_before_them() {
        let (trace, secrets) = (SharedBytes::default(), SharedBytes::default());
        let witness = FileWitness::with_secrets(trace.clone(), secrets.clone()).unwrap();
        for i in 0..50_000 {
            witness.record_request(Op::Read, i, 1);
            (0..i % 3).for_each(|_| witness.record(event(i)));
        }
        witness.finish().unwrap();
        let events = trace.0.lock().unwrap();
        let events = TraceReader::new(&events[..]).unwrap().map(Result::unwrap);
        let requests = secrets.0.lock().unwrap();
        let mut requests = SecretReader::new(&requests[..]).unwrap().map(Result::unwrap).peekable();
        let mut current = 0;
        for (nth, event) in (0..).zip(events) {
            while let Some(next) = requests.next_if(|next| next.events_before <= nth) {
                current = next.at;
            }
            assert_eq!(event.at, current);
        }
        assert_eq!(requests.count(), 0, "each request has an event");
    }

    #[test]
    fn the_first_failure_is_returned_at_the_end() {
        let witness = FileWitness::new(SharedBytes(Arc::default(), 1000)).unwrap();
        (0..100_000u64).for_each(|i| witness.record(event(i * i * i)));
        assert_eq!(witness.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        witness.record(event(1));
        witness.finish().unwrap();
    }
}
