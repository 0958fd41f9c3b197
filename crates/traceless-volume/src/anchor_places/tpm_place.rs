//! A counter of a TPM, which never goes back, and a file with the record that is bound to its
//! value. Of all copies of the record only the newest one fits.
//!
//! The record is durable before the counter is increased: a crash in between leaves a record that
//! is ahead by 1, and that counts.

use super::Outcome;
use super::file_place::FilePlace;
use super::tpm::{CounterState, Tpm, is_wrong_password};
use crate::error::{Error, Result};
use crate::format::anchor::{AnchorPlace, AnchorRecord, AnchorUse, FoundRecords};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The kernel's resource manager.
const DEVICE: &str = "/dev/tpmrm0";
/// The first and the last index that a machine's owner may use.
const INDEX_MIN: u32 = 0x0140_0000;
const INDEX_MAX: u32 = 0x01ff_ffff;

/// `INDEX[,file=FILE][,device=PATH][,every=flush]`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterAddress {
    index: u32,
    file: Option<PathBuf>,
    device: Option<PathBuf>,
    /// Whether each flush counts, and not only each opening and close.
    every_flush: bool,
}

impl CounterAddress {
    /// Reads what follows `tpm2:`.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.split(',');
        let index = parts.next().unwrap_or_default();
        let digits = index.strip_prefix("0x").or_else(|| index.strip_prefix("0X"));
        let parsed = digits.filter(|digits| digits.bytes().all(|d| d.is_ascii_hexdigit()));
        let parsed = parsed.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let index = parsed
            .filter(|index| (INDEX_MIN..=INDEX_MAX).contains(index))
            .ok_or("the index of a TPM's counter is like tpm2:0x1800016")?;
        let mut address = Self { index, file: None, device: None, every_flush: false };
        for part in parts {
            match part.split_once('=') {
                Some(("file", path)) if !path.is_empty() => address.file = Some(path.into()),
                Some(("device", path)) if !path.is_empty() => address.device = Some(path.into()),
                Some(("every", "flush")) => address.every_flush = true,
                _ => return Err("options of tpm2: are file=FILE, device=PATH and every=flush"),
            }
        }
        Ok(address)
    }

    /// The same address, with absolute paths.
    pub(super) fn absolute(&self) -> Result<OsString> {
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|source| Error::Io {
                what: "find",
                path: path.clone(),
                source,
            })
        };
        let mut text = OsString::from(format!("tpm2:{:#x}", self.index));
        for (option, path) in [(",file=", &self.file), (",device=", &self.device)] {
            if let Some(path) = path {
                text.push(option);
                text.push(absolute(path)?);
            }
        }
        if self.every_flush {
            text.push(",every=flush");
        }
        Ok(text)
    }
}

impl fmt::Display for CounterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tpm2:{:#x}", self.index)
    }
}

/// The place of an anchor at a counter.
pub(super) struct TpmPlace {
    address: CounterAddress,
    file: FilePlace,
    value: u64,
    /// Whether the newest record is of the next value, to which the counter must be increased.
    is_ahead: bool,
}

impl TpmPlace {
    /// The place for the image at `image`.
    pub fn new(address: CounterAddress, image: &Path) -> Self {
        let beside_image = || {
            let mut name = image.as_os_str().to_owned();
            name.push(".anchor");
            PathBuf::from(name)
        };
        let path = address.file.clone().unwrap_or_else(beside_image);
        Self { address, file: FilePlace::new(&path), value: 0, is_ahead: false }
    }

    fn away(&self, source: io::Error) -> Error {
        Error::AnchorAway { place: self.name(), source }
    }

    /// Opens the TPM, which may serve one user at a time, and runs commands on it.
    fn ask<T>(&self, run: impl FnOnce(&mut Tpm, u32) -> Outcome<T>) -> Result<T> {
        let device = self.address.device.as_deref().unwrap_or_else(|| Path::new(DEVICE));
        let opened = Tpm::open(device)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", device.display())));
        opened.and_then(|mut tpm| run(&mut tpm, self.address.index)).map_err(|e| self.away(e))
    }

    /// Makes sure that the counter counts.
    fn set_up(&self) -> Result {
        let index = self.address.index;
        self.ask(|tpm, index| {
            match tpm.counter_state(index)? {
                CounterState::Counting => return Ok(()),
                CounterState::Unwritten => {}
                CounterState::Absent => tpm.define_counter(index)?,
            }
            tpm.increase(index)
        })
        .map_err(|e| match e {
            Error::AnchorAway { place, source } if is_wrong_password(&source) => {
                let why = format!(
                    "its owner has a password: make the counter with tpm2_nvdefine -C o -P \
                     PASSWORD -s 8 -a 'nt=counter|authread|authwrite|no_da' {index:#x}"
                );
                Error::AnchorAway { place, source: io::Error::other(why) }
            }
            other => other,
        })
    }

    fn load_value(&mut self) -> Result {
        self.value = self.ask(|tpm, index| {
            if tpm.counter_state(index)? == CounterState::Counting {
                tpm.read_counter(index)
            } else {
                let why = "the TPM has no such counter: if this is the right TPM, make the anchor \
                           anew with check --new-anchor";
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
        })?;
        Ok(())
    }

    /// Counts a record that was durable before a crash, or before it replaced another one.
    fn catch_up(&mut self) -> Result {
        if std::mem::take(&mut self.is_ahead) { self.increase() } else { Ok(()) }
    }

    /// Increases the counter from the value that it must have.
    fn increase(&mut self) -> Result {
        let before = self.value;
        let after = self.ask(|tpm, index| {
            tpm.increase(index)?;
            tpm.read_counter(index)
        })?;
        self.value = after;
        if after == before + 1 { Ok(()) } else { Err(Error::AnchorTaken(self.name())) }
    }
}

impl AnchorPlace for TpmPlace {
    fn name(&self) -> PathBuf {
        self.address.to_string().into()
    }

    fn claim(&mut self, anchor_use: AnchorUse) -> Result {
        if let AnchorUse::Create { force: false } = anchor_use
            && self.ask(Tpm::counter_state)? == CounterState::Counting
        {
            return Err(Error::Exists(self.name()));
        }
        self.file.claim(anchor_use)?;
        if anchor_use != AnchorUse::Advance {
            self.set_up()?;
        }
        self.load_value()
    }

    fn read(&mut self) -> Result<FoundRecords> {
        self.load_value()?;
        self.file.read()
    }

    fn confirm(&mut self) -> Result {
        let known = self.value;
        self.load_value()?;
        if self.value == known { Ok(()) } else { Err(Error::AnchorTaken(self.name())) }
    }

    fn put(&mut self, record: &AnchorRecord) -> Result {
        self.file.put(record)?;
        if record.counter > self.value { self.increase() } else { Ok(()) }
    }

    fn put_coming(&mut self, record: &AnchorRecord) -> Result {
        self.file.put_coming(record)?;
        self.is_ahead = true;
        Ok(())
    }

    fn promote(&mut self) -> Result {
        self.file.promote()?;
        self.catch_up()
    }

    fn forget_coming(&mut self) -> Result {
        self.file.forget_coming()?;
        self.catch_up()
    }

    fn next_counter(&self, opening: bool) -> u64 {
        if opening || self.address.every_flush { self.value + 1 } else { self.value }
    }

    fn check_counter(&mut self, counter: u64) -> Result {
        let value = self.value;
        if counter < value {
            let what = format!(
                "the TPM has counted to {value}, the record in {} is of {counter}",
                self.file.name().display()
            );
            return Err(Error::RolledBack { what });
        }
        if counter > value + 1 {
            let what = format!("the TPM has counted to {value} only, the record is of {counter}");
            return Err(Error::AnchorWentBack { place: self.name(), what });
        }
        self.is_ahead = counter > value;
        Ok(())
    }
}
