//! The thread that moves trees to new hosts, beside the clients.

use super::SharedGateway;
use super::scrub_thread::FAILED_PAUSE;
use crate::error::Error;
use crate::gateway::{Gateway, MoveStep};
use crate::repeating_thread::RepeatingThread;
use std::sync::Arc;
use std::time::Duration;
use traceless_core::clock::{Clock as _, Monotonic};

/// How long to wait for the end of a copy or round before it is looked for again.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// Moves trees until each host has its share, or until it is dropped.
pub struct MoveThread {
    _thread: RepeatingThread,
}

impl MoveThread {
    /// Starts to move trees, if there are several hosts. In the end each host removes the trees
    /// that it no longer has.
    pub fn start(front: &Arc<SharedGateway>) -> Option<Self> {
        let (hosts, has_moves) =
            front.inspect(|gateway| (gateway.tree_counts().len(), gateway.has_moves()));
        if hosts == 1 {
            return None;
        }
        if front.has_constant_rate() {
            if has_moves {
                tracing::warn!("at a constant rate no tree moves to a new host");
            }
            return None;
        }
        let (front, clock) = (front.clone(), Monotonic::start());
        // Copies take half of the time at most, so that rounds of the same hosts go on.
        let mut copy_began = None;
        let step = move || {
            if front.is_move_busy() {
                return Some(BUSY_PAUSE);
            }
            if let Some(began) = copy_began.take() {
                return Some(Duration::from_nanos(clock.now() - began));
            }
            // While that host is away, the gateway does not wait for it.
            if let Some(host) = front.inspect(Gateway::host_in_doubt)
                && let Err(error) = host.sequence()
                && !matches!(error, Error::SessionLost)
            {
                tracing::warn!(%error, "it is unknown whether a node was copied");
                return Some(FAILED_PAUSE);
            }
            match front.move_step() {
                Ok(MoveStep::Done) => match front.keep_own_trees() {
                    Ok(()) | Err(Error::Fenced { .. }) => None,
                    Err(error) => {
                        tracing::warn!(%error, "a host cannot remove trees that have moved now");
                        Some(FAILED_PAUSE)
                    }
                },
                Ok(MoveStep::Moved) => Some(Duration::ZERO),
                Ok(MoveStep::Busy) => Some(BUSY_PAUSE),
                Ok(MoveStep::Copying) => {
                    copy_began = Some(clock.now());
                    Some(BUSY_PAUSE)
                }
                Err(Error::Fenced { .. }) => None,
                Err(error) => {
                    tracing::warn!(%error, "a tree cannot move to its new host now");
                    Some(FAILED_PAUSE)
                }
            }
        };
        Some(Self { _thread: RepeatingThread::start(step) })
    }
}

impl SharedGateway {
    /// Whether the next step of a move has to wait.
    fn is_move_busy(&self) -> bool {
        // An error is that of the next step.
        self.lock().is_move_busy().is_ok_and(|is_busy| is_busy)
    }

    /// Lets each host remove the trees that it no longer has, beside the clients.
    fn keep_own_trees(&self) -> Result<(), Error> {
        let hosts = self.inspect(Gateway::hosts_with_roots);
        hosts.into_iter().try_for_each(|(host, roots)| host.keep_trees(&roots))
    }

    /// Goes on with the move of trees.
    fn move_step(&self) -> Result<MoveStep, Error> {
        let _turn = self.turns.wait();
        let mut gateway = self.lock_alone();
        let step = gateway.check_host().and_then(|()| gateway.move_step());
        self.metrics.observe(&gateway);
        if let Ok(MoveStep::Moved) = step {
            let trees = gateway.tree_counts();
            tracing::info!(?trees, "a tree has moved to its new host");
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::{in_memory, two_hosts};
    use crate::gateway::{StoreStep, Value};
    use crate::shared::Wall;

    fn shared(gateway: Gateway) -> Arc<SharedGateway> {
        Arc::new(SharedGateway::new(gateway, Arc::default(), Arc::new(Wall)))
    }

    /// Batches of steps are under way while all trees of one host move to two.
    #[test]
    fn trees_move_beside_clients() {
        let front = shared(two_hosts(10_000, 97));
        let thread = MoveThread::start(&front);
        assert!(thread.is_some());
        let has_moves = || front.inspect(Gateway::has_moves);
        std::thread::scope(|scope| {
            for client in 0..4_u8 {
                let (front, has_moves) = (&front, &has_moves);
                scope.spawn(move || {
                    let mut version = 0;
                    while version < 300 || has_moves() {
                        let (name, bytes) = ([client, version as u8 % 50], [version as u8; 100]);
                        let value = Value { name: &name, bytes: &bytes, note: b"" };
                        front.run_step(StoreStep::new(&[value]), |_| ()).unwrap();
                        let loaded = front.load_many(vec![name.to_vec()]).unwrap().pop().unwrap();
                        assert_eq!(loaded.unwrap().unwrap(), bytes);
                        version += 1;
                    }
                });
            }
        });
        drop(thread);
        assert_eq!(front.inspect(Gateway::tree_counts), [4, 4]);
        // The thread may have ended before that.
        front.keep_own_trees().unwrap();
        // What the hosts have removed is not read any more.
        for id in 0..10_000 {
            assert_eq!(front.run(|gateway| gateway.get(id)).unwrap().len(), 64);
        }
        assert!(front.metrics().text().contains("traceless_trees{host=\"1\"} 4"));
    }

    #[test]
    fn nothing_moves_without_need_or_at_a_constant_rate() {
        assert!(MoveThread::start(&shared(in_memory(600, 98))).is_none());
        let front = shared(two_hosts(600, 99));
        let clock = Arc::new(traceless_core::clock::SimulatedClock::default());
        front.run(|gateway| gateway.start_constant_rate(1000, clock)).unwrap();
        assert!(MoveThread::start(&front).is_none());
        assert!(front.run(Gateway::move_step).unwrap() == MoveStep::Done);
        assert_eq!(front.inspect(Gateway::tree_counts), [8, 0]);
    }
}
