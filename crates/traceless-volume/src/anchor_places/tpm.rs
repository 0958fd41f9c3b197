//! The few commands of TPM 2.0 that a monotonic counter needs.
//!
//! They go to the kernel's resource manager, or to the socket of a software TPM.

use super::Outcome;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Tags of commands and replies, without and with an authorization.
const NO_SESSIONS: u16 = 0x8001;
const SESSIONS: u16 = 0x8002;
/// The owner's hierarchy, and authorization by a password, which is empty.
const OWNER: u32 = 0x4000_0001;
const PASSWORD: u32 = 0x4000_0009;
const SHA256: u16 = 0x000b;

const NV_DEFINE_SPACE: u32 = 0x12a;
const NV_INCREMENT: u32 = 0x134;
const NV_READ: u32 = 0x14e;
const NV_READ_PUBLIC: u32 = 0x169;

/// Attributes of an index: written and read by its own authorization, a counter, no lockout.
const AUTH_WRITE: u32 = 1 << 2;
const KIND: u32 = 0xf << 4;
const COUNTER: u32 = 1 << 4;
const AUTH_READ: u32 = 1 << 18;
const NO_LOCKOUT: u32 = 1 << 25;
/// The value is in memory, and jumps after a power cut.
const ORDERLY: u32 = 1 << 26;
const WRITTEN: u32 = 1 << 29;

/// Bytes of a counter, and of a command's or reply's head.
const COUNTER_LEN: u16 = 8;
const HEAD_LEN: usize = 10;
/// Most bytes of a reply.
const REPLY_LEN_MAX: usize = 4096;
/// Attempts while a TPM is busy, and the time between them.
const ATTEMPTS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);
/// Time for one reply of a socket. A device has limits of its own.
const REPLY_TIME: Duration = Duration::from_secs(10);

/// An open TPM.
pub(super) struct Tpm(Box<dyn TpmPort>);

trait TpmPort: Read + Write + Send {}

impl<T: Read + Write + Send> TpmPort for T {}

/// What a TPM says of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CounterState {
    /// There is no index of this number.
    Absent,
    /// A counter that was never increased.
    Unwritten,
    /// A counter with a value.
    Counting,
}

impl Tpm {
    /// Opens a device or a socket.
    pub fn open(path: &Path) -> Outcome<Self> {
        if std::fs::metadata(path)?.file_type().is_socket() {
            let socket = UnixStream::connect(path)?;
            socket.set_read_timeout(Some(REPLY_TIME))?;
            socket.set_write_timeout(Some(REPLY_TIME))?;
            return Ok(Self(Box::new(socket)));
        }
        let device: File = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self(Box::new(device)))
    }

    /// Looks whether an index is a counter that can be used.
    pub fn counter_state(&mut self, index: u32) -> Outcome<CounterState> {
        let reply = match self.run(NO_SESSIONS, NV_READ_PUBLIC, &index.to_be_bytes()) {
            Err(e) if code_of(&e).is_some_and(is_bad_handle) => return Ok(CounterState::Absent),
            other => other?,
        };
        // Size of the public area, index, algorithm of its name, attributes.
        let bytes = reply.get(8..12).ok_or_else(cut_short)?;
        let attributes = u32::from_be_bytes(bytes.try_into().expect("4 bytes"));
        let needed = AUTH_READ | AUTH_WRITE;
        let refused = |why: &str| Err(io::Error::new(io::ErrorKind::Unsupported, why));
        if attributes & KIND != COUNTER {
            return refused("the index is no counter: take another one");
        }
        if attributes & needed != needed {
            return refused("the index lacks the attributes authread and authwrite");
        }
        if attributes & ORDERLY != 0 {
            return refused("the index is orderly: such a counter jumps after a power cut");
        }
        let is_written = attributes & WRITTEN != 0;
        Ok(if is_written { CounterState::Counting } else { CounterState::Unwritten })
    }

    /// Makes a counter. The owner's hierarchy must have no password.
    pub fn define_counter(&mut self, index: u32) -> Outcome {
        let attributes = AUTH_WRITE | AUTH_READ | NO_LOCKOUT | COUNTER;
        let mut public = index.to_be_bytes().to_vec();
        public.extend(SHA256.to_be_bytes());
        public.extend(attributes.to_be_bytes());
        // No policy.
        public.extend(0_u16.to_be_bytes());
        public.extend(COUNTER_LEN.to_be_bytes());
        let mut body = OWNER.to_be_bytes().to_vec();
        body.extend(authorization());
        // An empty password of the index: users of the TPM can count on, but never back.
        body.extend(0_u16.to_be_bytes());
        body.extend((public.len() as u16).to_be_bytes());
        body.extend(public);
        self.run(SESSIONS, NV_DEFINE_SPACE, &body).map(|_| ())
    }

    /// The value of a counter.
    pub fn read_counter(&mut self, index: u32) -> Outcome<u64> {
        let mut body = of_index(index);
        body.extend(COUNTER_LEN.to_be_bytes());
        // From its first byte on.
        body.extend(0_u16.to_be_bytes());
        let reply = self.run(SESSIONS, NV_READ, &body)?;
        // Bytes of the parameters, bytes of the value, the value.
        let value = reply.get(6..14).ok_or_else(cut_short)?;
        if reply[4..6] != COUNTER_LEN.to_be_bytes() {
            return Err(cut_short());
        }
        Ok(u64::from_be_bytes(value.try_into().expect("8 bytes")))
    }

    /// Increases a counter by 1; one that was never increased gets the highest value that any
    /// counter of this TPM ever had, and 1.
    pub fn increase(&mut self, index: u32) -> Outcome {
        self.run(SESSIONS, NV_INCREMENT, &of_index(index)).map(|_| ())
    }

    /// Runs a command, and returns what follows the head of its reply.
    fn run(&mut self, tag: u16, code: u32, body: &[u8]) -> Outcome<Vec<u8>> {
        let mut command = tag.to_be_bytes().to_vec();
        command.extend(((HEAD_LEN + body.len()) as u32).to_be_bytes());
        command.extend(code.to_be_bytes());
        command.extend_from_slice(body);
        for _ in 0..ATTEMPTS_MAX {
            match self.exchange(&command) {
                Err(e) if code_of(&e).is_some_and(is_busy) => std::thread::sleep(PAUSE),
                other => return other,
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn exchange(&mut self, command: &[u8]) -> Outcome<Vec<u8>> {
        self.0.write_all(command)?;
        let mut reply = vec![0; REPLY_LEN_MAX];
        let mut have = 0;
        // A device gives a reply at once, a socket perhaps in pieces.
        let len = loop {
            let read = self.0.read(&mut reply[have..])?;
            have += read;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if have >= HEAD_LEN {
                let len = u32::from_be_bytes(reply[2..6].try_into().expect("4 bytes")) as usize;
                if !(HEAD_LEN..=REPLY_LEN_MAX).contains(&len) {
                    return Err(cut_short());
                }
                if have >= len {
                    break len;
                }
            }
        };
        let code = u32::from_be_bytes(reply[6..10].try_into().expect("4 bytes"));
        if code != 0 {
            return Err(io::Error::other(TpmRefusal(code)));
        }
        reply.truncate(len);
        Ok(reply.split_off(HEAD_LEN))
    }
}

/// A command that a TPM refused.
#[derive(Debug)]
struct TpmRefusal(u32);

impl std::fmt::Display for TpmRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the TPM refused the command with code {:#x}", self.0)
    }
}

impl std::error::Error for TpmRefusal {}

/// The code of a refusal.
fn code_of(e: &io::Error) -> Option<u32> {
    e.get_ref()?.downcast_ref::<TpmRefusal>().map(|refusal| refusal.0)
}

/// A handle that is not there, whichever it is of the command's handles.
fn is_bad_handle(code: u32) -> bool {
    code & 0xff == 0x8b
}

/// Codes of a TPM that can run the command later: retry, yielded, testing, rate of writes.
fn is_busy(code: u32) -> bool {
    matches!(code, 0x908 | 0x90a | 0x920 | 0x922)
}

/// Whether the owner's hierarchy has a password.
pub(super) fn is_wrong_password(e: &io::Error) -> bool {
    // Bad authorization, with and without a count of failures, of the first session.
    code_of(e).is_some_and(|code| matches!(code & 0xff, 0x8e | 0xa2))
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the reply of the TPM is cut short")
}

/// The handles of a command on an index that authorizes itself, and the authorization.
fn of_index(index: u32) -> Vec<u8> {
    let mut body = index.to_be_bytes().to_vec();
    body.extend(index.to_be_bytes());
    body.extend(authorization());
    body
}

/// An authorization by an empty password, behind its length.
fn authorization() -> Vec<u8> {
    let mut session = PASSWORD.to_be_bytes().to_vec();
    // No nonce, no attributes, no password.
    session.extend([0, 0, 0, 0, 0]);
    [&(session.len() as u32).to_be_bytes()[..], &session].concat()
}
