//! The changes of a gateway's state. The same records, applied in order to the same state, give the
//! same state, so a log of records represents the state.

use super::codec::{RecordReader, Writer};
use super::names::{Object, Space, read_object, read_space, write_object, write_space};
use crate::error::{Error, Result};

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
    Held {
        /// The block.
        id: u32,
        /// The leaf of its new path.
        leaf: u32,
        /// The block's content.
        bytes: Vec<u8>,
    },
    /// The first query without a reply, a write, has got its reply: its block waits from now on,
    /// with its new content.
    Written {
        /// The leaf of the block's new path.
        leaf: u32,
    },
    /// A dummy query has got its reply.
    Answered,
    /// A round or a renewal begins.
    Begun {
        /// The attempt number of the new versions.
        attempt: u64,
        /// The seed of the plan.
        seed: [u8; 32],
        /// The node to be renewed; `None` for the whole path of a round.
        node: Option<u32>,
    },
    /// The new versions are committed.
    Committed,
    /// The new versions are given up.
    Failed,
    /// A name is bound to a value.
    Bound {
        /// What the name is for.
        space: Space,
        /// The name.
        name: Vec<u8>,
        /// The value's blocks.
        object: Object,
    },
    /// A name is removed.
    Unbound {
        /// What the name is for.
        space: Space,
        /// The name.
        name: Vec<u8>,
    },
    /// A name gets another note.
    Noted {
        /// What the name is for.
        space: Space,
        /// The name.
        name: Vec<u8>,
        /// The note.
        note: Vec<u8>,
    },
    /// Parts of an upload become an object.
    Joined {
        /// The upload.
        upload: Vec<u8>,
        /// Names of the parts, in order.
        parts: Vec<Vec<u8>>,
        /// The object's name.
        name: Vec<u8>,
        /// The object's note.
        note: Vec<u8>,
    },
}

impl Record {
    /// The record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        match self {
            Self::Query { leaf, slots, id, target, write } => {
                out.0.push(0);
                out.u32(*leaf);
                out.u32(slots.len() as u32);
                out.u32s(slots);
                out.option(*id);
                out.option(*target);
                out.option(write.as_ref().map(|bytes| bytes.len() as u32));
                out.0.extend_from_slice(write.as_deref().unwrap_or_default());
            }
            Self::Held { id, leaf, bytes } => {
                out.0.push(1);
                out.u32(*id);
                out.u32(*leaf);
                out.u32(bytes.len() as u32);
                out.0.extend_from_slice(bytes);
            }
            Self::Answered => out.0.push(2),
            Self::Begun { attempt, seed, node } => {
                out.0.push(3);
                out.0.extend_from_slice(&attempt.to_le_bytes());
                out.0.extend_from_slice(seed);
                out.option(*node);
            }
            Self::Committed => out.0.push(4),
            Self::Failed => out.0.push(5),
            Self::Bound { space, name, object } => {
                out.0.push(6);
                write_space(*space, &mut out);
                out.counted(name);
                write_object(object, &mut out);
            }
            Self::Written { leaf } => {
                out.0.push(10);
                out.u32(*leaf);
            }
            Self::Unbound { space, name } => {
                out.0.push(7);
                write_space(*space, &mut out);
                out.counted(name);
            }
            Self::Noted { space, name, note } => {
                out.0.push(8);
                write_space(*space, &mut out);
                out.counted(name);
                out.counted(note);
            }
            Self::Joined { upload, parts, name, note } => {
                out.0.push(9);
                out.counted(upload);
                out.u32(parts.len() as u32);
                for part in parts {
                    out.counted(part);
                }
                out.counted(name);
                out.counted(note);
            }
        }
        out.0
    }

    /// Takes a record off the front of `from`.
    pub fn decode(from: &mut RecordReader<'_>) -> Result<Self> {
        Ok(match from.bytes(1)?[0] {
            0 => {
                let (leaf, count) = (from.u32()?, from.u32()? as usize);
                let slots = (0..count).map(|_| from.u32()).collect::<Result<_>>()?;
                let (id, target) = (from.option()?, from.option()?);
                let write = match from.option()? {
                    Some(len) => Some(from.bytes(len as usize)?.to_vec()),
                    None => None,
                };
                Self::Query { leaf, slots, id, target, write }
            }
            1 => {
                let (id, leaf, len) = (from.u32()?, from.u32()?, from.u32()?);
                Self::Held { id, leaf, bytes: from.bytes(len as usize)?.to_vec() }
            }
            2 => Self::Answered,
            3 => {
                let attempt = from.u64()?;
                let seed = from.bytes(32)?.try_into().expect("32 bytes");
                Self::Begun { attempt, seed, node: from.option()? }
            }
            4 => Self::Committed,
            5 => Self::Failed,
            6 => Self::Bound {
                space: read_space(from)?,
                name: from.counted()?,
                object: read_object(from)?,
            },
            7 => Self::Unbound { space: read_space(from)?, name: from.counted()? },
            8 => Self::Noted {
                space: read_space(from)?,
                name: from.counted()?,
                note: from.counted()?,
            },
            9 => {
                let upload = from.counted()?;
                let count = from.count(4)?;
                let parts = (0..count).map(|_| from.counted()).collect::<Result<_>>()?;
                Self::Joined { upload, parts, name: from.counted()?, note: from.counted()? }
            }
            10 => Self::Written { leaf: from.u32()? },
            _ => return Err(Error::State("a record of the gateway's state")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_went() {
        let slots = vec![1, 2, 3];
        let records = [
            Record::Query { leaf: 9, slots, id: Some(0), target: None, write: Some(vec![7; 3]) },
            Record::Query { leaf: 9, slots: vec![], id: None, target: Some(4), write: None },
            Record::Held { id: 1, leaf: 2, bytes: vec![3; 5] },
            Record::Written { leaf: 3 },
            Record::Answered,
            Record::Begun { attempt: u64::MAX, seed: [6; 32], node: Some(8) },
            Record::Committed,
            Record::Failed,
            Record::Bound {
                space: Space::Objects,
                name: b"a".to_vec(),
                object: Object { pieces: vec![9, 1], ids: [4, 5].into(), note: vec![8] },
            },
            Record::Unbound { space: Space::Values, name: b"bc".to_vec() },
            Record::Noted { space: Space::Values, name: b"bc".to_vec(), note: vec![1] },
            Record::Joined {
                upload: b"u".to_vec(),
                parts: vec![b"u/1".to_vec(), b"u/2".to_vec()],
                name: b"b/k".to_vec(),
                note: vec![2],
            },
        ];
        for record in records {
            let bytes = record.encode();
            assert_eq!(Record::decode(&mut RecordReader(&bytes)).unwrap(), record);
            assert!(Record::decode(&mut RecordReader(&bytes[..bytes.len() - 1])).is_err());
        }
        assert!(Record::decode(&mut RecordReader(&[11])).is_err());
        assert!(Record::decode(&mut RecordReader(&[7, 4, 0, 0, 0, 0])).is_err(), "no such space");
    }

    /// Memory must be reserved for existing entries, not for a damaged count.
    #[test]
    fn more_things_than_there_are_bytes_for_are_refused() {
        let mut bytes = [0; 4 + 17];
        bytes[0] = 2;
        for (end, count) in [(4 + 17, Some(2)), (4 + 16, Some(2)), (4 + 15, None), (4, None)] {
            assert_eq!(RecordReader(&bytes[..end]).count(8).ok(), count, "{end}");
        }
        bytes[0] = 0;
        assert_eq!(RecordReader(&bytes[..4]).count(8).ok(), Some(0));
    }
}
