//! Arithmetic that `cuda_device::float` does not have.

use cuda_device::ptx_asm;

/// The greater of two values; where one is NaN, the other. PTX ISA, max.f32.
///
/// That is [`f32::max`], for which cuda-oxide has several instructions.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    let greater: f32;
    // SAFETY: from registers to a register.
    unsafe {
        ptx_asm!(
            "max.f32 %0, %1, %2;",
            out("=f") greater,
            in("f") a,
            in("f") b,
            options(register_only),
        );
    }
    greater
}
