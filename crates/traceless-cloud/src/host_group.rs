//! The hosts of a tree, each with a partition of it.
//!
//! A gateway to two hosts in its own process, each with about half of all queries:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_cloud::gateway::{Gateway, Keys};
//! use traceless_cloud::host::InProcess;
//! use traceless_cloud::host_group::ConnectedHost;
//! use traceless_cloud::kernel::Choice;
//! use traceless_cloud::params::Params;
//! use traceless_cloud::random::SystemStream;
//! use traceless_cloud::store::MemStore;
//! use traceless_core::seal::Secret;
//!
//! # fn main() -> traceless_cloud::Result {
//! # let mut rng = SystemStream::drawn();
//! # let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
//! let params = Params::new(1000, 64, 32)?;
//! let shared = keys.shared(&params, Choice::Benes);
//! let mut hosts = Vec::new();
//! for own in [[1; 16], [2; 16]] {
//!     let store = MemStore::new(params.geometry);
//!     let (host, enclave) = InProcess::start(&shared, store, &own, &mut rng)?;
//!     hosts.push(ConnectedHost { host: Arc::new(host), session: (own, enclave) });
//! }
//! let (hosts, rng) = ((hosts, None), Box::new(rng));
//! let mut gateway = Gateway::open_divided(params, &keys, Choice::Benes, hosts, None, rng)?;
//! gateway.put(7, &[1; 64])?;
//! assert_eq!(gateway.get(7)?, [1; 64]);
//! # Ok(())
//! # }
//! ```

use crate::channel::Nonce;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::host::{Host, QueryRequest};
use crate::observed_host::Observation;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::thread::Builder;
use traceless_core::trace::Witness;

/// A host, and the session that has begun with its enclave.
pub struct ConnectedHost {
    /// The host.
    pub host: Arc<dyn Host>,
    /// The nonces of the gateway and of the enclave.
    pub session: (Nonce, Nonce),
}

/// The descriptions of enclaves, each once.
pub fn describe_enclaves(mut enclaves: Vec<String>) -> String {
    enclaves.sort();
    enclaves.dedup();
    enclaves.join("; ")
}

/// Hosts with their sessions, for a gateway that is observed by `witness`, if there is one.
pub fn observed_hosts<H: Host + 'static>(
    hosts: Vec<(H, (Nonce, Nonce))>,
    geometry: Geometry,
    witness: Option<Arc<dyn Witness>>,
) -> (Vec<ConnectedHost>, Option<Observation>) {
    let is_single = hosts.len() == 1;
    let observation = witness.map(|witness| Observation::new(geometry, witness));
    let connected = |(host, session)| {
        let host: Arc<dyn Host> = match &observation {
            None => Arc::new(host),
            Some(observation) if is_single => observation.of(host),
            Some(observation) => observation.of_rounds(host),
        };
        ConnectedHost { host, session }
    };
    (hosts.into_iter().map(connected).collect(), observation)
}

/// The hosts of a tree. Queries go to the host that has their leaf.
pub struct HostGroup {
    geometry: Geometry,
    hosts: Vec<GroupedHost>,
    /// The host of each tree, by its root.
    of_root: RwLock<Vec<u32>>,
    /// Reports queries to several hosts, in their order. A single host is observed itself.
    observation: Option<Observation>,
}

struct GroupedHost {
    host: Arc<dyn Host>,
    /// Whether a query was refused because its session is lost.
    has_lost_session: AtomicBool,
}

impl HostGroup {
    /// A group of hosts, all trees at the first one.
    pub fn new(
        geometry: Geometry,
        hosts: impl Iterator<Item = Arc<dyn Host>>,
        observation: Option<Observation>,
    ) -> Self {
        let grouped = |host| GroupedHost { host, has_lost_session: AtomicBool::new(false) };
        Self {
            geometry,
            hosts: hosts.map(grouped).collect(),
            of_root: RwLock::new(vec![0; geometry.roots as usize]),
            observation,
        }
    }

    /// Sets the host of each tree, by its root, while no query is under way.
    pub fn divide(&self, of_root: &[u32]) {
        of_root.clone_into(&mut self.of_root.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// A host.
    pub fn host(&self, partition: usize) -> &Arc<dyn Host> {
        &self.hosts[partition].host
    }

    /// The replies to queries, in order, up to the first failure. Each host gets its queries as one
    /// message, all at the same time.
    pub fn query_many(&self, requests: &[QueryRequest]) -> Vec<Result<Vec<u8>>> {
        if let [only] = &self.hosts[..] {
            return only.query_many(requests);
        }
        if let Some(observation) = &self.observation {
            for request in requests {
                observation.report_query(request);
            }
        }
        let mut own: Vec<Vec<QueryRequest>> = vec![Vec::new(); self.hosts.len()];
        let partitions: Vec<usize> = {
            let of_root = self.of_root.read().unwrap_or_else(PoisonError::into_inner);
            let partition = |leaf| of_root[self.geometry.root(leaf)] as usize;
            requests.iter().map(|request| partition(request.leaf)).collect()
        };
        for (request, &partition) in requests.iter().zip(&partitions) {
            own[partition].push(request.clone());
        }
        let mut replies = self.query_each(&own);
        let mut merged = Vec::with_capacity(requests.len());
        for partition in partitions {
            let reply = replies[partition].next().unwrap_or(Err(Error::SessionLost));
            let has_failed = reply.is_err();
            merged.push(reply);
            if has_failed {
                break;
            }
        }
        merged
    }

    /// The replies of each host to its queries.
    fn query_each(&self, own: &[Vec<QueryRequest>]) -> Vec<std::vec::IntoIter<Result<Vec<u8>>>> {
        let replies: Vec<OnceLock<Vec<Result<Vec<u8>>>>> = vec![OnceLock::new(); own.len()];
        let mut calls: Vec<_> = self.hosts.iter().zip(own).zip(&replies).collect();
        calls.retain(|((_, own), _)| !own.is_empty());
        std::thread::scope(|scope| {
            // This thread waits for the last host, and for each host without a thread.
            let last = calls.pop();
            for ((host, own), replies) in calls {
                let call = move || drop(replies.set(host.query_many(own)));
                if Builder::new().spawn_scoped(scope, call).is_err() {
                    drop(replies.set(host.query_many(own)));
                }
            }
            if let Some(((host, own), replies)) = last {
                drop(replies.set(host.query_many(own)));
            }
        });
        let replies = replies.into_iter().map(|replies| replies.into_inner().unwrap_or_default());
        replies.map(Vec::into_iter).collect()
    }

    /// Whether a query has found the session with a host lost since the last call.
    pub fn take_lost_session(&self, partition: usize) -> bool {
        self.hosts[partition].has_lost_session.swap(false, Ordering::Relaxed)
    }

    /// Fails if another gateway has taken over a store.
    pub fn check(&self) -> Result {
        self.hosts.iter().try_for_each(|one| one.host.check())
    }

    /// The same, but never sends anything: false if only a message would show it.
    pub fn check_quietly(&self) -> Result<bool> {
        self.hosts.iter().try_fold(true, |known, one| Ok(one.host.check_quietly()? && known))
    }

    /// Ends all waiting for hosts that are away, because the program ends.
    pub fn wait_no_more(&self) {
        self.hosts.iter().for_each(|one| one.host.wait_no_more());
    }
}

impl GroupedHost {
    fn query_many(&self, requests: &[QueryRequest]) -> Vec<Result<Vec<u8>>> {
        let replies = self.host.query_many(requests);
        if matches!(replies.last(), Some(Err(Error::SessionLost))) {
            self.has_lost_session.store(true, Ordering::Relaxed);
        }
        replies
    }
}
