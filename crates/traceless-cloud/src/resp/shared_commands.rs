//! Commands that send their queries together with other clients' queries.

use super::protocol::{Command, Reply};
use super::service::SharedService;
use super::values::{SetOptions, Values, expiry_after};
use crate::error::{Error, Result};
use crate::gateway::{NAME_LEN_MAX, Namespace, Object, VALUE_LEN_MAX};
use core::mem::discriminant;

/// Bytes of values that are read together for pipelined commands, at most.
const REPLIES_LEN: usize = 1 << 20;

/// A command that needs no more than to read values, to set or to remove them.
#[derive(Clone, Copy)]
pub enum SharedCommand<'a> {
    /// GET.
    Get(&'a Vec<u8>),
    /// MGET.
    GetMany(&'a [Vec<u8>]),
    /// SET without options.
    Set([&'a [u8]; 2]),
    /// MSET: names and values in turn.
    SetMany(&'a [[Vec<u8>; 2]]),
    /// SET with options but GET, SETEX and PSETEX.
    SetWith([&'a [u8]; 2], SetOptions),
    /// SETNX.
    SetNew([&'a [u8]; 2]),
    /// DEL and UNLINK.
    Remove(&'a [Vec<u8>]),
}

impl<'a> SharedCommand<'a> {
    /// The command of a name in upper case and its words, if it is one of these, at a time in
    /// milliseconds since 1970.
    pub fn parse(name: &[u8], words: &'a [Vec<u8>], now: u64) -> Option<Self> {
        match (name, words) {
            (b"GET", [name]) => Some(Self::Get(name)),
            (b"MGET", [_, ..]) => Some(Self::GetMany(words)),
            (b"SET", [name, value]) => Some(Self::Set([name, value])),
            (b"MSET", [_, _, ..]) if words.len().is_multiple_of(2) => {
                Some(Self::SetMany(words.as_chunks().0))
            }
            (b"SET", [name, value, options @ ..]) => {
                let options = SetOptions::parse(options, now).filter(|options| !options.get)?;
                Some(Self::SetWith([name, value], options))
            }
            (b"SETEX" | b"PSETEX", [key, time, value]) => {
                let expiry = Some(expiry_after(name, time, now)?);
                Some(Self::SetWith([key, value], SetOptions { expiry, ..SetOptions::default() }))
            }
            (b"SETNX", [name, value]) => Some(Self::SetNew([name, value])),
            (b"DEL" | b"UNLINK", [_, ..]) => Some(Self::Remove(words)),
            _ => None,
        }
    }

    pub fn run(&self, service: &SharedService) -> Result<Reply> {
        match *self {
            Self::Get(name) => {
                let mut values = service.load(vec![name.clone()])?;
                Ok(values.pop().unwrap_or(Reply::Null))
            }
            Self::GetMany(names) => service.load(names.to_vec()).map(Reply::Array),
            Self::Set(pair) => service.store([pair]).map(|()| Reply::Simple("OK")),
            Self::SetMany(pairs) => {
                let pairs = pairs.iter().map(|[name, value]| [&name[..], value]);
                service.store(pairs).map(|()| Reply::Simple("OK"))
            }
            Self::SetWith(pair, options) => {
                let is_stored = service.store_with(pair, &options)?;
                Ok(if is_stored { Reply::Simple("OK") } else { Reply::Null })
            }
            Self::SetNew(pair) => {
                let options = SetOptions { wanted: Some(false), ..SetOptions::default() };
                Ok(Reply::Integer(service.store_with(pair, &options)?.into()))
            }
            Self::Remove(names) => service.remove(names).map(Reply::count),
        }
    }

    /// The same for a command that has the gateway for itself.
    pub fn run_alone(&self, values: &mut Values<'_>) -> Result<Reply> {
        let plain = SetOptions::default();
        match *self {
            Self::Get(name) => values.get(name),
            Self::GetMany(names) => values.get_many(names),
            Self::Set([name, value]) => values.set(name, value, &plain),
            Self::SetMany(pairs) => values.set_many(pairs),
            Self::SetWith([name, value], options) => values.set(name, value, &options),
            Self::SetNew([name, value]) => {
                let is_new = values.find(name).is_none();
                let options = SetOptions { wanted: Some(false), ..plain };
                values.set(name, value, &options)?;
                Ok(Reply::Integer(is_new.into()))
            }
            Self::Remove(names) => {
                let mut removed = 0;
                for name in names {
                    removed += usize::from(values.remove(name)?);
                }
                Ok(Reply::count(removed))
            }
        }
    }
}

/// Pipelined commands that are sent to the gateway together.
pub enum Group<'a> {
    Get(Vec<&'a Vec<u8>>),
    Set(Vec<[&'a [u8]; 2]>),
}

impl<'a> Group<'a> {
    /// As many of these commands, from the first on, as are sent together, if there are two or
    /// more: GET, or SET without options and of allowed length.
    pub fn take(commands: &'a [Command], service: &SharedService) -> Option<Self> {
        let first = groupable(commands.first()?)?;
        let is_alike = |command: &SharedCommand<'a>| discriminant(command) == discriminant(&first);
        let alike = commands.iter().map_while(|command| groupable(command).filter(is_alike));
        let group = service.front.inspect(|gateway| {
            // At a constant rate each block takes its own tick, and other connections should not
            // wait for all.
            if gateway.next_tick().is_some() {
                return None;
            }
            if matches!(first, SharedCommand::Set(_)) {
                let pair = |command| match command {
                    SharedCommand::Set(pair) => Some(pair),
                    _ => None,
                };
                return Some(Self::Set(alike.map_while(pair).collect()));
            }
            // Replies are kept until all have arrived.
            let mut room = REPLIES_LEN as u64;
            let name = |command| match command {
                SharedCommand::Get(name) => {
                    let len = gateway.find(Namespace::Values, name).map_or(0, Object::len);
                    room.checked_sub(len).map(|left| {
                        room = left;
                        name
                    })
                }
                _ => None,
            };
            Some(Self::Get(alike.map_while(name).collect()))
        });
        group.filter(|group| group.len() > 1)
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Get(names) => names.len(),
            Self::Set(pairs) => pairs.len(),
        }
    }

    /// A reply to each command.
    pub fn run(&self, service: &SharedService) -> Result<Vec<Reply>> {
        let pairs = match self {
            Self::Get(names) => return service.load(names.iter().copied().cloned().collect()),
            Self::Set(pairs) => pairs,
        };
        match service.store(pairs.iter().copied()) {
            Ok(()) => Ok(vec![Reply::Simple("OK"); pairs.len()]),
            // There may be room for some of them.
            Err(Error::Full { .. }) => {
                let set = |pair: &[&[u8]; 2]| {
                    service.store([*pair]).map_or_else(Reply::from, |()| Reply::Simple("OK"))
                };
                Ok(pairs.iter().map(set).collect())
            }
            Err(error) => Err(error),
        }
    }
}

/// A command that may be in a group.
fn groupable(command: &Command) -> Option<SharedCommand<'_>> {
    let [name, words @ ..] = &command[..] else { return None };
    let command = SharedCommand::parse(&name.to_ascii_uppercase(), words, 0)?;
    match command {
        SharedCommand::Get(_) => Some(command),
        SharedCommand::Set([name, value]) => {
            (name.len() <= NAME_LEN_MAX && value.len() <= VALUE_LEN_MAX).then_some(command)
        }
        _ => None,
    }
}
