//! A connected socket, unix or TCP, shared by the thread that serves it and the registry.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recvmsg, sockopt,
};
use traceless_core::clock::{Clock, Monotonic};

/// Size of a unix socket's buffers in bytes. The system may allow less.
const UNIX_BUFFER_LEN: usize = 4 << 20;
/// Attempts to read before a thread sleeps. The rest of a payload, or the next request of a client
/// that waits for each reply, mostly comes within microseconds, and waking a thread costs more.
const EAGER_READS: usize = 32;

/// A connected socket. Clones share the socket.
///
/// Until [`Socket::be_patient`] is called, all reads and writes together have one deadline: a
/// client cannot hold its place longer by sending a byte now and then.
#[derive(Clone)]
pub(super) struct Socket(Arc<Inner>);

struct Inner {
    fd: OwnedFd,
    /// Runs since the socket was accepted.
    clock: Monotonic,
    negotiation_time: Duration,
    is_patient: AtomicBool,
}

impl Socket {
    /// Takes over a socket that was just accepted.
    ///
    /// Errors of socket options are ignored: without them the socket is slower, not wrong.
    pub fn new(fd: OwnedFd, unix: bool, negotiation_time: Duration) -> Self {
        if unix {
            let _ = sockopt::set_socket_send_buffer_size(&fd, UNIX_BUFFER_LEN);
            let _ = sockopt::set_socket_recv_buffer_size(&fd, UNIX_BUFFER_LEN);
        } else {
            // TCP's buffer sizes are not set, as the kernel chooses better ones by itself.
            let _ = sockopt::set_tcp_nodelay(&fd, true);
            let _ = sockopt::set_socket_keepalive(&fd, true);
        }
        let (clock, is_patient) = (Monotonic::start(), AtomicBool::new(false));
        Self(Arc::new(Inner { fd, clock, negotiation_time, is_patient }))
    }

    /// Ends the deadline: from now on the client may be silent as long as it likes.
    pub fn be_patient(&self) {
        self.0.is_patient.store(true, Ordering::Release);
        self.set_timeout(sockopt::Timeout::Recv, None);
        self.set_timeout(sockopt::Timeout::Send, None);
    }

    /// Whether the peer has closed the connection, or at least will send no more.
    pub fn has_hung_up(&self) -> bool {
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut polled = [PollFd::new(&self.0.fd, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut polled, Some(&now)) {
            Ok(_) => polled[0].revents().intersects(gone),
            Err(_) => false,
        }
    }

    /// Wakes a thread that waits for requests. Replies can still be sent.
    pub fn close_for_reading(&self) {
        let _ = rustix::net::shutdown(&self.0.fd, Shutdown::Read);
    }

    /// Wakes a thread that waits for this socket.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&self.0.fd, Shutdown::Both);
    }

    /// Limits the next call to the rest of the negotiation's time; an error if none is left.
    fn limit(&self, which: sockopt::Timeout) -> io::Result<()> {
        if self.0.is_patient.load(Ordering::Acquire) {
            return Ok(());
        }
        let past = Duration::from_nanos(self.0.clock.now());
        let left = self.0.negotiation_time.saturating_sub(past);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.set_timeout(which, Some(left));
        Ok(())
    }

    fn set_timeout(&self, which: sockopt::Timeout, timeout: Option<Duration>) {
        let _ = sockopt::set_socket_timeout(&self.0.fd, which, timeout);
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(into)])
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.limit(sockopt::Timeout::Recv)?;
        for _ in 0..EAGER_READS {
            let mut control = RecvAncillaryBuffer::default();
            match recvmsg(&self.0.fd, into, &mut control, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => std::thread::yield_now(),
                other => return Ok(other?.bytes),
            }
        }
        Ok(rustix::io::readv(&self.0.fd, into)?)
    }
}

impl Write for Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.limit(sockopt::Timeout::Send)?;
        // NOSIGNAL: if the peer is gone, this is an error, not a signal that ends the process.
        Ok(rustix::net::send(&self.0.fd, from, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.limit(sockopt::Timeout::Send)?;
        let mut control = SendAncillaryBuffer::default();
        let fd = self.0.fd.as_fd();
        Ok(rustix::net::sendmsg(fd, from, &mut control, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
