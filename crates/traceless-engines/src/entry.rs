//! The entries of an engine's log as bytes.
//!
//! An entry begins with a magic number and the mark that makes it unique, and ends with a check:
//! the first bytes of the SHA-256 of all bytes before. The check finds damage; the gateway finds
//! forgery.

use crate::engine::ValueName;
use sha2::{Digest, Sha256};
use traceless_cloud::codec::{Reader, Writer};
use traceless_cloud::geometry::{GEOMETRY_LEN, Geometry, Node};
use traceless_cloud::store::{NodeVersion, Opening, StoredVersion, Versions};
use traceless_cloud::{Error, Result};

/// A version of a node, and the number of its staging.
pub type StagedVersion = StoredVersion<u64>;

/// Bytes that identify a host's opening of a store.
pub const OWNER_LEN: usize = 16;

const MAGIC: &[u8; 8] = b"tlengin1";
const CHECK_LEN: usize = 8;
/// Bytes of a version in an entry.
const VERSION_LEN: usize = 20;
/// Names the log in errors about its content.
const CONTENT: &str = "the log in the storage engine";

/// Makes each entry unique, so that a host knows an entry that it has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The opening that wrote the entry.
    pub owner: [u8; OWNER_LEN],
    /// The number of the entry among the entries of its owner.
    pub number: u64,
}

/// An entry of the log, or a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A host opened the store for a gateway.
    Open {
        /// The shape of the tree.
        geometry: Geometry,
        /// The opening of the gateway's state.
        opening: Opening,
    },
    /// New versions became current.
    Commit {
        /// The number of the commit.
        sequence: u64,
        /// The new versions.
        versions: Vec<StagedVersion>,
    },
    /// Versions were copied from another store.
    Restore {
        /// The number of the last commit of that store.
        sequence: u64,
        /// The copied versions.
        versions: Vec<StagedVersion>,
    },
    /// Takes its position from an entry that may still be on the way.
    Nothing,
    /// All versions of a store.
    Checkpoint {
        /// The shape of the store's tree.
        geometry: Geometry,
        /// The newest opening.
        opening: Opening,
        /// The number of the last commit.
        sequence: u64,
        /// The versions that the last commit replaced.
        previous: Vec<StagedVersion>,
        /// All current versions.
        current: Vec<StagedVersion>,
    },
}

impl Entry {
    /// The checkpoint of these versions.
    pub fn checkpoint(versions: &Versions<u64>, opening: Opening) -> Self {
        Self::Checkpoint {
            geometry: *versions.geometry(),
            opening,
            sequence: versions.sequence(),
            previous: versions.previous().collect(),
            current: versions.current().collect(),
        }
    }

    /// The entry as bytes.
    pub fn encode(&self, mark: &Mark) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(MAGIC).bytes(&mark.owner).u64(mark.number);
        match self {
            Self::Open { geometry, opening } => {
                out.u8(OPEN).bytes(&geometry.encode()).bytes(&opening.encode());
            }
            Self::Commit { sequence, versions } => {
                write_versions(out.u8(COMMIT).u64(*sequence), versions);
            }
            Self::Restore { sequence, versions } => {
                write_versions(out.u8(RESTORE).u64(*sequence), versions);
            }
            Self::Nothing => _ = out.u8(NOTHING),
            Self::Checkpoint { geometry, opening, sequence, previous, current } => {
                out.u8(CHECKPOINT).bytes(&geometry.encode()).bytes(&opening.encode());
                out.u64(*sequence);
                write_versions(&mut out, previous);
                write_versions(&mut out, current);
            }
        }
        let check = Sha256::digest(out.as_bytes());
        out.bytes(&check[..CHECK_LEN]);
        out.into_bytes()
    }

    /// The entry in these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Error::check_format(CONTENT, bytes, MAGIC, |own| Self::decode_own(own).is_ok())?;
        Self::decode_own(bytes)
    }

    /// The same in this version's format.
    fn decode_own(bytes: &[u8]) -> Result<Self> {
        let wrong = Error::State(CONTENT);
        let Some((body, check)) = bytes.split_last_chunk::<CHECK_LEN>() else { return Err(wrong) };
        let Some(marked) = body.strip_prefix(MAGIC) else { return Err(wrong) };
        if Sha256::digest(body)[..CHECK_LEN] != *check {
            return Err(wrong);
        }
        let mut from = Reader::of_state(marked, CONTENT);
        from.bytes(OWNER_LEN)?;
        from.u64()?;
        let entry = match from.u8()? {
            OPEN => Self::Open {
                geometry: geometry_in(&mut from)?,
                opening: Opening::decode(&mut from)?,
            },
            COMMIT => Self::Commit { sequence: from.u64()?, versions: versions_in(&mut from)? },
            RESTORE => Self::Restore { sequence: from.u64()?, versions: versions_in(&mut from)? },
            NOTHING => Self::Nothing,
            CHECKPOINT => Self::Checkpoint {
                geometry: geometry_in(&mut from)?,
                opening: Opening::decode(&mut from)?,
                sequence: from.u64()?,
                previous: versions_in(&mut from)?,
                current: versions_in(&mut from)?,
            },
            _ => return Err(wrong),
        };
        from.end()?;
        Ok(entry)
    }
}

/// What a log leads to.
pub struct LogState {
    /// The versions.
    pub versions: Versions<u64>,
    /// The newest opening of a gateway's state.
    pub opening: Option<Opening>,
    /// The position of the last entry.
    pub last: u64,
}

/// The state that a log leads to. The entries are in order of their positions.
pub fn replay(
    geometry: Geometry,
    checkpoint: Option<(u64, &[u8])>,
    entries: &[(u64, &[u8])],
) -> Result<LogState> {
    let mut versions = Versions::new(geometry);
    let (mut last, mut newest) = (0, None);
    if let Some((position, bytes)) = checkpoint {
        let Entry::Checkpoint { geometry: known, opening, sequence, previous, current } =
            Entry::decode(bytes)?
        else {
            return Err(Error::State(CONTENT));
        };
        geometry.check_store(&known)?;
        if sequence > NUMBER_MAX || position > NUMBER_MAX {
            return Err(Error::State(CONTENT));
        }
        check_versions(&versions, &previous)?;
        check_versions(&versions, &current)?;
        // A commit on top of the replaced versions leads to the same state.
        versions.commit(sequence.saturating_sub(1), &previous);
        versions.commit(sequence, &current);
        (last, newest) = (position, Some(opening));
    }
    for &(position, bytes) in entries {
        if position <= last {
            continue;
        }
        if position != last + 1 || position > NUMBER_MAX {
            return Err(Error::State(CONTENT));
        }
        last = position;
        match Entry::decode(bytes)? {
            Entry::Open { geometry: known, opening } => {
                geometry.check_store(&known)?;
                newest = Some(opening);
            }
            Entry::Commit { sequence, versions: new } => {
                check_versions(&versions, &new)?;
                if sequence != versions.sequence() + 1 {
                    return Err(Error::State(CONTENT));
                }
                versions.commit(sequence, &new);
            }
            Entry::Restore { sequence, versions: copied } => {
                check_versions(&versions, &copied)?;
                if sequence < versions.sequence() || sequence > NUMBER_MAX {
                    return Err(Error::State(CONTENT));
                }
                versions.commit(sequence, &copied);
            }
            Entry::Nothing => {}
            Entry::Checkpoint { .. } => return Err(Error::State(CONTENT)),
        }
    }
    Ok(LogState { versions, opening: newest, last })
}

/// The largest position, and number of a commit: no log gets there, and sums do not overflow.
const NUMBER_MAX: u64 = 1 << 62;
const OPEN: u8 = 1;
const COMMIT: u8 = 2;
const NOTHING: u8 = 3;
const CHECKPOINT: u8 = 4;
const RESTORE: u8 = 5;

fn check_versions(of: &Versions<u64>, versions: &[StagedVersion]) -> Result {
    let check = |stored: &StagedVersion| of.check_new(stored.version);
    versions.iter().try_for_each(check).map_err(|_| Error::State(CONTENT))
}

fn geometry_in(from: &mut Reader<'_>) -> Result<Geometry> {
    Geometry::decode(&from.array::<GEOMETRY_LEN>()?)
}

fn write_versions(out: &mut Writer, versions: &[StagedVersion]) {
    out.u32(versions.len() as u32);
    for StagedVersion { version, location: staging } in versions {
        out.u32(version.node.0).u64(version.attempt).u64(*staging);
    }
}

fn versions_in(from: &mut Reader<'_>) -> Result<Vec<StagedVersion>> {
    let count = from.count(VERSION_LEN)?;
    let mut next = || {
        let version = NodeVersion { node: Node(from.u32()?), attempt: from.u64()? };
        Ok(StagedVersion { version, location: from.u64()? })
    };
    (0..count).map(|_| next()).collect()
}

/// The name of the bytes of a version.
pub fn value_name(stored: StagedVersion) -> ValueName {
    ValueName { version: stored.version, staging: stored.location }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_cloud::store::suite::{path, shapes};

    const OPENING: Opening = Opening { number: 3, instance: [9; 16] };
    const MARK: Mark = Mark { owner: [7; OWNER_LEN], number: 5 };

    fn staged(g: &Geometry, round: u64, attempt: u64) -> Vec<StagedVersion> {
        let stored = |version| StagedVersion { version, location: 1000 + attempt };
        path(g, round, attempt).into_iter().map(stored).collect()
    }

    fn commits(g: &Geometry, count: u64) -> Vec<Vec<u8>> {
        let mut entries = vec![Entry::Open { geometry: *g, opening: OPENING }];
        for sequence in 1..=count {
            let versions = staged(g, sequence - 1, sequence);
            entries.extend([Entry::Commit { sequence, versions }, Entry::Nothing]);
        }
        entries.iter().map(|entry| entry.encode(&MARK)).collect()
    }

    fn numbered(entries: &[Vec<u8>], from: u64) -> Vec<(u64, &[u8])> {
        (from..).zip(entries.iter().map(Vec::as_slice)).collect()
    }

    /// Everything in a state, to compare it.
    fn parts(
        state: &LogState,
    ) -> (u64, Option<Opening>, u64, Vec<StagedVersion>, Vec<StagedVersion>) {
        let LogState { versions, opening, last } = state;
        let (previous, current) = (versions.previous().collect(), versions.current().collect());
        (*last, *opening, versions.sequence(), previous, current)
    }

    #[test]
    fn a_checkpoint_stands_for_the_entries_that_it_includes() {
        let g = shapes()[0];
        let entries = commits(&g, 40);
        let numbered = numbered(&entries, 1);
        let whole = replay(g, None, &numbered).unwrap();
        assert_eq!((whole.versions.sequence(), whole.last), (40, 81));
        for cut in [1, 2, 30, 80, 81] {
            let part = replay(g, None, &numbered[..cut]).unwrap();
            let checkpoint = Entry::checkpoint(&part.versions, OPENING).encode(&MARK);
            let checkpoint = Some((part.last, &checkpoint[..]));
            for from in [0, cut.saturating_sub(3), cut] {
                let again = replay(g, checkpoint, &numbered[from..]).unwrap();
                assert_eq!(parts(&again), parts(&whole), "{cut} {from}");
            }
        }
    }

    #[test]
    fn gaps_and_other_trees_are_refused() {
        let [g, other, _] = shapes();
        let entries = commits(&g, 3);
        let numbered = numbered(&entries, 1);
        assert!(matches!(replay(other, None, &numbered), Err(Error::Parameters(_))));
        for missing in 0..numbered.len() - 1 {
            let mut gap = numbered.clone();
            gap.remove(missing);
            assert!(matches!(replay(g, None, &gap), Err(Error::State(_))), "{missing}");
        }
        let twice = [(1, &entries[0][..]), (2, &entries[1]), (3, &entries[1])];
        assert!(matches!(replay(g, None, &twice), Err(Error::State(_))));
        let beyond = NodeVersion { node: Node(g.nodes()), attempt: 1 };
        let versions = vec![StagedVersion { version: beyond, location: 0 }];
        let beyond = Entry::Commit { sequence: 1, versions }.encode(&MARK);
        let log = [(1, &entries[0][..]), (2, &beyond[..])];
        assert!(matches!(replay(g, None, &log), Err(Error::State(_))));
    }

    #[test]
    fn damaged_entries_are_refused() {
        let g = shapes()[1];
        let whole = Entry::Commit { sequence: 9, versions: staged(&g, 2, 9) };
        let bytes = whole.encode(&MARK);
        assert_eq!(Entry::decode(&bytes).unwrap(), whole);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            assert!(matches!(Entry::decode(&changed), Err(Error::State(_))), "{at}");
            assert!(matches!(Entry::decode(&bytes[..at]), Err(Error::State(_))), "{at}");
        }
        let check_at = bytes.len() - CHECK_LEN;
        let mut later = bytes[..check_at].to_vec();
        later[7] = b'2';
        let check = Sha256::digest(&later);
        later.extend_from_slice(&check[..CHECK_LEN]);
        let refused = Entry::decode(&later);
        assert!(matches!(refused, Err(Error::Format { found: 2, known: 1, .. })), "{refused:?}");
        let (first, second) = (Entry::Nothing.encode(&MARK), Mark { number: 6, ..MARK });
        assert!(first != Entry::Nothing.encode(&second), "each entry is unique");
    }
}
