//! Messages between a program and the process that pages it, some of them with files.

use crate::paging::error::{Error, Result};
use crate::paging::kernel::own_files::OwnFile;
use core::mem::MaybeUninit;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};
use std::time::Duration;

/// The most files that a message has.
const FILES_MAX: usize = 3;

/// Bytes of a message: its kind, two numbers, and a text.
const HEAD_LEN: usize = 24;
const LEN_MAX: usize = HEAD_LEN + 1000;

/// How long to accept no program after there was no room for one.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// The kinds of messages. Square brackets hold the message's numbers, round ones its files. The
/// owner is the process that started the pager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageKind {
    /// To a program: its memory (the file, and a pipe that ends the program when the pager ends).
    Memory,
    /// From a program: the memory is mapped [address, whether it is locked] (the userfaultfd).
    Registered,
    /// From a program: these pages are zeros from now on [first, how many].
    Discard,
    /// From a program: these pages will be zeros in its copies [first, how many].
    Wipe,
    /// From a program: these pages will keep their contents in its copies [first, how many].
    Keep,
    /// From a program: unpin this thread [its number, whether for good].
    Unpin,
    /// From a program: prepare a copy of it.
    Fork,
    /// To a program: memory of the copy (the file, the link, and a pipe that ends the copy).
    Copy,
    /// From a program that forks: answer no fault.
    Freeze,
    /// From a program that forks: its own memory is not mapped now, so fill the copy's.
    Fill,
    /// From a program that has forked: its memory is mapped again, so go on.
    Thaw,
    /// From a copy: it runs.
    CopyStarted,
    /// To a program, or a copy: it is served (for a copy: the userfaultfd).
    Served,
    /// The answer that a request is done.
    Done,
    /// The answer that a request is refused; the text says why.
    Refused,
    /// To the owner: programs can connect, under the name in the text.
    Ready,
    /// From the owner: this program has ended [its process].
    Ended,
    /// From the owner: it ends, and programs that still run go on.
    OwnerLeaves,
    /// To the owner: this program could not be paged any more, and was ended [its process].
    Failed,
}

impl MessageKind {
    const ALL: [Self; 19] = [
        Self::Memory,
        Self::Registered,
        Self::Discard,
        Self::Wipe,
        Self::Keep,
        Self::Unpin,
        Self::Fork,
        Self::Copy,
        Self::Freeze,
        Self::Fill,
        Self::Thaw,
        Self::CopyStarted,
        Self::Served,
        Self::Done,
        Self::Refused,
        Self::Ready,
        Self::Ended,
        Self::OwnerLeaves,
        Self::Failed,
    ];
}

/// A message that was received.
pub struct LinkMessage {
    /// Its kind.
    pub kind: MessageKind,
    /// Its numbers.
    pub numbers: [u64; 2],
    /// Its text.
    pub text: String,
    files: [Option<OwnedFd>; FILES_MAX],
    /// The process that sent it, if the link [names senders](Link::names_senders).
    pub sender: Option<u32>,
}

impl LinkMessage {
    /// Takes one of the files.
    pub fn file(&mut self, nth: usize) -> Result<OwnedFd> {
        self.files[nth].take().ok_or(UNEXPECTED)
    }

    /// The message itself, if it is of the expected kind.
    pub fn expect(self, kind: MessageKind) -> Result<Self> {
        match self.kind {
            is if is == kind => Ok(self),
            MessageKind::Refused => Err(Error::Refused(self.text)),
            _ => Err(UNEXPECTED),
        }
    }
}

/// The other side sent a message that does not fit.
const UNEXPECTED: Error = Error::Configuration("program and pager do not understand each other");

/// One side of a connection.
pub struct Link(OwnFile);

impl Link {
    /// Both sides of a new connection.
    pub fn pair() -> Result<(Self, Self)> {
        let (one, other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|e| Error::os("no socket", e))?;
        Ok((Self(one.into()), Self(other.into())))
    }

    /// Connects to the pager that listens under that name.
    pub fn to(name: &str) -> Result<Self> {
        let failed = |e| Error::os("the pager cannot be reached", e);
        let socket = socket().map_err(failed)?;
        rustix::net::connect(&socket, &address(name).map_err(failed)?).map_err(failed)?;
        Ok(Self(OwnFile::at_high_number(socket)))
    }

    /// Sends one message.
    pub fn send(
        &self,
        kind: MessageKind,
        numbers: [u64; 2],
        text: &str,
        files: &[BorrowedFd],
    ) -> Result {
        let mut head = [0; HEAD_LEN];
        let code = MessageKind::ALL.iter().position(|&one| one == kind).expect("all are there");
        for (part, number) in head.chunks_exact_mut(8).zip([code as u64, numbers[0], numbers[1]]) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        let text = &text.as_bytes()[..text.len().min(LEN_MAX - HEAD_LEN)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)), "there is room");
        }
        let parts = [IoSlice::new(&head), IoSlice::new(text)];
        loop {
            match sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::os("the pager's link is broken", e)),
            }
        }
    }

    /// Waits for a message. `None` when the other side has ended.
    pub fn receive(&self) -> Result<Option<LinkMessage>> {
        let mut bytes = [0; LEN_MAX];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let len = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(message) => break message.bytes,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(None),
                Err(e) => return Err(Error::os("the pager's link is broken", e)),
            }
        };
        if len == 0 {
            return Ok(None);
        }
        let mut received = read(bytes.get(..len).ok_or(UNEXPECTED)?)?;
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(files) => {
                    for (place, file) in received.files.iter_mut().zip(files) {
                        *place = Some(file);
                    }
                }
                RecvAncillaryMessage::ScmCredentials(peer) => {
                    received.sender = Some(peer.pid.as_raw_nonzero().get() as u32);
                }
                _ => {}
            }
        }
        Ok(Some(received))
    }

    /// Sends a message and waits for the answer, which must be `answer`.
    pub fn request(
        &self,
        kind: MessageKind,
        numbers: [u64; 2],
        answer: MessageKind,
    ) -> Result<LinkMessage> {
        self.send(kind, numbers, "", &[])?;
        self.receive()?.ok_or(DISCONNECTED)?.expect(answer)
    }

    /// Makes received messages name their sender.
    pub fn names_senders(&self) -> Result {
        rustix::net::sockopt::set_socket_passcred(&self.0, true)
            .map_err(|e| Error::os("senders are not named", e))
    }
}

/// The other side has closed the link.
pub const DISCONNECTED: Error = Error::Configuration("the pager has ended");

impl From<OwnFile> for Link {
    fn from(socket: OwnFile) -> Self {
        Self(socket)
    }
}

impl From<Link> for OwnedFd {
    fn from(link: Link) -> Self {
        link.0.into()
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn read(bytes: &[u8]) -> Result<LinkMessage> {
    let (head, text) = bytes.split_at_checked(HEAD_LEN).ok_or(UNEXPECTED)?;
    let number = |nth: usize| {
        let part = head[8 * nth..].first_chunk().expect("eight bytes each");
        u64::from_le_bytes(*part)
    };
    let kind = *MessageKind::ALL.get(number(0) as usize).ok_or(UNEXPECTED)?;
    let text = String::from_utf8_lossy(text).into_owned();
    let files = [const { None }; FILES_MAX];
    Ok(LinkMessage { kind, numbers: [number(1), number(2)], text, files, sender: None })
}

/// The socket that programs connect to.
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens under this name, which no other socket has.
    #[expect(clippy::disallowed_methods, reason = "a unix socket, which no network reaches")]
    pub fn new(name: &str) -> Result<Self> {
        let failed = |e| Error::os("the pager cannot listen", e);
        let socket = socket().map_err(failed)?;
        rustix::net::bind(&socket, &address(name).map_err(failed)?).map_err(failed)?;
        rustix::net::listen(&socket, 128).map_err(failed)?;
        Ok(Self(socket))
    }

    /// Accepts the next program, and returns its process. `None` if it is of another user, or must
    /// wait: with `is_serving` set, there is room again when a program that is served ends.
    pub fn accept(&self, is_serving: bool) -> Result<Option<(Link, u32)>> {
        let failed = |e| Error::os("no program can come in", e);
        let socket = match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC) {
            Err(Errno::CONNABORTED | Errno::INTR) => return Ok(None),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) if is_serving => {
                std::thread::sleep(FULL_PAUSE);
                return Ok(None);
            }
            other => other.map_err(failed)?,
        };
        let peer = rustix::net::sockopt::socket_peercred(&socket).map_err(failed)?;
        let own = rustix::process::geteuid();
        let is_ours = peer.uid == own || own.is_root();
        Ok(is_ours.then(|| (OwnFile::from(socket).into(), peer.pid.as_raw_nonzero().get() as u32)))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// An abstract name, not a file's: it vanishes when the socket is closed.
fn address(name: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_with_files_and_sender() {
        let (one, other) = Link::pair().unwrap();
        other.names_senders().unwrap();
        one.send(MessageKind::Discard, [7, u64::MAX], "text", &[one.as_fd()]).unwrap();
        let mut message = other.receive().unwrap().unwrap().expect(MessageKind::Discard).unwrap();
        assert_eq!((message.numbers, message.text.as_str()), ([7, u64::MAX], "text"));
        assert_eq!(message.sender, Some(std::process::id()));
        let copy = Link::from(OwnFile::from(message.file(0).unwrap()));
        assert!(message.file(0).is_err() && message.file(1).is_err());
        copy.send(MessageKind::Refused, [0; 2], "why", &[]).unwrap();
        let refused = other.receive().unwrap().unwrap().expect(MessageKind::Done);
        assert!(matches!(refused, Err(Error::Refused(why)) if why == "why"));
        drop((one, copy));
        assert!(other.receive().unwrap().is_none(), "it has ended");
    }

    #[test]
    fn unknown_messages_are_an_error() {
        let (one, other) = Link::pair().unwrap();
        for bytes in [&[1; 3][..], &[0xff; HEAD_LEN]] {
            rustix::io::write(&one, bytes).unwrap();
            assert!(other.receive().is_err());
        }
    }
}
