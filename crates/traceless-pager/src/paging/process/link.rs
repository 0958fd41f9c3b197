//! Messages between a program and the process that pages it, some of them with files.

use crate::paging::error::{Error, Result};
use crate::paging::files::OwnFile;
use core::mem::MaybeUninit;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};
use std::time::Duration;

/// Files with a message, at most.
const FILES_MAX: usize = 3;

/// Bytes of a message: what it is, two numbers, and a text.
const HEAD_LEN: usize = 24;
const LEN_MAX: usize = HEAD_LEN + 1000;

/// How long nobody is let in when there is no room.
const FULL: Duration = Duration::from_millis(10);

/// What a message says. The numbers and files that come with it stand in brackets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageKind {
    /// Here is your memory (its file, and what ends you when we end).
    Memory,
    /// I have it here [address, whether it is locked] (the userfaultfd).
    Registered,
    /// These pages are zeros from now on [first, how many].
    Discard,
    /// These pages will be zeros in copies of the program [first, how many].
    Wipe,
    /// They will be what they are in the program [first, how many].
    Keep,
    /// This thread may run where it wants [its number, whether for good].
    LetGo,
    /// Prepare a copy of the program.
    Fork,
    /// The copy's memory (its file, its link, what ends it when we end).
    Copy,
    /// Answer no fault.
    Freeze,
    /// Nobody has my memory mapped: fill the copy's.
    Fill,
    /// My memory is back: go on.
    Thaw,
    /// I am the copy.
    Hello,
    /// You are served (the userfaultfd, if it is a copy's).
    Served,
    /// It is done.
    Done,
    /// It is not done, and why.
    Refused,
    /// Programs find us under this name.
    Ready,
    /// This program has ended [its process].
    Ended,
    /// I end, and programs that still run go on.
    Bye,
    /// This program was ended: it could not be paged any more [its process].
    Failed,
}

impl MessageKind {
    const ALL: [Self; 19] = [
        Self::Memory,
        Self::Registered,
        Self::Discard,
        Self::Wipe,
        Self::Keep,
        Self::LetGo,
        Self::Fork,
        Self::Copy,
        Self::Freeze,
        Self::Fill,
        Self::Thaw,
        Self::Hello,
        Self::Served,
        Self::Done,
        Self::Refused,
        Self::Ready,
        Self::Ended,
        Self::Bye,
        Self::Failed,
    ];
}

/// A message that came.
pub struct LinkMessage {
    /// What it says.
    pub what: MessageKind,
    /// With these numbers.
    pub numbers: [u64; 2],
    /// And this text.
    pub text: String,
    files: [Option<OwnedFd>; FILES_MAX],
    /// The process that sent it, where that was asked for.
    pub sender: Option<u32>,
}

impl LinkMessage {
    /// One of its files.
    pub fn file(&mut self, nth: usize) -> Result<OwnedFd> {
        self.files[nth].take().ok_or(NONSENSE)
    }

    /// The same, if it is what was expected.
    pub fn expect(self, what: MessageKind) -> Result<Self> {
        match self.what {
            is if is == what => Ok(self),
            MessageKind::Refused => Err(Error::Refused(self.text)),
            _ => Err(NONSENSE),
        }
    }
}

/// The other side does not say what it should.
const NONSENSE: Error = Error::Configuration("program and pager do not understand each other");

/// One side.
pub struct Link(OwnFile);

impl Link {
    /// Both sides.
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

    /// To the pager that listens under that name.
    pub fn to(name: &str) -> Result<Self> {
        let failed = |e| Error::os("the pager cannot be reached", e);
        let socket = socket().map_err(failed)?;
        rustix::net::connect(&socket, &address(name).map_err(failed)?).map_err(failed)?;
        Ok(Self(OwnFile::out_of_the_way(socket)))
    }

    /// Sends one message.
    pub fn send(
        &self,
        what: MessageKind,
        numbers: [u64; 2],
        text: &str,
        files: &[BorrowedFd],
    ) -> Result {
        let mut head = [0; HEAD_LEN];
        let code = MessageKind::ALL.iter().position(|&one| one == what).expect("all are there");
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
        let mut received = read(bytes.get(..len).ok_or(NONSENSE)?)?;
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(files) => {
                    for (place, file) in received.files.iter_mut().zip(files) {
                        *place = Some(file);
                    }
                }
                RecvAncillaryMessage::ScmCredentials(who) => {
                    received.sender = Some(who.pid.as_raw_nonzero().get() as u32);
                }
                _ => {}
            }
        }
        Ok(Some(received))
    }

    /// Sends a message and waits for the answer, which must be `answer`.
    pub fn ask(
        &self,
        what: MessageKind,
        numbers: [u64; 2],
        answer: MessageKind,
    ) -> Result<LinkMessage> {
        self.send(what, numbers, "", &[])?;
        self.receive()?.ok_or(GONE)?.expect(answer)
    }

    /// Messages that come here name their sender.
    pub fn names_senders(&self) -> Result {
        rustix::net::sockopt::set_socket_passcred(&self.0, true)
            .map_err(|e| Error::os("senders are not named", e))
    }
}

/// Nobody answers.
pub const GONE: Error = Error::Configuration("the pager has ended");

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
    let (head, text) = bytes.split_at_checked(HEAD_LEN).ok_or(NONSENSE)?;
    let number = |nth: usize| {
        let part = head[8 * nth..].first_chunk().expect("eight bytes each");
        u64::from_le_bytes(*part)
    };
    let what = *MessageKind::ALL.get(number(0) as usize).ok_or(NONSENSE)?;
    let text = String::from_utf8_lossy(text).into_owned();
    let files = [const { None }; FILES_MAX];
    Ok(LinkMessage { what, numbers: [number(1), number(2)], text, files, sender: None })
}

/// Where programs come in.
pub struct Listener(OwnedFd);

impl Listener {
    /// Under this name, which nobody else has.
    #[expect(clippy::disallowed_methods, reason = "a unix socket, which no network reaches")]
    pub fn new(name: &str) -> Result<Self> {
        let failed = |e| Error::os("the pager cannot listen", e);
        let socket = socket().map_err(failed)?;
        rustix::net::bind(&socket, &address(name).map_err(failed)?).map_err(failed)?;
        rustix::net::listen(&socket, 128).map_err(failed)?;
        Ok(Self(socket))
    }

    /// The next program, and its process. `None` if it is not ours to serve, or must wait for
    /// `others` that are: when one of them ends there is room.
    pub fn accept(&self, others: bool) -> Result<Option<(Link, u32)>> {
        let failed = |e| Error::os("no program can come in", e);
        let socket = match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC) {
            Err(Errno::CONNABORTED | Errno::INTR) => return Ok(None),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) if others => {
                std::thread::sleep(FULL);
                return Ok(None);
            }
            other => other.map_err(failed)?,
        };
        let who = rustix::net::sockopt::socket_peercred(&socket).map_err(failed)?;
        let own = rustix::process::geteuid();
        let is_ours = who.uid == own || own.is_root();
        Ok(is_ours.then(|| (OwnFile::from(socket).into(), who.pid.as_raw_nonzero().get() as u32)))
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

/// A name that is not a file's: it goes when nobody listens.
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
        let mut came = other.receive().unwrap().unwrap().expect(MessageKind::Discard).unwrap();
        assert_eq!((came.numbers, came.text.as_str()), ([7, u64::MAX], "text"));
        assert_eq!(came.sender, Some(std::process::id()));
        let copy = Link::from(OwnFile::from(came.file(0).unwrap()));
        assert!(came.file(0).is_err() && came.file(1).is_err());
        copy.send(MessageKind::Refused, [0; 2], "why", &[]).unwrap();
        let refused = other.receive().unwrap().unwrap().expect(MessageKind::Done);
        assert!(matches!(refused, Err(Error::Refused(why)) if why == "why"));
        drop((one, copy));
        assert!(other.receive().unwrap().is_none(), "it has ended");
    }

    #[test]
    fn nonsense_is_an_error() {
        let (one, other) = Link::pair().unwrap();
        for bytes in [&[1; 3][..], &[0xff; HEAD_LEN]] {
            rustix::io::write(&one, bytes).unwrap();
            assert!(other.receive().is_err());
        }
    }
}
