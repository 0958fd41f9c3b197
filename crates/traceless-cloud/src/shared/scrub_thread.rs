//! The thread that verifies the whole store again and again, beside the clients.

use super::SharedGateway;
use crate::error::Error;
use crate::gateway::NodeVerdict;
use crate::geometry::Node;
use crate::repeating_thread::RepeatingThread;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use traceless_core::rng::{Rng as _, System};

/// How long the host may read `len` bytes, at a speed in bytes a second.
pub fn time_of(len: u64, speed: NonZeroU64) -> Duration {
    Duration::from_secs_f64(len as f64 / speed.get() as f64)
}

/// Pauses before a node is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
pub(super) const FAILED_PAUSE: Duration = Duration::from_secs(10);

/// Verifies nodes, in the order of their numbers, until it is dropped.
pub struct ScrubThread {
    _thread: RepeatingThread,
}

impl ScrubThread {
    /// Starts to verify `speed` bytes a second.
    pub fn start(front: &Arc<SharedGateway>, speed: NonZeroU64) -> Self {
        let front = front.clone();
        let geometry = front.inspect(|gateway| gateway.params().geometry);
        // A gateway that is often started anew verifies all nodes, too.
        let mut node = System.below(geometry.nodes().into()) as u32;
        let step = move || match front.scrub(Node(node)) {
            ScrubOutcome::Verified => {
                let len = geometry.node_len(geometry.layer_of(Node(node)));
                node = (node + 1) % geometry.nodes();
                Some(time_of(len as u64, speed))
            }
            ScrubOutcome::Busy => Some(BUSY_PAUSE),
            ScrubOutcome::Failed => Some(FAILED_PAUSE),
            ScrubOutcome::Over => None,
        };
        Self { _thread: RepeatingThread::start(step) }
    }
}

/// What became of a node.
enum ScrubOutcome {
    Verified,
    /// A round is in progress, and clients need not wait for its end.
    Busy,
    Failed,
    /// Another gateway has the store.
    Over,
}

impl SharedGateway {
    fn scrub(&self, node: Node) -> ScrubOutcome {
        let turn = self.turns.wait();
        if self.inspect(|gateway| gateway.is_busy(node)) {
            return ScrubOutcome::Busy;
        }
        let mut gateway = self.lock_alone();
        let scrubbed = match gateway.is_in_round(node) {
            Ok(true) => return ScrubOutcome::Busy,
            Ok(false) => gateway.scrub(node),
            Err(error) => Err(error),
        };
        self.metrics.observe(&gateway);
        drop((gateway, turn));
        match scrubbed {
            Ok(NodeVerdict { lost, healed }) => {
                let node = node.0;
                if !lost.is_empty() {
                    tracing::error!(node, slots = lost.len(), "the scrub found damaged slots");
                }
                if !healed.is_empty() {
                    let slots = healed.len();
                    tracing::warn!(node, slots, "the scrub found damaged slots, which are healed");
                }
                self.metrics.succeeded();
                ScrubOutcome::Verified
            }
            Err(error) => {
                self.metrics.failed(&error);
                let is_over = matches!(error, Error::Fenced { .. });
                if is_over { ScrubOutcome::Over } else { ScrubOutcome::Failed }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::{HookedHost, gateway_behind, in_memory, params};
    use crate::gateway::{StoreStep, Value};
    use crate::shared::Wall;
    use traceless_core::clock::{Clock as _, Monotonic};

    #[test]
    fn nodes_are_verified_at_the_speed_and_beside_clients() {
        let front = Arc::new(SharedGateway::new(in_memory(900, 3), Arc::default(), Arc::new(Wall)));
        let geometry = front.inspect(|gateway| gateway.params().geometry);
        let speed = NonZeroU64::new(50 * geometry.node_len(0) as u64).unwrap();
        let (thread, clock) = (ScrubThread::start(&front, speed), Monotonic::start());
        let scrubbed = || front.inspect(|gateway| gateway.counts().scrubbed);
        while scrubbed() < 10 {
            front.run(|gateway| gateway.put(7, &[1; 64])).unwrap();
        }
        // Each of the first nine took a fiftieth of a second, or more.
        let took = Duration::from_nanos(clock.now());
        assert!(took > Duration::from_millis(9 * 20 - 20), "{took:?}");
        drop(thread);
        let all = scrubbed();
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(scrubbed(), all, "it has ended");
        assert_eq!(front.run(|gateway| gateway.get(7)).unwrap(), [1; 64]);
    }

    /// Batches of steps at a host that is far away are under way while nodes are verified.
    #[test]
    fn a_scrub_leaves_queries_that_are_under_way_alone() {
        let gateway = gateway_behind(params(900), 4, |host| {
            HookedHost::new(host).at_queries(|host, requests| {
                std::thread::sleep(Duration::from_millis(1));
                host.query_many(requests)
            })
        });
        let front = Arc::new(SharedGateway::new(gateway, Arc::default(), Arc::new(Wall)));
        let thread = ScrubThread::start(&front, NonZeroU64::MAX);
        std::thread::scope(|scope| {
            for client in 0..6_u8 {
                let front = &front;
                scope.spawn(move || {
                    for version in 0..60 {
                        let (name, bytes) = ([client, version % 5], vec![version; 100]);
                        let value = Value { name: &name, bytes: &bytes, note: b"" };
                        front.run_step(StoreStep::new(&[value]), |_| ()).unwrap();
                        let loaded = front.load_many(vec![name.to_vec()]).unwrap().pop().unwrap();
                        assert_eq!(loaded.unwrap().unwrap(), bytes);
                    }
                });
            }
        });
        drop(thread);
        assert!(front.inspect(|gateway| gateway.counts().scrubbed) > 3);
    }

    #[test]
    fn the_time_of_a_node_follows_from_the_speed() {
        let speed = |bytes| NonZeroU64::new(bytes).unwrap();
        assert_eq!(time_of(1000, speed(1000)), Duration::from_secs(1));
        assert_eq!(time_of(10, speed(u64::MAX)), Duration::ZERO);
    }
}
