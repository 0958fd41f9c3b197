//! One connection: its authentication, its version of the protocol, and its commands.

use super::acl::acl;
use super::info::{config, hello};
use super::protocol::{COMMAND_LEN_MAX, Command, Reply, parse, syntax};
use super::service::SharedService;
use super::shared_commands::{Group, SharedCommand};
use super::transaction::SessionTransaction;
use super::users::{DEFAULT, Refusal, RespUser};
use super::value_commands::{changes_what_it_reads, kind_of};
use super::values::SetOptions;
use crate::shared::{Kind, Protocol};
use std::io::{self, Write};
use std::sync::Arc;

/// How many cursors of SCAN a connection keeps.
const CURSORS_MAX: usize = 64;
/// Longest command of an unauthenticated client, in bytes.
const STRANGER_LEN_MAX: usize = 16 << 10;

/// The state of one connection.
pub struct RespSession<'a> {
    served: &'a SharedService,
    version: u8,
    /// The name and the number of the user that the client is known as.
    user: Option<(String, u64)>,
    /// Each cursor with the name after which it continues.
    cursors: Vec<(u64, Vec<u8>)>,
    next_cursor: u64,
    transaction: SessionTransaction,
}

impl<'a> RespSession<'a> {
    pub fn new(served: &'a SharedService) -> Self {
        let user = served.users.get(DEFAULT).filter(|one| one.user.is_on && one.user.is_open);
        Self {
            served,
            version: 2,
            user: user.map(|one| (DEFAULT.to_owned(), one.number)),
            cursors: Vec::new(),
            next_cursor: 1,
            transaction: SessionTransaction::default(),
        }
    }

    /// The version of the protocol for replies.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Whether the client is authenticated.
    pub fn is_known(&self) -> bool {
        self.user.is_some()
    }

    /// Longest command that is accepted, in bytes.
    pub fn command_len_max(&self) -> usize {
        if self.is_known() { COMMAND_LEN_MAX } else { STRANGER_LEN_MAX }
    }

    /// Writes the replies to pipelined commands. Returns whether the connection ends.
    ///
    /// Consecutive GET, or SET without options, are sent to the gateway together.
    pub fn answer_all(&mut self, commands: &[Command], to: &mut impl Write) -> io::Result<bool> {
        let mut rest = commands;
        while let [command, after @ ..] = rest {
            let user = self.current_user().filter(|_| !self.transaction.is_open());
            let group = user.and_then(|user| {
                let allowed = rest.iter().take_while(|command| user.check(command).is_ok());
                Group::take(&rest[..allowed.count()], self.served)
            });
            if let Some(group) = group {
                let (grouped, after) = rest.split_at(group.len());
                for reply in self.answer_group(&group, grouped) {
                    reply.write(self.version, to)?;
                }
                rest = after;
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

    /// The replies to a group of commands, counted and timed.
    fn answer_group(&self, group: &Group<'_>, commands: &[Command]) -> Vec<Reply> {
        let metrics = self.served.front.metrics();
        let name = commands[0][0].to_ascii_uppercase();
        let request = |_| metrics.request(Protocol::Resp, kind_of(&name));
        let requests: Vec<_> = commands.iter().map(request).collect();
        metrics.took(Protocol::Resp, commands.iter().flat_map(|c| &c[1..]).map(Vec::len).sum());
        let done = group.run(self.served);
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
        if let Err(refused) = self.check_rights(&name, command) {
            if name == b"EXEC" {
                self.transaction = SessionTransaction::default();
            } else {
                self.transaction.refuse();
            }
            // Without its user a client is not known any more.
            return (refused, !self.is_known());
        }
        if self.is_known()
            && !ends
            && let Some(reply) = self.transaction.answer(&name, command, self.served)
        {
            return (reply, false);
        }
        let reply = match (&name[..], words) {
            (b"QUIT", _) => Reply::Simple("OK"),
            (b"AUTH", [_]) if self.default_is_open() => {
                Reply::Error("ERR this server asks for no password".to_owned())
            }
            (b"AUTH", [password]) => self.authenticate(DEFAULT.as_bytes(), password),
            (b"AUTH", [user, password]) => self.authenticate(user, password),
            (b"HELLO", _) => self.hello(words),
            _ if !self.is_known() => Reply::Error("NOAUTH Authentication required.".to_owned()),
            (b"ACL", _) => {
                acl(words, self.user.as_ref().map_or("", |(name, _)| name), &self.served.users)
            }
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
        let now = self.served.front.now_ms();
        let done = if let Some(command) = SharedCommand::parse(name, words, now) {
            command.run(self.served)
        } else if changes_what_it_reads(name) {
            self.served.with_values(|values| values.answer(name, words))
        } else {
            self.served.with_names(|values| values.answer(name, words))
        };
        let reply = done.unwrap_or_else(Reply::from);
        request.answered(!matches!(reply, Reply::Error(_)));
        metrics.gave(Protocol::Resp, reply.len());
        reply
    }

    /// The user that the client is known as, unless it is gone.
    fn current_user(&self) -> Option<Arc<RespUser>> {
        let (name, number) = self.user.as_ref()?;
        let found = self.served.users.get(name).filter(|one| one.number == *number)?;
        Some(found.user)
    }

    /// Fails unless the client may run a command, and with EXEC all that are queued.
    fn check_rights(&mut self, name: &[u8], command: &Command) -> Result<(), Reply> {
        let Some((known_as, _)) = &self.user else { return Ok(()) };
        let Some(user) = self.current_user() else {
            self.user = None;
            return Err(Reply::Error("NOAUTH the user of this connection was removed".to_owned()));
        };
        let is_end = name == b"EXEC" && self.transaction.is_open();
        let queued = self.transaction.queued().filter(|_| is_end);
        let mut all = core::iter::once(command).chain(queued);
        all.try_for_each(|command| user.check(command)).map_err(|refusal| match refusal {
            Refusal::Command(name) => Reply::Error(format!(
                "NOPERM User {known_as} has no permissions to run the '{name}' command"
            )),
            Refusal::Name => Reply::Error("NOPERM No permissions to access a key".to_owned()),
        })
    }

    fn default_is_open(&self) -> bool {
        self.served.users.get(DEFAULT).is_some_and(|one| one.user.is_on && one.user.is_open)
    }

    fn authenticate(&mut self, name: &[u8], password: &[u8]) -> Reply {
        let name = core::str::from_utf8(name).unwrap_or_default();
        if let Some(found) = self.served.users.authenticate(name, password) {
            self.user = Some((name.to_owned(), found.number));
            return Reply::Simple("OK");
        }
        tracing::warn!(protocol = "resp", "a wrong password was given");
        Reply::Error("WRONGPASS invalid username-password pair or user is disabled.".to_owned())
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
        if !self.is_known() {
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
        let names = self.served.with_names(|values| Ok(values.behind(&after, count)));
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
