//! A generation of a gateway's state: the whole state in pieces, and all later records.

use crate::codec::{Reader, Writer};
use crate::error::{Error, Result};
use crate::gateway::record::{Record, STATE};
use crate::gateway::state::State;
use crate::geometry::Geometry;
use crate::log::{EntryDraft, Position, SealProof, WholeEntries};
use crate::params::Params;

/// The state is sealed in pieces of this length, as entries without records. An empty one ends it.
pub(crate) const PIECE_LEN: usize = 1 << 20;

/// The bytes of a state with which a generation begins.
pub(super) fn encode_state(state: &State) -> Vec<u8> {
    let mut plain = Writer::default();
    shape(&state.params, &mut plain);
    state.save(&mut plain);
    plain.into_bytes()
}

/// The entries with the bytes of a state.
pub(super) fn entries_of_state(plain: &[u8]) -> impl Iterator<Item = EntryDraft> {
    plain.chunks(PIECE_LEN).chain([&[][..]]).map(|piece| EntryDraft::of(0, piece))
}

/// A generation as it is stored.
pub(in crate::gateway) struct SavedState {
    /// The whole entries, and the damage if there is any.
    pub found: WholeEntries<SealProof>,
}

impl SavedState {
    /// The last position of the previous generation when this one began.
    pub(in crate::gateway) fn parent(&self) -> Position {
        Position::decode(&mut Reader::of_state(&self.found.about, STATE))
            .expect("its length was checked")
    }

    /// How many entries hold the whole state, before the empty one; `None` if some are missing.
    pub(in crate::gateway) fn state_entries(&self) -> Option<usize> {
        self.found.bodies().position(|(_, body)| body.is_empty())
    }

    /// The parameters of the state's tree.
    pub(in crate::gateway) fn params(&self) -> Result<Params> {
        let first = self.found.bodies().next().map(|(_, piece)| piece);
        let mut from = Reader::of_state(first.ok_or(Error::State(STATE))?, STATE);
        read_shape(&mut from)
    }

    /// The state, with all later records applied.
    pub(in crate::gateway) fn state(&self, params: &Params) -> Result<State> {
        let wrong = Error::State(STATE);
        let state_entries = self.state_entries().ok_or(wrong)?;
        let mut saved = Vec::new();
        for (_, piece) in self.found.bodies().take(state_entries) {
            saved.extend_from_slice(piece);
        }
        let mut own_shape = Writer::default();
        shape(params, &mut own_shape);
        let saved = saved.strip_prefix(own_shape.as_bytes());
        let saved = saved.ok_or(Error::Parameters("the state is of another tree"))?;
        let mut state = State::load(*params, &mut Reader::of_state(saved, STATE))?;
        // The empty entry has no records.
        for (records, body) in self.found.bodies().skip(state_entries) {
            let mut body = Reader::of_state(body, STATE);
            for _ in 0..records {
                state.apply(Record::decode(&mut body)?)?;
            }
        }
        Ok(state)
    }
}

/// The limit of failures that is assumed where the parameters are read from the state.
const LAMBDA: u32 = 32;

/// Takes what [`shape`] appended.
fn read_shape(from: &mut Reader<'_>) -> Result<Params> {
    let blocks = from.u64()?;
    let mut number = || usize::try_from(from.u64()?).map_err(|_| Error::State(STATE));
    let mut small = || u32::try_from(number()?).map_err(|_| Error::State(STATE));
    let (roots, arity) = (small()?, small()?);
    let geometry = Geometry {
        roots,
        arity,
        layers: number()?,
        round_slots: number()?,
        inner_slots: number()?,
        leaf_slots: number()?,
        block_len: number()?,
        partition: 0,
    };
    geometry.check()?;
    let (round_blocks, inner_blocks, leaf_blocks) = (number()?, number()?, number()?);
    // Limits that are not part of the shape play no role for what is saved.
    Ok(Params { blocks, lambda: LAMBDA, geometry, round_blocks, inner_blocks, leaf_blocks })
}

fn shape(params: &Params, out: &mut Writer) {
    let g = &params.geometry;
    let sizes = [g.layers, g.round_slots, g.inner_slots, g.leaf_slots, g.block_len];
    let limits = [params.round_blocks, params.inner_blocks, params.leaf_blocks];
    out.u64(params.blocks);
    out.u64(u64::from(g.roots));
    out.u64(u64::from(g.arity));
    for size in sizes.into_iter().chain(limits) {
        out.u64(size as u64);
    }
}
