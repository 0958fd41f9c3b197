//! MULTI, EXEC and WATCH.

use super::protocol::{Command, Reply};
use super::service::SharedService;
use super::shared_commands::SharedCommand;
use super::value_commands::{is_known, refusal};
use super::values::Values;
use crate::error::{Error, Result};
use crate::gateway::Object;

/// Most commands of a transaction, and most bytes of their words.
const COMMANDS_MAX: usize = 10_000;
const BYTES_MAX: usize = 64 << 20;
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

/// A watched name, and its value when it was watched. While this refers to the blocks of the value,
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
            (_, _, true) => Some(self.queue(name, command)),
            (_, _, false) => None,
        }
    }

    fn watch(&mut self, names: &[Vec<u8>], service: &SharedService) -> Reply {
        if self.watched.len() + names.len() > WATCHES_MAX {
            return Reply::Error("ERR a connection watches 1000 names at most".to_owned());
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

    fn queue(&mut self, name: &[u8], command: &Command) -> Reply {
        let Some(queue) = &mut self.queue else { return Reply::Null };
        self.bytes += command.iter().map(Vec::len).sum::<usize>();
        let reply = if !is_known(name) {
            refusal(name)
        } else if queue.len() == COMMANDS_MAX || self.bytes > BYTES_MAX {
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
            values.transact(|values| {
                queue.iter().flatten().map(|command| run(command, values)).collect()
            })
        });
        match done {
            Ok(Some(replies)) => Reply::Array(replies),
            Ok(None) => Reply::NullArray,
            Err(error) => error.into(),
        }
    }
}

/// The reply to a command of a transaction. An error ends the transaction.
fn run(command: &Command, values: &mut Values<'_>) -> Result<Reply> {
    let (name, words) = (command[0].to_ascii_uppercase(), &command[1..]);
    let done = match SharedCommand::parse(&name, words, values.now) {
        Some(command) => command.run_alone(values),
        None => values.answer(&name, words),
    };
    match done {
        Err(error @ (Error::Full { .. } | Error::Lost { .. } | Error::Malformed(_))) => {
            Ok(error.into())
        }
        done => done,
    }
}
