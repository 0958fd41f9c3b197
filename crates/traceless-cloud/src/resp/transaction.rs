//! MULTI, EXEC and WATCH.

use super::protocol::{Command, Reply, WORD_COST};
use super::service::SharedService;
use super::shared_commands::SharedCommand;
use super::value_commands::{is_known, kind_of, refusal};
use super::values::Values;
use crate::error::{Error, Result};
use crate::gateway::{NAME_LEN_MAX, Object};
use crate::shared::Protocol;

/// Most commands of a transaction.
const COMMANDS_MAX: usize = 10_000;
/// Most names that a connection watches. Their blocks are not used again meanwhile.
const WATCHES_MAX: usize = 1000;

/// The transaction of a connection.
#[derive(Default)]
pub struct SessionTransaction {
    /// The commands since MULTI.
    queue: Option<Vec<Command>>,
    bytes: usize,
    /// Whether a command was refused, so that EXEC will be.
    is_refused: bool,
    watched: Vec<Watch>,
}

/// A watched name, and its value when it was watched; that there was none and is none again is no
/// change. While this refers to the blocks of the value,
/// no other value gets them: equal blocks are the same value.
struct Watch {
    name: Vec<u8>,
    object: Option<Object>,
}

impl Watch {
    fn is_changed(&self, values: &Values<'_>) -> bool {
        values.find(&self.name) != self.object.as_ref()
    }
}

impl SessionTransaction {
    /// Whether commands are queued.
    pub fn is_open(&self) -> bool {
        self.queue.is_some()
    }

    /// The commands since MULTI.
    pub fn queued(&self) -> impl Iterator<Item = &Command> {
        self.queue.iter().flatten()
    }

    /// Has EXEC refused, because a command was.
    pub fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// The reply to a command of transactions, or to one that is queued; `None` for other commands.
    pub fn answer(
        &mut self,
        name: &[u8],
        command: &Command,
        service: &SharedService,
    ) -> Option<Reply> {
        let error = |text: &str| Some(Reply::Error(text.to_owned()));
        match (name, &command[1..], self.is_open()) {
            (b"MULTI", [], false) if service.front.has_constant_rate() => {
                error("ERR at a constant rate there are no transactions")
            }
            (b"MULTI", [], false) => {
                (self.queue, self.bytes, self.is_refused) = (Some(Vec::new()), 0, false);
                Some(Reply::Simple("OK"))
            }
            (b"MULTI", [], true) => error("ERR MULTI calls can not be nested"),
            (b"EXEC", [], true) => Some(self.execute(service)),
            (b"EXEC", [], false) => error("ERR EXEC without MULTI"),
            (b"DISCARD", [], true) => {
                *self = Self::default();
                Some(Reply::Simple("OK"))
            }
            (b"DISCARD", [], false) => error("ERR DISCARD without MULTI"),
            (b"WATCH", [_, ..], true) => error("ERR WATCH inside MULTI is not allowed"),
            (b"WATCH", names @ [_, ..], false) => Some(self.watch(names, service)),
            (b"UNWATCH", [], false) => {
                self.watched.clear();
                Some(Reply::Simple("OK"))
            }
            (_, _, true) => Some(self.queue(name, command, service.transaction_len_max)),
            (_, _, false) => None,
        }
    }

    fn watch(&mut self, names: &[Vec<u8>], service: &SharedService) -> Reply {
        let is_long = |name: &Vec<u8>| name.len() > NAME_LEN_MAX;
        if self.watched.len() + names.len() > WATCHES_MAX || names.iter().any(is_long) {
            let text = "ERR a connection watches 1000 names of 1 KiB at most";
            return Reply::Error(text.to_owned());
        }
        let found = service.with_names(|values| {
            let watch = |name: &Vec<u8>| {
                let object = values.find(name).cloned();
                Watch { name: name.clone(), object }
            };
            Ok(names.iter().map(watch).collect::<Vec<_>>())
        });
        match found {
            Ok(found) => {
                self.watched.extend(found);
                Reply::Simple("OK")
            }
            Err(error) => error.into(),
        }
    }

    fn queue(&mut self, name: &[u8], command: &Command, len_max: usize) -> Reply {
        let Some(queue) = &mut self.queue else { return Reply::Null };
        self.bytes += command.iter().map(|word| word.len() + WORD_COST).sum::<usize>();
        let reply = if !is_known(name, command.len() - 1) {
            refusal(name)
        } else if queue.len() == COMMANDS_MAX || self.bytes > len_max {
            Reply::Error("ERR a transaction has 10000 commands and 64 MiB at most".to_owned())
        } else {
            queue.push(command.clone());
            return Reply::Simple("QUEUED");
        };
        self.is_refused = true;
        reply
    }

    /// EXEC: all commands, one after the other, unless a watched name was changed.
    fn execute(&mut self, service: &SharedService) -> Reply {
        let Self { queue, is_refused, watched, .. } = core::mem::take(self);
        if is_refused {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return Reply::Error(text.to_owned());
        }
        let done = service.with_values(|values| {
            if watched.iter().any(|watch| watch.is_changed(values)) {
                return Ok(None);
            }
            values.transact(|values| run_all(queue.iter().flatten(), values, service))
        });
        match done {
            Ok(Some(replies)) => Reply::Array(replies),
            Ok(None) => Reply::NullArray,
            Err(error) => Reply::Error(format!("EXECABORT {error}. Nothing was changed.")),
        }
    }
}

/// The replies to the commands of a transaction, which ends if they, or the blocks that are
/// accessed for them, get too many: no other client is answered meanwhile.
fn run_all<'c>(
    commands: impl Iterator<Item = &'c Command>,
    values: &mut Values<'_>,
    service: &SharedService,
) -> Result<Vec<Reply>> {
    let (len_max, metrics) = (service.transaction_len_max, service.front.metrics());
    let accesses = |values: &Values<'_>| {
        let counts = values.gateway.counts();
        counts.queries + counts.hits
    };
    let block_len = values.gateway.params().geometry.block_len;
    let (begun, most) = (accesses(values), 2 * (COMMANDS_MAX + len_max / block_len) as u64);
    let (mut replies, mut bytes) = (Vec::new(), 0);
    for command in commands {
        let request = metrics.request(Protocol::Resp, kind_of(&command[0].to_ascii_uppercase()));
        metrics.took(Protocol::Resp, command[1..].iter().map(Vec::len).sum());
        let reply = run(command, values)?;
        request.answered(!matches!(reply, Reply::Error(_)));
        metrics.gave(Protocol::Resp, reply.len());
        bytes += reply.len();
        if bytes > len_max || accesses(values) - begun > most {
            return Err(Error::Malformed("a transaction with too many bytes of values"));
        }
        replies.push(reply);
    }
    Ok(replies)
}

/// The reply to a command of a transaction. An error ends the transaction.
fn run(command: &Command, values: &mut Values<'_>) -> Result<Reply> {
    let (name, words) = (command[0].to_ascii_uppercase(), &command[1..]);
    let done = match (&name[..], words) {
        (b"PING", []) => return Ok(Reply::Simple("PONG")),
        (b"PING" | b"ECHO", [word]) => return Ok(Reply::Bulk(word.clone())),
        // EXEC has done that.
        (b"UNWATCH", []) => return Ok(Reply::Simple("OK")),
        _ => match SharedCommand::parse(&name, words, values.now) {
            Some(command) => command.run_alone(values),
            None => values.answer(&name, words),
        },
    };
    match done {
        Err(error @ (Error::Full { .. } | Error::Lost { .. })) => Ok(error.into()),
        done => done,
    }
}
