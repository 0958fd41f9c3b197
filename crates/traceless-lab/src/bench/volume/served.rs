//! A volume that is made and served by the program `traceless`, in a process of its own.

use super::failed;
use crate::numbers::peak_memory;
use crate::program;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;
use traceless_cli::failure::Failure;
use traceless_volume::format::UserKey;
use zeroize::Zeroizing;

/// What the key file holds: volumes of measurements keep nothing secret.
const KEY: [u8; 32] = [7; 32];

/// A server that is running. Dropping it ends it.
pub struct VolumeServer {
    child: Child,
    pub socket: PathBuf,
}

/// Makes a volume of `bytes` bytes in `folder`.
pub fn create(folder: &Path, scheme: &str, bytes: u64, more: &[&str]) -> Result<PathBuf, Failure> {
    make(folder, scheme, bytes, &[&["--scheme", scheme], more].concat())
}

/// Makes a volume of `bytes` bytes in `folder`, named `name`, as the arguments of `create` say.
pub fn make(folder: &Path, name: &str, bytes: u64, args: &[&str]) -> Result<PathBuf, Failure> {
    let image = folder.join(format!("{name}.img"));
    let key = key_beside(&image);
    if !key.exists() {
        std::fs::write(&key, KEY).map_err(failed)?;
    }
    let output = program::traceless()
        .args(["volume", "create", "--force", "--size", &bytes.to_string()])
        .arg("--key-file")
        .arg(&key)
        .args(args)
        .arg(&image)
        .output()
        .map_err(failed)?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("cannot make {}: {}", image.display(), why.trim())));
    }
    Ok(image)
}

/// The key file of an image that was made here.
pub fn key_beside(image: &Path) -> PathBuf {
    image.with_file_name("key")
}

/// What is in that file.
pub fn user_key() -> UserKey {
    UserKey::File(Zeroizing::new(KEY.to_vec()))
}

impl VolumeServer {
    /// Serves `image` at a socket beside it, and waits until it accepts.
    pub fn start(image: &Path) -> Result<Self, Failure> {
        let socket = image.with_extension("sock");
        let child = program::traceless()
            .args(["volume", "serve"])
            .arg(image)
            .arg("--key-file")
            .arg(key_beside(image))
            .arg("--socket")
            .arg(&socket)
            .spawn()
            .map_err(failed)?;
        let mut served = Self { child, socket };
        while !served.socket.exists() {
            if served.child.try_wait().map_err(failed)?.is_some() {
                return Err(failed("the server ended before it listened"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(served)
    }

    /// The most memory that the server has held at once, in bytes.
    pub fn peak_memory(&self) -> Result<u64, Failure> {
        peak_memory(&self.child.id().to_string())
    }

    /// Ends it with SIGTERM, and waits until the volume is closed.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.terminate();
        let status = self.child.wait().map_err(failed)?;
        if status.success() { Ok(()) } else { Err(failed("the server did not end well")) }
    }

    fn terminate(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

impl Drop for VolumeServer {
    fn drop(&mut self) {
        self.terminate();
        let _ = self.child.wait();
    }
}
