//! Recipes for Homebrew and Nix, which install the archives of a release.

use std::path::PathBuf;

use super::files::{read_text, sha256, write};
use super::platform::Platform;
use super::release::Release;
use super::template::fill;

/// The recipes, below the root.
const RECIPES: [&str; 2] = ["dist/recipes/traceless.rb", "dist/recipes/traceless.nix"];

/// Fills the recipes with the version and the digests of the archives of all processors.
pub fn write_recipes(release: &Release, archives: &[(Platform, PathBuf)]) -> Result<(), String> {
    let digest = |platform: Platform| {
        let archive = archives.iter().find(|(of, _)| *of == platform);
        archive.map(|(_, path)| sha256(path)).transpose()
    };
    let (Some(x86_64), Some(aarch64)) = (digest(Platform::X86_64)?, digest(Platform::Aarch64)?)
    else {
        println!("the recipes for Homebrew and Nix are left out: they name both processors");
        return Ok(());
    };
    for recipe in RECIPES {
        let path = release.root.join(recipe);
        let text = fill(
            &read_text(&path)?,
            &[
                ("VERSION", &release.version),
                ("REPOSITORY", &release.repository),
                ("SHA256_X86_64", &x86_64),
                ("SHA256_AARCH64", &aarch64),
            ],
        )?;
        let name = path.file_name().unwrap_or_default();
        write(&release.out.join(name), text.as_bytes())?;
    }
    Ok(())
}
