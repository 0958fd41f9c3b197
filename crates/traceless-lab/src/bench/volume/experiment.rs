//! The files of `experiments/sqoram`: each is a figure or table of a paper, as settings of `bench
//! volume`. They have neither variants nor claims: the suite reports the paper's numbers itself.

use crate::args::{BenchSuite, Device, Interface, VolumeBenchArgs};
use serde::Deserialize;
use std::path::Path;
use traceless_cli::args::parse_size;
use traceless_cli::failure::Failure;
use traceless_sim::experiment::Error;
use traceless_sim::experiment::toml_file::read_table;

/// The settings in a file. A setting that is left out keeps its default.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct VolumeExperiment {
    #[serde(rename = "title")]
    _title: Option<String>,
    suite: Option<BenchSuite>,
    only: Option<OneOrMore<String>>,
    subject: Option<OneOrMore<String>>,
    on: Option<OneOrMore<Interface>>,
    device: Option<Device>,
    file_size: Option<Size>,
    volume_size: Option<Size>,
    disk_size: Option<Size>,
    repeat: Option<u32>,
    requests: Option<u64>,
}

/// A value, or a list of them.
#[derive(Deserialize, Debug)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

/// Bytes, as a number or as on the command line.
#[derive(Deserialize, Debug)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Text(String),
}

impl OneOrMore<String> {
    /// The names, of which one string may have several, as on the command line.
    fn into_names(self) -> Vec<String> {
        let values = self.into_vec().into_iter();
        values.flat_map(|value| value.split(',').map(str::to_owned).collect::<Vec<_>>()).collect()
    }
}

impl<T> OneOrMore<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value],
            Self::More(values) => values,
        }
    }
}

impl Size {
    fn bytes(self) -> Result<u64, String> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Text(text) => parse_size(&text),
        }
    }
}

/// The settings in the file at `path`, and everything else from `args`. `--quick` overrides the
/// size of the file and the number of rounds.
pub fn read(path: &Path, args: &VolumeBenchArgs) -> Result<VolumeBenchArgs, Failure> {
    // The file is an argument: what is wrong with it is wrong with the command line.
    let table = read_table(path).map_err(Failure::usage)?;
    let experiment = table.try_into().map_err(|e| Error::invalid(path, &e))?;
    merge(experiment, args).map_err(|what| Error::invalid(path, &what).into())
}

fn merge(experiment: VolumeExperiment, args: &VolumeBenchArgs) -> Result<VolumeBenchArgs, String> {
    let VolumeExperiment { device, file_size, repeat, requests, .. } = experiment;
    if device.is_some() && experiment.on.is_some() {
        return Err("`on` is for this machine's disk, not for the model of `device`".to_owned());
    }
    if device.is_none() && experiment.disk_size.is_some() {
        return Err("`disk-size` is for the model of `device`".to_owned());
    }
    if repeat.is_some_and(|rounds| !(1..=1000).contains(&rounds)) || requests == Some(0) {
        return Err("`repeat` is 1 to 1000, and `requests` is one or more".to_owned());
    }
    let mut merged = args.clone();
    merged.suite = experiment.suite.unwrap_or(args.suite);
    merged.only = experiment.only.map_or_else(Vec::new, OneOrMore::into_names);
    let sizes = &mut merged.sizes;
    sizes.subject = experiment.subject.map_or_else(Vec::new, OneOrMore::into_names);
    sizes.on = experiment.on.map_or_else(|| sizes.on.clone(), OneOrMore::into_vec);
    sizes.device = device;
    sizes.volume_size = experiment.volume_size.map(Size::bytes).transpose()?;
    sizes.disk_size = experiment.disk_size.map(Size::bytes).transpose()?;
    sizes.requests = requests.unwrap_or(sizes.requests);
    let file_size = file_size.map(Size::bytes).transpose()?;
    (sizes.file_size, sizes.repeat) = if args.quick { (None, None) } else { (file_size, repeat) };
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::experiment::testing::folder;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: VolumeBenchArgs,
    }

    fn args(words: &[&str]) -> VolumeBenchArgs {
        Line::parse_from(["volume"].iter().chain(words)).args
    }

    fn merged(text: &str, words: &[&str]) -> Result<VolumeBenchArgs, String> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
        merge(table.try_into().map_err(|e: toml::de::Error| e.to_string())?, &args(words))
    }

    #[test]
    fn keys_are_settings() {
        let text = "title = \"x\"\nsuite = \"sqoram\"\nrepeat = 3\nfile-size = \"1G\"\n\
                    subject = [\"sq\", \"hive\"]\non = \"ext4\"\n";
        let VolumeBenchArgs { suite, sizes, .. } = merged(text, &[]).unwrap();
        assert_eq!((suite, sizes.repeat), (BenchSuite::Sqoram, Some(3)));
        assert_eq!((sizes.file_size, sizes.on), (Some(1 << 30), vec![Interface::Ext4]));
        assert_eq!(sizes.subject, ["sq", "hive"]);
        assert_eq!(merged("subject = \"sq,hive\"", &[]).unwrap().sizes.subject, sizes.subject);
        let quick = merged(text, &["--quick"]).unwrap();
        assert!(quick.quick && quick.sizes.repeat.is_none() && quick.sizes.file_size.is_none());
    }

    #[test]
    fn unknown_keys_and_contradictions_are_refused() {
        let texts = [
            "elevator = true",
            "no toml",
            "device = \"hdd\"\non = \"raw\"",
            "disk-size = 1",
            "repeat = 0",
            "file-size = \"1X\"",
            "suite = \"none\"",
        ];
        for text in texts {
            assert!(merged(text, &[]).is_err(), "{text}");
        }
    }

    #[test]
    fn every_file_can_be_run() {
        let files: Vec<_> = std::fs::read_dir(folder("sqoram")).unwrap().collect();
        assert!(files.len() >= 4);
        for file in files {
            let merged = read(&file.unwrap().path(), &args(&[])).unwrap();
            assert_eq!(merged.suite, BenchSuite::Sqoram);
            assert!(!merged.sizes.subject.is_empty() && !merged.only.is_empty());
        }
    }
}
