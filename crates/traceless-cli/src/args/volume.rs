//! `traceless volume ...`

use super::common::{ProgressArgs, Rate, parse_rate, parse_size};
use super::{DashboardArgs, LabArgs, TraceArgs};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub enum VolumeCommand {
    /// Make a volume in a file or on a device
    Create(CreateArgs),
    /// Serve a volume over NBD until SIGTERM
    Serve(ServeArgs),
    /// Show a volume as one file, DIR/volume, until SIGTERM or unmount
    Export(ExportArgs),
    /// Make a volume a block device of the kernel, /dev/ublkbN, until SIGTERM
    #[cfg(feature = "ublk")]
    Ublk(UblkArgs),
    /// Swap to a file or device until SIGTERM, with a key that is in memory only
    #[cfg(feature = "ublk")]
    Swap(SwapArgs),
    /// Mount a volume with ext4 at DIR; a new one is formatted first
    Mount(MountArgs),
    /// Unmount what was mounted at DIR, and close its volume
    Unmount(UnmountArgs),
    /// What mount(8) runs for `mount -t traceless IMAGE DIR -o OPTIONS`, and for lines of fstab
    #[command(hide = true)]
    MountHelper(HelperArgs),
    /// What umount(8) runs for a folder that was mounted
    #[command(hide = true)]
    UnmountHelper(HelperArgs),
    /// Show the parameters of a volume; works while it is in use
    Status(StatusArgs),
    /// Verify everything that is live in a volume; writes nothing, unless it shall repair
    Check(CheckArgs),
    /// Make a volume hold more
    Grow(GrowArgs),
    /// Give a volume a new master key, and write all of it anew under it
    Reencrypt(ReencryptArgs),
    /// Add, change, remove and list keys
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Hidden volumes of a deniable image
    Hidden {
        #[command(subcommand)]
        command: HiddenCommand,
    },
    /// Back up and restore header and key slots
    Header {
        #[command(subcommand)]
        command: HeaderCommand,
    },
    /// Measure volumes, or compare schemes (traceless-lab)
    #[command(hide = true)]
    Bench(LabArgs),
}

/// The image, and what opens it.
#[derive(Args, Debug)]
pub struct ImageArgs {
    /// Image file or block device
    pub image: PathBuf,
    #[command(flatten)]
    pub key: KeyArgs,
}

#[derive(Args, Debug)]
pub struct KeyArgs {
    /// Key file of at least 32 bytes, used verbatim; - reads it from standard input. Without it the
    /// program prompts for a passphrase, or reads one line of standard input
    #[arg(long, value_name = "KEY")]
    pub key_file: Option<PathBuf>,
    /// File with the passphrase as its first line. Here and as a key file `credential:NAME` is a
    /// credential of the systemd service
    #[arg(long, value_name = "FILE", conflicts_with = "key_file")]
    pub passphrase_file: Option<PathBuf>,
}

/// Where a new key comes from.
#[derive(Args, Clone, Debug)]
pub struct NewKeySource {
    /// Key file of the new key; without it the program prompts for a new passphrase
    #[arg(long, value_name = "KEY")]
    pub new_key_file: Option<PathBuf>,
    /// File with the new passphrase as its first line
    #[arg(long, value_name = "FILE", conflicts_with = "new_key_file")]
    pub new_passphrase_file: Option<PathBuf>,
}

impl NewKeySource {
    /// The same as arguments of a key.
    pub fn key_args(&self) -> KeyArgs {
        let Self { new_key_file, new_passphrase_file } = self.clone();
        KeyArgs { key_file: new_key_file, passphrase_file: new_passphrase_file }
    }
}

#[derive(Args, Debug)]
#[expect(clippy::doc_markdown, reason = "a help text is shown as it is")]
pub struct AnchorArgs {
    /// Where a small record lies, away from the image, of how far the volume had come: an older
    /// image, or one that lost flushed writes, is refused. A file, rediss://HOST:PORT/KEY,
    /// https://HOST/PATH (a server that honours If-Match), s3://BUCKET/KEY?endpoint=URL with
    /// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or tpm2:INDEX (a counter of the TPM,
    /// with the record in IMAGE.anchor or ,file=FILE). TRACELESS_ANCHOR_PASSWORD has the password
    /// of a URL
    #[arg(long, value_name = "PLACE")]
    pub anchor: Option<PathBuf>,
}

/// How to open an image that is served over NBD, FUSE or ublk.
#[derive(Args, Debug)]
pub struct OpenArgs {
    /// Refuse writes, and write nothing at all
    #[arg(long)]
    pub read_only: bool,
    /// When blocks of the image are accessed: as requests need them, or always N each second, which
    /// hides when requests come, and how many
    #[arg(long, value_name = "demand|fixed=N/s", value_parser = parse_rate,
        default_value = "demand")]
    pub rate: Rate,
    /// Of sq: give the space of dead runs of slots back to the file system or device. Which these
    /// are, and when, follows from the number of writes
    #[arg(long, conflicts_with = "read_only")]
    pub discard: bool,
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub anchor: AnchorArgs,
    #[command(flatten)]
    pub dashboard: DashboardArgs,
}

/// Memory that a map may take, unless another limit is given.
pub const MAP_MEMORY: &str = "1G";

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub struct CreateArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Bytes that it can hold, with suffix K, M, G or T (binary); rounded up to whole blocks
    #[arg(long, value_parser = parse_size, required_unless_present = "deniable")]
    pub size: Option<u64>,
    /// Make an image of random bytes from first to last, with a public detwo volume and room for up
    /// to 15 hidden ones, half as large together; a device is used whole, without --size
    #[arg(long, conflicts_with_all = [
        "refresh", "fanout", "bucket", "insecure", "amortized", "map_entries", "unfilled", "json",
    ])]
    pub deniable: bool,
    /// Which scheme: detwo, sq, hive and datalair hide writes, ring hides reads, too, plain is the
    /// insecure control. sq keeps neighbours together, so that files stay fast to read; detwo
    /// writes less; ring moves ten times as much
    #[arg(long, value_name = "SCHEME", value_parser = scheme_names(), default_value = "detwo")]
    pub scheme: String,
    /// Blocks refreshed per write, as 3, 1/3 or 2.5. A smaller ratio writes less and takes more
    /// space. detwo: 1 + K physical writes a block, 1 + 1/K times the size [default: 1]. sq: H + K
    /// writes, where H is the number of levels, 1 + 2/K times the size [default: about 7/3]
    #[arg(long, value_name = "K")]
    pub refresh: Option<String>,
    #[command(flatten)]
    pub sq: SqArgs,
    /// Where the map lies: in memory, 8 bytes a block (sq: 3 to 5, hive and datalair: 16), or on
    /// the disk (not of ring)
    #[arg(long, value_enum, default_value = "auto")]
    pub map: MapPlaceName,
    /// Memory that the map may take before auto puts it on the disk
    #[arg(long, value_parser = parse_size, default_value = MAP_MEMORY)]
    pub map_memory: u64,
    /// What the map keeps of each block: counts, the default, or the pointers of the paper, which
    /// make reads and openings slower, to compare
    #[arg(long, value_enum)]
    pub map_entries: Option<MapKind>,
    /// What the volume is sealed with: auto measures which is fastest here, and takes AES-256-GCM
    /// unless another is faster by a tenth
    #[arg(long, value_enum, default_value = "auto")]
    pub cipher: CipherName,
    /// Overwrite an existing file or device
    #[arg(long)]
    pub force: bool,
    /// Leave holes instead of ciphertext. For tests: reveals which blocks were never written
    #[arg(long)]
    pub unfilled: bool,
    #[command(flatten)]
    pub kdf: KdfArgs,
    #[command(flatten)]
    pub anchor: AnchorArgs,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Print what was made as JSON
    #[arg(long)]
    pub json: bool,
}

/// The shape of sq; what is not given is chosen for the size.
#[derive(Args, Debug)]
pub struct SqArgs {
    /// sq: runs that are merged into one. More mean fewer levels, so fewer writes, and more memory
    #[arg(long, value_name = "RUNS")]
    pub fanout: Option<u32>,
    /// sq: writes that make a flush
    #[arg(long, value_name = "SLOTS")]
    pub bucket: Option<u32>,
    /// sq: how many slots a write takes
    #[arg(long, value_enum, default_value = "strict")]
    pub cadence: CadenceName,
    /// Allow options that reveal more to an adversary than the number of writes; status shows it
    #[arg(long)]
    pub insecure: bool,
    /// sq: do the work of each merge at once, as the paper's first construction: identical
    /// otherwise, but the writer waits for the merge
    #[arg(long)]
    pub amortized: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CadenceName {
    /// Each write takes as many slots as any other
    Strict,
    /// As in the paper: writes share blocks of the map, so that flushes reveal how near they are.
    /// Needs --insecure
    Paper,
}

/// The kinds of block scheme of the library's registry, each with its help. The build script reads
/// this file without the library.
pub const SCHEMES: [(&str, &str); 6] = [
    ("detwo", "Deterministic write-only ORAM"),
    ("sq", "SqORAM: write-only ORAM that keeps neighbours together"),
    ("ring", "Ring ORAM: hides reads, too"),
    ("plain", "Encryption in place: the insecure control"),
    ("hive", "HIVE: random slots. For comparison: slower, and twice the size"),
    ("datalair", "DataLair-style: random slots, with a record of free ones. For comparison"),
];

fn scheme_names() -> PossibleValuesParser {
    PossibleValuesParser::new(SCHEMES.map(|(name, help)| PossibleValue::new(name).help(help)))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CipherName {
    /// The fastest here
    Auto,
    /// AES-256-GCM
    #[value(name = "aes-256-gcm")]
    Aes256Gcm,
    /// AEGIS-256
    #[value(name = "aegis-256")]
    Aegis256,
    /// AEGIS-256X2, for processors with wide AES instructions
    #[value(name = "aegis-256x2")]
    Aegis256X2,
    /// AEGIS-256X4, for processors with the widest AES instructions
    #[value(name = "aegis-256x4")]
    Aegis256X4,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MapPlaceName {
    /// In memory if it fits the budget
    Auto,
    /// In memory
    Memory,
    /// On the disk
    Disk,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MapKind {
    /// The count of its last write
    Counts,
    /// A self-invalidating pointer
    Pointers,
}

/// What makes a passphrase hard to guess: the cost of argon2id.
#[derive(Args, Debug)]
pub struct KdfArgs {
    /// Memory that argon2id fills, for a passphrase
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "512M")]
    pub kdf_memory: u64,
    /// Passes that argon2id makes, for a passphrase
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub kdf_time: u32,
}

/// Cover writes a second, unless another number is given.
const COVER: u32 = 16;

/// How to open a deniable image.
#[derive(Args, Debug)]
pub struct DeniableArgs {
    /// The image was made with --deniable. The key opens the public volume, or a hidden one with
    /// the less secret ones, which are exports hidden-1, hidden-2 and so on
    #[arg(long)]
    pub deniable: bool,
    /// Allow writes although no hidden volume is open: if there are any, they are OVERWRITTEN.
    /// Without it the public key alone opens for reading only
    #[arg(long)]
    pub overwrite_hidden: bool,
    /// Key file of a hidden volume to keep intact; may be given several times
    #[arg(long, value_name = "KEY")]
    pub protect_key_file: Vec<PathBuf>,
    /// Open hidden volumes although blocks were overwritten: these read as zeros or as earlier
    #[arg(long)]
    pub accept_overwritten: bool,
    /// Public writes a second that change nothing, and bring hidden volumes their slots; 0 for none
    /// [default: 16]
    #[arg(long, value_name = "N")]
    pub cover: Option<u32>,
}

impl DeniableArgs {
    /// Cover writes a second.
    pub fn cover(&self) -> u32 {
        self.cover.unwrap_or(COVER)
    }

    /// Whether an option is given that only a deniable image has, without saying that it is one.
    pub fn is_incomplete(&self) -> bool {
        let has_keys = !self.protect_key_file.is_empty();
        let is_given =
            self.overwrite_hidden || has_keys || self.accept_overwritten || self.cover.is_some();
        is_given && !self.deniable
    }
}

/// Which volume of a deniable image to mount or to export.
#[derive(Args, Debug)]
pub struct WhichHiddenArgs {
    /// The hidden volume of this number, from 1 on, instead of the public one; it writes as fast as
    /// --cover lets it
    #[arg(long, value_name = "N", requires = "deniable")]
    pub hidden: Option<usize>,
}

#[derive(Subcommand, Debug)]
pub enum HiddenCommand {
    /// Add a hidden volume beside all that the key opens
    Add(AddHiddenArgs),
    /// List the hidden volumes that the key opens, the least secret first
    List(ListHiddenArgs),
    /// Serve the public volume and the hidden ones that the key opens: as serve --deniable
    Open(Box<ServeArgs>),
    /// Remove the hidden volume that the key opens
    Remove(RemoveHiddenArgs),
}

/// How fast a session that changes what is hidden writes.
#[derive(Args, Debug)]
pub struct SessionArgs {
    /// Public writes a second until 64 were made, as of a session of serve with this --cover
    #[arg(long, value_name = "N", default_value_t = COVER,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub cover: u32,
}

impl Default for SessionArgs {
    fn default() -> Self {
        Self { cover: COVER }
    }
}

#[derive(Args, Debug)]
pub struct RemoveHiddenArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    #[command(flatten)]
    pub session: SessionArgs,
}

#[derive(Args, Debug)]
pub struct ListHiddenArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct AddHiddenArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Bytes that it can hold, with suffix K, M, G or T (binary)
    #[arg(long, value_parser = parse_size)]
    pub size: u64,
    #[command(flatten)]
    pub new_key: NewKeySource,
    /// Allow it although no hidden volume is open: if there are any, they are OVERWRITTEN
    #[arg(long)]
    pub overwrite_hidden: bool,
    #[command(flatten)]
    pub session: SessionArgs,
}

#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    #[command(flatten)]
    pub deniable: DeniableArgs,
    /// Unix socket to listen on; only its owner may connect
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// TCP address to listen on; off the loopback only with TLS
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "socket")]
    pub tcp: Option<SocketAddr>,
    /// Server certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Only clients with a certificate signed by one of these, PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_client_ca: Option<PathBuf>,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Go past the page cache
    #[arg(long)]
    pub direct: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Image file or block device
    pub image: PathBuf,
    /// Folder that will hold the one file `volume`
    pub dir: PathBuf,
    #[command(flatten)]
    pub key: KeyArgs,
    #[command(flatten)]
    pub deniable: DeniableArgs,
    #[command(flatten)]
    pub hidden: WhichHiddenArgs,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Run for `mount`: reads the key from standard input, and reports readiness on standard output
    #[arg(long, hide = true)]
    pub for_mount: bool,
}

#[cfg(feature = "ublk")]
#[derive(Args, Debug)]
pub struct UblkArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    #[command(flatten)]
    pub open: OpenArgs,
}

#[cfg(feature = "ublk")]
#[derive(Args, Debug)]
pub struct SwapArgs {
    /// File or block device to swap to; its contents are lost
    pub image: PathBuf,
    /// Bytes of the swap, with suffix K, M, G or T (binary) [default: as much as the device holds]
    #[arg(long, value_parser = parse_size)]
    pub size: Option<u64>,
    /// Which scheme: detwo hides which pages are swapped out, ring also which are swapped in
    #[arg(long, value_name = "SCHEME", value_parser = ["detwo", "ring"],
        default_value = "detwo")]
    pub scheme: String,
    /// Priority beside other swaps, as of swapon(8)
    #[arg(long, value_name = "N")]
    pub priority: Option<u16>,
    /// Overwrite an existing file or device
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
}

#[derive(Args, Debug)]
pub struct MountArgs {
    /// Image file or block device
    pub image: PathBuf,
    /// Folder to mount at
    pub dir: PathBuf,
    #[command(flatten)]
    pub key: KeyArgs,
    #[command(flatten)]
    pub deniable: DeniableArgs,
    #[command(flatten)]
    pub hidden: WhichHiddenArgs,
    /// Further options of mount(8) for the file system, as nosuid,nodev
    #[arg(long, value_name = "LIST", default_value = "")]
    pub options: String,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// The words with which mount(8) and umount(8) call a helper.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct HelperArgs {
    /// As mount.traceless and umount.traceless get them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub words: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct UnmountArgs {
    /// Folder that a volume is mounted at
    pub dir: PathBuf,
}

#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// The image was made with --deniable. Shows the public volume, with any key
    #[arg(long)]
    pub deniable: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub struct CheckArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// The image was made with --deniable. Checks the public volume, and the hidden ones that the
    /// key opens
    #[arg(long)]
    pub deniable: bool,
    /// Allow a repair of a deniable image although no hidden volume is open: if there are any, they
    /// are OVERWRITTEN
    #[arg(long, requires_all = ["deniable", "repair"])]
    pub overwrite_hidden: bool,
    #[command(flatten)]
    pub anchor: AnchorArgs,
    /// Make blocks that cannot be read any more zeros, and write a damaged superblock anew
    #[arg(long)]
    pub repair: bool,
    /// If damage keeps the volume closed, open it without the damaged part: blocks may then read as
    /// they were earlier, and no check can find out which ones
    #[arg(long, requires = "repair")]
    pub accept_old_blocks: bool,
    /// If the volume is sound, make what --anchor names anew for it, as it is now
    #[arg(long, requires = "anchor")]
    pub new_anchor: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct GrowArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Bytes that it shall hold, with suffix K, M, G or T (binary); rounded up to whole blocks
    #[arg(long, value_parser = parse_size)]
    pub size: u64,
    #[command(flatten)]
    pub rebuild: RebuildArgs,
}

#[derive(Args, Debug)]
pub struct ReencryptArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Another cipher: auto measures which is fastest here
    #[arg(long, value_enum)]
    pub cipher: Option<CipherName>,
    /// Key file that shall open the volume afterwards too; may be given several times
    #[arg(long, value_name = "KEY")]
    pub also_key_file: Vec<PathBuf>,
    /// Let go of the keys that are not given
    #[arg(long)]
    pub drop_other_keys: bool,
    #[command(flatten)]
    pub rebuild: RebuildArgs,
}

/// How a volume is made anew from an existing one.
#[derive(Args, Debug)]
pub struct RebuildArgs {
    /// Make the new image here and leave the old one alone, instead of replacing it; for devices
    #[arg(long, value_name = "FILE|DEVICE")]
    pub into: Option<PathBuf>,
    /// Overwrite what an earlier run, or anything else, has left where the new image is made
    #[arg(long)]
    pub restart: bool,
    /// Record every request to the new image (docs/trace-format.md)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub anchor: AnchorArgs,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Print what was made as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum KeysCommand {
    /// Add a key; any key of the volume allows it
    Add(NewKeyArgs),
    /// Put a new key in the place of the one given
    Change(NewKeyArgs),
    /// Remove the key given, or the one in --slot
    Remove(RemoveKeyArgs),
    /// List the key slots in use
    List(StatusArgs),
}

#[derive(Args, Debug)]
pub struct NewKeyArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// The image was made with --deniable: a key of its public volume. A hidden volume keeps its
    /// key
    #[arg(long, conflicts_with_all = ["kdf_memory", "kdf_time"])]
    pub deniable: bool,
    #[command(flatten)]
    pub new_key: NewKeySource,
    #[command(flatten)]
    pub kdf: KdfArgs,
}

#[derive(Args, Debug)]
pub struct RemoveKeyArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// The image was made with --deniable: a key of its public volume
    #[arg(long)]
    pub deniable: bool,
    /// Number of the slot to wipe, instead of the one that the key opens
    #[arg(long)]
    pub slot: Option<usize>,
}

#[derive(Subcommand, Debug)]
pub enum HeaderCommand {
    /// Write header and key slots to a new file
    Backup(HeaderArgs),
    /// Put header and key slots back; keys removed since then open the volume again
    Restore(HeaderArgs),
}

#[derive(Args, Debug)]
pub struct HeaderArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// The backup
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
}
