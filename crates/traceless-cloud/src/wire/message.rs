//! The messages between gateway and host, as bytes.

use super::fence::Opening;
use crate::channel::Nonce;
use crate::codec::{Reader, Writer};
use crate::enclave_orders::{Location, order_len_max};
use crate::error::{Error, Result};
use crate::frame;
use crate::geometry::{Geometry, LAYERS_MAX, Node};
use crate::host::{DamagedSlot, QueryRequest, Stage};
use crate::store::NodeVersion;

/// Version of the protocol. In all versions a hello begins with a byte of zero and this number, and
/// a host of another version refuses with [`Error::Protocol`], encoded as in this version.
pub const VERSION: u32 = 4;
/// Longest request from a gateway without a session, in bytes.
pub const STRANGER_LEN_MAX: usize = 1024;
/// Connections of a session for queries: one for each message of queries that is under way.
pub const QUERY_LINES: usize = 4;
/// Connections of a session: the ones for queries, and one for everything else.
pub const LINES: usize = QUERY_LINES + 1;
/// Most queries of one request.
pub const QUERIES_MAX: usize = 64;
/// Longest query, in bytes.
const QUERY_LEN_MAX: usize = 1024;
/// Bytes of a reply besides a block or an enclave's evidence, at most.
const REPLY_HEAD_LEN_MAX: usize = 2048;
/// Bytes of a request besides the parts that grow with the tree, at most.
const HEAD_LEN_MAX: usize = 1024;
const NODE_LEN: usize = 12;
const DAMAGED_SLOT_LEN: usize = 8;

/// The id of a session, which is not secret.
pub type SessionId = [u8; 16];

/// A request. Its number precedes it on the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NumberedRequest {
    /// Requests an enclave's evidence.
    Hello {
        /// The opening of the gateway's state.
        opening: Opening,
        /// The tree's shape.
        geometry: Geometry,
        /// The nonce that the evidence must contain.
        nonce: Nonce,
    },
    /// The enclave's key, sealed. The reply is the session's id.
    Provision(Vec<u8>),
    /// Makes this connection one of a session's lines.
    Attach {
        /// The opening of the gateway's state.
        opening: Opening,
        /// The session.
        session: SessionId,
        /// The line's number.
        line: u8,
    },
    /// Queries that are sent together. The reply has the enclave's replies, up to the first
    /// failure.
    Queries(Vec<QueryRequest>),
    /// Renews nodes.
    Stage(Stage),
    /// Commits staged versions.
    Commit {
        /// The number of this commit.
        sequence: u64,
        /// The versions.
        versions: Vec<NodeVersion>,
    },
    /// Requests the number of the last commit.
    Sequence,
    /// A node that the gateway sealed itself, or that another host had.
    Place {
        /// The node's version.
        version: NodeVersion,
        /// The node's content.
        bytes: Vec<u8>,
    },
    /// Requests the bytes of a version of a node.
    Node(NodeVersion),
    /// Removes the nodes of all trees but the ones with these roots.
    KeepTrees(Vec<u32>),
}

/// Longest request in a session, in bytes.
pub fn request_len_max(g: &Geometry) -> usize {
    let round = g.round_slots * g.slot_len() + LAYERS_MAX * (order_len_max(g) + NODE_LEN);
    let queries = QUERIES_MAX * QUERY_LEN_MAX;
    HEAD_LEN_MAX + round.max(node_len_max(g)).max(queries).max(g.nodes() as usize * NODE_LEN)
}

/// Longest reply in a session, in bytes.
pub fn reply_len_max(g: &Geometry) -> usize {
    let path_slots: usize = (0..g.layers).map(|layer| g.slots(layer)).sum();
    let damage = REPLY_HEAD_LEN_MAX + path_slots * DAMAGED_SLOT_LEN;
    let queries = QUERIES_MAX * (REPLY_HEAD_LEN_MAX + g.sealed_len());
    damage.max(queries).max(REPLY_HEAD_LEN_MAX + node_len_max(g))
}

fn node_len_max(g: &Geometry) -> usize {
    (0..g.layers).map(|layer| g.node_len(layer)).max().unwrap_or_default()
}

/// Longest reply to a gateway without a session, in bytes.
pub const STRANGER_REPLY_LEN_MAX: usize = crate::tee::EVIDENCE_LEN_MAX + REPLY_HEAD_LEN_MAX;

/// Encodes [`NumberedRequest::Hello`].
pub fn hello(opening: &Opening, geometry: &Geometry, nonce: &Nonce) -> Vec<u8> {
    let mut out = Writer::default();
    out.u8(0).u32(VERSION).bytes(&opening.encode()).bytes(&geometry.encode()).bytes(nonce);
    out.into_bytes()
}

/// Encodes [`NumberedRequest::Provision`].
pub fn provision(sealed: &[u8]) -> Vec<u8> {
    let mut out = Writer::with_capacity(1 + sealed.len());
    out.u8(1).bytes(sealed);
    out.into_bytes()
}

/// Encodes [`NumberedRequest::Attach`].
pub fn attach(opening: &Opening, session: &SessionId, line: usize) -> Vec<u8> {
    let mut out = Writer::default();
    out.u8(2).bytes(&opening.encode()).bytes(session).u8(line as u8);
    out.into_bytes()
}

/// Encodes [`NumberedRequest::Queries`], at most [`QUERIES_MAX`] of them.
pub fn queries(requests: &[QueryRequest]) -> Vec<u8> {
    let mut out = Writer::default();
    out.u8(3);
    for request in requests {
        out.u32(request.leaf).u8(request.locations.len() as u8);
        for location in &request.locations {
            location.encode(&mut out);
        }
        out.counted(&request.order);
    }
    out.into_bytes()
}

/// Encodes the reply to queries.
pub fn replies(results: impl Iterator<Item = Result<Vec<u8>>>) -> Vec<u8> {
    let mut out = Writer::default();
    for result in results {
        out.counted(&frame::encode(result));
    }
    out.into_bytes()
}

/// Decodes the replies to `count` queries, up to the first failure. Malformed bytes give an error
/// as the last reply.
pub fn take_replies(bytes: &[u8], count: usize) -> Vec<Result<Vec<u8>>> {
    let mut from = Reader::new(bytes);
    let mut replies = Vec::with_capacity(count);
    while replies.len() < count && replies.last().is_none_or(Result::is_ok) {
        let reply = from.counted();
        replies.push(reply.and_then(|reply| frame::decode(reply).map(<[u8]>::to_vec)));
    }
    replies
}

/// Encodes [`NumberedRequest::Stage`].
pub fn stage(stage: &Stage) -> Vec<u8> {
    let orders: usize = stage.orders.iter().map(|order| order.len() + 4 + NODE_LEN).sum();
    let mut out = Writer::with_capacity(16 + orders + stage.batch.len());
    out.u8(4).u64(stage.attempt);
    write_versions(&stage.nodes, &mut out);
    for order in &stage.orders {
        out.counted(order);
    }
    out.bytes(&stage.batch);
    out.into_bytes()
}

/// Encodes the reply to [`NumberedRequest::Stage`].
pub fn damage(slots: &[DamagedSlot]) -> Vec<u8> {
    let mut out = Writer::with_capacity(slots.len() * DAMAGED_SLOT_LEN);
    for DamagedSlot { node, slot } in slots {
        out.u32(node.0).u32(*slot);
    }
    out.into_bytes()
}

/// Decodes the reply to [`NumberedRequest::Stage`].
pub fn take_damage(bytes: &[u8]) -> Result<Vec<DamagedSlot>> {
    let mut from = Reader::new(bytes);
    let mut slots = Vec::new();
    while !from.remaining().is_empty() {
        slots.push(DamagedSlot { node: Node(from.u32()?), slot: from.u32()? });
    }
    Ok(slots)
}

/// Encodes [`NumberedRequest::Commit`].
pub fn commit(sequence: u64, versions: &[NodeVersion]) -> Vec<u8> {
    let mut out = Writer::default();
    out.u8(5).u64(sequence);
    write_versions(versions, &mut out);
    out.into_bytes()
}

/// Encodes [`NumberedRequest::Place`].
pub fn place(version: NodeVersion, bytes: &[u8]) -> Vec<u8> {
    let mut out = Writer::with_capacity(1 + NODE_LEN + bytes.len());
    version.encode(out.u8(7));
    out.bytes(bytes);
    out.into_bytes()
}

/// Encodes [`NumberedRequest::Node`].
pub fn node(version: NodeVersion) -> Vec<u8> {
    let mut out = Writer::with_capacity(1 + NODE_LEN);
    version.encode(out.u8(8));
    out.into_bytes()
}

/// Encodes [`NumberedRequest::KeepTrees`].
pub fn keep_trees(roots: &[u32]) -> Vec<u8> {
    let mut out = Writer::default();
    out.u8(9).u32s(roots);
    out.into_bytes()
}

/// Encodes [`NumberedRequest::Sequence`].
pub fn sequence() -> Vec<u8> {
    vec![6]
}

impl NumberedRequest {
    /// Decodes untrusted bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let request = match from.u8()? {
            0 => {
                let gateway = from.u32()?;
                if gateway != VERSION {
                    return Err(Error::Protocol { gateway, host: VERSION });
                }
                let opening = Opening::decode(&mut from)?;
                let geometry = Geometry::decode(&from.array()?)?;
                Self::Hello { opening, geometry, nonce: from.array()? }
            }
            1 => Self::Provision(from.rest().to_vec()),
            2 => {
                let opening = Opening::decode(&mut from)?;
                Self::Attach { opening, session: from.array()?, line: from.u8()? }
            }
            3 => {
                let mut requests = Vec::new();
                while !from.remaining().is_empty() {
                    requests.push(read_query(&mut from)?);
                }
                if requests.len() > QUERIES_MAX {
                    return Err(Error::Malformed("too many queries together"));
                }
                Self::Queries(requests)
            }
            4 => {
                let attempt = from.u64()?;
                let nodes = read_versions(&mut from)?;
                let order = |_: &NodeVersion| from.counted().map(<[u8]>::to_vec);
                let orders = nodes.iter().map(order).collect::<Result<_>>()?;
                Self::Stage(Stage { nodes, attempt, batch: from.rest().to_vec(), orders })
            }
            5 => {
                let sequence = from.u64()?;
                Self::Commit { sequence, versions: read_versions(&mut from)? }
            }
            6 => Self::Sequence,
            7 => {
                let version = NodeVersion::decode(&mut from)?;
                Self::Place { version, bytes: from.rest().to_vec() }
            }
            8 => Self::Node(NodeVersion::decode(&mut from)?),
            9 => {
                let mut roots = Vec::new();
                while !from.remaining().is_empty() {
                    roots.push(from.u32()?);
                }
                Self::KeepTrees(roots)
            }
            _ => return Err(Error::Malformed("no such request")),
        };
        from.end()?;
        Ok(request)
    }
}

fn read_query(from: &mut Reader<'_>) -> Result<QueryRequest> {
    let leaf = from.u32()?;
    let count = from.u8()?;
    let locations = (0..count).map(|_| Location::decode(from)).collect::<Result<_>>()?;
    Ok(QueryRequest { leaf, locations, order: from.counted()?.to_vec() })
}

fn write_versions(versions: &[NodeVersion], out: &mut Writer) {
    out.u32(versions.len() as u32);
    for version in versions {
        version.encode(out);
    }
}

fn read_versions(from: &mut Reader<'_>) -> Result<Vec<NodeVersion>> {
    let count = from.u32()?;
    // The list grows with the bytes that exist; the announced count is not trusted.
    let mut versions = Vec::new();
    for _ in 0..count {
        versions.push(NodeVersion::decode(from)?);
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::tests::small;

    fn requests() -> Vec<(Vec<u8>, NumberedRequest)> {
        let opening = Opening { number: 7, instance: [1; 16] };
        let (geometry, nonce) = (small(), [2; 16]);
        let locations = vec![Location { slot: 4, attempt: 5 }; 4];
        let queries_max =
            vec![QueryRequest { leaf: 3, locations, order: vec![6; 40] }; QUERIES_MAX];
        let nodes: Vec<NodeVersion> =
            (0..4).map(|i| NodeVersion { node: Node(i), attempt: u64::from(i) << 40 }).collect();
        let orders = (0..4).map(|i| vec![i; usize::from(i) * 9]).collect();
        let staged = Stage { nodes: nodes.clone(), attempt: 8, batch: vec![9; 100], orders };
        vec![
            (
                hello(&opening, &geometry, &nonce),
                NumberedRequest::Hello { opening, geometry, nonce },
            ),
            (provision(&[1, 2]), NumberedRequest::Provision(vec![1, 2])),
            (
                attach(&opening, &[3; 16], 1),
                NumberedRequest::Attach { opening, session: [3; 16], line: 1 },
            ),
            (queries(&[]), NumberedRequest::Queries(vec![])),
            (queries(&queries_max), NumberedRequest::Queries(queries_max)),
            (stage(&staged), NumberedRequest::Stage(staged)),
            (
                place(nodes[2], &[4; 30]),
                NumberedRequest::Place { version: nodes[2], bytes: vec![4; 30] },
            ),
            (node(nodes[3]), NumberedRequest::Node(nodes[3])),
            (keep_trees(&[0, 7]), NumberedRequest::KeepTrees(vec![0, 7])),
            (commit(10, &nodes), NumberedRequest::Commit { sequence: 10, versions: nodes }),
            (sequence(), NumberedRequest::Sequence),
        ]
    }

    #[test]
    fn requests_round_trip() {
        for (bytes, request) in requests() {
            assert_eq!(NumberedRequest::decode(&bytes).unwrap(), request);
            assert!(bytes.len() <= request_len_max(&small()));
        }
        assert!(requests()[..3].iter().all(|(bytes, _)| bytes.len() <= STRANGER_LEN_MAX));
    }

    #[test]
    fn replies_round_trip_up_to_the_first_failure() {
        let reply = |byte| Ok(vec![byte; 30]);
        let back = |count, bytes: &[u8]| {
            let replies = take_replies(bytes, count);
            replies.into_iter().map(|reply| reply.ok().map(|bytes| bytes[0])).collect::<Vec<_>>()
        };
        let whole = replies((1..4).map(reply));
        assert_eq!(back(3, &whole), [Some(1), Some(2), Some(3)]);
        assert!(whole.len() <= reply_len_max(&small()));
        let failing = [reply(1), Err(Error::Unauthentic), reply(3)];
        assert_eq!(back(3, &replies(failing.into_iter())), [Some(1), None]);
        // Fewer replies than queries, or none at all.
        assert_eq!(back(4, &whole), [Some(1), Some(2), Some(3), None]);
        for end in 0..whole.len() {
            assert_eq!(back(3, &whole[..end]).len(), end / (whole.len() / 3) + 1);
        }
    }

    #[test]
    fn the_damage_of_a_whole_path_has_room() {
        let g = Geometry { inner_slots: 20_000, block_len: 32, ..small() };
        let all = (0..g.layers).flat_map(|layer| {
            let node = g.node(layer, 5);
            (0..g.slots(layer) as u32).map(move |slot| DamagedSlot { node, slot })
        });
        let all: Vec<DamagedSlot> = all.collect();
        let bytes = damage(&all);
        assert!(bytes.len() <= reply_len_max(&g) && take_damage(&bytes).unwrap() == all);
        assert!(take_damage(&bytes[1..]).is_err() && take_damage(&[]).unwrap().is_empty());
    }

    #[test]
    fn arbitrary_bytes_are_a_request_or_an_error() {
        for (bytes, _) in requests() {
            for end in 0..bytes.len() {
                let _ = NumberedRequest::decode(&bytes[..end]);
            }
            for at in 0..bytes.len() {
                for byte in [0, 127, 255] {
                    let mut changed = bytes.clone();
                    changed[at] = byte;
                    let _ = NumberedRequest::decode(&changed);
                }
            }
        }
        let mut other = requests()[0].0.clone();
        other[1] = VERSION as u8 + 1;
        let error = NumberedRequest::decode(&other).unwrap_err();
        let versions = (VERSION + 1, VERSION);
        assert!(matches!(error, Error::Protocol { gateway, host } if (gateway, host) == versions));
        assert!(error.to_string().ends_with("upgrade the host"), "{error}");
        let error = Error::Protocol { gateway: 3, host: 4 }.to_string();
        assert!(error.ends_with("upgrade the gateway"), "{error}");
        let (_, NumberedRequest::Queries(mut queries_max)) = requests().swap_remove(4) else {
            unreachable!()
        };
        queries_max.push(queries_max[0].clone());
        assert!(NumberedRequest::decode(&queries(&queries_max)).is_err());
        assert!(
            NumberedRequest::decode(&[6, 0]).is_err() && NumberedRequest::decode(&[10]).is_err()
        );
    }
}
