//! Advice on gateways: how long blocks are, and whether queries come at a constant rate.

use super::answer::{Candidate, CommandLine, Cost, Proposal, QueryCost};
use super::leakage::{ENCLAVES, GATEWAY_AT_A_RATE, GATEWAY_ON_DEMAND};
use super::print::about;
use super::requirements::{AdviseError, Requirements};
use crate::args::{LAMBDA, size_text};
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
    if let Some(rate) = required.rate.filter(|&rate| rate > QUERIES_PER_SECOND_MAX) {
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
    let params = Params::for_kernel(choice, ARITY, blocks, len, LAMBDA);
    let params = params.map_err(|e| refused(e.to_string()))?;
    Ok(GatewayTrial::new(params, choice, required.rate))
}

impl GatewayTrial {
    fn new(params: Params, choice: Choice, rate: Option<u32>) -> Self {
        let costs = Costs::of(&params, choice);
        let per_query = costs.messages_per_query(&params);
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
            }),
        };
        Self { params, choice, rate, cost }
    }

    fn block_len(&self) -> u64 {
        self.params.geometry.block_len as u64
    }

    fn is_allowed(&self, required: &Requirements) -> bool {
        required.allows_memory(self.cost.memory_bytes)
            && required.allows_space(self.cost.space_factor)
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
    use super::super::testing::{parsed, required};
    use super::*;
    use crate::args::{Product, Rate};
    use crate::cloud::choice;

    fn propose_for(options: &str) -> Proposal {
        propose(&required(&format!("--watcher cloud {options}"))).unwrap()
    }

    #[test]
    fn block_lengths_turn_where_memory_ends() {
        for (options, expected) in [
            ("--size 1G", "--blocks 1048576 --block-len 1K"),
            ("--size 1000", "--blocks 1 --block-len 1K"),
            ("--size 1G --block-len 8K", "--blocks 131072 --block-len 8K"),
            ("--size 1G --rate 500", "--blocks 1048576 --block-len 1K --rate fixed=500/s"),
            ("--size 1G --latency 5", "--blocks 1048576 --block-len 1K --rate fixed=200/s"),
            ("--size 1G --latency 3", "--blocks 1048576 --block-len 1K --rate fixed=334/s"),
            (
                "--size 1G --latency 5 --rate 100",
                "--blocks 1048576 --block-len 1K --rate fixed=200/s",
            ),
        ] {
            assert_eq!(propose_for(options).candidates[0].options.join(" "), expected, "{options}");
        }
        // As much memory as blocks of 1 KiB take is enough for them, and a byte less is not.
        let enough = propose_for("--size 64G").candidates[0].cost.memory_bytes;
        for (memory, len) in [(enough, 1 << 10), (enough - 1, 4 << 10)] {
            let proposal = propose_for(&format!("--size 64G --memory {memory}"));
            let cost = &proposal.candidates[0].cost;
            assert_eq!(cost.queries.as_ref().unwrap().block_len, len);
            assert!(cost.memory_bytes <= memory);
        }
        // 2^32 blocks of 1 KiB are more than there can be.
        let large = propose_for("--size 8T").candidates[0].cost.queries.clone().unwrap();
        assert!(large.block_len > 1 << 10);
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        let refused =
            |options: &str| propose(&required(&format!("--watcher cloud {options}"))).unwrap_err();
        for options in ["--size 1G --block-len 1000", "--size 1G --block-len 0", "--size 1P"] {
            let error = refused(options);
            assert!(matches!(error, AdviseError::Parameters(_)), "{options}: {error}");
        }
        let rate = AdviseError::Rate { rate: 100_001, most: 100_000 };
        assert_eq!(refused("--size 1G --rate 100001"), rate);
        let AdviseError::Memory { least, .. } = refused("--size 64G --memory 1M") else {
            panic!("it is too little")
        };
        propose_for(&format!("--size 64G --memory {least}"));
        assert!(matches!(refused("--size 1G --space-factor 1"), AdviseError::Space { .. }));
    }

    #[test]
    fn a_constant_rate_hides_times_and_says_what_it_costs() {
        let demand = propose_for("--size 1G");
        assert_eq!(demand.leakage.learns, GATEWAY_ON_DEMAND.learns);
        assert!(demand.candidates[0].cost.queries.as_ref().unwrap().bytes_per_second.is_none());
        let constant = propose_for("--size 1G --rate 500");
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
    fn the_commands_make_the_tree_that_was_priced() {
        for options in ["--size 64M", "--size 1G --block-len 4K --rate 250"] {
            let proposal = propose_for(options);
            assert!(matches!(parsed(&proposal.commands[0]), Product::Host(_)));
            for command in &proposal.commands[1..] {
                let Product::Gateway(args) = parsed(command) else { panic!("{command:?}") };
                let len = args.tree.block_len as usize;
                let kernel = choice(args.tree.kernel);
                let params =
                    Params::for_kernel(kernel, ARITY, args.tree.blocks, len, args.tree.lambda)
                        .unwrap();
                let cost = &proposal.candidates[0].cost;
                assert_eq!(Costs::of(&params, kernel).tree, cost.store_bytes, "{options}");
                let rate = cost.queries.as_ref().unwrap().rate;
                assert_eq!(args.rate, rate.map_or(Rate::Demand, Rate::Fixed));
            }
        }
    }
}
