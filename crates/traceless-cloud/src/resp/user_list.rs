//! All users, which may come from a file and be written there.

use super::Password;
use super::users::{DEFAULT, RespUser};
use crate::durable::write_private;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most users.
const USERS_MAX: usize = 10_000;
/// Longest name of a user, in bytes.
const NAME_LEN_MAX: usize = 256;

/// A user, and a number that no other user has: a user that is removed and made again is another.
#[derive(Clone)]
pub struct ListedUser {
    pub number: u64,
    pub user: Arc<RespUser>,
}

/// All users.
pub struct RespUsers {
    state: Mutex<UserState>,
    path: Option<PathBuf>,
}

struct UserState {
    users: BTreeMap<String, ListedUser>,
    next: u64,
    /// Whether users may have no password: no network reaches the server.
    may_be_open: bool,
}

impl RespUsers {
    /// The default user alone, with all rights, with this password or without any.
    pub fn of_default(password: Option<Password>) -> Self {
        Self::new([(DEFAULT.to_owned(), RespUser::mighty(password))].into(), None)
    }

    /// Users of a file: on each line `user NAME RULE...`; `#` begins a remark. A default user that
    /// the file does not name is off.
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Self::new(parse(&std::fs::read_to_string(path)?)?, Some(path.to_owned())))
    }

    /// Whether each user that is on has a password.
    pub fn have_passwords(&self) -> bool {
        self.state().users.values().all(|one| is_closed(&one.user))
    }

    /// Allows users without a password, or not: they must not be where a network reaches them.
    pub fn allow_open(&self, is_allowed: bool) {
        self.state().may_be_open = is_allowed;
    }

    /// A user.
    pub fn get(&self, name: &str) -> Option<ListedUser> {
        self.state().users.get(name).cloned()
    }

    /// All names and users, in order.
    pub fn all(&self) -> Vec<(String, Arc<RespUser>)> {
        let state = self.state();
        state.users.iter().map(|(name, one)| (name.clone(), one.user.clone())).collect()
    }

    /// The user of this name and password.
    pub fn authenticate(&self, name: &str, password: &[u8]) -> Option<ListedUser> {
        let known = self.get(name);
        // A name that is missing takes as long as one with another password.
        let user = known.as_ref().map(|one| one.user.clone()).unwrap_or_default();
        if user.knows(password) { known } else { None }
    }

    /// Makes or changes a user. If a rule is wrong nothing is changed.
    pub fn set(&self, name: &str, rules: &[&str]) -> core::result::Result<(), String> {
        let mut state = self.state();
        let known = state.users.get(name).cloned();
        if known.is_none() && state.users.len() == USERS_MAX {
            return Err("ERR there are 10000 users at most".to_owned());
        }
        if name.is_empty() || name.len() > NAME_LEN_MAX || name.contains(char::is_whitespace) {
            return Err("ERR Usernames can't contain spaces or null characters".to_owned());
        }
        let mut user = known.as_ref().map(|one| (*one.user).clone()).unwrap_or_default();
        for rule in rules {
            user.apply(rule).map_err(|error| in_modifier(rule, error))?;
        }
        if !state.may_be_open && !is_closed(&user) {
            return Err(in_modifier("nopass", OPEN));
        }
        let number = known.map_or(state.next, |one| one.number);
        state.next += 1;
        state.users.insert(name.to_owned(), ListedUser { number, user: Arc::new(user) });
        Ok(())
    }

    /// Removes users, but not the default one. Returns how many there were.
    pub fn remove(&self, names: &[&str]) -> usize {
        let mut state = self.state();
        names
            .iter()
            .filter(|name| **name != DEFAULT && state.users.remove(**name).is_some())
            .count()
    }

    /// Reads the file again, as a whole or not at all. A user that it changes gets a new number.
    pub fn load(&self) -> Result<()> {
        let path = self.path.as_deref().ok_or(NO_FILE)?;
        let read = parse(&std::fs::read_to_string(path)?)?;
        let mut state = self.state();
        if !state.may_be_open && !read.values().all(is_closed) {
            return Err(Error::Parameters(OPEN));
        }
        let mut users = BTreeMap::new();
        for (name, user) in read {
            let known = state.users.get(&name);
            let known = known.filter(|one| one.user.description() == user.description());
            let number = known.map_or(state.next, |one| one.number);
            state.next += 1;
            users.insert(name, ListedUser { number, user: Arc::new(user) });
        }
        state.users = users;
        Ok(())
    }

    /// Writes all users to the file, which only its owner may read.
    pub fn save(&self) -> Result<()> {
        let path = self.path.as_deref().ok_or(NO_FILE)?;
        let line = |(name, user): (String, Arc<RespUser>)| user_line(&name, &user) + "\n";
        let text: String = self.all().into_iter().map(line).collect();
        write_private(path, text.as_bytes())
    }

    fn new(users: BTreeMap<String, RespUser>, path: Option<PathBuf>) -> Self {
        let listed = users
            .into_iter()
            .zip(0..)
            .map(|((name, user), number)| (name, ListedUser { number, user: Arc::new(user) }));
        let users: BTreeMap<_, _> = listed.collect();
        let next = users.len() as u64;
        Self { state: Mutex::new(UserState { users, next, may_be_open: false }), path }
    }

    fn state(&self) -> MutexGuard<'_, UserState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A user as a line of the file.
pub fn user_line(name: &str, user: &RespUser) -> String {
    format!("user {name} {}", user.description())
}

const OPEN: &str = "A network reaches this server, so each user needs a password, or is off";
const NO_FILE: Error = Error::Parameters("this server has no file of users; give --resp-users");

fn is_closed(user: &RespUser) -> bool {
    !user.is_on || !user.is_open
}

fn in_modifier(rule: &str, error: &str) -> String {
    // What a password was is not repeated.
    let shown = if rule.starts_with(['>', '<']) { "(password)" } else { rule };
    format!("ERR Error in ACL SETUSER modifier '{shown}': {error}")
}

fn parse(text: &str) -> Result<BTreeMap<String, RespUser>> {
    const WRONG: Error = Error::Parameters("a line of the file of users is `user NAME RULE...`");
    let mut users = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some("user"), Some(name)) = (words.next(), words.next()) else { return Err(WRONG) };
        let mut user = RespUser::default();
        for rule in words {
            user.apply(rule).map_err(Error::Parameters)?;
        }
        if name.len() > NAME_LEN_MAX || users.insert(name.to_owned(), user).is_some() {
            return Err(Error::Parameters("a user is in the file of users twice"));
        }
    }
    if users.len() > USERS_MAX {
        return Err(Error::Parameters("there are 10000 users at most"));
    }
    users.entry(DEFAULT.to_owned()).or_default();
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn users_come_from_a_file_and_are_written_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::fs::write(&path, "# remark\n\nuser ann on >open-sesame ~* +@all\n").unwrap();
        let users = RespUsers::read(&path).unwrap();
        assert!(users.have_passwords());
        assert!(users.authenticate("ann", b"open-sesame").is_some());
        assert!(users.authenticate("ann", b"open-sesam").is_none());
        assert!(users.authenticate("bob", b"").is_none());
        assert!(users.authenticate(DEFAULT, b"").is_none());
        users.set("bob", &["on", ">another-one", "~b*", "+get"]).unwrap();
        let (ann, bob) = (users.get("ann").unwrap(), users.get("bob").unwrap());
        users.save().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("another-one") && text.lines().count() == 3, "{text}");
        std::fs::write(&path, text.replace("~b*", "~c*")).unwrap();
        users.load().unwrap();
        assert_eq!(users.get("ann").unwrap().number, ann.number);
        assert_ne!(users.get("bob").unwrap().number, bob.number);
        assert!(users.authenticate("bob", b"another-one").is_some());
        for wrong in ["ann on", "user", "user a on x", "user a on\nuser a on"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(users.load().is_err() && RespUsers::read(&path).is_err(), "{wrong}");
        }
        assert_eq!(users.all().len(), 3);
        assert!(RespUsers::of_default(None).save().is_err());
    }

    #[test]
    fn a_network_reaches_no_user_without_a_password() {
        let users = RespUsers::of_default(Some(Password::new(b"open sesame").unwrap()));
        assert!(users.have_passwords() && !RespUsers::of_default(None).have_passwords());
        assert!(users.set("ann", &["on", "nopass"]).unwrap_err().contains("A network reaches"));
        assert!(users.set("ann", &["nopass"]).is_ok());
        assert!(users.set("ann", &["on"]).is_err());
        users.allow_open(true);
        assert!(users.set("ann", &["on"]).is_ok() && !users.have_passwords());
    }

    #[test]
    fn a_user_that_is_made_again_has_another_number() {
        let users = RespUsers::of_default(None);
        users.set("ann", &["off"]).unwrap();
        let first = users.get("ann").unwrap().number;
        users.set("ann", &["+get"]).unwrap();
        assert_eq!(users.get("ann").unwrap().number, first);
        assert_eq!(users.remove(&["ann", "none", DEFAULT]), 1);
        users.set("ann", &[]).unwrap();
        assert_ne!(users.get("ann").unwrap().number, first);
        let wrong = users.set("ann", &["+get", ">short"]).unwrap_err();
        assert!(wrong.contains("(password)") && !wrong.contains("short'"), "{wrong}");
        for name in ["", "a b", "a\n"] {
            assert!(users.set(name, &[]).is_err());
        }
    }
}
