//! Requests to the engine that has the state of gateways which stand by for each other.

use super::{EngineKind, EngineRequests, PlanConditions, QueryRate};
use crate::gateway::{
    LEASE_EXTENSIONS, STATE_PIECE_LEN, entries_per_save, index_bytes, pause_of_standby,
};
use crate::params::Params;

/// Entries of the log for a round, besides the ones of ticks: its end is written down by itself.
const ENTRIES_PER_ROUND: f64 = 1.0;
/// Requests of a save besides its pieces: the lists and the checkpoint.
const REQUESTS_PER_SAVE: f64 = 4.0;
/// Steps until the entries between two looks agree with the time between them.
const STEPS: u32 = 50;

/// The requests for an entry of the log.
pub fn requests_per_entry(engine: EngineKind) -> f64 {
    match engine {
        // The entry, and a list of checkpoints that may include it.
        EngineKind::S3 => 2.0,
        EngineKind::Files | EngineKind::Redis | EngineKind::Postgres => 1.0,
    }
}

/// All requests of the gateway that has the state, and of the ones that stand by for it.
pub fn state_requests(
    params: &Params,
    rate: QueryRate,
    conditions: &PlanConditions,
) -> EngineRequests {
    if conditions.standbys == 0 {
        return EngineRequests::default();
    }
    let entries = entries_per_second(params, rate, conditions);
    let pieces = index_bytes(params) / STATE_PIECE_LEN as u64 + 2;
    let saves = entries / entries_per_save(pieces) as f64;
    let per_entry = requests_per_entry(conditions.engine);
    EngineRequests {
        reads: f64::from(conditions.standbys) * looks_per_second(entries, conditions),
        writes: entries * per_entry + saves * (pieces as f64 + REQUESTS_PER_SAVE),
    }
}

/// Entries of the log in a second: one for each tick, for rounds, and for the lease.
fn entries_per_second(params: &Params, rate: QueryRate, conditions: &PlanConditions) -> f64 {
    let queries = f64::from(rate.per_second);
    let extensions = f64::from(LEASE_EXTENSIONS) / conditions.lease.as_secs_f64();
    let rounds = queries / params.round_blocks as f64;
    queries / rate.together as f64 + rounds * ENTRIES_PER_ROUND + extensions
}

/// Requests in a second by which a gateway that stands by follows so many entries.
fn looks_per_second(entries: f64, conditions: &PlanConditions) -> f64 {
    let pause = pause_of_standby(conditions.lease).as_secs_f64();
    let (mut time, mut reads) = (pause, 1.0);
    for _ in 0..STEPS {
        let new = entries * time;
        let (less, more) = (reads_of(new.floor() as u64), reads_of(new.ceil() as u64));
        reads = less as f64 + (more as f64 - less as f64) * new.fract();
        time = f64::midpoint(time, pause + reads * conditions.latency.as_secs_f64());
    }
    reads / time
}

/// Requests that find so many new entries, in steps that double, and then none.
fn reads_of(mut new: u64) -> u64 {
    let mut reads = 0;
    loop {
        let (before, mut step) = (new, 1);
        reads += 1;
        while new >= step {
            new -= step;
            step *= 2;
            reads += 1;
        }
        if new == before {
            return reads;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::params;
    use crate::gateway::{Gateway, LeaseOptions, StateLease};
    use crate::host::InProcess;
    use crate::kernel::Choice;
    use crate::state_log::memory::MemoryLog;
    use crate::store::MemStore;
    use bytes::Bytes;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;
    use traceless_core::clock::SimulatedClock;
    use traceless_core::rng::SeededRng;
    use traceless_core::seal::Secret;

    const MASTER: [u8; 32] = [8; 32];

    /// Takes the lease of a log for an hour, in which nothing extends it.
    fn take(log: &Arc<MemoryLog>) -> Arc<StateLease> {
        let master = Secret::from_bytes(MASTER);
        let options = LeaseOptions {
            master: &master,
            period: Duration::from_hours(1),
            anchor: None,
            stands_by: false,
            is_stopped: &|| false,
            on_wait: &|| {},
        };
        StateLease::take(log.clone(), &options).unwrap().unwrap()
    }

    #[test]
    fn ticks_and_rounds_write_as_many_entries_as_planned() {
        for together in [1, 8] {
            let (log, params) = (Arc::new(MemoryLog::new(1)), params(1500));
            let (lease, nonce) = (take(&log), [3; 16]);
            let (store, mut rng) = (MemStore::new(params.geometry), SeededRng::new(2));
            let shared = lease.keys().shared(&params, Choice::Benes);
            let (host, own) = InProcess::start(&shared, store, &nonce, &mut rng).unwrap();
            let (host, session) = (Arc::new(host), (&nonce, &own));
            let (keys, rng) = (lease.keys(), Box::new(rng));
            let mut gateway =
                Gateway::open(params, keys, Choice::Benes, host, session, Some(&lease), rng)
                    .unwrap();
            let clock = Arc::new(SimulatedClock::default());
            gateway.start_constant_rate_together(1000, together, clock).unwrap();
            let newest = || *log.contents().stored.entries.keys().next_back().unwrap();
            let (before, rounds) = (newest(), gateway.counts().rounds);
            let ticks = 10 * params.round_blocks / together;
            for nth in 0..ticks as u64 {
                if nth % 2 == 0 {
                    gateway.put(nth % 1500, &[1; 64]).unwrap();
                } else {
                    gateway.fill_tick().unwrap();
                }
            }
            let rounds = (gateway.counts().rounds - rounds) as f64;
            assert!(rounds >= 8.0, "{rounds}");
            let found = (newest() - before) as f64;
            let planned = ticks as f64 + rounds * ENTRIES_PER_ROUND;
            assert!((found / planned - 1.0).abs() < 0.05, "{together}: {found} {planned}");
        }
    }

    /// Entries that are found at once, the requests for that, and the looks.
    #[test]
    fn a_standby_finds_entries_in_as_many_requests_as_planned() {
        for (new, reads, looks) in [(1, 3, 2), (100, 20, 5)] {
            assert_eq!(reads_of(new), reads);
            let log = Arc::new(MemoryLog::new(3));
            let _first = take(&log);
            let (master, looked) = (Secret::from_bytes(MASTER), AtomicU64::new(0));
            let is_stopped = || {
                let before = looked.fetch_add(1, Ordering::SeqCst);
                let entries = &mut log.contents().stored.entries;
                if before == 1 {
                    entries.extend((2..2 + new).map(|at| (at, Bytes::from_static(b"record"))));
                }
                before == 10
            };
            let options = LeaseOptions {
                master: &master,
                period: Duration::from_millis(500),
                anchor: None,
                stands_by: true,
                is_stopped: &is_stopped,
                on_wait: &|| {},
            };
            assert!(StateLease::take(log.clone(), &options).unwrap().is_none());
            assert_eq!(log.contents().entry_reads, reads + 10 - looks, "{new}");
        }
    }

    #[test]
    fn more_entries_take_a_standby_fewer_requests_each() {
        let conditions = PlanConditions { standbys: 1, ..PlanConditions::default() };
        let [few, many] = [1.0, 1000.0].map(|entries| looks_per_second(entries, &conditions));
        assert!((4.0..7.0).contains(&few), "{few}");
        assert!(many > 10.0 * few && many < 500.0, "{many}");
    }
}
