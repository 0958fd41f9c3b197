//! A toy: `DetWoORAM` that makes a dummy write after each write. It shows what a further kind of
//! block scheme takes.

mod oram;
mod scheme;

pub use oram::Twice;
pub use scheme::{TWICE, TwiceScheme};
