//! Sources of keys: a file, standard input, or a prompt.

use crate::args::{KdfArgs, KeyArgs};
use crate::failure::{Failure, KEY};
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::Path;
use traceless_volume::format::{KEY_FILE_LEN_MAX, Kdf, UserKey};
use zeroize::Zeroizing;

/// The key that opens an existing volume.
pub fn existing(args: &KeyArgs) -> Result<UserKey, Failure> {
    match given(args)? {
        Some(key) => Ok(key),
        None => typed("Passphrase: "),
    }
}

/// The key that is in a file.
fn given(args: &KeyArgs) -> Result<Option<UserKey>, Failure> {
    match (&args.key_file, &args.passphrase_file) {
        (Some(path), _) => from_file(path).map(Some),
        (None, Some(path)) => passphrase_from_file(path).map(Some),
        (None, None) => Ok(None),
    }
}

/// A key for a new volume or slot: a passphrase is typed twice.
pub fn new(args: &KeyArgs) -> Result<UserKey, Failure> {
    if let Some(key) = given(args)? {
        return Ok(key);
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
        open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(failed)?;
    }
    Ok(UserKey::from_file(bytes)?)
}

fn passphrase_from_file(path: &Path) -> Result<UserKey, Failure> {
    let failed =
        |e| Failure::new(KEY, format!("{}: cannot read the passphrase: {e}", path.display()));
    let mut line = Zeroizing::new(String::with_capacity(4096));
    let file = open(path).map_err(failed)?;
    BufReader::new(file.take(KEY_FILE_LEN_MAX as u64)).read_line(&mut line).map_err(failed)?;
    passphrase(line)
}

/// Opens a file, or a credential that systemd has put into the service's folder.
fn open(path: &Path) -> std::io::Result<File> {
    let name = path.to_str().and_then(|path| path.strip_prefix("credential:"));
    let Some(name) = name else { return File::open(path) };
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY").ok_or_else(|| {
        let why = "no credentials are here ($CREDENTIALS_DIRECTORY): the service needs \
                   LoadCredential=";
        std::io::Error::new(std::io::ErrorKind::NotFound, why)
    })?;
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "no name of a credential",
        ));
    }
    File::open(Path::new(&folder).join(name))
}

fn typed(prompt: &str) -> Result<UserKey, Failure> {
    let failed = |e| Failure::new(KEY, format!("cannot read a passphrase: {e}; use --key-file"));
    let text = if std::io::stdin().is_terminal() {
        Zeroizing::new(rpassword::prompt_password(prompt).map_err(failed)?)
    } else {
        let mut line = Zeroizing::new(String::with_capacity(4096));
        std::io::stdin().lock().read_line(&mut line).map_err(failed)?;
        line
    };
    passphrase(text)
}

fn passphrase(mut text: Zeroizing<String>) -> Result<UserKey, Failure> {
    while text.ends_with(['\n', '\r']) {
        text.pop();
    }
    if text.is_empty() {
        return Err(Failure::new(KEY, "the passphrase is empty"));
    }
    Ok(UserKey::Passphrase(Zeroizing::new(text.as_bytes().to_vec())))
}
