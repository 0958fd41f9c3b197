//! No large file: a clone stays small for ever.

use super::Finding;
use super::tree::Tree;

const BYTES_MAX: u64 = 1 << 20;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let large = tree.files.iter().filter(|file| file.size > BYTES_MAX);
    let finding = |file: &super::tree::File| {
        let what = format!("{} bytes", file.size);
        Finding::new(&file.path, 1, what, "generate it, or keep it out of the repository")
    };
    large.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::finds;
    use super::check;

    #[test]
    fn a_large_file_is_found() {
        let fits = "a".repeat(1 << 20);
        finds(check, &[("data", &fits)], &[]);
        finds(check, &[("data", &format!("{fits}a"))], &[("data", 1)]);
    }
}
