//! What tests of advice share.

use crate::args::{AdviseArgs, Cli, Product};
use clap::Parser;

/// The arguments of `traceless advise` with these options.
pub fn args(options: &str) -> AdviseArgs {
    let words = ["traceless", "advise"].into_iter().chain(options.split_whitespace());
    match Cli::try_parse_from(words).unwrap().product {
        Product::Advise(args) => args,
        other => panic!("{other:?}"),
    }
}
