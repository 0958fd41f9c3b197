//! `traceless bench`

use clap::{Args, Subcommand, ValueEnum};

#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Measure a tree ORAM in memory, one access after the other on one thread
    Tree(TreeArgs),
}

#[derive(Args, Clone, Debug)]
pub struct TreeArgs {
    /// The scheme
    #[arg(long, value_enum, default_value = "path")]
    pub scheme: TreeScheme,
    /// Blocks
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: u64,
    /// Bytes of a block; 0 for a simulated tree, whose blocks carry nothing
    #[arg(long, value_name = "B", default_value_t = 64)]
    pub block_len: usize,
    /// Whether the memory of whoever asks is watched too
    #[arg(long, value_enum, default_value = "plain")]
    pub client: Client,
    /// Whether what lies in the store is encrypted, authenticated and checked for freshness
    #[arg(long, value_enum, default_value = "aegis")]
    pub seal: Seal,
    /// Slots per bucket
    #[arg(long, value_name = "Z", default_value_t = 4,
        value_parser = clap::value_parser!(u8).range(1..=64))]
    pub z: u8,
    /// Levels of the tree [default: what keeps it at most 5/8 full]
    #[arg(long, value_name = "L")]
    pub levels: Option<usize>,
    /// Levels cached in trusted memory, from the root on
    #[arg(long, value_name = "L", default_value_t = 10)]
    pub cached: usize,
    /// Position maps that lie in trees of their own
    #[arg(long, value_name = "H", default_value_t = 0)]
    pub maps: usize,
    /// Bytes of a block of those maps
    #[arg(long, value_name = "B", default_value_t = 64)]
    pub map_block_len: usize,
    /// Accesses of a round
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub accesses: u64,
    /// Rounds of which the median counts
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Measure the rows of the group tree in bench/floors.toml instead
    #[arg(long)]
    pub floors: bool,
    /// Smaller and less exact
    #[arg(long, requires = "floors")]
    pub quick: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TreeScheme {
    /// Path ORAM, with its map in memory or in further trees
    Path,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Client {
    /// Its memory is its own
    Plain,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Seal {
    /// As it is
    None,
    /// AES-256-GCM, a tag a bucket, each bucket's version in its parent
    Aead,
    /// AEGIS-256 in its place, what arrays are sealed with
    Aegis,
    /// AES-256-CTR, an AEGIS-256 tag a block, the count of its accesses in trusted memory
    Pmmac,
    /// AES-256-CTR, each bucket's SHA-256 in its parent
    Merkle,
}

impl TreeArgs {
    /// The command line that asks for the same.
    pub fn command_line(&self) -> Vec<String> {
        let named =
            |name: &str, value: &dyn std::fmt::Display| [format!("--{name}"), value.to_string()];
        let word = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().expect("no value is hidden").get_name().to_owned()
        };
        let mut line = vec!["bench".to_owned(), "tree".to_owned()];
        line.extend(named("scheme", &word(&|| self.scheme.to_possible_value())));
        line.extend(named("client", &word(&|| self.client.to_possible_value())));
        line.extend(named("seal", &word(&|| self.seal.to_possible_value())));
        line.extend(named("blocks", &self.blocks));
        line.extend(named("block-len", &self.block_len));
        line.extend(named("z", &self.z));
        line.extend(self.levels.iter().flat_map(|levels| named("levels", levels)));
        line.extend(named("cached", &self.cached));
        line.extend(named("maps", &self.maps));
        line.extend(named("map-block-len", &self.map_block_len));
        line.extend(named("accesses", &self.accesses));
        line.extend(named("rounds", &self.rounds));
        line.push("--json".to_owned());
        line
    }
}
