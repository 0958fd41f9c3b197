//! Results: one file for each run, named by a digest of the run's input, and either whole or
//! absent.
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
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Serialize)]
struct ResultFile<'a, I> {
    schema: &'static str,
    input: &'a I,
    counts: &'a Value,
}

#[derive(Deserialize)]
struct StoredResult {
    schema: String,
    counts: Value,
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

    /// The counts of the run with this key, if it was made.
    pub fn find(&self, key: &str) -> Option<Value> {
        let found: StoredResult = serde_json::from_slice(&fs::read(self.path(key)).ok()?).ok()?;
        (found.schema == self.schema).then_some(found.counts)
    }

    /// The counts of a run that was made.
    pub fn get(&self, key: &str) -> Result<Value> {
        self.find(key).ok_or_else(|| Error::MissingResult { key: key.to_owned() })
    }

    /// Stores the counts of the run of `input`; `key` is the input's digest.
    pub fn store(&self, key: &str, input: &impl Serialize, counts: &Value) -> Result {
        let file = ResultFile { schema: self.schema, input, counts };
        let text = serde_json::to_string_pretty(&file)?;
        write_atomically(&self.path(key), text.as_bytes())
    }

    fn path(&self, key: &str) -> PathBuf {
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

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes every digit");
        text
    })
}

/// Writes a file durably. It gets its name only once it is whole.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result {
    static NTH: AtomicUsize = AtomicUsize::new(0);
    let nth = NTH.fetch_add(1, Ordering::Relaxed);
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.{nth}.part", std::process::id()));
    let written = (|| {
        let mut file = fs::File::create_new(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    })();
    if written.is_err() {
        // If creating the file failed, there is nothing to remove.
        let _ = fs::remove_file(&part);
    }
    written.map_err(Error::io(path))
}
