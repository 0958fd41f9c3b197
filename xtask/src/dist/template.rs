//! Texts with places that are filled: `@NAME@`.

/// The text with each name replaced by its value. A name without a value is an error.
pub fn fill(text: &str, values: &[(&str, &str)]) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        filled.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((name, after)) = rest.split_once('@').filter(|(name, _)| is_name(name)) else {
            filled.push('@');
            continue;
        };
        let value = values.iter().find(|(known, _)| *known == name);
        filled.push_str(
            value.ok_or_else(|| format!("the template has @{name}@, without a value"))?.1,
        );
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(word: &str) -> bool {
    let fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    !word.is_empty() && word.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_nothing_else() {
        let values = [("A", "1"), ("B_2", "@A@")];
        assert_eq!(
            fill("x@A@@B_2@ traceless-volume@.service", &values).as_deref(),
            Ok("x1@A@ traceless-volume@.service")
        );
        assert_eq!(fill("a@b@c@A@", &values).as_deref(), Ok("a@b@c1"));
        assert!(fill("@C@", &values).unwrap_err().contains("@C@"));
    }
}
