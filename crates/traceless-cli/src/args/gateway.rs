//! `traceless gateway`

use super::{DashboardArgs, ProgressArgs, Rate, StoreArgs, TraceArgs, parse_rate, parse_size};
use clap::{Args, Subcommand, ValueEnum};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

/// The usual limit of failures, in bits.
pub const LAMBDA: u32 = 32;
/// The usual lease of a state in an engine, in seconds.
pub const LEASE: u32 = 5;
/// The usual number of children of a node.
const ARITY: u32 = 8;

/// Which evidence of a host's confidential virtual machine is accepted.
#[derive(Args, Clone, Debug)]
pub struct AttestationArgs {
    /// Give keys only to enclaves in confidential virtual machines (TDX, SEV-SNP) that this
    /// policy accepts (docs/deploy.md). traceless-attest verifies them
    #[arg(long, value_name = "FILE", requires = "host")]
    pub attestation_policy: Option<PathBuf>,
    /// What makers of processors signed: files, or folders of them
    #[arg(long, value_name = "PATH", requires = "attestation_policy")]
    pub collateral: Vec<PathBuf>,
    /// Trust these certificates (PEM) in place of the makers': for simulators, which prove nothing
    #[arg(long, value_name = "FILE", requires = "attestation_policy")]
    pub made_up_root: Option<PathBuf>,
    /// The program traceless-attest [default: beside this program, or in PATH]
    #[arg(long, value_name = "FILE")]
    pub verifier: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct GatewayArgs {
    #[command(subcommand)]
    pub command: Option<GatewayCommand>,
    #[command(flatten)]
    pub tree: GatewayTreeArgs,
    /// When queries are sent: as they are needed, or always N each second
    #[arg(long, value_name = "demand|fixed=N/s", value_parser = parse_rate,
        default_value = "demand")]
    pub rate: Rate,
    /// At a constant rate, send so many queries together, at times that are as much rarer: a host
    /// or engine that answers after T seconds gets N queries a second if N times T is less. A
    /// divisor of 20 times --lambda, at most 64
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub together: usize,
    /// Keep copies of blocks used lately, up to so many bytes: to read one of them sends no query
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub copies: Option<u64>,
    /// Serve the Redis protocol at this address [default: 127.0.0.1:6400, without --s3]
    #[arg(long, value_name = "ADDR")]
    pub resp: Option<String>,
    /// File with the password that clients of the Redis protocol must give, as its first line
    #[arg(long, value_name = "FILE")]
    pub resp_password_file: Option<PathBuf>,
    /// File with users of the Redis protocol and their rights, as Redis's aclfile: each line user
    /// NAME RULE... ACL LOAD reads it again, ACL SAVE writes it
    #[arg(long, value_name = "FILE", conflicts_with = "resp_password_file")]
    pub resp_users: Option<PathBuf>,
    /// Serve S3 at this address
    #[arg(long, value_name = "ADDR")]
    pub s3: Option<String>,
    /// A name below this domain in the address of a request is a bucket (virtual-host style)
    #[arg(long, value_name = "DOMAIN", requires = "s3")]
    pub s3_domain: Vec<String>,
    /// Access keys, each line KEY SECRET [BUCKET=ro|rw]... [default: one of its own in the folder]
    #[arg(long, value_name = "FILE")]
    pub s3_keys: Option<PathBuf>,
    /// Speak TLS to clients of S3 and the Redis protocol, with this certificate and its chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// This machine is a confidential virtual machine or an enclave: speak TLS with a new key and a
    /// certificate for this name, which carries evidence for clients to verify
    #[arg(long, value_name = "NAME", conflicts_with = "tls_cert")]
    pub certify: Vec<String>,
    /// The folder that gives out the evidence [default: that of configfs-tsm, or of Gramine]
    #[arg(long, value_name = "DIR", requires = "certify")]
    pub evidence: Option<PathBuf>,
    /// Serve metrics at /metrics, and readiness at /healthz, at this address
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,
    /// File with the password that readers of metrics must give as `Authorization: Bearer
    /// PASSWORD`, as its first line
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub metrics_password_file: Option<PathBuf>,
    /// How to log to standard error
    #[arg(long, value_name = "FORM", value_enum, default_value = "text")]
    pub log: LogForm,
    /// Verify the whole store again and again, so many bytes a second, as `gateway scrub` does
    #[arg(long, value_name = "SIZE", value_parser = parse_speed)]
    pub scrub: Option<NonZeroU64>,
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub dashboard: DashboardArgs,
}

/// A gateway's tree: where and how it is stored.
#[derive(Args, Clone, Debug)]
pub struct GatewayTreeArgs {
    #[command(flatten)]
    pub home: GatewayHome,
    #[command(flatten)]
    pub lease: LeaseArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Where the tree is, without --host: `file:DIR`, or a URL: redis://, redis+cluster://,
    /// redis+sentinel://, s3://, postgres:// [default: in the folder of --local]. Given several
    /// times, the tree is divided among these stores, at most 8: in the same order at each start,
    /// new ones last
    #[arg(long, value_name = "STORE", conflicts_with = "host")]
    pub store: Vec<String>,
    #[command(flatten)]
    pub engine: StoreArgs,
    /// Blocks of the tree, the same at each start
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: u64,
    /// Move the trees of the last N hosts or stores to the first ones. Leave them out,
    /// and this option, once they have none
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub drain: usize,
    /// Bytes of a block, the same at each start
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1K")]
    pub block_len: u64,
    /// How the enclave permutes, the same at each start
    #[arg(long, value_enum, default_value = "benes")]
    pub kernel: CloudKernel,
    /// Each limit of the tree is met with probability 2^-BITS, the same at each start
    #[arg(long, value_name = "BITS", default_value_t = LAMBDA,
        value_parser = clap::value_parser!(u32).range(4..=128))]
    pub lambda: u32,
    /// Children of a node, the same at each start. With 16 a large tree has a layer less: fewer
    /// requests to a store that is paid or far, and larger nodes
    #[arg(long, value_name = "N", default_value_t = ARITY,
        value_parser = clap::value_parser!(u32).range(2..=64))]
    pub arity: u32,
    /// Go on although the enclave is simulated, and so protects nothing from this machine
    #[arg(long, conflicts_with = "attestation_policy")]
    pub allow_simulated_tee: bool,
    #[command(flatten)]
    pub attestation: AttestationArgs,
    /// The master key, 32 bytes [default: one of its own in the folder, beside the data]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// A file elsewhere that records how far the gateway's state had come: an older state, or one
    /// that went another way, is refused. It is made with a new state. With `--durability power`
    /// each answer waits for this file's disk, too
    #[arg(long, value_name = "FILE")]
    pub anchor: Option<PathBuf>,
    /// Where the enclave is, without --host
    #[arg(long, value_enum, default_value = "process", conflicts_with = "host")]
    pub enclave: EnclavePlace,
    /// What an answer to a write has survived
    #[arg(long, value_enum, default_value = "power")]
    pub durability: GatewayDurability,
    /// Give up blocks however many slots are damaged; else much damage at once is an error, as the
    /// disk may be away
    #[arg(long)]
    pub accept_damage: bool,
}

#[derive(Subcommand, Clone, Debug)]
pub enum GatewayCommand {
    /// Check whether a gateway's state is whole, and what cannot be read; changes nothing
    Check(GatewayCheckArgs),
    /// Go on without the unreadable part of a gateway's state, and without values and objects with
    /// lost blocks; without --accept-loss, only report them
    Repair(GatewayRepairArgs),
    /// Verify every slot of the store of a gateway that does not run: damaged nodes are reported,
    /// and written anew without the blocks that are lost
    Scrub(Box<GatewayScrubArgs>),
    /// Write all values and objects of a gateway that does not run into one sealed file
    Backup(Box<GatewayBackupArgs>),
    /// Write a backup into an empty gateway with the same master key: also with another tree
    Restore(Box<GatewayRestoreArgs>),
}

#[derive(Args, Clone, Debug)]
pub struct GatewayBackupArgs {
    #[command(flatten)]
    pub tree: GatewayTreeArgs,
    /// The file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    #[command(flatten)]
    pub progress: ProgressArgs,
}

#[derive(Args, Clone, Debug)]
pub struct GatewayRestoreArgs {
    #[command(flatten)]
    pub tree: GatewayTreeArgs,
    /// The file. All of it is verified before anything is written
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// Verify the file, and write nothing
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
}

#[derive(Args, Clone, Debug)]
pub struct GatewayScrubArgs {
    #[command(flatten)]
    pub tree: GatewayTreeArgs,
    /// Read at most so many bytes a second [default: as fast as it goes]
    #[arg(long, value_name = "SIZE", value_parser = parse_speed)]
    pub speed: Option<NonZeroU64>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
}

/// Bytes a second.
fn parse_speed(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(parse_size(text)?).ok_or_else(|| "the speed is at least a byte a second".into())
}

/// The state of a gateway that does not run.
#[derive(Args, Clone, Debug)]
pub struct GatewayStateArgs {
    /// Where its state is
    #[command(flatten)]
    pub home: StateHome,
    /// The master key, 32 bytes [default: the one in the folder]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// The file that records how far the state had come
    #[arg(long, value_name = "FILE")]
    pub anchor: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Where a gateway keeps its state.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct StateHome {
    /// The folder of a gateway with its host in the same process
    #[arg(long, value_name = "DIR")]
    pub local: Option<PathBuf>,
    /// The folder of a gateway with its host elsewhere
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct GatewayCheckArgs {
    #[command(flatten)]
    pub of: GatewayStateArgs,
    /// If the state is whole, make the file of --anchor anew for it, as it is now
    #[arg(long, requires = "anchor")]
    pub new_anchor: bool,
}

#[derive(Args, Clone, Debug)]
pub struct GatewayRepairArgs {
    #[command(flatten)]
    pub of: GatewayStateArgs,
    /// Give up what cannot be read: values and objects with lost blocks are removed. If the state
    /// is damaged, answered writes in that part are lost, and slots that the host has already
    /// served may be read again. The old file is kept. The file of --anchor is made anew
    #[arg(long)]
    pub accept_loss: bool,
}

/// Where a gateway's state is, which also says where its host is.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct GatewayHome {
    /// Keep everything in this folder, with the host in this process
    #[arg(long, value_name = "DIR", conflicts_with = "host")]
    pub local: Option<PathBuf>,
    /// Keep the gateway's state in this folder, with the tree at --host; or in a storage engine
    /// that other gateways reach, a URL as of --store but with another name, with the tree at
    /// --host or in --store: one gateway at a time has it, and the rest wait to take its place
    #[arg(long, value_name = "DIR|URL")]
    pub state: Option<StatePlace>,
}

/// A state in a storage engine.
#[derive(Args, Clone, Debug)]
pub struct LeaseArgs {
    /// File with the password of the URL of --state, as its first line
    #[arg(long, value_name = "FILE", requires = "state")]
    pub state_password_file: Option<PathBuf>,
    /// How long a gateway answers after it has reached its state for the last time, and how long a
    /// gateway that stands by waits before it takes the place of one that is gone
    #[arg(long, value_name = "SECONDS", default_value_t = LEASE, requires = "state",
        value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub lease: u32,
}

impl LeaseArgs {
    pub fn period(&self) -> Duration {
        Duration::from_secs(self.lease.into())
    }
}

/// Where a gateway's state is.
#[derive(Clone, Debug)]
pub enum StatePlace {
    /// A folder.
    Folder(PathBuf),
    /// The URL of a storage engine.
    Engine(String),
}

impl From<&str> for StatePlace {
    fn from(text: &str) -> Self {
        if text.contains("://") { Self::Engine(text.to_owned()) } else { Self::Folder(text.into()) }
    }
}

/// A host in another process or on another machine.
#[derive(Args, Clone, Debug)]
pub struct RemoteArgs {
    /// The address of `traceless host`. Given several times, the tree is divided among these hosts,
    /// at most 8: in the same order at each start, new ones last
    #[arg(long, value_name = "ADDR", requires = "host_cert")]
    pub host: Vec<String>,
    /// The host's certificate, or the ones that sign it (PEM); by itself a host makes DIR/host.pem.
    /// Given once for all hosts, or once for each
    #[arg(long, value_name = "FILE", requires = "host")]
    pub host_cert: Vec<PathBuf>,
    /// This gateway's certificate, for hosts that require one (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["host", "client_key"])]
    pub client_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub client_key: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CloudKernel {
    /// A network of exchanges, and AES-256-GCM
    Benes,
    /// The paper's pages of nibbles, and SHA-256
    Paper,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum GatewayDurability {
    /// The end of the process at any moment
    Process,
    /// The end of the machine's power, too: each answer waits for the disk
    Power,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum EnclavePlace {
    /// In a process of its own, which can reach nothing but its host
    Process,
    /// In the gateway's own process
    Inside,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogForm {
    /// A line for a person
    Text,
    /// A JSON object a line
    Json,
}
