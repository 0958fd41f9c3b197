//! The command ACL.

use super::command_table::{CATEGORIES, ROWS};
use super::protocol::Reply;
use super::user_list::{RespUsers, user_line};
use super::users::{DEFAULT, RespUser};

/// The reply to ACL with these words, to a client that is known as `client`.
pub fn acl(words: &[Vec<u8>], client: &str, users: &RespUsers) -> Reply {
    let texts: Option<Vec<&str>> =
        words.iter().map(|word| core::str::from_utf8(word).ok()).collect();
    let Some(texts) = texts else { return error("ERR users and rules are text in UTF-8") };
    let [verb, rest @ ..] = &texts[..] else { return wrong("") };
    match (&verb.to_ascii_uppercase()[..], rest) {
        ("WHOAMI", []) => bulk(client),
        ("USERS", []) => texts_of(users.all().into_iter().map(|(name, _)| name)),
        ("LIST", []) => {
            texts_of(users.all().into_iter().map(|(name, user)| user_line(&name, &user)))
        }
        ("GETUSER", [name]) => users.get(name).map_or(Reply::Null, |one| described(&one.user)),
        ("SETUSER", [name, rules @ ..]) => match users.set(name, rules) {
            Ok(()) => {
                tracing::info!(protocol = "resp", "a user was set");
                Reply::Simple("OK")
            }
            Err(text) => Reply::Error(text),
        },
        ("DELUSER", names @ [_, ..]) if names.contains(&DEFAULT) => {
            error("ERR The 'default' user cannot be removed")
        }
        ("DELUSER", names @ [_, ..]) => Reply::count(users.remove(names)),
        ("CAT", []) => texts_of(CATEGORIES.map(str::to_owned)),
        ("CAT", [category]) => {
            let category = category.to_ascii_lowercase();
            if !CATEGORIES.contains(&&category[..]) {
                return Reply::Error(format!("ERR Unknown category '{category}'"));
            }
            texts_of(ROWS.iter().filter(|row| row.is_in(&category)).map(|row| row.name.to_owned()))
        }
        ("LOAD", []) => done(users.load()),
        ("SAVE", []) => done(users.save()),
        _ => wrong(verb),
    }
}

fn described(user: &RespUser) -> Reply {
    let flags = user.flags().into_iter().map(str::to_owned);
    Reply::Map(vec![
        bulk("flags"),
        texts_of(flags),
        bulk("passwords"),
        texts_of(user.hashes()),
        bulk("commands"),
        bulk(&user.commands()),
        bulk("keys"),
        bulk(&user.names()),
        bulk("channels"),
        bulk(""),
        bulk("selectors"),
        Reply::Array(Vec::new()),
    ])
}

fn done(result: crate::error::Result<()>) -> Reply {
    match result {
        Ok(()) => Reply::Simple("OK"),
        Err(failed) => Reply::Error(format!("ERR {failed}. Nothing was changed.")),
    }
}

fn wrong(verb: &str) -> Reply {
    let verb: String = verb.chars().take(64).collect();
    Reply::Error(format!(
        "ERR unknown subcommand or wrong number of arguments for '{verb}'. There are WHOAMI, \
         USERS, LIST, GETUSER, SETUSER, DELUSER, CAT, LOAD and SAVE."
    ))
}

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn texts_of(texts: impl IntoIterator<Item = String>) -> Reply {
    Reply::Array(texts.into_iter().map(|text| Reply::Bulk(text.into_bytes())).collect())
}
