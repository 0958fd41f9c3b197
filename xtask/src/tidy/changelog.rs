//! The change log begins with the version that is being made.

use super::Finding;
use super::tree::Tree;

const PATH: &str = "CHANGELOG.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let remedy = "begin with a heading for the version in Cargo.toml, or Unreleased";
    let Some(text) = tree.text(PATH) else {
        return vec![Finding::new(PATH, 1, "no change log", remedy)];
    };
    let version = workspace_version(tree.text("Cargo.toml").unwrap_or_default());
    // The title of the document is not a version.
    let mut headings = text.lines().enumerate().filter(|(_, line)| line.starts_with("## "));
    let Some((index, heading)) = headings.next() else {
        return vec![Finding::new(PATH, 1, "no version", remedy)];
    };
    let first = heading.trim_start_matches("## ").split([' ', ',']).next().unwrap_or_default();
    let first = first.trim_matches(['[', ']']);
    if first == "Unreleased" || version.is_some_and(|version| version == first) {
        return Vec::new();
    }
    vec![Finding::new(PATH, index + 1, format!("begins with {first}"), remedy)]
}

fn workspace_version(manifest: &str) -> Option<String> {
    let manifest: toml::Table = manifest.parse().ok()?;
    let version = manifest.get("workspace")?.get("package")?.get("version")?;
    version.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    const MANIFEST: (&str, &str) = ("Cargo.toml", "[workspace.package]\nversion = \"0.2.0\"\n");

    #[test]
    fn a_log_that_lags_behind_is_found() {
        finds(check, &[MANIFEST], &[("CHANGELOG.md", 1)]);
        for (text, line) in [("# Changes\n\n## 0.1.0\n", 3), ("# Changes\n", 1), ("## 0.2.00\n", 1)]
        {
            finds(check, &[MANIFEST, ("CHANGELOG.md", text)], &[("CHANGELOG.md", line)]);
        }
    }

    #[test]
    fn the_version_and_unreleased_are_fine() {
        for text in ["## Unreleased\n", "# Changes\n\n## [0.2.0] - today\n## 0.1.0\n"] {
            finds(check, &[MANIFEST, ("CHANGELOG.md", text)], &[]);
        }
    }
}
