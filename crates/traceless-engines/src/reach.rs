//! Engines that command lines name: a URL, and a file with its password.

use crate::address::EngineAddress;
use crate::engine::RequestError;
use crate::store_url::parse;
use std::fmt;
use std::path::Path;
use zeroize::Zeroizing;

/// Why an engine cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReachError {
    /// The URL or the file is not what it should be.
    Wrong(String),
    /// The engine failed, or cannot be reached.
    Failed(String),
}

impl fmt::Display for ReachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(what) => f.write_str(what),
            Self::Failed(why) => write!(f, "the storage engine failed: {why}"),
        }
    }
}

impl std::error::Error for ReachError {}

/// The engine of a URL. Waits some time for one that cannot be reached, and fails then; `on_wait`
/// gets the reason for the wait.
pub fn reach(
    url: &str,
    password_file: Option<&Path>,
    on_wait: impl FnOnce(&str),
) -> Result<Box<dyn EngineAddress>, ReachError> {
    let address = address(url, password_file)?;
    let checked = address.check().or_else(|error| {
        if !error.is_passing {
            return Err(error);
        }
        // A server that was started with this program may need some seconds.
        on_wait(&error.message);
        address.wait()
    });
    checked.map_err(failed)?;
    Ok(address)
}

/// The engine of a second copy, which may be away. Fails if it refuses.
pub fn reach_copy(
    url: &str,
    password_file: Option<&Path>,
) -> Result<Box<dyn EngineAddress>, ReachError> {
    let mut address = address(url, password_file)?;
    address.set_as_copy();
    match address.check() {
        Err(error) if !error.is_passing => Err(failed(error)),
        _ => Ok(address),
    }
}

fn address(url: &str, password_file: Option<&Path>) -> Result<Box<dyn EngineAddress>, ReachError> {
    let password = password_file.map(|path| {
        let text = std::fs::read_to_string(path).map(Zeroizing::new);
        text.map_err(|e| ReachError::Wrong(format!("{}: {e}", path.display())))
    });
    let password = password.transpose()?;
    let password = password.as_ref().map(|text| text.lines().next().unwrap_or_default());
    parse(url, password).map_err(ReachError::Wrong)
}

fn failed(error: RequestError) -> ReachError {
    ReachError::Failed(error.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_urls_and_files_differ_from_engines_that_fail() {
        let reached = |url, file| reach(url, file, |_| panic!("nothing to wait for")).map(drop);
        assert!(matches!(reached("mysql://host/", None), Err(ReachError::Wrong(_))));
        let missing = Path::new("/nonexistent/password");
        let refused = reached("redis://host/", Some(missing));
        assert!(matches!(&refused, Err(ReachError::Wrong(what)) if what.contains("nonexistent")));
        // A copy that is away is tried again later.
        assert!(reach_copy("redis://127.0.0.1:1/", None).is_ok());
    }
}
