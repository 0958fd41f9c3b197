//! Errors as S3 reports them.

use crate::error::Error;
use crate::front::Front;
use crate::gateway::Gateway;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// Reads the gateway's own state for a client.
pub fn look<T>(front: &Front, look: impl FnOnce(&Gateway) -> S3Result<T>) -> S3Result<T> {
    front.tell(look).map_err(|error| told(&error))?
}

/// The error for a client, with only the details that a client can act on.
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
