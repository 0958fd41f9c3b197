//! Objects with their metadata.

use super::note::Note;
use crate::gateway::Object;
use core::ops::Range;
use s3s::{S3Result, s3_error};

/// An object and its metadata.
pub struct ObjectInfo {
    /// The gateway's name of this version.
    pub name: Vec<u8>,
    pub object: Object,
    pub note: Note,
}

/// Which bytes of an object are wanted.
pub enum Part {
    /// All bytes.
    Whole,
    /// A range of bytes.
    Range(s3s::dto::Range),
    /// The bytes of one part of the upload, counted from 1.
    Number(i32),
}

impl ObjectInfo {
    /// The range of the wanted bytes.
    pub fn bytes(&self, part: &Part) -> S3Result<Range<u64>> {
        let len = self.object.len();
        match part {
            Part::Whole => Ok(0..len),
            Part::Range(range) => Ok(range.check(len)?),
            Part::Number(number) => {
                let index = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
                let pieces = self.object.pieces();
                let index = index.filter(|&index| index < pieces.len());
                let index = index.ok_or_else(|| s3_error!(InvalidPart))?;
                let first: u64 = pieces[..index].iter().sum();
                Ok(first..first + pieces[index])
            }
        }
    }
}
