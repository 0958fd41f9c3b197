//! Bytes that are sealed in chunks, under a key that is drawn for the file.
//!
//! The file is a head (a word, a version and a salt), and chunks of equal length with their tags,
//! the last of which is shorter. A chunk is bound to the head, to its number and to whether it is
//! the last one, so none can be changed, exchanged, left out or cut off.

use crate::codec::Reader;
use crate::error::{Error, Result};
use std::io::{self, BufRead, BufReader, Read, Write};
use traceless_core::rng::Rng;
use traceless_core::seal::{Aead, Nonce, Sealer as _, Secret, TAG_LEN};

const WORD: &[u8; 8] = b"TRCLSBKP";
const VERSION: u32 = 1;
const SALT_LEN: usize = 32;
const HEAD_LEN: usize = WORD.len() + 4 + SALT_LEN;
/// Bytes of a chunk, without its tag.
const CHUNK_LEN: usize = 64 << 10;

type Head = [u8; HEAD_LEN];

fn cipher(key: &Secret, head: &Head) -> Aead {
    Aead::new(&key.derive(&[b"file", head]))
}

/// What a chunk is bound to, besides its number.
fn binding(head: &Head, is_last: bool) -> Vec<u8> {
    [&head[..], &[u8::from(is_last)]].concat()
}

/// Seals what is written to it.
pub struct SealedWriter<W> {
    out: W,
    cipher: Aead,
    head: Head,
    chunk: Vec<u8>,
    number: u64,
}

impl<W: Write> SealedWriter<W> {
    /// Begins a file.
    pub fn begin(mut out: W, key: &Secret, rng: &mut dyn Rng) -> Result<Self> {
        let mut head = [0; HEAD_LEN];
        head[..WORD.len()].copy_from_slice(WORD);
        head[WORD.len()..HEAD_LEN - SALT_LEN].copy_from_slice(&VERSION.to_le_bytes());
        rng.fill(&mut head[HEAD_LEN - SALT_LEN..]);
        out.write_all(&head)?;
        let chunk = Vec::with_capacity(CHUNK_LEN);
        Ok(Self { out, cipher: cipher(key, &head), head, chunk, number: 0 })
    }

    /// Ends the file.
    pub fn end(mut self) -> Result {
        self.seal(true)?;
        Ok(self.out.flush()?)
    }

    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let (nonce, mut tag) = (Nonce::of_fresh_key(self.number), [0; TAG_LEN]);
        let bound = binding(&self.head, is_last);
        self.cipher.seal_in_place(nonce, &bound, &mut self.chunk, &mut tag);
        self.number += 1;
        self.out.write_all(&self.chunk)?;
        self.out.write_all(&tag)?;
        self.chunk.clear();
        Ok(())
    }
}

impl<W: Write> Write for SealedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunk.len() == CHUNK_LEN {
            self.seal(false)?;
        }
        let count = bytes.len().min(CHUNK_LEN - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens what a [`SealedWriter`] has written.
pub struct SealedReader<R> {
    from: BufReader<R>,
    cipher: Aead,
    head: Head,
    chunk: Vec<u8>,
    /// Bytes of the chunk that were read.
    used: usize,
    number: u64,
    is_last: bool,
}

impl<R: Read> SealedReader<R> {
    /// Begins to read a file.
    pub fn begin(from: R, key: &Secret) -> Result<Self> {
        let mut from = BufReader::with_capacity(CHUNK_LEN, from);
        let mut head = [0; HEAD_LEN];
        from.read_exact(&mut head).map_err(|_| Error::State("the backup's head"))?;
        let (word, rest) = head.split_at(WORD.len());
        if word != WORD {
            return Err(Error::Parameters("this file is no backup of a gateway"));
        }
        let found = Reader::new(rest).u32()?;
        if found != VERSION {
            return Err(Error::Format { what: "the backup", found, known: VERSION });
        }
        let cipher = cipher(key, &head);
        Ok(Self { from, cipher, head, chunk: Vec::new(), used: 0, number: 0, is_last: false })
    }

    /// Fails if something follows.
    pub fn expect_end(&mut self) -> Result {
        match self.read(&mut [0; 1])? {
            0 => Ok(()),
            _ => Err(Error::State("the backup")),
        }
    }

    fn open(&mut self) -> io::Result<()> {
        // After an error nothing of the chunk is read.
        (self.used, self.is_last) = (0, false);
        let mut sealed = core::mem::take(&mut self.chunk);
        let damaged = || {
            let what = "the backup is damaged, or was made under another key";
            io::Error::new(io::ErrorKind::InvalidData, what)
        };
        sealed.clear();
        (&mut self.from).take((CHUNK_LEN + TAG_LEN) as u64).read_to_end(&mut sealed)?;
        let is_last = loop {
            match self.from.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                rest => break rest?.is_empty(),
            }
        };
        let len = sealed.len().checked_sub(TAG_LEN).ok_or_else(damaged)?;
        let tag: [u8; TAG_LEN] = sealed[len..].try_into().map_err(|_| damaged())?;
        sealed.truncate(len);
        let nonce = Nonce::of_fresh_key(self.number);
        let bound = binding(&self.head, is_last);
        let opened = self.cipher.open_in_place(nonce, &bound, &mut sealed, &tag);
        opened.map_err(|_| damaged())?;
        (self.chunk, self.is_last, self.number) = (sealed, is_last, self.number + 1);
        Ok(())
    }
}

impl<R: Read> Read for SealedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.used == self.chunk.len() {
            if self.is_last {
                return Ok(0);
            }
            self.open()?;
        }
        let count = into.len().min(self.chunk.len() - self.used);
        into[..count].copy_from_slice(&self.chunk[self.used..][..count]);
        self.used += count;
        Ok(count)
    }
}
