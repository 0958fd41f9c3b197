//! A small NBD client that keeps some requests in flight.

use super::failed;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use traceless_cli::failure::Failure;

const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const OPTION_EXPORT_NAME: u32 = 1;
const FLAGS_FIXED_NO_ZEROES: u32 = 3;

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NbdCommand {
    Read = 0,
    Write = 1,
    Flush = 3,
}

/// A connection to a server.
pub struct NbdClient {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl NbdClient {
    pub fn connect(socket: &Path) -> Result<Self, Failure> {
        let mut stream = UnixStream::connect(socket).map_err(failed)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).map_err(failed)?;
        if greeting[8..16] != OPTION_MAGIC.to_be_bytes() {
            return Err(failed("the server does not speak newstyle NBD"));
        }
        let mut hello = FLAGS_FIXED_NO_ZEROES.to_be_bytes().to_vec();
        hello.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        hello.extend_from_slice(&OPTION_EXPORT_NAME.to_be_bytes());
        hello.extend_from_slice(&0u32.to_be_bytes());
        stream.write_all(&hello).map_err(failed)?;
        let mut export = [0; 10];
        stream.read_exact(&mut export).map_err(failed)?;
        Ok(Self { stream, buffer: vec![0x5a; 1 << 20] })
    }

    /// Runs `command` at each offset with `len` bytes, `depth` requests in flight.
    pub fn run(
        &mut self,
        command: NbdCommand,
        offsets: &[u64],
        len: usize,
        depth: usize,
    ) -> Result<(), Failure> {
        let requests: Vec<_> = offsets.iter().map(|&at| (command, at)).collect();
        self.run_mixed(&requests, len, depth)
    }

    /// Runs each command at its offset with `len` bytes, `depth` requests in flight.
    pub fn run_mixed(
        &mut self,
        requests: &[(NbdCommand, u64)],
        len: usize,
        depth: usize,
    ) -> Result<(), Failure> {
        for (i, &(command, at)) in requests.iter().enumerate() {
            if i >= depth {
                self.answer(len)?;
            }
            self.request(command, at, len)?;
        }
        (0..requests.len().min(depth)).try_for_each(|_| self.answer(len))
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        self.run(NbdCommand::Flush, &[0], 0, 1)
    }

    fn request(&mut self, command: NbdCommand, at: u64, len: usize) -> Result<(), Failure> {
        let mut request = [0; 28];
        request[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        request[6..8].copy_from_slice(&(command as u16).to_be_bytes());
        // Replies come in any order, and the cookie comes back with each.
        request[8..16].copy_from_slice(&(command as u64).to_be_bytes());
        request[16..24].copy_from_slice(&at.to_be_bytes());
        let wire_len = u32::try_from(len).map_err(failed)?;
        request[24..].copy_from_slice(&wire_len.to_be_bytes());
        self.stream.write_all(&request).map_err(failed)?;
        if command == NbdCommand::Write {
            self.stream.write_all(&self.buffer[..len]).map_err(failed)?;
        }
        Ok(())
    }

    /// Takes the reply to any request in flight, each of `len` bytes.
    fn answer(&mut self, len: usize) -> Result<(), Failure> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).map_err(failed)?;
        if reply[..4] != REPLY_MAGIC.to_be_bytes() || reply[4..8] != [0; 4] {
            return Err(failed("a request was refused"));
        }
        if reply[8..] == (NbdCommand::Read as u64).to_be_bytes() {
            self.stream.read_exact(&mut self.buffer[..len]).map_err(failed)?;
        }
        Ok(())
    }
}
