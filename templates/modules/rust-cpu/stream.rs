//! Writes to memory past the caches.
//!
//! A processor reads each line of memory into its caches before it writes there. A result that is larger than the
//! caches does not stay in them: without them it is written in less time, and what they hold stays.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

/// Bytes of a result that is to be written so: as many as the last-level caches of most processors have.
pub const LARGE: usize = 32 << 20;

/// Whether `count` elements are to be written so: where they are many, and their memory is not new. New memory is
/// cleared by the system when it is first written, and is in the caches then.
pub fn pays<T>(out: *const T, count: usize) -> bool {
    count * size_of::<T>() >= LARGE && is_in_use(out.wrapping_add(count / 2).cast())
}

/// Whether the page of memory at an address has been written before.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn is_in_use(address: *const u8) -> bool {
    unsafe extern "C" {
        fn mincore(address: *const u8, length: usize, pages: *mut u8) -> std::ffi::c_int;
    }
    let (page, mut resident) = (address.map_addr(|address| address & !4095), 0);
    // SAFETY: mincore(2) reports on one page, in one byte.
    let failed = unsafe { mincore(page, 1, &mut resident) };
    failed == 0 && resident & 1 == 1
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn is_in_use(_: *const u8) -> bool {
    false
}

/// Writes `values` to `out`. [`finish`] must follow before other threads read it.
///
/// # Safety
/// `T` must be a type of numbers: without padding.
#[inline(always)]
pub unsafe fn write<T: Copy, const N: usize>(values: [T; N], out: &mut [T; N]) {
    #[cfg(target_arch = "x86_64")]
    {
        let from = values.as_ptr().cast::<__m128i>();
        let to = out.as_mut_ptr().cast::<__m128i>();
        let vectors = size_of_val(&values) / size_of::<__m128i>();
        if to.is_aligned() && size_of_val(&values) == vectors * size_of::<__m128i>() {
            for i in 0..vectors {
                // SAFETY: both are so many vectors, and `to` is aligned.
                unsafe { _mm_stream_si128(to.add(i), _mm_loadu_si128(from.add(i))) };
            }
            return;
        }
    }
    *out = values;
}

/// Ends the writes of a thread.
#[inline(always)]
pub fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: all processors of this architecture have SSE.
    unsafe {
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_or_not() {
        fn check<const N: usize>() {
            for start in 0..9 {
                let values = std::array::from_fn(|i| i as u16 + 1);
                let mut out = vec![0; N + 9];
                // SAFETY: u16 has no padding.
                unsafe { write::<_, N>(values, out[start..].first_chunk_mut().unwrap()) };
                finish();
                assert_eq!(out[start..start + N], values);
                assert_eq!(out.iter().filter(|x| **x == 0).count(), 9);
            }
        }
        check::<8>();
        check::<64>();
        check::<5>();
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn new_memory_is_not_in_use() {
        let mut memory = Vec::<u8>::with_capacity(2 * LARGE);
        assert!(!pays(memory.as_ptr(), LARGE));
        memory.resize(LARGE, 1);
        assert!(pays(memory.as_ptr(), LARGE));
        assert!(!pays(memory.as_ptr(), LARGE - 1));
    }
}
