//! A node made anew: opened, verified, permuted and sealed, part by part.

use super::block_wise::BlockWise;
use super::{Session, Shared};
use crate::channel::Receiver;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, PART_PIECES, PIECE_LEN, TAG_LEN};
use crate::join::{Join, OneThread, THREAD_MIN};
use crate::kernel::{Choice, NIBBLES_ROWS_MAX, Network, Nibbles, Rows, Slab};
use crate::orders::Eviction;
use crate::outer::{Outer, SlotSeal, Vector};
use alloc::boxed::Box;
use alloc::vec::Vec;
use traceless_sys::ct::secret::{classify, declassify};

/// Bytes of memory that an enclave may have, as in the paper.
pub const WORKING_SET_MAX: usize = 64 << 20;

/// A node's slots and those that go with it, in the host's memory.
pub struct NodeBytes<'a> {
    /// The node.
    pub node: &'a [u8],
    /// What comes from above; nothing if the node is made anew by itself.
    pub carried: &'a [u8],
    /// The new node.
    pub new_node: &'a mut [u8],
    /// What goes on; nothing from a leaf.
    pub new_carried: &'a mut [u8],
}

/// Where an evictor finds a node, and leaves the new one, part by part.
pub trait Parts: Send {
    /// Bytes of all slots of the node, of what comes with it, of the new node, of what goes on.
    fn lens(&self) -> (usize, usize, usize, usize);

    /// A part of each slot, and the place of the new ones.
    fn part(&mut self, geometry: &Geometry, part: usize) -> Result<PartBytes<'_>>;

    /// The new ones of the part that was asked for last are there.
    fn done(&mut self) -> Result {
        Ok(())
    }
}

/// A part of a node's slots, and of those that go with it.
pub struct PartBytes<'a> {
    /// Slots, or what holds a part of each.
    pub bytes: NodeBytes<'a>,
    /// Bytes from one to the next.
    pub stride: usize,
    /// Where the part begins in each.
    pub at: usize,
}

impl Parts for NodeBytes<'_> {
    fn lens(&self) -> (usize, usize, usize, usize) {
        let Self { node, carried, new_node, new_carried } = self;
        (node.len(), carried.len(), new_node.len(), new_carried.len())
    }

    fn part(&mut self, geometry: &Geometry, part: usize) -> Result<PartBytes<'_>> {
        let Self { node, carried, new_node, new_carried } = self;
        let bytes = NodeBytes { node, carried, new_node, new_carried };
        Ok(PartBytes { bytes, stride: geometry.slot_len(), at: geometry.part_at(part) })
    }
}

/// Makes nodes anew.
pub struct Evictor {
    geometry: Geometry,
    outer: Outer,
    receiver: Receiver,
    slab: Slab,
    kernel: Kernel,
    working_set: usize,
    threads: Box<dyn Join>,
}

enum Kernel {
    Benes {
        networks: Vec<Network>,
        masks: Vec<u32>,
    },
    Paper(Nibbles),
    /// Not part by part.
    BlockWise(BlockWise),
}

impl Evictor {
    /// Works for a session.
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
            outer: Outer::new(&shared.outer, shared.choice),
            receiver: Receiver::new(&session.evict),
            slab: Slab::new(most)?,
            kernel,
            working_set,
            threads: Box::new(OneThread),
        })
    }

    /// With threads that the host lends.
    #[must_use]
    pub fn with_threads(self, threads: Box<dyn Join>) -> Self {
        Self { threads, ..self }
    }

    /// Whole blocks, two at a time, in place of a part of every row: to compare with. The tree is
    /// one of [`Choice::Benes`].
    #[must_use]
    pub fn by_whole_blocks(self, shared: &Shared) -> Self {
        assert!(shared.choice == Choice::Benes, "a network moves the blocks");
        let g = &self.geometry;
        Self { kernel: Kernel::BlockWise(BlockWise::new(&shared.outer, g, row_counts(g))), ..self }
    }

    /// The other kernel under the same cipher.
    #[cfg(test)]
    pub(super) fn use_network(&mut self) {
        (self.kernel, _) = Kernel::benes(row_counts(&self.geometry));
    }

    /// Makes a node anew as the order says.
    ///
    /// Every slot that comes in is read once, into the enclave's memory, and verified before
    /// anything of its part goes out. What goes out belongs to an attempt which nobody commits to
    /// if a later part turns out to be wrong.
    pub fn evict(&mut self, order: &mut [u8], mut bytes: NodeBytes<'_>) -> Result {
        let order = self.take(order)?;
        let Self { geometry, outer, kernel, .. } = self;
        if let Kernel::BlockWise(blocks) = kernel {
            let job = Job::new(geometry, outer, false, &order);
            job.check(&bytes)?;
            return blocks.evict(&job, &order, bytes);
        }
        self.carry_out(&order, &mut bytes)
    }

    /// The same, of what is not in memory as a whole.
    pub fn evict_by_parts(&mut self, order: &mut [u8], parts: &mut impl Parts) -> Result {
        let order = self.take(order)?;
        self.carry_out(&order, parts)
    }

    /// Bytes of the enclave's memory that it takes up.
    pub fn working_set(&self) -> usize {
        self.working_set
    }

    fn take(&mut self, order: &mut [u8]) -> Result<Eviction> {
        let mut order = Eviction::decode(self.receiver.open(order)?, &self.geometry)?;
        // Where rows go.
        classify(&mut order.control);
        Ok(order)
    }

    fn carry_out(&mut self, order: &Eviction, parts: &mut impl Parts) -> Result {
        let Self { geometry, outer, slab, kernel, threads, .. } = self;
        let job = Job::new(geometry, outer, kernel.streams(), order);
        job.check(parts)?;
        let mut work = |part: usize, threads: &dyn Join| {
            let found = parts.part(geometry, part)?;
            job.load(part, &found, slab, threads)?;
            kernel.permute(&order.control, part, (&job, outer, threads), slab)?;
            job.store(part, slab, found, threads);
            parts.done()
        };
        let is_small = job.rows() * geometry.part_len(0) < THREAD_MIN;
        let threads = if is_small { &OneThread } else { &**threads };
        let mut done = Ok(());
        threads.run(&mut || done = (0..geometry.parts()).try_for_each(|part| work(part, threads)));
        done
    }
}

/// How many rows there may be: of an inner node and of a leaf, in a round and by themselves.
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

    /// Whether it takes streams off and puts them on, or has that done around it.
    fn streams(&self) -> bool {
        matches!(self, Self::Paper(_))
    }

    fn permute(
        &mut self,
        control: &[u8],
        part: usize,
        (job, outer, threads): (&Job<'_>, &Outer, &dyn Join),
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
                nibbles.permute(&dest, pieces, outer.stream(), (&old, &new), slab, &mut ());
            }
            Self::BlockWise(_) => unreachable!("blocks do not come part by part"),
        }
        Ok(())
    }
}

/// One node's eviction, with the seals of what comes in and goes out.
pub(super) struct Job<'a> {
    pub geometry: &'a Geometry,
    /// Whether the kernel takes streams off and puts them on.
    streams: bool,
    slots: usize,
    carried: usize,
    old: Option<SlotSeal<'a>>,
    carried_in: SlotSeal<'a>,
    new: SlotSeal<'a>,
    carried_out: Option<SlotSeal<'a>>,
}

impl<'a> Job<'a> {
    fn new(geometry: &'a Geometry, outer: &'a Outer, streams: bool, order: &Eviction) -> Self {
        let old = order.old(geometry);
        Self {
            geometry,
            streams,
            slots: geometry.slots(geometry.layer_of(order.node)),
            carried: if order.in_round { geometry.round_slots } else { 0 },
            old: old.is_written().then(|| outer.seal(old)),
            carried_in: outer.seal(order.carried_in(geometry)),
            new: outer.seal(order.renewed(geometry)),
            carried_out: order.carried_out(geometry).map(|version| outer.seal(version)),
        }
    }

    pub fn rows(&self) -> usize {
        self.slots + self.carried
    }

    /// Bytes of the node, of what comes with it, of the new node, of what goes on.
    fn lens(&self) -> (usize, usize, usize, usize) {
        let slot = self.geometry.slot_len();
        let on = if self.carried_out.is_some() { self.carried * slot } else { 0 };
        (self.slots * slot, self.carried * slot, self.slots * slot, on)
    }

    fn check(&self, parts: &impl Parts) -> Result {
        if parts.lens() == self.lens() {
            return Ok(());
        }
        Err(Error::Malformed("not the bytes of a node and of what goes with it"))
    }

    /// What a row comes in under, and as which slot. Nothing, if it was never written.
    pub fn source(&self, row: usize) -> Option<(&SlotSeal<'a>, u32)> {
        match row.checked_sub(self.slots) {
            None => self.old.as_ref().map(|seal| (seal, row as u32)),
            Some(carried) => Some((&self.carried_in, carried as u32)),
        }
    }

    /// What a row goes out under, and as which slot. Nothing, if it is dropped.
    pub fn target(&self, row: usize) -> Option<(&SlotSeal<'a>, u32)> {
        match row.checked_sub(self.slots) {
            None => Some((&self.new, row as u32)),
            Some(carried) => self.carried_out.as_ref().map(|seal| (seal, carried as u32)),
        }
    }

    /// The vector that a row goes out under. A row that is dropped has one, too: whether a piece
    /// goes there is secret.
    fn new_vector(&self, row: usize) -> Vector {
        let (seal, slot) = self.target(row).unwrap_or((&self.new, row as u32));
        seal.vector(slot)
    }

    /// Opens a part of every slot, each into its row. Says which is wrong, after all were opened.
    fn load(
        &self,
        part: usize,
        found: &PartBytes<'_>,
        slab: &mut Slab,
        threads: &dyn Join,
    ) -> Result {
        let middle = self.rows() / 2;
        let mut rows = slab.rows_mut(self.rows());
        let (mut first, mut second) = rows.split_at(middle);
        let (mut wrong, mut also_wrong) = (None, None);
        threads.join(&mut || wrong = self.load_rows(part, 0, found, &mut first), &mut || {
            also_wrong = self.load_rows(part, middle, found, &mut second);
        });
        wrong.or(also_wrong).map_or(Ok(()), Err)
    }

    /// The rows from row `start` on.
    fn load_rows(
        &self,
        part: usize,
        start: usize,
        PartBytes { bytes, stride, at }: &PartBytes<'_>,
        rows: &mut Rows<'_>,
    ) -> Option<Error> {
        let len = self.geometry.part_len(part);
        let slots = bytes.node.chunks_exact(*stride).chain(bytes.carried.chunks_exact(*stride));
        let mut wrong = None;
        for ((row, words), slot) in (start..).zip(rows.bytes_mut()).zip(slots.skip(start)) {
            let plain = &mut words[..len];
            let Some((seal, number)) = self.source(row) else {
                plain.fill(0);
                continue;
            };
            let sealed = &slot[*at..][..len + TAG_LEN];
            let opened = if self.streams {
                seal.check((number, part), sealed, plain)
            } else {
                seal.open((number, part), sealed, plain)
            };
            if opened.is_err() {
                wrong = Some(Error::Tampered { node: seal.node().0, slot: number });
            }
        }
        wrong
    }

    /// Seals a part of every row, each into its slot.
    fn store(
        &self,
        part: usize,
        slab: &mut Slab,
        PartBytes { bytes, stride, at }: PartBytes<'_>,
        threads: &dyn Join,
    ) {
        let NodeBytes { new_node: node, new_carried: carried, .. } = bytes;
        // What goes out may be less than what came in: a leaf drops the rest.
        let out = (node.len() + carried.len()) / stride;
        let middle = (out / 2).min(self.slots);
        let (above, below) = node.split_at_mut(middle * stride);
        let mut rows = slab.rows_mut(out);
        let (mut first, mut second) = rows.split_at(middle);
        threads.join(
            &mut || self.store_rows(part, 0, (at, above.chunks_exact_mut(stride)), &mut first),
            &mut || {
                let slots = below.chunks_exact_mut(stride).chain(carried.chunks_exact_mut(stride));
                self.store_rows(part, middle, (at, slots), &mut second);
            },
        );
    }

    /// The rows from row `start` on, into as many slots.
    fn store_rows<'b>(
        &self,
        part: usize,
        start: usize,
        (at, slots): (usize, impl Iterator<Item = &'b mut [u8]>),
        rows: &mut Rows<'_>,
    ) {
        let len = self.geometry.part_len(part);
        for ((row, words), slot) in (start..).zip(rows.bytes_mut()).zip(slots) {
            let (seal, number) = self.target(row).expect("a slot for what goes out");
            let sealed = &mut slot[at..][..len + TAG_LEN];
            let plain = &words[..len];
            if self.streams {
                let (body, tag) = sealed.split_at_mut(plain.len());
                body.copy_from_slice(plain);
                seal.tag((number, part), body, tag);
            } else {
                seal.seal((number, part), plain, sealed);
            }
            declassify(sealed);
        }
    }
}
