//! Marks for memcheck: which values are secret, and which have become public.
//!
//! Under `valgrind --tool=memcheck` a secret counts as uninitialised, so that a branch or an
//! address that depends on it is reported. Without valgrind the marks are a handful of instructions
//! that do nothing.
//!
//! A comparison of two secrets, of which only the result becomes public:
//!
//! ```
//! use traceless_sys::ct::secret::{classify, made_public};
//!
//! let mut secrets = [17_u64, 17];
//! classify(&mut secrets);
//! // A branch on `secrets` would be reported; the result may decide one.
//! let difference = secrets[0] ^ secrets[1];
//! assert!(made_public(difference) == 0);
//! ```

/// Marks `values` as secret.
#[inline(always)]
pub fn classify<T: Copy>(values: &mut [T]) {
    mark(0x4d43_0001, values);
}

/// Marks `values` as public: a branch or an address is about to reveal them.
#[inline(always)]
pub fn declassify<T: Copy>(values: &mut [T]) {
    mark(0x4d43_0002, values);
}

/// Returns the value, marked as public: a branch or an address is about to reveal it.
#[inline(always)]
#[must_use]
pub fn made_public<T: Copy>(value: T) -> T {
    let mut value = [value];
    declassify(&mut value);
    value[0]
}

/// A client request to valgrind (valgrind.h): rotations that cancel out, and an exchange of a
/// register with itself, by which valgrind recognises the request.
#[inline(always)]
fn mark<T>(request: u64, values: &mut [T]) {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let order = [request, values.as_mut_ptr() as u64, size_of_val(values) as u64, 0, 0, 0];
        // SAFETY: outside valgrind no register and no memory is changed. Valgrind reads `order`,
        // writes `rdx`, and changes what it knows about `values`, which are borrowed mutably.
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
