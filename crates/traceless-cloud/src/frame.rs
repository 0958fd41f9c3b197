//! Messages on a byte stream: a length of four bytes, then the message. A reply begins with a byte
//! that says whether it is an error.

use crate::codec::{LEN_LEN, Reader, Writer};
use crate::error::{Error, Result};
use std::io::{self, Read, Write};

/// How many characters of an error's text are sent at most.
const TEXT_MAX: usize = 200;

/// Sends a message that consists of parts, in one call if the stream takes it.
pub fn write(to: &mut impl Write, parts: &[&[u8]]) -> io::Result<()> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let len = u32::try_from(len).map_err(|_| io::Error::other("a message of 4 GiB"))?;
    let mut frame = Writer::with_capacity(LEN_LEN + len as usize);
    frame.u32(len);
    for part in parts {
        frame.bytes(part);
    }
    to.write_all(frame.as_bytes())?;
    to.flush()
}

/// Receives a message of at most `max` bytes, which replaces the content of `into`. Returns false
/// if the stream ends before a message begins.
pub fn read(from: &mut impl Read, max: usize, into: &mut Vec<u8>) -> io::Result<bool> {
    into.clear();
    let mut len = [0; LEN_LEN];
    let mut filled = 0;
    while filled < LEN_LEN {
        match from.read(&mut len[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > max {
        let what = format!("a message of {len} bytes, where {max} are the most");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    // Memory is allocated for bytes that arrive, not for the announced length.
    let received = from.take(len as u64).read_to_end(into)?;
    if received < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(true) }
}

/// Encodes a result as the bytes of a reply.
pub fn encode(result: Result<Vec<u8>>) -> Vec<u8> {
    match result {
        Ok(mut bytes) => {
            bytes.insert(0, DONE);
            bytes
        }
        Err(error) => encode_error(&error),
    }
}

/// Decodes a reply. An error without a code of its own becomes [`Error::Host`] with its text.
pub fn decode(reply: &[u8]) -> Result<&[u8]> {
    let mut reader = Reader::new(reply);
    Err(match reader.u8()? {
        DONE => return Ok(reader.rest()),
        TAMPERED => Error::Tampered { node: reader.u32()?, slot: reader.u32()? },
        UNAUTHENTIC => Error::Unauthentic,
        REPLAYED => Error::Replayed,
        FENCED => Error::Fenced { own: reader.u64()?, newest: reader.u64()? },
        SESSION_LOST => Error::SessionLost,
        IN_USE => Error::InUse("the host's store"),
        PROTOCOL => Error::Protocol { gateway: reader.u32()?, host: reader.u32()? },
        _ => Error::Host(String::from_utf8_lossy(reader.rest()).into_owned()),
    })
}

const DONE: u8 = 0;
const TAMPERED: u8 = 1;
const UNAUTHENTIC: u8 = 2;
const REPLAYED: u8 = 3;
const FENCED: u8 = 4;
const SESSION_LOST: u8 = 5;
const IN_USE: u8 = 6;
const PROTOCOL: u8 = 7;
const TEXT: u8 = 255;

fn encode_error(error: &Error) -> Vec<u8> {
    let mut out = Writer::default();
    match error {
        Error::Tampered { node, slot } => out.u8(TAMPERED).u32(*node).u32(*slot),
        Error::Unauthentic => out.u8(UNAUTHENTIC),
        Error::Replayed => out.u8(REPLAYED),
        Error::Fenced { own, newest } => out.u8(FENCED).u64(*own).u64(*newest),
        Error::SessionLost => out.u8(SESSION_LOST),
        Error::InUse(_) => out.u8(IN_USE),
        Error::Protocol { gateway, host } => out.u8(PROTOCOL).u32(*gateway).u32(*host),
        // A text that came from another host is passed on without a second prefix.
        Error::Host(text) => write_text(text, &mut out),
        error => write_text(&error.to_string(), &mut out),
    };
    out.into_bytes()
}

fn write_text<'a>(text: &str, out: &'a mut Writer) -> &'a mut Writer {
    let text: String = text.chars().take(TEXT_MAX).collect();
    out.u8(TEXT).bytes(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_length_limits_hold() {
        let mut stream = Vec::new();
        write(&mut stream, &[b"ab", b"", b"c"]).unwrap();
        write(&mut stream, &[]).unwrap();
        write(&mut stream, &[&[7; 100]]).unwrap();
        let (mut from, mut into) = (&stream[..], vec![9]);
        assert!(read(&mut from, 3, &mut into).unwrap() && into == b"abc");
        assert!(read(&mut from, 3, &mut into).unwrap() && into.is_empty());
        let long = read(&mut from, 99, &mut into).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidData);
        assert!(!read(&mut &[][..], 9, &mut into).unwrap(), "the end between messages");
        for cut in 1..7 {
            let torn = read(&mut &stream[..cut], 9, &mut into).unwrap_err();
            assert_eq!(torn.kind(), io::ErrorKind::UnexpectedEof, "{cut}");
        }
    }

    #[test]
    fn errors_keep_their_kind_on_the_wire() {
        assert_eq!(decode(&encode(Ok(vec![1, 2]))).unwrap(), [1, 2]);
        for error in [
            Error::Tampered { node: 3, slot: 70_000 },
            Error::Unauthentic,
            Error::Replayed,
            Error::Fenced { own: 1, newest: 1 << 40 },
            Error::SessionLost,
            Error::Protocol { gateway: 4, host: 70_000 },
        ] {
            let decoded = decode(&encode_error(&error)).unwrap_err();
            assert_eq!(format!("{decoded:?}"), format!("{error:?}"));
        }
        let decoded = decode(&encode_error(&Error::Store("x"))).unwrap_err();
        assert!(matches!(decoded, Error::Host(text) if text.ends_with('x')));
        let long = "é".repeat(400);
        assert_eq!(encode_error(&Error::Host(long)).len(), 1 + 2 * TEXT_MAX);
        assert!(decode(&[]).is_err() && decode(&[TAMPERED, 1]).is_err());
    }
}
