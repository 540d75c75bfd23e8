//! A kernel and its neighbours in the stream.

/// Waits until the kernels before this one have ended, then lets the blocks of the next one come to the multiprocessors
/// while this one's end. Every kernel that is launched early must call it before it touches global memory. It does
/// nothing in the PTX for other targets, whose kernels must not be launched early. PTX ISA, griddepcontrol.
#[inline(always)]
pub fn begin() {
    #[cfg(ptx_target = "sm_90a")]
    // SAFETY: waits.
    unsafe {
        core::arch::asm!(
            "griddepcontrol.wait;",
            "griddepcontrol.launch_dependents;",
            options(nostack)
        );
    }
}
