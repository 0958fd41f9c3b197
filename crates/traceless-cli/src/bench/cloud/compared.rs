//! What else could answer: a store that is encrypted and hides nothing, and Path and Circuit ORAM
//! as a whole inside an enclave, whose memory is watched.

use crate::args::CloudArgs;
use crate::failure::Failure;
use crate::numbers::failed;
use serde::Serialize;
use traceless::clock::{Clock, Monotonic};
use traceless::oblivious;
use traceless::oram::Oram;
use traceless::rng::{Rng, Seeded, System};
use traceless::seal::{Aead, Sealer, Secret, TAG_LEN};
use traceless::types::Addr;

/// Bytes of data to compare with: an ORAM inside an enclave holds a multiple of them in memory.
const DATA_MAX: u64 = 1 << 28;
/// Accesses that are measured.
const ACCESSES: u64 = 2000;

/// One of them.
#[derive(Serialize)]
pub struct Compared {
    pub name: &'static str,
    /// Of a read, by one client.
    pub average_ms: f64,
}

/// Measures all of them with as much data.
pub fn compared(args: &CloudArgs) -> Result<Vec<Compared>, Failure> {
    if args.data > DATA_MAX {
        return Err(Failure::usage("--compare holds the data many times in memory: 256M at most"));
    }
    let block_len = usize::try_from(args.block_len).map_err(Failure::usage)?;
    let blocks = args.data / args.block_len;
    let rng = || Box::new(Seeded::drawn(&mut System));
    let plain = Plain::new(blocks, block_len);
    let mut path = oblivious::create_path(blocks, block_len, rng()).map_err(failed)?;
    let mut circuit = oblivious::create(blocks, block_len, rng()).map_err(failed)?;
    Ok(vec![
        measured("plain encrypted store", blocks, |addr, into| plain.read(addr, into))?,
        measured("Path ORAM in the enclave", blocks, of_oram(&mut *path, block_len)?)?,
        measured("Circuit ORAM in the enclave", blocks, of_oram(&mut *circuit, block_len)?)?,
    ])
}

/// Reads, after every block has been there once: what was never written may cost less.
fn of_oram(
    oram: &mut dyn Oram,
    block_len: usize,
) -> Result<impl FnMut(u64, &mut Vec<u8>) -> Result<(), Failure>, Failure> {
    let zeros = vec![0; block_len];
    for addr in 0..oram.blocks() {
        oram.write(Addr(addr), &zeros).map_err(failed)?;
    }
    Ok(move |addr, into: &mut Vec<u8>| {
        into.resize(block_len, 0);
        oram.read(Addr(addr), into).map_err(failed)
    })
}

fn measured(
    name: &'static str,
    blocks: u64,
    mut read: impl FnMut(u64, &mut Vec<u8>) -> Result<(), Failure>,
) -> Result<Compared, Failure> {
    let (mut rng, mut into, clock) = (Seeded::new(1), Vec::new(), Monotonic::start());
    for _ in 0..ACCESSES {
        read(rng.below(blocks), &mut into)?;
    }
    Ok(Compared { name, average_ms: clock.now() as f64 / ACCESSES as f64 / 1e6 })
}

/// Blocks in memory, each under a seal of its own.
struct Plain {
    aead: Aead,
    block_len: usize,
    sealed: Vec<u8>,
}

impl Plain {
    fn new(blocks: u64, block_len: usize) -> Self {
        let aead = Aead::new(&Secret::random(&mut System));
        let (len, block) = (block_len + TAG_LEN, vec![7; block_len]);
        let mut sealed = vec![0; blocks as usize * len];
        for (nonce, slot) in (0..).zip(sealed.chunks_exact_mut(len)) {
            let (body, tag) = slot.split_at_mut(block_len);
            aead.seal(nonce, &[], &block, body, tag);
        }
        Self { aead, block_len, sealed }
    }

    fn read(&self, addr: u64, into: &mut Vec<u8>) -> Result<(), Failure> {
        into.resize(self.block_len, 0);
        let len = self.block_len + TAG_LEN;
        let slot = &self.sealed[addr as usize * len..][..len];
        let (body, tag) = slot.split_at(self.block_len);
        self.aead.open(addr, &[], body, tag, into).map_err(|_| failed("a block was changed"))
    }
}
