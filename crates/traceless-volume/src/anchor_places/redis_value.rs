//! A value of Redis or Valkey. A script compares and swaps: the server runs it as one command.

use super::Outcome;
use super::server_link::{ServerLink, unexpected};
use super::server_url::{ServerUrl, decoded};
use super::shared_place::SharedValue;
use crate::error::{Error, Result};
use std::io;

/// Sets the key to its second argument if its value is the first one, where none is empty text.
const SWAP: &[u8] = b"if (redis.call('GET', KEYS[1]) or '') == ARGV[1] then \
    redis.call('SET', KEYS[1], ARGV[2]) return 1 end return 0";
/// Most bytes of a value that is read.
const VALUE_LEN_MAX: usize = 1 << 16;

/// A value of Redis, and the connection while it works.
pub(super) struct RedisValue {
    url: ServerUrl,
    key: String,
    database: Option<u32>,
    link: Option<ServerLink>,
}

/// A reply.
enum Reply {
    Text,
    Number(i64),
    Value(Option<Vec<u8>>),
}

impl RedisValue {
    pub fn new(url: ServerUrl) -> Result<Self> {
        let refused = |why| Error::AnchorAddress { why };
        let key = decoded(&url.path[1..]).map_err(refused)?;
        if key.is_empty() {
            return Err(refused("the URL names no key: redis://HOST:PORT/KEY"));
        }
        let database = match url.options.strip_prefix("db=") {
            Some(number) => Some(number.parse().map_err(|_| refused("db= takes a number"))?),
            None if url.options.is_empty() => None,
            None => return Err(refused("the one option of such a URL is ?db=N")),
        };
        Ok(Self { url, key, database, link: None })
    }

    fn connect(&self) -> Outcome<ServerLink> {
        let mut link = ServerLink::connect(&self.url)?;
        if let Some((user, password)) = self.url.login() {
            let mut parts = vec![b"AUTH".as_slice()];
            parts.extend(Some(user.as_bytes()).filter(|user| !user.is_empty()));
            parts.push(password.as_bytes());
            ask(&mut link, &parts)?;
        }
        if let Some(number) = self.database {
            ask(&mut link, &[b"SELECT", number.to_string().as_bytes()])?;
        }
        Ok(link)
    }

    /// Runs a command. A connection on which anything failed is not used again, as a reply may
    /// still be under way.
    fn run(&mut self, parts: &[&[u8]]) -> Outcome<Reply> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.connect()?,
        };
        let reply = ask(&mut link, parts)?;
        self.link = Some(link);
        Ok(reply)
    }
}

impl SharedValue for RedisValue {
    fn name(&self) -> String {
        self.url.to_string()
    }

    fn get(&mut self) -> Outcome<Option<Vec<u8>>> {
        let key = self.key.clone();
        match self.run(&[b"GET", key.as_bytes()])? {
            Reply::Value(value) => Ok(value),
            _ => Err(unexpected("something else than a value")),
        }
    }

    fn swap(&mut self, old: Option<&[u8]>, new: &[u8]) -> Outcome<bool> {
        let key = self.key.clone();
        let command = [b"EVAL", SWAP, b"1", key.as_bytes(), old.unwrap_or_default(), new];
        match self.run(&command)? {
            Reply::Number(number) => Ok(number == 1),
            _ => Err(unexpected("something else than a number")),
        }
    }
}

fn ask(link: &mut ServerLink, parts: &[&[u8]]) -> Outcome<Reply> {
    let mut request = zeroize::Zeroizing::new(format!("*{}\r\n", parts.len()).into_bytes());
    // An array that grows would leave copies of a password behind.
    request.reserve_exact(parts.iter().map(|part| part.len() + 32).sum());
    for part in parts {
        request.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        request.extend_from_slice(part);
        request.extend_from_slice(b"\r\n");
    }
    link.send(&request)?;
    let reply = link.line()?;
    let (kind, rest) = reply.split_at_checked(1).ok_or_else(|| unexpected("an empty line"))?;
    match kind {
        "+" => Ok(Reply::Text),
        ":" => {
            let number = rest.parse().map_err(|_| unexpected("a number without digits"))?;
            Ok(Reply::Number(number))
        }
        "$" => {
            if rest == "-1" {
                return Ok(Reply::Value(None));
            }
            let len = rest.parse().ok().filter(|len: &usize| *len <= VALUE_LEN_MAX);
            let mut value = link.bytes(len.ok_or_else(|| unexpected("a longer value"))? + 2)?;
            value.truncate(value.len() - 2);
            Ok(Reply::Value(Some(value)))
        }
        "-" => Err(refusal(rest)),
        _ => Err(unexpected("something that is no reply of Redis")),
    }
}

/// The error for a server's refusal: some pass by themselves.
fn refusal(message: &str) -> io::Error {
    let word = message.split(' ').next().unwrap_or_default();
    let kind = match word {
        "NOAUTH" | "WRONGPASS" | "NOPERM" => io::ErrorKind::PermissionDenied,
        "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "READONLY" => {
            io::ErrorKind::Interrupted
        }
        _ => io::ErrorKind::Unsupported,
    };
    io::Error::new(kind, format!("the server refused: {message}"))
}
