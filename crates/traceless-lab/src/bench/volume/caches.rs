//! Empties caches, so that a benchmark measures the disk and not memory.

use super::failed;
use rustix::fs::Advice;
use std::fs::File;
use std::path::Path;
use traceless_cli::failure::Failure;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Drops a file's clean pages from the page cache.
pub fn drop_file_cache(path: &Path) -> Result<(), Failure> {
    let file = File::open(path).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(failed)
}

/// Drops all clean entries of the kernel's caches. Returns whether this process may do that.
pub fn drop_caches() -> bool {
    std::fs::write(DROP_CACHES, "3").is_ok()
}
