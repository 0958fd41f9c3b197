//! The server's attack on the key stream that the paper prints (section III-E): v is SHA-256 of the
//! old vector at b, v' is SHA-256 of the old vector at b', without a key or the number of a piece.
//! Vectors lie in the clear, so the server removes the stream before and after an eviction and
//! matches rows, because no eviction changes them.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use traceless::rng::{Rng, SeededRng};
use traceless::seal::Secret;
use traceless_audit::{Claim, Verdict};
use traceless_cloud::Result;
use traceless_cloud::geometry::PIECE_LEN;
use traceless_cloud::kernel::{Nibbles, Slab};
use traceless_cloud::transport_seal::{Stream, Vector};

const ROWS: usize = 300;
const PIECES: usize = 3;

type Rows = Vec<[[u8; PIECE_LEN]; PIECES]>;

/// The server's view of an eviction: both ciphertexts, and the vectors of both.
struct EvictionView {
    before: Rows,
    after: Rows,
    old: Vec<Vector>,
    new: Vec<Vector>,
}

fn xor(word: &mut [u8; PIECE_LEN], stream: impl IntoIterator<Item = u8>) {
    for (byte, key) in word.iter_mut().zip(stream) {
        *byte ^= key;
    }
}

/// A random permutation of rows.
pub fn shuffled(rows: usize, rng: &mut SeededRng) -> Vec<u32> {
    let mut dest: Vec<u32> = (0..rows as u32).collect();
    for i in (1..rows).rev() {
        dest.swap(i, rng.below(i as u64 + 1) as usize);
    }
    dest
}

fn random_rows(rng: &mut SeededRng) -> Rows {
    let mut rows = vec![[[0; PIECE_LEN]; PIECES]; ROWS];
    for word in rows.iter_mut().flatten() {
        rng.fill(word);
    }
    rows
}

fn random_vectors(rng: &mut SeededRng) -> Vec<Vector> {
    let mut vectors = vec![[0; PIECE_LEN]; ROWS];
    for vector in &mut vectors {
        rng.fill(vector);
    }
    vectors
}

/// An eviction as the paper prints it.
fn evict_as_printed(dest: &[u32], before: Rows, rng: &mut SeededRng) -> EvictionView {
    let (old, new) = (random_vectors(rng), random_vectors(rng));
    let mut after = before.clone();
    for (row, &to) in dest.iter().enumerate() {
        for (piece, mut word) in before[row].into_iter().enumerate() {
            xor(&mut word, Sha256::digest(old[row]));
            xor(&mut word, Sha256::digest(old[to as usize]));
            after[to as usize][piece] = word;
        }
    }
    EvictionView { before, after, old, new }
}

/// The same eviction by this project's kernel.
fn evict_by_kernel(dest: &[u32], before: Rows, rng: &mut SeededRng) -> Result<EvictionView> {
    let (old, new) = (random_vectors(rng), random_vectors(rng));
    let stream = Stream::new(&Secret::random(rng));
    let mut slab = Slab::new(ROWS)?;
    for (row, words) in before.iter().enumerate() {
        slab.row_mut(row)[..PIECES * PIECE_LEN].copy_from_slice(words.as_flattened());
    }
    let old_vectors: Vec<Option<Vector>> = old.iter().copied().map(Some).collect();
    Nibbles::default().permute(
        dest,
        (0, PIECES),
        &stream,
        (&old_vectors, &new),
        &mut slab,
        &mut (),
    );
    let words = |row: usize| slab.row(row).as_chunks().0[..PIECES].try_into().expect("pieces");
    Ok(EvictionView { before, after: (0..ROWS).map(words).collect(), old, new })
}

/// How many rows the server finds again, if it assumes the printed stream with one of the vectors,
/// with or without the number of a piece.
fn linked_rows(view: &EvictionView, dest: &[u32]) -> usize {
    let without_stream = |rows: &Rows, vectors: &[Vector], has_piece_number: bool| -> Rows {
        let mut rows = rows.clone();
        for (row, vector) in rows.iter_mut().zip(vectors) {
            for (piece, word) in row.iter_mut().enumerate() {
                let mut hash = Sha256::new().chain_update(vector);
                if has_piece_number {
                    hash.update((piece as u64).to_le_bytes());
                }
                xor(word, hash.finalize());
            }
        }
        rows
    };
    let mut best = 0;
    for has_piece_number in [false, true] {
        let rows_before = without_stream(&view.before, &view.old, has_piece_number);
        let rows_before: HashMap<_, usize> = rows_before.into_iter().zip(0..).collect();
        for vectors in [&view.old, &view.new] {
            let after = without_stream(&view.after, vectors, has_piece_number);
            let links = after.iter().enumerate().filter(|(to, row)| {
                rows_before.get(*row).is_some_and(|&from| dest[from] as usize == *to)
            });
            best = best.max(links.count());
        }
    }
    best
}

/// The claim that a server with both ciphertexts and all vectors links no row.
pub fn claim(name: &str, is_literal: bool, seed: u64) -> Result<Claim> {
    let name = format!("{name}: ciphertexts do not tell where rows go");
    let power = "each of 300 rows is looked for, with four guesses of its stream";
    let mut rng = SeededRng::new(seed);
    let dest = shuffled(ROWS, &mut rng);
    let before = random_rows(&mut rng);
    let view = if is_literal {
        evict_as_printed(&dest, before, &mut rng)
    } else {
        evict_by_kernel(&dest, before, &mut rng)?
    };
    let links = linked_rows(&view, &dest) as u64;
    let verdict = if links == 0 { Verdict::Pass } else { Verdict::Leak };
    let evidence = format!("{links} of {ROWS} rows were found again");
    Ok(Claim::exact(name, verdict, if links == 0 { ROWS as u64 } else { links }, power, evidence))
}
