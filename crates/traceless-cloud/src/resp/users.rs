//! Users of the Redis protocol: their passwords, and which commands they may run on which names.
//!
//! Rights are written as in Redis 7: `on nopass ~key* %R~key* +get -@write`. Channels and selectors
//! are not offered.

use super::Password;
use super::command_table::{CATEGORIES, CommandRow, ROWS};
use super::glob;
use super::protocol::Command;
use crate::codec::hex;
use std::fmt::Write as _;

/// The user of clients that give no name.
pub const DEFAULT: &str = "default";
/// Longest description of a user, in bytes.
const USER_LEN_MAX: usize = 64 << 10;

const UNKNOWN: &str = "Unknown command or category name in ACL";
const SYNTAX: &str = "Syntax error";

/// A user.
#[derive(Clone, Default)]
pub struct RespUser {
    pub is_on: bool,
    /// Whether any password is accepted.
    pub is_open: bool,
    passwords: Vec<Password>,
    patterns: Vec<NamePattern>,
    /// Whether all commands were allowed at first, also ones that are not in the table.
    is_mighty: bool,
    /// A bit for each row of the table of commands.
    allowed: u64,
    /// The rules of commands that made the bits, without ones that later rules replace.
    rules: Vec<String>,
}

/// Names on which a user has rights.
#[derive(Clone, PartialEq, Eq)]
struct NamePattern {
    glob: String,
    is_read: bool,
    is_write: bool,
}

/// Why a command is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The user may not run it.
    Command(String),
    /// The user has no right on one of its names.
    Name,
}

impl RespUser {
    /// A user with all rights, with this password or without any.
    pub fn mighty(password: Option<Password>) -> Self {
        let passwords: Vec<_> = password.into_iter().collect();
        let mut user =
            Self { is_on: true, is_open: passwords.is_empty(), passwords, ..Self::default() };
        for rule in ["~*", "+@all"] {
            user.apply(rule).expect("it is a rule");
        }
        user
    }

    /// Changes the user by a rule. If that fails, nothing is changed.
    pub fn apply(&mut self, rule: &str) -> Result<(), &'static str> {
        let mut changed = self.clone();
        changed.change(rule)?;
        if changed.description().len() > USER_LEN_MAX {
            return Err("A user has at most 64 KiB of passwords and rules");
        }
        *self = changed;
        Ok(())
    }

    /// Whether a password is the user's, in a time that depends on the number of passwords only.
    pub fn knows(&self, password: &[u8]) -> bool {
        // A user without passwords takes as long as one with one.
        let dummy = [Password::of_digest([0; 32])];
        let passwords = if self.passwords.is_empty() { &dummy[..] } else { &self.passwords };
        let fits = passwords.iter().fold(false, |fits, one| fits | one.is(password));
        self.is_on && (fits || self.is_open)
    }

    /// Fails unless the user may run a command.
    pub fn check(&self, command: &Command) -> Result<(), Refusal> {
        let Some((index, row)) = CommandRow::of(command) else {
            let name = String::from_utf8_lossy(&command[0]).to_lowercase();
            return if self.is_mighty { Ok(()) } else { Err(Refusal::Command(name)) };
        };
        if row.is_free() {
            return Ok(());
        }
        if self.allowed & 1 << index == 0 {
            return Err(Refusal::Command(row.name.to_owned()));
        }
        let access = row.access(command);
        let is_allowed = |name: &Vec<u8>| {
            self.patterns.iter().any(|pattern| {
                (pattern.is_read || !access.is_read)
                    && (pattern.is_write || !access.is_write)
                    && glob::matches(pattern.glob.as_bytes(), name)
            })
        };
        if row.names(command).all(is_allowed) { Ok(()) } else { Err(Refusal::Name) }
    }

    /// The rules that make this user of a new one, without a name.
    pub fn description(&self) -> String {
        let mut text = self.flags().join(" ");
        for hash in self.hashes() {
            let _ = write!(text, " #{hash}");
        }
        let names = self.names();
        if !names.is_empty() {
            let _ = write!(text, " {names}");
        }
        let _ = write!(text, " resetchannels {}", self.commands());
        text
    }

    /// Its flags.
    pub fn flags(&self) -> Vec<&'static str> {
        let state = if self.is_on { "on" } else { "off" };
        [Some(state), self.is_open.then_some("nopass")].into_iter().flatten().collect()
    }

    /// The digests of its passwords, in hexadecimal digits.
    pub fn hashes(&self) -> impl Iterator<Item = String> {
        self.passwords.iter().map(|password| hex(password.digest()))
    }

    /// The rules for names.
    pub fn names(&self) -> String {
        let text = |pattern: &NamePattern| match (pattern.is_read, pattern.is_write) {
            (true, true) => format!("~{}", pattern.glob),
            (true, false) => format!("%R~{}", pattern.glob),
            (false, _) => format!("%W~{}", pattern.glob),
        };
        self.patterns.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    /// The rules for commands.
    pub fn commands(&self) -> String {
        let is_all = self.rules.first().is_some_and(|first| first == "+@all");
        let front = (!is_all).then_some("-@all").into_iter();
        let rules: Vec<_> = front.chain(self.rules.iter().map(String::as_str)).collect();
        rules.join(" ")
    }

    fn change(&mut self, rule: &str) -> Result<(), &'static str> {
        let (front, rest) = rule.split_at_checked(1).unwrap_or_default();
        match front {
            ">" => self.add_password(of_text(rest).ok_or(SHORT)?),
            "#" => self.add_password(of_hash(rest)?),
            "<" => return self.remove_password(&of_text(rest).ok_or(NO_PASSWORD)?),
            "!" => return self.remove_password(&of_hash(rest)?),
            "~" => return self.add_pattern(rest, true, true),
            "%" => return self.add_access(rest),
            "+" | "-" => return self.change_commands(rest, front == "+"),
            // There are no channels.
            "&" => {}
            _ => return self.change_by_word(&rule.to_ascii_lowercase()),
        }
        Ok(())
    }

    fn change_by_word(&mut self, word: &str) -> Result<(), &'static str> {
        match word {
            "on" => self.is_on = true,
            "off" => self.is_on = false,
            "nopass" => (self.is_open, self.passwords) = (true, Vec::new()),
            "resetpass" => (self.is_open, self.passwords) = (false, Vec::new()),
            "allkeys" => return self.add_pattern("*", true, true),
            "resetkeys" => self.patterns.clear(),
            "allcommands" => return self.change_commands("@all", true),
            "nocommands" => return self.change_commands("@all", false),
            "reset" => *self = Self::default(),
            "allchannels" | "resetchannels" | "sanitize-payload" | "skip-sanitize-payload" => {}
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    fn add_password(&mut self, password: Password) {
        self.is_open = false;
        if self.passwords.iter().all(|known| known.digest() != password.digest()) {
            self.passwords.push(password);
        }
    }

    fn remove_password(&mut self, password: &Password) -> Result<(), &'static str> {
        let before = self.passwords.len();
        self.passwords.retain(|known| known.digest() != password.digest());
        if self.passwords.len() < before { Ok(()) } else { Err(NO_PASSWORD) }
    }

    fn add_access(&mut self, rule: &str) -> Result<(), &'static str> {
        let (access, glob) = rule.split_once('~').ok_or(SYNTAX)?;
        let access = access.to_ascii_uppercase();
        let is_known = !access.is_empty() && access.chars().all(|one| "RW".contains(one));
        if !is_known {
            return Err(SYNTAX);
        }
        self.add_pattern(glob, access.contains('R'), access.contains('W'))
    }

    fn add_pattern(
        &mut self,
        glob: &str,
        is_read: bool,
        is_write: bool,
    ) -> Result<(), &'static str> {
        if glob.contains(|c: char| c.is_whitespace() || c == '\0') {
            return Err(SYNTAX);
        }
        let pattern = NamePattern { glob: glob.to_owned(), is_read, is_write };
        if !self.patterns.contains(&pattern) {
            self.patterns.push(pattern);
        }
        Ok(())
    }

    fn change_commands(&mut self, subject: &str, is_allowed: bool) -> Result<(), &'static str> {
        let subject = subject.to_ascii_lowercase();
        let category = subject.strip_prefix('@');
        if category.is_some_and(|one| one != "all" && !CATEGORIES.contains(&one)) {
            return Err(UNKNOWN);
        }
        let is_meant = |row: &CommandRow| match category {
            Some(category) => row.is_in(category),
            None => row.is_named(&subject),
        };
        let meant = ROWS.iter().enumerate().filter(|(_, row)| is_meant(row));
        let bits = meant.fold(0, |bits, (index, _)| bits | 1 << index);
        if bits == 0 {
            return Err(UNKNOWN);
        }
        self.allowed = if is_allowed { self.allowed | bits } else { self.allowed & !bits };
        if category == Some("all") {
            self.is_mighty = is_allowed;
            self.rules = if is_allowed { vec!["+@all".to_owned()] } else { Vec::new() };
            return Ok(());
        }
        self.rules.retain(|rule| rule[1..] != subject);
        self.rules.push(format!("{}{subject}", if is_allowed { '+' } else { '-' }));
        Ok(())
    }
}

const NO_PASSWORD: &str = "The password you are trying to remove from the user does not exist";

const SHORT: &str = "A password has at least 8 bytes";

fn of_text(password: &str) -> Option<Password> {
    Password::new(password.as_bytes()).ok()
}

fn of_hash(digits: &str) -> Result<Password, &'static str> {
    const WRONG: &str = "The password hash must be exactly 64 characters and contain only \
        lowercase hexadecimal characters";
    let is_hash = digits.bytes().all(|one| one.is_ascii_digit() || (b'a'..=b'f').contains(&one));
    let mut digest = [0; 32];
    if digits.len() != 2 * digest.len() || !is_hash {
        return Err(WRONG);
    }
    for (byte, pair) in digest.iter_mut().zip(digits.as_bytes().as_chunks::<2>().0) {
        let pair = core::str::from_utf8(pair).map_err(|_| WRONG)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| WRONG)?;
    }
    Ok(Password::of_digest(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(rules: &str) -> RespUser {
        let mut user = RespUser::default();
        for rule in rules.split_whitespace() {
            user.apply(rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
        }
        user
    }

    fn check(user: &RespUser, text: &str) -> Result<(), Refusal> {
        user.check(&text.split(' ').map(|word| word.as_bytes().to_vec()).collect())
    }

    fn may(rules: &str, text: &str) -> bool {
        check(&user(rules), text).is_ok()
    }

    #[test]
    fn commands_are_allowed_by_name_and_category() {
        assert!(!may("~*", "GET a") && may("~* +get", "GET a") && !may("~* +get", "SET a 1"));
        assert!(may("~* +@read", "MGET a b") && !may("~* +@read -mget", "MGET a b"));
        assert!(may("~* +@all -@dangerous", "GET a") && !may("~* +@all -@dangerous", "KEYS *"));
        assert!(may("+acl", "ACL WHOAMI") && may("+acl|whoami", "acl whoami"));
        assert!(!may("+acl|whoami", "ACL LIST") && !may("+acl -acl|whoami", "ACL WHOAMI"));
        assert!(may("~* ALLCOMMANDS nocommands +get", "get a"));
        assert!(may("+@all", "HSET a b c") && !may("+@all -@all +@read", "HSET a b c"));
        for free in ["AUTH x", "HELLO 3", "QUIT"] {
            assert!(may("-@all", free));
        }
        let refused = check(&user("~*"), "GET a").unwrap_err();
        assert_eq!(refused, Refusal::Command("get".to_owned()));
    }

    #[test]
    fn names_are_allowed_by_pattern_and_access() {
        let rules = "+@all ~own:* %R~read:? %W~log:*";
        assert!(
            may(rules, "SET own:1 x") && may(rules, "GET read:1") && may(rules, "APPEND log:1 x")
        );
        for text in [
            "GET other",
            "GET log:1",
            "SET read:1 x",
            "SET log:1 x GET",
            "INCR log:1",
            "MGET own:1 log:1",
            "MSET own:1 x read:1 y",
            "DEL own:1 read:1",
            "EXISTS own:1 other",
            "WATCH other",
        ] {
            assert_eq!(check(&user(rules), text), Err(Refusal::Name), "{text}");
        }
        assert!(may(rules, "EXISTS own:1 log:1 read:1") && may(rules, "KEYS *"));
        assert!(!may("+@all ~a resetkeys ~b", "GET a"));
    }

    #[test]
    fn passwords_are_added_and_removed() {
        let digest = hex(Password::new(b"open sesame").unwrap().digest());
        let mut known = user(&format!("on #{digest} >another-one"));
        assert!(known.knows(b"open sesame") && known.knows(b"another-one"));
        assert!(!known.knows(b"open sesam") && !known.knows(b""));
        known.apply("<another-one").unwrap();
        assert!(!known.knows(b"another-one") && known.apply("<another-one").is_err());
        known.apply(&format!("!{digest}")).unwrap();
        assert!(!known.knows(b"open sesame"));
        assert!(user("on nopass").knows(b"any") && !user("off nopass").knows(b"any"));
        assert!(!user("on nopass >open-sesame").knows(b"any"));
        assert!(!user("on").knows(b"") && !user("on nopass resetpass").knows(b"any"));
    }

    #[test]
    fn a_description_makes_the_same_user() {
        for rules in [
            "",
            "on nopass ~* +@all",
            "on >open-sesame >another-one ~a* %R~b %W~c %RW~d -@all +@read -get +acl|cat",
            "off +@all -@write +set -set +@write",
            "on +get +@read -get +@read",
        ] {
            let one = user(rules);
            let other = user(&one.description());
            assert_eq!(one.description(), other.description());
            assert_eq!((one.allowed, one.is_mighty), (other.allowed, other.is_mighty), "{rules}");
        }
        let text = user("on nopass ~a %R~b +@read -get").description();
        assert_eq!(text, "on nopass ~a %R~b resetchannels -@all +@read -get");
    }

    #[test]
    fn wrong_rules_change_nothing() {
        let mut known = user("on >open-sesame ~a +get");
        let before = known.description();
        for rule in [
            "",
            "word",
            ">short",
            "#abc",
            "!",
            "+none",
            "-@none",
            "+get|x",
            "%~a",
            "%X~a",
            "%Ra",
            "~a b",
            "(+get ~b)",
        ] {
            assert!(known.apply(rule).is_err(), "{rule}");
        }
        assert!(known.apply(&format!("~{}", "x".repeat(USER_LEN_MAX))).is_err());
        assert_eq!(known.description(), before);
    }
}
