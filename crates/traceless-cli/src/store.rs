//! The store that a URL names: a folder, or an engine.

use crate::args::StoreArgs;
use crate::failure::Failure;
use std::path::PathBuf;
use traceless_cloud::store::{Durability, OpenStore, StoreFolder};

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
    if let Some(folder) = folder_of(url) {
        return Ok(Box::new(StoreFolder { folder: folder.join("nodes"), durability }));
    }
    engine(url, args)
}

#[cfg(feature = "engines")]
fn engine(url: &str, args: &StoreArgs) -> Result<Box<dyn OpenStore>, Failure> {
    use crate::failure::DEVICE;
    use crate::output::print_error;
    let password = args.store_password_file.as_deref().map(|path| {
        let text = std::fs::read_to_string(path).map(zeroize::Zeroizing::new);
        text.map_err(|e| Failure::usage(format!("{}: {e}", path.display())))
    });
    let password = password.transpose()?;
    let password = password.as_ref().map(|text| text.lines().next().unwrap_or_default());
    let address = traceless_engines::parse(url, password).map_err(Failure::usage)?;
    let checked = address.check().or_else(|failed| {
        if !failed.is_passing {
            return Err(failed);
        }
        // A server that was started with this program may need some seconds.
        print_error(&format!("waiting for the storage engine: {}", failed.message));
        address.wait()
    });
    let failed = |e: traceless_engines::RequestError| {
        Failure::new(DEVICE, format!("the storage engine failed: {}", e.message))
    };
    checked.map_err(failed)?;
    Ok(address)
}

#[cfg(not(feature = "engines"))]
fn engine(url: &str, _: &StoreArgs) -> Result<Box<dyn OpenStore>, Failure> {
    if url.contains("://") {
        let message = "this program was built without engines: build it with --features engines, \
                       or install a package of Traceless";
        return Err(Failure::usage(message));
    }
    Err(Failure::usage("a store is file:DIR, or the URL of an engine, as redis://HOST"))
}
