//! The gateway's orders to the enclave, as bytes.
//!
//! All queries of a tree have the same length, and one for another tree's path is refused:
//!
//! ```
//! use traceless_cloud::enclave_orders::{Location, Query};
//! use traceless_cloud::params::Params;
//!
//! # fn main() -> traceless_cloud::Result {
//! let g = Params::new(1000, 1024, 32)?.geometry;
//! let mut query = Query { round: 9, leaf: 5, locations: Default::default(), target: 0 };
//! query.locations[0] = Location { slot: 3, attempt: 77 };
//! let bytes = query.encode(&g);
//! assert_eq!(Query::decode(&bytes, &g)?, query);
//! assert_eq!(query.version(&g, 0).attempt, 77);
//!
//! let beyond = Query { leaf: g.leaves(), ..query }.encode(&g);
//! assert_eq!(beyond.len(), bytes.len());
//! assert!(Query::decode(&beyond, &g).is_err());
//! # Ok(())
//! # }
//! ```

use crate::codec::{Reader, Writer};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, LAYERS_MAX, Node};
use crate::transport_seal::Version;
use alloc::vec::Vec;

/// Bytes of an order, at most. Each row has at most four bytes of control data.
pub fn order_len_max(geometry: &Geometry) -> usize {
    let rows = geometry.inner_slots.max(geometry.leaf_slots) + geometry.round_slots;
    // The kernel's control data, and the numbers of damaged slots.
    ORDER_HEAD_LEN_MAX + 2 * 4 * rows
}

/// Bytes of an order without the kernel's control data, at most.
const ORDER_HEAD_LEN_MAX: usize = 512;

/// A slot of one layer of a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Location {
    /// The slot in its node.
    pub slot: u32,
    /// The attempt number of the node's version; 0 if the node was never written.
    pub attempt: u64,
}

impl Location {
    /// Appends the location.
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.slot).u64(self.attempt);
    }

    /// Takes a location.
    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { slot: from.u32()?, attempt: from.u64()? })
    }
}

/// One slot of each layer, and the layer of the wanted block. The host knows all but the latter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// How many rounds are committed.
    pub round: u64,
    /// The leaf of the path.
    pub leaf: u32,
    /// Slots, from the root on.
    pub locations: [Location; LAYERS_MAX],
    /// The layer of the wanted block. Secret.
    pub target: u32,
}

impl Query {
    /// The query as bytes. All queries of a tree have the same length.
    pub fn encode(&self, geometry: &Geometry) -> Vec<u8> {
        let mut out = Writer::with_capacity(16 + 12 * geometry.layers);
        out.u64(self.round).u32(self.leaf).u32(self.target);
        for location in &self.locations[..geometry.layers] {
            location.encode(&mut out);
        }
        out.into_bytes()
    }

    /// Decodes authentic bytes.
    pub fn decode(bytes: &[u8], geometry: &Geometry) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let (round, leaf, target) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let mut locations = [Location::default(); LAYERS_MAX];
        for (layer, location) in locations.iter_mut().enumerate().take(geometry.layers) {
            *location = Location::decode(&mut reader)?;
            if location.slot as usize >= geometry.slots(layer) {
                return Err(Error::Malformed("no such slot"));
            }
        }
        reader.end()?;
        if leaf >= geometry.leaves() {
            return Err(Error::Malformed("no such path"));
        }
        Ok(Self { round, leaf, locations, target })
    }

    /// The version of the node in a layer.
    pub fn version(&self, geometry: &Geometry, layer: usize) -> Version {
        let node = geometry.node(layer, self.leaf);
        let attempt = self.locations[layer].attempt;
        Version { node, epoch: geometry.epoch(node, self.round), attempt, carried: false }
    }
}

/// How one node is renewed: as one layer of a round, or alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Eviction {
    /// How many rounds are committed; this is also the number of the running round.
    pub round: u64,
    /// The node.
    pub node: Node,
    /// Whether the node is a layer of a round, so that blocks come in from above.
    pub in_round: bool,
    /// The attempt number of the old version; 0 if the node was never written.
    pub before: u64,
    /// The attempt number of the new version; 0 if the node is only to be verified.
    pub attempt: u64,
    /// Slots of the old version that become zeros without being read: the gateway knows that they
    /// are damaged. So the order alone decides what is sealed under the attempt number.
    pub zeroed: Vec<u32>,
    /// The targets of the rows, in the kernel's encoding. Secret.
    pub control: Vec<u8>,
}

impl Eviction {
    /// The order as bytes. All orders for a layer without damage have the same length.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(33 + 4 * self.zeroed.len() + self.control.len());
        out.u64(self.round).u32(self.node.0).u8(u8::from(self.in_round));
        out.u64(self.before).u64(self.attempt);
        out.u32(self.zeroed.len() as u32);
        for slot in &self.zeroed {
            out.u32(*slot);
        }
        out.bytes(&self.control);
        out.into_bytes()
    }

    /// Decodes authentic bytes.
    pub fn decode(bytes: &[u8], geometry: &Geometry) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let (round, node) = (reader.u64()?, Node(reader.u32()?));
        let in_round = reader.u8()? == 1;
        let (before, attempt) = (reader.u64()?, reader.u64()?);
        if node.0 >= geometry.nodes() || (attempt == 0 && in_round) {
            return Err(Error::Malformed("no such node"));
        }
        let layer = geometry.layer_of(node);
        if in_round && node != geometry.node(layer, geometry.evicted(round)) {
            return Err(Error::Malformed("the round does not come by this node"));
        }
        let count = reader.count(4)?;
        let zeroed = (0..count).map(|_| reader.u32()).collect::<Result<_>>()?;
        let control = reader.remaining().to_vec();
        Ok(Self { round, node, in_round, before, attempt, zeroed, control })
    }

    /// The order to verify a node that was last written under the attempt number `before`.
    pub fn to_verify(round: u64, node: Node, before: u64) -> Self {
        let (zeroed, control) = (Vec::new(), Vec::new());
        Self { round, node, in_round: false, before, attempt: 0, zeroed, control }
    }

    /// Whether the node is verified and nothing is written.
    pub fn only_verifies(&self) -> bool {
        self.attempt == 0
    }

    /// The version of the node before the eviction.
    pub fn old(&self, geometry: &Geometry) -> Version {
        let epoch = geometry.epoch(self.node, self.round);
        Version { node: self.node, epoch, attempt: self.before, carried: false }
    }

    /// The version of the node after the eviction.
    pub fn renewed(&self, geometry: &Geometry) -> Version {
        let old = self.old(geometry);
        let epoch = old.epoch + u64::from(self.in_round);
        Version { epoch, attempt: self.attempt, ..old }
    }

    /// The version of the rows that come in from above.
    pub fn carried_in(&self, geometry: &Geometry) -> Version {
        carried(geometry, geometry.layer_of(self.node), self.round, self.attempt)
    }

    /// The version of the rows that go on; `None` for a leaf, where they are dropped.
    pub fn carried_out(&self, geometry: &Geometry) -> Option<Version> {
        let below = geometry.layer_of(self.node) + 1;
        let has_next_layer = self.in_round && below < geometry.layers;
        has_next_layer.then(|| carried(geometry, below, self.round, self.attempt))
    }
}

/// The version of the rows that a round carries into a layer.
pub fn carried(geometry: &Geometry, layer: usize, round: u64, attempt: u64) -> Version {
    let node = geometry.node(layer, geometry.evicted(round));
    Version { node, epoch: geometry.epoch(node, round), attempt, carried: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::tests::small;

    #[test]
    fn orders_round_trip() {
        let g = small();
        let mut locations = [Location::default(); LAYERS_MAX];
        for (i, location) in locations[..g.layers].iter_mut().enumerate() {
            *location = Location { slot: i as u32 + 3, attempt: i as u64 * 7 };
        }
        let query = Query { round: 9, leaf: 20, locations, target: 2 };
        let bytes = query.encode(&g);
        assert_eq!(Query::decode(&bytes, &g).unwrap(), query);
        assert!(Query::decode(&bytes[1..], &g).is_err());
        assert!(Query::decode(&[&bytes[..], &[0]].concat(), &g).is_err());
        let beyond = Query { leaf: 27, ..query }.encode(&g);
        assert!(Query::decode(&beyond, &g).is_err());
        let mut beyond = query;
        beyond.locations[1].slot = 20;
        assert!(Query::decode(&beyond.encode(&g), &g).is_err());

        let node = g.node(2, g.evicted(13));
        let (zeroed, control) = (vec![7, 8], vec![1, 2, 3]);
        let (round, in_round, before, attempt) = (13, true, 4, 5);
        let order = Eviction { round, node, in_round, before, attempt, zeroed, control };
        let bytes = order.encode();
        assert_eq!(Eviction::decode(&bytes, &g).unwrap(), order);
        assert!(Eviction::decode(&bytes[..20], &g).is_err());
        for wrong in [
            Eviction { node: Node(40), ..order.clone() },
            Eviction { node: g.node(2, g.evicted(14)), ..order.clone() },
            Eviction { attempt: 0, ..order.clone() },
        ] {
            assert!(Eviction::decode(&wrong.encode(), &g).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn renewed_versions_follow_old_ones() {
        let g = small();
        for round in 0..60 {
            for layer in 0..g.layers {
                let node = g.node(layer, g.evicted(round));
                let order = Eviction {
                    round,
                    node,
                    in_round: true,
                    before: 1,
                    attempt: 2,
                    zeroed: Vec::new(),
                    control: Vec::new(),
                };
                let (old, new) = (order.old(&g), order.renewed(&g));
                assert_eq!((new.epoch, g.epoch(node, round + 1)), (old.epoch + 1, new.epoch));
                if let Some(out) = order.carried_out(&g) {
                    let below = g.node(layer + 1, g.evicted(round));
                    assert_eq!((out.node, out.carried), (below, true));
                } else {
                    assert_eq!(layer, g.layers - 1);
                }
            }
        }
    }
}
