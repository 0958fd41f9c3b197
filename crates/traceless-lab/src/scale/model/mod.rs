//! A model of a gateway with its clients and hosts, event by event.
//!
//! It has what decides how fast a store is: the queue of requests that wait for a batch, batches
//! under way, the gateway's lock, messages to each host, rounds in each partition, the pace that
//! queries keep with them, and the processors of each machine. Contents, keys and journals are
//! times only.

mod planning;
mod rounds;
mod simulation;
mod state;

use super::tree_shape::TreeShape;
use serde::{Deserialize, Serialize};
use state::GatewayModel;

/// Times that one part of the system takes by itself, in seconds of a processor.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ModelCosts {
    /// With the gateway's lock: of a batch, and of each request in it.
    pub lock_batch: f64,
    pub lock_query: f64,
    /// At the gateway without its lock: of a message to a host with its reply, and of a request,
    /// with its client.
    pub send_message: f64,
    pub request: f64,
    /// A thread at the gateway for a message to a further host.
    pub thread: f64,
    /// At a host with its enclave: of a message with its reply, and of each slot that it reads.
    pub serve_message: f64,
    pub serve_slot: f64,
    /// Of what holds bytes back on the way to hosts: of a message with its reply, and of a query.
    pub relay_message: f64,
    pub relay_query: f64,
    /// Of a slot of a round, at the gateway and at its host.
    pub make_slot: f64,
    pub evict_slot: f64,
    /// The part of a round trip on one machine in which no processor works on it.
    pub idle: f64,
    /// The share of busy processors that the parts get; the rest goes to the system.
    pub capacity: f64,
}

impl ModelCosts {
    /// Parts that take no time.
    pub const FREE: Self = Self {
        lock_batch: 0.0,
        lock_query: 0.0,
        send_message: 0.0,
        request: 0.0,
        thread: 0.0,
        serve_message: 0.0,
        serve_slot: 0.0,
        relay_message: 0.0,
        relay_query: 0.0,
        make_slot: 0.0,
        evict_slot: 0.0,
        idle: 0.0,
        capacity: 1.0,
    };

    /// A request for a tree of so many layers, with a query that goes alone.
    pub fn serial(&self, layers: usize) -> f64 {
        let gateway = self.lock_batch + self.lock_query + self.send_message + self.request;
        let host = self.serve_message + self.serve_slot * layers as f64;
        gateway + host + self.relay_message + self.relay_query
    }

    /// The same without what holds bytes back.
    pub fn without_relay(self) -> Self {
        Self { relay_message: 0.0, relay_query: 0.0, ..self }
    }
}

/// The machines.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Machines {
    /// Everything is on one with so many processors.
    One(f64),
    /// The gateway and each host have one of their own.
    Apart { gateway: f64, host: f64 },
}

/// What is simulated.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    pub shape: TreeShape,
    pub machines: Machines,
    pub hosts: usize,
    /// Seconds of round trips between gateway and hosts. Each message has one of them.
    pub round_trips: Vec<f64>,
    /// Bytes that the network moves in a second to each host.
    pub bandwidth: f64,
    /// Clients, each with one request at a time.
    pub clients: usize,
    /// The share of requests for what waits at the gateway.
    pub hits: f64,
    /// How many requests to simulate.
    pub requests: usize,
}

/// What the model says.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Prediction {
    pub requests_per_second: f64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Queries of a batch, in the mean.
    pub batch: f64,
    /// Of the time: with the gateway's lock in use.
    pub locked: f64,
    /// Of the processors of the gateway's machine, and of a host's: in use.
    pub gateway_busy: f64,
    pub host_busy: f64,
}

/// Runs the model.
pub fn predict(costs: &ModelCosts, scenario: &Scenario) -> Prediction {
    let mut model = GatewayModel::new(costs, scenario);
    for client in 0..scenario.clients {
        model.request(client);
    }
    while model.latencies.len() < scenario.requests {
        model.step();
    }
    model.prediction()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without rounds.
    const SHAPE: TreeShape = TreeShape {
        layers: 2,
        roots: 8,
        round_blocks: usize::MAX / 16,
        round_slots: 1000,
        query_len: 0.0,
        round_len: 0.0,
        space: 2.0,
    };

    fn scenario(clients: usize, hosts: usize) -> Scenario {
        Scenario {
            shape: SHAPE,
            machines: Machines::Apart { gateway: 1000.0, host: 1000.0 },
            hosts,
            round_trips: vec![0.01],
            bandwidth: f64::INFINITY,
            clients,
            hits: 0.0,
            requests: 50_000,
        }
    }

    fn near(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 0.02
    }

    #[test]
    fn a_client_alone_waits_for_all_parts_one_after_the_other() {
        let costs = ModelCosts {
            lock_batch: 1e-3,
            lock_query: 2e-3,
            send_message: 3e-3,
            request: 4e-3,
            thread: 5e-3,
            serve_message: 6e-3,
            serve_slot: 7e-3,
            relay_message: 8e-3,
            relay_query: 9e-3,
            idle: 10e-3,
            ..ModelCosts::FREE
        };
        let Prediction { mean_ms, p99_ms, batch, .. } = predict(&costs, &scenario(1, 1));
        // The first nine times without the thread, as only one host has a query; a second slot;
        // and the round trip.
        assert!(near(mean_ms, 1e3 * costs.serial(2) + 10.0 + 10.0), "{mean_ms}");
        assert!(near(mean_ms, 40.0 + 7.0 + 20.0) && near(p99_ms, mean_ms), "{mean_ms} {p99_ms}");
        assert!(near(batch, 1.0), "{batch}");
    }

    #[test]
    fn a_far_host_answers_all_clients_in_a_round_trip() {
        let one = predict(&ModelCosts::FREE, &scenario(64, 1));
        assert!(near(one.requests_per_second, 64.0 / 0.01), "{one:?}");
        // Four batches of 64 requests are under way at most.
        let many = predict(&ModelCosts::FREE, &scenario(1024, 1));
        assert!(near(many.requests_per_second, 256.0 / 0.01), "{many:?}");
    }

    #[test]
    fn processors_and_the_lock_limit_a_store_that_is_near() {
        let near_by = Scenario { round_trips: vec![1e-6], ..scenario(64, 4) };
        let costs = ModelCosts { serve_slot: 50e-6, ..ModelCosts::FREE };
        let machines = Machines::Apart { gateway: 1.0, host: 2.0 };
        let hosts = predict(&costs, &Scenario { machines, ..near_by.clone() });
        let alone = predict(&costs, &Scenario { machines: Machines::One(2.0), ..near_by.clone() });
        let limit = 2.0 / 100e-6;
        assert!((0.95..=1.0).contains(&(alone.requests_per_second / limit)), "{alone:?}");
        assert!(hosts.requests_per_second > 1.5 * alone.requests_per_second, "{hosts:?}");
        let costs = ModelCosts { lock_query: 20e-6, ..ModelCosts::FREE };
        let locked = predict(&costs, &near_by);
        assert!(near(locked.requests_per_second, 1.0 / 20e-6), "{locked:?}");
        assert!(locked.locked > 0.98 && locked.gateway_busy < 0.01);
    }

    #[test]
    fn queries_keep_pace_with_rounds_in_all_partitions() {
        let costs = ModelCosts { evict_slot: 100e-6, ..ModelCosts::FREE };
        let shape = TreeShape { round_blocks: 640, ..SHAPE };
        for hosts in [1, 4] {
            let scenario = Scenario { shape, round_trips: vec![1e-3], ..scenario(200, hosts) };
            let paced = predict(&costs, &scenario);
            // Half of a round on each of two processors, and two round trips. Queries leave a
            // sixteenth of that free, but need not wait once a round has ended.
            let limit = hosts as f64 * 640.0 / (1000.0 * 50e-6 + 2e-3);
            let reached = paced.requests_per_second / limit;
            assert!((16.0 / 17.0..=1.0).contains(&reached), "{hosts} hosts: {reached}");
        }
    }

    #[test]
    fn what_waits_at_the_gateway_needs_no_host() {
        let all = predict(&ModelCosts::FREE, &scenario(8, 1));
        let half = predict(&ModelCosts::FREE, &Scenario { hits: 0.5, ..scenario(8, 1) });
        // A request ends with its batch, so it gains only where no other one needs a host.
        assert!(half.requests_per_second > 1.05 * all.requests_per_second, "{half:?}");
        let only = predict(&ModelCosts::FREE, &Scenario { hits: 1.0, ..scenario(8, 1) });
        assert!(only.mean_ms < 1e-9, "{only:?}");
    }
}
