//! Numbers of bytes as text.

/// A number of bytes with three digits or so, in binary units.
pub fn about(bytes: f64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut number = bytes;
    let mut unit = 0;
    while number >= 1024.0 && unit + 1 < units.len() {
        (number, unit) = (number / 1024.0, unit + 1);
    }
    let digits = usize::from(unit > 0 && number < 100.0);
    format!("{number:.digits$} {}", units[unit])
}

/// A number of bytes as options of `traceless` take it, with the largest suffix that leaves a whole
/// number.
pub fn size_text(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let exact = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    exact.map_or(bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_are_short() {
        for (bytes, text) in [
            (0.0, "0 bytes"),
            (1023.0, "1023 bytes"),
            (1024.0, "1.0 KiB"),
            (150.0 * 1024.0 * 1024.0, "150 MiB"),
            (5e15, "4547 TiB"),
        ] {
            assert_eq!(about(bytes), text);
        }
    }

    #[test]
    fn sizes_are_whole_numbers_with_a_suffix() {
        for (bytes, text) in
            [(0, "0"), (1000, "1000"), (4096, "4K"), (3 << 19, "1536K"), (5 << 40, "5T")]
        {
            assert_eq!(size_text(bytes), text);
        }
    }
}
