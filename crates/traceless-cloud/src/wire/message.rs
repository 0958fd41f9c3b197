//! The messages between gateway and host, as bytes.

use super::fence::Opening;
use crate::channel::Nonce;
use crate::error::{Error, Result};
use crate::frame;
use crate::geometry::{Geometry, LAYERS_MAX, Node};
use crate::host::{Ask, Stage};
use crate::orders::{Location, Reader, order_len_max};
use crate::store::NodeVersion;

/// Version of the protocol.
pub const VERSION: u32 = 2;
/// Longest request from a gateway without a session, in bytes.
pub const STRANGER_LEN_MAX: usize = 1024;
/// Connections of a session: one for queries, one for everything else.
pub const LINES: usize = 2;
/// Most queries of one request.
pub const QUERIES_MAX: usize = 64;
/// Longest query, in bytes.
const QUERY_LEN_MAX: usize = 1024;
/// Bytes of a reply besides a block or an enclave's evidence, at most.
const REPLY_HEAD_LEN_MAX: usize = 2048;
/// Bytes of a request besides the parts that grow with the tree, at most.
const HEAD_LEN_MAX: usize = 1024;
const NODE_LEN: usize = 12;

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
    Queries(Vec<Ask>),
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
    /// A node that the gateway sealed itself.
    Place {
        /// The node's version.
        version: NodeVersion,
        /// The node's content.
        bytes: Vec<u8>,
    },
}

/// Longest request in a session, in bytes.
pub fn request_len_max(g: &Geometry) -> usize {
    let round = g.round_slots * g.slot_len() + LAYERS_MAX * (order_len_max(g) + NODE_LEN);
    let node = (0..g.layers).map(|layer| g.node_len(layer)).max().unwrap_or_default();
    let queries = QUERIES_MAX * QUERY_LEN_MAX;
    HEAD_LEN_MAX + round.max(node).max(queries).max(g.nodes() as usize * NODE_LEN)
}

/// Longest reply in a session, in bytes.
pub fn reply_len_max(g: &Geometry) -> usize {
    QUERIES_MAX * (REPLY_HEAD_LEN_MAX + g.sealed_len())
}

/// Longest reply to a gateway without a session, in bytes.
pub const STRANGER_REPLY_LEN_MAX: usize = crate::tee::EVIDENCE_LEN_MAX + REPLY_HEAD_LEN_MAX;

/// Encodes [`NumberedRequest::Hello`].
pub fn hello(opening: &Opening, geometry: &Geometry, nonce: &Nonce) -> Vec<u8> {
    let version = VERSION.to_le_bytes();
    [&[0][..], &version, &opening.encode(), &geometry.encode(), nonce].concat()
}

/// Encodes [`NumberedRequest::Provision`].
pub fn provision(sealed: &[u8]) -> Vec<u8> {
    [&[1], sealed].concat()
}

/// Encodes [`NumberedRequest::Attach`].
pub fn attach(opening: &Opening, session: &SessionId, line: usize) -> Vec<u8> {
    [&[2][..], &opening.encode(), session, &[line as u8]].concat()
}

/// Encodes [`NumberedRequest::Queries`], at most [`QUERIES_MAX`] of them.
pub fn queries(asks: &[Ask]) -> Vec<u8> {
    let mut bytes = vec![3];
    for ask in asks {
        bytes.extend_from_slice(&ask.leaf.to_le_bytes());
        bytes.push(ask.locations.len() as u8);
        for location in &ask.locations {
            bytes.extend_from_slice(&location.slot.to_le_bytes());
            bytes.extend_from_slice(&location.attempt.to_le_bytes());
        }
        put_long(&ask.order, &mut bytes);
    }
    bytes
}

/// Encodes the reply to queries.
pub fn replies(results: impl Iterator<Item = Result<Vec<u8>>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for result in results {
        put_long(&frame::encode(result), &mut bytes);
    }
    bytes
}

/// Decodes the replies to `count` queries, up to the first failure. Malformed bytes give an error
/// as the last reply.
pub fn take_replies(bytes: &[u8], count: usize) -> Vec<Result<Vec<u8>>> {
    let mut from = Reader(bytes);
    let mut replies = Vec::with_capacity(count);
    while replies.len() < count && replies.last().is_none_or(Result::is_ok) {
        let reply = take_long(&mut from);
        replies.push(reply.and_then(|reply| frame::decode(reply).map(<[u8]>::to_vec)));
    }
    replies
}

/// Encodes [`NumberedRequest::Stage`].
pub fn stage(stage: &Stage) -> Vec<u8> {
    let orders: usize = stage.orders.iter().map(|order| order.len() + 4 + NODE_LEN).sum();
    let mut bytes = Vec::with_capacity(16 + orders + stage.batch.len());
    bytes.push(4);
    bytes.extend_from_slice(&stage.attempt.to_le_bytes());
    put_versions(&stage.nodes, &mut bytes);
    for order in &stage.orders {
        put_long(order, &mut bytes);
    }
    bytes.extend_from_slice(&stage.batch);
    bytes
}

/// Encodes [`NumberedRequest::Commit`].
pub fn commit(sequence: u64, versions: &[NodeVersion]) -> Vec<u8> {
    let mut bytes = vec![5];
    bytes.extend_from_slice(&sequence.to_le_bytes());
    put_versions(versions, &mut bytes);
    bytes
}

/// Encodes [`NumberedRequest::Place`].
pub fn place(version: NodeVersion, bytes: &[u8]) -> Vec<u8> {
    let NodeVersion { node, attempt } = version;
    [&[7][..], &node.0.to_le_bytes(), &attempt.to_le_bytes(), bytes].concat()
}

/// Encodes [`NumberedRequest::Sequence`].
pub fn sequence() -> Vec<u8> {
    vec![6]
}

impl NumberedRequest {
    /// Decodes untrusted bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Reader(bytes);
        let [kind] = from.array()?;
        let request = match kind {
            0 => {
                if from.u32()? != VERSION {
                    return Err(Error::Malformed("gateway and host are of different versions"));
                }
                let opening = Opening::decode(&mut from)?;
                let geometry = Geometry::decode(&from.array()?)?;
                Self::Hello { opening, geometry, nonce: from.array()? }
            }
            1 => Self::Provision(rest(&mut from)),
            2 => {
                let opening = Opening::decode(&mut from)?;
                let session = from.array()?;
                let [line] = from.array()?;
                Self::Attach { opening, session, line }
            }
            3 => {
                let mut asks = Vec::new();
                while !from.0.is_empty() {
                    asks.push(take_ask(&mut from)?);
                }
                if asks.len() > QUERIES_MAX {
                    return Err(Error::Malformed("too many queries together"));
                }
                Self::Queries(asks)
            }
            4 => {
                let attempt = from.u64()?;
                let nodes = take_versions(&mut from)?;
                let order = |_: &NodeVersion| take_long(&mut from).map(<[u8]>::to_vec);
                let orders = nodes.iter().map(order).collect::<Result<_>>()?;
                Self::Stage(Stage { nodes, attempt, batch: rest(&mut from), orders })
            }
            5 => {
                let sequence = from.u64()?;
                Self::Commit { sequence, versions: take_versions(&mut from)? }
            }
            6 => Self::Sequence,
            7 => {
                let version = take_version(&mut from)?;
                Self::Place { version, bytes: rest(&mut from) }
            }
            _ => return Err(Error::Malformed("no such request")),
        };
        from.end()?;
        Ok(request)
    }
}

fn rest(from: &mut Reader<'_>) -> Vec<u8> {
    core::mem::take(&mut from.0).to_vec()
}

fn take_ask(from: &mut Reader<'_>) -> Result<Ask> {
    let leaf = from.u32()?;
    let [count] = from.array()?;
    let location = |_| Ok(Location { slot: from.u32()?, attempt: from.u64()? });
    let locations = (0..count).map(location).collect::<Result<_>>()?;
    Ok(Ask { leaf, locations, order: take_long(from)?.to_vec() })
}

/// Appends bytes after their length.
fn put_long(long: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(long.len() as u32).to_le_bytes());
    bytes.extend_from_slice(long);
}

fn take_long<'a>(from: &mut Reader<'a>) -> Result<&'a [u8]> {
    let len = from.u32()? as usize;
    from.bytes(len)
}

fn put_versions(versions: &[NodeVersion], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(versions.len() as u32).to_le_bytes());
    for version in versions {
        bytes.extend_from_slice(&version.node.0.to_le_bytes());
        bytes.extend_from_slice(&version.attempt.to_le_bytes());
    }
}

fn take_versions(from: &mut Reader<'_>) -> Result<Vec<NodeVersion>> {
    let count = from.u32()?;
    // The list grows with the bytes that exist; the announced count is not trusted.
    let mut versions = Vec::new();
    for _ in 0..count {
        versions.push(take_version(from)?);
    }
    Ok(versions)
}

fn take_version(from: &mut Reader<'_>) -> Result<NodeVersion> {
    Ok(NodeVersion { node: Node(from.u32()?), attempt: from.u64()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::tests::small;

    fn requests() -> Vec<(Vec<u8>, NumberedRequest)> {
        let opening = Opening { number: 7, instance: [1; 16] };
        let (geometry, nonce) = (small(), [2; 16]);
        let locations = vec![Location { slot: 4, attempt: 5 }; 4];
        let asks = vec![Ask { leaf: 3, locations, order: vec![6; 40] }; QUERIES_MAX];
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
            (queries(&asks), NumberedRequest::Queries(asks)),
            (stage(&staged), NumberedRequest::Stage(staged)),
            (
                place(nodes[2], &[4; 30]),
                NumberedRequest::Place { version: nodes[2], bytes: vec![4; 30] },
            ),
            (commit(10, &nodes), NumberedRequest::Commit { sequence: 10, versions: nodes }),
            (sequence(), NumberedRequest::Sequence),
        ]
    }

    #[test]
    fn requests_come_back_as_they_went() {
        for (bytes, request) in requests() {
            assert_eq!(NumberedRequest::decode(&bytes).unwrap(), request);
            assert!(bytes.len() <= request_len_max(&small()));
        }
        assert!(requests()[..3].iter().all(|(bytes, _)| bytes.len() <= STRANGER_LEN_MAX));
    }

    #[test]
    fn replies_come_back_up_to_the_first_that_fails() {
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
    fn bytes_of_anybody_are_a_request_or_an_error() {
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
        let told = NumberedRequest::decode(&other).unwrap_err().to_string();
        assert!(told.contains("different versions"), "{told}");
        let (_, NumberedRequest::Queries(mut asks)) = requests().swap_remove(4) else {
            unreachable!()
        };
        asks.push(asks[0].clone());
        assert!(NumberedRequest::decode(&queries(&asks)).is_err());
        assert!(
            NumberedRequest::decode(&[6, 0]).is_err() && NumberedRequest::decode(&[8]).is_err()
        );
    }
}
