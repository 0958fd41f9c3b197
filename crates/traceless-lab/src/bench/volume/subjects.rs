//! The compared subjects: schemes with their parameters, as arguments of `volume create`.

use clap::Parser;
use clap::error::ErrorKind;
use std::sync::Arc;
use traceless::scheme::contract::BlockScheme;
use traceless_cli::args::CreateArgs;
use traceless_cli::failure::Failure;
use traceless_cli::volume::create;
use traceless_volume::format::AREAS_AT;

/// The command line of `volume create`.
#[derive(Parser)]
struct CreateLine {
    #[command(flatten)]
    create: CreateArgs,
}

/// The control that every ratio is taken against.
pub const CONTROL: &str = "plain";

/// A scheme to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeSubject {
    pub name: &'static str,
    /// Arguments of `volume create`.
    pub create: &'static [&'static str],
    /// Whether it is measured if the command line names no subject.
    pub is_default: bool,
}

const fn default_subject(name: &'static str, create: &'static [&'static str]) -> VolumeSubject {
    VolumeSubject { name, create, is_default: true }
}

const fn optional_subject(name: &'static str, create: &'static [&'static str]) -> VolumeSubject {
    VolumeSubject { name, create, is_default: false }
}

/// Every subject, the control first.
pub const SUBJECTS: [VolumeSubject; 12] = [
    default_subject(CONTROL, &["--scheme", "plain"]),
    default_subject("detwo", &["--scheme", "detwo", "--refresh", "1"]),
    // As in the paper: the holding area is three times as large as the main area.
    default_subject("detwo-1/3", &["--scheme", "detwo", "--refresh", "1/3"]),
    default_subject("sq", &["--scheme", "sq"]),
    default_subject("sq-map-disk", &["--scheme", "sq", "--map", "disk"]),
    default_subject(
        "sq-paper",
        &["--scheme", "sq", "--fanout", "2", "--bucket", "256", "--refresh", "1"],
    ),
    default_subject("hive", &["--scheme", "hive"]),
    default_subject("datalair", &["--scheme", "datalair"]),
    optional_subject("ring", &["--scheme", "ring"]),
    optional_subject("detwo-map-disk", &["--scheme", "detwo", "--refresh", "1", "--map", "disk"]),
    optional_subject("sq-amortized", &["--scheme", "sq", "--amortized"]),
    optional_subject(
        "sq-paper-cadence",
        &[
            "--scheme",
            "sq",
            "--fanout",
            "2",
            "--bucket",
            "256",
            "--refresh",
            "1",
            "--cadence",
            "paper",
            "--insecure",
        ],
    ),
];

/// The reason why a subject of another build cannot be measured.
pub const NOT_IN_THIS_BUILD: &str = "not in this build";

impl VolumeSubject {
    pub fn find(name: &str) -> Option<Self> {
        SUBJECTS.into_iter().find(|subject| subject.name == name)
    }

    /// The subject that the command line names.
    pub fn parse(name: &str) -> Result<Self, Failure> {
        Self::find(name).ok_or_else(|| {
            let names: Vec<&str> = SUBJECTS.iter().map(|subject| subject.name).collect();
            let names = names.join(", ");
            Failure::usage(format!("no subject is called {name}; there are {names}"))
        })
    }

    /// The same scheme with its map on the disk, if that is listed.
    pub fn with_map_on_disk(self) -> Option<Self> {
        Self::find(&format!("{}-map-disk", self.name))
    }

    /// The subject's name in a form that is valid for files.
    pub fn file_name(self) -> String {
        self.name.replace('/', "-")
    }

    /// The scheme of a volume of `bytes` bytes, or the reason why there is none.
    pub fn scheme(self, bytes: u64) -> Result<Arc<dyn BlockScheme>, String> {
        create::scheme(&self.create_args(bytes)?).map_err(|e| e.message)
    }

    /// Bytes of the image of a volume of `bytes` bytes.
    pub fn image_len(self, bytes: u64) -> Result<u64, String> {
        Ok(AREAS_AT + self.scheme(bytes)?.store_len())
    }

    fn create_args(self, bytes: u64) -> Result<CreateArgs, String> {
        let size = bytes.to_string();
        let words = ["volume create", "image", "--size", &size];
        match CreateLine::try_parse_from(words.iter().chain(self.create)) {
            Ok(CreateLine { create }) => Ok(create),
            Err(e) if matches!(e.kind(), ErrorKind::InvalidValue | ErrorKind::UnknownArgument) => {
                Err(NOT_IN_THIS_BUILD.to_owned())
            }
            Err(e) => Err(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_this_build_have_a_scheme_and_the_rest_a_reason() {
        for subject in SUBJECTS {
            match subject.scheme(64 << 20) {
                Ok(scheme) => assert_eq!(scheme.blocks(), (64 << 20) / 4096, "{}", subject.name),
                Err(why) => assert_eq!(why, NOT_IN_THIS_BUILD, "{}", subject.name),
            }
        }
        let [control, detwo, ..] = SUBJECTS;
        assert!(control.image_len(1 << 20).unwrap() < detwo.image_len(1 << 20).unwrap());
        let unknown = VolumeSubject { create: &["--scheme", "none"], ..control };
        assert_eq!(unknown.scheme(1 << 20).unwrap_err(), NOT_IN_THIS_BUILD);
        let refused = VolumeSubject { create: &["--scheme", "detwo", "--refresh", "0"], ..control };
        assert_ne!(refused.scheme(1 << 20).unwrap_err(), NOT_IN_THIS_BUILD);
    }

    #[test]
    fn names_are_found_and_valid_for_files() {
        assert_eq!(VolumeSubject::find("detwo-1/3").unwrap().file_name(), "detwo-1-3");
        assert_eq!(VolumeSubject::find("none"), None);
        let sq = VolumeSubject::find("sq").unwrap();
        assert_eq!(sq.with_map_on_disk().unwrap().name, "sq-map-disk");
        assert_eq!(VolumeSubject::find("hive").unwrap().with_map_on_disk(), None);
    }
}
