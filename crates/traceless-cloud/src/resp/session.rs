//! One connection: its authentication, its version of the protocol, and its commands.

use super::Password;
use super::info::{config, hello, info};
use super::protocol::{COMMAND_LEN_MAX, Command, Reply, parse, parse_signed, syntax};
use super::values::{Expiries, SetOptions, Values};
use crate::error::{Error, Result};
use crate::gateway::{NAME_LEN_MAX, Namespace, Object, StoreStep, VALUE_LEN_MAX, Value};
use crate::shared::{Kind, Protocol, SharedGateway};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// How many cursors of SCAN a connection keeps.
const CURSORS_MAX: usize = 64;
/// Bytes of values that are read together for pipelined commands, at most.
const REPLIES_LEN: usize = 1 << 20;
/// Longest command of an unauthenticated client, in bytes.
const STRANGER_LEN_MAX: usize = 16 << 10;

/// The state that all connections share.
pub struct SharedService {
    pub front: Arc<SharedGateway>,
    password: Option<Password>,
    expiries: Arc<Mutex<Expiries>>,
}

impl SharedService {
    pub fn new(front: Arc<SharedGateway>, password: Option<Password>) -> Self {
        let expiries = Arc::new(Mutex::new(front.inspect(Expiries::find)));
        Self { front, password, expiries }
    }

    #[cfg(test)]
    pub fn expiring(&self) -> usize {
        self.expiries.lock().unwrap().len()
    }
}

/// The state of one connection.
pub struct RespSession<'a> {
    served: &'a SharedService,
    version: u8,
    /// Whether the client is authenticated.
    is_known: bool,
    /// Each cursor with the name after which it continues.
    cursors: Vec<(u64, Vec<u8>)>,
    next_cursor: u64,
}

impl<'a> RespSession<'a> {
    pub fn new(served: &'a SharedService) -> Self {
        let is_known = served.password.is_none();
        Self { served, version: 2, is_known, cursors: Vec::new(), next_cursor: 1 }
    }

    /// The version of the protocol for replies.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Whether the client is authenticated.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Longest command that is accepted, in bytes.
    pub fn command_len_max(&self) -> usize {
        if self.is_known { COMMAND_LEN_MAX } else { STRANGER_LEN_MAX }
    }

    /// Writes the replies to pipelined commands. Returns whether the connection ends.
    ///
    /// Consecutive plain commands of one kind, get or set, are sent to the gateway together.
    pub fn answer_all(&mut self, commands: &[Command], to: &mut impl Write) -> io::Result<bool> {
        let mut rest = commands;
        while let [command, after @ ..] = rest {
            let alike = self.alike(rest);
            if alike > 1 {
                for reply in self.answer_together(&rest[..alike]) {
                    reply.write(self.version, to)?;
                }
                rest = &rest[alike..];
                continue;
            }
            let (reply, ends) = self.answer(command);
            reply.write(self.version, to)?;
            if ends {
                return Ok(true);
            }
            rest = after;
        }
        Ok(false)
    }

    /// How many of these commands, from the first on, are sent together.
    pub(super) fn alike(&self, commands: &[Command]) -> usize {
        let Some(first) = Plain::of(&commands[0]).filter(|_| self.is_known && commands.len() > 1)
        else {
            return 1;
        };
        let alike = commands.iter().take_while(|command| Plain::of(command) == Some(first));
        self.served.front.inspect(|gateway| {
            // At a constant rate each block takes its own tick, and other connections should not
            // wait for all.
            if gateway.next_tick().is_some() {
                return 1;
            }
            // Replies are kept until all have arrived.
            let mut room = REPLIES_LEN as u64;
            let fits = |command: &&Command| {
                let len = match first {
                    Plain::Set => 0,
                    Plain::Get => {
                        gateway.find(Namespace::Values, &command[1]).map_or(0, Object::len)
                    }
                };
                room.checked_sub(len).map(|left| room = left).is_some()
            };
            alike.take_while(fits).count()
        })
    }

    /// The replies to plain commands of one kind.
    fn answer_together(&self, commands: &[Command]) -> Vec<Reply> {
        let metrics = self.served.front.metrics();
        let name = commands[0][0].to_ascii_uppercase();
        let request = |_| metrics.request(Protocol::Resp, kind_of(&name));
        let requests: Vec<_> = commands.iter().map(request).collect();
        metrics.took(Protocol::Resp, commands.iter().flat_map(|c| &c[1..]).map(Vec::len).sum());
        let done = self.answer_plain(commands);
        let replies = done.unwrap_or_else(|error| vec![error.into(); commands.len()]);
        for (request, reply) in requests.into_iter().zip(&replies) {
            request.answered(!matches!(reply, Reply::Error(_)));
        }
        metrics.gave(Protocol::Resp, replies.iter().map(Reply::len).sum());
        replies
    }

    /// The reply to a command, and whether the connection ends with it.
    pub fn answer(&mut self, command: &Command) -> (Reply, bool) {
        let (name, words) = (command[0].to_ascii_uppercase(), &command[1..]);
        let ends = name == b"QUIT";
        let reply = match (&name[..], words) {
            (b"QUIT", _) => Reply::Simple("OK"),
            (b"AUTH", [password]) => self.authenticate(b"default", password),
            (b"AUTH", [user, password]) => self.authenticate(user, password),
            (b"HELLO", _) => self.hello(words),
            _ if !self.is_known => Reply::Error("NOAUTH Authentication required.".to_owned()),
            (b"PING", []) => Reply::Simple("PONG"),
            (b"PING" | b"ECHO", [word]) => Reply::Bulk(word.clone()),
            (b"CONFIG", [verb, what]) if verb.eq_ignore_ascii_case(b"GET") => config(what),
            (b"COMMAND", [verb, ..]) if verb.eq_ignore_ascii_case(b"DOCS") => {
                Reply::Map(Vec::new())
            }
            (b"COMMAND", [verb]) if verb.eq_ignore_ascii_case(b"COUNT") => Reply::Integer(0),
            (b"COMMAND", _) => Reply::Array(Vec::new()),
            (b"SELECT", [number]) if number == b"0" => Reply::Simple("OK"),
            (b"CLIENT", [verb, ..]) if verb.to_ascii_uppercase().starts_with(b"SET") => {
                Reply::Simple("OK")
            }
            (b"SCAN", [cursor, rest @ ..]) => self.scan(cursor, rest),
            _ => self.run_on_gateway(&name, words),
        };
        (reply, ends)
    }

    /// Executes a command on values, counted and timed.
    fn run_on_gateway(&self, name: &[u8], words: &[Vec<u8>]) -> Reply {
        let metrics = self.served.front.metrics();
        let request = metrics.request(Protocol::Resp, kind_of(name));
        let received: usize = words.iter().map(Vec::len).sum();
        metrics.took(Protocol::Resp, received);
        let done = match self.plain_reply(name, words) {
            Some(done) => done,
            None => self.with_values(|values| values.answer(name, words)),
        };
        let reply = done.unwrap_or_else(Reply::from);
        request.answered(!matches!(reply, Reply::Error(_)));
        metrics.gave(Protocol::Resp, reply.len());
        reply
    }

    /// The reply to a command that shares its queries with other clients; `None` for any other one,
    /// which has the gateway for itself.
    fn plain_reply(&self, name: &[u8], words: &[Vec<u8>]) -> Option<Result<Reply>> {
        match (name, words) {
            (b"GET", [name]) => {
                let loaded = self.load(vec![name.clone()]);
                Some(loaded.map(|mut replies| replies.pop().unwrap_or(Reply::Null)))
            }
            (b"MGET", [_, ..]) => Some(self.load(words.to_vec()).map(Reply::Array)),
            (b"SET", [name, value]) => {
                Some(self.store(&[[name, value]]).map(|()| Reply::Simple("OK")))
            }
            (b"MSET", [_, _, ..]) if words.len().is_multiple_of(2) => {
                let pairs: Vec<[&[u8]; 2]> =
                    words.as_chunks().0.iter().map(|[name, value]| [&name[..], value]).collect();
                Some(self.store(&pairs).map(|()| Reply::Simple("OK")))
            }
            _ => None,
        }
    }

    /// The replies to plain commands of one kind.
    fn answer_plain(&self, commands: &[Command]) -> Result<Vec<Reply>> {
        if Plain::of(&commands[0]) == Some(Plain::Get) {
            return self.load(commands.iter().map(|command| command[1].clone()).collect());
        }
        let pairs = commands.iter().map(|command| [&command[1][..], &command[2]]);
        let pairs: Vec<[&[u8]; 2]> = pairs.collect();
        match self.store(&pairs) {
            Ok(()) => Ok(vec![Reply::Simple("OK"); commands.len()]),
            // There may be room for some of them.
            Err(Error::Full { .. }) => {
                let set = |pair: &[&[u8]; 2]| {
                    self.store(&[*pair]).map_or_else(Reply::from, |()| Reply::Simple("OK"))
                };
                Ok(pairs.iter().map(set).collect())
            }
            Err(error) => Err(error),
        }
    }

    fn load(&self, names: Vec<Vec<u8>>) -> Result<Vec<Reply>> {
        self.remove_expired()?;
        let reply = |value: Option<Result<Vec<u8>>>| match value {
            None => Reply::Null,
            Some(Ok(bytes)) => Reply::Bulk(bytes),
            Some(Err(lost)) => lost.into(),
        };
        Ok(self.served.front.load_many(names)?.into_iter().map(reply).collect())
    }

    /// Sets names to values that do not expire, in order.
    fn store(&self, pairs: &[[&[u8]; 2]]) -> Result {
        self.remove_expired()?;
        let values = pairs.iter().map(|[name, bytes]| Value { name, bytes, note: &[] });
        let values: Vec<Value<'_>> = values.collect();
        let expiries = self.served.expiries.clone();
        let forget = move |name: &[u8], old: Option<&Object>| {
            let mut expiries = expiries.lock().unwrap_or_else(PoisonError::into_inner);
            expiries.forget(name, old);
        };
        let step = StoreStep::new(&values).observed_by(Box::new(forget));
        self.served.front.run_step(step, |_| ())
    }

    /// Removes expired values, if there are any.
    fn remove_expired(&self) -> Result {
        let now = self.served.front.now_ms();
        let expiries = self.served.expiries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = expiries.is_due(now);
        drop(expiries);
        if is_due { self.with_values(|_| Ok(())) } else { Ok(()) }
    }

    fn with_values<T>(&self, work: impl FnOnce(&mut Values<'_>) -> Result<T>) -> Result<T> {
        let now = self.served.front.now_ms();
        self.served.front.run(|gateway| {
            let mut expiries = self.served.expiries.lock().unwrap_or_else(PoisonError::into_inner);
            let mut values = Values { gateway, expiries: &mut expiries, now };
            values.remove_expired()?;
            work(&mut values)
        })
    }

    fn authenticate(&mut self, user: &[u8], password: &[u8]) -> Reply {
        let Some(known) = &self.served.password else {
            return Reply::Error("ERR this server asks for no password".to_owned());
        };
        if known.is(password) && user == b"default" {
            self.is_known = true;
            return Reply::Simple("OK");
        }
        tracing::warn!(protocol = "resp", "a wrong password was given");
        Reply::Error("WRONGPASS invalid username-password pair".to_owned())
    }

    fn hello(&mut self, words: &[Vec<u8>]) -> Reply {
        let (mut version, mut rest) = (self.version, words);
        if let [requested, more @ ..] = words {
            match parse(requested) {
                Some(requested @ 2..=3) => version = requested as u8,
                _ => return Reply::Error("NOPROTO unsupported protocol version".to_owned()),
            }
            rest = more;
        }
        while let [option, more @ ..] = rest {
            match (&option.to_ascii_uppercase()[..], more) {
                (b"AUTH", [user, password, more @ ..]) => {
                    let reply = self.authenticate(user, password);
                    if matches!(reply, Reply::Error(_)) {
                        return reply;
                    }
                    rest = more;
                }
                (b"SETNAME", [_, more @ ..]) => rest = more,
                _ => return syntax(),
            }
        }
        if !self.is_known {
            return Reply::Error("NOAUTH HELLO must come with AUTH here".to_owned());
        }
        self.version = version;
        hello(version)
    }

    fn scan(&mut self, cursor: &[u8], rest: &[Vec<u8>]) -> Reply {
        let Some((count, pattern)) = scan_options(rest) else { return syntax() };
        let after = match parse(cursor) {
            Some(0) => Some(Vec::new()),
            Some(known) => {
                let found = self.cursors.iter().find(|(number, _)| *number == known);
                found.map(|(_, after)| after.clone())
            }
            None => None,
        };
        let Some(after) = after else { return Reply::Error("ERR invalid cursor".to_owned()) };
        let metrics = self.served.front.metrics();
        let request = metrics.request(Protocol::Resp, Kind::State);
        let names = self.with_values(|values| Ok(values.behind(&after, count)));
        request.answered(names.is_ok());
        let mut names = match names {
            Ok(names) => names,
            Err(error) => return error.into(),
        };
        let next = if names.len() == count { self.remember(&names[count - 1]) } else { 0 };
        names.retain(|name| pattern.is_none_or(|pattern| super::glob::matches(pattern, name)));
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
}

/// A command without options and with names and values of allowed length, which can be executed
/// together with commands of its kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    Get,
    Set,
}

impl Plain {
    fn of(command: &Command) -> Option<Self> {
        match &command[..] {
            [verb, _] if verb.eq_ignore_ascii_case(b"GET") => Some(Self::Get),
            [verb, name, value] if verb.eq_ignore_ascii_case(b"SET") => {
                (name.len() <= NAME_LEN_MAX && value.len() <= VALUE_LEN_MAX).then_some(Self::Set)
            }
            _ => None,
        }
    }
}

impl Values<'_> {
    fn answer(&mut self, name: &[u8], words: &[Vec<u8>]) -> Result<Reply> {
        match (name, words) {
            (b"SET", [name, value, rest @ ..]) => match SetOptions::parse(rest, self.now) {
                Some(options) => self.set(name, value, &options),
                None => Ok(syntax()),
            },
            (b"SETNX", [name, value]) => {
                let options = SetOptions { wanted: Some(false), ..SetOptions::default() };
                let set = self.set(name, value, &options)?;
                Ok(Reply::Integer((set != Reply::Null).into()))
            }
            (b"SETEX" | b"PSETEX", [key, time, value]) => self.set_for(name, key, time, value),
            (b"GETSET", [name, value]) => {
                self.set(name, value, &SetOptions { get: true, ..SetOptions::default() })
            }
            (b"GETDEL", [name]) => {
                let value = self.get(name)?;
                self.delete(core::slice::from_ref(name))?;
                Ok(value)
            }
            (b"GETEX", [name, rest @ ..]) => self.get_and_expire(name, rest),
            (b"DEL" | b"UNLINK", [_, ..]) => self.delete(words),
            (b"EXISTS" | b"TOUCH", [_, ..]) => {
                let there = words.iter().filter(|name| self.find(name).is_some());
                Ok(Reply::count(there.count()))
            }
            (b"TYPE", [name]) => {
                Ok(Reply::Simple(if self.find(name).is_some() { "string" } else { "none" }))
            }
            (b"STRLEN", [name]) => Ok(Reply::count(self.len_of(name))),
            (b"APPEND", [name, more]) => self.append(name, more),
            (b"INCR", [name]) => self.add(name, Some(1)),
            (b"DECR", [name]) => self.add(name, Some(-1)),
            (b"INCRBY", [name, by]) => self.add(name, parse_signed(by)),
            (b"DECRBY", [name, by]) => self.add(name, parse_signed(by).and_then(i64::checked_neg)),
            (b"EXPIRE" | b"PEXPIRE" | b"EXPIREAT" | b"PEXPIREAT", [key, time, rest @ ..]) => {
                self.expire(name, key, time, rest)
            }
            (b"PERSIST", [name]) => self.persist(name),
            (b"TTL" | b"PTTL" | b"EXPIRETIME" | b"PEXPIRETIME", [key]) => {
                Ok(Reply::Integer(self.time_left(name, key)))
            }
            (b"DBSIZE", []) => Ok(Reply::count(self.gateway.names(Namespace::Values))),
            (b"KEYS", [pattern]) => Ok(self.keys(pattern)),
            (b"INFO", _) => Ok(info(self.gateway, self.expiries.len())),
            _ => {
                let name = String::from_utf8_lossy(&name[..name.len().min(64)]);
                Ok(Reply::Error(format!("ERR unknown command or wrong arguments: '{name}'")))
            }
        }
    }
}

fn kind_of(name: &[u8]) -> Kind {
    match name {
        b"GET" | b"MGET" | b"GETEX" => Kind::Read,
        b"SET" | b"SETNX" | b"SETEX" | b"PSETEX" | b"GETSET" | b"MSET" | b"APPEND" | b"INCR"
        | b"DECR" | b"INCRBY" | b"DECRBY" => Kind::Write,
        b"DEL" | b"UNLINK" | b"GETDEL" => Kind::Remove,
        _ => Kind::State,
    }
}

/// How many names SCAN examines, and the pattern for the names that it returns.
fn scan_options(rest: &[Vec<u8>]) -> Option<(usize, Option<&Vec<u8>>)> {
    let (mut count, mut pattern) = (10, None);
    for option in rest.chunks(2) {
        match (&option[0].to_ascii_uppercase()[..], option.get(1)) {
            (b"COUNT", Some(number)) => {
                count = parse(number).filter(|number| (1..=10_000).contains(number))? as usize;
            }
            (b"MATCH", Some(glob)) => pattern = Some(glob),
            _ => return None,
        }
    }
    Some((count, pattern))
}

/// Parses the options of commands, for the fuzzer.
pub fn fuzz_options(words: &[Vec<u8>]) {
    scan_options(words);
    SetOptions::parse(words, 1 << 40);
}
