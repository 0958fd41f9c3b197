//! The changes of a gateway's state. The same records, applied in order to the same state, give the
//! same state, so a log of records represents the state.

use super::names::{Namespace, Object, read_namespace, read_object, write_namespace, write_object};
use crate::codec::{Reader, Writer};
use crate::enclave_orders::Location;
use crate::error::{Error, Result};
use std::collections::HashSet;

/// Names the state in errors about bytes that are no records.
pub const STATE: &str = "the gateway's state";
/// The number of the record that is a group of records.
const GROUP: u8 = 21;

/// One change of the state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A query is about to be sent.
    Query {
        /// The path's leaf.
        leaf: u32,
        /// The slot of each layer.
        slots: Vec<u32>,
        /// The requested block; `None` for a dummy query.
        id: Option<u32>,
        /// The block's layer, if the block is in the tree.
        target: Option<u32>,
        /// The block's new content, if the request is a write.
        write: Option<Vec<u8>>,
    },
    /// A block waits at the gateway from now on, or has new content. If the first query without a
    /// reply is for this block, this is the reply.
    Stash {
        /// The block.
        id: u32,
        /// The leaf of its new path.
        leaf: u32,
        /// The block's content.
        bytes: Vec<u8>,
    },
    /// The first query without a reply, a write, has got its reply: its block waits from now on,
    /// with its new content.
    StashWrite {
        /// The leaf of the block's new path.
        leaf: u32,
    },
    /// A dummy query has got its reply.
    EndDummy,
    /// A round or a renewal begins.
    Begin {
        /// The attempt number of the new versions.
        attempt: u64,
        /// The seed of the plan.
        seed: [u8; 32],
        /// The node to be renewed; `None` for the whole path of a round.
        node: Option<u32>,
    },
    /// The copy of a node begins, to the partition that gets the node's tree.
    Copy {
        /// The partition that gets the tree.
        partition: u32,
        /// The node.
        node: u32,
        /// The attempt number of its current version.
        attempt: u64,
    },
    /// Copies of nodes are verified. Also a part of a saved state.
    Copied {
        /// Each node with the attempt number of the copied version.
        nodes: Vec<(u32, u64)>,
    },
    /// The new versions of a partition are committed.
    Commit {
        /// The partition.
        partition: u32,
    },
    /// Slots of a node are damaged, while no round is in progress: the blocks in them are lost.
    Damage {
        /// The node.
        node: u32,
        /// The slots.
        slots: Vec<u32>,
    },
    /// The first query without a reply, a read, has got its reply: its block is lost.
    EndLost,
    /// Blocks that are lost, as a part of a saved state.
    Lost {
        /// The blocks.
        ids: Vec<u32>,
    },
    /// A query without a reply that reads versions which the last commit replaced, as a part of a
    /// saved state.
    OldQuery {
        /// How many rounds preceded it.
        round: u64,
        /// The path's leaf.
        leaf: u32,
        /// The slot of each layer, with its node's version.
        locations: Vec<Location>,
        /// The requested block; `None` for a dummy query.
        id: Option<u32>,
        /// The block's layer, if the block is in the tree.
        target: Option<u32>,
        /// The block's new content, if the request is a write.
        write: Option<Vec<u8>>,
    },
    /// The new versions of a partition are given up.
    Fail {
        /// The partition.
        partition: u32,
    },
    /// The tree is divided among partitions, while no round is in progress. Also a part of a saved
    /// state.
    Divide {
        /// How many commits there were in each partition.
        sequences: Vec<u64>,
        /// The partition of each tree, by its root.
        of_root: Vec<u32>,
        /// Rounds that have failed, and are to be made again.
        failed: Vec<u64>,
    },
    /// Only the first so many partitions are to have trees, while no round is in progress. Also a
    /// part of a saved state.
    Keep {
        /// How many.
        partitions: u32,
    },
    /// A name is bound to a value.
    Bind {
        /// What the name is for.
        namespace: Namespace,
        /// The name.
        name: Vec<u8>,
        /// The value's blocks.
        object: Object,
    },
    /// A name is removed.
    Unbind {
        /// What the name is for.
        namespace: Namespace,
        /// The name.
        name: Vec<u8>,
    },
    /// A name gets another note.
    SetNote {
        /// What the name is for.
        namespace: Namespace,
        /// The name.
        name: Vec<u8>,
        /// The note.
        note: Vec<u8>,
    },
    /// Parts of an upload become an object.
    Join {
        /// The upload.
        upload: Vec<u8>,
        /// Names of the parts, in order.
        parts: Vec<Vec<u8>>,
        /// The object's name.
        name: Vec<u8>,
        /// The object's note.
        note: Vec<u8>,
    },
    /// An object gets another name in its space.
    Rename {
        /// What the names are for.
        namespace: Namespace,
        /// The name until now.
        from: Vec<u8>,
        /// The name from now on.
        to: Vec<u8>,
    },
    /// Changes of names that are made together. No other records are among them.
    Together {
        /// The changes, in order.
        changes: Vec<Record>,
    },
}

impl Record {
    /// The record as bytes.
    // tidy: long function because each kind of record has a few lines
    #[expect(clippy::too_many_lines, reason = "each kind of record has a few lines")]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Query { leaf, slots, id, target, write } => {
                out.u8(0);
                out.u32(*leaf);
                out.u32(slots.len() as u32);
                out.u32s(slots);
                write_access(*id, *target, write.as_deref(), &mut out);
            }
            Self::OldQuery { round, leaf, locations, id, target, write } => {
                out.u8(14).u64(*round).u32(*leaf).u8(locations.len() as u8);
                for location in locations {
                    location.encode(&mut out);
                }
                write_access(*id, *target, write.as_deref(), &mut out);
            }
            Self::Stash { id, leaf, bytes } => {
                out.u8(1).u32(*id).u32(*leaf);
                out.counted(bytes);
            }
            Self::Begin { attempt, seed, node } => {
                out.u8(3).u64(*attempt).bytes(seed);
                out.option(*node);
            }
            Self::Bind { namespace, name, object } => {
                out.u8(6);
                write_namespace(*namespace, &mut out);
                out.counted(name);
                write_object(object, &mut out);
            }
            Self::StashWrite { leaf } => {
                out.u8(10).u32(*leaf);
            }
            Self::Damage { node, slots } => {
                out.u8(11).u32(*node).u32(slots.len() as u32);
                out.u32s(slots);
            }
            Self::EndDummy => {
                out.u8(2);
            }
            // Gateways of before there were partitions know the first one only.
            Self::Commit { partition: 0 } => {
                out.u8(4);
            }
            Self::Fail { partition: 0 } => {
                out.u8(5);
            }
            Self::Commit { partition } => {
                out.u8(15).u32(*partition);
            }
            Self::Fail { partition } => {
                out.u8(16).u32(*partition);
            }
            Self::Divide { sequences, of_root, failed } => {
                out.u8(17).u32(sequences.len() as u32).u64s(sequences);
                out.u32(of_root.len() as u32).u32s(of_root);
                out.u32(failed.len() as u32).u64s(failed);
            }
            Self::Copy { partition, node, attempt } => {
                out.u8(18).u32(*partition).u32(*node).u64(*attempt);
            }
            Self::Copied { nodes } => {
                out.u8(19).u32(nodes.len() as u32);
                for (node, attempt) in nodes {
                    out.u32(*node).u64(*attempt);
                }
            }
            Self::EndLost => {
                out.u8(12);
            }
            Self::Lost { ids } => {
                out.u8(13).u32(ids.len() as u32);
                out.u32s(ids);
            }
            Self::Unbind { namespace, name } => {
                out.u8(7);
                write_namespace(*namespace, &mut out);
                out.counted(name);
            }
            Self::SetNote { namespace, name, note } => {
                out.u8(8);
                write_namespace(*namespace, &mut out);
                out.counted(name);
                out.counted(note);
            }
            Self::Join { upload, parts, name, note } => {
                out.u8(9);
                out.counted(upload);
                out.u32(parts.len() as u32);
                for part in parts {
                    out.counted(part);
                }
                out.counted(name);
                out.counted(note);
            }
            Self::Rename { namespace, from, to } => {
                out.u8(20);
                write_namespace(*namespace, &mut out);
                out.counted(from);
                out.counted(to);
            }
            Self::Keep { partitions } => {
                out.u8(22).u32(*partitions);
            }
            Self::Together { changes } => {
                out.u8(GROUP).u32(changes.len() as u32);
                for change in changes {
                    out.bytes(&change.encode());
                }
            }
        }
        out.into_bytes()
    }

    /// Whether the record changes names only.
    pub fn is_of_names(&self) -> bool {
        matches!(
            self,
            Self::Bind { .. }
                | Self::Unbind { .. }
                | Self::SetNote { .. }
                | Self::Join { .. }
                | Self::Rename { .. }
                | Self::Together { .. }
        )
    }

    /// Adds the names of [`Namespace::Values`] that the record changes.
    pub fn add_changed_values(&self, names: &mut HashSet<Vec<u8>>) {
        const VALUES: Namespace = Namespace::Values;
        match self {
            Self::Bind { namespace: VALUES, name, .. }
            | Self::Unbind { namespace: VALUES, name }
            | Self::SetNote { namespace: VALUES, name, .. } => drop(names.insert(name.clone())),
            Self::Rename { namespace: VALUES, from, to } => {
                names.extend([from.clone(), to.clone()]);
            }
            Self::Together { changes } => {
                for change in changes {
                    change.add_changed_values(names);
                }
            }
            _ => {}
        }
    }

    /// Takes a record off the front of `from`.
    // tidy: long function because each kind of record has a few lines
    #[expect(clippy::too_many_lines, reason = "each kind of record has a few lines")]
    pub fn decode(from: &mut Reader<'_>) -> Result<Self> {
        Ok(match from.u8()? {
            0 => {
                let (leaf, count) = (from.u32()?, from.u32()? as usize);
                let slots = (0..count).map(|_| from.u32()).collect::<Result<_>>()?;
                let (id, target, write) = read_access(from)?;
                Self::Query { leaf, slots, id, target, write }
            }
            1 => {
                let (id, leaf) = (from.u32()?, from.u32()?);
                Self::Stash { id, leaf, bytes: from.counted()?.to_vec() }
            }
            2 => Self::EndDummy,
            3 => {
                let attempt = from.u64()?;
                let seed = from.array()?;
                Self::Begin { attempt, seed, node: from.option()? }
            }
            4 => Self::Commit { partition: 0 },
            5 => Self::Fail { partition: 0 },
            6 => Self::Bind {
                namespace: read_namespace(from)?,
                name: from.counted()?.to_vec(),
                object: read_object(from)?,
            },
            7 => Self::Unbind { namespace: read_namespace(from)?, name: from.counted()?.to_vec() },
            8 => Self::SetNote {
                namespace: read_namespace(from)?,
                name: from.counted()?.to_vec(),
                note: from.counted()?.to_vec(),
            },
            9 => {
                let upload = from.counted()?.to_vec();
                let count = from.count(4)?;
                let parts = (0..count)
                    .map(|_| from.counted().map(<[u8]>::to_vec))
                    .collect::<Result<_>>()?;
                Self::Join {
                    upload,
                    parts,
                    name: from.counted()?.to_vec(),
                    note: from.counted()?.to_vec(),
                }
            }
            10 => Self::StashWrite { leaf: from.u32()? },
            11 => {
                let (node, count) = (from.u32()?, from.count(4)?);
                let slots = (0..count).map(|_| from.u32()).collect::<Result<_>>()?;
                Self::Damage { node, slots }
            }
            12 => Self::EndLost,
            13 => {
                let count = from.count(4)?;
                Self::Lost { ids: (0..count).map(|_| from.u32()).collect::<Result<_>>()? }
            }
            14 => {
                let (round, leaf, count) = (from.u64()?, from.u32()?, from.u8()?);
                let locations =
                    (0..count).map(|_| Location::decode(from)).collect::<Result<_>>()?;
                let (id, target, write) = read_access(from)?;
                Self::OldQuery { round, leaf, locations, id, target, write }
            }
            15 => Self::Commit { partition: from.u32()? },
            16 => Self::Fail { partition: from.u32()? },
            17 => {
                let count = from.count(8)?;
                let sequences = (0..count).map(|_| from.u64()).collect::<Result<_>>()?;
                let count = from.count(4)?;
                let of_root = (0..count).map(|_| from.u32()).collect::<Result<_>>()?;
                let count = from.count(8)?;
                let failed = (0..count).map(|_| from.u64()).collect::<Result<_>>()?;
                Self::Divide { sequences, of_root, failed }
            }
            18 => Self::Copy { partition: from.u32()?, node: from.u32()?, attempt: from.u64()? },
            19 => {
                let count = from.count(12)?;
                let nodes = (0..count).map(|_| Ok((from.u32()?, from.u64()?)));
                Self::Copied { nodes: nodes.collect::<Result<_>>()? }
            }
            20 => Self::Rename {
                namespace: read_namespace(from)?,
                from: from.counted()?.to_vec(),
                to: from.counted()?.to_vec(),
            },
            GROUP => Self::Together { changes: read_changes(from)? },
            22 => Self::Keep { partitions: from.u32()? },
            _ => return Err(Error::State("a record of the gateway's state")),
        })
    }
}

/// Takes changes of names. Their kinds are read first, so that damaged bytes cannot nest groups.
fn read_changes(from: &mut Reader<'_>) -> Result<Vec<Record>> {
    let count = from.count(1)?;
    let mut changes = Vec::new();
    for _ in 0..count {
        if from.remaining().first() == Some(&GROUP) {
            return Err(Error::State(STATE));
        }
        changes.push(Record::decode(from)?);
    }
    let is_sound = changes.iter().all(Record::is_of_names);
    if is_sound { Ok(changes) } else { Err(Error::State(STATE)) }
}

/// The requested block, its layer and its new content.
fn write_access(id: Option<u32>, target: Option<u32>, write: Option<&[u8]>, out: &mut Writer) {
    out.option(id);
    out.option(target);
    out.option(write.map(|bytes| bytes.len() as u32));
    out.bytes(write.unwrap_or_default());
}

type AccessParts = (Option<u32>, Option<u32>, Option<Vec<u8>>);

fn read_access(from: &mut Reader<'_>) -> Result<AccessParts> {
    let (id, target) = (from.option()?, from.option()?);
    let write = match from.option()? {
        Some(len) => Some(from.bytes(len as usize)?.to_vec()),
        None => None,
    };
    Ok((id, target, write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let slots = vec![1, 2, 3];
        let records = [
            Record::Query { leaf: 9, slots, id: Some(0), target: None, write: Some(vec![7; 3]) },
            Record::Query { leaf: 9, slots: vec![], id: None, target: Some(4), write: None },
            Record::Stash { id: 1, leaf: 2, bytes: vec![3; 5] },
            Record::StashWrite { leaf: 3 },
            Record::EndDummy,
            Record::Begin { attempt: u64::MAX, seed: [6; 32], node: Some(8) },
            Record::Commit { partition: 0 },
            Record::Commit { partition: 3 },
            Record::Fail { partition: u32::MAX },
            Record::Divide { sequences: vec![5, 0], of_root: vec![0, 1, 0], failed: vec![7] },
            Record::Copy { partition: 2, node: 9, attempt: u64::MAX - 1 },
            Record::Copied { nodes: vec![(9, 4), (u32::MAX, u64::MAX)] },
            Record::Damage { node: 7, slots: vec![3, 9] },
            Record::EndLost,
            Record::Lost { ids: vec![8, 2] },
            Record::OldQuery {
                round: 5,
                leaf: 9,
                locations: vec![Location { slot: 3, attempt: u64::MAX }, Location::default()],
                id: Some(1),
                target: Some(1),
                write: Some(vec![7; 3]),
            },
            Record::Keep { partitions: 3 },
            Record::Bind {
                namespace: Namespace::Objects,
                name: b"a".to_vec(),
                object: Object { pieces: vec![9, 1], ids: [4, 5].into(), note: vec![8] },
            },
            Record::Unbind { namespace: Namespace::Values, name: b"bc".to_vec() },
            Record::SetNote { namespace: Namespace::Values, name: b"bc".to_vec(), note: vec![1] },
            Record::Join {
                upload: b"u".to_vec(),
                parts: vec![b"u/1".to_vec(), b"u/2".to_vec()],
                name: b"b/k".to_vec(),
                note: vec![2],
            },
            Record::Rename {
                namespace: Namespace::Objects,
                from: b"b/k".to_vec(),
                to: b"b/l".to_vec(),
            },
            Record::Together { changes: vec![] },
            Record::Together {
                changes: vec![
                    Record::Unbind { namespace: Namespace::Objects, name: b"b/k".to_vec() },
                    Record::Rename {
                        namespace: Namespace::Objects,
                        from: b"b/l".to_vec(),
                        to: b"b/k".to_vec(),
                    },
                ],
            },
        ];
        for record in records {
            let bytes = record.encode();
            assert_eq!(Record::decode(&mut Reader::of_state(&bytes, STATE)).unwrap(), record);
            assert!(
                Record::decode(&mut Reader::of_state(&bytes[..bytes.len() - 1], STATE)).is_err()
            );
        }
        assert!(Record::decode(&mut Reader::of_state(&[u8::MAX], STATE)).is_err());
        assert!(
            Record::decode(&mut Reader::of_state(&[7, 4, 0, 0, 0, 0], STATE)).is_err(),
            "no such space"
        );
    }

    #[test]
    fn only_changes_of_names_are_made_together() {
        let nested = Record::Together { changes: vec![Record::Together { changes: vec![] }] };
        for changes in [vec![Record::EndDummy], vec![nested]] {
            let bytes = Record::Together { changes }.encode();
            assert!(Record::decode(&mut Reader::of_state(&bytes, STATE)).is_err());
        }
        let deep: Vec<u8> = [GROUP, 1, 0, 0, 0].repeat(100_000);
        assert!(Record::decode(&mut Reader::of_state(&deep, STATE)).is_err());
    }
}
