//! The numbers and fixed-size messages of the NBD protocol. All integers are big-endian.

use std::io;

use rustix::io::Errno;

/// First word of the server's greeting.
pub(super) const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943; // "NBDMAGIC"
/// Second word of the greeting, and first word of every option.
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054; // "IHAVEOPT"
/// First word of every reply to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of every request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of every simple reply.
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of every chunk of a structured reply.
pub(super) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Longest option that the server reads; a longer one ends the connection.
pub(super) const OPTION_LEN_MAX: u32 = 64 << 10;
/// Longest name of an export, by the protocol.
pub(super) const NAME_LEN_MAX: u32 = 4096;
/// Longest READ and longest payload of a WRITE.
pub(super) const PAYLOAD_LEN_MAX: u32 = 32 << 20;
/// Longest text sent with an error.
pub(super) const MESSAGE_LEN_MAX: usize = 256;

pub(super) const REQUEST_LEN: usize = 28;
pub(super) const SIMPLE_REPLY_LEN: usize = 16;
pub(super) const CHUNK_LEN: usize = 20;
/// Bytes of the offset before the data in an `OFFSET_DATA` chunk.
pub(super) const CHUNK_OFFSET_LEN: usize = 8;

/// Flags of the greeting, for server and client.
pub(super) mod greeting {
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options of the negotiation.
pub(super) mod opt {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
}

/// Replies to options.
pub(super) mod rep {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    pub const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Kinds of information in the replies to INFO and GO.
pub(super) mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags.
pub(super) mod flag {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands.
pub(super) mod cmd {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
}

/// Flags of commands.
pub(super) mod cmd_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Chunks of structured replies.
pub(super) mod chunk {
    pub const FLAG_DONE: u16 = 1 << 0;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// The protocol's error numbers, which need not equal the host's.
pub(super) mod errno {
    pub const EPERM: u32 = 1;
    pub const EIO: u32 = 5;
    pub const ENOMEM: u32 = 12;
    pub const EINVAL: u32 = 22;
    pub const ENOSPC: u32 = 28;
    pub const ENOTSUP: u32 = 95;
    pub const ESHUTDOWN: u32 = 108;
}

/// A request without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub flags: u16,
    pub command: u16,
    pub cookie: [u8; 8],
    pub offset: u64,
    pub len: u32,
}

impl Request {
    /// Decodes a request. `None` if the magic is wrong: then the stream is out of step and
    /// unusable.
    pub fn decode(bytes: &[u8; REQUEST_LEN]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.bytes(8)?.try_into().ok()?,
            offset: fields.u64()?,
            len: fields.u32()?,
        })
    }

    /// Bytes that follow the request on the wire.
    pub fn payload_len(&self) -> u32 {
        if self.command == cmd::WRITE { self.len } else { 0 }
    }
}

/// Takes integers off the front of a message; `None` once it is exhausted.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.bytes(2)?.try_into().ok()?))
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.bytes(8)?.try_into().ok()?))
    }
}

/// The head of a simple reply. After a successful READ the data follows it.
pub(super) fn simple_reply(errno: u32, cookie: [u8; 8]) -> [u8; SIMPLE_REPLY_LEN] {
    let mut bytes = [0; SIMPLE_REPLY_LEN];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&errno.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie);
    bytes
}

/// The head of the only chunk of a reply, which is therefore the last one.
pub(super) fn only_chunk(kind: u16, cookie: [u8; 8], len: u32) -> [u8; CHUNK_LEN] {
    let mut bytes = [0; CHUNK_LEN];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&chunk::FLAG_DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie);
    bytes[16..].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// The protocol's number for an error of the device; EIO for an error without a number.
pub(super) fn errno_of(error: &io::Error) -> u32 {
    if let Some(errno) = Errno::from_io_error(error) {
        return match errno {
            Errno::PERM | Errno::ACCESS | Errno::ROFS => errno::EPERM,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => errno::ENOSPC,
            Errno::INVAL => errno::EINVAL,
            Errno::NOMEM => errno::ENOMEM,
            Errno::OPNOTSUPP => errno::ENOTSUP,
            Errno::SHUTDOWN => errno::ESHUTDOWN,
            _ => errno::EIO,
        };
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => errno::EPERM,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => errno::ENOSPC,
        io::ErrorKind::InvalidInput => errno::EINVAL,
        io::ErrorKind::OutOfMemory => errno::ENOMEM,
        io::ErrorKind::Unsupported => errno::ENOTSUP,
        _ => errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_wire() {
        let mut bytes = [0u8; REQUEST_LEN];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..28].copy_from_slice(&[
            0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 2, 0,
        ]);
        let request = Request::decode(&bytes).unwrap();
        assert_eq!(
            request,
            Request {
                flags: cmd_flag::FUA,
                command: cmd::WRITE,
                cookie: [1, 2, 3, 4, 5, 6, 7, 8],
                offset: 4096,
                len: 512
            }
        );
        assert_eq!(request.payload_len(), 512);
        bytes[0] ^= 1;
        assert_eq!(Request::decode(&bytes), None);
    }

    #[test]
    fn fields_end_where_the_message_ends() {
        let mut fields = Fields(&[0, 7, 1]);
        assert_eq!(fields.u16(), Some(7));
        assert_eq!(fields.u32(), None);
        assert_eq!(fields.bytes(1), Some(&[1u8][..]));
    }

    #[test]
    fn errors_of_the_host_get_the_numbers_of_the_protocol() {
        let cases = [
            (Errno::IO, errno::EIO),
            (Errno::NOSPC, errno::ENOSPC),
            (Errno::PERM, errno::EPERM),
            (Errno::ROFS, errno::EPERM),
            (Errno::INVAL, errno::EINVAL),
            (Errno::NOMEM, errno::ENOMEM),
            (Errno::SHUTDOWN, errno::ESHUTDOWN),
            (Errno::NOENT, errno::EIO),
        ];
        for (host, wire) in cases {
            assert_eq!(errno_of(&io::Error::from(host)), wire, "{host}");
        }
        assert_eq!(errno_of(&io::Error::from(io::ErrorKind::StorageFull)), errno::ENOSPC);
        assert_eq!(errno_of(&io::Error::from(io::ErrorKind::ReadOnlyFilesystem)), errno::EPERM);
        assert_eq!(errno_of(&io::Error::other("whatever")), errno::EIO);
    }
}
