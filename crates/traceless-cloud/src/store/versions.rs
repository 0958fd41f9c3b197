//! Which versions of nodes a store has: the current ones, the ones that the last commit replaced,
//! and the staged ones.
//!
//! An engine records for each version where its bytes are, and leaves the rules to [`Versions`]:
//!
//! ```
//! use traceless_cloud::geometry::Node;
//! use traceless_cloud::params::Params;
//! use traceless_cloud::store::{NodeVersion, StoredVersion, Versions};
//!
//! # fn main() -> traceless_cloud::Result {
//! let mut versions = Versions::new(Params::new(1000, 64, 32)?.geometry);
//! let version = NodeVersion { node: Node(0), attempt: 77 };
//! versions.stage(StoredVersion { version, location: "a file" })?;
//! assert!(versions.find(version).is_err(), "not before the commit");
//! let staged = versions.staged(1, &[version])?;
//! versions.commit(1, &staged);
//! assert_eq!(versions.find(version)?, Some("a file"));
//! # Ok(())
//! # }
//! ```

use super::NodeVersion;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use std::collections::{HashMap, HashSet};

/// A version and the location of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredVersion<T> {
    /// The version.
    pub version: NodeVersion,
    /// Where the engine keeps the version's bytes.
    pub location: T,
}

/// All readable and staged versions.
pub struct Versions<T> {
    geometry: Geometry,
    current: Vec<Option<StoredVersion<T>>>,
    previous: Vec<StoredVersion<T>>,
    /// The versions of the last commit.
    newest: Vec<StoredVersion<T>>,
    staged: HashMap<Node, StoredVersion<T>>,
    sequence: u64,
}

impl<T: Copy + PartialEq> Versions<T> {
    /// The versions of an empty store.
    pub fn new(geometry: Geometry) -> Self {
        let current = vec![None; geometry.nodes() as usize];
        let (previous, newest, staged) = (Vec::new(), Vec::new(), HashMap::new());
        Self { geometry, current, previous, newest, staged, sequence: 0 }
    }

    /// The shape of the store's tree.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The number of the last commit.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// All current versions.
    pub fn current(&self) -> impl Iterator<Item = StoredVersion<T>> + '_ {
        self.current.iter().flatten().copied()
    }

    /// The versions that the last commit replaced.
    pub fn previous(&self) -> impl Iterator<Item = StoredVersion<T>> + '_ {
        self.previous.iter().copied()
    }

    /// The versions of the last commit.
    pub fn newest(&self) -> &[StoredVersion<T>] {
        &self.newest
    }

    /// All staged versions.
    pub fn all_staged(&self) -> impl Iterator<Item = StoredVersion<T>> + '_ {
        self.staged.values().copied()
    }

    /// All versions that were current before the last commit.
    pub fn before_newest(&self) -> impl Iterator<Item = StoredVersion<T>> + '_ {
        let mut is_new = vec![false; self.current.len()];
        for newest in &self.newest {
            is_new[newest.version.node.0 as usize] = true;
        }
        let is_old = move |stored: &StoredVersion<T>| !is_new[stored.version.node.0 as usize];
        self.current().filter(is_old).chain(self.previous())
    }

    /// The location of a readable version; `None` for the version that was never written.
    pub fn find(&self, version: NodeVersion) -> Result<Option<T>> {
        if version.attempt == 0 {
            return Ok(None);
        }
        let current = self.current.get(version.node.0 as usize).copied().flatten();
        let mut known = current.iter().chain(&self.previous);
        let found = known.find(|stored| stored.version == version);
        found.map(|stored| Some(stored.location)).ok_or(Error::Store("no such version of a node"))
    }

    /// Fails unless this can be a new version of a node of this tree.
    pub fn check_new(&self, version: NodeVersion) -> Result {
        if version.node.0 >= self.geometry.nodes() || version.attempt == 0 {
            return Err(Error::Malformed("no such node"));
        }
        Ok(())
    }

    /// Removes the staged version of the node of `version`, and returns it.
    pub fn unstage(&mut self, version: NodeVersion) -> Option<StoredVersion<T>> {
        self.staged.remove(&version.node)
    }

    /// Stages a version. Returns the staged version of the same node that it replaces.
    pub fn stage(&mut self, new: StoredVersion<T>) -> Result<Option<StoredVersion<T>>> {
        self.check_new(new.version)?;
        Ok(self.staged.insert(new.version.node, new))
    }

    /// Drops all staged versions, and returns them.
    pub fn abandon(&mut self) -> Vec<StoredVersion<T>> {
        self.staged.drain().map(|(_, staged)| staged).collect()
    }

    /// The staged versions for the commit with number `sequence`.
    pub fn staged(&self, sequence: u64, versions: &[NodeVersion]) -> Result<Vec<StoredVersion<T>>> {
        if self.sequence.checked_add(1) != Some(sequence) {
            return Err(Error::Store("a commit is missing or came twice"));
        }
        self.find_staged(versions)
    }

    /// The staged versions that are copied from a store after its commit `sequence`.
    pub fn copied(&self, sequence: u64, versions: &[NodeVersion]) -> Result<Vec<StoredVersion<T>>> {
        if sequence < self.sequence {
            return Err(Error::Store("a copy is newer than its store"));
        }
        self.find_staged(versions)
    }

    fn find_staged(&self, versions: &[NodeVersion]) -> Result<Vec<StoredVersion<T>>> {
        let find = |version: &NodeVersion| {
            let found = self.staged.get(&version.node).filter(|stored| stored.version == *version);
            found.copied().ok_or(Error::Store("a node is not staged"))
        };
        versions.iter().map(find).collect()
    }

    /// Removes all versions of nodes, and returns them.
    pub fn remove(&mut self, nodes: &[Node]) -> Vec<StoredVersion<T>> {
        let nodes: HashSet<Node> = nodes.iter().copied().collect();
        let is_removed = |stored: &StoredVersion<T>| nodes.contains(&stored.version.node);
        let of_node = |node: &Node| self.current.get_mut(node.0 as usize).and_then(Option::take);
        let mut removed: Vec<StoredVersion<T>> = nodes.iter().filter_map(of_node).collect();
        removed.extend(self.previous.extract_if(.., |stored| is_removed(stored)));
        removed.extend(self.staged.extract_if(|_, stored| is_removed(stored)).map(|(_, one)| one));
        self.newest.retain(|stored| !is_removed(stored));
        removed
    }

    /// Makes versions current. Returns the versions that can no longer be read or committed: the
    /// ones that the previous commit had replaced, and all other staged ones.
    pub fn commit(&mut self, sequence: u64, new: &[StoredVersion<T>]) -> Vec<StoredVersion<T>> {
        let mut dropped = core::mem::take(&mut self.previous);
        for &new in new {
            let node = new.version.node.0 as usize;
            self.previous.extend(self.current[node].replace(new));
            if self.staged.get(&new.version.node) == Some(&new) {
                self.staged.remove(&new.version.node);
            }
        }
        dropped.extend(self.abandon());
        self.newest = new.to_vec();
        self.sequence = sequence;
        dropped
    }
}
