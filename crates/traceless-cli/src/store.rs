//! The stores that URLs name: folders, or engines.

use crate::args::{LeaseArgs, StoreArgs};
use crate::failure::Failure;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless_cloud::gateway::StateLog;
use traceless_cloud::store::{Durability, OpenStore, StoreFolder, StorePlace};

/// The folder of a URL of the form `file:DIR`.
pub fn folder_of(url: &str) -> Option<PathBuf> {
    url.strip_prefix("file:").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// The store of a URL. Fails if the engine cannot be reached.
pub fn read(
    url: &str,
    args: &StoreArgs,
    durability: Durability,
) -> Result<Box<dyn OpenStore>, Failure> {
    match folder_of(url) {
        Some(folder) => Ok(folder_store(&folder, durability)),
        None => Ok(engine::reach(url, args.store_password_file.as_deref())?),
    }
}

/// The log of a gateway's state in the engine of a URL. Fails if the engine cannot be reached.
pub fn state_log(url: &str, args: &LeaseArgs) -> Result<Arc<dyn StateLog>, Failure> {
    engine::state_log(url, args)
}

/// Gives stores their second copies, if they are wanted. An engine that cannot be reached now is
/// tried again later.
pub fn with_copies(
    stores: Vec<StorePlace>,
    args: &StoreArgs,
    durability: Durability,
) -> Result<Vec<StorePlace>, Failure> {
    if !args.copy.is_empty() && args.copy.len() != stores.len() {
        return Err(Failure::usage("give --copy once for each --store"));
    }
    let mut copies = args.copy.iter();
    let with_copy = |place| {
        let Some(url) = copies.next() else { return Ok(place) };
        let copy = match folder_of(url) {
            Some(folder) => folder_store(&folder, durability),
            None => engine::find(url, args.copy_password_file.as_deref())?,
        };
        Ok(StorePlace { copy: Some(Arc::from(copy)), ..place })
    };
    stores.into_iter().map(with_copy).collect()
}

fn folder_store(folder: &Path, durability: Durability) -> Box<dyn OpenStore> {
    Box::new(StoreFolder { folder: folder.join("nodes"), durability })
}

#[cfg(feature = "engines")]
mod engine {
    use super::{Arc, Failure, LeaseArgs, OpenStore, StateLog};
    use crate::failure::DEVICE;
    use crate::output::print_error;
    use std::path::Path;
    use traceless_engines::{EngineAddress, ReachError, reach_copy};

    pub fn reach(
        url: &str,
        password_file: Option<&Path>,
    ) -> Result<Box<dyn EngineAddress>, Failure> {
        let on_wait = |why: &str| print_error(&format!("waiting for the storage engine: {why}"));
        traceless_engines::reach(url, password_file, on_wait).map_err(failed)
    }

    pub fn find(url: &str, password_file: Option<&Path>) -> Result<Box<dyn OpenStore>, Failure> {
        Ok(reach_copy(url, password_file).map_err(failed)?)
    }

    pub fn state_log(url: &str, args: &LeaseArgs) -> Result<Arc<dyn StateLog>, Failure> {
        let address = reach(url, args.state_password_file.as_deref())?;
        address.state_log(args.period()).map_err(|e| crate::cloud::failure(&e))
    }

    fn failed(error: ReachError) -> Failure {
        match error {
            ReachError::Wrong(_) => Failure::usage(error),
            ReachError::Failed(_) => Failure::new(DEVICE, error),
        }
    }
}

#[cfg(not(feature = "engines"))]
mod engine {
    use super::{Arc, Failure, LeaseArgs, OpenStore, StateLog};
    use std::path::Path;

    pub fn reach(url: &str, _: Option<&Path>) -> Result<Box<dyn OpenStore>, Failure> {
        Err(refused(url))
    }

    pub fn find(url: &str, _: Option<&Path>) -> Result<Box<dyn OpenStore>, Failure> {
        Err(refused(url))
    }

    pub fn state_log(url: &str, _: &LeaseArgs) -> Result<Arc<dyn StateLog>, Failure> {
        Err(refused(url))
    }

    fn refused(url: &str) -> Failure {
        if url.contains("://") {
            let message = "this program was built without engines: build it with --features \
                           engines, or install a package of Traceless";
            return Failure::usage(message);
        }
        Failure::usage("a store is file:DIR, or the URL of an engine, as redis://HOST")
    }
}
