//! Options that do not apply to the chosen scheme, mode or way.

use crate::args::{GrowthArg, ModeArg, PageSchemeArg, PolicyArg, RunArgs, WayArg};
use clap::ValueEnum;
use traceless_block::detwo::Refresh;
use traceless_pager::paging::{NbdAddress, Pace, TICKS_PER_SECOND_MAX};
use traceless_pager::scheme::{Growth, MainArea};

/// The rate of accesses to the store, if it is to be constant.
pub fn pace(args: &RunArgs) -> Result<Option<Pace>, String> {
    let Some(text) = &args.pace else { return Ok(None) };
    let pace = Pace::parse(text).ok_or_else(|| {
        format!(
            "--pace {text}: neither `fixed=N/s` nor `fixed=N/s,length=M`, as `fixed=500/s`, with N \
             from 1 to {TICKS_PER_SECOND_MAX}"
        )
    })?;
    Ok(Some(pace))
}

/// Where the pager is, also if the user does not say: a pager that outlives its program is another
/// process.
pub fn mode(args: &RunArgs) -> ModeArg {
    let outlives = pace(args).ok().flatten().is_some_and(Pace::outlives_program);
    args.mode.unwrap_or(if outlives { ModeArg::Process } else { ModeArg::Thread })
}

/// Whether pages go to a file that has a name.
pub fn has_file(args: &RunArgs) -> bool {
    let is_export = args.backing.to_str().is_some_and(NbdAddress::is_one);
    args.backing.as_os_str() != "memfd" && !is_export
}

/// The export that pages go to, if they go to one.
pub fn export(args: &RunArgs) -> Result<Option<NbdAddress>, String> {
    let url = args.backing.to_str().filter(|text| NbdAddress::is_one(text));
    let export = url.map(|url| NbdAddress::parse(url).map_err(|e| format!("--backing {url}: {e}")));
    export.transpose()
}

/// What the part of the store that is used follows from, also if the user does not say: a file's
/// space is then taken at once.
pub fn growth(args: &RunArgs) -> Growth {
    match args.growth {
        Some(GrowthArg::Whole) => Growth::Whole,
        Some(GrowthArg::Pages) => Growth::Pages,
        None if has_file(args) => Growth::Whole,
        Some(GrowthArg::Evictions) | None => Growth::Evictions,
    }
}

/// Checks all options; the error names the first one that does not apply.
pub fn check(args: &RunArgs) -> Result<(), String> {
    let (pace, mode) = (pace(args)?, mode(args));
    let scheme = format!("--scheme {}", name(args.scheme));
    let helps = matches!(
        args.scheme,
        PageSchemeArg::Eager | PageSchemeArg::Parallel | PageSchemeArg::EagerParallel
    );
    let is_tree = matches!(
        args.scheme,
        PageSchemeArg::Path | PageSchemeArg::PathFused | PageSchemeArg::Ring | PageSchemeArg::Opam
    );
    let refreshes = helps || args.scheme == PageSchemeArg::Detwo;
    let copies = copying(args);
    let rules = [
        (
            args.refresh.is_some() && !refreshes,
            format!("--refresh: {scheme} refreshes no pages; detwo, eager and parallel do"),
        ),
        (
            args.cached.is_some() && !is_tree,
            format!("--cached: {scheme} has no tree; path, path-fused, ring and opam have one"),
        ),
        (
            args.helpers.is_some() && !helps,
            format!("--helpers: {scheme} takes no help; eager, parallel and both do"),
        ),
        (
            args.helpers == Some(0),
            format!("--helpers 0: {scheme} takes at least one; without help it is detwo"),
        ),
        (
            args.helpers.is_some() && args.trace.is_some(),
            "--helpers: with --trace there are no helpers, as one process keeps the record"
                .to_owned(),
        ),
        (
            pace.is_some_and(Pace::outlives_program) && mode == ModeArg::Thread,
            "--pace with a length: a pager in the program ends with it; take --mode process"
                .to_owned(),
        ),
        (
            pace.is_some() && matches!(args.scheme, PageSchemeArg::Plain | PageSchemeArg::Opam),
            format!("--pace: {scheme} shows which pages come and leave at any rate"),
        ),
        (
            mode == ModeArg::Process && args.way == Some(WayArg::Move),
            "--way move: pages are moved in the mode thread only".to_owned(),
        ),
        (
            args.policy == PolicyArg::Clock && copies.is_some(),
            format!(
                "--policy clock: it takes pages that are moved, so not {}",
                copies.unwrap_or("")
            ),
        ),
        (
            args.overflow.is_some() && copies.is_some(),
            format!("--overflow: no page stays for being pinned with {}", copies.unwrap_or("")),
        ),
    ];
    let mut rules = rules.into_iter().chain(store_rules(args, &scheme, refreshes, helps)?);
    match rules.find(|(broken, _)| *broken) {
        Some((_, what)) => Err(what),
        None => Ok(()),
    }
}

/// What does not apply to the store that pages go to: each with whether it is so.
fn store_rules(
    args: &RunArgs,
    scheme: &str,
    refreshes: bool,
    helps: bool,
) -> Result<[(bool, String); 4], String> {
    let export = export(args)?;
    Ok([
        (
            helps && export.is_some(),
            format!("--backing: helpers of {scheme} share no connection; take --scheme detwo"),
        ),
        (
            args.growth.is_some() && !refreshes,
            format!("--growth: {scheme} refreshes no pages; detwo, eager and parallel do"),
        ),
        (
            args.growth.is_some_and(|growth| growth != GrowthArg::Whole) && refreshes_few(args),
            "--growth: it takes more than one refresh for each page that leaves, so a --refresh \
             above 1"
                .to_owned(),
        ),
        (
            args.pace.is_some() && args.growth == Some(GrowthArg::Pages),
            "--growth pages: it shows how many pages a program uses, which --pace hides; take \
             --growth evictions"
                .to_owned(),
        ),
    ])
}

/// Whether no more than one page is refreshed for each that leaves.
fn refreshes_few(args: &RunArgs) -> bool {
    let refresh = args.refresh.as_deref().and_then(|text| Refresh::parse(text).ok());
    refresh.is_some_and(|refresh| !MainArea::can_grow(refresh))
}

/// The option because of which pages are copied instead of moved, if there is one.
fn copying(args: &RunArgs) -> Option<&'static str> {
    match (mode(args), args.way) {
        (ModeArg::Process, _) => Some("--mode process"),
        (_, Some(WayArg::Protect)) => Some("--way protect"),
        _ => None,
    }
}

/// The scheme's name on the command line.
fn name(scheme: PageSchemeArg) -> String {
    let value = scheme.to_possible_value().expect("no scheme is hidden");
    value.get_name().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Product};
    use clap::Parser;

    fn checked(options: &str) -> Result<(), String> {
        check(&parsed(options))
    }

    fn parsed(options: &str) -> RunArgs {
        let words = ["traceless", "run"].into_iter().chain(options.split_whitespace());
        let cli = Cli::try_parse_from(words.chain(["--", "true"])).unwrap();
        let Product::Run(args) = cli.product else { unreachable!("it was asked for") };
        *args
    }

    #[test]
    fn an_option_that_does_not_apply_is_named_in_the_error() {
        for (options, named) in [
            ("--scheme plain --refresh 3", "--scheme plain"),
            ("--scheme path --refresh 3", "--scheme path"),
            ("--scheme plain --growth pages", "--scheme plain"),
            ("--refresh 1/2 --growth evictions", "--refresh above 1"),
            ("--pace fixed=9/s --growth pages", "--growth evictions"),
            ("--backing nbd://127.0.0.1/ --scheme eager", "--scheme detwo"),
            ("--backing nbd://", "nbd://HOST"),
            ("--cached 4", "--scheme detwo"),
            ("--scheme eager-parallel --cached 0", "--scheme eager-parallel"),
            ("--helpers 1", "--scheme detwo"),
            ("--scheme ring --helpers 2", "--scheme ring"),
            ("--scheme parallel --helpers 0", "--helpers 0"),
            ("--scheme eager --helpers 2 --trace t", "--trace"),
            ("--mode process --way move", "--way move"),
            ("--pace fixed=9/s,length=8 --way move", "--way move"),
            ("--pace fixed=9/s,length=8 --mode thread", "--mode process"),
            ("--pace fixed=9/s --scheme plain", "--scheme plain"),
            ("--pace fixed=9/s --scheme opam", "--scheme opam"),
            ("--pace fixed=0/s", "fixed=N/s"),
            ("--pace 9", "fixed=N/s"),
            ("--mode process --policy clock", "--mode process"),
            ("--way protect --policy clock", "--way protect"),
            ("--mode process --overflow 5", "--mode process"),
            ("--way protect --overflow 5", "--way protect"),
        ] {
            let refused = checked(options).unwrap_err();
            assert!(refused.contains(named), "{options}: {refused}");
        }
    }

    #[test]
    fn a_pager_that_outlives_its_program_is_another_process() {
        for (options, expected) in [
            ("", ModeArg::Thread),
            ("--pace fixed=9/s", ModeArg::Thread),
            ("--pace fixed=9/s,length=8", ModeArg::Process),
            ("--mode process", ModeArg::Process),
        ] {
            assert_eq!(mode(&parsed(options)), expected, "{options}");
        }
    }

    #[test]
    fn options_that_apply_to_the_scheme_are_accepted() {
        for options in [
            "",
            "--refresh 1/2",
            "--refresh 1 --growth whole",
            "--scheme parallel --growth pages",
            "--pace fixed=9/s --growth evictions",
            "--scheme eager --helpers 3 --refresh 7",
            "--scheme opam --cached 8",
            "--policy clock --overflow 7 --way move",
            "--mode process --way protect --policy random",
            "--scheme eager --trace t",
            "--pace fixed=9/s --scheme eager",
            "--pace fixed=9/s,length=8 --scheme ring",
        ] {
            checked(options).unwrap();
        }
    }
}
