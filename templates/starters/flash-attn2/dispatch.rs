/// `fwd` of either backend.
#[expect(clippy::too_many_arguments, reason = "they are those of the op")]
pub fn fwd(
    q: TensorView,
    k: TensorView,
    v: TensorView,
    alibi_slopes: Option<TensorView>,
    out: TensorView,
    lse: Option<TensorView>,
    window: tvm_ffi::Array<i64>,
    scores: tvm_ffi::Array<Option<f64>>,
) -> Result<()> {
    #[cfg(feature = "cuda")]
    if is_on_cuda(&q) {
        return «cuda»::flash_attn2::fwd(q, k, v, alibi_slopes, out, lse, window, scores);
    }
    «cpu»::flash_attn2::fwd(q, k, v, alibi_slopes, out, lse, window, scores)
}
