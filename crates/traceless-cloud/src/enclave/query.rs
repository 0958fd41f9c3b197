//! Picks one block out of one slot of each layer.

use super::{Session, Shared};
use crate::channel::{Receiver, Sender};
use crate::enclave_orders::Query;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, PART_LEN};
use crate::transport_seal::TransportKeys;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::rng::Rng;
use traceless_sys::ct::secret::{classify, declassify};
use traceless_sys::ct::{
    self, InMemory, Kernel, Mask, MovingBlock as _, Vector, bytes_of, bytes_of_mut,
};

/// Answers queries.
pub struct Querier {
    geometry: Geometry,
    transport_keys: TransportKeys,
    receiver: Receiver,
    sender: Sender,
    /// One block of each layer, as words.
    rows: Vec<u64>,
    chosen: Vec<u64>,
}

impl Querier {
    /// A querier with the keys of a session, which draws the salts of its replies from `rng`.
    pub fn new(shared: &Shared, session: &Session, rng: Box<dyn Rng>) -> Self {
        let geometry = shared.geometry;
        let words = geometry.sealed_len() / size_of::<u64>();
        Self {
            geometry,
            transport_keys: TransportKeys::new(&shared.transport, shared.choice),
            receiver: Receiver::new(&session.query),
            sender: Sender::new(&session.reply, rng),
            rows: vec![0; words * geometry.layers],
            chosen: vec![0; words],
        }
    }

    /// The reply to an order. `slots` has one slot of each layer, from the root on.
    ///
    /// Every slot is verified before one is chosen. A wrong one counts as zeros, which are no
    /// block, and the reply says in which layers slots were wrong ([`QueryReply`]). The host can
    /// know that, too; replies with and without damage look alike.
    pub fn query(&mut self, order: &mut [u8], slots: &[u8]) -> Result<Vec<u8>> {
        let (number, order) = self.receiver.open_numbered(order)?;
        let order = Query::decode(order, &self.geometry)?;
        if slots.len() != self.geometry.layers * self.geometry.slot_len() {
            return Err(Error::Malformed("not one slot of each layer"));
        }
        let damaged = self.open_all(&order, slots);
        let mut target = [order.target];
        classify(&mut target);
        ct::dispatch(Choose { rows: &self.rows, chosen: &mut self.chosen, target: target[0] });
        let reply = QueryReply { order: number, block: bytes_of(&self.chosen), damaged };
        let mut reply = self.sender.seal(&reply.encode());
        declassify(&mut reply);
        Ok(reply)
    }

    /// Opens all slots, and returns the layers of wrong ones, a bit each.
    fn open_all(&mut self, order: &Query, slots: &[u8]) -> u16 {
        let g = &self.geometry;
        let mut damaged = 0;
        let rows = bytes_of_mut(&mut self.rows).chunks_exact_mut(g.sealed_len());
        for (layer, (row, slot)) in rows.zip(slots.chunks_exact(g.slot_len())).enumerate() {
            let version = order.version(g, layer);
            if !version.is_written() {
                row.fill(0);
                continue;
            }
            let seal = self.transport_keys.seal(version);
            let number = order.locations[layer].slot;
            for part in 0..g.parts() {
                let sealed = &slot[g.part_at(part)..g.part_end(part)];
                let plain = &mut row[part * PART_LEN..][..g.part_len(part)];
                if seal.open((number, part), sealed, plain).is_err() {
                    damaged |= 1 << layer;
                }
            }
            if damaged >> layer & 1 == 1 {
                row.fill(0);
            }
        }
        damaged
    }
}

/// Bytes of a reply beside its block.
pub const REPLY_HEAD_LEN: usize = 8 + 2;

/// The content of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueryReply<'a> {
    /// The number of the order that this is the reply to. Without it the host could exchange
    /// replies, and find out which ones are used.
    pub order: u64,
    /// The wanted block under the gateway's seal; zeros if its slot was damaged.
    pub block: &'a [u8],
    /// The layers with damaged slots, a bit each. The host can know them.
    pub damaged: u16,
}

impl<'a> QueryReply<'a> {
    /// The content as bytes.
    pub fn encode(&self) -> Vec<u8> {
        [&self.order.to_le_bytes()[..], &self.damaged.to_le_bytes(), self.block].concat()
    }

    /// The content of an opened reply.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let parts = bytes
            .split_first_chunk()
            .and_then(|(order, rest)| Some((order, rest.split_first_chunk()?)));
        let (order, (damaged, block)) =
            parts.ok_or(Error::Malformed("not the reply to a query"))?;
        Ok(Self { order: u64::from_le_bytes(*order), block, damaged: u16::from_le_bytes(*damaged) })
    }
}

struct Choose<'a> {
    rows: &'a [u64],
    chosen: &'a mut [u64],
    target: u32,
}

impl Kernel for Choose<'_> {
    type Output = ();

    #[expect(clippy::inline_always, reason = "compiled once for each level of processors")]
    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let words = self.chosen.len();
        let mut candidate = InMemory::new(v, self.chosen);
        candidate.clear();
        for (layer, row) in self.rows.chunks_exact(words).enumerate() {
            candidate.gather(row, Mask::equal(layer as u32, self.target).bits());
        }
    }
}
