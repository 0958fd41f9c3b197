//! Which product of Traceless protects from an adversary, with which parameters, what that costs,
//! and what still leaks: what `traceless advise` prints.
//!
//! [`Requirements`] say what an adversary observes, how much is protected, and what that may cost.
//! [`advise`] compares the products and schemes that this crate was built with, by their own
//! numbers. Commands and errors name options of the program `traceless`:
//!
//! ```
//! use traceless_advise::{Requirements, Watcher, advise, lines};
//!
//! let administrator = Requirements::new(Watcher::Kernel, 1 << 30);
//! let advice = advise(&administrator)?;
//! assert!(!advice.protected);
//! assert!(lines(&advice)[0].starts_with("No product hides anything from the kernel"));
//! # #[cfg(feature = "volume")] {
//!
//! let backups = Requirements::new(Watcher::Copies, 1 << 40);
//! let advice = advise(&Requirements { memory: Some(64 << 20), ..backups })?;
//! assert_eq!((advice.product, advice.scheme.as_deref()), (Some("volume"), Some("detwo")));
//! assert!(advice.cost.is_some_and(|cost| cost.memory_bytes <= 64 << 20));
//! assert!(advice.commands[0].text.starts_with("traceless volume create"));
//! # }
//! # Ok::<(), traceless_advise::AdviseError>(())
//! ```
//!
//! File by file: `requirements`: what is required, and errors; `volume`, `paging`, `cloud`: one
//! product each: its candidates, compared; `unprotected`: adversaries that no product protects
//! from; `leakage`: the words of docs/threat-model.md; `answer`: the types of an answer; `print`:
//! an answer as text; `sizes`: numbers of bytes as text.
#![forbid(unsafe_code)]

mod answer;
#[cfg(feature = "cloud")]
mod cloud;
pub mod leakage;
#[cfg(feature = "pager")]
mod paging;
mod print;
mod requirements;
mod sizes;
mod unprotected;
#[cfg(feature = "volume")]
mod volume;

pub use answer::{Advice, Alternative, Candidate, CommandLine, Cost, QueryCost};
pub use print::lines;
pub use requirements::{AdviseError, Requirements, Watcher, WritePattern};
pub use sizes::{about, size_text};
#[cfg(feature = "volume")]
pub use volume::MAP_MEMORY;

use answer::Proposal;

/// Each feature that brings a product, and whether it is there.
const PRODUCTS: [(&str, bool); 5] = [
    ("volume", cfg!(feature = "volume")),
    ("pager", cfg!(feature = "pager")),
    ("cloud", cfg!(feature = "cloud")),
    ("sim", cfg!(feature = "sim")),
    ("audit", cfg!(feature = "audit")),
];

/// The product and parameters that protect as required, or what comes nearest where none protects.
pub fn advise(required: &Requirements) -> Result<Advice, AdviseError> {
    if !required.is_protectable() {
        return Ok(no_protection(required));
    }
    required.check()?;
    Ok(protection(required, propose(required)?))
}

/// The features of this crate that bring a product.
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
    Advice {
        schema: "traceless.advise.v1",
        watcher: required.watcher,
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
    use super::*;
    use std::num::NonZeroU32;

    const GIB: u64 = 1 << 30;

    /// What each adversary gets as an answer: the product, or none.
    #[test]
    fn each_watcher_has_its_answer() {
        for (watcher, hide_reads, product) in [
            (Watcher::Copies, false, Some("volume")),
            (Watcher::Copies, true, Some("volume")),
            (Watcher::DeviceWrites, false, Some("volume")),
            (Watcher::DeviceWrites, true, None),
            (Watcher::Device, false, None),
            (Watcher::Swap, false, Some("run")),
            (Watcher::Swap, true, Some("run")),
            (Watcher::Cloud, false, Some("gateway")),
            (Watcher::Bus, false, None),
            (Watcher::Kernel, false, None),
        ] {
            let feature = match product {
                Some("run") => "pager",
                Some("gateway") => "cloud",
                Some(_) => "volume",
                None => "",
            };
            let required = Requirements { hide_reads, ..Requirements::new(watcher, GIB) };
            if product.is_some() && !built_with().contains(&feature) {
                let error = advise(&required).unwrap_err().to_string();
                assert!(error.contains(&format!("--features {feature}")), "{error}");
                continue;
            }
            let advice = advise(&required).unwrap();
            assert_eq!((advice.protected, advice.product), (product.is_some(), product));
            assert_eq!(advice.nearest.is_empty(), product.is_some(), "{required:?}");
            assert_eq!(advice.commands.is_empty(), product.is_none(), "{required:?}");
            assert!(!advice.notes.is_empty() && advice.built_with == built_with());
        }
    }

    #[test]
    fn what_is_not_protected_is_said_plainly() {
        for (watcher, name, words, nearest) in [
            (Watcher::Device, "device", "No product hides reads", "arrays"),
            (Watcher::Bus, "bus", "simulated only", "a client for a Rust program"),
            (
                Watcher::Kernel,
                "kernel",
                "No product hides anything from the kernel",
                "another machine",
            ),
        ] {
            let advice = advise(&Requirements::new(watcher, 0)).unwrap();
            assert!(advice.notes[0].contains(words), "{:?}", advice.notes);
            assert!(advice.nearest.iter().any(|near| near.what.contains(nearest)), "{watcher:?}");
            assert_eq!(serde_json::to_value(&advice).unwrap()["watcher"], name);
            if watcher == Watcher::Bus {
                continue;
            }
            let mut near = advice.nearest.iter();
            let gateway = near.find(|near| near.see == "docs/cloud.md").unwrap();
            assert!(gateway.what.contains(leakage::ENCLAVES), "{}", gateway.what);
        }
        let kernel = advise(&Requirements::new(Watcher::Kernel, 0)).unwrap();
        assert_eq!(kernel.learns, Some(leakage::PAGER_KERNEL.learns));
    }

    #[test]
    fn what_is_wrong_or_not_of_this_watcher_is_an_error() {
        let of = |watcher| Requirements::new(watcher, GIB);
        let (copies, swap, cloud) = (of(Watcher::Copies), of(Watcher::Swap), of(Watcher::Cloud));
        let five = NonZeroU32::new(5);
        for (required, named) in [
            (Requirements { size: 0, ..cloud }, "--size 0"),
            (Requirements { size: 1025 << 50, ..cloud }, "--size"),
            (Requirements { block_len: Some(8 << 10), ..copies }, "--block-len 8192"),
            (Requirements { rate: five, ..swap }, "--rate"),
            (Requirements { latency: five, ..copies }, "--latency"),
            (Requirements { writes: Some(5), ..cloud }, "--writes"),
            (Requirements { pattern: Some(WritePattern::Runs), ..swap }, "--pattern"),
        ] {
            let error = advise(&required).unwrap_err().to_string();
            assert!(error.contains(named), "{required:?}: {error}");
        }
    }

    #[test]
    fn every_size_has_an_answer_or_an_error() {
        for (watcher, hide_reads) in [
            (Watcher::Copies, false),
            (Watcher::Swap, false),
            (Watcher::Cloud, false),
            (Watcher::Swap, true),
        ] {
            for bits in (0..=60).step_by(4) {
                for size in [1 << bits, (1 << bits) - 1] {
                    let required = Requirements { hide_reads, ..Requirements::new(watcher, size) };
                    let _ = advise(&required);
                }
            }
        }
    }
}
