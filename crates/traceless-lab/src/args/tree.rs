//! `traceless-lab bench tree`

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug)]
pub struct TreeArgs {
    /// The scheme
    #[arg(long, value_enum, default_value = "path")]
    pub scheme: TreeScheme,
    /// Blocks
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: u64,
    /// Bytes of a block; 0 for a simulated tree without contents
    #[arg(long, value_name = "B", default_value_t = 64)]
    pub block_len: usize,
    /// Whether the adversary observes the client's memory too
    #[arg(long, value_enum, default_value = "plain")]
    pub client: ClientKind,
    /// How the store's contents are encrypted, authenticated and checked for freshness [default:
    /// aegis; with the oblivious client aead]
    #[arg(long, value_enum)]
    pub seal: Option<Seal>,
    /// Blocks per bucket [default: 4; circuit 2; ring 16, of 4, 8, 16 and 32]
    #[arg(long, value_name = "Z", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub z: Option<u8>,
    /// Levels of the tree [default: what keeps it at most 5/8 full; of circuit and ring, what
    /// their evictions need]
    #[arg(long, value_name = "L")]
    pub levels: Option<usize>,
    /// Levels cached in trusted memory, from the root on [default: 10; ring 0]
    #[arg(long, value_name = "L")]
    pub cached: Option<usize>,
    /// Position maps in separate trees, or, for unified, rho, llc-d and ir-dwb, in the same tree
    /// [default: 0; in the same tree 3]
    #[arg(long, value_name = "H")]
    pub maps: Option<usize>,
    /// Bytes of a block of position maps in separate trees
    #[arg(long, value_name = "B", default_value_t = 64)]
    pub map_block_len: usize,
    /// Labels in the maps of unified
    #[arg(long, value_enum, default_value = "compressed")]
    pub labels: LabelKind,
    /// Neighbouring blocks of unified that share a label, and come with one path
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=64))]
    pub bundle: u64,
    /// KiB of blocks of the map that unified caches (PLB)
    #[arg(long, value_name = "KIB", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub plb: u32,
    /// Ways of the PLB
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub plb_ways: usize,
    /// KiB of the cache above llc-d and ir-dwb
    #[arg(long, value_name = "KIB", default_value_t = 2048,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub llc: u32,
    /// The order of accessed blocks
    #[arg(long, value_enum, default_value = "random")]
    pub workload: TreeWorkload,
    /// Accesses of a round
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub accesses: u64,
    /// Rounds; the result is their median
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Measure the rows of the group tree in bench/floors.toml instead
    #[arg(long)]
    pub floors: bool,
    /// Measure controls beside each round, with a cipher for bodies of this many bytes
    #[arg(long, value_name = "B", hide = true)]
    pub controls: Option<usize>,
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
    /// One tree for blocks and their map, with a cache for the map
    Unified,
    /// Circuit ORAM
    Circuit,
    /// Ring ORAM
    Ring,
    /// A small tree beside the tree of unified, for recently used blocks
    Rho,
    /// Unified, below a cache that has the only copy of its lines (delayed remapping)
    LlcD,
    /// Unified, below a cache that writes dirty lines back between accesses
    IrDwb,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ClientKind {
    /// The adversary does not observe its memory
    Plain,
    /// The adversary observes its memory too
    Oblivious,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Seal {
    /// No encryption
    None,
    /// AES-256-GCM, a tag a bucket, each bucket's version in its parent
    Aead,
    /// AEGIS-256, a tag a bucket, each bucket's version in its parent; arrays use it too
    Aegis,
    /// AES-256-CTR, an AEGIS-256 tag a block, the count of its accesses in trusted memory
    Pmmac,
    /// AES-256-CTR, each bucket's SHA-256 in its parent
    Merkle,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LabelKind {
    /// Four bytes for each label
    Plain,
    /// Counters
    Compressed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TreeWorkload {
    /// A random block
    Random,
    /// One block after the other
    Sequential,
}

/// The name of a value on the command line.
pub fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is hidden").get_name().to_owned()
}

impl TreeArgs {
    /// The seal of the store's contents.
    pub fn seal(&self) -> Seal {
        self.seal.unwrap_or(match self.client {
            ClientKind::Plain => Seal::Aegis,
            ClientKind::Oblivious => Seal::Aead,
        })
    }

    /// A command line with the same arguments.
    pub fn command_line(&self) -> Vec<String> {
        let mut line = vec!["bench".to_owned(), "tree".to_owned()];
        let mut add = |name: &str, value: String| line.extend([format!("--{name}"), value]);
        add("scheme", word(&self.scheme));
        add("client", word(&self.client));
        add("seal", word(&self.seal()));
        add("blocks", self.blocks.to_string());
        add("block-len", self.block_len.to_string());
        self.z.iter().for_each(|z| add("z", z.to_string()));
        self.levels.iter().for_each(|levels| add("levels", levels.to_string()));
        self.cached.iter().for_each(|cached| add("cached", cached.to_string()));
        self.maps.iter().for_each(|maps| add("maps", maps.to_string()));
        add("map-block-len", self.map_block_len.to_string());
        add("labels", word(&self.labels));
        add("bundle", self.bundle.to_string());
        add("plb", self.plb.to_string());
        add("plb-ways", self.plb_ways.to_string());
        add("llc", self.llc.to_string());
        add("workload", word(&self.workload));
        add("accesses", self.accesses.to_string());
        add("rounds", self.rounds.to_string());
        self.controls.iter().for_each(|len| add("controls", len.to_string()));
        line.push("--json".to_owned());
        line
    }
}
