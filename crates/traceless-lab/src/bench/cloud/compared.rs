//! Systems to compare with: an encrypted store that hides no accesses, and Path and Circuit ORAM as
//! a whole inside an enclave with observable memory.

use crate::args::CloudArgs;
use crate::report::failed;
use serde::Serialize;
use traceless::clock::{Clock, Monotonic};
use traceless::oblivious;
use traceless::oram::Oram;
use traceless::rng::{Rng, SeededRng, System};
use traceless::seal::{Aead, Nonce, Sealer, Secret, TAG_LEN};
use traceless::types::Addr;
use traceless_cli::failure::Failure;

/// Bytes of data at most: an ORAM inside an enclave holds a multiple of them in memory.
const DATA_MAX: u64 = 1 << 28;
/// Measured accesses.
const ACCESSES: usize = 2000;

/// One of the compared systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparator {
    Plain,
    Path,
    Circuit,
}

/// Times of a system's reads.
#[derive(Serialize)]
pub struct StoreTimes {
    pub name: &'static str,
    /// Of a read by one client.
    pub average_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
}

/// Measures all systems with the same amount of data.
pub fn measure_all(args: &CloudArgs) -> Result<Vec<StoreTimes>, Failure> {
    let all = [Comparator::Plain, Comparator::Path, Comparator::Circuit];
    all.into_iter().map(|comparator| measure(comparator, args)).collect()
}

/// Measures one system.
pub fn measure(comparator: Comparator, args: &CloudArgs) -> Result<StoreTimes, Failure> {
    if args.data > DATA_MAX {
        return Err(Failure::usage("an ORAM holds the data many times in memory: 256M at most"));
    }
    let block_len = usize::try_from(args.block_len).map_err(Failure::usage)?;
    let blocks = args.data / args.block_len;
    let rng = || Box::new(SeededRng::drawn(&mut System));
    match comparator {
        Comparator::Plain => {
            let plain = Plain::new(blocks, block_len);
            timed("plain encrypted store", blocks, |addr, into| plain.read(addr, into))
        }
        Comparator::Path => {
            let mut path = oblivious::create_path(blocks, block_len, rng()).map_err(failed)?;
            timed("Path ORAM in the enclave", blocks, of_oram(&mut *path, block_len)?)
        }
        Comparator::Circuit => {
            let mut circuit = oblivious::create(blocks, block_len, rng()).map_err(failed)?;
            timed("Circuit ORAM in the enclave", blocks, of_oram(&mut *circuit, block_len)?)
        }
    }
}

/// Reads of an ORAM, after every block was written once: a read of a block never written may cost
/// less.
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

fn timed(
    name: &'static str,
    blocks: u64,
    mut read: impl FnMut(u64, &mut Vec<u8>) -> Result<(), Failure>,
) -> Result<StoreTimes, Failure> {
    let (mut rng, mut into, clock) = (SeededRng::new(1), Vec::new(), Monotonic::start());
    let mut times = Vec::with_capacity(ACCESSES);
    for _ in 0..ACCESSES {
        let (addr, began) = (rng.below(blocks), clock.now());
        read(addr, &mut into)?;
        times.push(clock.now() - began);
    }
    times.sort_unstable();
    let at = |share: f64| times[((ACCESSES - 1) as f64 * share) as usize] as f64 / 1e6;
    Ok(StoreTimes {
        name,
        average_ms: times.iter().sum::<u64>() as f64 / ACCESSES as f64 / 1e6,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        p999_ms: at(0.999),
    })
}

/// Blocks in memory, each sealed separately.
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
            aead.seal(Nonce::of_fresh_key(nonce), &[], &block, body, tag);
        }
        Self { aead, block_len, sealed }
    }

    fn read(&self, addr: u64, into: &mut Vec<u8>) -> Result<(), Failure> {
        into.resize(self.block_len, 0);
        let len = self.block_len + TAG_LEN;
        let slot = &self.sealed[addr as usize * len..][..len];
        let (body, tag) = slot.split_at(self.block_len);
        let nonce = Nonce::of_fresh_key(addr);
        self.aead.open(nonce, &[], body, tag, into).map_err(|_| failed("a block was changed"))
    }
}
