//! Where sealed pages lie.
//!
//! | module | what it holds |
//! |---|---|
//! | `shared` | a store in shared memory |
//! | `streaming` | copies that bypass the caches |
//! | `backing` | a store in a file |
//! | `split` | a store with its pages in a file, and the rest in memory |
//! | `host_copies` | a store behind a host that copies once more: to be compared with |

pub mod backing;
pub mod host_copies;
pub mod shared;
pub mod split;
pub mod streaming;
