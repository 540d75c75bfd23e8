//! `out[i] = max(x[i], 0)`. NaN stays NaN and -0.0 becomes +0.0.

use crate::ptx::{self, Vector};

/// float32.
///
/// # Safety
/// `x` and `out` point to `x_len` float32 each, in the GPU's memory, and are equal or do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn relu_f32(x: *const u32, x_len: u64, out: *mut u32, _: u64) {
    // SAFETY: the caller's promise.
    unsafe { map(x, out, x_len, |word| ptx::max_f32(word, 0)) }
}

/// float16.
///
/// # Safety
/// `x` and `out` point to `x_len` float16 each, in the GPU's memory, and are equal or do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn relu_f16(x: *const u16, x_len: u64, out: *mut u16, _: u64) {
    // SAFETY: the caller's promise.
    unsafe { map(x, out, x_len, |word| ptx::max_f16x2(word, 0)) }
}

/// bfloat16.
///
/// # Safety
/// `x` and `out` point to `x_len` bfloat16 each, in the GPU's memory, and are equal or do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn relu_bf16(x: *const u16, x_len: u64, out: *mut u16, _: u64) {
    // SAFETY: the caller's promise.
    unsafe { map(x, out, x_len, |word| ptx::max_bf16x2(word, 0)) }
}

/// The bits of an element, alone in the low end of a 32-bit word.
trait Bits: Copy {
    fn into_word(self) -> u32;
    fn from_word(word: u32) -> Self;
}

impl Bits for u32 {
    fn into_word(self) -> u32 {
        self
    }
    fn from_word(word: u32) -> Self {
        word
    }
}

impl Bits for u16 {
    fn into_word(self) -> u32 {
        self.into()
    }
    fn from_word(word: u32) -> Self {
        word as u16
    }
}

/// `out[i] = f(x[i])` for `len` elements, where `f` takes a word of one or two elements.
///
/// Elements go four words at a time, except those before the first and after the last 16-byte boundary. Where `x`
/// and `out` lie differently to these boundaries, all elements go one by one.
///
/// # Safety
/// `x` and `out` point to `len` elements each, and are equal or do not overlap.
#[inline(always)]
unsafe fn map<T: Bits>(x: *const T, out: *mut T, len: u64, f: impl Fn(u32) -> u32) {
    let width = (size_of::<Vector>() / size_of::<T>()) as u64;
    let head = if x.align_offset(16) == out.align_offset(16) {
        len.min(x.align_offset(16) as u64)
    } else {
        len
    };
    let vectors = (len - head) / width;
    let tail = head + vectors * width;

    // SAFETY: an index below `len` is inside both tensors.
    let one = |i: u64| unsafe {
        let (x, out) = (x.add(i as usize), out.add(i as usize));
        out.write(T::from_word(f(x.read().into_word())));
    };
    ptx::for_each_index(head, one);
    ptx::for_each_index(vectors, |i| {
        let start = (head + i * width) as usize;
        // SAFETY: `width` elements from `start` are inside both tensors, and begin at a 16-byte boundary.
        unsafe {
            let Vector(words) = x.add(start).cast::<Vector>().read();
            let y = Vector(words.map(&f));
            out.add(start).cast::<Vector>().write(y);
        }
    });
    ptx::for_each_index(len - tail, |i| one(tail + i));
}
