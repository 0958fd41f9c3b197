//! Paging by another process, which has the keys. The program may fork.
//!
//! The program's pages lie in a file without a name that both have, so the pager can copy and
//! discard them, and it has the program's userfaultfd, so it can protect and bring them.
//!
//! A copy of the program must not share its pages. So it gets a file, a store and a key of its
//! own: for the moment of `fork` the program maps the copy's file instead of its own, and whoever
//! touches memory meanwhile waits. The copy begins with what is right, and the program takes its
//! own file again.
//!
//! | module | what it holds |
//! |---|---|
//! | `link` | messages between both |
//! | `client` | the program's side |
//! | `space` | the pager's side: the memory of one program |
//! | `house` | all programs that one pager serves |
//! | `server` | accepts programs, and ends when none is left |
//! | `supervisor` | who starts the pager, and learns how it ended |

mod client;
mod house;
mod link;
mod server;
mod space;
mod supervisor;

pub use client::{Client, Forking};
pub use server::serve;
pub use supervisor::{Exit, PagerProcess};
