//! Random passwords.

use traceless_core::rng::Rng;

/// Bytes of a token.
const TOKEN_LEN: usize = 16;

/// A random password, of characters that a URL may have.
pub fn random_token(rng: &mut dyn Rng) -> String {
    let mut bytes = [0; TOKEN_LEN];
    rng.fill(&mut bytes);
    format!("{:032x}", u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;

    #[test]
    fn tokens_differ_and_fit_a_url() {
        let [a, b] = [1, 2].map(|seed| random_token(&mut SeededRng::new(seed)));
        assert_ne!(a, b);
        assert_eq!(a.len(), 2 * TOKEN_LEN);
        assert!(a.chars().all(|c| c.is_ascii_hexdigit()));
    }
}
