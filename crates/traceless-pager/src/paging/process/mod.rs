//! Paging by another process, which has the keys. The program may fork.
//!
//! The program's pages lie in an anonymous file that both processes have, so the pager can copy and
//! discard them. The pager also has the program's userfaultfd, so it can protect pages and bring
//! them.
//!
//! A copy of the program must not share its pages. So it gets a file, a store and a key of its own:
//! for the moment of `fork` the program maps the copy's file instead of its own, and threads that
//! touch the memory meanwhile wait. The copy begins with its own file mapped, and the program maps
//! its own file again.
//!
//! | module | what it holds |
//! |---|---|
//! | `link` | messages between program and pager |
//! | `client` | the program's side |
//! | `session` | the pager's side: the memory of one program |
//! | `server` | all programs that one pager serves |
//! | `accept` | accepts programs, and ends when none is left |
//! | `supervisor` | starts the pager's process, and learns how it ended |

mod accept;
mod client;
mod link;
mod server;
mod session;
mod supervisor;

pub use accept::serve;
pub use client::{Client, Forking};
pub use supervisor::{Exit, PagerProcess};
