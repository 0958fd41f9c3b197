//! The transmission phase: requests in, replies out in the same order. Short reads and writes that
//! have arrived together are executed together.

use std::io::{self, Read, Write};
use std::sync::LazyLock;

use super::gate::Gate;
use super::handshake::ExportInfo;
use super::protocol::{
    CHUNK_LEN, CHUNK_OFFSET_LEN, MESSAGE_LEN_MAX, PAYLOAD_LEN_MAX, REQUEST_LEN, Request,
    SIMPLE_REPLY_LEN, chunk, cmd, cmd_flag, errno, errno_of, only_chunk, simple_reply,
};
use super::request_group::RequestGroup;
use super::wire::Wire;
use crate::device::Device;

/// Most replies that wait to be sent, even if more requests have arrived: with a slow device the
/// first reply must not wait for the last.
const REPLIES_MAX: usize = 8;
/// A `WRITE_ZEROES` is split at multiples of this length.
const ZEROES_LEN: u64 = 1 << 20;
static ZEROES: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![0; ZEROES_LEN as usize].into());

/// Serves requests until the client disconnects, the gate is shut, or the stream fails.
pub(super) fn serve<S: Read + Write>(
    wire: &mut Wire<S>,
    device: &dyn Device,
    gate: &Gate,
    structured: bool,
) -> io::Result<()> {
    let export = ExportInfo::of(device);
    let group = RequestGroup::default();
    let mut transmission = Transmission { wire, device, gate, structured, export, group };
    let end = transmission.run();
    // Also after an error, requests that were executed get their replies if possible.
    end.and(transmission.wire.flush())
}

struct Transmission<'a, S> {
    wire: &'a mut Wire<S>,
    device: &'a dyn Device,
    gate: &'a Gate,
    structured: bool,
    export: ExportInfo,
    group: RequestGroup,
}

/// Why a request was refused: the protocol's error number, and a message.
struct Refusal {
    errno: u32,
    message: String,
}

impl<S: Read + Write> Transmission<'_, S> {
    fn run(&mut self) -> io::Result<()> {
        let mut waiting = 0;
        loop {
            if waiting == REPLIES_MAX || !self.is_request_buffered() {
                self.wire.flush()?;
                waiting = 0;
            }
            let Some(request) = Request::decode(&self.wire.take()?) else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a request was expected"));
            };
            if request.command == cmd::DISC {
                return Ok(());
            }
            self.group.clear();
            let is_followed = self.is_request_buffered_behind(request.payload_len() as usize);
            if is_followed && self.is_next_of_group(&request) {
                self.answer_together(request)?;
                waiting = REPLIES_MAX;
            } else {
                self.answer(&request)?;
                waiting += 1;
            }
        }
    }

    /// Whether a whole request has arrived already.
    fn is_request_buffered(&self) -> bool {
        self.is_request_buffered_behind(0)
    }

    /// Whether so many bytes and a whole request behind them have arrived already.
    fn is_request_buffered_behind(&self, skipped: usize) -> bool {
        let received = self.wire.received().get(skipped..);
        let Some((head, rest)) = received.and_then(<[u8]>::split_first_chunk::<REQUEST_LEN>) else {
            return false;
        };
        Request::decode(head).is_some_and(|next| rest.len() >= next.payload_len() as usize)
    }

    /// Whether the next request of the group can be this one, if it has arrived.
    fn is_next_of_group(&self, request: &Request) -> bool {
        self.check(request).is_ok() && self.group.takes(request)
    }

    /// Executes a request together with the ones that have arrived behind it.
    fn answer_together(&mut self, first: Request) -> io::Result<()> {
        let mut next = first;
        loop {
            let is_write = next.command == cmd::WRITE;
            let bytes = self.group.add(next);
            if is_write {
                self.wire.take_received(bytes);
            }
            if !self.is_request_buffered() {
                break;
            }
            let head = self.wire.received().first_chunk().and_then(Request::decode);
            match head.filter(|request| self.is_next_of_group(request)) {
                Some(request) => next = request,
                None => break,
            }
            self.wire.take::<REQUEST_LEN>()?;
        }
        let mut group = std::mem::take(&mut self.group);
        let replied = self.execute(&mut group);
        self.group = group;
        replied
    }

    fn execute(&mut self, group: &mut RequestGroup) -> io::Result<()> {
        let turn = self.gate.enter()?;
        let outcomes = group.execute(self.device);
        // A client that takes no replies must not keep a newcomer waiting.
        drop(turn);
        for (request, outcome) in outcomes {
            match outcome {
                Ok(data) if request.command == cmd::READ => {
                    let head = self.data_head_len();
                    let room = self.wire.room(head + data.len())?;
                    room[head..].copy_from_slice(data);
                    self.commit_data(request)?;
                }
                Ok(_) => self.settle(request, Ok(()))?,
                Err(error) => self.refuse(request, &Refusal::from(&error))?,
            }
        }
        Ok(())
    }

    /// Executes a request. Fails only if the connection cannot continue.
    fn answer(&mut self, request: &Request) -> io::Result<()> {
        if let Err(refusal) = self.check(request) {
            self.wire.skip(request.payload_len())?;
            return self.refuse(request, &refusal);
        }
        match request.command {
            cmd::READ => self.read(request),
            cmd::WRITE => self.write(request),
            cmd::TRIM | cmd::WRITE_ZEROES => self.write_zeroes(request),
            _ => self.flush(request),
        }
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let df = if self.structured { cmd_flag::DF } else { 0 };
        let (writes, flags) = match request.command {
            cmd::READ => (false, df),
            cmd::WRITE => (true, 0),
            cmd::TRIM if self.export.keeps_discards => (true, 0),
            cmd::WRITE_ZEROES => (true, cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO),
            cmd::FLUSH => return Ok(()),
            _ => return Err(Refusal::new(errno::EINVAL, "no such command is advertised")),
        };
        if request.flags & !(flags | cmd_flag::FUA) != 0 {
            return Err(Refusal::new(errno::EINVAL, "no such flag is advertised"));
        }
        if writes && self.export.read_only {
            return Err(Refusal::new(errno::EPERM, "the volume is open for reading only"));
        }
        if request.flags & cmd_flag::FAST_ZERO != 0 && !self.export.keeps_discards {
            return Err(Refusal::new(errno::ENOTSUP, "zeros are written like other data"));
        }
        let carries_data = !matches!(request.command, cmd::TRIM | cmd::WRITE_ZEROES);
        if carries_data && request.len > PAYLOAD_LEN_MAX {
            return Err(Refusal::new(errno::EINVAL, "the request is longer than 32 MiB"));
        }
        let end = request.offset.checked_add(u64::from(request.len));
        if end.is_none_or(|end| end > self.export.len) {
            let errno = if writes { errno::ENOSPC } else { errno::EINVAL };
            return Err(Refusal::new(errno, "the request goes beyond the end of the volume"));
        }
        Ok(())
    }

    fn read(&mut self, request: &Request) -> io::Result<()> {
        let len = request.len as usize;
        if len == 0 {
            return self.done(request, chunk::NONE); // Empty chunks of data are not allowed.
        }
        let head = self.data_head_len();
        let room = self.wire.room(head + len)?;
        let turn = self.gate.enter()?;
        let result = self.device.read(request.offset, &mut room[head..]);
        drop(turn);
        match result {
            Ok(()) => self.commit_data(request),
            Err(error) => self.refuse(request, &Refusal::from(&error)),
        }
    }

    /// Bytes of a reply before its data.
    fn data_head_len(&self) -> usize {
        if self.structured { CHUNK_LEN + CHUNK_OFFSET_LEN } else { SIMPLE_REPLY_LEN }
    }

    /// Completes a reply with its data in the wire's room, behind the head.
    fn commit_data(&mut self, request: &Request) -> io::Result<()> {
        let (head, len) = (self.data_head_len(), request.len as usize);
        let room = self.wire.room(head + len)?;
        if self.structured {
            let chunk_len = request.len + CHUNK_OFFSET_LEN as u32;
            let bytes = only_chunk(chunk::OFFSET_DATA, request.cookie, chunk_len);
            room[..CHUNK_LEN].copy_from_slice(&bytes);
            room[CHUNK_LEN..head].copy_from_slice(&request.offset.to_be_bytes());
        } else {
            room[..head].copy_from_slice(&simple_reply(0, request.cookie));
        }
        self.wire.commit(head + len);
        Ok(())
    }

    fn write(&mut self, request: &Request) -> io::Result<()> {
        let len = request.len as usize;
        self.wire.read_payload(len)?;
        let turn = self.gate.enter()?;
        let mut result = Ok(());
        if len > 0 {
            result = self.device.write(request.offset, self.wire.payload(len));
        }
        let result = result.and_then(|()| self.flush_if_requested(request));
        drop(turn);
        self.settle(request, result)
    }

    /// A discard, or else an ordinary write: the store must not reveal which blocks are zeros.
    fn write_zeroes(&mut self, request: &Request) -> io::Result<()> {
        if self.export.keeps_discards {
            let turn = self.gate.enter()?;
            let result = self.device.discard(request.offset, u64::from(request.len));
            let result = result.and_then(|()| self.flush_if_requested(request));
            drop(turn);
            return self.settle(request, result);
        }
        let mut at = request.offset;
        let end = at + u64::from(request.len);
        let mut result = Ok(());
        while at < end && result.is_ok() {
            let len = (ZEROES_LEN - at % ZEROES_LEN).min(end - at);
            // Enters the gate anew for each piece, so that a newcomer that fences waits for one
            // piece only.
            let _turn = self.gate.enter()?;
            result = self.device.write(at, &ZEROES[..len as usize]);
            at += len;
        }
        let turn = self.gate.enter()?;
        let result = result.and_then(|()| self.flush_if_requested(request));
        drop(turn);
        self.settle(request, result)
    }

    fn flush(&mut self, request: &Request) -> io::Result<()> {
        let turn = self.gate.enter()?;
        let result = self.device.flush();
        drop(turn);
        self.settle(request, result)
    }

    fn flush_if_requested(&self, request: &Request) -> io::Result<()> {
        if request.flags & cmd_flag::FUA != 0 { self.device.flush() } else { Ok(()) }
    }

    fn settle(&mut self, request: &Request, result: io::Result<()>) -> io::Result<()> {
        match result {
            // Without data a simple reply is always allowed, and it is shorter.
            Ok(()) => self.wire.put(&simple_reply(0, request.cookie)),
            Err(error) => self.refuse(request, &Refusal::from(&error)),
        }
    }

    fn done(&mut self, request: &Request, kind: u16) -> io::Result<()> {
        if self.structured {
            self.wire.put(&only_chunk(kind, request.cookie, 0))
        } else {
            self.wire.put(&simple_reply(0, request.cookie))
        }
    }

    fn refuse(&mut self, request: &Request, refusal: &Refusal) -> io::Result<()> {
        if !self.structured {
            return self.wire.put(&simple_reply(refusal.errno, request.cookie));
        }
        let mut text_len = refusal.message.len().min(MESSAGE_LEN_MAX);
        while !refusal.message.is_char_boundary(text_len) {
            text_len -= 1;
        }
        let text = &refusal.message.as_bytes()[..text_len];
        let chunk_len = 4 + 2 + text.len() as u32;
        self.wire.put(&only_chunk(chunk::ERROR, request.cookie, chunk_len))?;
        self.wire.put(&refusal.errno.to_be_bytes())?;
        self.wire.put(&(text.len() as u16).to_be_bytes())?;
        self.wire.put(text)
    }
}

impl Refusal {
    fn new(errno: u32, message: &str) -> Self {
        Self { errno, message: message.to_owned() }
    }
}

impl From<&io::Error> for Refusal {
    fn from(error: &io::Error) -> Self {
        Self { errno: errno_of(error), message: error.to_string() }
    }
}
