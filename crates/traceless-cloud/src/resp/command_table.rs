//! Which commands there are, in which categories, and which of their words are names of values.
//!
//! Categories and accesses are as in Redis 7. A command that is missing here is refused to each
//! user that may not run all commands.

use super::protocol::Command;

/// All categories.
pub const CATEGORIES: [&str; 10] = [
    "keyspace",
    "read",
    "write",
    "string",
    "fast",
    "slow",
    "connection",
    "admin",
    "dangerous",
    "transaction",
];

/// A command.
pub struct CommandRow {
    /// In lower case; with a bar before its first word, if it has a row of its own.
    pub name: &'static str,
    categories: &'static str,
    names: NameWords,
    access: NameAccess,
}

/// Which words of a command are names of values.
#[derive(Clone, Copy)]
enum NameWords {
    None,
    First,
    All,
    /// Each second word, from the first on.
    Pairs,
}

/// What a command does with the values of its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameAccess {
    pub is_read: bool,
    pub is_write: bool,
}

/// Neither: a user needs any right on the names.
const SEES: NameAccess = NameAccess { is_read: false, is_write: false };
const READS: NameAccess = NameAccess { is_read: true, is_write: false };
const WRITES: NameAccess = NameAccess { is_read: false, is_write: true };
const CHANGES: NameAccess = NameAccess { is_read: true, is_write: true };

/// All commands. There are at most 64: rights are bits.
pub const ROWS: [CommandRow; 51] = {
    use NameWords::{All, First, None, Pairs};
    [
        row("get", "read string fast", First, READS),
        row("mget", "read string fast", All, READS),
        row("strlen", "read string fast", First, SEES),
        row("set", "write string slow", First, WRITES),
        row("setnx", "write string fast", First, WRITES),
        row("setex", "write string slow", First, WRITES),
        row("psetex", "write string slow", First, WRITES),
        row("mset", "write string slow", Pairs, WRITES),
        row("append", "write string fast", First, WRITES),
        row("getset", "write string fast", First, CHANGES),
        row("getdel", "write string fast", First, CHANGES),
        row("getex", "write string fast", First, CHANGES),
        row("incr", "write string fast", First, CHANGES),
        row("incrby", "write string fast", First, CHANGES),
        row("decr", "write string fast", First, CHANGES),
        row("decrby", "write string fast", First, CHANGES),
        row("del", "keyspace write slow", All, WRITES),
        row("unlink", "keyspace write fast", All, WRITES),
        row("exists", "keyspace read fast", All, SEES),
        row("touch", "keyspace read fast", All, SEES),
        row("type", "keyspace read fast", First, SEES),
        row("ttl", "keyspace read fast", First, READS),
        row("pttl", "keyspace read fast", First, READS),
        row("expiretime", "keyspace read fast", First, READS),
        row("pexpiretime", "keyspace read fast", First, READS),
        row("expire", "keyspace write fast", First, WRITES),
        row("pexpire", "keyspace write fast", First, WRITES),
        row("expireat", "keyspace write fast", First, WRITES),
        row("pexpireat", "keyspace write fast", First, WRITES),
        row("persist", "keyspace write fast", First, WRITES),
        row("dbsize", "keyspace read fast", None, SEES),
        row("scan", "keyspace read slow", None, SEES),
        row("keys", "keyspace read slow dangerous", None, SEES),
        row("multi", "fast transaction", None, SEES),
        row("exec", "slow transaction", None, SEES),
        row("discard", "fast transaction", None, SEES),
        row("watch", "fast transaction", All, SEES),
        row("unwatch", "fast transaction", None, SEES),
        row("ping", "fast connection", None, SEES),
        row("echo", "fast connection", None, SEES),
        row("select", "fast connection", None, SEES),
        row("client", "slow connection", None, SEES),
        row("command", "slow connection", None, SEES),
        row("auth", "fast connection", None, SEES),
        row("hello", "fast connection", None, SEES),
        row("quit", "fast connection", None, SEES),
        row("info", "slow dangerous", None, SEES),
        row("config", "admin slow dangerous", None, SEES),
        row("acl", "admin slow dangerous", None, SEES),
        row("acl|whoami", "slow", None, SEES),
        row("acl|cat", "slow", None, SEES),
    ]
};

const fn row(
    name: &'static str,
    categories: &'static str,
    names: NameWords,
    access: NameAccess,
) -> CommandRow {
    CommandRow { name, categories, names, access }
}

impl CommandRow {
    /// The row of a command, and its index.
    pub fn of(command: &Command) -> Option<(usize, &'static Self)> {
        let [name, words @ ..] = &command[..] else { return None };
        let is_part = |row: &Self| {
            let parts = row.name.split_once('|').zip(words.first());
            parts.is_some_and(|((whole, part), word)| {
                name.eq_ignore_ascii_case(whole.as_bytes())
                    && word.eq_ignore_ascii_case(part.as_bytes())
            })
        };
        let find =
            |fits: &dyn Fn(&Self) -> bool| ROWS.iter().enumerate().find(|(_, row)| fits(row));
        find(&is_part).or_else(|| find(&|row| name.eq_ignore_ascii_case(row.name.as_bytes())))
    }

    /// Whether clients may run it before they are known.
    pub fn is_free(&self) -> bool {
        ["auth", "hello", "quit"].contains(&self.name)
    }

    /// Whether it is in a category; all commands are in `all`.
    pub fn is_in(&self, category: &str) -> bool {
        category == "all" || self.categories.split(' ').any(|own| own == category)
    }

    /// Whether it is a command of this name, or a part of it.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
    }

    /// The names of values among the words of a command.
    pub fn names<'c>(&self, command: &'c Command) -> impl Iterator<Item = &'c Vec<u8>> {
        let (count, step) = match self.names {
            NameWords::None => (0, 1),
            NameWords::First => (1, 1),
            NameWords::All => (usize::MAX, 1),
            NameWords::Pairs => (usize::MAX, 2),
        };
        command.iter().skip(1).step_by(step).take(count)
    }

    /// What a command does with the values of its names.
    pub fn access(&self, command: &Command) -> NameAccess {
        let reads = || command.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"GET"));
        if self.name == "set" && reads() { CHANGES } else { self.access }
    }
}

#[cfg(test)]
mod tests {
    use super::super::value_commands::{TRANSACTION_COMMANDS, changes_what_it_reads, kind_of};
    use super::*;
    use crate::shared::Kind;
    use std::collections::BTreeSet;

    fn command(text: &str) -> Command {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn every_command_has_one_row_with_known_categories() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        for row in &ROWS {
            assert!(row.categories.split(' ').all(|one| CATEGORIES.contains(&one)), "{}", row.name);
            assert!(row.is_in("fast") != row.is_in("slow"), "{}", row.name);
            let kind = kind_of(row.name.to_uppercase().as_bytes());
            assert!(!row.is_in("read") || matches!(kind, Kind::Read | Kind::State), "{}", row.name);
            if changes_what_it_reads(row.name.to_uppercase().as_bytes()) {
                assert!(row.is_in("write"), "{}", row.name);
            }
        }
        for known in TRANSACTION_COMMANDS.split_ascii_whitespace() {
            let name = known.split(':').next().unwrap().to_lowercase();
            assert!(names.contains(&name[..]), "{name}");
        }
    }

    #[test]
    fn names_and_accesses_are_found() {
        let of = |text: &str| {
            let command = command(text);
            let (_, row) = CommandRow::of(&command).unwrap();
            let names = row.names(&command).map(|name| String::from_utf8_lossy(name).into_owned());
            (names.collect::<Vec<_>>().join(" "), row.access(&command))
        };
        assert_eq!(of("GeT a"), ("a".to_owned(), READS));
        assert_eq!(of("MGET a b"), ("a b".to_owned(), READS));
        assert_eq!(of("MSET a 1 b 2"), ("a b".to_owned(), WRITES));
        assert_eq!(of("SET a get"), ("a".to_owned(), WRITES));
        assert_eq!(of("SET a 1 EX 5 get"), ("a".to_owned(), CHANGES));
        assert_eq!(of("EXISTS a b"), ("a b".to_owned(), SEES));
        assert_eq!(of("PING a"), (String::new(), SEES));
        assert!(CommandRow::of(&command("HGET a b")).is_none());
        let name = |text: &str| CommandRow::of(&command(text)).unwrap().1.name;
        assert_eq!(
            (name("ACL whoAMI"), name("acl list"), name("acl")),
            ("acl|whoami", "acl", "acl")
        );
    }
}
