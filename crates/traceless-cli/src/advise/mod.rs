//! `traceless advise`: which product and parameters protect from an adversary, what that costs, and
//! what leaks.
//!
//! File by file: `requirements`: what is required, and errors; `interview`: questions on a
//! terminal; `volume`, `paging`, `cloud`: one product each: its candidates, compared;
//! `unprotected`: adversaries that no product protects from; `leakage`: the words of
//! docs/threat-model.md; `answer`: the types of an answer; `print`: an answer as text.

pub mod answer;
#[cfg(feature = "cloud")]
pub mod cloud;
pub mod interview;
pub mod leakage;
#[cfg(feature = "pager")]
pub mod paging;
pub mod print;
pub mod requirements;
#[cfg(test)]
mod testing;
pub mod unprotected;
#[cfg(feature = "volume")]
pub mod volume;

use crate::args::{AdviseArgs, Watcher};
use crate::failure::{FINDING, Failure};
use crate::output::{print_json, print_line};
use answer::{Advice, Proposal};
use clap::{Args, Command, FromArgMatches, ValueEnum};
use requirements::{AdviseError, Requirements};
use std::io::{IsTerminal, stderr, stdin};

/// Each feature that brings a product, and whether it is there.
const PRODUCTS: [(&str, bool); 5] = [
    ("volume", cfg!(feature = "volume")),
    ("pager", cfg!(feature = "pager")),
    ("cloud", cfg!(feature = "cloud")),
    ("sim", cfg!(feature = "sim")),
    ("audit", cfg!(feature = "audit")),
];

/// Prints the advice, and returns the exit code: 1 if no product protects.
pub fn run(args: &AdviseArgs) -> Result<u8, Failure> {
    let mut args = args.clone();
    if stdin().is_terminal() && stderr().is_terminal() {
        interview::complete(&mut args, stdin().lock(), stderr()).map_err(Failure::usage)?;
    }
    let advice = advise(&args).map_err(Failure::usage)?;
    if args.json {
        print_json(&advice)?;
    } else {
        for line in print::lines(&advice) {
            print_line(&line);
        }
    }
    Ok(if advice.protected { 0 } else { FINDING })
}

/// The advice for complete arguments.
pub fn advise(args: &AdviseArgs) -> Result<Advice, AdviseError> {
    let required = Requirements::new(args)?;
    let proposal = required.is_protectable().then(|| propose(&required)).transpose()?;
    Ok(match proposal {
        Some(proposal) => protection(&required, proposal),
        None => no_protection(&required),
    })
}

/// The advice for options as the command line has them: `--size=1G`.
pub fn advise_by_options(options: impl IntoIterator<Item = String>) -> Result<Advice, AdviseError> {
    let words = ["advise".to_owned()].into_iter().chain(options);
    let command = AdviseArgs::augment_args(Command::new("advise"));
    let args = command
        .try_get_matches_from(words)
        .and_then(|matches| AdviseArgs::from_arg_matches(&matches))
        .map_err(|error| AdviseError::Options(first_paragraph(&error.to_string())))?;
    advise(&args)
}

/// What is wrong with a command line, without the hint on how to get help.
fn first_paragraph(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    message.split("\n\n").next().unwrap_or(message).trim_end().to_owned()
}

/// The features of this program that bring a product.
pub fn built_with() -> Vec<&'static str> {
    PRODUCTS.iter().filter(|(_, is_built)| *is_built).map(|(feature, _)| *feature).collect()
}

fn propose(required: &Requirements) -> Result<Proposal, AdviseError> {
    match required.watcher {
        #[cfg(feature = "volume")]
        Watcher::Copies | Watcher::DeviceWrites => volume::propose(required),
        #[cfg(feature = "pager")]
        Watcher::Swap => paging::propose(required),
        #[cfg(feature = "cloud")]
        Watcher::Cloud => cloud::propose(required),
        #[allow(unreachable_patterns, reason = "features decide which ones are left")]
        Watcher::Swap => Err(AdviseError::NotBuilt { product: "run", feature: "pager" }),
        #[allow(unreachable_patterns, reason = "features decide which ones are left")]
        Watcher::Cloud => Err(AdviseError::NotBuilt { product: "gateway", feature: "cloud" }),
        _ => Err(AdviseError::NotBuilt { product: "volume", feature: "volume" }),
    }
}

fn protection(required: &Requirements, proposal: Proposal) -> Advice {
    let Proposal { leakage, notes, commands, candidates } = proposal;
    let chosen = candidates.first().cloned();
    Advice {
        protected: true,
        product: chosen.as_ref().map(|candidate| candidate.product),
        scheme: chosen.as_ref().map(|candidate| candidate.scheme.clone()),
        options: chosen.as_ref().map(|candidate| candidate.options.clone()).unwrap_or_default(),
        cost: chosen.map(|candidate| candidate.cost),
        observes: Some(leakage.observes),
        learns: Some(leakage.learns),
        notes,
        commands,
        candidates,
        ..empty(required)
    }
}

fn no_protection(required: &Requirements) -> Advice {
    let (why, leakage, nearest) = unprotected::explain(required);
    Advice {
        observes: leakage.map(|leakage| leakage.observes),
        learns: leakage.map(|leakage| leakage.learns),
        notes: vec![why],
        nearest,
        ..empty(required)
    }
}

fn empty(required: &Requirements) -> Advice {
    let watcher = required.watcher.to_possible_value().expect("no watcher is hidden");
    Advice {
        schema: "traceless.advise.v1",
        watcher: watcher.get_name().to_owned(),
        hide_reads: required.hide_reads,
        protected: false,
        product: None,
        scheme: None,
        options: Vec::new(),
        cost: None,
        observes: None,
        learns: None,
        notes: Vec::new(),
        commands: Vec::new(),
        candidates: Vec::new(),
        nearest: Vec::new(),
        built_with: built_with(),
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{args, parsed};
    use super::*;

    fn advice(options: &str) -> Advice {
        advise(&args(options)).unwrap()
    }

    /// What each adversary gets as an answer: the product, or none.
    #[test]
    fn each_watcher_has_its_answer() {
        for (options, product) in [
            ("--watcher copies --size 1G", Some("volume")),
            ("--watcher copies --size 1G --hide-reads yes", Some("volume")),
            ("--watcher device-writes --size 1G", Some("volume")),
            ("--watcher device-writes --size 1G --hide-reads yes", None),
            ("--watcher device --size 1G", None),
            ("--watcher swap --size 1G", Some("run")),
            ("--watcher swap --size 1G --hide-reads yes", Some("run")),
            ("--watcher cloud --size 1G", Some("gateway")),
            ("--watcher bus", None),
            ("--watcher kernel", None),
        ] {
            let feature = match product {
                Some("run") => "pager",
                Some("gateway") => "cloud",
                Some(_) => "volume",
                None => "",
            };
            if product.is_some() && !built_with().contains(&feature) {
                let error = advise(&args(options)).unwrap_err().to_string();
                assert!(error.contains(&format!("--features {feature}")), "{error}");
                continue;
            }
            let advice = advice(options);
            assert_eq!((advice.protected, advice.product), (product.is_some(), product));
            assert_eq!(advice.nearest.is_empty(), product.is_some(), "{options}");
            assert_eq!(advice.commands.is_empty(), product.is_none(), "{options}");
            assert!(!advice.notes.is_empty() && advice.built_with == built_with());
            for command in advice.nearest.iter().flat_map(|near| &near.commands) {
                parsed(command);
            }
        }
    }

    #[test]
    fn what_is_not_protected_is_said_plainly() {
        for (watcher, words, nearest) in [
            ("device", "No product hides reads", "arrays"),
            ("bus", "simulated only", "a client for a Rust program"),
            ("kernel", "No product hides anything from the kernel", "another machine"),
        ] {
            let advice = advice(&format!("--watcher {watcher}"));
            assert!(advice.notes[0].contains(words), "{:?}", advice.notes);
            assert!(advice.nearest.iter().any(|near| near.what.contains(nearest)), "{watcher}");
        }
        assert_eq!(advice("--watcher kernel").learns, Some(leakage::PAGER_KERNEL.learns));
        for watcher in ["device", "kernel"] {
            let mut near = advice(&format!("--watcher {watcher}")).nearest.into_iter();
            let gateway = near.find(|near| near.see == "docs/cloud.md").unwrap();
            assert!(gateway.what.contains(leakage::ENCLAVES), "{}", gateway.what);
        }
    }

    #[test]
    fn what_is_missing_wrong_or_not_of_this_watcher_is_an_error() {
        for (options, named) in [
            ("", "--watcher"),
            ("--watcher copies", "--size"),
            ("--watcher cloud --size 0", "--size 0"),
            ("--watcher cloud --size 1025P", "--size"),
            ("--watcher copies --size 1G --block-len 8K", "--block-len 8192"),
            ("--watcher swap --size 1G --rate 5", "--rate"),
            ("--watcher copies --size 1G --latency 5", "--latency"),
            ("--watcher cloud --size 1G --writes 5", "--writes"),
            ("--watcher swap --size 1G --pattern runs", "--pattern"),
        ] {
            let error = advise(&args(options)).unwrap_err().to_string();
            assert!(error.contains(named), "{options}: {error}");
        }
    }

    #[test]
    fn options_are_read_as_by_the_command_line() {
        let advised = |options: &str| advise_by_options(options.split(' ').map(str::to_owned));
        let same = advised("--watcher=bus --size=1G").unwrap();
        let wanted = advice("--watcher bus --size 1G");
        assert_eq!(serde_json::to_value(same).unwrap(), serde_json::to_value(wanted).unwrap());
        for (options, words) in [
            ("--watcher=nobody", "invalid value 'nobody' for '--watcher <NAME>'"),
            ("--watcher=bus --writes=101", "101 is not in 0..=100"),
            ("--watcher=copies --size=many", "invalid value 'many' for '--size <SIZE>'"),
        ] {
            let error = advised(options).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("--help"), "{error}");
        }
    }

    #[test]
    fn every_size_has_an_answer_or_an_error() {
        for watcher in ["copies", "swap", "cloud", "swap --hide-reads yes"] {
            for bits in (0..=60).step_by(4) {
                for size in [1_u64 << bits, (1 << bits) - 1] {
                    let _ = advise(&args(&format!("--watcher {watcher} --size {size}")));
                }
            }
        }
    }
}
