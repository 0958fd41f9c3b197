//! The answer: what protects, what it costs, what leaks, and what to run.

use super::leakage::Leakage;
use super::requirements::Watcher;
use serde::Serialize;

/// The answer to a requirement.
#[derive(Serialize, Debug)]
pub struct Advice {
    /// The name of this form as JSON: `traceless.advise.v1`, of docs/json.md.
    pub schema: &'static str,
    /// The adversary.
    pub watcher: Watcher,
    /// Whether reads must be hidden, too.
    pub hide_reads: bool,
    /// Whether a product protects. If not, the fields of a product are `null` or empty.
    pub protected: bool,
    /// The command of `traceless` that protects.
    pub product: Option<&'static str>,
    /// The scheme that was chosen.
    pub scheme: Option<String>,
    /// Words of the command line that set its parameters.
    pub options: Vec<String>,
    /// What it costs.
    pub cost: Option<Cost>,
    /// What the adversary observes, in the words of docs/threat-model.md.
    pub observes: Option<&'static str>,
    /// What the adversary learns, in the words of docs/threat-model.md.
    pub learns: Option<&'static str>,
    /// Limits, and what else to know.
    pub notes: Vec<String>,
    /// What to run, in this order.
    pub commands: Vec<CommandLine>,
    /// All candidates that were compared, the chosen one first.
    pub candidates: Vec<Candidate>,
    /// Where no product protects: what comes nearest.
    pub nearest: Vec<Alternative>,
    /// The features of products that this crate was built with.
    pub built_with: Vec<&'static str>,
}

/// What a product advises.
#[derive(Debug)]
#[allow(dead_code, reason = "features decide whether a product makes one")]
pub struct Proposal {
    /// What remains visible.
    pub leakage: Leakage,
    /// Limits, and what else to know.
    pub notes: Vec<String>,
    /// What to run, in this order.
    pub commands: Vec<CommandLine>,
    /// The chosen one first.
    pub candidates: Vec<Candidate>,
}

/// A product with parameters and their cost.
#[derive(Clone, Serialize, Debug)]
pub struct Candidate {
    /// A command of `traceless`.
    pub product: &'static str,
    /// A scheme of that product.
    pub scheme: String,
    /// Words of the command line that set the parameters.
    pub options: Vec<String>,
    /// What it costs.
    pub cost: Cost,
    /// Why it was chosen, or why not.
    pub reason: String,
}

/// What a candidate costs. What does not apply to its product is `null`.
#[derive(Clone, Serialize, Debug)]
pub struct Cost {
    /// Bytes of the store.
    pub store_bytes: u64,
    /// Bytes of the store for each byte that it holds.
    pub space_factor: f64,
    /// Bytes of memory that `--memory` limits.
    pub memory_bytes: u64,
    /// Of a volume, bytes written for each byte of the user's in long writes; of a paged program,
    /// pages written for each page that leaves.
    pub written: Option<f64>,
    /// Of a paged program, pages read for each page that comes.
    pub read: Option<f64>,
    /// Of a gateway.
    pub queries: Option<QueryCost>,
}

/// Bytes that a gateway and its host move. Messages are counted without TLS.
#[derive(Clone, Serialize, Debug)]
pub struct QueryCost {
    /// Bytes of a block.
    pub block_len: u64,
    /// Queries between two rounds.
    pub round_queries: u64,
    /// Bytes between gateway and host, of a query.
    pub query_messages: u64,
    /// The same of a round.
    pub round_messages: u64,
    /// Bytes that the host reads for a query.
    pub query_reads: u64,
    /// Bytes that the host reads and writes for a round.
    pub round_transfers: u64,
    /// Queries a second at a constant rate.
    pub rate: Option<u32>,
    /// Bytes of messages a second at that rate.
    pub bytes_per_second: Option<f64>,
    /// Dollars for hosts with files, and for a gateway, at the prices of `traceless plan cloud`;
    /// `null` if the rate takes more hosts than there can be.
    pub dollars_per_month: Option<f64>,
}

/// A command to run.
#[derive(Clone, Serialize, Debug)]
pub struct CommandLine {
    /// Where to run it, and what for.
    pub purpose: &'static str,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// The words as one line for a shell.
    pub text: String,
}

impl CommandLine {
    /// A command of `traceless`.
    pub fn new<W: Into<String>>(purpose: &'static str, words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(Into::into);
        let words: Vec<String> = ["traceless".to_owned()].into_iter().chain(words).collect();
        Self { purpose, text: words.join(" "), words }
    }
}

/// Something near to what was required, where no product protects.
#[derive(Clone, Serialize, Debug)]
pub struct Alternative {
    /// What it is, and for which use.
    pub what: &'static str,
    /// What the adversary observes that it protects from; `null` where it protects from none.
    pub observes: Option<&'static str>,
    /// What that adversary learns.
    pub learns: Option<&'static str>,
    /// A document about it.
    pub see: &'static str,
    /// What to run for it.
    pub commands: Vec<CommandLine>,
}
