//! `--trace FILE` and `--secret FILE`: a witness that records what an adversary observes, and
//! beside it the requests.

use crate::args::TraceArgs;
use crate::failure::{DEVICE, Failure};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless_core::trace::{FileWitness, Op, Request, Witness};

/// The recording of `--trace`, if the option was given.
pub struct Trace(Option<Recording>);

struct Recording {
    path: PathBuf,
    witness: Arc<FileWitness<File>>,
    has_secrets: bool,
}

impl Trace {
    pub fn open(args: &TraceArgs) -> Result<Self, Failure> {
        Self::at(args.trace.as_deref(), args.secret.as_deref())
    }

    /// Opens a trace without a file for secrets.
    pub fn without_secrets(path: Option<&Path>) -> Result<Self, Failure> {
        Self::at(path, None)
    }

    fn at(path: Option<&Path>, secrets: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self(None)) };
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |e| Failure::new(DEVICE, format!("{path}: {e}"))
        };
        let file = File::create(path).map_err(failed(path))?;
        let witness = match secrets {
            None => FileWitness::new(file),
            Some(secrets) => {
                // Only the owner may read the secrets, as they must stay hidden from readers of the
                // trace.
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o600);
                let secrets = options.open(secrets).map_err(failed(secrets))?;
                FileWitness::with_secrets(file, secrets)
            }
        };
        let witness = Arc::new(witness.map_err(failed(path))?);
        let has_secrets = secrets.is_some();
        Ok(Self(Some(Recording { path: path.into(), witness, has_secrets })))
    }

    pub fn witness(&self) -> Option<Arc<dyn Witness>> {
        self.0.as_ref().map(|recording| recording.witness.clone() as Arc<dyn Witness>)
    }

    /// The number of events recorded so far.
    pub fn events(&self) -> u64 {
        self.0.as_ref().map_or(0, |recording| recording.witness.events())
    }

    /// Records a request, if secrets are recorded.
    pub fn record_request(&self, request: Request) {
        if let Some(recording) = &self.0 {
            recording.witness.record_earlier_request(request);
        }
    }

    /// A function that records requests, if secrets are recorded.
    pub fn request_recorder(
        &self,
    ) -> Option<impl Fn(Op, u64, u32) + Send + Sync + 'static + use<>> {
        let recording = self.0.as_ref().filter(|recording| recording.has_secrets)?;
        let witness = recording.witness.clone();
        Some(move |op, at, len| witness.record_request(op, at, len))
    }

    /// Writes buffered events. Returns an error if the trace could not be written as a whole.
    pub fn finish(self) -> Result<(), Failure> {
        match self.0 {
            None => Ok(()),
            Some(Recording { path, witness, .. }) => witness.finish().map_err(|e| {
                Failure::new(DEVICE, format!("{}: the trace is not whole: {e}", path.display()))
            }),
        }
    }
}
