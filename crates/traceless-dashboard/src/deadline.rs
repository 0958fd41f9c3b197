//! A connection that ends in time, however slowly its client reads and writes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use traceless_core::clock::{Clock, Monotonic};

/// A stream that fails every call as soon as its time is over.
pub struct TimedStream {
    stream: TcpStream,
    clock: Monotonic,
    time: Duration,
}

impl TimedStream {
    /// The stream, with so much time for everything.
    pub fn new(stream: TcpStream, time: Duration) -> Self {
        Self { stream, clock: Monotonic::start(), time }
    }

    /// Reads until `end` is there, and returns what stands before it. Fails with `InvalidData` once
    /// `limit` bytes have come without it.
    pub fn read_until(&mut self, end: &[u8], limit: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; limit];
        let mut len = 0;
        while len < limit {
            let more = self.read(&mut bytes[len..])?;
            if more == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            // The end may have begun in the bytes before.
            let from = len.saturating_sub(end.len() - 1);
            len += more;
            if let Some(at) = bytes[from..len].windows(end.len()).position(|part| part == end) {
                bytes.truncate(from + at);
                return Ok(bytes);
            }
        }
        Err(ErrorKind::InvalidData.into())
    }

    /// Closes the stream so that the client gets everything: with unread bytes the system would
    /// reset the connection, and throw away the reply.
    pub fn close(mut self, limit: usize) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut rest = vec![0; limit];
        while let Ok(1..) = self.read(&mut rest) {}
    }

    fn remaining(&self) -> io::Result<Option<Duration>> {
        let elapsed = Duration::from_nanos(self.clock.now());
        match self.time.checked_sub(elapsed).filter(|remaining| !remaining.is_zero()) {
            Some(remaining) => Ok(Some(remaining)),
            None => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl Read for TimedStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.remaining()?)?;
        self.stream.read(into)
    }
}

impl Write for TimedStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.remaining()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
