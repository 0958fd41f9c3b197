//! What tests of advice share.

use super::answer::CommandLine;
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

/// What these options require.
#[cfg(any(feature = "volume", feature = "pager", feature = "cloud"))]
pub fn required(options: &str) -> super::requirements::Requirements {
    super::requirements::Requirements::new(&args(options)).unwrap()
}

/// A command as the command line's own definition reads it, from its words and from its text.
pub fn parsed(command: &CommandLine) -> Product {
    assert_eq!(command.text.split(' ').collect::<Vec<_>>(), command.words);
    Cli::try_parse_from(&command.words).unwrap().product
}
