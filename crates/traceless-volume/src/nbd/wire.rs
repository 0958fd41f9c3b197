//! A stream with a buffer for input and a buffer for output.
//!
//! Many small requests arrive in one system call, and many small replies leave in one. A large
//! payload is read straight to its final place, behind the waiting replies. The device itself
//! writes data for the client there, so nothing is allocated or copied per request.
//!
//! Two threads can serve one stream: each has a wire, and the inbox passes from one to the other.
//! A reply that is put or committed as a whole leaves as a whole.

use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use super::protocol::{CHUNK_LEN, CHUNK_OFFSET_LEN, PAYLOAD_LEN_MAX};

/// Room for 32 requests to write 4 KiB each.
const INBOX_LEN: usize = 160 << 10;
/// Replies wait until they have this length; a reply with more data is sent at once.
const OUTBOX_LEN: usize = 256 << 10;
/// The longest head before the data of a reply.
const HEAD_LEN_MAX: usize = CHUNK_LEN + CHUNK_OFFSET_LEN;
/// The outbox never grows beyond the longest payload and its head.
const OUTBOX_LEN_MAX: usize = PAYLOAD_LEN_MAX as usize + HEAD_LEN_MAX;

/// What carries a connection's bytes.
pub(super) trait Stream: Read + Write + Send {
    /// A second handle, with which another thread can read or write at the same time; `None` if
    /// one thread at a time can use the stream.
    fn second(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// What was received and not yet taken.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Inbox {
    fn received(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

pub(super) struct Wire<S> {
    stream: S,
    inbox: Inbox,
    outbox: Vec<u8>,
    /// Waiting replies: `outbox[..used]`. After them is room for a payload.
    used: usize,
    /// Locked while replies are sent, by either of two threads.
    sending: Arc<Mutex<()>>,
}

impl<S: Stream> Wire<S> {
    pub fn new(stream: S) -> Self {
        let inbox = Inbox { bytes: vec![0; INBOX_LEN].into(), start: 0, end: 0 };
        Self { stream, inbox, outbox: vec![0; OUTBOX_LEN], used: 0, sending: Arc::default() }
    }

    /// A wire for another thread, without an inbox; `None` if the stream serves one thread only.
    pub fn second(&self) -> Option<Self> {
        let (stream, sending) = (self.stream.second()?, self.sending.clone());
        let outbox = vec![0; OUTBOX_LEN];
        Some(Self { stream, inbox: Inbox::default(), outbox, used: 0, sending })
    }

    /// Exchanges inboxes. What is taken and received comes from the one that this wire then has.
    pub fn exchange_inbox(&mut self, inbox: &mut Inbox) {
        std::mem::swap(&mut self.inbox, inbox);
    }

    /// The bytes that were received and not yet taken.
    pub fn received(&self) -> &[u8] {
        self.inbox.received()
    }

    /// Takes the next `N` bytes; waits until they arrive.
    pub fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        while self.received().len() < N {
            self.refill()?;
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.received()[..N]);
        self.inbox.start += N;
        Ok(bytes)
    }

    /// Fills `into` with the next bytes, which have arrived.
    pub fn take_received(&mut self, into: &mut [u8]) {
        into.copy_from_slice(&self.received()[..into.len()]);
        self.inbox.start += into.len();
    }

    /// Skips the next `len` bytes; waits until they arrive.
    pub fn skip(&mut self, len: u32) -> io::Result<()> {
        let mut left = len as usize;
        while left > 0 {
            if self.received().is_empty() {
                self.refill()?;
            }
            let step = left.min(self.received().len());
            self.inbox.start += step;
            left -= step;
        }
        Ok(())
    }

    /// Reads the next `len` bytes into the place of [`Wire::payload`].
    ///
    /// The same system call reads the bytes that follow them into the inbox.
    pub fn read_payload(&mut self, len: usize) -> io::Result<()> {
        let at = self.make_room(len)?;
        let inbox = &mut self.inbox;
        let mut done = len.min(inbox.received().len());
        self.outbox[at..at + done].copy_from_slice(&inbox.received()[..done]);
        inbox.start += done;
        while done < len {
            assert!(inbox.start == inbox.end, "the inbox is empty before more is read");
            let rest = &mut self.outbox[at + done..at + len];
            let rest_len = rest.len();
            let into = &mut [IoSliceMut::new(rest), IoSliceMut::new(&mut inbox.bytes)];
            let got = nonzero(self.stream.read_vectored(into))?;
            done += got.min(rest_len);
            (inbox.start, inbox.end) = (0, got.saturating_sub(rest_len));
        }
        Ok(())
    }

    /// The last payload. Valid until the next `put`, `room` or `flush`.
    pub fn payload(&self, len: usize) -> &[u8] {
        &self.outbox[self.used..self.used + len]
    }

    /// Appends `bytes` to the waiting replies.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        self.commit(bytes.len());
        Ok(())
    }

    /// The `len` bytes after the waiting replies, which the caller may fill and commit.
    pub fn room(&mut self, len: usize) -> io::Result<&mut [u8]> {
        let at = self.make_room(len)?;
        Ok(&mut self.outbox[at..at + len])
    }

    /// Appends the first `len` bytes of the room to the waiting replies.
    pub fn commit(&mut self, len: usize) {
        self.used += len;
        assert!(self.used <= self.outbox.len(), "only what was made room for is committed");
    }

    /// Sends the waiting replies.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.used > 0 {
            let used = std::mem::take(&mut self.used);
            let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            self.stream.write_all(&self.outbox[..used])?;
            self.stream.flush()?;
        }
        Ok(())
    }

    /// Returns the stream. Fails if the client has sent more already: bytes sent in the clear must
    /// not pass for bytes sent under TLS.
    pub fn into_stream(mut self) -> io::Result<S> {
        self.flush()?;
        if self.received().is_empty() {
            Ok(self.stream)
        } else {
            Err(ErrorKind::InvalidData.into())
        }
    }

    /// The underlying stream.
    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    fn make_room(&mut self, len: usize) -> io::Result<usize> {
        assert!(len <= OUTBOX_LEN_MAX, "lengths are checked before room is made");
        if self.used + len > OUTBOX_LEN {
            self.flush()?;
        }
        let needed = self.used + len;
        if needed > self.outbox.len() {
            // The data's length is rounded up to a power of two, and the head is added.
            let grown = needed.saturating_sub(HEAD_LEN_MAX).next_power_of_two() + HEAD_LEN_MAX;
            self.outbox.resize(grown.min(OUTBOX_LEN_MAX), 0);
        }
        Ok(self.used)
    }

    fn refill(&mut self) -> io::Result<()> {
        let inbox = &mut self.inbox;
        inbox.bytes.copy_within(inbox.start..inbox.end, 0);
        (inbox.start, inbox.end) = (0, inbox.end - inbox.start);
        inbox.end += nonzero(self.stream.read(&mut inbox.bytes[inbox.end..]))?;
        Ok(())
    }
}

/// Makes the end of the stream an error, and an interrupted call a read of 0 bytes.
fn nonzero(got: io::Result<usize>) -> io::Result<usize> {
    match got {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::memory::Script;

    #[test]
    fn what_follows_a_payload_is_not_lost() {
        for payload_len in [0, 1, 5000, INBOX_LEN - 1, INBOX_LEN, INBOX_LEN + 1, 1 << 20] {
            let mut input = vec![1u8; 28];
            input.extend(std::iter::repeat_n(2, payload_len));
            input.extend([3; 28]);
            let mut wire = Wire::new(Script::new(&input));
            assert_eq!(wire.take::<28>().unwrap(), [1; 28]);
            wire.read_payload(payload_len).unwrap();
            assert!(wire.payload(payload_len).iter().all(|&byte| byte == 2));
            assert_eq!(wire.take::<28>().unwrap(), [3; 28]);
            assert_eq!(wire.take::<1>().unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn replies_of_any_length_leave_in_order() {
        let mut wire = Wire::new(Script::new(&[]));
        let mut expected = Vec::new();
        for (index, len) in [16, 200_000, 16, 300_000, 1 << 20, 16].into_iter().enumerate() {
            let reply = vec![index as u8; len];
            wire.put(&reply).unwrap();
            expected.extend(reply);
        }
        wire.flush().unwrap();
        assert!(wire.into_stream().unwrap().sent == expected);
    }

    #[test]
    fn the_longest_payload_fits_behind_waiting_replies() {
        let mut wire = Wire::new(Script::new(&[]));
        wire.put(&[9; 16]).unwrap();
        assert_eq!(wire.room(OUTBOX_LEN_MAX).unwrap().len(), OUTBOX_LEN_MAX);
        assert_eq!(wire.stream_mut().sent, [9; 16], "they were sent first");
    }

    #[test]
    fn an_inbox_passes_from_one_wire_to_another() {
        let mut wire = Wire::new(Script::new(&[1, 2, 3]));
        assert_eq!(wire.take::<1>().unwrap(), [1]);
        let mut inbox = Inbox::default();
        wire.exchange_inbox(&mut inbox);
        assert!(wire.received().is_empty());
        let mut other = Wire::new(Script::new(&[4]));
        other.exchange_inbox(&mut inbox);
        assert_eq!(other.take::<3>().unwrap(), [2, 3, 4]);
    }

    #[test]
    fn skipping_needs_no_memory() {
        let mut wire = Wire::new(Script::new(&[0; 1000]));
        wire.skip(999).unwrap();
        assert_eq!(wire.take::<1>().unwrap(), [0]);
        assert!(wire.skip(u32::MAX).is_err());
    }
}
