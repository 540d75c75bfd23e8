/// `rms_norm` of either backend.
pub fn rms_norm(x: TensorView, weight: TensorView, out: TensorView, eps: f64) -> Result<()> {
    #[cfg(feature = "cuda")]
    if is_on_cuda(&x) {
        return «cuda»::rms_norm::rms_norm(x, weight, out, eps);
    }
    «cpu»::rms_norm::rms_norm(x, weight, out, eps)
}
