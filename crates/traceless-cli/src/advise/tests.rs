//! Arguments as requirements, and proposed commands as this command line reads them.

use super::testing::args;
use super::*;
use crate::args::{Cli, Product};
use clap::{Parser, ValueEnum};
use traceless_advise::CommandLine;

fn advised(options: &str) -> Advice {
    advise(&args(options)).unwrap()
}

/// A command as the command line's own definition reads it, from its words and from its text.
fn parsed(command: &CommandLine) -> Product {
    assert_eq!(command.text.split(' ').collect::<Vec<_>>(), command.words);
    Cli::try_parse_from(&command.words).unwrap().product
}

#[test]
fn watchers_have_the_names_of_the_library() {
    for watcher in Watcher::value_variants() {
        let name = watcher.to_possible_value().unwrap().get_name().to_owned();
        let known = serde_json::to_value(traceless_advise::Watcher::from(*watcher)).unwrap();
        assert_eq!(known, name);
    }
}

#[test]
fn arguments_are_requirements() {
    let of = |options: &str| requirements(&args(options)).unwrap();
    let (watcher, size) = (traceless_advise::Watcher::Cloud, 1 << 30);
    assert_eq!(of("--watcher cloud --size 1G --hide-reads no"), Requirements::new(watcher, size));
    let all = "--watcher cloud --size 1G --hide-reads yes --block-len 4K --memory 1M --writes 30 \
               --space-factor 2.5 --pattern scattered --rate 7 --latency 9 --dollars 8.5";
    let expected = Requirements {
        watcher,
        hide_reads: true,
        size,
        block_len: Some(4096),
        memory: Some(1 << 20),
        space_factor: Some(2.5),
        writes: Some(30),
        pattern: Some(traceless_advise::WritePattern::Scattered),
        rate: NonZeroU32::new(7),
        latency: NonZeroU32::new(9),
        dollars: Some(8.5),
    };
    assert_eq!(of(all), expected);
    assert_eq!(of("--watcher kernel").size, 0);
}

#[test]
fn what_is_missing_or_wrong_is_an_error() {
    for (options, named) in [
        ("", "the adversary is missing: give --watcher NAME, or run `traceless advise`"),
        ("--watcher copies", "the size is missing: give --size SIZE, or run `traceless advise`"),
        ("--watcher swap --size 1G --rate 5", "--rate does not apply"),
    ] {
        let failure = advise(&args(options)).unwrap_err();
        assert!(failure.message.contains(named), "{options}: {}", failure.message);
    }
}

#[test]
fn options_are_read_as_by_the_command_line() {
    let read = |options: &str| advise_by_options(options.split(' ').map(str::to_owned));
    let same = read("--watcher=bus --size=1G").unwrap();
    let wanted = advised("--watcher bus --size 1G");
    assert_eq!(serde_json::to_value(same).unwrap(), serde_json::to_value(wanted).unwrap());
    for (options, words) in [
        ("--watcher=nobody", "invalid value 'nobody' for '--watcher <NAME>'"),
        ("--watcher=bus --writes=101", "101 is not in 0..=100"),
        ("--watcher=copies --size=many", "invalid value 'many' for '--size <SIZE>'"),
    ] {
        let error = read(options).unwrap_err().message;
        assert!(error.contains(words) && !error.contains("--help"), "{error}");
    }
}

#[test]
fn commands_of_what_comes_nearest_are_read() {
    for options in ["device", "device-writes --hide-reads yes", "bus", "kernel"] {
        let advice = advised(&format!("--watcher {options}"));
        for command in advice.nearest.iter().flat_map(|near| &near.commands) {
            parsed(command);
        }
    }
}

#[cfg(feature = "volume")]
#[test]
fn the_command_makes_the_volume_that_was_priced() {
    use crate::args::{MAP_MEMORY, VolumeCommand, parse_size};
    use crate::volume::create;
    use traceless_volume::format::AREAS_AT;

    assert_eq!(parse_size(MAP_MEMORY), Ok(traceless_advise::MAP_MEMORY));
    for options in [
        "--size 64M",
        "--size 1T --pattern scattered --memory 16M",
        "--size 8G --writes 90 --space-factor 5",
    ] {
        let advice = advised(&format!("--watcher copies {options}"));
        let Product::Volume { command: VolumeCommand::Create(args) } = parsed(&advice.commands[0])
        else {
            panic!("{:?}", advice.commands[0])
        };
        let scheme = create::scheme(&args).unwrap();
        let cost = advice.cost.unwrap();
        assert_eq!(AREAS_AT + scheme.store_len(), cost.store_bytes, "{options}");
        assert_eq!(Some(scheme.write_amplification()), cost.written);
        parsed(&advice.commands[1]);
    }
}

#[cfg(feature = "pager")]
#[test]
fn the_command_runs_the_scheme_that_was_priced() {
    use crate::run;
    use std::path::Path;

    for options in ["", "--hide-reads yes", "--memory 2M --space-factor 1.3"] {
        let advice = advised(&format!("--watcher swap --size 64M {options}"));
        let Product::Run(args) = parsed(&advice.commands[0]) else {
            panic!("{:?}", advice.commands[0])
        };
        let settings = run::settings(&args, Path::new("counters")).unwrap();
        settings.check().unwrap();
        let cost = advice.cost.unwrap();
        assert_eq!(settings.store_len().unwrap(), cost.store_bytes, "{options}");
        assert_eq!(Some(settings.pages_moved().unwrap().written), cost.written);
    }
}

#[cfg(feature = "cloud")]
#[test]
fn the_commands_make_the_tree_that_was_priced() {
    use crate::args::Rate;
    use crate::cloud::choice;
    use traceless_cloud::costs::Costs;
    use traceless_cloud::params::{ARITY, Params};

    for options in ["--size 64M", "--size 1G --block-len 4K --rate 250"] {
        let advice = advised(&format!("--watcher cloud {options}"));
        assert!(matches!(parsed(&advice.commands[0]), Product::Host(_)));
        let cost = advice.cost.unwrap();
        for command in &advice.commands[1..] {
            let Product::Gateway(args) = parsed(command) else { panic!("{command:?}") };
            let (kernel, len) = (choice(args.tree.kernel), args.tree.block_len as usize);
            let params =
                Params::for_kernel(kernel, ARITY, args.tree.blocks, len, args.tree.lambda).unwrap();
            assert_eq!(Costs::of(&params, kernel).tree, cost.store_bytes, "{options}");
            let rate = cost.queries.as_ref().unwrap().rate;
            assert_eq!(args.rate, rate.map_or(Rate::Demand, Rate::Fixed));
        }
    }
}
