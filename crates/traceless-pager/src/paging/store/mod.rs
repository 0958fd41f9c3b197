//! Where sealed pages lie.
//!
//! | module | what it holds |
//! |---|---|
//! | `shared` | a store in shared memory |
//! | `streaming` | copies that bypass the caches |
//! | `backing` | a store in a file |
//! | `nbd`, `nbd_address` | a store on a network block device |
//! | `split` | a store with its pages in one of these, and the rest in memory |
//! | `host_copies` | a store behind a host that copies once more: to be compared with |

pub mod backing;
pub mod host_copies;
pub mod nbd;
pub mod nbd_address;
pub mod shared;
pub mod split;
pub mod streaming;
