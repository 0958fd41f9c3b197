//! RESP as bytes: parses commands and writes replies.

use crate::error::Error;
use std::io::{self, BufRead, Write};

/// Longest line, in bytes: a length, or a command in inline form.
const LINE_LEN_MAX: u64 = 64 << 10;
/// Most words of a command.
const WORDS_MAX: usize = 1 << 20;
/// Longest word, in bytes.
const WORD_LEN_MAX: usize = 64 << 20;
/// Longest command, in bytes, including a few bytes for each word.
pub const COMMAND_LEN_MAX: usize = 256 << 20;
/// Bytes that each word counts besides its content.
pub const WORD_COST: usize = 32;

/// A command: its name and its arguments.
pub type Command = Vec<Vec<u8>>;

/// A reply to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A status word.
    Simple(&'static str),
    /// An error message.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// No value.
    Null,
    /// No replies.
    NullArray,
    /// Several replies.
    Array(Vec<Reply>),
    /// Keys and values, alternating.
    Map(Vec<Reply>),
}

/// The next command, of at most `len_max` bytes; `None` if the client has closed the connection.
/// Malformed input is the error `InvalidData`.
pub fn read(from: &mut impl BufRead, len_max: usize) -> io::Result<Option<Command>> {
    loop {
        let Some(line) = read_line(from)? else { return Ok(None) };
        if let Some(count) = line.strip_prefix(b"*") {
            let count = number(count).filter(|&count| count <= WORDS_MAX).ok_or_else(wrong)?;
            let (mut words, mut room) = (Command::new(), len_max);
            for _ in 0..count {
                let word = read_word(from, room)?;
                room = room.saturating_sub(word.len() + WORD_COST);
                words.push(word);
            }
            if !words.is_empty() {
                return Ok(Some(words));
            }
        } else {
            let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let words: Command = words.map(<[u8]>::to_vec).collect();
            if !words.is_empty() {
                return Ok(Some(words));
            }
        }
    }
}

/// The next command, if `bytes` contain all of it, and its length. Malformed input is left to
/// [`read`].
pub fn read_whole(bytes: &[u8], len_max: usize) -> Option<(Command, usize)> {
    let mut rest = bytes;
    let command = read(&mut rest, len_max).ok().flatten()?;
    Some((command, bytes.len() - rest.len()))
}

fn read_word(from: &mut impl BufRead, room: usize) -> io::Result<Vec<u8>> {
    let line = read_line(from)?.ok_or_else(wrong)?;
    let len = line.strip_prefix(b"$").and_then(number);
    let len = len.filter(|&len| len <= WORD_LEN_MAX).ok_or_else(wrong)?;
    if len + WORD_COST > room {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "Protocol error: too long"));
    }
    let mut word = Vec::new();
    // The buffer grows as bytes arrive; the announced length is not trusted.
    io::Read::read_to_end(&mut io::Read::take(&mut *from, len as u64 + 2), &mut word)?;
    if word.len() != len + 2 || !word.ends_with(b"\r\n") {
        return Err(wrong());
    }
    word.truncate(len);
    Ok(word)
}

fn read_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    io::BufRead::read_until(&mut io::Read::take(from, LINE_LEN_MAX), b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(wrong());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some(line))
}

fn number(digits: &[u8]) -> Option<usize> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "Protocol error")
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        // Clients repeat a command that is answered with TRYAGAIN.
        let code = if error.is_passing() { "TRYAGAIN" } else { "ERR" };
        Self::Error(format!("{code} {error}"))
    }
}

impl Reply {
    /// The reply with a number of things.
    pub fn count(things: usize) -> Self {
        Self::Integer(i64::try_from(things).unwrap_or(i64::MAX))
    }

    /// Bytes of the values in the reply.
    pub fn len(&self) -> usize {
        match self {
            Self::Bulk(bytes) => bytes.len(),
            Self::Array(replies) | Self::Map(replies) => replies.iter().map(Self::len).sum(),
            _ => 0,
        }
    }

    /// Writes the reply for a client of version 2 or 3 of the protocol.
    pub fn write(&self, version: u8, to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Simple(word) => write!(to, "+{word}\r\n"),
            Self::Error(what) => write!(to, "-{}\r\n", what.replace(['\r', '\n'], " ")),
            Self::Integer(number) => write!(to, ":{number}\r\n"),
            Self::Bulk(bytes) => {
                write!(to, "${}\r\n", bytes.len())?;
                to.write_all(bytes)?;
                to.write_all(b"\r\n")
            }
            Self::Null | Self::NullArray if version == 3 => to.write_all(b"_\r\n"),
            Self::Null => to.write_all(b"$-1\r\n"),
            Self::NullArray => to.write_all(b"*-1\r\n"),
            Self::Map(pairs) if version == 3 => {
                write!(to, "%{}\r\n", pairs.len() / 2)?;
                pairs.iter().try_for_each(|reply| reply.write(version, to))
            }
            Self::Array(replies) | Self::Map(replies) => {
                write!(to, "*{}\r\n", replies.len())?;
                replies.iter().try_for_each(|reply| reply.write(version, to))
            }
        }
    }
}

/// The reply to misplaced words.
pub fn syntax() -> Reply {
    Reply::Error("ERR syntax error".to_owned())
}

/// Parses a number.
pub fn parse(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// Parses a number that may be negative.
pub fn parse_signed(digits: &[u8]) -> Option<i64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(mut bytes: &[u8]) -> io::Result<Vec<Command>> {
        let mut commands = Vec::new();
        while let Some(command) = read(&mut bytes, 1 << 20)? {
            commands.push(command);
        }
        Ok(commands)
    }

    #[test]
    fn commands_parse_in_both_forms() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n\r\nPING\r\n*0\r\nSET k  v\n";
        let commands = read_all(bytes).unwrap();
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Command>();
        assert_eq!(
            commands,
            [words(&[b"GET", b"a\r\n"]), words(&[b"PING"]), words(&[b"SET", b"k", b"v"])]
        );
    }

    #[test]
    fn malformed_commands_are_refused() {
        for bytes in [
            &b"*2\r\n$3\r\nGET\r\n"[..],
            b"*x\r\n",
            b"*-1\r\n",
            b"*99999999\r\n",
            b"*1\r\n$99999999999\r\n",
            b"*1\r\n$3\r\nab",
            b"*1\r\n$1\r\nabc\r\n",
            b"*1\r\nGET\r\n",
            b"PING",
        ] {
            let error = read_all(bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
        assert!(read_all(&vec![b'a'; 1 << 17]).is_err());
        let two = b"*2\r\n$3\r\nGET\r\n$100\r\n".iter().chain(&[b'x'; 100]).chain(b"\r\n");
        let two: Vec<u8> = two.copied().collect();
        assert!(read(&mut &two[..], 167).unwrap().is_some());
        assert!(read(&mut &two[..], 166).is_err(), "a word more than there is room for");
    }

    #[test]
    fn replies_differ_by_version() {
        let map = Reply::Map(vec![Reply::Bulk(b"a".to_vec()), Reply::Null]);
        let written = |version| {
            let mut bytes = Vec::new();
            map.write(version, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(written(2), b"*2\r\n$1\r\na\r\n$-1\r\n");
        assert_eq!(written(3), b"%1\r\n$1\r\na\r\n_\r\n");
    }
}
