//! Errors of a volume. Their messages say what to do next.
//!
//! A program decides by the kind of an error, and prints its message:
//!
//! ```
//! use traceless_volume::error::{Error, Kind};
//! use traceless_volume::format::UserKey;
//! use traceless_volume::volume::status;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("letter");
//! std::fs::write(&path, [b'a'; 1 << 16])?;
//! let key = UserKey::from_file(vec![7; 32].into())?;
//! let error = status(&path, &key).expect_err("a letter is not a volume");
//! assert!(matches!(error, Error::NotAVolume(_)));
//! assert_eq!(error.kind(), Kind::Device);
//! assert!(error.to_string().ends_with("this is not a Traceless volume"));
//! # Ok(())
//! # }
//! ```

use std::io;
use std::path::PathBuf;

/// Shorthand for results of this crate.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Everything that creating, opening or using a volume can report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened, read or written.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// What was tried with the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file exists already at this path.
    #[error("{}: exists already; take another name, or give `create` --force", .0.display())]
    Exists(PathBuf),
    /// A file exists already where a header backup is to be made.
    #[error(
        "{}: exists already, and a backup is never overwritten: take another name, or remove it",
        .0.display()
    )]
    BackupExists(PathBuf),
    /// The device is smaller than the image would be.
    #[error("the image needs {needed} bytes, {} has {available}", path.display())]
    TooSmall {
        /// The device or file.
        path: PathBuf,
        /// Bytes that the image takes.
        needed: u64,
        /// Bytes of the device.
        available: u64,
    },
    /// The volume cannot be accessed at this constant rate.
    #[error("no constant rate: {0}")]
    ConstantRate(&'static str),
    /// The scheme of the volume has no dead runs.
    #[error("--discard: {0} needs all of its space at all times; volumes of `sq` give some back")]
    NoDeadRuns(&'static str),
    /// The file system or device of the image takes no discards.
    #[error(
        "{}: its file system or device can give no space back: open it without --discard",
        .0.display()
    )]
    NoDiscards(PathBuf),
    /// The file is not a volume.
    #[error("{}: this is not a Traceless volume", .0.display())]
    NotAVolume(PathBuf),
    /// A later version of the format.
    #[error("the volume has format version {0}; this program knows version 2: use a newer one")]
    Version(u16),
    /// A cipher that this program does not know.
    #[error("the volume uses a cipher that this program does not know ({0}): use a newer one")]
    Cipher(u8),
    /// Features that this program does not know.
    #[error("the volume uses features that this program does not know ({0:#x}): use a newer one")]
    Features(u64),
    /// The volume uses features that this program does not know, and that allow it to read only.
    #[error(
        "the volume uses features ({0:#x}) with which this program may only read: \
             open it with --read-only, or use a newer program"
    )]
    ReadOnlyFeatures(u64),
    /// The header's tag is wrong although the key fits.
    #[error("the header is damaged: restore it with `traceless volume header restore`")]
    HeaderDamaged,
    /// Neither superblock verifies.
    #[error("both superblocks are damaged, so the volume cannot be opened: restore the image")]
    SuperblockDamaged,
    /// No key slot opens with this key.
    #[error("no key slot opens with this key")]
    WrongKey,
    /// A key slot demands more memory or passes than the limits allow.
    #[error("key slot {slot} asks for {memory_kib} KiB and {time} passes: more than the limits")]
    KdfLimits {
        /// Number of the slot.
        slot: usize,
        /// Memory that the slot demands, in KiB.
        memory_kib: u32,
        /// Passes that the slot demands.
        time: u32,
    },
    /// All key slots are taken.
    #[error("all {0} key slots are taken: remove one first")]
    KeySlotsFull(usize),
    /// The key slot is empty.
    #[error("key slot {0} is empty")]
    KeySlotEmpty(usize),
    /// The record of the key slots of a deniable image is damaged.
    #[error(
        "the record of the key slots is damaged: every key opens the image, but none can be added \
         or removed; restore these bytes from a copy of the image"
    )]
    SlotRecordDamaged,
    /// The only key cannot be removed.
    #[error("this is the only key: without it the volume could not be opened again")]
    LastKey,
    /// A key file is too short to be a key.
    #[error(
        "the key file holds {0} bytes; 32 random bytes are the least: \
             head -c 32 /dev/urandom > KEY"
    )]
    KeyFileShort(usize),
    /// A key file is unreasonably long.
    #[error("the key file holds more than {0} bytes")]
    KeyFileLong(usize),
    /// Another process has the file open.
    #[error("{}: in use by another process", .0.display())]
    Busy(PathBuf),
    /// An anchor belongs to another volume, or is damaged.
    #[error("{}: this anchor does not belong to this volume, or is damaged", .0.display())]
    Anchor(PathBuf),
    /// There is no anchor at this place.
    #[error(
        "{}: there is no anchor; if it is lost, make it anew with `check --new-anchor`",
        .0.display()
    )]
    AnchorMissing(PathBuf),
    /// The place of an anchor did not answer, or refused the request.
    #[error(
        "{}: the anchor cannot be reached: {source}. Nothing goes on without it: mend that and \
             try again",
        place.display()
    )]
    AnchorAway {
        /// The place of the anchor.
        place: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// Something else has changed the anchor since it was read.
    #[error(
        "{}: the anchor was changed by another opening of this volume, or put back. Nothing more \
             is acknowledged here: end all openings, compare the images, and open the right one",
        .0.display()
    )]
    AnchorTaken(PathBuf),
    /// The anchor is older than its image.
    #[error(
        "{}: the anchor went back: {what}. Its place was restored from an older copy, or the \
             volume was opened without it. If the image is the right one, make the anchor anew \
             with `check --new-anchor`",
        place.display()
    )]
    AnchorWentBack {
        /// The place of the anchor.
        place: PathBuf,
        /// What the anchor records, and what the image has.
        what: String,
    },
    /// The place of an anchor is named wrongly. The name is not shown, as it may hold a password.
    #[error("--anchor: {why}")]
    AnchorAddress {
        /// What is wrong.
        why: &'static str,
    },
    /// The image is older than its anchor.
    #[error(
        "the image went back: {what}. An older copy was put in its place, or the last writes \
             were lost; without --anchor it opens as it is"
    )]
    RolledBack {
        /// What the anchor records, and what the image has.
        what: String,
    },
    /// The header backup belongs to another volume, or is damaged.
    #[error("this header backup does not belong to this volume, or is damaged")]
    Backup,
    /// The image is shorter than its header says.
    #[error("the image has {found} bytes, its header says {expected}: it was cut short")]
    Truncated {
        /// Bytes that the header says.
        expected: u64,
        /// Bytes that the image has.
        found: u64,
    },
    /// A volume cannot become smaller.
    #[error(
        "the volume holds {blocks} blocks, and {wanted} are fewer: what a file system has at the \
             end would be cut off. Make a new volume of that size and copy the files"
    )]
    Shrink {
        /// Blocks of the volume.
        blocks: u64,
        /// Blocks that the caller wants.
        wanted: u64,
    },
    /// Other keys of the volume would no longer open it.
    #[error(
        "{0} other keys would no longer open the volume: give their key files with \
             --also-key-file, or let them go with --drop-other-keys"
    )]
    OtherKeys(usize),
    /// The place for a new image holds something else.
    #[error("{}: {why}; --restart overwrites it", path.display())]
    Staging {
        /// The file or device.
        path: PathBuf,
        /// What is wrong with the file or device.
        why: &'static str,
    },
    /// A device cannot be replaced by another one.
    #[error(
        "{}: nothing can be renamed to a device: say with --into where the new image shall be",
        .0.display()
    )]
    NeedsInto(PathBuf),
    /// A size that the length of a deniable image would not give back.
    #[error(
        "the sizes of a deniable image follow from its length: a file needs --size, and a \
         device is used whole, without --size"
    )]
    DeniableSize,
    /// The key opens something in the deniable image already.
    #[error("this key opens something in the image already: take another one")]
    DeniableKeyTaken,
    /// No hidden volume was opened.
    #[error("this key opens no hidden volume")]
    NothingHidden,
    /// The caller stopped work that can be resumed later.
    #[error("interrupted; {} is kept: the same command goes on with it", .0.display())]
    Paused(PathBuf),
    /// The caller stopped the work.
    #[error("interrupted; nothing is left behind")]
    Interrupted,
    /// The scheme found damage, or refused the request.
    #[error(transparent)]
    Scheme(#[from] traceless_core::Error),
}

/// The kind of a failure. Each kind has an exit code of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Damage or a rollback was found.
    Finding,
    /// Wrong use, or the operation could not run.
    Usage,
    /// No key fits.
    Key,
    /// The file or device failed, or is not a volume.
    Device,
    /// The file or device is in use.
    Busy,
}

impl Error {
    /// Whether the header may have come from a newer program; it may also be damaged.
    pub(crate) fn may_be_newer(&self) -> bool {
        matches!(self, Self::Version(_) | Self::Cipher(_) | Self::Features(_))
    }

    /// The kind of this failure.
    pub fn kind(&self) -> Kind {
        match self {
            Self::HeaderDamaged
            | Self::SlotRecordDamaged
            | Self::SuperblockDamaged
            | Self::Truncated { .. }
            | Self::RolledBack { .. }
            | Self::AnchorWentBack { .. }
            | Self::Scheme(
                traceless_core::Error::Tampered { .. }
                | traceless_core::Error::RolledBack { .. }
                | traceless_core::Error::WrongMap { .. }
                | traceless_core::Error::EarlierDamage
                | traceless_core::Error::HalfSaved,
            ) => Kind::Finding,
            Self::WrongKey
            | Self::KdfLimits { .. }
            | Self::KeyFileShort(_)
            | Self::KeyFileLong(_)
            | Self::KeySlotEmpty(_)
            | Self::KeySlotsFull(_)
            | Self::OtherKeys(_)
            | Self::DeniableKeyTaken
            | Self::NothingHidden
            | Self::LastKey => Kind::Key,
            Self::Busy(_) | Self::AnchorTaken(_) => Kind::Busy,
            Self::Io { .. }
            | Self::Exists(_)
            | Self::BackupExists(_)
            | Self::TooSmall { .. }
            | Self::NotAVolume(_)
            | Self::Version(_)
            | Self::Cipher(_)
            | Self::Features(_)
            | Self::ReadOnlyFeatures(_)
            | Self::Anchor(_)
            | Self::AnchorMissing(_)
            | Self::AnchorAway { .. }
            | Self::Staging { .. }
            | Self::NoDiscards(_)
            | Self::Backup => Kind::Device,
            Self::Interrupted
            | Self::Paused(_)
            | Self::NeedsInto(_)
            | Self::DeniableSize
            | Self::ConstantRate(_)
            | Self::NoDeadRuns(_)
            | Self::Shrink { .. }
            | Self::AnchorAddress { .. } => Kind::Usage,
            Self::Scheme(traceless_core::Error::Io(e)) if carried(e).is_some() => {
                carried(e).map_or(Kind::Device, Self::kind)
            }
            Self::Scheme(e) => match e {
                traceless_core::Error::Io(_)
                | traceless_core::Error::Store(_)
                | traceless_core::Error::CipherUnsound(_)
                | traceless_core::Error::StashOverflow { .. }
                | traceless_core::Error::EarlierAbort
                | traceless_core::Error::Poisoned => Kind::Device,
                _ => Kind::Usage,
            },
        }
    }

    /// The error as a scheme carries it that keeps its state in a volume. [`Error::kind`] finds it
    /// again.
    pub(crate) fn into_scheme(self) -> traceless_core::Error {
        match self {
            Self::Scheme(e) => e,
            other => traceless_core::Error::Io(io::Error::other(other)),
        }
    }

    /// Whether damage to the areas keeps the volume closed, so that it opens only if the damaged
    /// parts are given up.
    pub fn keeps_closed(&self) -> bool {
        use traceless_core::Error as Scheme;
        let Self::Scheme(error) = self else { return false };
        matches!(error, Scheme::Tampered { .. } | Scheme::RolledBack { .. } | Scheme::HalfSaved)
    }

    /// The error that a front end returns for a request.
    pub fn into_io(self) -> io::Error {
        use rustix::io::Errno;
        match self {
            Self::Io { source: e, .. } | Self::Scheme(traceless_core::Error::Io(e)) => e,
            Self::Scheme(traceless_core::Error::ReadOnly | traceless_core::Error::Poisoned) => {
                Errno::ROFS.into()
            }
            Self::Scheme(traceless_core::Error::OutOfRange { .. }) => Errno::INVAL.into(),
            _ => Errno::IO.into(),
        }
    }
}

/// The error of this crate that a scheme has carried.
fn carried(e: &io::Error) -> Option<&Error> {
    e.get_ref()?.downcast_ref()
}
