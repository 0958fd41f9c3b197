//! Tells whether two users can be told apart by what an adversary sees.
//!
//! Everything here reads events (`traceless::trace`), or images of a disk, and knows nothing of the
//! scheme that made them. What runs schemes stands in the command line.
//!
//! | item | what it answers |
//! |---|---|
//! | [`normalise`], [`Epochs`] | what was written between two syncs, however it was cut? |
//! | [`compare`], [`try_compare`] | are two traces equal, and if not, where do they part? |
//! | [`Draws`] | are the places that accesses draw random, and tell of nothing else? |
//! | [`cannot_be_told_apart`] | does a machine learn to tell two users apart? |
//! | [`Template`] | does an access look like another, but for its place? |
//! | [`Times`] | does the time that something takes tell of the user? |
//! | [`judge`] | do two traces of anybody's differ by more than chance? |
//! | [`diff`] | what do two copies of one disk reveal? |
//! | [`OutsideReader`] | what did another tool record? |
//! | [`Report`] | the verdict, for people and programs |
//!
//! docs/audit.md has the rules and an example of each report.
//!
//! File by file: `normal`: what was written between two syncs; `compare`; `snapshot`: two copies of
//! an image; `draws`: leaves or slots that are drawn at random (`again`: how soon one comes back;
//! `table`, `joint`: what one thing tells of another; `odds`: probabilities, and what a test
//! finds); `distance` of two distributions; `lags`: what was drawn long before; `distances`: equal
//! places at any distance; `halves` of a tree; `combined`: places beside earlier ones, by `parity`,
//! by `linear` sums modulo 2, and against the bits of secrets (`labels`); `leaves`, of which not
//! all were seen; `learned`: a machine that guesses; `timing`: times in pairs; `accesses`: traces
//! of anybody's, `cut`, each an `access` with its events (`touched`); `judge`: two of them, by what
//! is public and what is drawn (`schedule`), the `order` of what comes by chance, single events
//! (`columns`) and `requests`; `outside`: what other tools recorded; `report`. `models` are foreign
//! schemes with faults, for its tests.
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
