//! Errors as S3 tells them.

use crate::error::Error;
use s3s::{S3Error, S3ErrorCode};

/// What a client is told of what failed here: no more than it can do something about.
pub fn told(error: &Error) -> S3Error {
    match error {
        Error::Full { .. } => {
            let code = S3ErrorCode::Custom("InsufficientStorage".into());
            let mut told = S3Error::with_message(code, error.to_string());
            told.set_status_code(hyper::StatusCode::INSUFFICIENT_STORAGE);
            told
        }
        Error::Malformed(what) => s3s::s3_error!(InvalidRequest, "{what}"),
        _ => s3s::s3_error!(InternalError, "the gateway failed: {}", error.kind()),
    }
}
