//! Commands on values. The expiry of a value is kept with its name, so reading it, changing it and
//! expiring send no query.

use super::glob::matches;
use super::protocol::{Reply, parse, parse_signed, syntax};
use crate::error::{Error, Result};
use crate::gateway::{Gateway, Namespace, Object, VALUE_LEN_MAX, Value, size_class};
use core::ops::Bound;
use std::collections::BTreeSet;

/// When a value expires, in milliseconds since 1970; `None` if it does not.
fn expiry_of(object: &Object) -> Option<u64> {
    expiry_in(object.note())
}

fn expiry_in(note: &[u8]) -> Option<u64> {
    note.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// The note of a value that expires at a time.
pub fn note_of(expiry: Option<u64>) -> Vec<u8> {
    expiry.map_or_else(Vec::new, |at| at.to_le_bytes().to_vec())
}

/// Names that expire, in order of expiry.
#[derive(Default)]
pub struct Expiries(BTreeSet<(u64, Vec<u8>)>);

impl Expiries {
    /// All expiring names of a gateway.
    pub fn find(gateway: &Gateway) -> Self {
        let names = gateway.names_from(Namespace::Values, Bound::Unbounded);
        let expiring = names.filter_map(|(name, object)| Some((expiry_of(object)?, name.to_vec())));
        Self(expiring.collect())
    }

    /// Whether the first expiry has come.
    pub fn is_due(&self, now: u64) -> bool {
        self.0.first().is_some_and(|(at, _)| *at <= now)
    }

    /// Follows a name: its old object is replaced or removed.
    pub fn follow(&mut self, name: &[u8], old: Option<&Object>, note: &[u8]) {
        if let Some(at) = old.and_then(expiry_of) {
            self.0.remove(&(at, name.to_vec()));
        }
        if let Some(at) = expiry_in(note) {
            self.0.insert((at, name.to_vec()));
        }
    }

    /// How many names expire.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The options of SET.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SetOptions {
    /// Whether the name must exist, or must not.
    pub wanted: Option<bool>,
    /// Whether to return the old value.
    pub get: bool,
    /// When the value expires, in milliseconds since 1970.
    pub expiry: Option<u64>,
    /// Whether the old value's expiry stays.
    pub keeps_expiry: bool,
}

impl SetOptions {
    pub fn parse(mut words: &[Vec<u8>], now: u64) -> Option<Self> {
        let mut options = Self::default();
        while let [option, rest @ ..] = words {
            words = rest;
            match &option.to_ascii_uppercase()[..] {
                b"NX" if options.wanted.is_none() => options.wanted = Some(false),
                b"XX" if options.wanted.is_none() => options.wanted = Some(true),
                b"GET" => options.get = true,
                b"KEEPTTL" if options.expiry.is_none() => options.keeps_expiry = true,
                unit => {
                    let [time, rest @ ..] = words else { return None };
                    words = rest;
                    if options.expiry.is_some() || options.keeps_expiry {
                        return None;
                    }
                    options.expiry = Some(expiry(unit, parse(time).filter(|&n| n > 0)?, now)?);
                }
            }
        }
        Some(options)
    }
}

/// When SETEX and PSETEX let a value expire; `None` if the time is none.
pub fn expiry_after(command: &[u8], time: &[u8], now: u64) -> Option<u64> {
    let unit: &[u8] = if command == b"SETEX" { b"EX" } else { b"PX" };
    expiry(unit, parse(time).filter(|&time| time > 0)?, now)
}

/// An expiry in milliseconds since 1970, from a time in `unit`.
fn expiry(unit: &[u8], time: u64, now: u64) -> Option<u64> {
    match unit {
        b"EX" => time.checked_mul(1000)?.checked_add(now),
        b"PX" => time.checked_add(now),
        b"EXAT" => time.checked_mul(1000),
        b"PXAT" => Some(time),
        _ => None,
    }
}

/// The values of a gateway at one moment.
pub struct Values<'a> {
    pub gateway: &'a mut Gateway,
    pub expiries: &'a mut Expiries,
    pub now: u64,
}

impl Values<'_> {
    /// Removes all expired values, which sends nothing.
    pub fn remove_expired(&mut self) -> Result {
        while self.expiries.0.first().is_some_and(|(at, _)| *at <= self.now) {
            let Some((at, name)) = self.expiries.0.pop_first() else { break };
            if self.find(&name).and_then(expiry_of) == Some(at) {
                self.gateway.unbind(Namespace::Values, &name)?;
            }
        }
        Ok(())
    }

    pub fn find(&self, name: &[u8]) -> Option<&Object> {
        self.gateway.find(Namespace::Values, name)
    }

    pub fn len_of(&self, name: &[u8]) -> usize {
        self.find(name).map_or(0, |object| object.len() as usize)
    }

    /// Up to `count` names after `after`, in order.
    pub fn behind(&self, after: &[u8], count: usize) -> Vec<Vec<u8>> {
        let names = self.gateway.names_from(Namespace::Values, Bound::Excluded(after));
        names.take(count).map(|(name, _)| name.to_vec()).collect()
    }

    pub fn keys(&self, pattern: &[u8]) -> Reply {
        let names = self.gateway.names_from(Namespace::Values, Bound::Unbounded);
        let fitting = names.filter(|(name, _)| matches(pattern, name));
        Reply::Array(fitting.map(|(name, _)| Reply::Bulk(name.to_vec())).collect())
    }

    pub fn get(&mut self, name: &[u8]) -> Result<Reply> {
        Ok(self.gateway.load(name)?.map_or(Reply::Null, Reply::Bulk))
    }

    /// MGET, with an error in the place of a lost value.
    pub fn get_many(&mut self, names: &[Vec<u8>]) -> Result<Reply> {
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let reply = |value: Option<Result<Vec<u8>>>| match value {
            None => Reply::Null,
            Some(Ok(bytes)) => Reply::Bulk(bytes),
            Some(Err(lost)) => lost.into(),
        };
        let values = self.gateway.load_many(&names)?;
        Ok(Reply::Array(values.into_iter().map(reply).collect()))
    }

    /// MSET: all of the values, or none.
    pub fn set_many(&mut self, pairs: &[[Vec<u8>; 2]]) -> Result<Reply> {
        let old: Vec<_> = pairs.iter().map(|[name, _]| self.expiry(name)).collect();
        let values = pairs.iter().map(|[name, bytes]| Value { name, bytes, note: &[] });
        let values: Vec<Value<'_>> = values.collect();
        self.gateway.store_many(&values)?;
        for ([name, _], old) in pairs.iter().zip(old) {
            self.expect(name, old, None);
        }
        Ok(Reply::Simple("OK"))
    }

    /// The value of a name, which is about to be removed or replaced by one of `len` bytes. If it
    /// is lost, nothing of that happens, and as many dummy queries are made.
    fn load(&mut self, name: &[u8], len: usize) -> Result<Option<Vec<u8>>> {
        let loaded = self.gateway.load(name);
        if let Err(Error::Lost { .. }) = loaded {
            let block_len = self.gateway.params().geometry.block_len;
            self.gateway.dummies(size_class(len.div_ceil(block_len).max(1)))?;
        }
        loaded
    }

    pub fn set(&mut self, name: &[u8], value: &[u8], options: &SetOptions) -> Result<Reply> {
        let is_there = self.find(name).is_some();
        let kept = options.keeps_expiry.then(|| self.expiry(name)).flatten();
        let old = if options.get {
            self.load(name, value.len())?.map_or(Reply::Null, Reply::Bulk)
        } else {
            Reply::Null
        };
        if options.wanted.is_some_and(|wanted| wanted != is_there) {
            return Ok(old);
        }
        self.put(name, value, options.expiry.or(kept))?;
        Ok(if options.get { old } else { Reply::Simple("OK") })
    }

    /// GETEX.
    pub fn get_and_expire(&mut self, name: &[u8], rest: &[Vec<u8>]) -> Result<Reply> {
        let persist = matches!(rest, [word] if word.eq_ignore_ascii_case(b"PERSIST"));
        let options = if persist { Some(SetOptions::default()) } else { None };
        let Some(options) = options.or_else(|| SetOptions::parse(rest, self.now)) else {
            return Ok(syntax());
        };
        if options.get || options.keeps_expiry || options.wanted.is_some() {
            return Ok(syntax());
        }
        let value = self.get(name)?;
        if value != Reply::Null && (persist || options.expiry.is_some()) {
            self.set_expiry(name, options.expiry)?;
        }
        Ok(value)
    }

    /// Removes a name. Returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> Result<bool> {
        let at = self.expiry(name);
        let removed = self.gateway.remove(name)?;
        self.expect(name, at, None);
        Ok(removed)
    }

    /// Carries out work that changes all it is to change or, after an error, nothing.
    pub fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut Values<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let Self { gateway, expiries, now } = self;
        let done = gateway.transact(|gateway| work(&mut Values { gateway, expiries, now: *now }));
        if done.is_err() {
            **expiries = Expiries::find(gateway);
        }
        done.map(Some)
    }

    /// GETDEL.
    pub fn get_and_delete(&mut self, name: &[u8]) -> Result<Reply> {
        let value = self.load(name, self.len_of(name))?.map_or(Reply::Null, Reply::Bulk);
        let at = self.expiry(name);
        self.gateway.remove(name)?;
        self.expect(name, at, None);
        Ok(value)
    }

    pub fn append(&mut self, name: &[u8], more: &[u8]) -> Result<Reply> {
        let at = self.expiry(name);
        let mut value = self.load(name, self.len_of(name) + more.len())?.unwrap_or_default();
        value.extend_from_slice(more);
        if value.len() > VALUE_LEN_MAX {
            return Ok(Reply::Error("ERR a value of 64 MiB is the most".to_owned()));
        }
        self.put(name, &value, at)?;
        Ok(Reply::count(value.len()))
    }

    /// INCR and similar commands. `by` is `None` if the command's number was invalid.
    pub fn add(&mut self, name: &[u8], by: Option<i64>) -> Result<Reply> {
        let wrong = "ERR value is not an integer or out of range";
        let at = self.expiry(name);
        let old = match self.load(name, 1)? {
            Some(value) => parse_signed(&value),
            None => Some(0),
        };
        let Some(new) = old.zip(by).and_then(|(old, by)| old.checked_add(by)) else {
            return Ok(Reply::Error(wrong.to_owned()));
        };
        self.put(name, new.to_string().as_bytes(), at)?;
        Ok(Reply::Integer(new))
    }

    /// EXPIRE and similar commands.
    pub fn expire(
        &mut self,
        command: &[u8],
        name: &[u8],
        time: &[u8],
        rest: &[Vec<u8>],
    ) -> Result<Reply> {
        let Some(time) = parse_signed(time) else { return Ok(invalid_expiry()) };
        let ms = if command.starts_with(b"P") { Some(time) } else { time.checked_mul(1000) };
        let at = match ms {
            Some(ms) if command.ends_with(b"AT") => Some(ms),
            Some(ms) => ms.checked_add_unsigned(self.now),
            None => None,
        };
        let Some(at) = at else { return Ok(invalid_expiry()) };
        let Some(old) = self.find(name).map(expiry_of) else { return Ok(Reply::Integer(0)) };
        let at = at.max(0) as u64;
        for option in rest {
            let fits = match &option.to_ascii_uppercase()[..] {
                b"NX" => old.is_none(),
                b"XX" => old.is_some(),
                b"GT" => old.is_some_and(|old| at > old),
                b"LT" => old.is_none_or(|old| at < old),
                _ => return Ok(syntax()),
            };
            if !fits {
                return Ok(Reply::Integer(0));
            }
        }
        self.set_expiry(name, Some(at))?;
        self.remove_expired()?;
        Ok(Reply::Integer(1))
    }

    pub fn persist(&mut self, name: &[u8]) -> Result<Reply> {
        let expires = self.expiry(name).is_some();
        if expires {
            self.set_expiry(name, None)?;
        }
        Ok(Reply::Integer(expires.into()))
    }

    /// TTL and similar commands.
    pub fn time_left(&self, command: &[u8], name: &[u8]) -> i64 {
        let Some(object) = self.find(name) else { return -2 };
        let Some(at) = expiry_of(object) else { return -1 };
        let left = at.saturating_sub(self.now);
        let result = match command {
            b"TTL" => left.div_ceil(1000),
            b"PTTL" => left,
            b"EXPIRETIME" => at.div_ceil(1000),
            _ => at,
        };
        i64::try_from(result).unwrap_or(i64::MAX)
    }

    fn expiry(&self, name: &[u8]) -> Option<u64> {
        self.find(name).and_then(expiry_of)
    }

    fn put(&mut self, name: &[u8], value: &[u8], at: Option<u64>) -> Result {
        let old = self.expiry(name);
        self.gateway.store(name, value, &note_of(at))?;
        self.expect(name, old, at);
        Ok(())
    }

    fn set_expiry(&mut self, name: &[u8], at: Option<u64>) -> Result {
        let old = self.expiry(name);
        self.gateway.note(Namespace::Values, name, &note_of(at))?;
        self.expect(name, old, at);
        Ok(())
    }

    fn expect(&mut self, name: &[u8], old: Option<u64>, at: Option<u64>) {
        if let Some(old) = old {
            self.expiries.0.remove(&(old, name.to_vec()));
        }
        if let Some(at) = at {
            self.expiries.0.insert((at, name.to_vec()));
        }
    }
}

pub fn invalid_expiry() -> Reply {
    Reply::Error("ERR invalid expire time".to_owned())
}
