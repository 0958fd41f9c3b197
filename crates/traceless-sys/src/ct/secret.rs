//! What is secret and what has become public, for memcheck.
//!
//! Under `valgrind --tool=memcheck` a secret counts as never initialised, so that a branch or an
//! address that depends on it is reported. Without valgrind the marks are a handful of instructions
//! that do nothing.

/// From here on `values` is secret.
#[inline(always)]
pub fn classify<T: Copy>(values: &mut [T]) {
    mark(0x4d43_0001, values);
}

/// From here on `values` is public: it is about to be seen as a branch or as an address.
#[inline(always)]
pub fn declassify<T: Copy>(values: &mut [T]) {
    mark(0x4d43_0002, values);
}

/// The value, which is about to be seen.
#[inline(always)]
#[must_use]
pub fn made_public<T: Copy>(value: T) -> T {
    let mut value = [value];
    declassify(&mut value);
    value[0]
}

/// A client request to valgrind (valgrind.h): rotations that add up to nothing, and an exchange of
/// a register with itself, by which valgrind knows it.
#[inline(always)]
fn mark<T>(request: u64, values: &mut [T]) {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let order = [request, values.as_mut_ptr() as u64, size_of_val(values) as u64, 0, 0, 0];
        // SAFETY: outside valgrind no register and no memory is changed. Valgrind reads `order`,
        // writes `rdx`, and changes what it knows about `values`, which it is told may change.
        unsafe {
            core::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                in("rax") &raw const order,
                inout("rdx") 0_u64 => _,
                options(nostack)
            );
        }
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    let _ = (request, values);
}
