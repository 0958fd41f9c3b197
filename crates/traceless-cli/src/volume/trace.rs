//! `--trace FILE`: a witness that records every request to the image.

use crate::failure::{DEVICE, Failure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless::trace::{FileWitness, Witness};

/// The file that events go to, if one was asked for.
pub struct Trace(Option<(PathBuf, Arc<FileWitness<File>>)>);

impl Trace {
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self(None)) };
        let witness = File::create(path)
            .and_then(FileWitness::new)
            .map_err(|e| Failure::new(DEVICE, format!("{}: {e}", path.display())))?;
        Ok(Self(Some((path.into(), Arc::new(witness)))))
    }

    pub fn witness(&self) -> Option<Arc<dyn Witness>> {
        self.0.as_ref().map(|(_, witness)| witness.clone() as Arc<dyn Witness>)
    }

    /// Writes what is left. A trace that could not be written whole is an error.
    pub fn finish(self) -> Result<(), Failure> {
        match self.0 {
            None => Ok(()),
            Some((path, witness)) => witness.finish().map_err(|e| {
                Failure::new(DEVICE, format!("{}: the trace is not whole: {e}", path.display()))
            }),
        }
    }
}
