//! Results: one file for each run, named by a digest of the run's input, and either whole or
//! absent.

use crate::failure::{DEVICE, Failure};
use crate::output::Meter;
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
struct Written<'a, I> {
    schema: &'static str,
    input: &'a I,
    counts: &'a Value,
}

#[derive(Deserialize)]
struct KnownResult {
    schema: String,
    counts: Value,
}

/// A folder of results.
pub struct Results {
    folder: PathBuf,
    schema: &'static str,
}

impl Results {
    /// Opens the results of this schema in `out`; makes the folder if it does not exist.
    pub fn open(out: &Path, schema: &'static str) -> Result<Self, Failure> {
        let folder = out.join("runs");
        fs::create_dir_all(&folder).map_err(|e| failed(&folder, &e))?;
        Ok(Self { folder, schema })
    }

    /// The counts of the run with this key, if it was made.
    pub fn find(&self, key: &str) -> Option<Value> {
        let found: KnownResult = serde_json::from_slice(&fs::read(self.path(key)).ok()?).ok()?;
        (found.schema == self.schema).then_some(found.counts)
    }

    /// The counts of a run that must have been made.
    pub fn made(&self, key: &str) -> Result<Value, Failure> {
        let gone = || Failure::usage(format!("the result {key} has gone"));
        self.find(key).ok_or_else(gone)
    }

    /// Keeps the counts of the run of `input`; `key` is the input's digest.
    pub fn keep(&self, key: &str, input: &impl Serialize, counts: &Value) -> Result<(), Failure> {
        let path = self.path(key);
        let written = Written { schema: self.schema, input, counts };
        let text = serde_json::to_string_pretty(&written).map_err(Failure::usage)?;
        write_whole(&path, text.as_bytes()).map_err(|e| failed(&path, &e))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }

    /// Calls `make` with the index in `keys` of each run without a result, `jobs` at a time.
    /// Finished runs survive an interruption. Two runs of one key may be made at the same time:
    /// both write the same.
    pub fn complete(
        &self,
        keys: &[&str],
        jobs: usize,
        interrupted: &AtomicBool,
        meter: &mut Meter,
        make: impl Fn(usize) -> Result<(), Failure> + Sync,
    ) -> Result<(), Failure> {
        let missing: Vec<_> =
            (0..keys.len()).filter(|&nth| self.find(keys[nth]).is_none()).collect();
        let progress = Mutex::new((keys.len() - missing.len(), meter));
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
            let (done, meter) = &mut *progress.lock().expect("held briefly");
            *done += 1;
            meter.update(*done as u64, keys.len() as u64);
        });
        if let Some(failure) = failure.into_inner().expect("no thread holds it") {
            return Err(failure);
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::usage("interrupted; what is finished is kept"));
        }
        Ok(())
    }
}

/// The key of a run: a digest of its whole input.
pub fn key(input: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_vec(input).map_err(Failure::usage)?;
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
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NTH: AtomicUsize = AtomicUsize::new(0);
    let nth = NTH.fetch_add(1, Ordering::Relaxed);
    let mut coming = path.as_os_str().to_owned();
    coming.push(format!(".{}.{nth}.part", std::process::id()));
    let written = (|| {
        let mut file = fs::File::create_new(&coming)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&coming, path)
    })();
    if written.is_err() {
        // If creating the file failed, there is nothing to remove.
        let _ = fs::remove_file(&coming);
    }
    written
}

pub fn failed(path: &Path, e: &dyn std::fmt::Display) -> Failure {
    Failure::new(DEVICE, format!("{}: {e}", path.display()))
}
