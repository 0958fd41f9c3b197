//! The map from versions of nodes to places in a store.
//!
//! Places have two sizes, for leaves and for inner nodes. Besides one place for each node there are
//! spare ones: a round writes its nodes there while the old versions are still read, and the places
//! of replaced versions are free again when the next round commits.

use super::NodeVersion;
use super::versions::{StoredVersion, Versions};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use core::ops::Range;

/// A version and its place: the place's number among all of its size.
pub type VersionPlace = StoredVersion<u32>;

/// The places of all readable and staged versions.
pub struct NodePlaces {
    versions: Versions<u32>,
    /// Free places, for inner nodes and for leaves.
    free: [Vec<u32>; 2],
}

impl NodePlaces {
    /// The places of an empty store.
    pub fn new(geometry: Geometry) -> Self {
        let mut places = Self { versions: Versions::new(geometry), free: Default::default() };
        places.find_free();
        places
    }

    /// How many places there are for inner nodes and for leaves: one for each node, one for each
    /// staged version, and one for each version that the last commit replaced.
    pub fn counts(geometry: &Geometry) -> [u32; 2] {
        let (inner, leaves) = (geometry.layers as u32 - 1, geometry.leaves());
        [geometry.nodes() - leaves + 2 * inner, leaves + 2]
    }

    /// The size of a node's place: 0 for an inner node, 1 for a leaf.
    pub fn size_of(&self, node: Node) -> usize {
        let geometry = self.versions.geometry();
        usize::from(geometry.layer_of(node) + 1 == geometry.layers)
    }

    /// The number of the last commit.
    pub fn sequence(&self) -> u64 {
        self.versions.sequence()
    }

    /// All current versions.
    pub fn current(&self) -> impl Iterator<Item = VersionPlace> + '_ {
        self.versions.current()
    }

    /// The versions of the last commit.
    pub fn newest(&self) -> &[VersionPlace] {
        self.versions.newest()
    }

    /// All versions that were current before the last commit.
    pub fn before_newest(&self) -> impl Iterator<Item = VersionPlace> + '_ {
        self.versions.before_newest()
    }

    /// The place of a version; `None` for the version that was never written.
    pub fn find(&self, version: NodeVersion) -> Result<Option<u32>> {
        self.versions.find(version)
    }

    /// Allocates a place for a new version.
    pub fn stage(&mut self, version: NodeVersion) -> Result<u32> {
        self.versions.check_new(version)?;
        let size = self.size_of(version.node);
        if let Some(old) = self.versions.unstage(version) {
            self.free[size].push(old.location);
        }
        let place = self.free[size].pop().ok_or(Error::Store("too many nodes are staged"))?;
        self.versions.stage(VersionPlace { version, location: place })?;
        Ok(place)
    }

    /// Drops all staged versions.
    pub fn abandon(&mut self) {
        self.versions.abandon();
        self.find_free();
    }

    /// The places of staged versions, for the commit with number `sequence`.
    pub fn staged(&self, sequence: u64, versions: &[NodeVersion]) -> Result<Vec<VersionPlace>> {
        self.versions.staged(sequence, versions)
    }

    /// The places of staged versions that are copied from a store with this number.
    pub fn copied(&self, sequence: u64, versions: &[NodeVersion]) -> Result<Vec<VersionPlace>> {
        self.versions.copied(sequence, versions)
    }

    /// Makes versions current, and drops all other staged versions.
    pub fn commit(&mut self, sequence: u64, placed: &[VersionPlace]) {
        self.versions.commit(sequence, placed);
        self.find_free();
    }

    /// Removes all versions of nodes, and returns their places.
    pub fn remove(&mut self, nodes: &[Node]) -> Vec<VersionPlace> {
        let removed = self.versions.remove(nodes);
        if !removed.is_empty() {
            self.find_free();
        }
        removed
    }

    /// Free places of a size, as ranges.
    pub fn free(&self, size: usize) -> Vec<Range<u32>> {
        let mut free = self.free[size].clone();
        free.sort_unstable();
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for place in free {
            match ranges.last_mut().filter(|range| range.end == place) {
                Some(range) => range.end += 1,
                None => ranges.push(place..place + 1),
            }
        }
        ranges
    }

    fn find_free(&mut self) {
        let counts = Self::counts(self.versions.geometry());
        let mut used = counts.map(|count| vec![false; count as usize]);
        let readable = self.versions.current().chain(self.versions.previous());
        for placed in readable.chain(self.versions.all_staged()) {
            used[self.size_of(placed.version.node)][placed.location as usize] = true;
        }
        for (free, used) in self.free.iter_mut().zip(used) {
            let unused = used.iter().enumerate().rev().filter(|(_, used)| !**used);
            *free = unused.map(|(place, _)| place as u32).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::tests::{rootless, small};

    /// The size and number of a version's place.
    fn place_of(places: &NodePlaces, version: NodeVersion) -> (usize, u32) {
        (places.size_of(version.node), places.find(version).unwrap().unwrap())
    }

    #[test]
    fn old_versions_stay_until_the_next_commit() {
        let g = small();
        let mut places = NodePlaces::new(g);
        let mut before: Vec<NodeVersion> = Vec::new();
        for sequence in 1..=60 {
            let node = |layer| g.node(layer, g.evicted(sequence - 1));
            let version = |layer| NodeVersion { node: node(layer), attempt: sequence };
            let versions: Vec<NodeVersion> = (0..g.layers).map(version).collect();
            let now: Vec<NodeVersion> = places.current().map(|place| place.version).collect();
            let readable: Vec<(usize, u32)> =
                now.iter().chain(&before).map(|old| place_of(&places, *old)).collect();
            // Staged twice, as after a failure.
            for attempt in [sequence + 1000, sequence] {
                for version in &versions {
                    let place = places.stage(NodeVersion { attempt, ..*version }).unwrap();
                    assert!(!readable.contains(&(places.size_of(version.node), place)));
                }
            }
            let staged = places.staged(sequence, &versions).unwrap();
            places.commit(sequence, &staged);
            assert!(now.iter().all(|old| places.find(*old).is_ok()));
            assert!(versions.iter().all(|new| places.find(*new).unwrap().is_some()));
            before = now
                .into_iter()
                .filter(|old| versions.iter().any(|new| new.node == old.node))
                .collect();
        }
        // More than there is room for, unless the first ones are dropped.
        for attempt in 100..110 {
            for node in 0..2 {
                let node = g.node(1, node);
                places.stage(NodeVersion { node, attempt }).unwrap();
            }
            places.stage(NodeVersion { node: Node(0), attempt }).unwrap();
            places.abandon();
        }
        let unknown = NodeVersion { node: Node(0), attempt: 3 };
        assert!(places.find(unknown).is_err());
        assert_eq!(places.find(NodeVersion { attempt: 0, ..unknown }).unwrap(), None);
        assert!(places.staged(61, &[unknown]).is_err() && places.staged(60, &[]).is_err());
    }

    /// One for each node, for each staged version, and for each replaced version.
    #[test]
    fn there_are_enough_places_for_a_round() {
        let of = |g: Geometry| (g.nodes(), g.leaves(), NodePlaces::counts(&g));
        assert_eq!(of(small()), (40, 27, [13 + 2 * 3, 27 + 2]));
        assert_eq!(of(Geometry { layers: 1, ..rootless() }), (3, 3, [0, 3 + 2]));
    }

    #[test]
    fn only_versions_of_nodes_are_staged() {
        let mut places = NodePlaces::new(small());
        for (node, attempt, is_staged) in [(39, 1, true), (40, 1, false), (39, 0, false)] {
            let version = NodeVersion { node: Node(node), attempt };
            assert_eq!(places.stage(version).is_ok(), is_staged, "{version:?}");
        }
    }
}
