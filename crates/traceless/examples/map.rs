//! A map of byte strings, first in memory that an adversary watches, then in a file on a
//! host that observes each access. The second map is saved, and opened again.
//!
//! Run it with the name of a file that it may make:
//! `cargo run --release -p traceless --example map -- /path/to/file`

use std::error::Error;
use std::fs::File;
use std::sync::Arc;
use traceless::Map;
use traceless::seal::Secret;
use traceless::store::{Caching, FileStore};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("name a file that may be made")?;

    let mut colours = Map::builder().capacity(1000).key_len(20).value_len(3).build()?;
    use_it(&mut colours)?;
    println!("in memory: done");

    let key = || Secret::from_bytes([7; 32]);
    let wanted = || Map::builder().capacity(1000).key_len(20).value_len(3).key(key());
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    let len = wanted().store_len()?;
    file.set_len(len)?;
    let store = Arc::new(FileStore::new(file, len, Caching::Buffered));
    let mut saved = wanted().store(store.clone()).build()?;
    use_it(&mut saved)?;
    saved.close()?;
    let mut opened = wanted().store(store).open()?;
    assert_eq!(opened.get(b"vermilion")?.as_deref(), Some(&[217, 56, 30][..]));
    println!("in a file of {} KiB: done", len >> 10);
    Ok(())
}

fn use_it(colours: &mut Map) -> traceless::Result {
    assert_eq!(colours.insert(b"ultramarine", &[18, 10, 143])?, None);
    assert_eq!(colours.insert(b"vermilion", &[227, 66, 52])?, None);
    // A second insertion replaces the value, and returns the old one.
    let before = colours.insert(b"vermilion", &[217, 56, 30])?;
    assert_eq!(before.as_deref(), Some(&[227, 66, 52][..]));
    assert_eq!(colours.get(b"vermilion")?.as_deref(), Some(&[217, 56, 30][..]));
    assert_eq!(colours.get(b"ochre")?, None);
    assert!(colours.remove(b"ultramarine")?.is_some());
    assert_eq!(colours.get(b"ultramarine")?, None);
    Ok(())
}
