//! `DetWoORAM` with refreshes that helper processes do.
//!
//! | module | what it holds |
//! |---|---|
//! | `scheme` | the scheme: when refreshes begin, and what happens if a helper ends |
//! | `pool` | the refreshes that are due, in memory that helpers share |
//! | `helper` | a helper process |

pub mod helper;
pub mod pool;
pub mod scheme;
