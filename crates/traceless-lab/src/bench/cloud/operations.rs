//! The operations that times of the group cloud are compared with. `bench/floors.toml` explains
//! them in words.

use crate::bench::controls::Operations;
use traceless_cloud::geometry::{Geometry, PART_LEN, PIECE_LEN};
use traceless_cloud::params::Params;

/// Bytes of a copy among the controls.
const COPY_LEN: f64 = 4096.0;

/// Requests that a client of `redis-benchmark` sends before it waits for answers.
const PIPELINE: f64 = 16.0;

/// A query without its share of a round: a slot of each layer is a miss and is opened; the answer
/// is sealed once, and opened twice.
pub fn query(geometry: &Geometry) -> Operations {
    let parts = geometry.parts() as f64;
    let layers = geometry.layers as f64;
    Operations { passes: (layers + 3.0) * parts, misses: layers, ..Operations::NONE }
}

/// A round: each layer has one node made anew, from its own slots and the slots that move down into
/// it. All of them are opened, sealed, read and written.
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

/// A query with its share of a round and two exchanges: gateway with host, and host with enclave.
pub fn average_behind_tls(params: &Params) -> Operations {
    Operations { round_trips: 2.0, ..average(params) }
}

/// A pipelined request with its share of a round.
pub fn request(params: &Params) -> Operations {
    Operations { round_trips: 1.0 / PIPELINE, ..average(params) }
}

/// 32 bytes of a node, opened and sealed. The network that permutes the node exchanges half of its
/// rows in every column, with two hits for each exchange.
pub fn piece(geometry: &Geometry) -> Operations {
    let columns = 2 * geometry.slots(0).next_power_of_two().ilog2() - 1;
    let passes = 2.0 * PIECE_LEN as f64 / PART_LEN as f64;
    Operations { passes, hits: f64::from(columns), ..Operations::NONE }
}
