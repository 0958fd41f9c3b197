//! The same source compiled for several processor levels; the level is chosen at run time.
//!
//! Programs are built for the oldest processor of their family. A test of the processor inside a
//! kernel would cost more than the kernel, so the choice is made once, around the whole kernel.

use super::vector::{Base, Vector};
use core::sync::atomic::{AtomicU8, Ordering};

/// The instruction sets that a processor may have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// The instruction set that the program was built for.
    Base,
    /// x86-64 with AVX2.
    Avx2,
    /// x86-64 with AVX-512 (F, VL, BW, DQ, CD).
    Avx512,
}

/// Work that is compiled once for each [`Level`].
pub trait Kernel {
    /// The kernel's result.
    type Output;

    /// Does the work. It and every function that it calls must be `#[inline(always)]`: other
    /// functions are compiled for the base level only.
    fn run<V: Vector>(self, vector: V) -> Self::Output;
}

/// Runs the kernel as compiled for [`level`].
#[inline]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    match level() {
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        // SAFETY: the level is chosen only where the processor has all of it.
        Level::Avx512 => unsafe { with_avx512(kernel) },
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        // SAFETY: as above.
        Level::Avx2 => unsafe { with_avx2(kernel) },
        _ => kernel.run(Base(())),
    }
}

/// The best level of this processor, or a lower one that the environment variable `TRACELESS_CPU`
/// sets: `base`, `avx2` or `avx512`. Read once.
#[inline]
pub fn level() -> Level {
    static CACHED: AtomicU8 = AtomicU8::new(0);
    match CACHED.load(Ordering::Relaxed) {
        1 => Level::Base,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => {
            let level = level_from_environment()
                .map_or(detected_level(), |wanted| wanted.min(detected_level()));
            CACHED.store(level as u8 + 1, Ordering::Relaxed);
            level
        }
    }
}

#[cfg(feature = "std")]
fn level_from_environment() -> Option<Level> {
    match std::env::var("TRACELESS_CPU").ok()?.as_str() {
        "base" => Some(Level::Base),
        "avx2" => Some(Level::Avx2),
        "avx512" => Some(Level::Avx512),
        _ => None,
    }
}

#[cfg(not(feature = "std"))]
fn level_from_environment() -> Option<Level> {
    None
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
fn detected_level() -> Level {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt");
    let avx512 = has!("avx512f")
        && has!("avx512vl")
        && has!("avx512bw")
        && has!("avx512dq")
        && has!("avx512cd");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        (false, _) => Level::Base,
    }
}

/// Without `std` it is unknown which registers the operating system saves.
#[cfg(not(all(feature = "std", target_arch = "x86_64")))]
fn detected_level() -> Level {
    Level::Base
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512cd")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn with_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(super::vector::Avx512(()))
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn with_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(super::vector::Avx2(()))
}
