//! Products of matrices on Hopper's tensor cores, for a warpgroup at a time: PTX ISA 9.7.15, "Asynchronous Warpgroup
//! Level Matrix Multiply-Accumulate Instructions".
//!
//! Products run while the threads that began them go on. The order is always: [`fence`], products, [`commit`], other
//! work, [`Accumulator::wait`]. In between, nothing may touch the sums, a left factor in registers, or shared memory.
//!
//! A matrix in shared memory consists of tiles whose rows have 64 elements, 128 bytes, as `tma` writes them in its
//! swizzle of 128 bytes: the 16 bytes number `c` of row `r` are at number `c ^ (r % 8)`. Tiles begin at multiples of
//! 1024.

use core::arch::asm;

use crate::float::Bf16;
use crate::shared::Shared;
use crate::tensor_core::{Fragment, Half};

/// An element type of the products.
pub trait Operand: Half {
    /// Whether it is bfloat16; if not, it is float16.
    const BF16: bool;
}

impl Operand for f16 {
    const BF16: bool = false;
}

impl Operand for Bf16 {
    const BF16: bool = true;
}

/// A matrix in shared memory: the lower half of a "matrix descriptor", PTX ISA 9.7.15.5.1.
#[derive(Clone, Copy)]
pub struct Matrix(u32);

/// The upper half: eight rows take 1024 bytes ("stride dimension byte offset"), the swizzle is that of 128 bytes.
const UPPER: u32 = 1024 >> 4 | 1 << 30;

impl Matrix {
    /// Of a tile whose rows are summed over, "K-major": both factors of `A * B^T`.
    #[inline(always)]
    pub fn rows(tile: Shared) -> Self {
        Self(tile.0 >> 4)
    }

    /// Of tiles whose columns are summed over, "MN-major": the right factor of `A * B`. The next 64 columns are in a
    /// tile that begins `next` bytes further ("leading dimension byte offset").
    #[inline(always)]
    pub fn columns(tile: Shared, next: u32) -> Self {
        Self(tile.0 >> 4 | next >> 4 << 16)
    }

    /// What begins so many bytes further in the tile, a multiple of 16.
    #[inline(always)]
    pub fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes >> 4))
    }
}

/// Orders what the threads did with sums and factors in registers before the products that follow. PTX ISA,
/// wgmma.fence.
#[inline(always)]
pub fn fence() {
    // SAFETY: it only orders.
    unsafe { asm!("wgmma.fence.sync.aligned;", options(nostack)) }
}

/// Makes one group of the products since the last group. PTX ISA, wgmma.commit_group.
#[inline(always)]
pub fn commit() {
    // SAFETY: waits for nothing.
    unsafe { asm!("wgmma.commit_group.sync.aligned;", options(nostack)) }
}

/// Lets waits that follow come after the computation of `value`, which is never negative.
///
/// The assembler moves waits to the front, and with them the end of what is to run at the same time. It does not move
/// them past a store; this one is never done.
#[inline(always)]
pub fn after(value: f32) {
    // SAFETY: nothing is stored.
    unsafe {
        asm!(
            "{{ .reg .pred never; setp.lt.f32 never, {value}, 0f00000000;",
            "@never st.shared.f32 [{anywhere}], {value}; }}",
            value = in(reg32) value,
            anywhere = in(reg32) 0,
            options(nostack),
        );
    }
}

/// The float32 sums of 64 x N products: `N / 2` registers of each of 128 threads.
///
/// With `g = lane / 4` and `t = lane % 4`, a thread of warp `w` of the four has in elements `4 * i` to `4 * i + 3`:
/// columns `8 * i + 2 * t` and the next of row `16 * w + g`, then of row `16 * w + g + 8`. PTX ISA, "Register Fragments
/// for wgmma.mma_async.m64nNk16".
pub trait Accumulator {
    /// Begins `self = A * B^T` for 16 columns of both ([`Matrix::rows`]).
    ///
    /// # Safety
    /// All threads of the warpgroup must call this. The factors must be in shared memory, and stay until the end.
    unsafe fn product<T: Operand>(&mut self, a: Matrix, b: Matrix);

    /// Begins `self += A * B^T` for 16 columns of both ([`Matrix::rows`]).
    ///
    /// # Safety
    /// As for [`Accumulator::product`].
    unsafe fn add_product<T: Operand>(&mut self, a: Matrix, b: Matrix);

    /// Begins `self += A * B` for 16 columns of A and 16 rows of B ([`Matrix::columns`]). A thread has of A what it has
    /// of sums that are rounded to it, 8 elements.
    ///
    /// # Safety
    /// As for [`Accumulator::product`].
    unsafe fn add_fragment<T: Operand>(&mut self, a: Fragment, b: Matrix);

    /// Waits until at most the last `PENDING` groups are under way; sums of the others can be used. PTX ISA,
    /// wgmma.wait_group.
    fn wait<const PENDING: i32>(&mut self);
}

macro_rules! accumulator {
    ($n:literal, $($i:literal)*) => {
        impl Accumulator for [f32; $n / 2] {
            #[inline(always)]
            unsafe fn product<T: Operand>(&mut self, a: Matrix, b: Matrix) {
                if T::BF16 {
                    accumulator!(shared "bf16", $n, out, 0, self, a, b, $($i)*);
                } else {
                    accumulator!(shared "f16", $n, out, 0, self, a, b, $($i)*);
                }
            }

            #[inline(always)]
            unsafe fn add_product<T: Operand>(&mut self, a: Matrix, b: Matrix) {
                if T::BF16 {
                    accumulator!(shared "bf16", $n, inout, 1, self, a, b, $($i)*);
                } else {
                    accumulator!(shared "f16", $n, inout, 1, self, a, b, $($i)*);
                }
            }

            #[inline(always)]
            unsafe fn add_fragment<T: Operand>(&mut self, a: Fragment, b: Matrix) {
                if T::BF16 {
                    accumulator!(registers "bf16", $n, self, a, b, $($i)*);
                } else {
                    accumulator!(registers "f16", $n, self, a, b, $($i)*);
                }
            }

            #[inline(always)]
            fn wait<const PENDING: i32>(&mut self) {
                // SAFETY: the registers become those of the finished sums.
                unsafe {
                    asm!("wgmma.wait_group.sync.aligned {pending};",
                        accumulator!(list "// " $($i)*),
                        $(inout(reg32) self[$i],)*
                        pending = const PENDING, options(nostack));
                }
            }
        }
    };
    // PTX ISA, wgmma.mma_async, both factors in shared memory and in rows.
    (shared $type:literal, $n:literal, $way:ident, $add:literal, $d:ident, $a:ident, $b:ident, $($i:literal)*) => {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "{{ .reg .pred add; setp.ne.b32 add, {add}, 0;",
                ".reg .b64 a, b; mov.b64 a, {{{a}, {upper}}}; mov.b64 b, {{{b}, {upper}}};",
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $type, ".", $type),
                accumulator!(list "" $($i)*),
                ", a, b, add, 1, 1, 0, 0; }}",
                $($way(reg32) $d[$i],)*
                add = in(reg32) $add,
                a = in(reg32) $a.0,
                b = in(reg32) $b.0,
                upper = in(reg32) UPPER,
                options(nostack)
            );
        }
    };
    // The same with A in registers and B in columns.
    (registers $type:literal, $n:literal, $d:ident, $a:ident, $b:ident, $($i:literal)*) => {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "{{ .reg .b64 b; mov.b64 b, {{{b}, {upper}}};",
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $type, ".", $type),
                accumulator!(list "" $($i)*),
                ", {{{a0}, {a1}, {a2}, {a3}}}, b, 1, 1, 1, 1; }}",
                $(inout(reg32) $d[$i],)*
                a0 = in(reg32) $a[0],
                a1 = in(reg32) $a[1],
                a2 = in(reg32) $a[2],
                a3 = in(reg32) $a[3],
                b = in(reg32) $b.0,
                upper = in(reg32) UPPER,
                options(nostack)
            );
        }
    };
    (list $start:literal $first:literal $($i:literal)*) => {
        concat!($start, "{{{", $first, "}", $(", {", $i, "}",)* "}}")
    };
}

accumulator!(64, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
    24 25 26 27 28 29 30 31);
accumulator!(96, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
    24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47);
accumulator!(128, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
    24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
    48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
accumulator!(192, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
    24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
    48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71
    72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95);
accumulator!(256, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
    24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
    48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71
    72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
    96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119
    120 121 122 123 124 125 126 127);
