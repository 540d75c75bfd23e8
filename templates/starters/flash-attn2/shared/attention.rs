//! The contract of an attention op: what its arguments must be, and the numbers that a kernel computes with.

use std::ops::Range;

use tvm_ffi::{Array, DLDevice, DLDeviceType, Result, TensorView, VALUE_ERROR, ensure};

use crate::checks::{Argument, DType};

/// The sizes of a head that the kernels take: multiples of 8 from 32 to 256.
const MIN_DIM: usize = 32;
pub const MAX_DIM: usize = 256;
const DIM_STEP: usize = 8;

/// What a backend takes.
pub struct Backend {
    pub device: DLDeviceType,
    pub dtypes: &'static [DType],
    /// Addresses and strides of q, k and v must be multiples of so many bytes; at least those of an element.
    pub alignment: usize,
}

/// A tensor (batch, seqlen, heads, dim) whose last dimension is contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Address of the first element.
    pub data: *mut u8,
    /// Elements from one batch entry, one position of the sequence and one head to the next. May be 0 or negative.
    pub strides: [isize; 3],
}

/// ALiBi slopes, float32.
#[derive(Clone, Copy, Debug)]
pub struct Slopes {
    /// Address of the slope of the first batch entry's first head; that of the next head follows it.
    pub data: *const f32,
    /// Slopes from one batch entry to the next: the number of query heads, or 0 where all entries share theirs.
    pub batch_stride: usize,
}

/// Checked arguments of a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    pub device: DLDevice,
    pub dtype: DType,
    pub batch: usize,
    /// Positions of the queries, and of the keys and values.
    pub query_len: usize,
    pub key_len: usize,
    /// Query heads, a multiple of the key and value heads: query head h uses head h / (heads / kv_heads) of k and v.
    pub heads: usize,
    pub kv_heads: usize,
    pub dim: usize,
    pub q: Heads,
    pub k: Heads,
    pub v: Heads,
    /// Contiguous, of the shape and dtype of q.
    pub out: *mut u8,
    /// Contiguous float32 (batch, heads, query_len), or null where it isn't asked for.
    pub lse: *mut f32,
    pub alibi: Option<Slopes>,
    /// Query i stands at i + key_len - query_len among the keys, and sees the keys from so many before that to so many
    /// after it. At most query_len + key_len, which means all.
    pub window: [usize; 2],
    /// Factor of the products of queries and keys; positive and finite.
    pub scale: f32,
    /// Scores become softcap * tanh(score / softcap) where it is above 0.
    pub softcap: f32,
}

// SAFETY: these are numbers and addresses; who reads or writes there promises that no two threads collide.
unsafe impl Send for Attention {}
// SAFETY: as above.
unsafe impl Sync for Attention {}

impl Attention {
    /// Checks the arguments of `fwd`; the first that is wrong is the one that the error is about.
    #[expect(clippy::too_many_arguments, reason = "they are those of the op")]
    pub fn new(
        backend: &Backend,
        q: &TensorView,
        k: &TensorView,
        v: &TensorView,
        alibi_slopes: Option<&TensorView>,
        out: &TensorView,
        lse: Option<&TensorView>,
        window: Array<i64>,
        scores: Array<Option<f64>>,
    ) -> Result<Self> {
        let (q, k, v) = (
            Argument::new("q", q),
            Argument::new("k", k),
            Argument::new("v", v),
        );
        let dtype = q.dtype_among(backend.dtypes)?;
        q.on(backend.device)?;
        let [batch, query_len, heads, dim] = q.dimensions("batch, seqlen, heads, dim")?;
        ensure!(
            (MIN_DIM..=MAX_DIM).contains(&dim) && dim.is_multiple_of(DIM_STEP),
            VALUE_ERROR,
            "q: expected a dim that is a multiple of {DIM_STEP} from {MIN_DIM} to {MAX_DIM}, got {dim}; pad q, k and v \
             with zeros, and give the softmax_scale of the true dim"
        );
        k.same_dtype(&q)?;
        k.same_device(&q)?;
        let [_, key_len, kv_heads, _] = k.dimensions("batch, seqlen, heads, dim")?;
        k.shaped(&[batch, key_len, kv_heads, dim], "batch and dim of q")?;
        ensure!(
            kv_heads > 0 && heads.is_multiple_of(kv_heads),
            VALUE_ERROR,
            "q: expected a number of heads that is a multiple of that of k, {kv_heads}, got {heads}"
        );
        v.like(&k)?;
        for argument in [&q, &k, &v] {
            argument.rows_contiguous(backend.alignment)?;
        }
        let alibi = alibi_slopes
            .map(|slopes| Slopes::new(&Argument::new("alibi_slopes", slopes), &q, batch, heads))
            .transpose()?;

        let out = Argument::new("out", out);
        out.like(&q)?;
        out.contiguous()?;
        out.rows_contiguous(backend.alignment)?;
        let lse = lse.map(|lse| Argument::new("lse", lse));
        if let Some(lse) = &lse {
            lse.dtype_among(&[DType::F32])?;
            lse.same_device(&q)?;
            lse.shaped(&[batch, heads, query_len], "(batch, heads, seqlen) of q")?;
            lse.contiguous()?;
            lse.apart(&out)?;
        }
        for input in [&q, &k, &v] {
            out.apart(input)?;
            lse.as_ref().map_or(Ok(()), |lse| lse.apart(input))?;
        }
        let [scale, softcap] = scores_of(&scores, dim)?;
        Ok(Self {
            device: q.tensor.device(),
            dtype,
            batch,
            query_len,
            key_len,
            heads,
            kv_heads,
            dim,
            q: Heads::of(&q),
            k: Heads::of(&k),
            v: Heads::of(&v),
            out: out.data(),
            lse: lse.map_or(std::ptr::null_mut(), |lse| lse.data().cast()),
            alibi,
            window: window_of(&window, query_len + key_len)?,
            scale,
            softcap,
        })
    }
}

impl Attention {
    /// The keys that a query at a position among them sees. The last query's position is that of the last key.
    pub fn seen(&self, position: isize) -> Range<usize> {
        let [left, right] = self.window.map(|reach| reach as isize);
        let key = |key: isize| key.clamp(0, self.key_len as isize) as usize;
        key(position - left)..key(position + right + 1)
    }
}

impl Heads {
    fn of(argument: &Argument) -> Self {
        let [batch, position, head, _] = argument.strides();
        Self {
            data: argument.data(),
            strides: [batch, position, head],
        }
    }
}

impl Slopes {
    fn new(slopes: &Argument, q: &Argument, batch: usize, heads: usize) -> Result<Self> {
        slopes.dtype_among(&[DType::F32])?;
        slopes.same_device(q)?;
        let per_batch = slopes.tensor.ndim() == 2;
        if per_batch {
            slopes.shaped(&[batch, heads], "(heads,) or (batch, heads) of q")?;
        } else {
            slopes.shaped(&[heads], "(heads,) or (batch, heads) of q")?;
        }
        slopes.contiguous()?;
        Ok(Self {
            data: slopes.data().cast(),
            batch_stride: if per_batch { heads } else { 0 },
        })
    }
}

/// `(left, right)`, with what is negative as `all`.
fn window_of(window: &Array<i64>, all: usize) -> Result<[usize; 2]> {
    ensure!(
        window.len() == 2,
        VALUE_ERROR,
        "window_size: expected (left, right), got {} numbers",
        window.len()
    );
    let reach = |size: i64| usize::try_from(size).map_or(all, |size| size.min(all));
    Ok([reach(window.get(0)?), reach(window.get(1)?)])
}

/// The scale of scores where none is given (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1).
fn default_scale(dim: usize) -> f64 {
    (dim as f64).powf(-0.5)
}

/// `(softmax_scale, softcap)`, with the scale's default.
fn scores_of(scores: &Array<Option<f64>>, dim: usize) -> Result<[f32; 2]> {
    ensure!(
        scores.len() == 2,
        VALUE_ERROR,
        "scores: expected (softmax_scale, softcap), got {} numbers",
        scores.len()
    );
    let scale = scores.get(0)?.unwrap_or(default_scale(dim)) as f32;
    ensure!(
        scale > 0.0 && scale.is_finite(),
        VALUE_ERROR,
        "softmax_scale: expected a finite number above 0, got {scale}"
    );
    let softcap = scores.get(1)?.unwrap_or(0.0) as f32;
    ensure!(
        softcap >= 0.0 && softcap.is_finite(),
        VALUE_ERROR,
        "softcap: expected a finite number, 0 (off) or above, got {softcap}"
    );
    Ok([scale, softcap])
}
