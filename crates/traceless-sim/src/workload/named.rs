//! Workloads by name.

use super::combined::{Chain, Prefix, Turns};
use super::kernel::{InputSet, Kernel};
use super::open::{Format, open};
use super::synthetic::{Pattern, Synthetic};
use super::table_2::{self, Benchmark, TABLE_2};
use super::{Program, Workload};
use crate::error::{Error, Result};
use std::path::Path;

/// Operations of a turn, for workloads that take turns.
const TURN: u64 = 1000;

/// The first `length` operations of the workload called `name`; the same seed gives the same ones.
///
/// | name | what it is |
/// |---|---|
/// | `uniform`, `sequential`, `stride:N`, `chase`, `zipf:S` | a [`Synthetic`] |
/// | `table-2/mcf` | a [`Benchmark`] |
/// | `kernel/fft`, `radix`, `lu_c`, `lu_nc`, `ocean_c`, `ocean_nc` | a [`Kernel`] |
/// | `A+B@3` | one after the other; here the last three quarters of the operations are B's |
/// | `A\|B\|C` | in turns; a joint length, split evenly |
/// | anything else | the path of a file, as [`open`] takes it |
///
/// Options follow a question mark: `uniform?bytes=64M&write_share=0.5&before=20`,
/// `table-2/mcf?bytes=16M`, `kernel/fft?set=B`, `kernel/radix?size=1000`, `FILE?format=ramulator`.
/// Numbers of bytes may end in K, M or G.
pub fn named(name: &str, length: u64, seed: u64) -> Result<Box<dyn Workload>> {
    if Path::new(name.split('?').next().unwrap_or_default()).is_file() {
        return one(name, length, seed);
    }
    if name.contains('+') {
        return chain(name, length, seed);
    }
    if name.contains('|') {
        let parts: Vec<_> = name.split('|').collect();
        let workloads = parts.iter().zip(shares(length, &vec![1; parts.len()]));
        let workloads = workloads.zip(seed..).map(|((part, length), seed)| one(part, length, seed));
        return Ok(Box::new(Turns::new(workloads.collect::<Result<_>>()?, TURN)));
    }
    one(name, length, seed)
}

/// The programs called `name`, separated by ` & `, each on cores of its own. A kernel has as many
/// threads as its options say, as in `kernel/fft?threads=4`; other names are as for [`named`].
/// Each thread has `length` operations at most.
pub fn programs(name: &str, length: u64, seed: u64) -> Result<Vec<Program>> {
    let is_file = Path::new(name).is_file();
    let parts = if is_file { vec![name] } else { name.split(" & ").map(str::trim).collect() };
    parts.into_iter().zip(seed..).map(|(part, seed)| program(part, length, seed)).collect()
}

fn program(name: &str, length: u64, seed: u64) -> Result<Program> {
    let (kind, choices) = split(name);
    let Some(kernel) = kind.strip_prefix("kernel/").filter(|_| !name.contains(['+', '|'])) else {
        return Ok(named(name, length, seed)?.into());
    };
    let threads = self::kernel(name, kernel, &choices, seed)?;
    let limited = |thread| Box::new(Prefix::new(thread, length)) as Box<dyn Workload>;
    Ok(Program { threads: threads.into_iter().map(limited).collect() })
}

/// Splits a name into its kind and its options.
fn split(name: &str) -> (&str, Vec<(&str, &str)>) {
    let (kind, choices) = name.split_once('?').unwrap_or((name, ""));
    let choices = choices.split('&').filter(|choice| !choice.is_empty());
    (kind, choices.map(|choice| choice.split_once('=').unwrap_or((choice, ""))).collect())
}

fn chain(name: &str, length: u64, seed: u64) -> Result<Box<dyn Workload>> {
    let mut parts = vec![];
    let mut weights = vec![];
    for part in name.split('+') {
        let (part, weight) = part.rsplit_once('@').unwrap_or((part, "1"));
        let weight: u32 =
            weight.parse().map_err(|_| refused(name, "what follows @ is no number"))?;
        parts.push(part);
        weights.push(u64::from(weight));
    }
    let workloads = parts.into_iter().zip(shares(length, &weights)).zip(seed..);
    let workloads = workloads.map(|((part, length), seed)| named(part, length, seed));
    Ok(Box::new(Chain::new(workloads.collect::<Result<_>>()?)))
}

/// `length` split in these proportions.
fn shares(length: u64, weights: &[u64]) -> Vec<u64> {
    let all = u128::from(weights.iter().sum::<u64>().max(1));
    let until = |sum: u64| (u128::from(length) * u128::from(sum) / all) as u64;
    let mut sum = 0;
    let share = |&weight| {
        let before = until(sum);
        sum += weight;
        until(sum) - before
    };
    weights.iter().map(share).collect()
}

fn one(name: &str, length: u64, seed: u64) -> Result<Box<dyn Workload>> {
    let (kind, choices) = split(name);
    let workload: Box<dyn Workload> = if let Some(benchmark) = kind.strip_prefix("table-2/") {
        let (nth, benchmark) = Benchmark::named(benchmark)
            .ok_or_else(|| refused(name, &one_of(TABLE_2.map(|benchmark| benchmark.name))))?;
        Box::new(benchmark.program(nth, &table_2_options(name, &choices)?, seed)?)
    } else if let Some(kernel) = kind.strip_prefix("kernel/") {
        let mut threads = self::kernel(name, kernel, &choices, seed)?;
        match (threads.pop(), threads.is_empty()) {
            (Some(workload), true) => workload,
            _ => return Err(refused(name, "several threads take as many cores")),
        }
    } else if let Ok(pattern) = kind.parse::<Pattern>() {
        Box::new(synthetic(name, pattern, &choices)?.records(seed)?)
    } else {
        let format = match choices[..] {
            [] => None,
            [("format", format)] => Some(file_format(name, format)?),
            _ => return Err(refused(name, "of a file only its format can be chosen")),
        };
        let path = Path::new(kind);
        if !path.exists() {
            let what = "it is neither a file nor uniform, sequential, stride:N, chase, zipf:S, \
                        table-2/NAME or kernel/NAME";
            return Err(refused(name, what));
        }
        open(path, format)?
    };
    Ok(Box::new(Prefix::new(workload, length)))
}

/// The threads of a kernel.
fn kernel(
    name: &str,
    kernel: &str,
    choices: &[(&str, &str)],
    seed: u64,
) -> Result<Vec<Box<dyn Workload>>> {
    let (mut set, mut size, mut threads) = (InputSet::A, None, 1);
    for (key, value) in choices {
        let number = || value.parse().map_err(|_| refused(name, "a value is no number"));
        match (*key, *value) {
            ("set", "A") => set = InputSet::A,
            ("set", "B") => set = InputSet::B,
            ("size", _) => size = Some(number()?),
            ("threads", _) => threads = number()?,
            _ => {
                let what = "of a kernel only set=A or set=B, size and threads can be chosen";
                return Err(refused(name, what));
            }
        }
    }
    let kernel = match size {
        None => Kernel::named(kernel, set),
        Some(size) => Kernel::sized(kernel, size),
    };
    let kernel = kernel.ok_or_else(|| {
        let what = "kernels are fft, radix, lu_c, lu_nc, ocean_c and ocean_nc, of a size that \
                    docs/workloads.md allows";
        refused(name, what)
    })?;
    kernel.workloads(threads, seed)
}

fn table_2_options(name: &str, choices: &[(&str, &str)]) -> Result<table_2::Options> {
    let mut options = table_2::Options::default();
    for (key, value) in choices {
        match *key {
            "bytes" => options.bytes = bytes(name, value)?,
            _ => return Err(refused(name, "of a benchmark only bytes can be chosen")),
        }
    }
    Ok(options)
}

fn synthetic(name: &str, pattern: Pattern, choices: &[(&str, &str)]) -> Result<Synthetic> {
    let mut made_up = Synthetic::new(pattern);
    for (key, value) in choices {
        let fail = || refused(name, "a value is no number");
        match *key {
            "bytes" => made_up.bytes = bytes(name, value)?,
            "write_share" => made_up.write_share = value.parse().map_err(|_| fail())?,
            "before" => made_up.before = value.parse().map_err(|_| fail())?,
            _ => return Err(refused(name, "only bytes, write_share and before can be chosen")),
        }
    }
    Ok(made_up)
}

fn file_format(name: &str, format: &str) -> Result<Format> {
    Format::named(format).ok_or_else(|| refused(name, "there is no such format"))
}

/// A number of bytes; K, M and G are units of 2^10, 2^20 and 2^30.
fn bytes(name: &str, text: &str) -> Result<u64> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits.parse().ok().and_then(|number: u64| number.checked_mul(1 << shift));
    number.ok_or_else(|| refused(name, "a number of bytes is none, or too large"))
}

fn one_of<const N: usize>(names: [&str; N]) -> String {
    format!("there are {}", names.join(", "))
}

fn refused(name: &str, what: &str) -> Error {
    Error::Name { name: name.to_owned(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{PackedWriter, Record};

    fn records(name: &str, length: u64) -> Vec<Record> {
        let mut workload = named(name, length, 1).unwrap();
        std::iter::from_fn(|| workload.next().unwrap()).collect()
    }

    #[test]
    fn names_lead_to_what_they_name() {
        for name in ["uniform", "sequential", "stride:3", "chase", "zipf:0.8", "table-2/mcf"] {
            assert_eq!(records(name, 100).len(), 100, "{name}");
            assert_eq!(records(name, 50), records(name, 100)[..50], "{name}");
        }
        let small = records("uniform?bytes=1K&write_share=1&before=7", 1000);
        assert!(small.iter().all(|record| record.addr < 1024 && record.before == 7));
        let small = records("table-2/gcc?bytes=4M", 10_000);
        assert_ne!(small, records("table-2/gcc", 10_000));
    }

    #[test]
    fn parts_have_the_length_that_they_are_given() {
        let both = records("sequential+chase?bytes=1M@3", 100);
        assert_eq!(both.len(), 100);
        assert_eq!(both[..25], records("sequential", 25));
        let turns = records("sequential|sequential|chase", 10);
        assert_eq!(turns.len(), 10);
        assert_eq!(shares(10, &[1, 1, 1]), [3, 3, 4]);
        assert_eq!(shares(u64::MAX, &[1, 0]), [u64::MAX, 0]);
    }

    #[test]
    fn a_file_is_named_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a+b.workload");
        let mut writer = PackedWriter::new(std::fs::File::create(&path).unwrap()).unwrap();
        let written = records("uniform", 20);
        for record in &written {
            writer.append(*record).unwrap();
        }
        writer.finish().unwrap();
        let name = path.to_str().unwrap();
        assert_eq!(records(name, 100), written);
        assert_eq!(records(name, 5), written[..5]);
        assert_eq!(records(&format!("{name}?format=packed"), 5), written[..5]);
        assert!(named(&format!("{name}?format=none"), 5, 1).is_err());
        assert!(named(&format!("{name}?bytes=1"), 5, 1).is_err());
    }

    #[test]
    fn programs_have_cores_of_their_own() {
        let threads = |name: &str| -> Vec<usize> {
            let programs = programs(name, 10, 1).unwrap();
            programs.iter().map(|program| program.threads.len()).collect()
        };
        assert_eq!(threads("uniform?bytes=1M&before=7"), [1]);
        assert_eq!(threads("uniform & kernel/ocean_nc?set=A&threads=4 & chase+uniform"), [1, 4, 1]);
        assert_eq!(threads("kernel/radix?threads=3&size=100"), [3]);
        for wrong in ["uniform & ", "uniform & unifrom", "kernel/ocean_c?threads=3"] {
            assert!(programs(wrong, 10, 1).is_err(), "{wrong}");
        }
        let mut kernel = programs("kernel/radix?threads=2", 10, 1).unwrap().remove(0);
        let mut thread = kernel.threads.remove(1);
        assert_eq!(std::iter::from_fn(|| thread.next().unwrap()).count(), 10);
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_kinds() {
        let error_of = |name| named(name, 10, 1).map(|_| ()).unwrap_err().to_string();
        let kinds =
            ["uniform", "sequential", "stride:N", "chase", "zipf:S", "table-2/NAME", "kernel/NAME"];
        for kind in kinds {
            assert!(error_of("unifrom").contains(kind), "{kind}");
        }
        assert!(error_of("table-2/none").contains("gcc, mcf"), "{}", error_of("table-2/none"));
        assert!(error_of("kernel/none").contains("ocean_nc"), "{}", error_of("kernel/none"));
    }

    #[test]
    fn what_nothing_is_called_is_refused() {
        for name in [
            "",
            "unifrom",
            "table-2/",
            "table-2/none",
            "stride:0",
            "uniform?bytes=1",
            "chase+",
            "uniform?bytes=x",
            "uniform?colour=1",
            "uniform?before=-1",
            "table-2/mcf?before=1",
            "table-2/mcf?bytes=1M",
            "kernel/none",
            "kernel/fft?set=C",
            "kernel/fft?threads=4",
            "kernel/fft?threads=x",
            "kernel/fft?size=1000",
            "kernel/lu_c?size=x",
            "table-2/mcf?bytes=1G",
            "uniform@2",
            "uniform+chase@x",
            "uniform?bytes=99999999999G",
        ] {
            assert!(named(name, 10, 1).is_err(), "{name}");
        }
    }
}
