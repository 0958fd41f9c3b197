//! Patterns for names.

/// Whether a name matches a pattern of `*`, `?`, `[...]` and `\`.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to continue if the part after the last star does not match: the star takes one byte
    // more.
    let mut retry = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, n + 1));
            p += 1;
        } else if let Some(len) = fits_one(&pattern[p..], name[n]) {
            p += len;
            n += 1;
        } else if let Some((after, next)) = retry {
            (p, n) = (after, next);
            retry = Some((after, next + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// The length of the pattern's front, if it matches a byte.
fn fits_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|&byte| byte == b']')?;
            let (set, negated) = match &rest[..end] {
                [b'^', set @ ..] => (set, true),
                set => (set, false),
            };
            (in_set(set, byte) != negated).then_some(end + 2)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

fn in_set(set: &[u8], byte: u8) -> bool {
    match set {
        [from, b'-', to, rest @ ..] => (*from..=*to).contains(&byte) || in_set(rest, byte),
        [one, rest @ ..] => *one == byte || in_set(rest, byte),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        let fits = ["a*b", "*", "a?c*", "a[xb-d]cab", "a[^z]cab", "*ca*", "a\\bcab", "abcab"];
        assert!(fits.iter().all(|pattern| matches(pattern.as_bytes(), b"abcab")));
        let not = ["", "a", "b*", "a[z]cab", "a[^b]cab", "abcab?", "a\\*cab", "*d*", "a[b"];
        assert!(not.iter().all(|pattern| !matches(pattern.as_bytes(), b"abcab")));
        assert!(matches(b"", b"") && matches(b"**", b"") && !matches(b"?", b""));
    }
}
