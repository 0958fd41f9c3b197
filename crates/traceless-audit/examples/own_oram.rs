//! Audits a scheme of the user's own: an [`Oram`] that the library does not know, once sound, and
//! once with a fault.
//!
//! A scheme makes all accesses through a [`Store`](traceless_core::store::Store). [`WatchedStore`]
//! around it records what an adversary observes, and the requests are recorded beside it. The
//! example records two users and judges the traces in memory; `traceless audit compare` judges the
//! files in the same way:
//! `cargo run --release -p traceless-audit --example own_oram -- FOLDER`

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use traceless::posmap::Flat;
use traceless::tree::{Engine, SealedTree, Shape};
use traceless_audit::{Accesses, Judgement, Verdict, judge};
use traceless_core::oram::{Hides, Oram, check_request};
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::seal::{Aead, Secret};
use traceless_core::store::{MemStore, WatchedStore};
use traceless_core::trace::{FileWitness, Op, SecretReader, TraceReader};
use traceless_core::types::{Addr, Leaf};

const BLOCKS: u64 = 256;
const BLOCK_LEN: usize = 64;
const LEVELS: usize = 9;
const STASH_BLOCKS: usize = 100;
const REQUESTS: u64 = 6000;

/// Path ORAM in a few lines. All labels are in trusted memory.
struct Own {
    engine: Engine<SealedTree<Aead>>,
    map: Flat,
    rng: SeededRng,
    /// Whether a read remaps its block; false is the fault: a block stays on its path when it is
    /// read.
    remaps_reads: bool,
}

impl Own {
    fn new(
        store: Arc<dyn traceless_core::store::Store>,
        seed: u64,
        remaps_reads: bool,
    ) -> Result<Self, Box<dyn Error>> {
        let mut rng = SeededRng::new(seed);
        let sealer = Aead::new(&Secret::random(&mut rng));
        let salts = rng.fork();
        let tree = SealedTree::create(store, 0, "own", shape()?, BLOCK_LEN, sealer, salts)?;
        let engine = Engine::new(tree, STASH_BLOCKS);
        Ok(Self { engine, map: Flat::new(BLOCKS as usize), rng, remaps_reads })
    }

    fn access(&mut self, addr: Addr, is_read: bool, body: &mut [u8]) -> traceless_core::Result {
        let [any, new] = [0; 2].map(|_| Leaf(self.rng.below(self.engine.shape().leaves())));
        let old = self.map.label(addr).unwrap_or(any);
        let new = if is_read && !self.remaps_reads { old } else { new };
        self.map.remap(addr, new);
        self.engine.fetch(old)?;
        let nth = self.engine.take(addr, new)?;
        let block = self.engine.stash_mut().body_mut(nth);
        if is_read {
            body.copy_from_slice(block);
        } else {
            block.copy_from_slice(body);
        }
        self.engine.evict()
    }
}

fn shape() -> traceless_core::Result<Shape> {
    Shape::per_level(vec![4; LEVELS])
}

impl Oram for Own {
    fn blocks(&self) -> u64 {
        BLOCKS
    }

    fn block_len(&self) -> usize {
        BLOCK_LEN
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> traceless_core::Result {
        check_request(BLOCKS, BLOCK_LEN, addrs, into.len())?;
        let mut bodies = into.chunks_mut(BLOCK_LEN);
        addrs.iter().zip(&mut bodies).try_for_each(|(addr, body)| self.access(*addr, true, body))
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> traceless_core::Result {
        check_request(BLOCKS, BLOCK_LEN, addrs, from.len())?;
        let mut bodies = from.to_vec();
        let bodies = bodies.chunks_mut(BLOCK_LEN);
        addrs.iter().zip(bodies).try_for_each(|(addr, body)| self.access(*addr, false, body))
    }

    fn sync(&mut self) -> traceless_core::Result {
        Ok(())
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn close(&mut self) -> traceless_core::Result {
        Ok(())
    }
}

/// Records the trace of a user that requests random ones of `blocks` blocks, three of four times to
/// read.
fn record(
    trace: &Path,
    secret: &Path,
    seed: u64,
    blocks: u64,
    remaps_reads: bool,
) -> Result<(), Box<dyn Error>> {
    let witness = FileWitness::with_secrets(File::create(trace)?, File::create(secret)?)?;
    let witness = Arc::new(witness);
    let len = SealedTree::store_len(&shape()?, BLOCK_LEN, &Aead::new(&Secret::from_bytes([0; 32])));
    let store = Arc::new(WatchedStore::new(MemStore::new(len), witness.clone()));
    let oram: &mut dyn Oram = &mut Own::new(store, seed, remaps_reads)?;
    let mut user = SeededRng::new(!seed);
    let mut kept = vec![[0; BLOCK_LEN]; BLOCKS as usize];
    for _ in 0..REQUESTS {
        let addr = Addr(user.below(blocks));
        let reads = user.below(4) > 0;
        let op = if reads { Op::Read } else { Op::Write };
        witness.record_request(op, addr.0 * BLOCK_LEN as u64, BLOCK_LEN as u32);
        let known = &mut kept[addr.0 as usize];
        if reads {
            let mut found = [0; BLOCK_LEN];
            oram.read(addr, &mut found)?;
            assert_eq!(found, *known, "it is an array");
        } else {
            *known = [user.below(256) as u8; BLOCK_LEN];
            oram.write(addr, known)?;
        }
    }
    oram.close()?;
    Ok(witness.finish()?)
}

/// The recorded trace, cut into accesses, with the request of each.
fn accesses(trace: &Path, secret: &Path) -> Result<Accesses, Box<dyn Error>> {
    let cut = Accesses::segment(|| TraceReader::new(File::open(trace)?))?;
    Ok(cut.with_secrets(SecretReader::new(File::open(secret)?)?)?)
}

/// The names of the claims that do not hold.
fn found(judged: &Judgement) -> Vec<&str> {
    let all = judged.alone.iter().chain(&judged.together);
    let fails = all.filter(|claim| claim.verdict != Verdict::Pass);
    fails.map(|claim| claim.name.as_str()).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("name a folder for the traces")?;
    for (name, remaps_reads) in [("sound", true), ("broken", false)] {
        let mut users = vec![];
        for (user, blocks) in [("hot", 4), ("random", BLOCKS)] {
            let file = |kind: &str| Path::new(&folder).join(format!("{name}-{user}.{kind}"));
            let (trace, secret) = (file("trace"), file("secret"));
            record(&trace, &secret, blocks, blocks, remaps_reads)?;
            users.push(accesses(&trace, &secret)?);
        }
        let judged = judge(&users[0], &users[1]);
        let found = found(&judged);
        println!("{name}: {} claims do not hold: {}", found.len(), found.join(", "));
        assert_eq!(found.is_empty(), remaps_reads);
        assert!(!remaps_reads || judged.too_few.is_none(), "there are enough accesses");
    }
    Ok(())
}
