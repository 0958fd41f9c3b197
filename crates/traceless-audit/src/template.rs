//! What accesses show but for their place, in one number.

/// What was seen, in order, in as many bits as tell two rows of events apart: no two that differ
/// are expected to be equal in 2^32 of them. Nobody is kept from making two that are.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Template(u64);

impl Template {
    /// Adds what is seen next.
    #[inline]
    pub fn see(&mut self, what: u64) {
        let mixed = (self.0.rotate_left(7) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // So that what is nothing at the beginning is seen, too.
        self.0 = mixed.wrapping_add(0x632b_e59b_d9b4_e019);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seen: &[u64]) -> Template {
        let mut template = Template::default();
        for &what in seen {
            template.see(what);
        }
        template
    }

    #[test]
    fn order_number_and_kind_tell() {
        let rows: [&[u64]; 8] =
            [&[], &[0], &[0, 0], &[1], &[0, 1], &[1, 0], &[u64::MAX], &[u64::MAX, 0]];
        for (i, a) in rows.iter().enumerate() {
            for (j, b) in rows.iter().enumerate() {
                assert_eq!(of(a) == of(b), i == j, "{a:?} {b:?}");
            }
        }
    }
}
