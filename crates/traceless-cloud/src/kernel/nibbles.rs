//! The paper's kernel: piece by piece through 64 pages of 4-bit words.
//!
//! A piece is 64 nibbles, and nibble p of all rows lies in page p. So all pages are touched in one
//! order, for any target row; which line of each page is not hidden. The code departs from the
//! paper's text in two places: it uses the new vectors where the text has the old ones, and the key
//! stream is SHA-256 of key, vector and piece, where the text has the vector alone.

use super::Slab;
use crate::geometry::PIECE_LEN;
use crate::transport_seal::{Stream, Vector};
use alloc::vec;
use alloc::vec::Vec;

const PAGE_LEN: usize = 4096;
const PAGES: usize = 2 * PIECE_LEN;
/// How many rows a page has nibbles for.
pub const ROWS_MAX: usize = 2 * PAGE_LEN;

/// Observes page accesses.
pub trait Touch {
    /// Called when page `page` is read or written.
    fn page(&mut self, page: usize);
}

impl Touch for () {
    fn page(&mut self, _: usize) {}
}

/// Words of 32 bytes, one for each row, striped over 64 pages.
struct StripedRows {
    pages: Vec<[u8; PAGE_LEN]>,
    first: usize,
}

impl StripedRows {
    fn new(first: usize) -> Self {
        Self { pages: vec![[0; PAGE_LEN]; PAGES], first }
    }

    fn put(&mut self, row: usize, word: &[u8; PIECE_LEN], touch: &mut impl Touch) {
        for (page, nibbles) in self.pages.iter_mut().enumerate() {
            touch.page(self.first + page);
            let nibble = word[page / 2] >> (4 * (page % 2)) & 15;
            let shift = 4 * (row % 2);
            let byte = &mut nibbles[row / 2];
            *byte = *byte & !(15 << shift) | nibble << shift;
        }
    }

    fn get(&self, row: usize, touch: &mut impl Touch) -> [u8; PIECE_LEN] {
        let mut word = [0; PIECE_LEN];
        for (page, nibbles) in self.pages.iter().enumerate() {
            touch.page(self.first + page);
            let nibble = nibbles[row / 2] >> (4 * (row % 2)) & 15;
            word[page / 2] |= nibble << (4 * (page % 2));
        }
        word
    }
}

/// The pages NRVP and PIECE of the paper. ORVP is read at the loop's counter, which is public, so
/// the old vectors need no pages.
pub struct Nibbles {
    new_vectors: StripedRows,
    piece: StripedRows,
}

impl Default for Nibbles {
    fn default() -> Self {
        Self { new_vectors: StripedRows::new(0), piece: StripedRows::new(PAGES) }
    }
}

impl Nibbles {
    /// Bytes that the pages take up.
    pub fn bytes(&self) -> usize {
        2 * PAGES * PAGE_LEN
    }

    /// Removes the streams of the old vectors from the rows, sends row b to row `dest[b]`, which is
    /// secret, and applies the streams of the new vectors. The rows hold `pieces` pieces, from
    /// number `first` on. A row without an old vector was never written.
    pub fn permute(
        &mut self,
        dest: &[u32],
        (first, pieces): (usize, usize),
        stream: &Stream,
        (old, new): (&[Option<Vector>], &[Vector]),
        slab: &mut Slab,
        touch: &mut impl Touch,
    ) {
        let rows = dest.len();
        assert!(rows <= ROWS_MAX.min(slab.rows()), "as many rows as a page has nibbles");
        assert!(rows == old.len() && rows == new.len(), "vectors of each row");
        for (row, vector) in new.iter().enumerate() {
            self.new_vectors.put(row, vector, touch);
        }
        for piece in 0..pieces {
            for (row, &to) in dest.iter().enumerate() {
                let mut word = *piece_of(slab, row, piece);
                if let Some(vector) = &old[row] {
                    stream.apply(vector, first + piece, &mut word);
                }
                let vector = self.new_vectors.get(to as usize, touch);
                stream.apply(&vector, first + piece, &mut word);
                self.piece.put(to as usize, &word, touch);
            }
            for row in 0..rows {
                *piece_of(slab, row, piece) = self.piece.get(row, touch);
            }
        }
    }
}

fn piece_of(slab: &mut Slab, row: usize, piece: usize) -> &mut [u8; PIECE_LEN] {
    let (pieces, _) = slab.row_mut(row).as_chunks_mut();
    &mut pieces[piece]
}

#[cfg(test)]
mod tests {
    use super::super::network::tests::shuffled;
    use super::*;
    use traceless_core::rng::SeededRng;
    use traceless_core::seal::Secret;

    /// Permutes rows with `touch` observing, and counts the pieces that are in the right place.
    fn run(dest: &[u32], touch: &mut impl Touch) -> usize {
        let rows = dest.len();
        let stream = Stream::new(&Secret::from_bytes([1; 32]));
        let vectors = |seed: u8| (0..rows).map(move |row| [seed ^ row as u8; PIECE_LEN]);
        let old: Vec<Option<Vector>> = vectors(0).map(|v| (v[0] % 5 > 0).then_some(v)).collect();
        let new: Vec<Vector> = vectors(0x80).collect();
        let mut slab = Slab::new(rows).unwrap();
        for (row, vector) in old.iter().enumerate() {
            for piece in 0..3 {
                let mut word = [row as u8 ^ (0x40 + piece as u8); PIECE_LEN];
                if let Some(vector) = vector {
                    stream.apply(vector, 7 + piece, &mut word);
                }
                *piece_of(&mut slab, row, piece) = word;
            }
        }
        Nibbles::default().permute(dest, (7, 3), &stream, (&old, &new), &mut slab, touch);
        let mut arrived = 0;
        for (row, &to) in dest.iter().enumerate() {
            for piece in 0..3 {
                let mut word = *piece_of(&mut slab, to as usize, piece);
                stream.apply(&new[to as usize], 7 + piece, &mut word);
                arrived += usize::from(word == [row as u8 ^ (0x40 + piece as u8); PIECE_LEN]);
            }
        }
        arrived
    }

    #[derive(Default, PartialEq, Debug)]
    struct TouchedPages(Vec<usize>);

    impl Touch for TouchedPages {
        fn page(&mut self, page: usize) {
            self.0.push(page);
        }
    }

    #[test]
    fn every_piece_reaches_its_target_and_touched_pages_are_uniform() {
        let mut rng = SeededRng::new(3);
        let ways: [Vec<u32>; 3] =
            [(0..50).collect(), (0..50).rev().collect(), shuffled(50, &mut rng)];
        let touched = ways.map(|dest| {
            let mut touched = TouchedPages::default();
            assert_eq!(run(&dest, &mut touched), 3 * 50);
            touched
        });
        assert_eq!(touched[0].0.len(), 64 * (50 + 3 * 3 * 50));
        assert!(touched[0] == touched[1] && touched[0] == touched[2]);
    }

    /// The planted fault: pieces are moved whole to their target, so the touched page reveals the
    /// row.
    #[test]
    fn moving_whole_pieces_would_reveal_the_permutation() {
        let naive = |dest: &[u32]| -> Vec<usize> {
            dest.iter().map(|&to| to as usize * PIECE_LEN / PAGE_LEN).collect()
        };
        let forth: Vec<u32> = (0..512).collect();
        let back: Vec<u32> = (0..512).rev().collect();
        assert_ne!(naive(&forth), naive(&back));
    }
}
