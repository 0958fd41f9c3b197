//! The properties of an access except its place, hashed to one number.

/// A hash of events, in order. With up to 2^32 different rows of events, no two are expected to be
/// equal by chance. It does not resist deliberate collisions.
///
/// ```
/// use traceless_audit::Template;
///
/// let template = |properties: &[u64]| {
///     let mut template = Template::default();
///     properties.iter().for_each(|&property| template.add(property));
///     template
/// };
/// assert_eq!(template(&[4096, 512]), template(&[4096, 512]));
/// assert_ne!(template(&[4096, 512]), template(&[512, 4096]));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Template(u64);

impl Template {
    /// Adds the next property.
    #[inline]
    pub fn add(&mut self, what: u64) {
        let mixed = (self.0.rotate_left(7) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // A constant is added, so that zeros at the beginning change the hash, too.
        self.0 = mixed.wrapping_add(0x632b_e59b_d9b4_e019);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[u64]) -> Template {
        let mut template = Template::default();
        for &what in parts {
            template.add(what);
        }
        template
    }

    #[test]
    fn templates_differ_by_order_number_and_kind() {
        let rows: [&[u64]; 8] =
            [&[], &[0], &[0, 0], &[1], &[0, 1], &[1, 0], &[u64::MAX], &[u64::MAX, 0]];
        for (i, a) in rows.iter().enumerate() {
            for (j, b) in rows.iter().enumerate() {
                assert_eq!(of(a) == of(b), i == j, "{a:?} {b:?}");
            }
        }
    }
}
