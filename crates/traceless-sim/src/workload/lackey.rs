//! What Valgrind's tool lackey says of a program with `--trace-mem=yes`.
//!
//! A line each: `I  <addr>,<size>` for an instruction, ` L`, ` S` and ` M` for what it loads,
//! stores, or both; addresses are hexadecimal. Lines of others are left out.

use super::text::{decimal, hexadecimal};
use super::{Op, line_start};

/// A line of lackey's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// An instruction.
    Instruction,
    /// Lines of memory that it loads or stores, first and last; one that does both stores.
    Access {
        /// What it does to them.
        op: Op,
        /// First byte of the first line.
        first: u64,
        /// First byte of the last line.
        last: u64,
    },
}

/// What a line of the output says; nothing if it is not lackey's.
#[inline]
pub fn parse(line: &[u8]) -> Option<Step> {
    let op = match line {
        [b'I', b' ', ..] => return Some(Step::Instruction),
        [b' ', b'L', b' ', ..] => Op::Read,
        [b' ', b'S' | b'M', b' ', ..] => Op::Write,
        _ => return None,
    };
    let mut words = line[3..].trim_ascii().split(|&byte| byte == b',');
    let (addr, size) = (hexadecimal(words.next()?)?, decimal(words.next()?)?);
    let last = addr.checked_add(size.max(1) - 1)?;
    Some(Step::Access { op, first: line_start(addr), last: line_start(last) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_steps() {
        let access = |op, first, last| Some(Step::Access { op, first, last });
        assert_eq!(parse(b"I  04010010,3\n"), Some(Step::Instruction));
        assert_eq!(parse(b" L 1ffeffe7e8,8\n"), access(Op::Read, 0x1f_feff_e7c0, 0x1f_feff_e7c0));
        assert_eq!(parse(b" S 7c,8"), access(Op::Write, 64, 128));
        assert_eq!(parse(b" M 0,4"), access(Op::Write, 0, 0));
        for line in ["==12== lackey", "", " L", " L x,1", " L 1", " L 1,y", " L ffffffffffffffff,2"]
        {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
