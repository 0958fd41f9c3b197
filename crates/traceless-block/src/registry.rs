//! The kinds of block scheme: what a volume can be made with.
//!
//! A further kind is a module with a [`SchemeKind`] and a line in [`KINDS`]. Volumes, the command
//! line, the conformance suite and the auditor find it here; the crash tests need small geometries
//! and their turning points (`tests/crash/subjects.rs` of `traceless-volume`).
//!
//! A scheme is chosen by the name of its kind; its code and parameters are enough to make it again:
//!
//! ```
//! use traceless_block::registry;
//! use traceless_core::scheme::contract::{PARAMETERS_LEN, SchemeOptions};
//!
//! # fn main() -> traceless_core::Result {
//! let kind = registry::named("detwo").expect("a known kind");
//! let options = SchemeOptions { refresh: Some((1, 3)), ..SchemeOptions::default() };
//! let scheme = (kind.choose)(1_000_000, 4096, &options)?;
//!
//! // As in the header of a volume.
//! let (code, mut parameters) = (kind.code, scheme.parameters());
//! parameters.resize(PARAMETERS_LEN, 0);
//!
//! let kind = registry::with_code(code).expect("a known code");
//! let again = (kind.decode)(1_000_000, 4096, &parameters)?;
//! assert!(*again == *scheme);
//! # Ok(())
//! # }
//! ```

use crate::datalair::DATALAIR;
use crate::detwo::DETWO;
use crate::hive::HIVE;
use crate::plain::PLAIN;
#[cfg(feature = "std")]
use crate::ring::RING;
use crate::sq::SQ;
use alloc::sync::Arc;
use traceless_core::scheme::contract::{BlockScheme, SchemeKind, SchemeOptions};

/// All kinds, in the order in which help texts list them.
pub static KINDS: &[&SchemeKind] = &[
    &DETWO,
    &SQ,
    #[cfg(feature = "std")]
    &RING,
    &PLAIN,
    &HIVE,
    &DATALAIR,
];

/// The kind that the command line calls `name`.
pub fn named(name: &str) -> Option<&'static SchemeKind> {
    KINDS.iter().copied().find(|kind| kind.name == name)
}

/// The kind with this number in a volume's header.
pub fn with_code(code: u16) -> Option<&'static SchemeKind> {
    KINDS.iter().copied().find(|kind| kind.code == code)
}

/// The scheme of this kind with the most blocks of `block_len` bytes that a store of `len` bytes
/// has room for; `None` if not even one fits.
///
/// ```
/// use traceless_block::registry;
/// use traceless_core::scheme::contract::SchemeOptions;
///
/// let kind = registry::named("plain").expect("a known kind");
/// let fits = |len| registry::largest_within(kind, len, 4096, &SchemeOptions::default());
/// assert_eq!(fits(1 << 20).map(|scheme| scheme.blocks()), Some(252));
/// assert!(fits(100).is_none());
/// ```
pub fn largest_within(
    kind: &SchemeKind,
    len: u64,
    block_len: usize,
    options: &SchemeOptions,
) -> Option<Arc<dyn BlockScheme>> {
    let fits = |scheme: &Arc<dyn BlockScheme>| scheme.store_len() <= len;
    let (mut least, mut most, mut largest) = (0, len.checked_div(block_len as u64)? + 1, None);
    while most - least > 1 {
        let middle = least + (most - least) / 2;
        match (kind.choose)(middle, block_len, options).ok().filter(fits) {
            Some(scheme) => (least, largest) = (middle, Some(scheme)),
            None => most = middle,
        }
    }
    largest
}
