//! The Redis protocol in front of a gateway: for clients on the premises, who are trusted.
//!
//! One thread a connection. The gateway does one thing at a time, so a command of one connection is
//! whole before that of another begins.

mod glob;
mod protocol;

use crate::error::Error;
use crate::gateway::Gateway;
use glob::matches;
use protocol::Reply;
use std::io::{self, BufReader, BufWriter, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections at once.
const CONNECTIONS_MAX: usize = 1024;
/// Places in the list of names that a connection's cursors stand for.
const CURSORS_MAX: usize = 64;

/// Serves connections until `stop` is set and one more comes, which is dropped.
pub fn serve(
    listener: &TcpListener,
    gateway: &Arc<Mutex<Gateway>>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let connections = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if stop.load(Ordering::SeqCst) {
            return Ok(());
        }
        // One client's failure, or too many of them, is no reason to turn the others away.
        let Ok(stream) = stream else { continue };
        if connections.load(Ordering::SeqCst) >= CONNECTIONS_MAX {
            continue;
        }
        connections.fetch_add(1, Ordering::SeqCst);
        let (gateway, count) = (gateway.clone(), connections.clone());
        std::thread::spawn(move || {
            let _ = converse(&stream, &gateway);
            count.fetch_sub(1, Ordering::SeqCst);
        });
    }
    Ok(())
}

fn converse(stream: &TcpStream, gateway: &Mutex<Gateway>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut from, mut to) = (BufReader::new(stream), BufWriter::new(stream));
    let mut session = Session { gateway, version: 2, cursors: Vec::new(), next_cursor: 1 };
    loop {
        let command = match protocol::read(&mut from) {
            Ok(Some(command)) => command,
            Ok(None) => return to.flush(),
            Err(e) => {
                Reply::Error(format!("ERR {e}")).write(session.version, &mut to)?;
                return to.flush();
            }
        };
        let name = command[0].to_ascii_uppercase();
        let reply = session.answer(&name, &command[1..]);
        reply.write(session.version, &mut to)?;
        // What is pipelined is answered together.
        if from.buffer().is_empty() {
            to.flush()?;
        }
        if name == b"QUIT" {
            return to.flush();
        }
    }
}

/// One connection.
struct Session<'a> {
    gateway: &'a Mutex<Gateway>,
    version: u8,
    /// The name behind which each cursor goes on.
    cursors: Vec<(u64, Vec<u8>)>,
    next_cursor: u64,
}

fn failed(error: &Error) -> Reply {
    Reply::Error(format!("ERR {error}"))
}

fn count(things: usize) -> Reply {
    Reply::Integer(i64::try_from(things).unwrap_or(i64::MAX))
}

fn syntax() -> Reply {
    Reply::Error("ERR syntax error".to_owned())
}

impl Session<'_> {
    fn answer(&mut self, name: &[u8], words: &[Vec<u8>]) -> Reply {
        match (name, words) {
            (b"PING", []) => Reply::Simple("PONG"),
            (b"PING" | b"ECHO", [word]) => Reply::Bulk(word.clone()),
            (b"GET", [name]) => self.get(name),
            (b"SET", [name, value, rest @ ..]) => self.set(name, value, rest),
            (b"MGET", [_, ..]) => Reply::Array(words.iter().map(|name| self.get(name)).collect()),
            (b"MSET", [_, _, ..]) if words.len().is_multiple_of(2) => {
                let set = |pair: &[Vec<u8>]| self.set(&pair[0], &pair[1], &[]);
                let mut replies = words.chunks(2).map(set);
                let wrong = replies.find(|reply| matches!(reply, Reply::Error(_)));
                wrong.unwrap_or(Reply::Simple("OK"))
            }
            (b"DEL" | b"UNLINK", [_, ..]) => self.delete(words),
            (b"EXISTS", [_, ..]) => {
                let there = words.iter().filter(|name| self.len_of(name).is_some());
                count(there.count())
            }
            (b"STRLEN", [name]) => Reply::Integer(self.len_of(name).unwrap_or(0).into()),
            (b"TTL" | b"PTTL", [name]) => {
                Reply::Integer(if self.len_of(name).is_some() { -1 } else { -2 })
            }
            (b"DBSIZE", []) => count(self.lock().names()),
            (b"SCAN", [cursor, rest @ ..]) => self.scan(cursor, rest),
            (b"INFO", _) => self.info(),
            (b"HELLO", _) => self.hello(words),
            (b"CONFIG", [what, ..]) if what.eq_ignore_ascii_case(b"GET") => Reply::Map(Vec::new()),
            (b"COMMAND", _) => Reply::Array(Vec::new()),
            (b"SELECT", [number]) if number == b"0" => Reply::Simple("OK"),
            (b"CLIENT", [what, ..]) if what.to_ascii_uppercase().starts_with(b"SET") => {
                Reply::Simple("OK")
            }
            (b"QUIT", []) => Reply::Simple("OK"),
            _ => {
                let name = String::from_utf8_lossy(&name[..name.len().min(64)]);
                Reply::Error(format!("ERR unknown command or wrong arguments: '{name}'"))
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Gateway> {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn len_of(&self, name: &[u8]) -> Option<u32> {
        self.lock().len_of(name)
    }

    fn get(&self, name: &[u8]) -> Reply {
        match self.lock().load(name) {
            Ok(Some(value)) => Reply::Bulk(value),
            Ok(None) => Reply::Null,
            Err(error) => failed(&error),
        }
    }

    fn set(&self, name: &[u8], value: &[u8], conditions: &[Vec<u8>]) -> Reply {
        let mut gateway = self.lock();
        for condition in conditions {
            let wanted = match &condition.to_ascii_uppercase()[..] {
                b"NX" => false,
                b"XX" => true,
                _ => return syntax(),
            };
            if gateway.len_of(name).is_some() != wanted {
                return Reply::Null;
            }
        }
        match gateway.store(name, value) {
            Ok(()) => Reply::Simple("OK"),
            Err(error) => failed(&error),
        }
    }

    fn delete(&self, names: &[Vec<u8>]) -> Reply {
        let mut count = 0;
        for name in names {
            match self.lock().remove(name) {
                Ok(was_there) => count += i64::from(was_there),
                Err(error) => return failed(&error),
            }
        }
        Reply::Integer(count)
    }

    fn scan(&mut self, cursor: &[u8], rest: &[Vec<u8>]) -> Reply {
        let (mut count, mut pattern) = (10, None);
        for option in rest.chunks(2) {
            match (&option[0].to_ascii_uppercase()[..], option.get(1)) {
                (b"COUNT", Some(number)) => match parse(number) {
                    Some(number @ 1..=10_000) => count = number as usize,
                    _ => return syntax(),
                },
                (b"MATCH", Some(glob)) => pattern = Some(glob),
                _ => return syntax(),
            }
        }
        let after = match parse(cursor) {
            Some(0) => Vec::new(),
            Some(known) => match self.cursors.iter().find(|(number, _)| *number == known) {
                Some((_, after)) => after.clone(),
                None => return Reply::Error("ERR invalid cursor".to_owned()),
            },
            None => return Reply::Error("ERR invalid cursor".to_owned()),
        };
        let mut names = self.lock().names_behind(&after, count);
        let next = if names.len() == count { self.remember(&names[count - 1]) } else { 0 };
        names.retain(|name| pattern.is_none_or(|pattern| matches(pattern, name)));
        let names = names.into_iter().map(Reply::Bulk).collect();
        Reply::Array(vec![Reply::Bulk(next.to_string().into_bytes()), Reply::Array(names)])
    }

    fn remember(&mut self, name: &[u8]) -> u64 {
        let cursor = self.next_cursor;
        self.next_cursor += 1;
        if self.cursors.len() == CURSORS_MAX {
            self.cursors.remove(0);
        }
        self.cursors.push((cursor, name.to_vec()));
        cursor
    }

    fn info(&self) -> Reply {
        let gateway = self.lock();
        let (counts, params) = (gateway.counts(), gateway.params());
        let lines = [
            "# Server".to_owned(),
            format!("traceless_version:{}", env!("CARGO_PKG_VERSION")),
            "tee_protection:none".to_owned(),
            "# Gateway".to_owned(),
            format!("blocks:{}", params.blocks),
            format!("block_len:{}", params.geometry.block_len),
            format!("queries:{}", counts.queries),
            format!("hits:{}", counts.hits),
            format!("rounds:{}", counts.rounds),
            format!("renewed_nodes:{}", counts.renewed),
            format!("waits:{}", counts.waits),
            format!("waiting_max:{}", counts.waiting_max),
            "# Keyspace".to_owned(),
            format!("db0:keys={},expires=0", gateway.names()),
        ];
        Reply::Bulk((lines.join("\r\n") + "\r\n").into_bytes())
    }

    fn hello(&mut self, words: &[Vec<u8>]) -> Reply {
        match words.first().map(|version| parse(version)) {
            None => {}
            Some(Some(version @ 2..=3)) => self.version = version as u8,
            Some(_) => return Reply::Error("NOPROTO unsupported protocol version".to_owned()),
        }
        let word = |word: &str| Reply::Bulk(word.as_bytes().to_vec());
        Reply::Map(vec![
            word("server"),
            word("traceless"),
            word("version"),
            word(env!("CARGO_PKG_VERSION")),
            word("proto"),
            Reply::Integer(self.version.into()),
            word("mode"),
            word("standalone"),
            word("role"),
            word("master"),
            word("modules"),
            Reply::Array(Vec::new()),
        ])
    }
}

fn parse(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::in_memory;
    use std::io::Read;

    /// Sends bytes to a fresh server, and reads until it closes.
    fn answers(bytes: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (gateway, stop) = (Arc::new(Mutex::new(in_memory(2000, 1))), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener, &gateway, &stop));
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(bytes).unwrap();
            stream.write_all(b"QUIT\r\n").unwrap();
            let mut answers = String::new();
            stream.read_to_string(&mut answers).unwrap();
            stop.store(true, Ordering::SeqCst);
            drop(TcpStream::connect(address));
            server.join().unwrap().unwrap();
            answers
        })
    }

    #[test]
    fn values_come_and_go() {
        let commands = "PING\r\nSET a 1\r\nGET a\r\nGET b\r\nSET a 2 NX\r\nSET a 22 XX\r\n\
            STRLEN a\r\nMSET c 3 d 4\r\nMGET a b c\r\nEXISTS a b c a\r\nDEL a b\r\nDBSIZE\r\n\
            TTL c\r\nTTL a\r\n";
        let want = "+PONG\r\n+OK\r\n$1\r\n1\r\n$-1\r\n$-1\r\n+OK\r\n\
            :2\r\n+OK\r\n*3\r\n$2\r\n22\r\n$-1\r\n$1\r\n3\r\n:3\r\n:1\r\n:2\r\n\
            :-1\r\n:-2\r\n+OK\r\n";
        assert_eq!(answers(commands.as_bytes()), want);
    }

    #[test]
    fn names_are_listed_in_parts() {
        let set: String =
            (0..12).map(|i| format!("SET n{i:02} x\r\n")).collect::<Vec<_>>().concat();
        let scans = "SCAN 0 COUNT 5\r\nSCAN 1 COUNT 5 MATCH *6\r\nSCAN 2 COUNT 5\r\nSCAN 9\r\n";
        let told = answers((set + scans).as_bytes());
        let told = told.strip_prefix(&"+OK\r\n".repeat(12)).unwrap();
        let names = |range: core::ops::Range<u8>| -> String {
            range.map(|i| format!("$3\r\nn{i:02}\r\n")).collect::<Vec<_>>().concat()
        };
        let want = format!(
            "*2\r\n$1\r\n1\r\n*5\r\n{}*2\r\n$1\r\n2\r\n*1\r\n{}*2\r\n$1\r\n0\r\n*2\r\n{}\
             -ERR invalid cursor\r\n+OK\r\n",
            names(0..5),
            names(6..7),
            names(10..12)
        );
        assert_eq!(told, want);
    }

    #[test]
    fn what_is_not_known_is_told() {
        let told = answers(
            b"NONSENSE\r\nGET\r\nSET a 1 EX 5\r\nHELLO 4\r\nHELLO 3\r\nGET x\r\nSELECT 1\r\n",
        );
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].starts_with("-ERR unknown") && lines[1].starts_with("-ERR unknown"));
        assert!(lines[2].starts_with("-ERR syntax") && lines[3].starts_with("-NOPROTO"));
        assert!(told.contains("%6\r\n") && told.contains("_\r\n"), "{told}");
        assert!(answers(b"*1\r\n$x\r\n").starts_with("-ERR Protocol error"));
        assert!(answers(b"INFO\r\n").contains("tee_protection:none"));
    }
}
