//! A stream with a buffer for input and a buffer for output.
//!
//! Many small requests arrive in one system call, and many small replies leave in one. A large
//! payload is read straight to its final place, behind the waiting replies. The device itself
//! writes data for the client there, so nothing is allocated or copied per request.

use std::io::{self, ErrorKind, IoSliceMut, Read, Write};

use super::protocol::{CHUNK_LEN, CHUNK_OFFSET_LEN, PAYLOAD_LEN_MAX};

/// Room for 32 requests to write 4 KiB each.
const INBOX_LEN: usize = 160 << 10;
/// Replies wait until they have this length; a reply with more data is sent at once.
const OUTBOX_LEN: usize = 256 << 10;
/// The longest head before the data of a reply.
const HEAD_LEN_MAX: usize = CHUNK_LEN + CHUNK_OFFSET_LEN;
/// The outbox never grows beyond the longest payload and its head.
const OUTBOX_LEN_MAX: usize = PAYLOAD_LEN_MAX as usize + HEAD_LEN_MAX;

pub(super) struct Wire<S> {
    stream: S,
    inbox: Box<[u8]>,
    /// Bytes that were received and not yet taken: `inbox[start..end]`.
    start: usize,
    end: usize,
    outbox: Vec<u8>,
    /// Waiting replies: `outbox[..used]`. After them is room for a payload.
    used: usize,
}

impl<S: Read + Write> Wire<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            inbox: vec![0; INBOX_LEN].into(),
            start: 0,
            end: 0,
            outbox: vec![0; OUTBOX_LEN],
            used: 0,
        }
    }

    /// The bytes that were received and not yet taken.
    pub fn received(&self) -> &[u8] {
        &self.inbox[self.start..self.end]
    }

    /// Takes the next `N` bytes; waits until they arrive.
    pub fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        while self.received().len() < N {
            self.refill()?;
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.received()[..N]);
        self.start += N;
        Ok(bytes)
    }

    /// Fills `into` with the next bytes, which have arrived.
    pub fn take_received(&mut self, into: &mut [u8]) {
        into.copy_from_slice(&self.inbox[self.start..self.start + into.len()]);
        self.start += into.len();
        assert!(self.start <= self.end, "only bytes that have arrived are taken");
    }

    /// Skips the next `len` bytes; waits until they arrive.
    pub fn skip(&mut self, len: u32) -> io::Result<()> {
        let mut left = len as usize;
        while left > 0 {
            if self.received().is_empty() {
                self.refill()?;
            }
            let step = left.min(self.received().len());
            self.start += step;
            left -= step;
        }
        Ok(())
    }

    /// Reads the next `len` bytes into the place of [`Wire::payload`].
    ///
    /// The same system call reads the bytes that follow them into the inbox.
    pub fn read_payload(&mut self, len: usize) -> io::Result<()> {
        let at = self.make_room(len)?;
        let (start, end) = (self.start, self.end);
        let mut done = len.min(end - start);
        self.outbox[at..at + done].copy_from_slice(&self.inbox[start..start + done]);
        self.start += done;
        while done < len {
            assert!(self.start == self.end, "the inbox is empty before more is read");
            let rest = &mut self.outbox[at + done..at + len];
            let rest_len = rest.len();
            let into = &mut [IoSliceMut::new(rest), IoSliceMut::new(&mut self.inbox)];
            let got = nonzero(self.stream.read_vectored(into))?;
            done += got.min(rest_len);
            (self.start, self.end) = (0, got.saturating_sub(rest_len));
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
        self.inbox.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        self.end += nonzero(self.stream.read(&mut self.inbox[self.end..]))?;
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
    fn skipping_needs_no_memory() {
        let mut wire = Wire::new(Script::new(&[0; 1000]));
        wire.skip(999).unwrap();
        assert_eq!(wire.take::<1>().unwrap(), [0]);
        assert!(wire.skip(u32::MAX).is_err());
    }
}
