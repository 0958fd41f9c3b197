//! What a store needs for a load: the rate of queries, the tree, hosts, requests to an engine, and
//! what all of it costs a month.
//!
//! Everything follows from the tree's parameters, as a constant rate sends the same queries
//! with and without requests:
//!
//! ```
//! use std::time::Duration;
//! use traceless_cloud::capacity::{PlanConditions, Demand, EngineKind, Prices, plan};
//!
//! # fn main() -> traceless_cloud::Result {
//! let demand =
//!     Demand { data: 10 << 30, value_len: 1024, requests_per_second: 100.0, ..Demand::default() };
//! let conditions = PlanConditions {
//!     engine: EngineKind::S3,
//!     latency: Duration::from_millis(20),
//!     ..PlanConditions::default()
//! };
//! let plans = plan(&demand, &conditions, &Prices::default())?;
//! let cheapest = &plans[0];
//! assert_eq!(cheapest.rate, 125);
//! // An answer of the engine takes longer than 1/125 s, so a tick has several queries.
//! assert!(cheapest.together >= 4);
//! println!("{:.0} dollars a month", cheapest.money.total());
//! // Copies of a hundredth of skewed data, and a gateway that stands by:
//! let skewed = Demand { skew: 0.99, ..demand };
//! let conditions = PlanConditions { copies: 100 << 20, standbys: 1, ..conditions };
//! let with_both = &plan(&skewed, &conditions, &Prices::default())?[0];
//! assert!(with_both.rate < cheapest.rate / 2 && with_both.state_requests.writes > 1.0);
//! # Ok(())
//! # }
//! ```

mod copy_hits;
mod state_requests;

use crate::costs::Costs;
use crate::error::{Error, Result};
use crate::gateway::{
    LEASE_MIN, QUERIES_PER_SECOND_MAX, TOGETHER_MAX, VALUE_LEN_MAX, bytes_beside_copy,
};
use crate::kernel::Choice;
use crate::params::Params;
use crate::store::layers_in;
use copy_hits::hit_share;
use core::cmp::Ordering;
use core::time::Duration;
use state_requests::{requests_per_entry, state_requests};

/// Of a constant rate's queries, the share that clients may use, so that they do not wait long.
const UTILIZATION: f64 = 0.8;
/// How much longer than usual an answer may take before the next tick is late. The tick of a commit
/// waits for two more, in S3 of two requests each, and must not be late by a whole period.
const LATENCY_MARGIN: f64 = 1.5;
const LATENCY_MARGIN_S3: f64 = 2.5;
/// The same of each request for the entry of the state that a tick waits for.
const LATENCY_MARGIN_STATE: f64 = 1.5;
/// The largest exponent of Zipf's law.
const SKEW_MAX: f64 = 10.0;
/// Blocks for each block of data: a new value is written before the old one's blocks are free.
const ROOM: f64 = 1.25;
/// Lengths of a block, and numbers of a node's children, to try.
const BLOCK_LENS: [usize; 4] = [1 << 10, 4 << 10, 16 << 10, 64 << 10];
const ARITIES: [u32; 2] = [8, 16];
/// Most hosts of a tree.
const HOSTS_MAX: u32 = 8;
const HOURS_PER_MONTH: f64 = 730.0;
const SECONDS_PER_MONTH: f64 = HOURS_PER_MONTH * 3600.0;
const GB: f64 = 1e9;

/// What clients need.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Bytes of all values.
    pub data: u64,
    /// Bytes of a value.
    pub value_len: u64,
    /// Values that are read or written in a second, at most.
    pub requests_per_second: f64,
    /// How uneven requests are: the exponent of Zipf's law, 0 if all values are alike.
    pub skew: f64,
    /// The share of requests that read.
    pub read_share: f64,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            data: 1 << 30,
            value_len: 1024,
            requests_per_second: 1.0,
            skew: 0.0,
            read_share: 1.0,
        }
    }
}

/// Where the tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// In files of the host.
    Files,
    /// In Redis or Valkey.
    Redis,
    /// In an object store with the protocol of S3.
    S3,
    /// In PostgreSQL.
    Postgres,
}

/// What the store runs on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlanConditions {
    /// Where the tree is.
    pub engine: EngineKind,
    /// From a query to its reply: the network to the host, and an answer of the engine.
    pub latency: Duration,
    /// Bytes of the host's memory that keep the top layers.
    pub cache: u64,
    /// Each limit of the tree is met with probability 2^-lambda.
    pub lambda: u32,
    /// Bytes of nodes that a host reads and writes in a second; `traceless-lab bench cloud` shows
    /// it.
    pub host_speed: f64,
    /// Bytes of blocks used lately that the gateway keeps copies of.
    pub copies: u64,
    /// Gateways that stand by. With one the gateway's state is in the engine, too.
    pub standbys: u32,
    /// How long the lease of that state lasts.
    pub lease: Duration,
}

impl Default for PlanConditions {
    fn default() -> Self {
        Self {
            engine: EngineKind::Files,
            latency: Duration::from_millis(1),
            cache: 64 << 20,
            lambda: 32,
            host_speed: f64::from(240 << 20),
            copies: 0,
            standbys: 0,
            lease: Duration::from_secs(5),
        }
    }
}

/// Prices in dollars.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prices {
    /// Of a million requests that read.
    pub million_reads: f64,
    /// Of a million requests that write.
    pub million_writes: f64,
    /// Of a gigabyte in an object store, a month.
    pub object_gb: f64,
    /// Of a gigabyte on a disk, a month.
    pub disk_gb: f64,
    /// Of a gigabyte in the memory of a server, a month.
    pub memory_gb: f64,
    /// Of a machine for a host or a gateway, a month.
    pub machine: f64,
    /// Of a gigabyte that leaves the provider's network.
    pub transferred_gb: f64,
}

/// Near the prices that a large provider has in its cheapest region.
impl Default for Prices {
    fn default() -> Self {
        Self {
            million_reads: 0.40,
            million_writes: 5.00,
            object_gb: 0.023,
            disk_gb: 0.08,
            memory_gb: 8.0,
            machine: 60.0,
            transferred_gb: 0.0,
        }
    }
}

/// Queries at a constant rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueryRate {
    /// Queries a second.
    pub per_second: u32,
    /// Queries that a tick sends together.
    pub together: usize,
}

/// Requests to an engine in a second.
#[derive(Clone, Copy, Default, Debug)]
pub struct EngineRequests {
    /// Requests for a range of a node, and for whole nodes.
    pub reads: f64,
    /// Nodes that are written, entries of the log, and lists, which cost as much.
    pub writes: f64,
}

/// Dollars a month.
#[derive(Clone, Copy, Debug)]
pub struct MonthlyCost {
    /// For the bytes of the tree.
    pub storage: f64,
    /// For requests, where they are paid for.
    pub requests: f64,
    /// For hosts and gateways, and memory for copies.
    pub machines: f64,
    /// For bytes that leave the provider's network to the gateway.
    pub transfers: f64,
}

impl MonthlyCost {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.storage + self.requests + self.machines + self.transfers
    }
}

/// A store that carries a load.
#[derive(Clone, Debug)]
pub struct CapacityPlan {
    /// The tree.
    pub params: Params,
    /// Queries a second, at a constant rate.
    pub rate: u32,
    /// Queries that a tick sends together.
    pub together: usize,
    /// Hosts that the tree is divided among.
    pub hosts: u32,
    /// How many whole layers the cache has.
    pub layers_cached: usize,
    /// Requests to the engine for the tree.
    pub requests: EngineRequests,
    /// The same for the state, if gateways stand by.
    pub state_requests: EngineRequests,
    /// The share of reads that find a copy.
    pub copy_hits: f64,
    /// Bytes that the engine stores.
    pub stored: u64,
    /// Bytes of messages in a second, between gateway and hosts.
    pub messages: f64,
    /// Bytes of memory of the gateway.
    pub gateway_memory: u64,
    /// How long a read waits in the mean. One that finds a copy does not wait.
    pub mean_wait: Duration,
    /// What it costs.
    pub money: MonthlyCost,
}

/// Stores that carry a load, the cheapest first. Fails if there is none.
pub fn plan(
    demand: &Demand,
    conditions: &PlanConditions,
    prices: &Prices,
) -> Result<Vec<CapacityPlan>> {
    let wrong = demand.data == 0
        || demand.value_len == 0
        || !demand.requests_per_second.is_finite()
        || demand.requests_per_second <= 0.0;
    if wrong || demand.value_len > VALUE_LEN_MAX as u64 {
        return Err(Error::Parameters(
            "data, a value's length (64 MiB at most) and requests are more than nothing",
        ));
    }
    if !(0.0..=SKEW_MAX).contains(&demand.skew) || !(0.0..=1.0).contains(&demand.read_share) {
        return Err(Error::Parameters("a skew is 0 to 10, and a share of reads 0 to 1"));
    }
    if conditions.standbys > 0 && conditions.engine == EngineKind::Files {
        let message = "gateways that stand by need an engine for their state: redis, s3, postgres";
        return Err(Error::Parameters(message));
    }
    if conditions.standbys > 0 && conditions.lease < LEASE_MIN {
        return Err(Error::Parameters("a lease is for half a second at least"));
    }
    let (mut plans, mut failure) = (Vec::new(), None);
    // A value takes whole blocks, so a longer block than a value needs is never better.
    let longest = demand.value_len.next_power_of_two().max(BLOCK_LENS[0] as u64);
    for block_len in BLOCK_LENS.into_iter().filter(|&len| len as u64 <= longest) {
        for arity in ARITIES {
            match plan_tree(demand, conditions, prices, (block_len, arity)) {
                Ok(plan) => plans.push(plan),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
    }
    let price = |plan: &CapacityPlan| (plan.money.total(), plan.rate);
    plans.sort_by(|a, b| price(a).partial_cmp(&price(b)).unwrap_or(Ordering::Equal));
    match failure {
        Some(error) if plans.is_empty() => Err(error),
        _ => Ok(plans),
    }
}

fn plan_tree(
    demand: &Demand,
    conditions: &PlanConditions,
    prices: &Prices,
    (block_len, arity): (usize, u32),
) -> Result<CapacityPlan> {
    let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let blocks_per_value = whole(demand.value_len.div_ceil(block_len as u64));
    let values = demand.data.div_ceil(demand.value_len);
    let blocks = (values.saturating_mul(blocks_per_value as u64) as f64 * ROOM).ceil() as u64;
    let choice = Choice::Benes;
    let params = Params::for_kernel(choice, arity, blocks, block_len, conditions.lambda)?;
    let costs = Costs::of(&params, choice);
    let kept = conditions.copies as f64 / (blocks_per_value as f64 * block_len as f64);
    let copy_hits = match conditions.copies {
        0 => 0.0,
        _ => hit_share(values as f64, kept, demand.skew),
    };
    // At a constant rate no queries fill size classes up, and a read of a copy sends none.
    let queries = demand.requests_per_second * blocks_per_value as f64;
    let queries = queries * (1.0 - copy_hits * demand.read_share);
    let rate = (queries / UTILIZATION).ceil().max(1.0);
    if rate > f64::from(QUERIES_PER_SECOND_MAX) {
        return Err(Error::Parameters("no gateway sends as many queries a second"));
    }
    let margin = match conditions.engine {
        EngineKind::S3 => LATENCY_MARGIN_S3,
        EngineKind::Files | EngineKind::Redis | EngineKind::Postgres => LATENCY_MARGIN,
    };
    let margin = match conditions.standbys {
        0 => margin,
        _ => margin + LATENCY_MARGIN_STATE * requests_per_entry(conditions.engine),
    };
    let together = together_for(&params, rate * conditions.latency.as_secs_f64() * margin)?;
    let query_rate = QueryRate { per_second: rate as u32, together };
    let hosts = hosts_for(&params, &costs, rate, conditions)?;
    let layers_cached = layers_in(&params.geometry, conditions.cache);
    let requests = engine_requests(&params, layers_cached, rate);
    let messages = rate * costs.messages_per_query(&params);
    let stored = costs.tree;
    // A read waits for its tick, for reads before it, and for its reply.
    let queue = UTILIZATION / (2.0 * (1.0 - UTILIZATION)) / rate;
    let tick = together as f64 / rate;
    let wait = tick / 2.0 + queue + conditions.latency.as_secs_f64();
    let mean_wait = Duration::from_secs_f64(wait * (1.0 - copy_hits));
    let money = monthly_cost(&params, choice, query_rate, conditions, prices)?;
    Ok(CapacityPlan {
        params,
        rate: rate as u32,
        together,
        hosts,
        layers_cached,
        requests,
        state_requests: state_requests(&params, query_rate, conditions),
        copy_hits,
        stored,
        messages,
        gateway_memory: costs.gateway_memory + memory_of_copies(block_len, conditions),
        mean_wait,
        money,
    })
}

/// Bytes of memory of a gateway for its copies.
fn memory_of_copies(block_len: usize, conditions: &PlanConditions) -> u64 {
    let count = conditions.copies / block_len as u64;
    conditions.copies + count * bytes_beside_copy() as u64
}

/// The fewest hosts that read and write the nodes of so many queries a second.
fn hosts_for(
    params: &Params,
    costs: &Costs,
    rate: f64,
    conditions: &PlanConditions,
) -> Result<u32> {
    let hosts = (rate * costs.transfers_per_query(params) / conditions.host_speed).ceil();
    if hosts > f64::from(HOSTS_MAX.min(params.geometry.roots)) {
        return Err(Error::Parameters("no eight hosts read and write as many nodes a second"));
    }
    Ok((hosts as u32).max(1))
}

/// What a tree costs at a rate of queries, with its gateways.
///
/// # Errors
///
/// If it takes more hosts than a tree can be divided among.
pub fn monthly_cost(
    params: &Params,
    choice: Choice,
    query_rate: QueryRate,
    conditions: &PlanConditions,
    prices: &Prices,
) -> Result<MonthlyCost> {
    let (costs, rate) = (Costs::of(params, choice), f64::from(query_rate.per_second));
    let hosts = hosts_for(params, &costs, rate, conditions)?;
    let requests = engine_requests(params, layers_in(&params.geometry, conditions.cache), rate);
    let messages = rate * costs.messages_per_query(params);
    let per_gb = match conditions.engine {
        EngineKind::Files | EngineKind::Postgres => prices.disk_gb,
        EngineKind::Redis => prices.memory_gb,
        EngineKind::S3 => prices.object_gb,
    };
    let of_state = state_requests(params, query_rate, conditions);
    let paid = (requests.reads + of_state.reads) * prices.million_reads
        + (requests.writes + of_state.writes) * prices.million_writes;
    // A gateway that stands by has no copies, but needs the memory.
    let copies = memory_of_copies(params.geometry.block_len, conditions)
        * u64::from(1 + conditions.standbys);
    let servers = match conditions.engine {
        EngineKind::Files | EngineKind::S3 => 0,
        EngineKind::Redis | EngineKind::Postgres => 1,
    };
    Ok(MonthlyCost {
        storage: costs.tree as f64 / GB * per_gb,
        requests: match conditions.engine {
            EngineKind::S3 => paid / 1e6 * SECONDS_PER_MONTH,
            EngineKind::Files | EngineKind::Redis | EngineKind::Postgres => 0.0,
        },
        machines: f64::from(hosts + 1 + conditions.standbys + servers) * prices.machine
            + copies as f64 / GB * prices.memory_gb,
        transfers: messages * SECONDS_PER_MONTH / GB * prices.transferred_gb,
    })
}

/// The fewest queries of a tick with which a reply that takes the time of `in_flight` queries is
/// there before the next tick.
fn together_for(params: &Params, in_flight: f64) -> Result<usize> {
    let needed = in_flight.ceil().max(1.0);
    (1..=TOGETHER_MAX)
        .find(|&count| params.round_blocks.is_multiple_of(count) && count as f64 >= needed)
        .ok_or(Error::Parameters("the engine answers too late for as many queries a second"))
}

/// Requests in a second, once each node was written. A stripe is a whole node.
fn engine_requests(params: &Params, layers_cached: usize, rate: f64) -> EngineRequests {
    let layers = params.geometry.layers as f64;
    let read = layers - layers_cached as f64;
    let rounds = rate / params.round_blocks as f64;
    // Besides its nodes a round writes two entries of the log, its commit and one before it that
    // proves that no other host has the store, and after each looks for a later checkpoint.
    EngineRequests { reads: (rate + rounds) * read, writes: rounds * (layers + 4.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: Demand = Demand {
        data: 10 << 30,
        value_len: 1024,
        requests_per_second: 100.0,
        skew: 0.0,
        read_share: 1.0,
    };

    fn conditions(engine: EngineKind, latency_ms: u64) -> PlanConditions {
        PlanConditions {
            engine,
            latency: Duration::from_millis(latency_ms),
            ..PlanConditions::default()
        }
    }

    #[test]
    fn plans_are_sorted_by_price_and_carry_the_load() {
        for engine in [EngineKind::Files, EngineKind::Redis, EngineKind::S3, EngineKind::Postgres] {
            let plans = plan(&DEMAND, &conditions(engine, 20), &Prices::default()).unwrap();
            assert_eq!(plans.len(), ARITIES.len());
            assert!(plans.is_sorted_by(|a, b| a.money.total() <= b.money.total()));
            for plan in plans {
                assert!(f64::from(plan.rate) * UTILIZATION >= DEMAND.requests_per_second);
                let period = plan.together as f64 / f64::from(plan.rate);
                // Five requests one after the other end a tick of S3 with a commit.
                let requests = if engine == EngineKind::S3 { 5.0 } else { 3.0 };
                assert!(2.0 * period >= 0.020 * requests, "late by a whole period: {period}");
                assert_eq!(plan.params.round_blocks % plan.together, 0);
                assert_eq!(plan.money.requests > 0.0, engine == EngineKind::S3);
                assert!(plan.mean_wait > Duration::from_millis(20));
            }
        }
    }

    #[test]
    fn values_of_several_blocks_take_as_many_queries() {
        let long = Demand { value_len: 10_000, ..DEMAND };
        let plans = plan(&long, &conditions(EngineKind::Files, 1), &Prices::default()).unwrap();
        let rate = |block_len| {
            let found = plans.iter().find(|plan| plan.params.geometry.block_len == block_len);
            found.unwrap().rate
        };
        assert_eq!(rate(16 << 10), 125);
        assert_eq!(rate(4 << 10), 3 * 125);
        assert_eq!(rate(1 << 10), 10 * 125);
    }

    #[test]
    fn a_load_that_no_store_carries_is_refused() {
        let refused = |demand: Demand, conditions| plan(&demand, &conditions, &Prices::default());
        let many = Demand { requests_per_second: 1e6, ..DEMAND };
        assert!(refused(many, PlanConditions::default()).is_err());
        assert!(refused(DEMAND, conditions(EngineKind::S3, 2000)).is_err());
        let slow = PlanConditions { host_speed: 1e5, ..PlanConditions::default() };
        assert!(refused(DEMAND, slow).is_err());
        for nothing in [
            Demand { data: 0, ..DEMAND },
            Demand { value_len: 0, ..DEMAND },
            Demand { requests_per_second: 0.0, ..DEMAND },
            Demand { requests_per_second: f64::NAN, ..DEMAND },
            Demand { skew: -0.1, ..DEMAND },
            Demand { read_share: f64::NAN, ..DEMAND },
        ] {
            assert!(refused(nothing, PlanConditions::default()).is_err());
        }
    }

    #[test]
    fn copies_spare_queries_of_reads_and_take_memory() {
        let cheapest = |demand: Demand, copies| {
            let conditions = PlanConditions { copies, ..conditions(EngineKind::Files, 1) };
            plan(&demand, &conditions, &Prices::default()).unwrap().swap_remove(0)
        };
        let without = cheapest(DEMAND, 0);
        // A quarter of all values, which are alike.
        let even = cheapest(DEMAND, 10 << 28);
        assert!((even.copy_hits - 0.25).abs() < 0.001);
        assert_eq!((without.rate, even.rate), (125, 94));
        let more = even.gateway_memory - without.gateway_memory;
        assert!(((10 << 28)..(12 << 28)).contains(&more), "{more}");
        let machines = even.money.machines - without.money.machines;
        assert!((machines - more as f64 / 1e9 * 8.0).abs() < 1e-6);
        let skewed = Demand { skew: 0.99, ..DEMAND };
        assert!(cheapest(skewed, 10 << 28).rate < 30);
        let half_written = cheapest(Demand { read_share: 0.5, ..skewed }, 10 << 28).rate;
        assert!((63..80).contains(&half_written), "{half_written}");
        let all = cheapest(DEMAND, 10 << 30);
        assert_eq!((all.rate, all.mean_wait), (1, Duration::ZERO));
    }

    #[test]
    fn gateways_that_stand_by_cost_a_machine_and_requests() {
        let cheapest = |standbys| {
            let conditions = PlanConditions { standbys, ..conditions(EngineKind::S3, 20) };
            plan(&DEMAND, &conditions, &Prices::default()).unwrap().swap_remove(0)
        };
        let [none, one, three] = [0, 1, 3].map(cheapest);
        assert!(none.state_requests.writes == 0.0 && none.state_requests.reads == 0.0);
        assert!(one.together > none.together, "a tick waits for the state, too");
        // Each tick is an entry, of two requests.
        let ticks = f64::from(one.rate) / one.together as f64;
        assert!((2.0 * ticks..2.0 * ticks + 4.0).contains(&one.state_requests.writes));
        assert!(one.money.requests > none.money.requests);
        assert!((one.money.machines - none.money.machines - 60.0).abs() < 1e-6);
        assert!((three.money.machines - none.money.machines - 180.0).abs() < 1e-6);
        let reads = [one, three].map(|plan| plan.state_requests.reads);
        assert!((reads[1] / reads[0] - 3.0).abs() < 1e-6, "{reads:?}");
        let files = PlanConditions { standbys: 1, ..conditions(EngineKind::Files, 1) };
        let refused = plan(&DEMAND, &files, &Prices::default()).map(drop);
        assert!(matches!(refused, Err(Error::Parameters(_))));
        let short = PlanConditions { lease: LEASE_MIN / 2, ..conditions(EngineKind::S3, 20) };
        let short = PlanConditions { standbys: 1, ..short };
        assert!(plan(&DEMAND, &short, &Prices::default()).is_err());
    }
}
