//! Values, and how many blocks and queries they take.

/// Longest name, in bytes.
pub const NAME_LEN_MAX: usize = 1024;
/// Longest value of the Redis protocol, in bytes. Only the number of blocks limits S3 objects.
pub const VALUE_LEN_MAX: usize = 64 << 20;

/// A value to be stored under a name, with a note.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The content.
    pub bytes: &'a [u8],
    /// Metadata that is kept with the name.
    pub note: &'a [u8],
}

/// How many queries a value of `blocks` blocks takes: the least number of at least `blocks` with
/// zeros in its last E - S binary digits, where E is floor(log2 `blocks`), and S is the number of
/// binary digits of E (Nikitin et al., `PADMÉ`).
pub fn size_class(blocks: usize) -> usize {
    let exponent = blocks.max(1).ilog2();
    let digits = exponent.checked_ilog2().map_or(0, |log| log + 1);
    blocks.next_multiple_of(1 << (exponent - digits))
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn size_classes_are_few_and_close() {
        let classes: std::collections::BTreeSet<usize> = (1..=65_536).map(size_class).collect();
        assert!(classes.len() < 220, "{}", classes.len());
        for blocks in 1..=65_536 {
            let class = size_class(blocks);
            assert!(class >= blocks && class * 8 <= blocks * 9, "{blocks} {class}");
            assert_eq!(size_class(class), class);
        }
    }
}
