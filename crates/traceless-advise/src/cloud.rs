//! Advice on gateways: how long blocks are, and whether queries come at a constant rate.

use super::answer::{Candidate, CommandLine, Cost, Proposal, QueryCost};
use super::leakage::{ENCLAVES, GATEWAY_AT_A_RATE, GATEWAY_ON_DEMAND};
use super::requirements::{AdviseError, Requirements};
use super::sizes::{about, size_text};
use traceless_cloud::capacity::{PlanConditions, Prices, QueryRate, monthly_cost};
use traceless_cloud::costs::Costs;
use traceless_cloud::gateway::QUERIES_PER_SECOND_MAX;
use traceless_cloud::kernel::Choice;
use traceless_cloud::params::{ARITY, Params};

/// Lengths of a block to try. A longer one needs less memory for each byte, and a query more bytes.
const BLOCK_LENS: [u64; 4] = [1 << 10, 4 << 10, 16 << 10, 64 << 10];

/// A tree with its cost, in the order of preference.
struct GatewayTrial {
    params: Params,
    choice: Choice,
    rate: Option<u32>,
    cost: Cost,
}

/// The gateway that fits, or why none does.
pub fn propose(required: &Requirements) -> Result<Proposal, AdviseError> {
    let rate = required.queries_per_second();
    if let Some(rate) = rate.filter(|&rate| rate > QUERIES_PER_SECOND_MAX) {
        return Err(AdviseError::Rate { rate, most: QUERIES_PER_SECOND_MAX });
    }
    let lens = required.block_len.map_or(BLOCK_LENS.to_vec(), |len| vec![len]);
    let (mut trials, mut failure) = (Vec::new(), None);
    for len in lens {
        match trial(required, len, Choice::Benes) {
            Ok(trial) => trials.push(trial),
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    if let Some(given) = required.dollars
        && let Some(least) = trials.iter().map(GatewayTrial::dollars).reduce(f64::min)
        && given < least
    {
        return Err(AdviseError::Dollars { given, least });
    }
    let Some(chosen) = trials.iter().position(|trial| trial.is_allowed(required)) else {
        let pair = |trial: &GatewayTrial| (trial.cost.memory_bytes, trial.cost.space_factor);
        let costs: Vec<_> = trials.iter().map(pair).collect();
        let nothing = || required.refusal(&costs);
        return Err(failure.filter(|_| costs.is_empty()).unwrap_or_else(nothing));
    };
    let chosen = trials.remove(chosen);
    let leakage = match chosen.rate {
        Some(_) => GATEWAY_AT_A_RATE,
        None => GATEWAY_ON_DEMAND,
    };
    let candidates = candidates(&chosen, &trials, required);
    Ok(Proposal { leakage, notes: notes(&chosen), commands: commands(&chosen), candidates })
}

fn trial(
    required: &Requirements,
    block_len: u64,
    choice: Choice,
) -> Result<GatewayTrial, AdviseError> {
    let refused = |what: String| AdviseError::Parameters(what);
    let len = usize::try_from(block_len).map_err(|e| refused(e.to_string()))?;
    if len == 0 {
        return Err(refused("--block-len 0: a block has bytes".to_owned()));
    }
    let blocks = required.size.div_ceil(block_len);
    let params = Params::for_kernel(choice, ARITY, blocks, len, PlanConditions::default().lambda);
    let params = params.map_err(|e| refused(e.to_string()))?;
    Ok(GatewayTrial::new(params, choice, required.queries_per_second()))
}

impl GatewayTrial {
    fn new(params: Params, choice: Choice, rate: Option<u32>) -> Self {
        let costs = Costs::of(&params, choice);
        let per_query = costs.messages_per_query(&params);
        let conditions = PlanConditions::default();
        let query_rate = QueryRate { per_second: rate.unwrap_or(0), together: 1 };
        let money = monthly_cost(&params, choice, query_rate, &conditions, &Prices::default());
        let cost = Cost {
            store_bytes: costs.tree,
            space_factor: params.space(),
            memory_bytes: costs.gateway_memory,
            written: None,
            read: None,
            queries: Some(QueryCost {
                block_len: params.geometry.block_len as u64,
                round_queries: params.round_blocks as u64,
                query_messages: costs.query_messages,
                round_messages: costs.round_messages,
                query_reads: costs.query_reads,
                round_transfers: costs.round_transfers,
                rate,
                bytes_per_second: rate.map(|rate| f64::from(rate) * per_query),
                dollars_per_month: money.ok().map(|money| money.total()),
            }),
        };
        Self { params, choice, rate, cost }
    }

    fn block_len(&self) -> u64 {
        self.params.geometry.block_len as u64
    }

    /// Dollars a month; without end if no hosts are enough.
    fn dollars(&self) -> f64 {
        let queries = self.cost.queries.as_ref();
        queries.and_then(|queries| queries.dollars_per_month).unwrap_or(f64::INFINITY)
    }

    fn is_allowed(&self, required: &Requirements) -> bool {
        required.allows_memory(self.cost.memory_bytes)
            && required.allows_space(self.cost.space_factor)
            && required.dollars.is_none_or(|most| self.dollars() <= most)
    }

    /// The options of `traceless gateway`.
    fn options(&self) -> Vec<String> {
        let (blocks, len) = (self.params.blocks.to_string(), size_text(self.block_len()));
        let mut words = ["--blocks", &blocks, "--block-len", &len].map(str::to_owned).to_vec();
        if self.choice == Choice::Paper {
            words.extend(["--kernel", "paper"].map(str::to_owned));
        }
        if let Some(rate) = self.rate {
            words.extend(["--rate".to_owned(), format!("fixed={rate}/s")]);
        }
        words
    }
}

/// All trials with their reasons, the chosen one first.
fn candidates(
    chosen: &GatewayTrial,
    rest: &[GatewayTrial],
    required: &Requirements,
) -> Vec<Candidate> {
    let row = |trial: &GatewayTrial, reason: &str| Candidate {
        product: "gateway",
        scheme: if trial.rate.is_some() { "constant-rate" } else { "demand" }.to_owned(),
        options: trial.options(),
        cost: trial.cost.clone(),
        reason: reason.to_owned(),
    };
    let merit = match chosen.rate {
        Some(_) => "chosen: hides when requests come, and whether they do",
        None => "chosen: the fewest bytes a query that fit",
    };
    let mut rows = vec![row(chosen, merit)];
    if chosen.rate.is_some() {
        let demand = GatewayTrial::new(chosen.params, chosen.choice, None);
        rows.push(row(&demand, "reveals how many blocks are requested, and when"));
    }
    for trial in rest {
        let fault = if !required.allows_memory(trial.cost.memory_bytes) {
            "takes more memory than is allowed"
        } else if !required.allows_space(trial.cost.space_factor) {
            "takes more space than is allowed"
        } else if required.dollars.is_some_and(|most| trial.dollars() > most) {
            "costs more dollars than are allowed"
        } else {
            "more bytes a query; for values and objects of its length"
        };
        rows.push(row(trial, fault));
    }
    if let Ok(paper) = trial(required, chosen.block_len(), Choice::Paper) {
        rows.push(row(&paper, "the paper's kernel, for comparison: a query reads a layer more"));
    }
    rows
}

fn notes(chosen: &GatewayTrial) -> Vec<String> {
    let mut notes =
        vec![format!("{ENCLAVES}: nothing is hidden from a provider that looks into its enclave.")];
    notes.push(match chosen.rate {
        None => "When and how many requests come is visible: --rate N hides that.".to_owned(),
        Some(rate) => format!(
            "Clients get {} a second at most. Choose N well below what `traceless-lab bench \
             cloud` reaches: {rate} is not measured here.",
            about(f64::from(rate) * chosen.block_len() as f64)
        ),
    });
    notes.push(
        "A value takes whole blocks, and as many queries as its size class has. The gateway's own \
         folder must not lie at the provider."
            .to_owned(),
    );
    notes
}

fn commands(chosen: &GatewayTrial) -> Vec<CommandLine> {
    let gateway = |home: &[&str]| {
        let tree = chosen.options();
        let words = ["gateway"].iter().chain(home).map(|&word| word.to_owned()).chain(tree);
        let rest = ["--allow-simulated-tee", "--resp", "127.0.0.1:6400"].map(str::to_owned);
        words.chain(rest).collect::<Vec<_>>()
    };
    let host = ["host", "--listen", "0.0.0.0:6500", "--store", "file:tree"];
    let own = [
        "--state",
        "state",
        "--host",
        "host.example:6500",
        "--host-cert",
        "host.pem",
        "--client-cert",
        "gateway.pem",
        "--client-key",
        "gateway.key",
    ];
    vec![
        CommandLine::new(
            "at the provider; docs/cloud.md makes gateway.pem",
            host.into_iter().chain(["--client-ca", "gateway.pem"]),
        ),
        CommandLine::new("on your own machine; host.pem is from the provider", gateway(&own)),
        CommandLine::new(
            "to try it on one machine, from whose administrator nothing is hidden",
            gateway(&["--local", "store"]),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::requirements::Watcher;
    use super::*;
    use std::num::NonZeroU32;

    const GIB: u64 = 1 << 30;

    fn cloud(size: u64) -> Requirements {
        Requirements::new(Watcher::Cloud, size)
    }

    fn at_rate(rate: u32, of: Requirements) -> Requirements {
        Requirements { rate: NonZeroU32::new(rate), ..of }
    }

    fn within(latency: u32, of: Requirements) -> Requirements {
        Requirements { latency: NonZeroU32::new(latency), ..of }
    }

    fn in_blocks(len: u64, of: Requirements) -> Requirements {
        Requirements { block_len: Some(len), ..of }
    }

    fn in_memory(bytes: u64, of: Requirements) -> Requirements {
        Requirements { memory: Some(bytes), ..of }
    }

    #[test]
    fn block_lengths_turn_where_memory_ends() {
        for (required, expected) in [
            (cloud(GIB), "--blocks 1048576 --block-len 1K"),
            (cloud(1000), "--blocks 1 --block-len 1K"),
            (in_blocks(8 << 10, cloud(GIB)), "--blocks 131072 --block-len 8K"),
            (at_rate(500, cloud(GIB)), "--blocks 1048576 --block-len 1K --rate fixed=500/s"),
            (within(5, cloud(GIB)), "--blocks 1048576 --block-len 1K --rate fixed=200/s"),
            (within(3, cloud(GIB)), "--blocks 1048576 --block-len 1K --rate fixed=334/s"),
            (
                within(5, at_rate(100, cloud(GIB))),
                "--blocks 1048576 --block-len 1K --rate fixed=200/s",
            ),
        ] {
            let options = propose(&required).unwrap().candidates[0].options.join(" ");
            assert_eq!(options, expected, "{required:?}");
        }
        // As much memory as blocks of 1 KiB take is enough for them, and a byte less is not.
        let enough = propose(&cloud(64 * GIB)).unwrap().candidates[0].cost.memory_bytes;
        for (memory, len) in [(enough, 1 << 10), (enough - 1, 4 << 10)] {
            let proposal = propose(&in_memory(memory, cloud(64 * GIB))).unwrap();
            let cost = &proposal.candidates[0].cost;
            assert_eq!(cost.queries.as_ref().unwrap().block_len, len);
            assert!(cost.memory_bytes <= memory);
        }
        // 2^32 blocks of 1 KiB are more than there can be.
        let large = propose(&cloud(8 << 40)).unwrap().candidates[0].cost.queries.clone().unwrap();
        assert!(large.block_len > 1 << 10);
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        let refused = |required: Requirements| propose(&required).unwrap_err();
        for required in [in_blocks(1000, cloud(GIB)), in_blocks(0, cloud(GIB)), cloud(1 << 50)] {
            let error = refused(required);
            assert!(matches!(error, AdviseError::Parameters(_)), "{required:?}: {error}");
        }
        let rate = AdviseError::Rate { rate: 100_001, most: 100_000 };
        assert_eq!(refused(at_rate(100_001, cloud(GIB))), rate);
        let AdviseError::Memory { least, .. } = refused(in_memory(1 << 20, cloud(64 * GIB))) else {
            panic!("it is too little")
        };
        propose(&in_memory(least, cloud(64 * GIB))).unwrap();
        let little = Requirements { space_factor: Some(1.0), ..cloud(GIB) };
        assert!(matches!(refused(little), AdviseError::Space { .. }));
    }

    #[test]
    fn a_constant_rate_hides_times_and_says_what_it_costs() {
        let demand = propose(&cloud(GIB)).unwrap();
        assert_eq!(demand.leakage.learns, GATEWAY_ON_DEMAND.learns);
        assert!(demand.candidates[0].cost.queries.as_ref().unwrap().bytes_per_second.is_none());
        let constant = propose(&at_rate(500, cloud(GIB))).unwrap();
        assert_eq!(constant.leakage.learns, GATEWAY_AT_A_RATE.learns);
        let queries = constant.candidates[0].cost.queries.clone().unwrap();
        let bytes = queries.bytes_per_second.unwrap();
        let expected = 500.0
            * (queries.query_messages as f64
                + queries.round_messages as f64 / queries.round_queries as f64);
        assert!((bytes - expected).abs() < 1.0, "{bytes} {expected}");
        for proposal in [demand, constant] {
            assert!(proposal.notes[0].contains(ENCLAVES));
        }
    }

    #[test]
    fn dollars_are_as_in_a_plan_and_have_a_limit() {
        let dollars = |required: Requirements| {
            let cost = propose(&required).unwrap().candidates[0].cost.clone();
            cost.queries.unwrap().dollars_per_month.unwrap()
        };
        // A host and a gateway, and the tree on a disk.
        let (demand, constant) = (dollars(cloud(GIB)), dollars(at_rate(500, cloud(GIB))));
        assert!((120.0..121.0).contains(&demand), "{demand}");
        assert!((demand - constant).abs() < 1e-9, "{constant}");
        // Another host.
        assert!(dollars(at_rate(50_000, cloud(GIB))) > 180.0);
        let limited = |most| Requirements { dollars: Some(most), ..cloud(GIB) };
        let enough = propose(&limited((demand * 100.0).ceil() / 100.0)).unwrap();
        assert!(enough.candidates[0].cost.queries.is_some());
        let refused = propose(&limited(120.0)).unwrap_err();
        let AdviseError::Dollars { given, least } = refused else { panic!("{refused}") };
        assert!((given - 120.0).abs() < 1e-9 && (least - demand).abs() < 1.0, "{least}");
        let text = AdviseError::Dollars { given: 1.5, least: 120.171 }.to_string();
        assert!(text.contains("--dollars 1.5 are too few: it costs 120.18"), "{text}");
    }
}
