//! A TCP stream with one deadline for all reads and writes, until the deadline is lifted.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use traceless_core::clock::{Clock, Monotonic};

use crate::connection_places::Cutter;

/// A stream with reads and writes that fail once a deadline has passed, however short each single
/// wait was. After the deadline is lifted they wait without limit.
pub struct DeadlineStream {
    stream: Arc<TcpStream>,
    deadline: Deadline,
}

/// When a stream's reads and writes begin to fail. Clones belong to the same stream.
#[derive(Clone)]
pub struct Deadline(Arc<DeadlineState>);

struct DeadlineState {
    clock: Monotonic,
    limit: Duration,
    is_lifted: AtomicBool,
}

impl DeadlineStream {
    /// A stream with a deadline, `limit` from now.
    pub fn new(stream: Arc<TcpStream>, limit: Duration) -> Self {
        let (clock, is_lifted) = (Monotonic::start(), AtomicBool::new(false));
        Self { stream, deadline: Deadline(Arc::new(DeadlineState { clock, limit, is_lifted })) }
    }

    /// The handle that lifts the deadline.
    pub fn deadline(&self) -> Deadline {
        self.deadline.clone()
    }

    /// How long the next call may wait; an error if the deadline has passed.
    fn left(&self) -> io::Result<Option<Duration>> {
        let DeadlineState { clock, limit, is_lifted } = &*self.deadline.0;
        if is_lifted.load(Ordering::Acquire) {
            return Ok(None);
        }
        let left = limit.saturating_sub(Duration::from_nanos(clock.now()));
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Deadline {
    /// Removes the deadline. A call that already waits still ends at the deadline.
    pub fn lift(&self, stream: &TcpStream) -> io::Result<()> {
        self.0.is_lifted.store(true, Ordering::Release);
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(left) = self.left()? {
            self.stream.set_read_timeout(Some(left))?;
        }
        (&*self.stream).read(into)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        if let Some(left) = self.left()? {
            self.stream.set_write_timeout(Some(left))?;
        }
        (&*self.stream).write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.stream).flush()
    }
}

impl Cutter for Arc<TcpStream> {
    fn cut(&self) {
        // An error means that the client has closed the connection already.
        let _ = self.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_sys::listen::{Clients, bind};

    #[test]
    fn slow_bytes_do_not_extend_the_deadline() {
        let listener = bind("127.0.0.1:0", Clients::Authenticated).unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        let own = Arc::new(near);
        let mut near = DeadlineStream::new(own.clone(), Duration::from_millis(300));
        let deadline = near.deadline();
        let sender = std::thread::spawn(move || {
            while far.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let mut bytes = 0;
        while near.read(&mut [0; 1]).is_ok() {
            bytes += 1;
        }
        assert!((1..1000).contains(&bytes), "{bytes}");
        deadline.lift(&own).unwrap();
        assert_eq!(near.read(&mut [0; 1]).unwrap(), 1);
        assert_eq!(near.write(b"y").unwrap(), 1);
        drop((near, own));
        sender.join().unwrap();
    }
}
