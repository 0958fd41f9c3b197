//! The exit codes of a volume's errors.

use crate::failure::{BUSY, DEVICE, FINDING, Failure, KEY, USAGE, of_listening};
use traceless_volume::error::Kind;
use traceless_volume::{Error, fuse, nbd};

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        let code = match e.kind() {
            Kind::Finding => FINDING,
            Kind::Usage => USAGE,
            Kind::Key => KEY,
            Kind::Device => DEVICE,
            Kind::Busy => BUSY,
        };
        Self::new(code, e)
    }
}

impl From<fuse::Error> for Failure {
    fn from(e: fuse::Error) -> Self {
        let code = match e {
            fuse::Error::Busy { .. }
            | fuse::Error::LoopBusy { .. }
            | fuse::Error::AlreadyMounted { .. } => BUSY,
            fuse::Error::Io { .. } | fuse::Error::NotBlank { .. } => DEVICE,
            _ => USAGE,
        };
        Self::new(code, e)
    }
}

impl From<nbd::Error> for Failure {
    fn from(e: nbd::Error) -> Self {
        let code = match &e {
            nbd::Error::SocketInUse { .. } => BUSY,
            nbd::Error::Listen { source, .. } => of_listening(source, USAGE),
            _ => USAGE,
        };
        Self::new(code, e)
    }
}

#[cfg(feature = "ublk")]
impl From<traceless_volume::ublk::Error> for Failure {
    fn from(e: traceless_volume::ublk::Error) -> Self {
        Self::usage(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn an_address_with_another_listener_is_in_use() {
        let failure = |kind: io::ErrorKind| {
            Failure::from(nbd::Error::Listen { address: "[::1]:1".into(), source: kind.into() })
        };
        assert_eq!(failure(io::ErrorKind::AddrInUse).code, BUSY);
        assert_eq!(failure(io::ErrorKind::AddrNotAvailable).code, USAGE);
    }
}
