//! Operations that the audit times, and operations with a planted fault.

use super::super::suite::{CaseKind, SelfTestCase};
use super::{Choose, Timings};
use std::hint::black_box;
use std::sync::Arc;
use traceless::oblivious::{create, create_sealed, sealed_len};
use traceless::oram::Oram;
use traceless::rng::SeededRng;
use traceless::seal::Secret;
use traceless::store::MemStore;
use traceless::{Addr, Result};

/// An operation that is timed.
pub trait TimedOperation {
    /// Serves a request: reads a block, or compares a tag.
    fn serve(&mut self, request: u64) -> Result;

    /// Prepares the request before the clock starts.
    fn prepare(&mut self, request: u64) {
        let _ = request;
    }
}

pub struct TimingSubject {
    pub name: &'static str,
    /// Pairs of users, by name, and their requests.
    pub pairs: &'static [(&'static str, Choose)],
    pub build: fn(seed: u64) -> Result<Box<dyn TimedOperation>>,
}

/// An operation with a fault that the audit must find.
pub type TimingCase = SelfTestCase<Timings>;

/// Pairs of times that suffice to find each fault.
const PLANTED_PAIRS: u64 = 8_000;

const BLOCKS: u64 = 4096;

/// Few enough blocks that each access scans all of them.
const SCANNED: u64 = 256;

const BLOCK_LEN: usize = 64;

/// All operations that claim to take constant time.
pub const SUBJECTS: [TimingSubject; 4] = [
    TimingSubject {
        name: "oblivious",
        pairs: &BLOCK_PAIRS,
        build: |seed| {
            let oram = create(BLOCKS, BLOCK_LEN, Box::new(SeededRng::new(seed)))?;
            Ok(Box::new(Reads::of(oram)?))
        },
    },
    TimingSubject {
        name: "oblivious-sealed",
        pairs: &BLOCK_PAIRS,
        build: |seed| {
            let store = Arc::new(MemStore::new(sealed_len(BLOCKS, BLOCK_LEN)?));
            let oram = create_sealed(BLOCKS, BLOCK_LEN, store, Box::new(SeededRng::new(seed)))?;
            Ok(Box::new(Reads::of(oram)?))
        },
    },
    TimingSubject {
        name: "scan",
        pairs: &BLOCK_PAIRS,
        build: |seed| {
            let oram = create(SCANNED, BLOCK_LEN, Box::new(SeededRng::new(seed)))?;
            Ok(Box::new(Reads::of(oram)?))
        },
    },
    TimingSubject { name: "tags", pairs: &TAG_PAIRS, build: |_| Ok(Box::new(Tags::new(fits))) },
];

/// All operations with a planted fault.
pub const PLANTED: [TimingCase; 4] = [
    TimingCase {
        scheme: TimingSubject {
            name: "mutant:remembers-last",
            pairs: &BLOCK_PAIRS,
            build: |seed| {
                let oram = create(BLOCKS, BLOCK_LEN, Box::new(SeededRng::new(seed)))?;
                Ok(Box::new(RemembersLast { reads: Reads::of(oram)?, last: None }))
            },
        },
        kind: CaseKind::Fault("the block that was just read is at hand"),
        size: PLANTED_PAIRS,
    },
    TimingCase {
        scheme: TimingSubject {
            name: "mutant:stops-at-hit",
            pairs: &BLOCK_PAIRS,
            build: |_| Ok(Box::new(StopsAtHit(vec![[1; BLOCK_LEN]; SCANNED as usize]))),
        },
        kind: CaseKind::Fault("a scan stops at the block that it looks for"),
        size: PLANTED_PAIRS,
    },
    TimingCase {
        scheme: TimingSubject {
            name: "mutant:skips-unwritten",
            pairs: &BLOCK_PAIRS,
            build: |seed| {
                let oram = create(BLOCKS, BLOCK_LEN, Box::new(SeededRng::new(seed)))?;
                Ok(Box::new(SkipsUnwritten(Reads::of(oram)?)))
            },
        },
        kind: CaseKind::Fault("a block that was never written needs no access"),
        size: PLANTED_PAIRS,
    },
    TimingCase {
        scheme: TimingSubject {
            name: "mutant:compares-early",
            pairs: &TAG_PAIRS,
            build: |_| Ok(Box::new(Tags::new(fits_until))),
        },
        kind: CaseKind::Fault("a tag is compared until it differs"),
        size: PLANTED_PAIRS,
    },
];

/// Pairs of users to distinguish by the time of reads. The lower half of all blocks was written.
const BLOCK_PAIRS: [(&str, Choose); 5] = [
    ("one block and random blocks", |is_second, _, rng| {
        let any = rng.below(SCANNED);
        if is_second { any } else { 7 }
    }),
    ("the first blocks and the last", |is_second, i, _| {
        let nth = i % 8;
        if is_second { SCANNED - 1 - nth } else { nth }
    }),
    (
        "blocks in order and far apart",
        |is_second, i, _| {
            if is_second { i * 97 % SCANNED } else { i % SCANNED }
        },
    ),
    ("blocks written and never written", |is_second, _, rng| {
        let any = rng.below(SCANNED / 2);
        if is_second { any + SCANNED / 2 } else { any }
    }),
    ("a table by the ones and the zeros of a secret", |is_second, i, _| {
        i % 8 + if is_second { 8 } else { 0 }
    }),
];

/// Pairs of users to distinguish by the time that the refusal of a wrong tag takes. A request is
/// the place of the first wrong byte.
const TAG_PAIRS: [(&str, Choose); 2] = [
    ("the first byte wrong and the last", |is_second, _, _| if is_second { 31 } else { 0 }),
    ("the first byte wrong and any", |is_second, _, rng| {
        let any = rng.below(32);
        if is_second { any } else { 0 }
    }),
];

/// Reads of blocks; half of the blocks were written.
struct Reads {
    oram: Box<dyn Oram>,
    block: [u8; BLOCK_LEN],
}

impl Reads {
    fn of(mut oram: Box<dyn Oram>) -> Result<Self> {
        for addr in 0..SCANNED / 2 {
            oram.write(Addr(addr), &[addr as u8; BLOCK_LEN])?;
        }
        Ok(Self { oram, block: [0; BLOCK_LEN] })
    }
}

impl TimedOperation for Reads {
    fn serve(&mut self, request: u64) -> Result {
        self.oram.read(Addr(request), &mut self.block)
    }
}

struct RemembersLast {
    reads: Reads,
    last: Option<u64>,
}

impl TimedOperation for RemembersLast {
    fn serve(&mut self, request: u64) -> Result {
        if self.last.replace(request) == Some(request) {
            return Ok(());
        }
        self.reads.serve(request)
    }
}

struct SkipsUnwritten(Reads);

impl TimedOperation for SkipsUnwritten {
    fn serve(&mut self, request: u64) -> Result {
        if request >= SCANNED / 2 {
            self.0.block.fill(0);
            return Ok(());
        }
        self.0.serve(request)
    }
}

struct StopsAtHit(Vec<[u8; BLOCK_LEN]>);

impl TimedOperation for StopsAtHit {
    fn serve(&mut self, request: u64) -> Result {
        let mut sum = 0;
        for (addr, block) in self.0.iter().enumerate() {
            sum += u64::from(black_box(block)[0]);
            if addr as u64 == request {
                break;
            }
        }
        black_box(sum);
        Ok(())
    }
}

/// Compares a tag.
type Fits = fn(key: &Secret, message: &[u8], tag: &[u8]) -> bool;

/// Tags that are wrong in one byte.
struct Tags {
    key: Secret,
    message: [u8; 32],
    fits: Fits,
    right: [u8; 32],
    /// The tag stays at one address, because times depend on addresses too.
    tag: [u8; 32],
}

impl Tags {
    fn new(fits: Fits) -> Self {
        let (key, message) = (Secret::from_bytes([3; 32]), [5; 32]);
        let right = *key.mac(&message).bytes();
        Self { key, message, fits, right, tag: right }
    }
}

impl TimedOperation for Tags {
    fn serve(&mut self, _: u64) -> Result {
        black_box((self.fits)(&self.key, &self.message, black_box(&self.tag)));
        Ok(())
    }

    fn prepare(&mut self, request: u64) {
        self.tag = self.right;
        self.tag[request as usize] ^= 1;
    }
}

fn fits(key: &Secret, message: &[u8], tag: &[u8]) -> bool {
    key.mac(message).fits(tag)
}

fn fits_until(key: &Secret, message: &[u8], tag: &[u8]) -> bool {
    let right = key.mac(message);
    // Byte by byte, as written by hand.
    for (a, b) in right.bytes().iter().zip(tag) {
        if black_box(a) != black_box(b) {
            return false;
        }
    }
    true
}
