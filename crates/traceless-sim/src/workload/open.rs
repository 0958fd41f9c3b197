//! Workloads in files, whatever their format.

use super::packed::PACKED_MAGIC;
use super::{ChampSim, Filter, Packed, Ramulator, Usimm, Workload};
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
    /// Ours: [`Packed`].
    Packed,
    /// [`Usimm`].
    Usimm,
    /// [`Ramulator`].
    Ramulator,
    /// [`ChampSim`], behind the first cache of the IR-ORAM paper.
    #[serde(rename = "champsim")]
    ChampSim,
}

impl Format {
    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        let formats = [Self::Packed, Self::Usimm, Self::Ramulator, Self::ChampSim];
        formats.into_iter().find(|format| format.name() == name)
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Usimm => "usimm",
            Self::Ramulator => "ramulator",
            Self::ChampSim => "champsim",
        }
    }
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const XZ_MAGIC: [u8; 6] = *b"\xfd7zXZ\0";
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_LEN: usize = 1 << 16;

/// The workload in the file at `path`. What gzip or zstd packed is unpacked, as it is read. Our own
/// format is known by its first bytes, ChampSim's by a name such as `mcf.champsimtrace.gz`; others
/// are USIMM's, unless `format` says otherwise.
pub fn open(path: &Path, format: Option<Format>) -> Result<Box<dyn Workload>> {
    let fail = |source| Error::Io { path: path.into(), source };
    let file = File::open(path).map_err(fail)?;
    let mut bytes = unpacked(BufReader::with_capacity(BUFFER_LEN, file)).map_err(fail)?;
    let is_packed = bytes.fill_buf().map_err(fail)?.starts_with(&PACKED_MAGIC);
    let guess = if is_packed {
        Format::Packed
    } else if path.file_name().is_some_and(is_champsim) {
        Format::ChampSim
    } else {
        Format::Usimm
    };
    Ok(match format.unwrap_or(guess) {
        Format::Packed if !is_packed => {
            let what = "it does not begin as workloads of this format do";
            return Err(Error::Workload { path: path.into(), record: 0, what });
        }
        Format::Packed => {
            bytes.consume(PACKED_MAGIC.len());
            Box::new(Packed::from_reader(bytes, path))
        }
        Format::Usimm => Box::new(Usimm::from_reader(bytes, path)),
        Format::Ramulator => Box::new(Ramulator::from_reader(bytes, path)),
        Format::ChampSim => {
            let filter = Filter::new(&cache::Config::L1)?;
            Box::new(ChampSim::from_reader(bytes, path, filter))
        }
    })
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
