//! The output of `redis-cli monitor`: each command that a Redis server receives.

use super::{LineError, LineEvent, len_of, nanoseconds, place_of, wire_event};
use traceless_core::trace::{Event, Op};

/// Commands that count as reads; all other commands count as writes. They are the ones that Redis 7
/// flags as read-only (for MEMORY, OBJECT and XINFO, their subcommands that have a key), and
/// commands without keys that change nothing.
const READS: [&str; 93] = [
    "BITCOUNT",
    "BITFIELD_RO",
    "BITPOS",
    "COMMAND",
    "DBSIZE",
    "DUMP",
    "ECHO",
    "EVALSHA_RO",
    "EVAL_RO",
    "EXISTS",
    "EXPIRETIME",
    "FCALL_RO",
    "GEODIST",
    "GEOHASH",
    "GEOPOS",
    "GEORADIUSBYMEMBER_RO",
    "GEORADIUS_RO",
    "GEOSEARCH",
    "GET",
    "GETBIT",
    "GETRANGE",
    "HEXISTS",
    "HEXPIRETIME",
    "HGET",
    "HGETALL",
    "HKEYS",
    "HLEN",
    "HMGET",
    "HPEXPIRETIME",
    "HPTTL",
    "HRANDFIELD",
    "HSCAN",
    "HSTRLEN",
    "HTTL",
    "HVALS",
    "INFO",
    "KEYS",
    "LCS",
    "LINDEX",
    "LLEN",
    "LOLWUT",
    "LPOS",
    "LRANGE",
    "MEMORY",
    "MGET",
    "OBJECT",
    "PEXPIRETIME",
    "PFCOUNT",
    "PING",
    "PTTL",
    "RANDOMKEY",
    "SCAN",
    "SCARD",
    "SDIFF",
    "SINTER",
    "SINTERCARD",
    "SISMEMBER",
    "SMEMBERS",
    "SMISMEMBER",
    "SORT_RO",
    "SRANDMEMBER",
    "SSCAN",
    "STRLEN",
    "SUBSTR",
    "SUNION",
    "TOUCH",
    "TTL",
    "TYPE",
    "XINFO",
    "XLEN",
    "XPENDING",
    "XRANGE",
    "XREAD",
    "XREVRANGE",
    "ZCARD",
    "ZCOUNT",
    "ZDIFF",
    "ZINTER",
    "ZINTERCARD",
    "ZLEXCOUNT",
    "ZMSCORE",
    "ZRANDMEMBER",
    "ZRANGE",
    "ZRANGEBYLEX",
    "ZRANGEBYSCORE",
    "ZRANK",
    "ZREVRANGE",
    "ZREVRANGEBYLEX",
    "ZREVRANGEBYSCORE",
    "ZREVRANK",
    "ZSCAN",
    "ZSCORE",
    "ZUNION",
];

/// Commands with only names of keys as arguments.
const OF_KEYS: [&str; 9] =
    ["DEL", "EXISTS", "MGET", "PFCOUNT", "SDIFF", "SINTER", "SUNION", "TOUCH", "UNLINK"];

/// Commands with keys and values in turn as arguments.
const OF_PAIRS: [&str; 2] = ["MSET", "MSETNX"];

/// Commands with the name of a subcommand as their first argument, and a key as the second.
const WITH_SUBCOMMAND: [&str; 3] = ["MEMORY", "OBJECT", "XINFO"];

/// `SECONDS.MICROSECONDS [DATABASE CLIENT] "COMMAND" "ARGUMENT" ...`
pub fn fits(line: &[u8]) -> bool {
    Command::of(line).is_ok()
}

struct Command<'a> {
    time: u64,
    database: &'a [u8],
    name: String,
    arguments: Vec<Vec<u8>>,
}

impl<'a> Command<'a> {
    fn of(line: &'a [u8]) -> Result<Self, LineError> {
        const FORM: LineError = "it has not the form that redis-cli monitor prints";
        let blank = line.iter().position(|&byte| byte == b' ').ok_or(FORM)?;
        let time = nanoseconds(&line[..blank]).ok_or("it does not begin with a time")?;
        let rest = line[blank + 1..].strip_prefix(b"[").ok_or(FORM)?;
        // An address of IPv6 has brackets of its own.
        let end = rest.windows(2).position(|bytes| bytes == b"] ").ok_or(FORM)?;
        let database = rest[..end].split(|&byte| byte == b' ').next().unwrap_or_default();
        let mut words = words(rest[end + 1..].trim_ascii())?;
        if words.is_empty() {
            return Err("it has no command");
        }
        let arguments = words.split_off(1);
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        Ok(Self { time, database, name, arguments })
    }

    fn is_read(&self) -> bool {
        READS.contains(&self.name.as_str())
    }

    /// The keys that the command touches. Of a command that is in no list above, that is the first
    /// argument, if there is one.
    fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        let name = self.name.as_str();
        let (first, step, most) = if OF_KEYS.contains(&name) {
            (0, 1, usize::MAX)
        } else if OF_PAIRS.contains(&name) {
            (0, 2, usize::MAX)
        } else if WITH_SUBCOMMAND.contains(&name) {
            (1, 1, 1)
        } else {
            (0, 1, 1)
        };
        self.arguments.iter().skip(first).step_by(step).take(most)
    }
}

/// Adds one event for each key, with the length of all arguments; for a command without keys, one
/// event at its name.
pub fn read(line: &[u8], events: &mut Vec<Event>) -> Result<LineEvent, LineError> {
    let command = Command::of(line)?;
    let bytes = command.arguments.iter().map(Vec::len).sum::<usize>();
    let len = len_of(bytes as u64)?;
    let op = if command.is_read() { Op::Read } else { Op::Write };
    let mut push = |parts: &[&[u8]]| {
        events.push(wire_event(command.time, op, place_of(parts), len));
    };
    let mut keys = command.keys().peekable();
    if keys.peek().is_none() {
        push(&[command.name.as_bytes()]);
    }
    for key in keys {
        push(&[command.database, b"/", key]);
    }
    Ok(LineEvent::Events)
}

/// Splits quoted words, and resolves their escapes.
fn words(text: &[u8]) -> Result<Vec<Vec<u8>>, LineError> {
    const OPEN: LineError = "a word has no end";
    let mut words = vec![];
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' => continue,
            b'"' => {}
            _ => return Err("a word does not begin with a quote"),
        }
        let mut word = vec![];
        loop {
            match bytes.next().ok_or(OPEN)? {
                b'"' => break,
                b'\\' => word.push(escaped(&mut bytes).ok_or("an escape is none of Redis")?),
                byte => word.push(byte),
            }
        }
        words.push(word);
    }
    Ok(words)
}

fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    Some(match bytes.next()? {
        byte @ (b'"' | b'\\') => byte,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'x' => {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            (digit()? << 4 | digit()?) as u8
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::super::tests::{invalid_line, ops, read};
    use super::*;

    const LOG: &[u8] = br#"OK
1339518083.107412 [0 127.0.0.1:60866] "SET" "user:1" "a \"b\" \x00\xff\n"
1339518087.877697 [0 127.0.0.1:60866] "get" "user:1"
1339518090.420270 [1 127.0.0.1:60866] "get" "user:1"
1339518096.506257 [0 lua] "mset" "user:1" "x" "user:2" "y"
1339518099.363765 [0 [::1]:6379] "ping"
1339518100.363765 [0 unix:/tmp/s] "del" "user:1" "user:2"
"#;

    #[test]
    fn commands_become_events() {
        assert_eq!(Format::detect(LOG), Some(Format::Redis));
        let (events, error) = read(Format::Redis, LOG);
        assert!(error.is_none(), "{error:?}");
        let key = |name: &[u8]| place_of(&[name]);
        let (first, second) = (key(b"0/user:1"), key(b"0/user:2"));
        assert_eq!(
            ops(&events),
            [
                (Op::Write, first, 6 + 9),
                (Op::Read, first, 6),
                (Op::Read, key(b"1/user:1"), 6),
                (Op::Write, first, 14),
                (Op::Write, second, 14),
                (Op::Read, key(b"PING"), 0),
                (Op::Write, first, 12),
                (Op::Write, second, 12),
            ]
        );
        assert_eq!(events[0].time, 1_339_518_083_107_412_000);
    }

    #[test]
    fn a_key_may_stand_after_a_subcommand_or_another_key() {
        let places = |command: &str| {
            let (events, error) = read(Format::Redis, format!("1.5 [0 a:1] {command}").as_bytes());
            assert!(error.is_none(), "{error:?}");
            events.iter().map(|event| event.at).collect::<Vec<_>>()
        };
        let (a, b) = (place_of(&[b"0/a"]), place_of(&[b"0/b"]));
        assert_eq!(places(r#""object" "encoding" "a""#), [a]);
        assert_eq!(places(r#""memory" "stats""#), [place_of(&[b"MEMORY"])]);
        assert_eq!(places(r#""sinter" "a" "b""#), [a, b]);
        assert_eq!(places(r#""mset" "a" "1" "b" "2""#), [a, b]);
        assert_eq!(places(r#""set" "a" "b""#), [a]);
    }

    #[test]
    fn read_only_commands_are_reads_and_their_writing_forms_are_writes() {
        let is_read = |name: &str| {
            let line = format!("1.5 [0 a:1] \"{name}\" \"k\"");
            Command::of(line.as_bytes()).unwrap().is_read()
        };
        let forms = [
            ("BITFIELD_RO", "BITFIELD"),
            ("eval_ro", "eval"),
            ("EVALSHA_RO", "EVALSHA"),
            ("FCALL_RO", "FCALL"),
            ("GEORADIUS_RO", "GEORADIUS"),
            ("GEORADIUSBYMEMBER_RO", "GEORADIUSBYMEMBER"),
            ("SORT_RO", "SORT"),
            ("GEOSEARCH", "GEOSEARCHSTORE"),
            ("GET", "GETEX"),
            ("PFCOUNT", "PFMERGE"),
            ("SDIFF", "SDIFFSTORE"),
            ("SRANDMEMBER", "SPOP"),
            ("XREAD", "XREADGROUP"),
            ("ZRANGEBYSCORE", "ZRANGESTORE"),
            ("ZUNION", "ZUNIONSTORE"),
        ];
        for (reading, writing) in forms {
            assert!(is_read(reading), "{reading}");
            assert!(!is_read(writing), "{writing}");
        }
        for name in ["HSCAN", "LCS", "LPOS", "OBJECT", "TOUCH", "XINFO", "XREVRANGE", "ZMSCORE"] {
            assert!(is_read(name), "{name}");
        }
        assert!(READS.is_sorted());
    }

    #[test]
    fn invalid_lines_are_reported_by_number() {
        let good = r#"1.5 [0 a:1] "get" "k""#;
        for bad in [
            r#"1 [0 a:1] "get" "k""#,
            r#"1.5 0 a:1 "get" "k""#,
            r#"1.5 [0 a:1 "get" "k""#,
            "1.5 [0 a:1]",
            "1.5 [0 a:1] get k",
            r#"1.5 [0 a:1] "get" "k"#,
            r#"1.5 [0 a:1] "get" "\z""#,
            r#"1.5 [0 a:1] "get" "\x1""#,
            r#"1.5 [0 a:1] "get" "k\"#,
        ] {
            let text = format!("{good}\n{bad}\n");
            assert_eq!(invalid_line(Format::Redis, text.as_bytes()), Some(2), "{bad}");
        }
    }
}
