//! Errors as S3 reports them.

use crate::error::Error;
use crate::gateway::Gateway;
use crate::shared::SharedGateway;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// Reads the gateway's own state for a client.
pub fn read_state<T>(
    front: &SharedGateway,
    read: impl FnOnce(&Gateway) -> S3Result<T>,
) -> S3Result<T> {
    front.read_state(read).map_err(|error| s3_error_of(&error))?
}

/// The error for a client, with only the details that a client can act on.
pub fn s3_error_of(error: &Error) -> S3Error {
    match error {
        Error::Full { .. } => {
            let code = S3ErrorCode::Custom("InsufficientStorage".into());
            let mut result = S3Error::with_message(code, error.to_string());
            result.set_status_code(hyper::StatusCode::INSUFFICIENT_STORAGE);
            result
        }
        // Not an error to retry: the bytes are gone.
        Error::Lost { .. } => {
            let code = S3ErrorCode::Custom("DataLost".into());
            let text = "a part of this object was lost with damage of the store";
            let mut result = S3Error::with_message(code, text);
            result.set_status_code(hyper::StatusCode::GONE);
            result
        }
        Error::Malformed(what) => s3s::s3_error!(InvalidRequest, "{what}"),
        // Clients repeat a request that is answered with 503.
        passing if passing.is_passing() => {
            s3s::s3_error!(ServiceUnavailable, "the store is away: try again")
        }
        _ => s3s::s3_error!(InternalError, "the gateway failed: {}", error.kind()),
    }
}
