//! What the times of the group cloud are compared with. `bench/floors.toml` says the same in words.

use crate::bench::controls::Operations;
use traceless_cloud::geometry::{Geometry, PART_LEN, PIECE_LEN};
use traceless_cloud::params::Params;

/// Bytes of a copy among the controls.
const COPY_LEN: f64 = 4096.0;

/// Requests that a client of `redis-benchmark` has on their way together.
const PIPELINE: f64 = 16.0;

/// A query without its share of a round: a slot of each layer is a miss and is opened; the answer
/// is sealed, and opened twice.
pub fn query(geometry: &Geometry) -> Operations {
    let parts = geometry.parts() as f64;
    let layers = geometry.layers as f64;
    Operations { passes: (layers + 3.0) * parts, misses: layers, ..Operations::NONE }
}

/// A round: each layer has a node made anew of its own slots and those that come down to it. All
/// are opened, sealed, read and written.
pub fn round(geometry: &Geometry) -> Operations {
    let slots = |layer| (geometry.slots(layer) + geometry.round_slots) as f64;
    let all: f64 = (0..geometry.layers).map(slots).sum();
    Operations {
        passes: 2.0 * all * geometry.parts() as f64,
        copies: 2.0 * all * geometry.slot_len() as f64 / COPY_LEN,
        ..Operations::NONE
    }
}

/// A query with its share of a round.
pub fn average(params: &Params) -> Operations {
    let (query, round) = (query(&params.geometry), round(&params.geometry));
    let queries = params.round_blocks as f64;
    Operations {
        passes: query.passes + round.passes / queries,
        copies: round.copies / queries,
        misses: query.misses,
        ..Operations::NONE
    }
}

/// The same with two exchanges, gateway with host and host with enclave.
pub fn average_behind_tls(params: &Params) -> Operations {
    Operations { round_trips: 2.0, ..average(params) }
}

/// The same for a request of many on their way together.
pub fn request(params: &Params) -> Operations {
    Operations { round_trips: 1.0 / PIPELINE, ..average(params) }
}

/// 32 bytes of a node, opened and sealed; and two hits for each of the exchanges that half of the
/// rows have in every column of a network that permutes the node.
pub fn piece(geometry: &Geometry) -> Operations {
    let columns = 2 * geometry.slots(0).next_power_of_two().ilog2() - 1;
    let passes = 2.0 * PIECE_LEN as f64 / PART_LEN as f64;
    Operations { passes, hits: f64::from(columns), ..Operations::NONE }
}
