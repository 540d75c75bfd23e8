/// `relu` of either backend.
pub fn relu(x: TensorView, out: TensorView) -> Result<()> {
    #[cfg(feature = "cuda")]
    if is_on_cuda(&x) {
        return «cuda»::relu::relu(x, out);
    }
    «cpu»::relu::relu(x, out)
}
