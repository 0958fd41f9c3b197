//! The operations that times of the group tree are compared with. `bench/floors.toml` explains them
//! in words.

use crate::bench::controls::Operations;

/// Bytes of a bucket of four blocks of 64 bytes, with its metadata.
pub const BUCKET_64B: usize = 352;

/// Bytes of a bucket of four blocks of 4 KiB, with its metadata.
pub const BUCKET_4K: usize = 16_512;

/// Bytes of a page of the oblivious client's tree: seven buckets of two blocks of 64 bytes.
pub const PAGE_64B: usize = 1072;

/// A path of 19 levels, 12 of them cached: seven buckets are opened and sealed, and each is a miss.
pub const AEAD_64B: Operations = Operations { passes: 14.0, misses: 7.0, ..Operations::NONE };

/// A path of 15 levels, 10 of them cached, with 20 blocks that are copied twice.
pub const AEAD_4K: Operations =
    Operations { passes: 10.0, copies: 40.0, misses: 5.0, ..Operations::NONE };

/// The path of [`AEAD_64B`] without a cipher: each of 76 slots is looked at twice, and written.
pub const UNSEALED_64B: Operations =
    Operations { misses: 7.0, hits: 3.0 * 76.0, ..Operations::NONE };

/// A path of 25 levels with 100 slots that are read and written; no cache holds five of the levels.
pub const GHOST: Operations = Operations { misses: 5.0, hits: 200.0, ..Operations::NONE };

/// Copying the payload once.
pub const INIT: Operations = Operations { copies: (64 << 20) as f64 / 4096.0, ..Operations::NONE };

/// A hit for each line that an access touches (`traceless::oblivious::Traffic` counts the bytes),
/// and two misses for each level that no cache holds.
pub const OBLIVIOUS_16: Operations = Operations { hits: 773.0, ..Operations::NONE };
pub const OBLIVIOUS_20: Operations = Operations { hits: 953.0, misses: 6.0, ..Operations::NONE };
pub const OBLIVIOUS_24: Operations = Operations { hits: 1169.0, misses: 12.0, ..Operations::NONE };

/// [`OBLIVIOUS_20`] with three pages on each of two paths opened and sealed.
pub const OBLIVIOUS_AEAD: Operations = Operations { passes: 12.0, ..OBLIVIOUS_20 };
