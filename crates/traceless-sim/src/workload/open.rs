//! Opens workloads in files of any known format.

use super::lackey::Lackey;
use super::packed::{PACKED_MAGIC, UNMARKED_MAGIC};
use super::{ChampSim, Filter, PackedWorkload, Ramulator, Usimm, Workload};
use crate::cache;
use crate::error::{Error, Result};
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Formats that workloads come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// This project's own format: [`PackedWorkload`].
    Packed,
    /// [`Usimm`].
    Usimm,
    /// [`Ramulator`].
    Ramulator,
    /// [`ChampSim`], behind the first cache of the IR-ORAM paper.
    #[serde(rename = "champsim")]
    ChampSim,
    /// The output of Valgrind's [lackey](super::lackey), behind the same cache as `ChampSim`.
    Lackey,
}

impl Format {
    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        let formats = [Self::Packed, Self::Usimm, Self::Ramulator, Self::ChampSim, Self::Lackey];
        formats.into_iter().find(|format| format.name() == name)
    }

    /// The name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Usimm => "usimm",
            Self::Ramulator => "ramulator",
            Self::ChampSim => "champsim",
            Self::Lackey => "lackey",
        }
    }
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const XZ_MAGIC: [u8; 6] = *b"\xfd7zXZ\0";
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_LEN: usize = 1 << 16;

/// The workload in the file at `path`. Files packed by gzip or zstd are unpacked while they are
/// read. This project's own format is recognized by its first bytes, ChampSim's by a name like
/// `mcf.champsimtrace.gz`; other files are USIMM's, unless `format` says otherwise.
pub fn open(path: &Path, format: Option<Format>) -> Result<Box<dyn Workload>> {
    let fail = |source| Error::Io { path: path.into(), source };
    let file = File::open(path).map_err(fail)?;
    let mut bytes = unpacked(BufReader::with_capacity(BUFFER_LEN, file)).map_err(fail)?;
    let start = bytes.fill_buf().map_err(fail)?;
    let refused = |what| Err(Error::File { path: path.into(), what });
    if start.is_empty() {
        return refused("it is empty");
    }
    if start.starts_with(&UNMARKED_MAGIC) {
        return refused("it is of an older version, without a mark at its end: record it again");
    }
    let is_packed = start.starts_with(&PACKED_MAGIC);
    let guess = if is_packed {
        Format::Packed
    } else if path.file_name().is_some_and(is_champsim) {
        Format::ChampSim
    } else {
        Format::Usimm
    };
    Ok(match format.unwrap_or(guess) {
        Format::Packed if !is_packed => {
            return refused("it does not begin as workloads of this format do");
        }
        Format::Packed => {
            bytes.consume(PACKED_MAGIC.len());
            Box::new(PackedWorkload::from_reader(bytes, path))
        }
        Format::Usimm => Box::new(Usimm::from_reader(bytes, path)),
        Format::Ramulator => Box::new(Ramulator::from_reader(bytes, path)),
        Format::ChampSim => Box::new(ChampSim::from_reader(bytes, path, first_cache()?)),
        Format::Lackey => Box::new(Lackey::from_reader(bytes, path, first_cache()?)),
    })
}

fn first_cache() -> Result<Filter> {
    Filter::new(&cache::Config::L1)
}

fn is_champsim(name: &OsStr) -> bool {
    name.to_string_lossy().split('.').skip(1).any(|part| part.starts_with("champsim"))
}

fn unpacked(mut bytes: BufReader<File>) -> io::Result<Box<dyn BufRead + Send>> {
    let start = bytes.fill_buf()?;
    let again =
        |reader: Box<dyn Read + Send>| Box::new(BufReader::with_capacity(BUFFER_LEN, reader));
    if start.starts_with(&GZIP_MAGIC) {
        return Ok(again(Box::new(MultiGzDecoder::new(bytes))));
    }
    if start.starts_with(&ZSTD_MAGIC) {
        return Ok(again(Box::new(StreamingDecoder::new(bytes).map_err(io::Error::other)?)));
    }
    if start.starts_with(&XZ_MAGIC) {
        return Err(io::Error::other("xz packed it: unpack it, or pack it with zstd"));
    }
    Ok(Box::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_workloads_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none.workload");
        let refusal = |bytes: &[u8], format| {
            std::fs::write(&path, bytes).unwrap();
            let refused = open(&path, format).map(|_| ()).unwrap_err();
            assert!(matches!(refused, Error::File { .. }), "{refused}");
            assert!(refused.to_string().contains("none.workload: "), "{refused}");
            refused.to_string()
        };
        assert!(refusal(b"", None).ends_with("it is empty"));
        assert!(refusal(b"", Some(Format::Ramulator)).ends_with("it is empty"));
        assert!(refusal(b"TRCLSWL1\x02\x00", None).ends_with("record it again"));
        assert!(refusal(b"1 R 0 0", Some(Format::Packed)).ends_with("of this format do"));
    }
}
