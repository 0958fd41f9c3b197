//! Decides which gateway has the store.
//!
//! A gateway counts how often its state was opened, and sends this number to the host, with a
//! random number of the current opening. The host accepts only the newest opening. So of two
//! gateways on one store the older is refused, and so is a gateway with a restored folder.

use crate::codec::{Reader, Writer};
use crate::durable::write_private;
use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use traceless_core::rng::Rng;

/// Bytes of an opening.
pub const OPENING_LEN: usize = 24;
const CHECK_LEN: usize = 8;
const MAGIC: &[u8; 8] = b"tlopen01";
const NAME: &str = "opening";
/// Names the file in errors about its content.
const CONTENT: &str = "the number of openings";

/// One opening of a gateway's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// How many openings there were, including this one.
    pub number: u64,
    /// A random number, to distinguish openings with the same count.
    pub instance: [u8; 16],
}

impl Opening {
    /// The opening as bytes.
    pub fn encode(&self) -> [u8; OPENING_LEN] {
        let mut out = Writer::with_capacity(OPENING_LEN);
        out.u64(self.number).bytes(&self.instance);
        out.into_array()
    }

    /// Takes an opening off the front of a message.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { number: from.u64()?, instance: from.array()? })
    }

    /// Fails if `newest` is a newer opening than this one, or another one with the same count.
    pub fn check(self, newest: Option<Self>) -> Result {
        match newest {
            Some(newest) if newest != self && newest.number >= self.number => {
                Err(Error::Fenced { own: self.number, newest: newest.number })
            }
            _ => Ok(()),
        }
    }

    /// The next opening of the state in a folder, recorded before it is used.
    pub fn next(folder: &Path, rng: &mut dyn Rng) -> Result<Self> {
        let number = read(folder)?.map_or(0, |last| last.number) + 1;
        let mut instance = [0; 16];
        rng.fill(&mut instance);
        let opening = Self { number, instance };
        write(folder, &opening)?;
        Ok(opening)
    }
}

/// The host's record of openings.
pub struct Fence {
    folder: PathBuf,
    newest: Option<Opening>,
}

impl Fence {
    /// Reads the record in a folder.
    pub fn open(folder: &Path) -> Result<Self> {
        Ok(Self { folder: folder.to_owned(), newest: read(folder)? })
    }

    /// Admits a gateway unless a newer one was admitted. Older ones are refused from now on.
    pub fn admit(&mut self, opening: Opening) -> Result {
        self.check(opening)?;
        if self.newest != Some(opening) {
            write(&self.folder, &opening)?;
            self.newest = Some(opening);
        }
        Ok(())
    }

    /// Fails if a newer gateway was admitted, or another one with the same count.
    pub fn check(&self, opening: Opening) -> Result {
        opening.check(self.newest)
    }
}

fn read(folder: &Path) -> Result<Option<Opening>> {
    let bytes = match std::fs::read(folder.join(NAME)) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    Error::check_format(CONTENT, &bytes, MAGIC, |own| opening_in(own).is_ok())?;
    opening_in(&bytes).map(Some)
}

/// The opening in the bytes of a record.
fn opening_in(bytes: &[u8]) -> Result<Opening> {
    let wrong = Error::State(CONTENT);
    let Some((body, check)) = bytes.split_last_chunk::<CHECK_LEN>() else { return Err(wrong) };
    let Some(rest) = body.strip_prefix(MAGIC) else { return Err(wrong) };
    if Sha256::digest(body)[..CHECK_LEN] != *check || rest.len() != OPENING_LEN {
        return Err(wrong);
    }
    Opening::decode(&mut Reader::new(rest))
}

fn write(folder: &Path, opening: &Opening) -> Result {
    let body = [&MAGIC[..], &opening.encode()].concat();
    let check = Sha256::digest(&body);
    write_private(&folder.join(NAME), &[&body, &check[..CHECK_LEN]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;

    #[test]
    fn the_newest_opening_is_accepted_and_older_ones_are_fenced() {
        let (gateway, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut rng = SeededRng::new(1);
        let mut next = || Opening::next(gateway.path(), &mut rng).unwrap();
        let (first, second) = (next(), next());
        assert_eq!((first.number, second.number), (1, 2));
        let open = || Fence::open(host.path()).unwrap();
        let mut fence = open();
        fence.admit(first).unwrap();
        // Again, as after a lost connection, and after a restart of the host.
        fence.admit(first).unwrap();
        open().admit(first).unwrap();
        fence.admit(second).unwrap();
        for refused in [open().admit(first), open().check(first)] {
            assert!(matches!(refused, Err(Error::Fenced { own: 1, newest: 2 })));
        }
        // Two copies of one folder, opened equally often.
        let twin = Opening { instance: [0; 16], ..second };
        assert!(matches!(open().admit(twin), Err(Error::Fenced { own: 2, newest: 2 })));
        open().check(second).unwrap();
        let file = host.path().join(NAME);
        let whole = std::fs::read(&file).unwrap();
        let mut later = whole.clone();
        (later[7], later[8]) = (b'2', !later[8]);
        std::fs::write(&file, later).unwrap();
        let refused = Fence::open(host.path()).map(drop);
        assert!(matches!(refused, Err(Error::Format { found: 2, known: 1, .. })), "{refused:?}");
        for byte in 0..whole.len() {
            let mut changed = whole.clone();
            changed[byte] ^= 1;
            std::fs::write(&file, &changed).unwrap();
            assert!(Fence::open(host.path()).is_err(), "{byte}");
            std::fs::write(&file, &whole[..byte]).unwrap();
            assert!(Fence::open(host.path()).is_err(), "{byte}");
        }
    }
}
