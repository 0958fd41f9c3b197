//! Gateway, host and a simulated enclave in one process, and all they keep in one folder.
//!
//! The enclave is the same code as in a protected one, and protects nothing: whoever may look into
//! this process sees all of it.

use crate::error::{Error, Result};
use crate::gateway::{Gateway, Home, Keys};
use crate::host::InProcess;
use crate::kernel::Choice;
use crate::params::Params;
use crate::store::{Durability, FileStore};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless::rng::{Rng, Seeded, System};
use traceless::seal::Secret;

/// What lies where in a folder.
pub struct Local {
    folder: PathBuf,
    /// The master key; nothing for the one that lies beside the data.
    key_file: Option<PathBuf>,
}

impl Local {
    /// A folder, and a file with the master key if it shall not lie beside the data.
    pub fn new(folder: &Path, key_file: Option<&Path>) -> Self {
        Self { folder: folder.to_owned(), key_file: key_file.map(Path::to_owned) }
    }

    /// Whether the key lies beside the data, so that whoever takes the folder can read it.
    pub fn key_is_beside(&self) -> bool {
        self.key_file.is_none()
    }

    /// The file of S3 access keys in the folder, with one key that is drawn if there is no file.
    #[cfg(feature = "http")]
    pub fn s3_keys(&self) -> Result<PathBuf> {
        let home = self.home()?;
        let path = home.join("s3-keys");
        if !path.exists() {
            let drawn = crate::s3::Keys::draw(&mut System);
            write_secret(&path, drawn.as_bytes())?;
        }
        Ok(path)
    }

    /// Opens the tree, or makes one.
    pub fn open(&self, params: Params, choice: Choice, durability: Durability) -> Result<Gateway> {
        let home = self.home()?;
        let mut rng = Seeded::drawn(&mut System);
        let master = match &self.key_file {
            Some(path) => read_secret(path)?,
            None => secret_at(&home.join("key"), &mut rng)?,
        };
        let tree = secret_at(&home.join("tree"), &mut rng)?;
        let tree = tree.bytes().first_chunk().expect("a half of it");
        let keys = Keys::new(&master, tree);
        let store = FileStore::open(&self.folder.join("host"), params.geometry, durability)?;
        let mut nonce = [0; 16];
        rng.fill(&mut nonce);
        let shared = keys.shared(&params, choice);
        let (host, own) = InProcess::start(&shared, store, &nonce, &mut rng)?;
        let home = Home { folder: &home.join("state"), durability };
        let session = (&nonce, &own);
        Gateway::open(params, &keys, choice, Arc::new(host), session, Some(&home), Box::new(rng))
    }

    /// The gateway's own folder.
    fn home(&self) -> Result<PathBuf> {
        let home = self.folder.join("gateway");
        DirBuilder::new().recursive(true).mode(0o700).create(&home)?;
        Ok(home)
    }
}

/// The random bytes in a file that only its owner reads, which are drawn if there is none.
fn secret_at(path: &Path, rng: &mut dyn Rng) -> Result<Secret> {
    if !path.exists() {
        write_secret(path, Secret::random(rng).bytes())?;
    }
    read_secret(path)
}

/// Writes a file that only its owner reads, as a whole or not at all.
fn write_secret(path: &Path, bytes: &[u8]) -> Result {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    Ok(())
}

fn read_secret(path: &Path) -> Result<Secret> {
    let bytes = std::fs::read(path)?;
    let key = bytes.try_into().map_err(|_| Error::Parameters("a key file has 32 bytes"))?;
    Ok(Secret::from_bytes(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_opens_again_under_its_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let params = Params::new(500, 64, 4).unwrap();
        let local = Local::new(folder.path(), None);
        let open = |local: &Local| local.open(params, Choice::Benes, Durability::Process);
        for version in 0..3_u8 {
            let mut gateway = open(&local).unwrap();
            for i in 0..200_u8 {
                let value = gateway.load(&[i]).unwrap();
                assert!(version == 0 || value.unwrap() == [version - 1; 70]);
                gateway.store(&[i], &[version; 70], b"").unwrap();
            }
        }
        let other = folder.path().join("other key");
        std::fs::write(&other, [1; 32]).unwrap();
        assert!(open(&Local::new(folder.path(), Some(&other))).is_err());
        std::fs::write(&other, [1; 31]).unwrap();
        let short = open(&Local::new(folder.path(), Some(&other)));
        assert!(matches!(short, Err(Error::Parameters(_))));
        assert!(local.key_is_beside() && open(&local).is_ok());
    }

    #[cfg(feature = "http")]
    #[test]
    fn access_keys_are_drawn_once_and_for_the_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let local = Local::new(folder.path(), None);
        let path = local.s3_keys().unwrap();
        let text = std::fs::read(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(crate::s3::Keys::read(&path).is_ok());
        assert_eq!(std::fs::read(local.s3_keys().unwrap()).unwrap(), text);
    }
}
