//! Streams bytes of objects in and out, a little at a time.
//!
//! The gateway works in threads that may block; the network's tasks only pass bytes. When a client
//! goes away its channel closes, and the thread gives back its reserved blocks.

use super::checksums::Algorithm;
use super::errors::{read_state, s3_error_of};
use super::unsized_bodies::another_hash;
use crate::error::Result;
use crate::gateway::{ByteRange, Draft, Gateway, Object};
use crate::shared::{Protocol, SharedGateway};
use bytes::Bytes;
use core::ops::Range;
use futures_util::StreamExt;
use hyper::{HeaderMap, StatusCode};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{Checksum, StreamingBlob};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result, TrailingHeaders, s3_error};
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The checksum of bytes for which a client announces none.
pub const DEFAULT_CHECKSUM: Algorithm = Algorithm::Crc64nvme;
/// Pieces of a body that may wait between network and gateway.
const QUEUE_LEN: usize = 4;

/// The announced properties of an upload's bytes.
#[derive(Default)]
pub struct BodyClaims {
    /// Length, if announced.
    pub len: Option<u64>,
    /// MD5 digest, in base64.
    pub md5: Option<String>,
    /// Checksums, in base64.
    pub checksum: Checksum,
    /// The kind of checksum that follows the bytes.
    pub algorithm: Option<String>,
    /// The kind of checksum that is kept, whichever the client sends.
    pub kept: Option<Algorithm>,
    /// Headers that follow the bytes.
    pub trailers: Trailers,
}

/// Headers that follow the bytes.
#[derive(Default)]
pub struct Trailers {
    /// Names that a header before the bytes announces.
    announced_names: Vec<String>,
    /// The headers that arrive.
    found: Option<TrailingHeaders>,
}

impl Trailers {
    /// The trailers of a request.
    pub fn of<T>(request: &mut S3Request<T>) -> Self {
        let announced_names = request.headers.get_all("x-amz-trailer").iter();
        let announced_names =
            announced_names.flat_map(|names| names.to_str().unwrap_or_default().split(','));
        let announced_names = announced_names.map(|name| name.trim().to_ascii_lowercase());
        let announced_names = announced_names.filter(|name| !name.is_empty()).collect();
        Self { announced_names, found: request.trailing_headers.take() }
    }

    fn announces(&self, name: &str) -> bool {
        self.announced_names.iter().any(|announced| announced == name)
    }

    /// The value of a header that arrived. The headers are complete only after the last byte.
    fn get(&self, name: &str) -> Option<String> {
        let read = |headers: &HeaderMap| Some(headers.get(name)?.to_str().ok()?.to_owned());
        self.found.as_ref()?.read(read)?
    }

    /// Fails if an announced header is missing after the bytes: it was removed on the way.
    fn check(&self) -> S3Result<()> {
        if let Some(missing) = self.announced_names.iter().find(|name| self.get(name).is_none()) {
            let code = S3ErrorCode::Custom("MalformedTrailerError".into());
            let mut error = S3Error::with_message(code, format!("{missing} was promised"));
            error.set_status_code(StatusCode::BAD_REQUEST);
            return Err(error);
        }
        Ok(())
    }
}

/// Bytes that arrived completely and are in the tree, but under no name.
pub struct UploadBytes {
    /// The blocks with the bytes.
    pub draft: Draft,
    /// The digest of the bytes.
    pub md5: [u8; 16],
    /// The announced kinds of checksums of the bytes, or one if none was announced.
    pub checksum: Checksum,
}

enum Piece {
    Bytes(Bytes),
    /// The body is complete. If this is missing, the client went away.
    End,
}

/// Receives a body, and passes it to `bind` under the gateway's lock, to be bound or abandoned.
pub async fn receive<T: Send + 'static>(
    front: Arc<SharedGateway>,
    body: Option<StreamingBlob>,
    announced: BodyClaims,
    bind: impl FnOnce(&mut Gateway, UploadBytes) -> Result<S3Result<T>> + Send + 'static,
) -> S3Result<T> {
    if let Some(len) = announced.len {
        read_state(&front, |gateway| gateway.check_room(len).map_err(|error| s3_error_of(&error)))?;
    }
    let (sender, receiver) = channel(QUEUE_LEN);
    let writer = tokio::task::spawn_blocking(move || write(&front, receiver, &announced, bind));
    let sent = send(body, sender).await;
    let written = writer.await.map_err(|e| s3_error!(e, InternalError))?;
    sent.and(written)
}

async fn send(body: Option<StreamingBlob>, to: Sender<Piece>) -> S3Result<()> {
    if let Some(mut body) = body {
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| match error.downcast::<S3Error>() {
                Ok(error) => *error,
                Err(error) => broken(&error.to_string()),
            })?;
            if to.send(Piece::Bytes(piece)).await.is_err() {
                // The writer has failed, and returns the error.
                return Ok(());
            }
        }
    }
    let _ = to.send(Piece::End).await;
    Ok(())
}

/// Why a body ended early. Only the text of the library's error distinguishes the cases.
fn broken(why: &str) -> S3Error {
    if why.contains("Sha256Mismatch") {
        return another_hash();
    }
    if why.contains("SignatureMismatch") {
        return s3_error!(SignatureDoesNotMatch, "a chunk of the body, or its end, was changed");
    }
    s3_error!(IncompleteBody, "the body broke off: {why}")
}

fn write<T>(
    front: &SharedGateway,
    from: Receiver<Piece>,
    announced: &BodyClaims,
    bind: impl FnOnce(&mut Gateway, UploadBytes) -> Result<S3Result<T>>,
) -> S3Result<T> {
    let mut draft = Draft::default();
    match fill(front, from, announced, &mut draft) {
        Ok((md5, checksum)) => {
            let mut received = Some(UploadBytes { draft, md5, checksum });
            let bound = front
                .update_state(|gateway| bind(gateway, received.take().expect("it is called once")));
            if let Some(UploadBytes { draft, .. }) = received {
                front.abandon(draft);
            }
            bound.map_err(|error| s3_error_of(&error))?
        }
        Err(error) => {
            front.abandon(draft);
            Err(error)
        }
    }
}

fn fill(
    front: &SharedGateway,
    mut from: Receiver<Piece>,
    announced: &BodyClaims,
    draft: &mut Draft,
) -> S3Result<([u8; 16], Checksum)> {
    let (mut md5, mut sums) = (Md5::new(), hasher(announced));
    loop {
        match from.blocking_recv() {
            Some(Piece::Bytes(bytes)) => {
                md5.update(&bytes);
                sums.update(&bytes);
                front.metrics().took(Protocol::S3, bytes.len());
                front.append(draft, &bytes).map_err(|error| s3_error_of(&error))?;
            }
            Some(Piece::End) => break,
            None => return Err(s3_error!(IncompleteBody)),
        }
    }
    if announced.len.is_some_and(|len| len != draft.len()) {
        return Err(s3_error!(IncompleteBody));
    }
    let (md5, sums) = (md5.finalize(), sums.finalize());
    check(announced, &md5, &sums)?;
    front.complete(draft).map_err(|error| s3_error_of(&error))?;
    Ok((md5, sums))
}

/// Sends bytes of an object. If the first bytes cannot be read, this is an error; if later ones
/// cannot, the client receives a truncated body.
pub async fn send_object(
    front: Arc<SharedGateway>,
    object: Object,
    bytes: Range<u64>,
) -> S3Result<StreamingBlob> {
    let (sender, mut receiver) = channel(QUEUE_LEN);
    tokio::task::spawn_blocking(move || read(&front, ByteRange::new(object, bytes), &sender));
    let first = receiver.recv().await.transpose()?;
    let mut first = first.map(Ok);
    let rest = futures_util::stream::poll_fn(move |context| match first.take() {
        Some(bytes) => core::task::Poll::Ready(Some(bytes)),
        None => receiver.poll_recv(context).map(|piece| {
            piece.map(|piece| piece.map_err(|error| io::Error::other(error.to_string())))
        }),
    });
    Ok(StreamingBlob::wrap(rest))
}

fn read(front: &SharedGateway, mut reading: ByteRange, to: &Sender<S3Result<Bytes>>) {
    // After a lost block the same queries are made as without it. At a constant rate that shows
    // nothing.
    let mut is_silent = false;
    while !reading.is_done() {
        let piece = match front.read(&mut reading) {
            Err(_) if is_silent => return,
            Ok(bytes) if is_silent || bytes.is_empty() => continue,
            Ok(bytes) => {
                if let Some(error) = reading.lost_error() {
                    Err(s3_error_of(&error))
                } else {
                    front.metrics().gave(Protocol::S3, bytes.len());
                    Ok(Bytes::from(bytes))
                }
            }
            Err(error) => {
                let _ = to.blocking_send(Err(s3_error_of(&error)));
                return;
            }
        };
        is_silent = piece.is_err();
        if to.blocking_send(piece).is_err() || (is_silent && front.has_constant_rate()) {
            return;
        }
    }
}

fn hasher(announced: &BodyClaims) -> ChecksumHasher {
    let (sums, algorithm) =
        (&announced.checksum, announced.algorithm.as_deref().unwrap_or_default());
    let wants = |name: &str, sum: &Option<String>| {
        let trailer = format!("x-amz-checksum-{}", name.to_ascii_lowercase());
        sum.is_some() || algorithm == name || announced.trailers.announces(&trailer)
    };
    let mut hasher = ChecksumHasher::default();
    let mut announced_sums = sums.clone();
    let mut is_any = false;
    for one in Algorithm::ALL {
        if wants(one.word(), one.field(&mut announced_sums)) {
            one.add_to(&mut hasher);
            is_any = true;
        }
    }
    if let Some(kept) = announced.kept {
        kept.add_to(&mut hasher);
    } else if !is_any {
        DEFAULT_CHECKSUM.add_to(&mut hasher);
    }
    hasher
}

fn check(announced: &BodyClaims, md5: &[u8; 16], sums: &Checksum) -> S3Result<()> {
    if let Some(expected) = &announced.md5 {
        let expected = base64_simd::STANDARD.decode_to_vec(expected);
        let expected = expected.map_err(|_| s3_error!(InvalidDigest))?;
        if expected != md5 {
            return Err(s3_error!(BadDigest, "the bytes do not have the MD5 that was announced"));
        }
    }
    announced.trailers.check()?;
    let all = [
        ("crc32", &announced.checksum.checksum_crc32, &sums.checksum_crc32),
        ("crc32c", &announced.checksum.checksum_crc32c, &sums.checksum_crc32c),
        ("crc64nvme", &announced.checksum.checksum_crc64nvme, &sums.checksum_crc64nvme),
        ("sha1", &announced.checksum.checksum_sha1, &sums.checksum_sha1),
        ("sha256", &announced.checksum.checksum_sha256, &sums.checksum_sha256),
    ];
    for (name, expected, found) in all {
        let expected =
            expected.clone().or_else(|| announced.trailers.get(&format!("x-amz-checksum-{name}")));
        if expected.is_some() && found.is_some() && expected != *found {
            return Err(s3_error!(
                BadDigest,
                "the bytes do not have the {name} that was announced"
            ));
        }
    }
    Ok(())
}
