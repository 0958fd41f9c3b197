//! Sources of keys: a file, standard input, or a prompt.

use crate::args::{KdfArgs, KeyArgs};
use crate::failure::{Failure, KEY};
use std::fs::File;
use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;
use traceless_volume::format::{KEY_FILE_LEN_MAX, Kdf, UserKey};
use zeroize::Zeroizing;

/// The key that opens an existing volume.
pub fn existing(args: &KeyArgs) -> Result<UserKey, Failure> {
    match &args.key_file {
        Some(path) => from_file(path),
        None => typed("Passphrase: "),
    }
}

/// A key for a new volume or slot: a passphrase is typed twice.
pub fn new(file: Option<&Path>) -> Result<UserKey, Failure> {
    if let Some(path) = file {
        return from_file(path);
    }
    let first = typed("New passphrase: ")?;
    if std::io::stdin().is_terminal() {
        let second = typed("Again: ")?;
        let same = match (&first, &second) {
            (UserKey::Passphrase(a), UserKey::Passphrase(b)) => a == b,
            _ => false,
        };
        if !same {
            return Err(Failure::new(KEY, "the passphrases differ; nothing was done"));
        }
    }
    Ok(first)
}

pub fn kdf(args: &KdfArgs) -> Result<Kdf, Failure> {
    let memory_kib = u32::try_from(args.kdf_memory >> 10)
        .map_err(|_| Failure::usage("--kdf-memory is more than 4 TiB"))?;
    Ok(Kdf { memory_kib, time: args.kdf_time, ..Kdf::default() })
}

pub fn from_file(path: &Path) -> Result<UserKey, Failure> {
    let failed = |e| Failure::new(KEY, format!("{}: cannot read the key: {e}", path.display()));
    // Reads one byte more than the limit, so that a key that is too long is noticed.
    let limit = KEY_FILE_LEN_MAX as u64 + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        File::open(path)
            .and_then(|file| file.take(limit).read_to_end(&mut bytes))
            .map_err(failed)?;
    }
    Ok(UserKey::from_file(bytes)?)
}

fn typed(prompt: &str) -> Result<UserKey, Failure> {
    let failed = |e| Failure::new(KEY, format!("cannot read a passphrase: {e}; use --key-file"));
    let mut text = if std::io::stdin().is_terminal() {
        Zeroizing::new(rpassword::prompt_password(prompt).map_err(failed)?)
    } else {
        let mut line = Zeroizing::new(String::with_capacity(4096));
        std::io::stdin().lock().read_line(&mut line).map_err(failed)?;
        line
    };
    while text.ends_with(['\n', '\r']) {
        text.pop();
    }
    if text.is_empty() {
        return Err(Failure::new(KEY, "the passphrase is empty"));
    }
    Ok(UserKey::Passphrase(Zeroizing::new(text.as_bytes().to_vec())))
}
