//! A scheme of one's own, used as an array of blocks.
//!
//! The scheme reads and writes its whole store at each access, so it hides which block is accessed.
//! Its blocks are in plain text, so it hides no contents.

mod scan;

use scan::{BLOCK_LEN, Scan};
use traceless_core::rng::System;
use traceless_core::scheme::contract::Scheme;
use traceless_core::{Addr, Result};

fn main() -> Result {
    let mut oram = Scan(10).create_in_memory(Box::new(System))?;
    oram.write(Addr(7), &[1; BLOCK_LEN])?;
    let mut block = [0; BLOCK_LEN];
    oram.read(Addr(7), &mut block)?;
    println!("block 7 begins with {}", block[0]);
    Ok(())
}
