//! Which command does what with values.

use super::info::info;
use super::protocol::{Reply, parse_signed, syntax};
use super::values::{SetOptions, Values, invalid_expiry};
use crate::error::Result;
use crate::gateway::Namespace;
use crate::shared::Kind;

/// Commands on what this server does not have, with blanks between them.
const OTHER_TYPES: [(&str, &str); 8] = [
    (
        "hashes",
        "HDEL HEXISTS HGET HGETALL HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET HRANDFIELD HSCAN \
         HSET HSETNX HSTRLEN HVALS",
    ),
    (
        "lists",
        "BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH LINDEX LINSERT LLEN LMOVE LMPOP LPOP LPOS LPUSH \
         LPUSHX LRANGE LREM LSET LTRIM RPOP RPOPLPUSH RPUSH RPUSHX",
    ),
    (
        "sets",
        "SADD SCARD SDIFF SDIFFSTORE SINTER SINTERCARD SINTERSTORE SISMEMBER SMEMBERS \
         SMISMEMBER SMOVE SPOP SRANDMEMBER SREM SSCAN SUNION SUNIONSTORE",
    ),
    (
        "sorted sets",
        "BZMPOP BZPOPMAX BZPOPMIN ZADD ZCARD ZCOUNT ZDIFF ZDIFFSTORE ZINCRBY ZINTER ZINTERCARD \
         ZINTERSTORE ZLEXCOUNT ZMPOP ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX \
         ZRANGEBYSCORE ZRANGESTORE ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE \
         ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION ZUNIONSTORE",
    ),
    (
        "streams",
        "XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO XLEN XPENDING XRANGE XREAD XREADGROUP \
         XREVRANGE XTRIM",
    ),
    (
        "positions",
        "GEOADD GEODIST GEOHASH GEOPOS GEORADIUS GEORADIUSBYMEMBER GEOSEARCH GEOSEARCHSTORE",
    ),
    (
        "channels",
        "PSUBSCRIBE PUBLISH PUBSUB PUNSUBSCRIBE SPUBLISH SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE \
         UNSUBSCRIBE",
    ),
    ("scripts", "EVAL EVALSHA EVALSHA_RO EVAL_RO FCALL FCALL_RO FUNCTION SCRIPT"),
];

/// Whether a command reads a value and then changes it: it has the gateway for itself. No other
/// command here sends queries, so it runs beside the queries of other clients.
///
/// Two clients that change one value would have to wait for each other, or to try again, and the
/// host would observe that their names are equal.
pub fn changes_what_it_reads(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 9] =
        [b"APPEND", b"DECR", b"DECRBY", b"GETDEL", b"GETEX", b"GETSET", b"INCR", b"INCRBY", b"SET"];
    NAMES.contains(&name)
}

impl Values<'_> {
    /// The reply to a command of a name in upper case.
    pub fn answer(&mut self, name: &[u8], words: &[Vec<u8>]) -> Result<Reply> {
        match (name, words) {
            (b"SET", [name, value, rest @ ..]) => match SetOptions::parse(rest, self.now) {
                Some(options) => self.set(name, value, &options),
                None => Ok(syntax()),
            },
            // With a time that is one they are shared commands.
            (b"SETEX" | b"PSETEX", [_, _, _]) => Ok(invalid_expiry()),
            (b"GETSET", [name, value]) => {
                self.set(name, value, &SetOptions { get: true, ..SetOptions::default() })
            }
            (b"GETDEL", [name]) => self.get_and_delete(name),
            (b"GETEX", [name, rest @ ..]) => self.get_and_expire(name, rest),
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
            _ => Ok(refusal(name)),
        }
    }
}

/// Commands that transactions may have, with the number of words; `+` for more of them.
pub const TRANSACTION_COMMANDS: &str = "APPEND:2 DBSIZE:0 DECR:1 DECRBY:2 DEL:1+ ECHO:1 EXISTS:1+ \
    EXPIRE:2+ EXPIREAT:2+ EXPIRETIME:1 GET:1 GETDEL:1 GETEX:1+ GETSET:2 INCR:1 INCRBY:2 INFO:0+ \
    MGET:1+ MSET:2+ PERSIST:1 PEXPIRE:2+ PEXPIREAT:2+ PEXPIRETIME:1 PING:0+ PSETEX:3 PTTL:1 \
    SET:2+ SETEX:3 SETNX:2 STRLEN:1 TOUCH:1+ TTL:1 TYPE:1 UNLINK:1+ UNWATCH:0";

/// Whether transactions may have a command, with so many words behind its name.
pub fn is_known(name: &[u8], words: usize) -> bool {
    TRANSACTION_COMMANDS.split_ascii_whitespace().any(|command| {
        let (known, count) = command.split_once(':').unwrap_or((command, "0"));
        let (least, has_more) = (count.trim_end_matches('+'), count.ends_with('+'));
        let least: usize = least.parse().unwrap_or(usize::MAX);
        known.as_bytes() == name && (words == least || (has_more && words > least))
    })
}

/// The reply to a command that this server does not have, or has with other words.
pub fn refusal(name: &[u8]) -> Reply {
    let name = String::from_utf8_lossy(&name[..name.len().min(64)]);
    let other =
        OTHER_TYPES.iter().find(|(_, commands)| commands.split(' ').any(|command| command == name));
    Reply::Error(match other {
        Some((what, _)) => {
            format!("ERR '{name}' is refused: this server has no {what}, only strings")
        }
        None => format!("ERR unknown command or wrong arguments: '{name}'"),
    })
}

/// What a command counts as in the metrics.
pub fn kind_of(name: &[u8]) -> Kind {
    match name {
        b"GET" | b"MGET" | b"GETEX" => Kind::Read,
        b"SET" | b"SETNX" | b"SETEX" | b"PSETEX" | b"GETSET" | b"MSET" | b"APPEND" | b"INCR"
        | b"DECR" | b"INCRBY" | b"DECRBY" => Kind::Write,
        b"DEL" | b"UNLINK" | b"GETDEL" => Kind::Remove,
        _ => Kind::State,
    }
}
