//! The kinds of block scheme: what a volume can be made with.
//!
//! A further kind is a module with a [`SchemeKind`] and a line in [`KINDS`]. Volumes, the command
//! line, the conformance suite and the auditor find it here; the crash tests need small geometries
//! and their turning points (`tests/crash/subjects.rs` of `traceless-volume`).

use crate::datalair::DATALAIR;
use crate::detwo::DETWO;
use crate::hive::HIVE;
use crate::plain::PLAIN;
use crate::sq::SQ;
use traceless_core::scheme::contract::SchemeKind;

/// All kinds, in the order in which help texts list them.
pub static KINDS: &[&SchemeKind] = &[&DETWO, &SQ, &PLAIN, &HIVE, &DATALAIR];

/// The kind that the command line calls `name`.
pub fn named(name: &str) -> Option<&'static SchemeKind> {
    KINDS.iter().copied().find(|kind| kind.name == name)
}

/// The kind with this number in a volume's header.
pub fn with_code(code: u16) -> Option<&'static SchemeKind> {
    KINDS.iter().copied().find(|kind| kind.code == code)
}
