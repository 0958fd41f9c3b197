//! Tests whether an adversary can distinguish two users by what it observes.
//!
//! This crate reads events (`traceless_core::trace`), or images of a disk, and knows nothing of the
//! scheme that made them. The code that runs schemes is in traceless-lab.
//!
//! Two users write to a store, and an adversary that watches it compares what it observed:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_audit::{Compare, compare};
//! use traceless_core::Extent;
//! use traceless_core::store::{MemStore, Store, WatchedStore};
//! use traceless_core::trace::{Event, Recorder};
//!
//! /// What the adversary observes of a user that writes one block.
//! fn observed(block: u64) -> traceless_core::Result<Vec<Event>> {
//!     let recorder = Arc::new(Recorder::default());
//!     let store = WatchedStore::new(MemStore::new(1 << 20), recorder.clone());
//!     store.write(&[Extent::new(block * 4096, 4096)], &[1; 4096])?;
//!     Ok(recorder.take())
//! }
//!
//! # fn main() -> traceless_core::Result {
//! assert!(compare(observed(3)?, observed(3)?, Compare::default()).equal);
//! let found = compare(observed(3)?, observed(7)?, Compare::default());
//! let difference = found.first_difference.expect("encryption in place hides no place");
//! assert_eq!((difference.in_a.unwrap().at, difference.in_b.unwrap().at), (12_288, 28_672));
//! # Ok(())
//! # }
//! ```
//!
//! | item | question that it answers |
//! |---|---|
//! | [`normalise`], [`Epochs`] | which bytes were written between two syncs? |
//! | [`compare`], [`try_compare`] | are two traces equal, and if not, where do they differ first? |
//! | [`Draws`] | are the places that accesses draw random, and independent of everything else? |
//! | [`are_indistinguishable`] | does a classifier learn to distinguish two users? |
//! | [`Template`] | does an access look like another, except for its place? |
//! | [`Times`] | does the time of an operation depend on the user? |
//! | [`judge`] | do two traces of any scheme differ by more than chance? |
//! | [`diff`] | what do two copies of one disk reveal? |
//! | [`copies_are_indistinguishable`] | does a classifier know users by many copies of disks? |
//! | [`ImportReader`] | what did another tool record? |
//! | [`FileComparison`] | what is the verdict on two files? |
//! | [`Report`] | what is the verdict, for people and programs? |
//!
//! docs/audit.md has the rules and an example of each report.
//!
//! File by file: `normal`: the bytes written between two syncs; `compare`; `snapshot`: two copies
//! of an image (`snapshot_report`); `copies`: many of them; `draws`: leaves or slots that are drawn
//! at random (`recurrence`: how soon a place is drawn again; `table`, `permutation`: dependence of
//! two quantities; `stats`: probabilities, and which leaks a test finds; `dense_index`: places as
//! indices of arrays); `distance` of two distributions; `autocorrelation`: dependence on draws long
//! before; `distances`: equal places at any distance; `halves` of a tree; `combinations`: places
//! beside earlier ones, by `parity`, by `linear` sums modulo 2, and against the bits of secrets
//! (`labels`); `leaves`: the number of leaves, when a trace does not show all of them;
//! `classifier`: a classifier of users, by `boosting`; `timing`: times in pairs; `accesses`: traces
//! of any scheme, divided by `segment`, each an `access` with its events (`footprint`) and their
//! `template`; `judge`: two of them, by what is public and what is drawn (`schedule`), the `order`
//! of accesses that come by chance, single events (`columns`) and `requests`; `import`: recordings
//! of other tools; `recording`: files of events; `file_comparison`: two of them, judged; `report`,
//! `report_page`; `grouped`: numbers for people; `svg`: plots, for any report; `mixer`: random
//! numbers for the tests that draw. `models` are faulty schemes for the crate's tests.
#![forbid(unsafe_code)]

mod access;
mod accesses;
mod autocorrelation;
mod boosting;
mod classifier;
mod columns;
mod combinations;
mod compare;
mod copies;
mod dense_index;
mod distance;
mod distances;
mod draws;
mod file_comparison;
mod footprint;
mod grouped;
mod halves;
mod import;
mod judge;
mod labels;
mod leaves;
mod linear;
mod mixer;
#[cfg(test)]
mod models;
mod normal;
mod order;
mod parity;
mod permutation;
mod recording;
mod recurrence;
mod report;
mod report_page;
mod requests;
mod schedule;
mod segment;
mod snapshot;
mod snapshot_report;
mod stats;
pub mod svg;
mod table;
mod template;
mod timing;

pub use accesses::Accesses;
pub use classifier::are_indistinguishable;
pub use compare::{Compare, Comparison, Difference, compare, try_compare};
pub use copies::{Copies, copies_are_indistinguishable};
pub use distance::Distance;
pub use draws::{Draws, Recurrence};
pub use file_comparison::{CompareReport, FileComparison};
pub use grouped::grouped;
pub use import::{Format, ImportError, ImportReader, LINE_MAX};
pub use judge::{ACCESSES_MIN, Judgement, judge, places_of};
pub use normal::{Counts, Epoch, Epochs, Stretch, normalise};
pub use recording::{FileFormat, ReadOptions, Recording, RecordingError, secrets};
pub use report::{Claim, Report, SCHEMA, Statistic, Verdict};
pub use report_page::{Page, Picture, UserPoints};
pub use snapshot::{
    ChangedRun, SNAPSHOT_BLOCK_LEN, SnapshotDiff, SnapshotError, diff, diff_images,
};
pub use snapshot_report::{AreaOf, SnapshotReport};
pub use stats::{ALPHA, worst_of};
pub use template::Template;
pub use timing::Times;
