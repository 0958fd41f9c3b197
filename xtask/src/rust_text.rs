//! Rust source as the rules need it: code separated from comments and literals, without a parser.
//!
//! Hidden bytes become blanks, so that an offset or a line means the same in every view of a file.

/// `text` with literals blanked, and comments too unless they are kept.
pub fn mask(text: &str, keep_comments: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let comment = comment_end(bytes, at);
        let hidden = if keep_comments { None } else { comment };
        let end = comment.or_else(|| literal_end(bytes, at));
        if let Some(end) = hidden.or(end.filter(|_| comment.is_none())) {
            blank(&mut out[at..end]);
        }
        at = end.unwrap_or(at + 1);
    }
    String::from_utf8(out).expect("whole characters are blanked, never parts of one")
}

/// `code` with all items under `#[cfg(test)]` blanked.
pub fn without_tests(code: &str) -> String {
    let mut out = code.as_bytes().to_vec();
    for attribute in ["#[cfg(test)", "#[cfg(all(test"] {
        for (start, _) in code.match_indices(attribute) {
            blank(&mut out[start..item_end(code.as_bytes(), start)]);
        }
    }
    String::from_utf8(out).expect("items begin and end at ASCII characters")
}

/// The number of the line that holds the byte at `offset`, counted from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Where `word` stands in `text` as a whole word.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let end = at + word.len();
        (*at == 0 || !is_word(bytes[at - 1])) && bytes.get(end).is_none_or(|byte| !is_word(*byte))
    })
}

/// The paths that begin at `at`: one for `a::b`, several for `{a, b::{c, d}}`.
pub fn paths(code: &str, at: usize) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    PathReader { bytes: code.as_bytes(), at }.tree(&mut Vec::new(), &mut found);
    found
}

/// A function: the line of its `fn`, its name, and the line of its closing brace.
#[derive(PartialEq, Eq, Debug)]
pub struct Function {
    pub first_line: usize,
    pub name: String,
    pub last_line: usize,
}

/// Every function with a body in `code`, which must be masked.
pub fn functions(code: &str) -> Vec<Function> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let name = word_at(bytes, skip_blanks(bytes, at + 2));
        // `fn(u8)` is a type; a declaration without a body ends in `;`.
        let Some(open) = body_start(bytes, at).filter(|_| !name.is_empty()) else { continue };
        found.push(Function {
            first_line: line_of(code, at),
            name,
            last_line: line_of(code, closing_brace(bytes, open)),
        });
    }
    found
}

/// Where the first byte at or after `at` that is no white space stands.
pub fn skip_blanks(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| !byte.is_ascii_whitespace()).map_or(bytes.len(), |n| at + n)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// The end of the comment that begins at `at`, if one does.
fn comment_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        return Some(at + length);
    }
    if !rest.starts_with(b"/*") {
        return None;
    }
    let mut depth = 0;
    let mut end = at;
    while end < bytes.len() {
        if bytes[end..].starts_with(b"/*") {
            depth += 1;
            end += 2;
        } else if bytes[end..].starts_with(b"*/") {
            depth -= 1;
            end += 2;
            if depth == 0 {
                return Some(end);
            }
        } else {
            end += 1;
        }
    }
    Some(bytes.len())
}

/// The end of the string or character literal that begins at `at`, if one does.
fn literal_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let prefix = rest.iter().take(2).take_while(|byte| b"rbc".contains(byte)).count();
    if prefix > 0 && at > 0 && is_word(bytes[at - 1]) {
        return None;
    }
    let raw = rest[..prefix].contains(&b'r');
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let quote = at + prefix + hashes;
    match bytes.get(quote)? {
        b'"' if raw => Some(raw_string_end(bytes, quote + 1, hashes)),
        b'"' if hashes == 0 => Some(quoted_end(bytes, quote + 1, b'"')),
        b'\'' if hashes == 0 => char_end(bytes, quote),
        _ => None,
    }
}

fn raw_string_end(bytes: &[u8], from: usize, hashes: usize) -> usize {
    let mut closing = vec![b'"'];
    closing.resize(1 + hashes, b'#');
    let found = bytes[from..].windows(closing.len()).position(|window| window == closing);
    found.map_or(bytes.len(), |length| from + length + closing.len())
}

fn quoted_end(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut at = from;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The end of a character literal; `None` for a lifetime, which begins alike.
fn char_end(bytes: &[u8], quote: usize) -> Option<usize> {
    let first = *bytes.get(quote + 1)?;
    if first == b'\\' {
        return Some(quoted_end(bytes, quote + 1, b'\''));
    }
    let width = match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    };
    let closing = quote + 1 + width;
    (bytes.get(closing) == Some(&b'\'')).then_some(closing + 1)
}

/// The end of an item, given where its attributes begin: past its body, or past its `;`.
fn item_end(bytes: &[u8], start: usize) -> usize {
    match body_start(bytes, start) {
        Some(open) => (closing_brace(bytes, open) + 1).min(bytes.len()),
        None => bytes[start..].iter().position(|b| *b == b';').map_or(bytes.len(), |n| start + n),
    }
}

/// Where the `{` of the item at `from` stands; `None` if a `;` ends the item first.
fn body_start(bytes: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The brace that closes the one at `open`, or the last byte where none does.
fn closing_brace(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len() - 1
}

fn word_at(bytes: &[u8], at: usize) -> String {
    let word = bytes[at..].iter().take_while(|byte| is_word(**byte));
    word.map(|byte| char::from(*byte)).collect()
}

struct PathReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl PathReader<'_> {
    fn tree(&mut self, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        if self.eat("{") {
            return self.group(prefix, found);
        }
        let word = if self.eat("*") { "*".to_owned() } else { word_at(self.bytes, self.at) };
        if word.is_empty() {
            return found.push(prefix.clone());
        }
        if word != "*" {
            self.at += word.len();
        }
        prefix.push(word);
        if self.eat("::") {
            self.tree(prefix, found);
        } else {
            found.push(prefix.clone());
        }
    }

    fn group(&mut self, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        let depth = prefix.len();
        while !self.eat("}") && self.at < self.bytes.len() {
            self.tree(prefix, found);
            prefix.truncate(depth);
            // Skips `as name`, up to the end of this entry.
            while self.at < self.bytes.len() && !b",}".contains(&self.bytes[self.at]) {
                self.at += 1;
            }
            self.eat(",");
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.at = skip_blanks(self.bytes, self.at);
        let found = self.bytes[self.at..].starts_with(token.as_bytes());
        if found {
            self.at += token.len();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_blanked() {
        let cases = [
            (r#"a("x{\"{"); b"#, "b"),
            (r##"a(r#"{ " {"#); b"##, "b"),
            ("a(br\"{\\\"); b", "b"),
            ("a('{', b'{', '\\'', '\\u{7b}'); b", "b"),
            ("a('ß', '€', '😀'); b", "b"),
            ("a // { \" '\n b", "b"),
            ("a /* { /* { */ { */ b", "b"),
            ("a(c\"{\"); b", "b"),
        ];
        for (text, last) in cases {
            let code = mask(text, false);
            assert_eq!(code.len(), text.len());
            assert!(!code.contains('{') && !code.contains('}'), "{text} -> {code}");
            assert!(code.starts_with('a') && code.ends_with(last), "{text} -> {code}");
        }
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        let text = "fn f<'a, 'b>(x: &'a str) -> &'static str { r#fn; 'x'; crate_b }";
        assert_eq!(mask(text, false), text.replace("'x'", "   "));
    }

    #[test]
    fn comments_can_be_kept() {
        let text = "a(\"one\"); // two \"three\"";
        assert_eq!(mask(text, true), "a(     ); // two \"three\"");
    }

    #[test]
    fn unfinished_text_does_not_panic() {
        for text in ["\"", "'", "r#\"", "/*", "b'", "'\\", "fn f(", "fn f() {", "#[cfg(test)", ""] {
            let code = mask(text, false);
            functions(&code);
            without_tests(&code);
        }
    }

    #[test]
    fn functions_are_measured_by_their_braces() {
        let text = "fn a(x: [u8; 2]) -> u8 {\n    let s = \"}\";\n    '}'\n}\n\
                    trait T {\n    fn b();\n    fn c(f: fn(u8)) { if x { } }\n}\n";
        let found: Vec<_> = functions(&mask(text, false))
            .into_iter()
            .map(|function| (function.name, function.first_line, function.last_line))
            .collect();
        assert_eq!(found, [("a".to_owned(), 1, 4), ("c".to_owned(), 7, 7)]);
    }

    #[test]
    fn tests_are_cut_out() {
        let code = "use a;\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n    use b;\n}\nuse c;\n\
                    #[cfg(all(test, y))]\nuse d;\nuse e;\n";
        let left = without_tests(code);
        assert_eq!(left.len(), code.len());
        let words: Vec<_> = left.split_whitespace().filter(|word| *word != "use").collect();
        assert_eq!(words, ["a;", "c;", ";", "e;"]);
    }

    #[test]
    fn use_trees_are_spelled_out() {
        let cases = [
            ("a::b::C::new()", vec!["a::b::C::new"]),
            ("{a, b::{c as d, e::*}, }", vec!["a", "b::c", "b::e::*"]),
            ("a::<u8>()", vec!["a"]),
            ("{\n    a,\n    b::\n    c,\n}", vec!["a", "b::c"]),
        ];
        for (text, expected) in cases {
            let found: Vec<_> = paths(text, 0).iter().map(|path| path.join("::")).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(words("fn f fnord _fn (fn)", "fn").collect::<Vec<_>>(), [0, 16]);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
