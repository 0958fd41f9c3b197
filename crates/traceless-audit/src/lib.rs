//! Tests whether an adversary can distinguish two users by what it observes.
//!
//! This crate reads events (`traceless_core::trace`), or images of a disk, and knows nothing of the
//! scheme that made them. The command line has the code that runs schemes.
//!
//! | item | question that it answers |
//! |---|---|
//! | [`normalise`], [`Epochs`] | which bytes were written between two syncs? |
//! | [`compare`], [`try_compare`] | are two traces equal, and if not, where do they differ first? |
//! | [`Draws`] | are the places that accesses draw random, and independent of everything else? |
//! | [`cannot_be_told_apart`] | does a classifier learn to distinguish two users? |
//! | [`Template`] | does an access look like another, except for its place? |
//! | [`Times`] | does the time of an operation depend on the user? |
//! | [`judge`] | do two traces of any scheme differ by more than chance? |
//! | [`diff`] | what do two copies of one disk reveal? |
//! | [`OutsideReader`] | what did another tool record? |
//! | [`Report`] | what is the verdict, for people and programs? |
//!
//! docs/audit.md has the rules and an example of each report.
//!
//! File by file: `normal`: the bytes written between two syncs; `compare`; `snapshot`: two copies
//! of an image; `draws`: leaves or slots that are drawn at random (`again`: how soon a place is
//! drawn again; `table`, `joint`: dependence of two quantities; `odds`: probabilities, and which
//! leaks a test finds); `distance` of two distributions; `lags`: dependence on draws long before;
//! `distances`: equal places at any distance; `halves` of a tree; `combined`: places beside earlier
//! ones, by `parity`, by `linear` sums modulo 2, and against the bits of secrets (`labels`);
//! `leaves`: the number of leaves, when a trace does not show all of them; `learned`: a classifier;
//! `timing`: times in pairs; `accesses`: traces of any scheme, `cut`, each an `access` with its
//! events (`touched`); `judge`: two of them, by what is public and what is drawn (`schedule`),
//! the `order` of accesses that come by chance, single events (`columns`) and `requests`;
//! `outside`: recordings of other tools; `report`. `models` are faulty schemes for the crate's
//! tests.
#![forbid(unsafe_code)]

mod access;
mod accesses;
mod again;
mod boosted;
mod columns;
mod combined;
mod compare;
mod cut;
mod distance;
mod distances;
mod draws;
mod halves;
mod joint;
mod judge;
mod labels;
mod lags;
mod learned;
mod leaves;
mod linear;
mod mixer;
#[cfg(test)]
mod models;
mod normal;
mod numbered;
mod odds;
mod order;
mod outside;
mod parity;
mod report;
mod requests;
mod schedule;
mod snapshot;
mod table;
mod template;
mod timing;
mod touched;

pub use accesses::Accesses;
pub use compare::{Compare, Comparison, Difference, compare, try_compare};
pub use distance::Distance;
pub use draws::{Again, Draws};
pub use judge::{ACCESSES_MIN, Judgement, judge, places_of};
pub use learned::cannot_be_told_apart;
pub use normal::{Counts, Epoch, Epochs, Stretch, normalise};
pub use odds::{ALPHA, worst_of};
pub use outside::{Format, LINE_MAX, OutsideError, OutsideReader};
pub use report::{Claim, Report, SCHEMA, Statistic, Verdict};
pub use snapshot::{ChangedRun, SNAPSHOT_BLOCK_LEN, SnapshotDiff, SnapshotError, diff};
pub use template::Template;
pub use timing::Times;
