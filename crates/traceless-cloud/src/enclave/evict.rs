//! Makes a new version of a node: opens, verifies, permutes and seals it, part by part.

use super::block_wise::BlockWise;
use super::job::{DamagedSlots, Job, NodeBytes, SlotParts};
use super::{Session, Shared};
use crate::channel::Receiver;
use crate::enclave_orders::Eviction;
use crate::error::{Error, Result};
use crate::fork_join::{ForkJoin, OneThread, THREAD_MIN};
use crate::geometry::{Geometry, PART_PIECES, PIECE_LEN};
use crate::kernel::{Choice, NIBBLES_ROWS_MAX, Network, Nibbles, Slab};
use crate::transport_seal::{TransportKeys, Vector};
use alloc::boxed::Box;
use alloc::vec::Vec;
use traceless_sys::ct::secret::classify;

/// Bytes of memory that an enclave may use, as in the paper.
pub const WORKING_SET_MAX: usize = 64 << 20;

/// Makes new versions of nodes.
pub struct Evictor {
    geometry: Geometry,
    transport_keys: TransportKeys,
    receiver: Receiver,
    slab: Slab,
    kernel: Kernel,
    working_set: usize,
    threads: Box<dyn ForkJoin>,
}

enum Kernel {
    Benes {
        networks: Vec<Network>,
        masks: Vec<u32>,
    },
    Paper(Nibbles),
    /// Moves whole blocks, not parts.
    BlockWise(BlockWise),
}

impl Evictor {
    /// An evictor with the keys of a session.
    pub fn new(shared: &Shared, session: &Session) -> Result<Self> {
        let geometry = shared.geometry;
        let rows = row_counts(&geometry);
        let most = rows.iter().copied().max().unwrap_or_default();
        let mut working_set = Slab::bytes(most);
        let kernel = match shared.choice {
            Choice::Benes => {
                let (kernel, bytes) = Kernel::benes(rows);
                working_set += bytes;
                kernel
            }
            Choice::Paper if most > NIBBLES_ROWS_MAX => {
                return Err(Error::Parameters("the paper's pages have room for 8192 rows"));
            }
            Choice::Paper => {
                let nibbles = Nibbles::default();
                working_set += nibbles.bytes() + most * 3 * size_of::<Vector>();
                Kernel::Paper(nibbles)
            }
        };
        if working_set > WORKING_SET_MAX {
            return Err(Error::Parameters("a node needs more than 64 MiB of the enclave's memory"));
        }
        Ok(Self {
            geometry,
            transport_keys: TransportKeys::new(&shared.transport, shared.choice),
            receiver: Receiver::new(&session.evict),
            slab: Slab::new(most)?,
            kernel,
            working_set,
            threads: Box::new(OneThread),
        })
    }

    /// Uses threads that the host lends.
    #[must_use]
    pub fn with_threads(self, threads: Box<dyn ForkJoin>) -> Self {
        Self { threads, ..self }
    }

    /// Moves whole blocks, two at a time, instead of a part of every row, as a baseline. The tree
    /// uses [`Choice::Benes`].
    #[must_use]
    pub fn by_whole_blocks(self, shared: &Shared) -> Self {
        assert!(shared.choice == Choice::Benes, "a network moves the blocks");
        let g = &self.geometry;
        Self {
            kernel: Kernel::BlockWise(BlockWise::new(&shared.transport, g, row_counts(g))),
            ..self
        }
    }

    /// Switches to the Beneš network, under the same cipher.
    #[cfg(test)]
    pub(super) fn use_network(&mut self) {
        (self.kernel, _) = Kernel::benes(row_counts(&self.geometry));
    }

    /// Makes a new version of a node, as the order says.
    ///
    /// Every slot is read once, into the enclave's memory, and verified before anything of its part
    /// goes out. Slots that the order names become zeros, which are no block. Further damaged slots
    /// of the node are returned, and nothing goes out from there on: only one content is sealed
    /// under an attempt number. Parts that went out before are right, and belong to an attempt that
    /// the gateway never commits.
    ///
    /// An order without an attempt number verifies the node, and writes nothing.
    pub fn evict(&mut self, order: &mut [u8], mut bytes: NodeBytes<'_>) -> Result<DamagedSlots> {
        let order = self.take(order)?;
        let Self { geometry, transport_keys, kernel, .. } = self;
        if let Kernel::BlockWise(blocks) = kernel
            && !order.only_verifies()
        {
            let job = Job::new(geometry, transport_keys, false, &order);
            job.check(&bytes)?;
            return blocks.evict(&job, &order, bytes);
        }
        self.carry_out(&order, &mut bytes)
    }

    /// Like [`Evictor::evict`], for a node that is never in memory as a whole.
    pub fn evict_by_parts(
        &mut self,
        order: &mut [u8],
        parts: &mut impl SlotParts,
    ) -> Result<DamagedSlots> {
        let order = self.take(order)?;
        self.carry_out(&order, parts)
    }

    /// Bytes of the enclave's memory that the evictor uses.
    pub fn working_set(&self) -> usize {
        self.working_set
    }

    fn take(&mut self, order: &mut [u8]) -> Result<Eviction> {
        let mut order = Eviction::decode(self.receiver.open(order)?, &self.geometry)?;
        // The control bits say where rows go, which is secret.
        classify(&mut order.control);
        Ok(order)
    }

    fn carry_out(&mut self, order: &Eviction, parts: &mut impl SlotParts) -> Result<DamagedSlots> {
        let Self { geometry, transport_keys, slab, kernel, threads, .. } = self;
        let job = Job::new(geometry, transport_keys, kernel.streams(), order);
        job.check(parts)?;
        let mut damaged = DamagedSlots::new();
        let mut work = |part: usize, threads: &dyn ForkJoin| {
            let found = parts.part(geometry, part)?;
            job.load(part, &found, slab, threads, &mut damaged)?;
            if order.only_verifies() || !damaged.is_empty() {
                return Ok(());
            }
            kernel.permute(&order.control, part, (&job, transport_keys, threads), slab)?;
            job.store(part, slab, found, threads);
            parts.done()
        };
        let is_small = job.rows() * geometry.part_len(0) < THREAD_MIN;
        let threads = if is_small { &OneThread } else { &**threads };
        let mut done = Ok(());
        threads.run(&mut || done = (0..geometry.parts()).try_for_each(|part| work(part, threads)));
        done.map(|()| damaged)
    }
}

/// The possible numbers of rows: inner node or leaf, evicted in a round or alone.
fn row_counts(g: &Geometry) -> Vec<usize> {
    let mut counts = Vec::new();
    for slots in [g.inner_slots, g.leaf_slots] {
        for rows in [slots, slots + g.round_slots] {
            if !counts.contains(&rows) {
                counts.push(rows);
            }
        }
    }
    counts
}

impl Kernel {
    fn benes(rows: Vec<usize>) -> (Self, usize) {
        let networks: Vec<Network> = rows.into_iter().map(Network::new).collect();
        let bytes = networks.iter().map(Network::bytes).sum();
        (Self::Benes { networks, masks: Vec::new() }, bytes)
    }

    /// Whether the kernel itself removes and applies the cipher's streams. Otherwise [`Job`] does.
    fn streams(&self) -> bool {
        matches!(self, Self::Paper(_))
    }

    fn permute(
        &mut self,
        control: &[u8],
        part: usize,
        (job, transport_keys, threads): (&Job<'_>, &TransportKeys, &dyn ForkJoin),
        slab: &mut Slab,
    ) -> Result {
        let rows = job.rows();
        match self {
            Self::Benes { networks, masks } => {
                let network = networks.iter().find(|network| network.rows() == rows);
                let network = network.filter(|network| network.control_len() == control.len());
                let network = network.ok_or(Error::Malformed("not the bits of a network"))?;
                network.permute(control, masks, slab, threads);
            }
            Self::Paper(nibbles) => {
                let dest: Vec<u32> = control
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&to| u32::from(u16::from_le_bytes(to)))
                    .collect();
                if dest.len() != rows || dest.iter().any(|&to| to as usize >= rows) {
                    return Err(Error::Malformed("not a permutation"));
                }
                let old: Vec<Option<Vector>> = (0..rows)
                    .map(|row| job.source(row).map(|(seal, slot)| seal.vector(slot)))
                    .collect();
                let new: Vec<Vector> = (0..rows).map(|row| job.new_vector(row)).collect();
                let pieces = (part * PART_PIECES, job.geometry.part_len(part) / PIECE_LEN);
                nibbles.permute(
                    &dest,
                    pieces,
                    transport_keys.stream(),
                    (&old, &new),
                    slab,
                    &mut (),
                );
            }
            Self::BlockWise(_) => unreachable!("blocks do not come part by part"),
        }
        Ok(())
    }
}
