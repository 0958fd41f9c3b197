//! Random bits that a copy of this process, or of its machine, does not draw again.
//!
//! A generator with its state in memory repeats itself in a copy of that memory. So does the
//! kernel's generator if its machine was resumed twice from one snapshot, until the kernel learns
//! of it. The processor's generator, which draws anew at each call, does not.

/// 64 bits that the processor draws at this call; `None` where it has no instruction for it.
///
/// ```
/// use traceless_sys::hardware_random;
///
/// let draws: Vec<u64> = (0..4).filter_map(|_| hardware_random()).collect();
/// // A processor without the instruction draws nothing.
/// assert!(draws.is_empty() || draws.windows(2).all(|two| two[0] != two[1]));
/// ```
#[inline]
pub fn hardware_random() -> Option<u64> {
    imp::hardware_random()
}

/// The processor's tick counter; 0 where it has none.
#[inline]
pub fn processor_ticks() -> u64 {
    imp::processor_ticks()
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use core::arch::x86_64::{__cpuid, _rdrand64_step, _rdtsc};
    use core::sync::atomic::{AtomicU8, Ordering};

    /// Number of attempts at a draw, as Intel's software guide advises.
    const TRIES: usize = 10;
    /// The bit of register c of cpuid's first leaf that announces the instruction.
    const RDRAND_BIT: u32 = 30;

    const UNKNOWN: u8 = 0;
    const ABSENT: u8 = 1;
    const PRESENT: u8 = 2;

    static RDRAND: AtomicU8 = AtomicU8::new(UNKNOWN);

    #[inline]
    pub fn hardware_random() -> Option<u64> {
        let mut state = RDRAND.load(Ordering::Relaxed);
        if state == UNKNOWN {
            state = if works() { PRESENT } else { ABSENT };
            RDRAND.store(state, Ordering::Relaxed);
        }
        if state == PRESENT { draw() } else { None }
    }

    /// Whether the instruction exists and works: some processors return a constant after a suspend.
    #[cold]
    fn works() -> bool {
        __cpuid(1).ecx >> RDRAND_BIT & 1 == 1 && {
            let drawn = [draw(), draw(), draw()];
            drawn.iter().all(Option::is_some) && drawn[0] != drawn[1] && drawn[1] != drawn[2]
        }
    }

    #[inline]
    fn draw() -> Option<u64> {
        for _ in 0..TRIES {
            let mut bits = 0;
            // SAFETY: the instruction is there: `works` looked before the first call.
            if unsafe { step(&mut bits) } {
                return Some(bits);
            }
        }
        None
    }

    /// Makes one draw. Returns whether the processor had bits available.
    #[target_feature(enable = "rdrand")]
    fn step(bits: &mut u64) -> bool {
        _rdrand64_step(bits) == 1
    }

    #[inline]
    pub fn processor_ticks() -> u64 {
        // SAFETY: every processor of this kind has the instruction, and it touches no memory.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod imp {
    pub fn hardware_random() -> Option<u64> {
        None
    }

    pub fn processor_ticks() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_draws_are_equal() {
        let drawn: Vec<u64> = (0..1000).map_while(|_| hardware_random()).collect();
        let mut sorted = drawn.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), drawn.len());
        // Every bit must be set about half of the time.
        if drawn.len() == 1000 {
            for bit in 0..64 {
                let ones = drawn.iter().filter(|&&x| x >> bit & 1 == 1).count();
                assert!((350..=650).contains(&ones), "bit {bit}: {ones}");
            }
        }
    }

    #[test]
    fn processor_ticks_advance() {
        let first = processor_ticks();
        let moved = (0..1_000_000).any(|_| processor_ticks() != first);
        assert!(moved || first == 0);
    }
}
