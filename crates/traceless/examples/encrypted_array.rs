//! An encrypted array in a file. It is saved, its process dies, and it is opened again: synced
//! writes are there, later writes are lost as a whole.
//!
//! Run it with the name of a file that it may make:
//! `cargo run --release -p traceless --example encrypted_array -- /path/to/array`

use std::error::Error;
use std::fs::File;
use std::sync::Arc;
use traceless::Array;
use traceless::array::ArrayBuilder;
use traceless::seal::Secret;
use traceless::store::{Caching, FileStore};

const BLOCKS: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("name a file that may be made")?;
    if args.next().is_some() {
        return write_and_die(&path);
    }
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    file.set_len(builder().store_len()?)?;
    let mut array = builder().store(store_in(file)?).build()?;
    array.write(42, &[1; 64])?;
    array.close()?;

    let child =
        std::process::Command::new(std::env::current_exe()?).args([&path, "die"]).status()?;
    println!("the process that wrote ended with {child}");

    let file = File::options().read(true).write(true).open(&path)?;
    let mut array = builder().store(store_in(file)?).open()?;
    assert_eq!(array.read(42)?, [2; 64], "it was synced");
    assert_eq!(array.read(43)?, [0; 64], "it was not");
    println!("block 42 is as it was synced, block 43 as if it had never been written");
    array.close()?;
    Ok(())
}

/// Writes to the array, and ends like a killed process.
fn write_and_die(path: &str) -> Result<(), Box<dyn Error>> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut array = builder().store(store_in(file)?).open()?;
    array.write(42, &[2; 64])?;
    array.sync()?;
    array.write(42, &[3; 64])?;
    array.write(43, &[3; 64])?;
    std::process::abort();
}

fn builder() -> ArrayBuilder {
    // A real program gets the key from a key store, or derives it from a passphrase.
    Array::builder().blocks(BLOCKS).block_len(64).key(Secret::from_bytes([7; 32]))
}

fn store_in(file: File) -> Result<Arc<FileStore>, Box<dyn Error>> {
    let len = file.metadata()?.len();
    Ok(Arc::new(FileStore::new(file, len, Caching::Buffered)))
}
