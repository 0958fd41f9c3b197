//! Where an anchor lies: in a file, on a server with compare-and-swap, or at a counter of a TPM.
//!
//! | place | what it is |
//! |---|---|
//! | `PATH` | a file |
//! | `redis://HOST:PORT/KEY`, `rediss://` | a value of Redis or Valkey; `?db=N` |
//! | `https://HOST/PATH`, `http://` | an object that is put with `If-Match`, as of `WebDAV` |
//! | `s3://BUCKET/KEY` | an object of S3, signed; `?endpoint=URL&region=REGION` |
//! | `tpm2:INDEX` | a counter of a TPM, and a file: `IMAGE.anchor` or `,file=FILE` |
//!
//! Without TLS only servers of this machine are used: on a network, an adversary could repeat
//! older replies.
//!
//! ```
//! use std::path::Path;
//! use traceless_volume::anchor_places::AnchorAddress;
//!
//! let address = AnchorAddress::parse(Path::new("rediss://:secret@nas:6380/photos"))?;
//! assert_eq!(address.to_string(), "rediss://nas:6380/photos");
//! assert!(AnchorAddress::parse(Path::new("tpm2:photos")).is_err());
//! # Ok::<(), traceless_volume::Error>(())
//! ```

mod address;
mod file_place;
mod http_value;
mod redis_value;
mod s3_signature;
mod server_link;
mod server_url;
mod shared_place;
mod tpm;
mod tpm_place;

pub use address::{AnchorAddress, S3Address};

use crate::error::Result;
use crate::format::anchor::AnchorPlace;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Time for one request to a server, with its connection.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Time of attempts to reach a server that is away.
const RETRY_TIME: Duration = Duration::from_secs(10);

/// The result of a request, before it is known which place it concerns.
type Outcome<T = ()> = io::Result<T>;

/// The place that `address` names, a path or a URL, for the image at `image`. Nothing is opened
/// yet.
pub(crate) fn place_at(address: &Path, image: &Path) -> Result<Box<dyn AnchorPlace>> {
    use shared_place::SharedPlace;
    Ok(match AnchorAddress::parse(address)? {
        AnchorAddress::File(path) => Box::new(file_place::FilePlace::new(&path)),
        AnchorAddress::Redis(url) => Box::new(SharedPlace::new(redis_value::RedisValue::new(url)?)),
        AnchorAddress::Http(url) => {
            Box::new(SharedPlace::new(http_value::HttpValue::new(url, None)?))
        }
        AnchorAddress::S3(address::S3Address { url, region, .. }) => {
            let signer = s3_signature::S3Signer::from_environment(&region)?;
            Box::new(SharedPlace::new(http_value::HttpValue::new(url, Some(signer))?))
        }
        AnchorAddress::Tpm(counter) => Box::new(tpm_place::TpmPlace::new(counter, image)),
    })
}
