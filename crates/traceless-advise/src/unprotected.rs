//! Adversaries that no product protects from, and what comes nearest to protection.

use super::answer::{Alternative, CommandLine};
use super::leakage::{
    ARRAYS, GATEWAY_ON_DEMAND, Leakage, OBLIVIOUS_CLIENT, PAGER_FOR_RUNTIMES, PAGER_KERNEL,
    VOLUME_RING,
};
use super::requirements::{Requirements, Watcher};
use super::sizes::size_text;

/// Bytes in the commands of alternatives, where the user gave no size.
const EXAMPLE_SIZE: u64 = 1 << 30;

/// Why no product protects, what the watcher learns where that is in the threat model, and what
/// comes nearest.
pub fn explain(required: &Requirements) -> (String, Option<Leakage>, Vec<Alternative>) {
    let size = if required.size > 0 { required.size } else { EXAMPLE_SIZE };
    match required.watcher {
        Watcher::Bus => (
            "No product hides what a real processor requests of its memory: secure processors are \
             simulated only (traceless sim), and the simulator protects nothing."
                .to_owned(),
            None,
            vec![
                protection(
                    "a client for a Rust program of your own: every access touches the same \
                     addresses or random ones",
                    OBLIVIOUS_CLIENT,
                    "crates/traceless",
                ),
                simulator(),
            ],
        ),
        Watcher::Kernel => (
            "No product hides anything from the kernel or the administrator of the machine that \
             has the keys: they can read its memory."
                .to_owned(),
            Some(PAGER_KERNEL),
            vec![
                gateway(
                    "values and objects at another machine, from an observer of that machine's \
                     messages and store. An enclave is simulated, and hides nothing from its \
                     machine, unless that is a confidential virtual machine",
                    size,
                ),
                protection(
                    "a runtime that handles its own page faults in an enclave",
                    PAGER_FOR_RUNTIMES,
                    "docs/keystone.md",
                ),
            ],
        ),
        _ => (
            "No product hides reads of a block device at its speed. A volume of the scheme ring \
             hides them, and moves 20 to 40 blocks for each. Other volumes hide writes, from an \
             adversary that observes writes only: reads reveal much of the writes, too, since \
             old blocks are read to be written anew."
                .to_owned(),
            None,
            vec![
                ring(size),
                gateway(
                    "values and objects in place of a block device: reads are hidden. An enclave \
                     is simulated, and hides nothing from its machine, unless that is a \
                     confidential virtual machine",
                    size,
                ),
                protection(
                    "arrays and maps for a Rust program of your own",
                    ARRAYS,
                    "crates/traceless",
                ),
            ],
        ),
    }
}

fn protection(what: &'static str, leakage: Leakage, see: &'static str) -> Alternative {
    let Leakage { observes, learns, .. } = leakage;
    Alternative { what, observes: Some(observes), learns: Some(learns), see, commands: Vec::new() }
}

fn gateway(what: &'static str, size: u64) -> Alternative {
    let words = ["advise", "--watcher", "cloud", "--size", &size_text(size)];
    let commands = vec![CommandLine::new("its cost", words)];
    Alternative { commands, ..protection(what, GATEWAY_ON_DEMAND, "docs/cloud.md") }
}

fn ring(size: u64) -> Alternative {
    let size = size_text(size);
    let words = ["volume", "create", "volume.img", "--size", &size, "--scheme", "ring"];
    let is_built = cfg!(feature = "volume");
    let commands = is_built.then(|| CommandLine::new("make it; asks for a passphrase", words));
    let what = "a volume that hides reads, too, many times slower";
    let commands = commands.into_iter().collect();
    Alternative { commands, ..protection(what, VOLUME_RING, "docs/volume.md") }
}

fn simulator() -> Alternative {
    let words = ["sim", "trace", "uniform", "--length", "2K", "--scheme", "ir-oram"];
    let is_built = cfg!(feature = "sim");
    Alternative {
        what: "the simulator: what oblivious memory would cost a processor",
        observes: None,
        learns: None,
        see: "docs/simulator.md",
        commands: is_built.then(|| CommandLine::new("simulate", words)).into_iter().collect(),
    }
}
