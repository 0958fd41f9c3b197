//! A device in memory, and a client that plays a script: for fuzzing and for tests.

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::gate::Gate;
use super::handshake::NamedDevice;
use super::handshake::Tls;
use super::session::{Session, run};
use crate::device::Device;

const FUZZ_DEVICE_LEN: usize = 16 << 10;

/// Runs a whole connection, handshake and transmission, with a client that sends `input` without
/// reading replies. Returns the server's output, for comparisons.
///
/// The first byte selects the set-up: bit 0 read-only, bit 1 TLS required (and never completed),
/// bit 2 a device that fails. Threads, sockets and clocks are not involved.
pub fn fuzz_session(input: &[u8]) -> Vec<u8> {
    let Some((&setup, script)) = input.split_first() else { return Vec::new() };
    let mut device = Memory::new(FUZZ_DEVICE_LEN);
    device.read_only = setup & 1 != 0;
    device.failure = (setup & 4 != 0).then_some(Errno::IO);
    let session = Session {
        exports: &[NamedDevice { name: "", device: &device }],
        gate: &Gate::default(),
        tls: if setup & 2 != 0 { Tls::Required } else { Tls::Offered },
        tls_config: None,
        before_transmission: &|| {},
    };
    let mut script = Script::new(script);
    let _: io::Result<()> = run(&session, &mut script);
    script.sent
}

/// A device in memory.
pub(super) struct Memory {
    bytes: Mutex<Vec<u8>>,
    pub read_only: bool,
    /// The error of every call, if there is one.
    pub failure: Option<Errno>,
}

impl Memory {
    pub fn new(len: usize) -> Self {
        Self { bytes: Mutex::new(vec![0; len]), read_only: false, failure: None }
    }

    fn with_bytes(&self, act: impl FnOnce(&mut [u8])) -> io::Result<()> {
        if let Some(errno) = self.failure {
            return Err(errno.into());
        }
        act(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

impl Device for Memory {
    fn len(&self) -> u64 {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn block_len(&self) -> u32 {
        4096
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let at = at as usize;
        self.with_bytes(|bytes| into.copy_from_slice(&bytes[at..at + into.len()]))
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let at = at as usize;
        self.with_bytes(|bytes| bytes[at..at + from.len()].copy_from_slice(from))
    }

    fn flush(&self) -> io::Result<()> {
        self.with_bytes(|_| ())
    }
}

/// A client that sends `input`, and keeps the server's output in `sent`.
pub(super) struct Script<'a> {
    input: &'a [u8],
    pub sent: Vec<u8>,
}

impl<'a> Script<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, sent: Vec::new() }
    }
}

impl Read for Script<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.input.read(into)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.sent.extend_from_slice(from);
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
