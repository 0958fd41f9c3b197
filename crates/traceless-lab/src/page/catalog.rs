//! `experiments/papers.toml`: the figures and tables of the papers, and the verdicts on them.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use traceless_sim::experiment::toml_file::{check_unique, parse_file};
use traceless_sim::experiment::{Error, Result};

/// All papers, and the audits beside them.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    #[serde(rename = "paper")]
    pub papers: Vec<Paper>,
    #[serde(rename = "audit")]
    pub audits: Vec<AuditGroup>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    pub name: String,
    /// Authors, title and year.
    pub work: String,
    /// The folder of its experiments.
    pub folder: String,
    pub runner: RunnerKind,
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
}

/// The command that makes the experiments of a paper.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum RunnerKind {
    Simulator,
    Pager,
    Volume,
    Cloud,
}

/// A figure, table or section of a paper, as one experiment has it.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The experiment's file in the paper's folder, without its ending.
    pub file: String,
    pub place: String,
    pub verdict: FigureVerdict,
    /// The reason of the verdict.
    pub why: String,
    /// The results of level full, and the paper's.
    pub measured: String,
    /// Minutes that level full takes on two processors, about.
    pub minutes: f64,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum FigureVerdict {
    Holds,
    /// It holds, but only under a condition.
    Condition,
    Fails,
    /// No paper claims it.
    Ours,
}

/// Schemes of one audit, of which the same is expected.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct AuditGroup {
    /// The subcommand of `traceless-lab audit`.
    pub target: String,
    pub schemes: Vec<String>,
    /// Whether they are known to leak: then they are among the planted faults of their target.
    #[serde(default)]
    pub leaks: bool,
    /// The name of the scheme among the planted faults, if it is not the scheme's own.
    pub fault: Option<String>,
    /// Minutes that a command of the audit takes at level release, about; where a leak is expected
    /// it has no command of its own.
    #[serde(default)]
    pub minutes: f64,
    /// The reason, where a leak is expected.
    #[serde(default)]
    pub why: String,
}

impl FigureVerdict {
    pub const ALL: [Self; 4] = [Self::Holds, Self::Condition, Self::Fails, Self::Ours];

    pub fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Condition => "holds under a condition",
            Self::Fails => "does not hold",
            Self::Ours => "not in the paper",
        }
    }

    /// The class of its elements.
    pub fn class(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Condition => "condition",
            Self::Fails => "fails",
            Self::Ours => "ours",
        }
    }
}

impl Catalog {
    /// The catalog of the checkout in `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join("experiments/papers.toml");
        let catalog: Self = parse_file(&path)?.try_into().map_err(|e| Error::invalid(&path, &e))?;
        catalog.check(root).map_err(|what| Error::invalid(&path, &what))?;
        Ok(catalog)
    }

    fn check(&self, root: &Path) -> std::result::Result<(), String> {
        let ids: Vec<String> = self.papers.iter().flat_map(Paper::ids).collect();
        check_unique("figure", &ids.iter().map(String::as_str).collect::<Vec<_>>())?;
        for paper in &self.papers {
            for figure in &paper.figures {
                let path = paper.path(root, figure);
                if !path.is_file() {
                    return Err(format!("figure: {} does not exist", path.display()));
                }
                if figure.why.is_empty() || figure.measured.is_empty() {
                    return Err(format!("{}: a verdict has a reason", figure.file));
                }
                if figure.minutes <= 0.0 {
                    return Err(format!("{}: how many minutes level full takes", figure.file));
                }
            }
        }
        let untimed = self.audits.iter().find(|audit| audit.leaks != (audit.minutes <= 0.0));
        untimed.map_or(Ok(()), |audit| {
            Err(format!("{}: how many minutes level release takes", audit.target))
        })
    }
}

impl Paper {
    pub fn path(&self, root: &Path, figure: &Figure) -> PathBuf {
        root.join("experiments").join(&self.folder).join(format!("{}.toml", figure.file))
    }

    /// The name of a figure on the command line and on the page.
    pub fn id(&self, figure: &Figure) -> String {
        format!("{}/{}", self.folder, figure.file)
    }

    fn ids(&self) -> impl Iterator<Item = String> {
        self.figures.iter().map(|figure| self.id(figure))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::args::audit;
    use std::collections::BTreeSet;
    use std::fs;
    use traceless_sim::experiment::toml_file::read_table;

    pub fn checkout() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn every_experiment_is_in_the_catalog() {
        let root = checkout();
        let catalog = Catalog::read(&root).unwrap();
        for paper in &catalog.papers {
            let folder = root.join("experiments").join(&paper.folder);
            let files: BTreeSet<String> = fs::read_dir(&folder)
                .unwrap()
                .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                // The base of the paging experiments, which is no figure.
                .filter(|name| name != "programs")
                .collect();
            let named: BTreeSet<String> = paper.figures.iter().map(|f| f.file.clone()).collect();
            assert_eq!(named, files, "{}", paper.name);
        }
    }

    #[test]
    fn places_agree_with_the_experiments() {
        let root = checkout();
        for paper in Catalog::read(&root).unwrap().papers {
            for figure in &paper.figures {
                let table = read_table(&paper.path(&root, figure)).unwrap();
                let Some(place) = table.get("place") else { continue };
                if figure.verdict != FigureVerdict::Ours {
                    let place = place.as_str().unwrap();
                    assert!(place.starts_with(&figure.place), "{place}: {}", figure.place);
                }
            }
        }
    }

    /// The number in a word, without the letter of a part.
    fn number(word: &str) -> Option<&str> {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let digits = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let is_roman = ["I", "II", "III"].contains(&digits);
        (is_roman || digits.parse::<u32>().is_ok()).then_some(digits)
    }

    /// The figures and tables by number that a text names: `Figures 2, 5 and 6` are three.
    fn places(text: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for kind in ["Figure", "Table"] {
            for (at, _) in text.match_indices(kind) {
                let after = &text[at + kind.len()..];
                let several = after.strip_prefix('s');
                for word in several.unwrap_or(after).split_whitespace() {
                    match number(word) {
                        Some(number) => _ = found.insert(format!("{kind} {number}")),
                        None if several.is_some() && ["and", "to"].contains(&word) => continue,
                        None => break,
                    }
                    if several.is_none() {
                        break;
                    }
                }
            }
        }
        found
    }

    /// Every figure that a claim of docs/papers.md is about, paper by paper.
    #[test]
    fn every_figure_of_the_document_is_in_the_catalog() {
        let root = checkout();
        let text = fs::read_to_string(root.join("docs/papers.md")).unwrap();
        let catalog = Catalog::read(&root).unwrap();
        let of_tables = |header: &str| {
            let tables = text.split("\n\n").filter(|part| part.starts_with(header));
            let claims = tables.flat_map(str::lines).filter_map(|row| row.split('|').nth(1));
            claims.flat_map(places).collect::<BTreeSet<_>>()
        };
        let headers =
            [("| IR-ORAM | here", 10), ("| unified ORAM | here", 9), ("| claim | here", 0)];
        let sources = headers.map(|(header, _)| of_tables(header));
        let named = |name: &str| {
            let paper = catalog.papers.iter().find(|paper| paper.name == name).unwrap();
            let all = paper.figures.iter().flat_map(|figure| places(&figure.place));
            all.collect::<BTreeSet<_>>()
        };
        for ((_, least), (places, name)) in
            headers.iter().zip(sources.iter().zip(["IR-ORAM", "unified ORAM"]))
        {
            assert!(places.len() >= *least, "{name}: {places:?}");
            assert_eq!(places.difference(&named(name)).collect::<Vec<_>>(), [""; 0], "{name}");
        }
        // One kind of table for two papers: Arabic numbers and Roman ones.
        let both: BTreeSet<_> =
            named("paging paper").union(&named("gateway paper")).cloned().collect();
        assert_eq!(sources[2].difference(&both).collect::<Vec<_>>(), [""; 0]);
        for (name, words) in
            [("SqORAM", "SqORAM, section 7"), ("gateway paper", "gateway paper, VI:")]
        {
            let row = text.lines().find(|row| row.starts_with(&format!("| {words}"))).unwrap();
            let claimed = places(row.split('|').nth(1).unwrap());
            assert!(claimed.len() > 1, "{claimed:?}");
            assert_eq!(claimed.difference(&named(name)).collect::<Vec<_>>(), [""; 0], "{name}");
        }
    }

    #[test]
    fn places_are_numbers_after_their_kind() {
        let expected =
            |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(places("Figures 2, 5 and 6"), expected(&["Figure 2", "Figure 5", "Figure 6"]));
        assert_eq!(places("Figure 4b; Table II"), expected(&["Figure 4", "Table II"]));
        assert_eq!(places("the Figures of all"), expected(&[]));
    }

    /// All that the command line can audit, but for planted faults.
    #[test]
    fn every_scheme_is_audited() {
        let catalog = Catalog::read(&checkout()).unwrap();
        let volumes = audit::volume_schemes();
        let lists: [(&str, &[&str]); 7] = [
            ("volume", &volumes),
            ("tree", &audit::TREE_SCHEMES),
            ("pager", &audit::PAGER_SCHEMES),
            ("cloud", &audit::CLOUD_PARTS),
            ("deniable", &audit::DENIABLE_USERS),
            ("sim", &audit::SIM_SCHEMES),
            ("timing", &audit::TIMED),
        ];
        for (target, all) in lists {
            let named: BTreeSet<&str> = catalog
                .audits
                .iter()
                .filter(|group| group.target == target)
                .flat_map(|group| group.schemes.iter().map(String::as_str))
                .collect();
            let sound = all.iter().copied().filter(|name| !name.starts_with("mutant:"));
            assert_eq!(named, sound.collect(), "{target}");
        }
    }

    #[test]
    fn a_catalog_without_its_files_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("experiments");
        fs::create_dir(&folder).unwrap();
        let text = fs::read_to_string(checkout().join("experiments/papers.toml")).unwrap();
        for (text, named) in [(text.as_str(), "does not exist"), ("figures = 1", "unknown field")] {
            fs::write(folder.join("papers.toml"), text).unwrap();
            let error = Catalog::read(root.path()).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
