//! A volume that is made and served by this very program, in a process of its own.

use super::failed;
use crate::failure::Failure;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server that is running. Dropping it ends it.
pub struct Served {
    child: Child,
    pub socket: PathBuf,
}

/// Makes a volume of `bytes` bytes in `folder`.
pub fn create(folder: &Path, scheme: &str, bytes: u64, more: &[&str]) -> Result<PathBuf, Failure> {
    let image = folder.join(format!("{scheme}.img"));
    let key = folder.join("key");
    if !key.exists() {
        std::fs::write(&key, [7; 32]).map_err(failed)?;
    }
    let status = program()?
        .args(["volume", "create", "--force", "--scheme", scheme, "--size", &bytes.to_string()])
        .arg("--key-file")
        .arg(&key)
        .args(more)
        .arg(&image)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(failed)?;
    if !status.success() {
        return Err(failed(format!("cannot make {}", image.display())));
    }
    Ok(image)
}

impl Served {
    /// Serves `image` at a socket beside it, and waits until it accepts.
    pub fn start(image: &Path) -> Result<Self, Failure> {
        let socket = image.with_extension("sock");
        let child = program()?
            .args(["volume", "serve"])
            .arg(image)
            .arg("--key-file")
            .arg(image.with_file_name("key"))
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
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let kib = text
            .lines()
            .find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
        kib.map(|kib: u64| kib << 10).ok_or_else(|| failed("no VmHWM in /proc"))
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

impl Drop for Served {
    fn drop(&mut self) {
        self.terminate();
        let _ = self.child.wait();
    }
}

fn program() -> Result<Command, Failure> {
    Ok(Command::new(std::env::current_exe().map_err(failed)?))
}
