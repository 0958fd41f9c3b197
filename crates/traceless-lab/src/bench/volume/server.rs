//! A volume that the program `traceless` makes and serves, in a separate process.

use super::failed;
use crate::program;
use crate::report::peak_memory;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;
use traceless_cli::failure::Failure;
use traceless_volume::format::UserKey;
use zeroize::Zeroizing;

/// The contents of the key file: volumes of measurements hold no secrets.
const KEY: [u8; 32] = [7; 32];

/// A running server. Dropping it ends the server.
pub struct VolumeServer {
    child: Child,
    pub socket: PathBuf,
}

/// Makes a volume of `bytes` bytes in `folder`.
pub fn create(folder: &Path, scheme: &str, bytes: u64, more: &[&str]) -> Result<PathBuf, Failure> {
    create_image(folder, scheme, bytes, &[&["--scheme", scheme], more].concat())
}

/// Makes a volume of `bytes` bytes in `folder`, named `name`, with arguments `args` of `create`.
pub fn create_image(
    folder: &Path,
    name: &str,
    bytes: u64,
    args: &[&str],
) -> Result<PathBuf, Failure> {
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

/// The key file of an image made by [`create_image`].
pub fn key_beside(image: &Path) -> PathBuf {
    image.with_file_name("key")
}

/// The key in that file.
pub fn user_key() -> UserKey {
    UserKey::File(Zeroizing::new(KEY.to_vec()))
}

impl VolumeServer {
    /// Serves `image` at a socket beside it, and waits until the socket exists.
    pub fn start(image: &Path) -> Result<Self, Failure> {
        Self::start_with(image, &[])
    }

    /// The same, with further arguments of `serve`.
    pub fn start_with(image: &Path, args: &[&str]) -> Result<Self, Failure> {
        let socket = image.with_extension("sock");
        let child = program::traceless()
            .args(["volume", "serve"])
            .arg(image)
            .arg("--key-file")
            .arg(key_beside(image))
            .arg("--socket")
            .arg(&socket)
            .args(args)
            .spawn()
            .map_err(failed)?;
        let mut server = Self { child, socket };
        while !server.socket.exists() {
            if server.child.try_wait().map_err(failed)?.is_some() {
                return Err(failed("the server ended before it listened"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// The peak memory of the server, in bytes.
    pub fn peak_memory(&self) -> Result<u64, Failure> {
        peak_memory(&self.child.id().to_string())
    }

    /// Bytes that the server has read and written, its client's among them.
    pub fn bytes_moved(&self) -> Result<u64, Failure> {
        let path = format!("/proc/{}/io", self.child.id());
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let counts = text.lines().filter_map(|line| {
            let (name, count) = line.split_once(": ")?;
            ["rchar", "wchar"].contains(&name).then(|| count.parse::<u64>())
        });
        counts.sum::<Result<u64, _>>().map_err(failed)
    }

    /// Ends the server with SIGTERM, and waits until it has closed the volume.
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
