//! Advice on volumes: which scheme, where its map lies, and how much is refreshed.

use super::answer::{Candidate, CommandLine, Cost, Proposal};
use super::leakage::{VOLUME_DETWO, VOLUME_SQ};
use super::requirements::{AdviseError, BLOCK_LEN, Requirements, Watcher, WritePattern};
use super::sizes::size_text;
use traceless_block::detwo::DETWO;
use traceless_block::registry;
use traceless_block::sq::SQ;
use traceless_core::oram::Hides;
use traceless_core::scheme::contract::{MapPlace, SchemeKind, SchemeOptions, SharedScheme};
use traceless_volume::format::AREAS_AT;

/// Bytes that a volume's map may take unless `--map-memory` says otherwise.
pub const MAP_MEMORY: u64 = 1 << 30;
/// The same with the discards of as many blocks as it is for: a bit for each block, and the map of
/// their blocks.
const MAP_BYTES_MAX: u64 = MAP_MEMORY + MAP_MEMORY / 64 + MAP_MEMORY / 8192;
/// The share of writes, in percent, from which on they are many: docs/volume.md, "Choosing
/// --refresh".
const MANY_WRITES: u8 = 50;
/// Refresh ratios that are tried, in order, besides the default: each writes more than the one
/// before, and takes less space.
const REFRESHES: [(u32, u32); 4] = [(3, 1), (7, 1), (15, 1), (31, 1)];
/// The ratio that writes least, and takes twice the space of the default.
const REFRESH_LEAST: (u32, u32) = (1, 3);
/// Fan-outs that are tried besides the default: each takes less memory than the one before.
const FANOUTS: [u32; 4] = [16, 8, 4, 2];

/// A scheme, the options that choose it, and its cost.
struct VolumeTrial {
    scheme: SharedScheme,
    refresh: Option<(u32, u32)>,
    options: Vec<String>,
    cost: Cost,
}

/// A kind with the first of its trials that is allowed, or else the one that takes least memory.
struct VolumeSubject {
    kind: &'static SchemeKind,
    trial: VolumeTrial,
    is_allowed: bool,
}

/// The volume that fits, or why none does.
pub fn propose(required: &Requirements) -> Result<Proposal, AdviseError> {
    let (first, second) = match required.pattern {
        Some(WritePattern::Scattered) => (&SQ, &DETWO),
        Some(WritePattern::Runs) | None => (&DETWO, &SQ),
    };
    let compared = registry::KINDS.iter().copied().filter(|kind| !is_recommended(kind));
    let mut subjects = Vec::new();
    let (mut costs, mut refusal) = (Vec::new(), None);
    for kind in [first, second].into_iter().chain(compared) {
        let (trials, failure) = trials(kind, required);
        refusal = refusal.or(failure);
        if is_recommended(kind) {
            let pair = |trial: &VolumeTrial| (trial.cost.memory_bytes, trial.cost.space_factor);
            costs.extend(trials.iter().map(pair));
        }
        subjects.extend(choose(kind, trials, required));
    }
    let is_chosen = |s: &VolumeSubject| s.is_allowed && is_recommended(s.kind);
    let Some(chosen) = subjects.iter().position(is_chosen) else {
        return Err(match refusal {
            Some(failure) if costs.is_empty() => AdviseError::Parameters(failure),
            _ => required.refusal(&costs),
        });
    };
    let chosen = subjects.remove(chosen);
    let candidates = candidates(&chosen, &subjects, required);
    let leakage = if *chosen.kind == SQ { VOLUME_SQ } else { VOLUME_DETWO };
    let commands = commands(&chosen, required.size);
    Ok(Proposal { leakage, notes: notes(required), commands, candidates })
}

/// Whether a kind is more than a subject of comparison.
fn is_recommended(kind: &SchemeKind) -> bool {
    *kind == DETWO || *kind == SQ
}

/// All schemes of a kind for the required size, in the order of preference, and the failure of
/// the first that there cannot be.
fn trials(
    kind: &'static SchemeKind,
    required: &Requirements,
) -> (Vec<VolumeTrial>, Option<String>) {
    let blocks = required.size.div_ceil(BLOCK_LEN);
    let has = |option| kind.options.contains(&option);
    let fanouts = [None].into_iter().chain(FANOUTS.map(Some).into_iter().filter(|_| has("fanout")));
    let (mut trials, mut failure) = (Vec::new(), None);
    // The ratio is for space, the rest for memory.
    for refresh in refreshes(kind, required) {
        for (map, map_memory) in maps(required) {
            for fanout in fanouts.clone() {
                let choice = SchemeOptions {
                    map: Some(map),
                    map_memory,
                    fanout,
                    refresh,
                    ..SchemeOptions::default()
                };
                match (kind.choose)(blocks, BLOCK_LEN as usize, &choice) {
                    Ok(scheme) => trials.push(VolumeTrial {
                        cost: cost(&scheme),
                        options: words(&scheme, &choice),
                        refresh,
                        scheme,
                    }),
                    Err(e) => failure = failure.or(Some(e.to_string())),
                }
            }
        }
    }
    (trials, failure)
}

/// Places of the map to try, in order, each with the memory for what stays there of it.
fn maps(required: &Requirements) -> Vec<(MapPlace, u64)> {
    let mut maps = vec![(MapPlace::Memory, MAP_MEMORY), (MapPlace::Disk, MAP_MEMORY)];
    let less = required.memory.filter(|&given| given < MAP_MEMORY);
    maps.extend(less.map(|given| (MapPlace::Disk, given)));
    maps
}

/// The refresh ratios to try, in order; `None` leaves it to the kind.
fn refreshes(kind: &SchemeKind, required: &Requirements) -> Vec<Option<(u32, u32)>> {
    if !kind.options.contains(&"refresh") {
        return vec![None];
    }
    // Writing less for twice the space is worth it only to users with both.
    let is_much = required.writes.is_some_and(|writes| writes > MANY_WRITES);
    let least = (is_much && required.space_factor.is_some()).then_some(REFRESH_LEAST);
    let least = least.filter(|_| *kind == DETWO).map(Some);
    least.into_iter().chain([None]).chain(REFRESHES.map(Some)).collect()
}

/// The options of `volume create` that make a scheme.
fn words(scheme: &SharedScheme, choice: &SchemeOptions) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    match choice.refresh {
        Some((p, 1)) => add("--refresh", p.to_string()),
        Some((p, q)) => add("--refresh", format!("{p}/{q}")),
        None => {}
    }
    if let Some(fanout) = choice.fanout {
        add("--fanout", fanout.to_string());
    }
    if let Some(map) = scheme.facts(0).map {
        add("--map", map.to_owned());
    }
    if choice.map_memory != MAP_MEMORY {
        add("--map-memory", size_text(choice.map_memory));
    }
    words
}

fn cost(scheme: &SharedScheme) -> Cost {
    let facts = scheme.facts(0);
    let store_bytes = AREAS_AT + scheme.store_len();
    Cost {
        store_bytes,
        space_factor: store_bytes as f64 / (scheme.blocks() * scheme.block_len() as u64) as f64,
        memory_bytes: facts.map_bytes + facts.buffer_bytes,
        written: Some(scheme.write_amplification()),
        read: None,
        queries: None,
    }
}

/// The first trial that is allowed; or else, of the trials with the first ratio that space is left
/// for, the one that takes least memory.
fn choose(
    kind: &'static SchemeKind,
    mut trials: Vec<VolumeTrial>,
    required: &Requirements,
) -> Option<VolumeSubject> {
    let allowed = trials.iter().position(|trial| trial.is_allowed(required));
    let fits = |trial: &&VolumeTrial| required.allows_space(trial.cost.space_factor);
    let refresh = trials.iter().find(fits).or(trials.first())?.refresh;
    let alike = (0..trials.len()).filter(|&i| trials[i].refresh == refresh);
    let smallest = alike.min_by_key(|&i| trials[i].cost.memory_bytes);
    let trial = trials.swap_remove(allowed.or(smallest)?);
    Some(VolumeSubject { kind, trial, is_allowed: allowed.is_some() })
}

impl VolumeTrial {
    /// Whether memory and space are allowed. Without a limit of memory that of `volume create`
    /// holds, which is for a map in memory alone.
    fn is_allowed(&self, required: &Requirements) -> bool {
        let facts = self.scheme.facts(0);
        let fits = match required.memory {
            Some(most) => self.cost.memory_bytes <= most,
            None => facts.map != Some("memory") || facts.map_bytes <= MAP_BYTES_MAX,
        };
        fits && required.allows_space(self.cost.space_factor)
    }
}

/// All subjects with their reasons, the chosen one first.
fn candidates(
    chosen: &VolumeSubject,
    rest: &[VolumeSubject],
    required: &Requirements,
) -> Vec<Candidate> {
    let row = |subject: &VolumeSubject, reason| Candidate {
        product: "volume",
        scheme: subject.kind.name.to_owned(),
        options: subject.trial.options.clone(),
        cost: subject.trial.cost.clone(),
        reason,
    };
    let first = row(chosen, format!("chosen: {}", merit(chosen.kind)));
    let rest = rest.iter().map(|subject| row(subject, fault(subject, required)));
    [first].into_iter().chain(rest).collect()
}

/// What a kind is good for: docs/volume.md, "Choosing a scheme".
fn merit(kind: &SchemeKind) -> &'static str {
    if *kind == SQ {
        "files stay in order, and small writes at random are fastest"
    } else {
        "it writes least, for much that is written in long runs"
    }
}

/// Why a kind was not chosen.
fn fault(subject: &VolumeSubject, required: &Requirements) -> String {
    let cost = &subject.trial.cost;
    if subject.trial.scheme.hides() == Hides::Nothing {
        "hides contents only: every write shows its address".to_owned()
    } else if subject.trial.scheme.hides() == Hides::ReadsAndWrites {
        "hides reads, too, and moves ten times as much: for a disk that others watch".to_owned()
    } else if !is_recommended(subject.kind) {
        "for comparison: slower, at random places".to_owned()
    } else if !subject.is_allowed {
        let memory = !required.allows_memory(cost.memory_bytes);
        let what = if memory { "memory" } else { "space" };
        format!("takes more {what} than is allowed, however it is made")
    } else if *subject.kind == SQ {
        "writes more; better for small writes at random: --pattern scattered".to_owned()
    } else {
        "small writes at random are slower, and files that are rewritten in places lie apart".into()
    }
}

fn notes(required: &Requirements) -> Vec<String> {
    let reads = match required.watcher {
        Watcher::Copies => {
            "Copies of the disk show no reads. An adversary that observes the disk \
                            at work observes reads, and they are not hidden."
        }
        _ => {
            "Reads are not hidden. An adversary that observes them learns much of the writes, too."
        }
    };
    let pattern = "For small writes at random, as of databases, give --pattern scattered.";
    let mut notes = vec![reads.to_owned()];
    notes.extend(required.pattern.is_none().then(|| pattern.to_owned()));
    notes.push("For a device in place of a file, give its path and --force.".to_owned());
    notes
}

fn commands(chosen: &VolumeSubject, size: u64) -> Vec<CommandLine> {
    let (image, size) = ("volume.img", size_text(size));
    let create = ["volume", "create", image, "--size", &size, "--scheme", chosen.kind.name];
    let create = create.map(str::to_owned).into_iter().chain(chosen.trial.options.clone());
    vec![
        CommandLine::new("make it; asks for a passphrase", create),
        CommandLine::new("mount it, as root", ["volume", "mount", image, "DIR"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;

    fn copies(size: u64) -> Requirements {
        Requirements::new(Watcher::Copies, size)
    }

    fn scattered(size: u64) -> Requirements {
        Requirements { pattern: Some(WritePattern::Scattered), ..copies(size) }
    }

    /// The scheme, and the options that make it.
    fn chosen(required: &Requirements) -> String {
        let proposal = propose(required).unwrap();
        let first = &proposal.candidates[0];
        format!("{} {}", first.scheme, first.options.join(" "))
    }

    #[test]
    fn schemes_turn_at_the_documented_points() {
        let memory = |kib: u64, of: Requirements| Requirements { memory: Some(kib << 10), ..of };
        let space = |most, of: Requirements| Requirements { space_factor: Some(most), ..of };
        let writes = |share, of: Requirements| Requirements { writes: Some(share), ..of };
        let runs = Requirements { pattern: Some(WritePattern::Runs), ..copies(GIB) };
        for (required, expected) in [
            (copies(GIB), "detwo --map memory"),
            (runs, "detwo --map memory"),
            (scattered(GIB), "sq --map memory"),
            // The map takes 8 bytes a block, at most 1G unless --memory says otherwise, and a bit a
            // block for discards.
            (copies(512 * GIB), "detwo --map memory"),
            (copies(513 * GIB), "detwo --map disk"),
            (memory(2 << 20, copies(513 * GIB)), "detwo --map memory"),
            (memory(2081, copies(GIB)), "detwo --map memory"),
            (memory(2080, copies(GIB)), "detwo --map disk"),
            (memory(4, copies(GIB)), "detwo --map disk --map-memory 4K"),
            (memory(90 << 10, scattered(40 * GIB)), "sq --map memory"),
            // Without room for the buffers of `sq` there is `detwo`.
            (memory(2 << 10, scattered(40 * GIB)), "detwo --map disk"),
            (space(2.1, copies(GIB)), "detwo --map memory"),
            (space(2.0, copies(GIB)), "detwo --refresh 3 --map memory"),
            (space(1.3, memory(2100 << 10, copies(TIB))), "detwo --refresh 7 --map memory"),
            (writes(51, space(4.2, copies(GIB))), "detwo --refresh 1/3 --map memory"),
            (writes(51, space(4.0, copies(GIB))), "detwo --map memory"),
            (writes(50, space(4.2, copies(GIB))), "detwo --map memory"),
            (writes(100, copies(GIB)), "detwo --map memory"),
        ] {
            assert_eq!(chosen(&required), expected, "{required:?}");
        }
        // With less memory there are more levels, or the map is on the disk.
        let less = chosen(&memory(30 << 10, scattered(40 * GIB)));
        assert!(less.starts_with("sq ") && less != "sq --map memory", "{less}");
    }

    #[test]
    fn limits_hold_and_the_error_says_what_would_do() {
        for (memory, space_factor) in [(Some(10), None), (None, Some(1.01)), (Some(10), Some(1.01))]
        {
            let wanted = Requirements { memory, space_factor, ..copies(8 * GIB) };
            let enough = match propose(&wanted).unwrap_err() {
                AdviseError::Memory { given, least } => {
                    assert_eq!(Some(given), wanted.memory);
                    Requirements { memory: Some(least), ..wanted }
                }
                AdviseError::Space { given, least } => {
                    assert_eq!(Some(given), wanted.space_factor);
                    Requirements { space_factor: Some(least), memory: None, ..wanted }
                }
                other => panic!("{wanted:?}: {other}"),
            };
            let cost = propose(&enough).unwrap().candidates[0].cost.clone();
            assert!(
                enough.allows_space(cost.space_factor) && enough.allows_memory(cost.memory_bytes)
            );
        }
    }

    #[test]
    fn every_kind_is_compared_and_an_insecure_one_is_never_chosen() {
        let required = Requirements::new(Watcher::DeviceWrites, 40 * GIB);
        let proposal = propose(&required).unwrap();
        let mut schemes: Vec<_> = proposal.candidates.iter().map(|c| c.scheme.as_str()).collect();
        schemes.sort_unstable();
        let mut kinds: Vec<_> = registry::KINDS.iter().map(|kind| kind.name).collect();
        kinds.sort_unstable();
        assert_eq!(schemes, kinds);
        let plain = proposal.candidates.iter().find(|c| c.scheme == "plain").unwrap();
        assert!(plain.reason.contains("contents only"), "{}", plain.reason);
        assert!(proposal.notes.iter().any(|note| note.contains("Reads are not hidden")));
    }
}
