//! Results: one file for each run, named by a digest of the run's input, and either whole or
//! absent. Each holds a digest of itself, so that damage is noticed.
//!
//! ```
//! use serde_json::json;
//! use traceless_sim::experiment::results::{Results, key};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let out = tempfile::tempdir()?;
//! let results = Results::open(out.path(), "example.v1")?;
//! let input = json!({"workload": "mcf", "levels": 20});
//! let key = key(&input)?;
//! assert!(results.find(&key).is_none());
//! results.store(&key, &input, &json!({"cycles": 1234}))?;
//! assert_eq!(results.get(&key)?["cycles"], 1234);
//! // Results of another schema do not count.
//! assert!(Results::open(out.path(), "example.v2")?.find(&key).is_none());
//! # Ok(())
//! # }
//! ```

use super::{Error, Result};
use crate::parallel::in_parallel;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Serialize)]
struct ResultFile<'a, I> {
    schema: &'static str,
    digest: &'a str,
    input: &'a I,
    counts: &'a Value,
}

#[derive(Deserialize)]
struct StoredResult {
    schema: String,
    /// Results from before there were digests have none.
    digest: Option<String>,
    counts: Value,
}

/// The result of a run, as its file has it.
pub struct RunResult {
    /// The whole file.
    pub text: String,
    /// What the run counted.
    pub counts: Value,
}

/// A folder of results.
pub struct Results {
    folder: PathBuf,
    schema: &'static str,
}

/// How a user follows a series of runs and ends it.
pub struct Control<'a> {
    /// No run begins once this is set.
    pub interrupted: &'a AtomicBool,
    /// Called after each run with the number of finished runs and of all runs.
    pub progress: &'a mut (dyn FnMut(u64, u64) + Send),
}

impl Results {
    /// Opens the results of this schema in `out`; makes the folder if it does not exist.
    pub fn open(out: &Path, schema: &'static str) -> Result<Self> {
        let folder = out.join("runs");
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        Ok(Self { folder, schema })
    }

    /// The results of this schema in `out`, to read only: no folder is made.
    pub fn existing(out: &Path, schema: &'static str) -> Self {
        Self { folder: out.join("runs"), schema }
    }

    /// The counts of the run with this key, if it was made and its result is not damaged.
    pub fn find(&self, key: &str) -> Option<Value> {
        self.read(key).ok()?.map(|result| result.counts)
    }

    /// The result of the run with this key, if it was made. Fails if the result is damaged.
    pub fn read(&self, key: &str) -> Result<Option<RunResult>> {
        let path = self.path(key);
        let damage = |what: &str| Error::Damage { path: path.clone(), what: what.to_owned() };
        let bytes = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(Error::io(&path))?,
        };
        let text = String::from_utf8(bytes).map_err(|e| damage(&e.to_string()))?;
        let stored: StoredResult =
            serde_json::from_str(&text).map_err(|e| damage(&e.to_string()))?;
        if let Some(digest) = &stored.digest
            && *digest != digest_of(key, &text.replacen(digest, "", 1))
        {
            return Err(damage("it is not what was stored as the result of this run"));
        }
        let counts = stored.counts;
        Ok((stored.schema == self.schema).then_some(RunResult { text, counts }))
    }

    /// The counts of a run that was made.
    pub fn get(&self, key: &str) -> Result<Value> {
        self.find(key).ok_or_else(|| Error::MissingResult { key: key.to_owned() })
    }

    /// Stores the counts of the run of `input`; `key` is the input's digest.
    pub fn store(&self, key: &str, input: &impl Serialize, counts: &Value) -> Result {
        let schema = self.schema;
        let with = |digest: &str| {
            serde_json::to_string_pretty(&ResultFile { schema, digest, input, counts })
        };
        let digest = digest_of(key, &with("")?);
        self.store_text(key, &with(&digest)?)
    }

    /// Stores the result of the run with this key, as the file of another folder has it.
    pub fn store_text(&self, key: &str, text: &str) -> Result {
        write_atomically(&self.path(key), text.as_bytes())
    }

    /// The file of the run with this key.
    pub fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }

    /// Calls `make` with the index in `keys` of each run without a result, `jobs` at a time.
    /// Finished runs survive an interruption. Two runs of one key may be made at the same time:
    /// both write the same.
    pub fn complete<E: From<Error> + Send>(
        &self,
        keys: &[&str],
        jobs: usize,
        control: Control<'_>,
        make: impl Fn(usize) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let Control { interrupted, progress } = control;
        let missing: Vec<_> =
            (0..keys.len()).filter(|&nth| self.find(keys[nth]).is_none()).collect();
        let progress = Mutex::new((keys.len() - missing.len(), progress));
        let failure = Mutex::new(None);
        let stops = || {
            interrupted.load(Ordering::Relaxed) || failure.lock().expect("held briefly").is_some()
        };
        in_parallel(&missing, jobs, |&nth| {
            if stops() {
                return;
            }
            let result = if self.find(keys[nth]).is_some() { Ok(()) } else { make(nth) };
            if let Err(e) = result {
                *failure.lock().expect("held briefly") = Some(e);
                return;
            }
            let (done, progress) = &mut *progress.lock().expect("held briefly");
            *done += 1;
            progress(*done as u64, keys.len() as u64);
        });
        if let Some(failure) = failure.into_inner().expect("no thread holds it") {
            return Err(failure);
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err(Error::Interrupted.into());
        }
        Ok(())
    }
}

/// The key of a run: a digest of its whole input.
pub fn key(input: &impl Serialize) -> Result<String> {
    let text = serde_json::to_vec(input)?;
    Ok(hex(&Sha256::digest(text)))
}

/// What a result holds as its digest; `text` is its file with an empty one.
fn digest_of(key: &str, text: &str) -> String {
    hex(&Sha256::new().chain_update(key).chain_update(text).finalize())
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes every digit");
        text
    })
}

/// Writes a file durably. It gets its name only once it is whole.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result {
    let (part, mut file) = create_part(path).map_err(Error::io(path))?;
    let written =
        file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // The file may have been removed by another process: then there is nothing to do.
        let _ = fs::remove_file(&part);
    }
    written.map_err(Error::io(path))
}

/// A new file beside `path`. Processes in containers often have equal numbers, so that a process
/// that was killed may have left a file of the same name, or another one may just write it.
fn create_part(path: &Path) -> io::Result<(PathBuf, fs::File)> {
    static NTH: AtomicUsize = AtomicUsize::new(0);
    loop {
        let nth = NTH.fetch_add(1, Ordering::Relaxed);
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".{}.{nth}.part", std::process::id()));
        match fs::File::create_new(&part) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok((part.into(), created?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_change_of_a_result_changes_what_was_counted() {
        let out = tempfile::tempdir().unwrap();
        let results = Results::open(out.path(), "test.v1").unwrap();
        results.store("a", &json!({"levels": 20}), &json!({"cycles": 1234, "x": 0.1})).unwrap();
        let whole = results.read("a").unwrap().unwrap();
        assert_eq!(whole.counts, results.find("a").unwrap());
        for nth in 0..whole.text.len() {
            let mut text = whole.text.clone().into_bytes();
            text[nth] ^= 1;
            fs::write(results.path("a"), &text).unwrap();
            // In the name of the schema the change makes it another's, in that of the digest one
            // without.
            let counts = results.read("a").ok().flatten().map(|result| result.counts);
            assert!(counts.is_none_or(|of| of == whole.counts), "byte {nth} of {}", whole.text);
            fs::write(results.path("a"), &whole.text[..nth]).unwrap();
            assert!(matches!(results.read("a"), Err(Error::Damage { .. })), "{nth} bytes");
            assert!(results.find("a").is_none());
        }
        results.store_text("b", &whole.text).unwrap();
        assert!(results.read("b").is_err(), "it is the result of another run");
        results.store_text("a", &whole.text).unwrap();
        assert_eq!(results.read("a").unwrap().unwrap().text, whole.text);
        assert!(results.read("c").unwrap().is_none());
    }

    #[test]
    fn results_without_a_digest_count() {
        let out = tempfile::tempdir().unwrap();
        let results = Results::open(out.path(), "test.v1").unwrap();
        let older = json!({"schema": "test.v1", "input": {}, "counts": {"cycles": 5}});
        results.store_text("a", &older.to_string()).unwrap();
        assert_eq!(results.find("a"), Some(json!({"cycles": 5})));
        assert!(Results::existing(out.path(), "test.v2").read("a").unwrap().is_none());
    }

    /// The names that this process would take next are all taken.
    #[test]
    fn files_of_a_killed_process_are_no_obstacle() {
        let out = tempfile::tempdir().unwrap();
        let path = out.path().join("x");
        let (part, _) = create_part(&path).unwrap();
        let name = part.to_str().unwrap();
        let nth: usize =
            name.trim_end_matches(".part").rsplit('.').next().unwrap().parse().unwrap();
        for later in nth + 1..nth + 40 {
            let taken = name.replace(&format!(".{nth}.part"), &format!(".{later}.part"));
            fs::write(taken, "torn").unwrap();
        }
        write_atomically(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }
}
