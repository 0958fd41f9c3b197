//! Reads forms of browsers (`multipart/form-data`, RFC 7578) as they arrive.
//!
//! The fields of a form come before its file, and are kept in memory, up to a limit: the client is
//! authenticated by them. The file is passed on a piece at a time, and is the last part that is
//! used, as in S3.

use bytes::{Buf as _, Bytes, BytesMut};
use core::ops::RangeInclusive;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use futures_util::{Stream, StreamExt as _};
use s3s::{S3Error, S3Result, s3_error};
use std::collections::BTreeMap;

/// Most bytes of a form before its file.
const FIELDS_LEN_MAX: usize = 64 << 10;
/// Longest boundary, in bytes (RFC 2046).
const BOUNDARY_LEN_MAX: usize = 70;
/// The end of a line.
const LINE_END: &[u8] = b"\r\n";
/// The end of the head of a part.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// The field that is the file.
const FILE: &str = "file";

type AnyError = Box<dyn core::error::Error + Send + Sync>;

/// The bytes of a request, as they arrive.
pub type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, AnyError>> + Send + Sync>>;

/// Fields of a form, by their names in lower case.
#[derive(Default, Debug)]
pub struct FormFields(BTreeMap<String, String>);

impl FormFields {
    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets a field.
    pub fn set(&mut self, name: &str, value: String) {
        self.0.insert(name.to_owned(), value);
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&name[..], &value[..]))
    }

    /// The fields of a list.
    #[cfg(test)]
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self(owned.collect())
    }

    /// Adds a field, which must be a new one: a policy is checked against one value.
    fn add(&mut self, name: &str, value: String) -> S3Result<()> {
        match self.0.insert(name.to_ascii_lowercase(), value) {
            None => Ok(()),
            Some(_) => Err(s3_error!(InvalidArgument, "the form has a field twice: {name}")),
        }
    }
}

/// The file of a form: a stream of its bytes.
pub struct FormFile {
    reader: FormReader,
    /// The name that the browser gives, without folders.
    pub name: String,
    lengths: RangeInclusive<u64>,
    len: u64,
    is_over: bool,
}

impl FormFile {
    /// Sets which lengths are accepted, in bytes.
    pub fn limit(&mut self, lengths: RangeInclusive<u64>) {
        self.lengths = lengths;
    }

    /// The bytes of the file that have arrived; `None` if more must arrive first.
    fn take_arrived(&mut self) -> Option<S3Result<Bytes>> {
        let FormReader { buffer, delimiter, .. } = &mut self.reader;
        let bytes = if let Some(at) = find(buffer, delimiter) {
            self.is_over = true;
            buffer.split_to(at)
        } else {
            // The rest may be the beginning of a delimiter.
            let len = buffer.len().saturating_sub(delimiter.len() - 1);
            buffer.split_to(len)
        };
        self.len += bytes.len() as u64;
        if self.len > *self.lengths.end() {
            return Some(Err(s3_error!(EntityTooLarge, "the policy allows a shorter file only")));
        }
        if self.is_over && self.len < *self.lengths.start() {
            return Some(Err(s3_error!(EntityTooSmall, "the policy allows a longer file only")));
        }
        (!bytes.is_empty()).then(|| Ok(bytes.freeze()))
    }
}

impl Stream for FormFile {
    type Item = S3Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.is_over {
                return Poll::Ready(None);
            }
            if let Some(taken) = self.take_arrived() {
                self.is_over |= taken.is_err();
                return Poll::Ready(Some(taken));
            }
            if self.is_over {
                continue;
            }
            match ready!(self.reader.pieces.poll_next_unpin(context)) {
                Some(Ok(piece)) => self.reader.buffer.extend_from_slice(&piece),
                end => {
                    self.is_over = true;
                    return Poll::Ready(Some(Err(end_of_pieces(end))));
                }
            }
        }
    }
}

/// Reads the fields of a form with this media type. Returns its file, of which no byte is read.
pub async fn read_form(media_type: &str, pieces: Pieces) -> S3Result<(FormFields, FormFile)> {
    let boundary = boundary_of(media_type);
    let boundary = boundary.ok_or_else(|| malformed("the media type names no boundary"))?;
    let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
    // The first delimiter may be without an end of a line before it.
    let buffer = BytesMut::from(LINE_END);
    let mut reader = FormReader { pieces, buffer, delimiter, room: FIELDS_LEN_MAX };
    let mut fields = FormFields::default();
    reader.next_part().await?;
    loop {
        let end = reader.take(LINE_END.len()).await?;
        if &end[..] != LINE_END {
            return Err(s3_error!(InvalidArgument, "a form has one file, in the field `file`"));
        }
        let head = reader.take_until(HEAD_END).await?;
        let part = core::str::from_utf8(&head).ok().and_then(PartHead::parse);
        let part = part.ok_or_else(|| malformed("a part has no name"))?;
        if part.name.eq_ignore_ascii_case(FILE) {
            let name = part.file.unwrap_or_default();
            let name = name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
            let file = FormFile { reader, name, lengths: 0..=u64::MAX, len: 0, is_over: false };
            return Ok((fields, file));
        }
        let value = reader.next_part().await?;
        let value = String::from_utf8(value.to_vec());
        fields.add(&part.name, value.map_err(|_| malformed("a field is not UTF-8"))?)?;
    }
}

/// Whether a media type is that of a form.
pub fn is_form(media_type: &[u8]) -> bool {
    let form = b"multipart/form-data";
    media_type.to_ascii_lowercase().windows(form.len()).any(|part| part == form)
}

struct FormReader {
    pieces: Pieces,
    buffer: BytesMut,
    delimiter: Vec<u8>,
    /// How many bytes more may come before the file.
    room: usize,
}

impl FormReader {
    /// Reads to the end of a part, and over the delimiter.
    async fn next_part(&mut self) -> S3Result<Bytes> {
        let delimiter = core::mem::take(&mut self.delimiter);
        let part = self.take_until(&delimiter).await;
        self.delimiter = delimiter;
        part
    }

    async fn take_until(&mut self, end: &[u8]) -> S3Result<Bytes> {
        loop {
            if let Some(at) = find(&self.buffer, end) {
                let taken = self.take(at).await?;
                self.take(end.len()).await?;
                return Ok(taken);
            }
            if self.buffer.len() > self.room {
                return Err(too_long());
            }
            self.fill().await?;
        }
    }

    async fn take(&mut self, len: usize) -> S3Result<Bytes> {
        self.room = self.room.checked_sub(len).ok_or_else(too_long)?;
        while self.buffer.len() < len {
            self.fill().await?;
        }
        Ok(self.buffer.copy_to_bytes(len))
    }

    async fn fill(&mut self) -> S3Result<()> {
        match self.pieces.next().await {
            Some(Ok(piece)) => {
                self.buffer.extend_from_slice(&piece);
                Ok(())
            }
            end => Err(end_of_pieces(end)),
        }
    }
}

/// The head of a part.
struct PartHead {
    name: String,
    file: Option<String>,
}

impl PartHead {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split("\r\n").filter_map(|line| line.split_once(':'));
        let (_, value) =
            lines.find(|(name, _)| name.eq_ignore_ascii_case("content-disposition"))?;
        let (kind, rest) = value.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("form-data") {
            return None;
        }
        let mut parameters = parameters(rest)?;
        Some(Self { name: parameters.remove("name")?, file: parameters.remove("filename") })
    }
}

fn boundary_of(media_type: &str) -> Option<String> {
    let (kind, rest) = media_type.split_once(';')?;
    let boundary = parameters(rest)?.remove("boundary")?;
    let is_fit = (1..=BOUNDARY_LEN_MAX).contains(&boundary.len()) && boundary.is_ascii();
    (is_form(kind.trim().as_bytes()) && is_fit).then_some(boundary)
}

/// The parameters of a header, by their names in lower case; `None` if they are malformed, or one
/// is there twice.
fn parameters(mut text: &str) -> Option<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    loop {
        text = text.trim_start_matches([' ', '\t', ';']);
        if text.is_empty() {
            return Some(found);
        }
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = if let Some(quoted) = rest.strip_prefix('"') {
            unquote(quoted)?
        } else {
            let (value, rest) = rest.split_once(';').unwrap_or((rest, ""));
            (value.trim().to_owned(), rest)
        };
        if found.insert(name.trim().to_ascii_lowercase(), value).is_some() {
            return None;
        }
        text = rest;
    }
}

/// A text up to a quotation mark, and what follows. A backslash is one, unless a quotation mark or
/// another backslash follows: browsers send paths of Windows.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => return Some((text, rest.as_str())),
            '\\' if rest.as_str().starts_with(['"', '\\']) => text.extend(rest.next()),
            other => text.push(other),
        }
    }
}

/// Where a text with an unusual first byte begins.
fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let first = *text.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == first) {
        if bytes[from + at..].starts_with(text) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

fn end_of_pieces(end: Option<Result<Bytes, AnyError>>) -> S3Error {
    match end {
        Some(Err(error)) => s3_error!(IncompleteBody, "the form broke off: {error}"),
        _ => malformed("it ends before its file does"),
    }
}

fn malformed(what: &str) -> S3Error {
    s3_error!(MalformedPOSTRequest, "the body is no multipart/form-data: {what}")
}

fn too_long() -> S3Error {
    s3_error!(MaxPostPreDataLengthExceededError, "a form has 64 KiB before its file at most")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    const TYPE: &str = "multipart/form-data; boundary=b";

    /// Reads a form that arrives in pieces of this length: fields, name of the file, and its bytes.
    fn read(
        form: &[u8],
        piece: usize,
        lengths: RangeInclusive<u64>,
    ) -> Result<(FormFields, String, Vec<u8>), String> {
        let pieces: Vec<_> =
            form.chunks(piece).map(|bytes| Ok(Bytes::copy_from_slice(bytes))).collect();
        let read = async {
            let (fields, mut file) = read_form(TYPE, Box::pin(stream::iter(pieces))).await?;
            file.limit(lengths);
            let (name, mut bytes) = (file.name.clone(), Vec::new());
            while let Some(piece) = file.next().await {
                bytes.extend_from_slice(&piece?);
            }
            Ok((fields, name, bytes))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(read).map_err(|error: S3Error| error.code().as_str().to_owned())
    }

    fn field(name: &str, value: &str) -> String {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    }

    fn form(fields: &str, file: &[u8]) -> Vec<u8> {
        let head = "--b\r\nContent-Type: text/plain\r\ncontent-disposition: Form-Data; \
            filename=\"C:\\tmp\\a \\\"b\\\".txt\"; name=FILE\r\n\r\n";
        [fields.as_bytes(), head.as_bytes(), file, b"\r\n--b--\r\n"].concat()
    }

    #[test]
    fn forms_are_read_in_pieces_of_any_length() {
        let fields = field("Key", "a\r\n--c") + &field("empty", "");
        let bytes = b"\r\n--\r\n-b\r\n--a\r\n";
        for file in [&b""[..], b"x", bytes] {
            let form = form(&fields, file);
            for piece in [1, 2, 3, 7, form.len()] {
                let (fields, name, read) = read(&form, piece, 0..=100).unwrap();
                assert_eq!((fields.get("key"), fields.get("empty")), (Some("a\r\n--c"), Some("")));
                assert_eq!((&name[..], fields.iter().count()), ("a \"b\".txt", 2));
                assert_eq!(read, file, "{piece}");
            }
        }
        let before = [b"\r\n", &form(&fields, b"x")[..]].concat();
        assert_eq!(read(&before, 5, 0..=1).unwrap().2, b"x");
    }

    #[test]
    fn malformed_forms_are_refused() {
        let whole = form(&field("key", "a"), b"x");
        for len in 0..whole.len() - b"--\r\n".len() {
            assert!(read(&whole[..len.max(1)], 9, 0..=9).is_err(), "{len}");
        }
        let code = |form: &[u8]| read(form, 64, 0..=9).unwrap_err();
        assert_eq!(code(&form(&(field("a", "1") + &field("A", "1")), b"")), "InvalidArgument");
        assert_eq!(code((field("a", "1") + "--b--\r\n").as_bytes()), "InvalidArgument");
        assert_eq!(code(b"--b\r\nContent-Disposition: form-data\r\n\r\n"), "MalformedPOSTRequest");
        assert_eq!(code(b"--b\r\nX: y\r\n\r\n1\r\n--b--\r\n"), "MalformedPOSTRequest");
        let bytes = [field("a", "1").as_bytes(), &form("", b"")[..]].concat();
        let other = String::from_utf8(bytes).unwrap().replace("\r\n\r\n1", "\r\n\r\n?");
        let other: Vec<u8> = other.bytes().map(|b| if b == b'?' { 0xff } else { b }).collect();
        assert_eq!(code(&other), "MalformedPOSTRequest");
    }

    #[test]
    fn what_comes_before_the_file_is_limited() {
        let long = |len: usize| form(&field("a", &"x".repeat(len)), b"");
        assert!(read(&long(FIELDS_LEN_MAX - 300), 1000, 0..=0).is_ok());
        for form in [long(FIELDS_LEN_MAX), vec![b'x'; FIELDS_LEN_MAX + 2000]] {
            for piece in [1000, form.len()] {
                let code = read(&form, piece, 0..=0).unwrap_err();
                assert_eq!(code, "MaxPostPreDataLengthExceededError");
            }
        }
    }

    #[test]
    fn the_length_of_the_file_is_checked() {
        let form = form("", &[b'x'; 100]);
        for piece in [1, 64, form.len()] {
            assert_eq!(read(&form, piece, 100..=100).unwrap().2.len(), 100);
            assert_eq!(read(&form, piece, 101..=200).unwrap_err(), "EntityTooSmall");
            assert_eq!(read(&form, piece, 0..=99).unwrap_err(), "EntityTooLarge");
        }
    }

    #[test]
    fn boundaries_are_read() {
        let of = |text: &str| boundary_of(text).unwrap_or_default();
        assert_eq!(of("Multipart/Form-Data; charset=utf-8; Boundary=\"a;b\""), "a;b");
        assert_eq!(of("multipart/form-data;boundary=----x"), "----x");
        let long = format!("multipart/form-data; boundary={}", "x".repeat(BOUNDARY_LEN_MAX + 1));
        for none in ["multipart/form-data", "multipart/mixed; boundary=b", &long, "x; boundary="] {
            assert_eq!(of(none), "", "{none}");
        }
    }
}
