//! `fwd(q, k, v, ...)`: attention by blocks of queries and keys, as FlashAttention-2 does it.
//!
//! Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, arXiv:2307.08691,
//! algorithm 1: the matrix of scores is never whole. Its softmax is computed online, block of keys by block of keys
//! (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, arXiv:1805.02867).

use tvm_ffi::{Array, DLDeviceType, Result, TensorView};

use crate::attention::{Attention, Backend};
use crate::checks::DType;

use crate::block::{Block, ROWS};
use crate::half::{Bf16, F16, Float};
use crate::{parallel, simd};

const CPU: Backend = Backend {
    device: DLDeviceType::kDLCPU,
    dtypes: &[DType::F32, DType::F16, DType::BF16],
    alignment: 1,
};

/// Multiplications that are worth a piece of work of their own: some microseconds.
const PIECE: usize = 1 << 19;

/// Writes the attention of q, k and v to `out` and, where it is given, its log-sum-exp to `lse`.
///
/// CPU tensors: q and out (batch, seqlen_q, heads, dim), k and v (batch, seqlen_k, kv_heads, dim), all of one dtype
/// (float32, float16 or bfloat16); `alibi_slopes` (heads,) or (batch, heads) and `lse` (batch, heads, seqlen_q) in
/// float32. `window` is (left, right), negative for unbounded; `scores` is (softmax_scale, softcap). See [`Attention`].
#[expect(clippy::too_many_arguments, reason = "Python calls it with these")]
pub fn fwd(
    q: TensorView,
    k: TensorView,
    v: TensorView,
    alibi_slopes: Option<TensorView>,
    out: TensorView,
    lse: Option<TensorView>,
    window: Array<i64>,
    scores: Array<Option<f64>>,
) -> Result<()> {
    let (slopes, lse) = (alibi_slopes.as_ref(), lse.as_ref());
    let attention = Attention::new(&CPU, &q, &k, &v, slopes, &out, lse, window, scores)?;
    // SAFETY: the tensors were checked, and the caller keeps them alive during the call.
    unsafe {
        match attention.dtype {
            DType::F32 => compute::<f32>(&attention),
            DType::F16 => compute::<F16>(&attention),
            DType::BF16 => compute::<Bf16>(&attention),
        }
    }
    Ok(())
}

/// Computes all blocks of queries, on all cores.
///
/// # Safety
/// The addresses of `attention` must be those of tensors of `T`, as it describes them.
unsafe fn compute<T: Float>(attention: &Attention) {
    if attention.batch * attention.query_len * attention.heads == 0 {
        return;
    }
    let &Attention {
        batch,
        query_len,
        key_len,
        heads,
        kv_heads,
        dim,
        ..
    } = attention;
    let rows = query_len * heads / kv_heads;
    let blocks = rows.div_ceil(ROWS);
    let products = 2 * rows.min(ROWS) * key_len * dim;
    let piece = PIECE.div_ceil(products.max(1));
    parallel::ranges(batch * kv_heads * blocks, piece, |range| {
        for task in range {
            // The last queries first: under a causal mask, they see the most keys.
            let first = (blocks - 1 - task % blocks) * ROWS;
            // SAFETY: the caller's promise; no two blocks write the same rows.
            simd::run(unsafe {
                Block::<T>::new(
                    attention,
                    task / blocks / kv_heads,
                    task / blocks % kv_heads,
                    first..rows.min(first + ROWS),
                )
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use tvm_ffi::DLDevice;

    use super::*;
    use crate::attention::{Heads, Slopes};
    use crate::simd::{Simd, Work, run_each};

    const HEADS: usize = 4;
    const DIM: usize = 40;

    /// Attention of random numbers, and where it wrote to.
    struct Case {
        attention: Attention,
        memory: [Vec<f32>; 6],
    }

    impl Case {
        fn new(query_len: usize, key_len: usize) -> Self {
            let random = |count: usize, mut seed: u32| -> Vec<f32> {
                let mut next = || {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
                };
                (0..count).map(|_| next()).collect()
            };
            let kv_heads = HEADS / 2;
            let mut memory = [
                random(query_len * HEADS * DIM, 1),
                random(key_len * kv_heads * DIM, 2),
                random(key_len * kv_heads * DIM, 3),
                vec![7.0; query_len * HEADS * DIM],
                vec![7.0; query_len * HEADS],
                vec![0.5, 0.25, 0.125, 0.0625],
            ];
            let [q, k, v, out, lse, _] = memory.each_mut().map(|numbers| numbers.as_mut_ptr());
            let heads = |data: *mut f32, heads: usize| Heads {
                data: data.cast(),
                strides: [0, (heads * DIM) as isize, DIM as isize],
            };
            let attention = Attention {
                device: DLDevice::new(DLDeviceType::kDLCPU, 0),
                dtype: DType::F32,
                batch: 1,
                query_len,
                key_len,
                heads: HEADS,
                kv_heads,
                dim: DIM,
                q: heads(q, HEADS),
                k: heads(k, kv_heads),
                v: heads(v, kv_heads),
                out: out.cast(),
                lse,
                alibi: None,
                window: [query_len + key_len; 2],
                scale: 0.5,
                softcap: 0.0,
            };
            Self { attention, memory }
        }
    }

    /// The result for a query and head by the formula, in float64.
    fn expected(case: &Case, query: usize, head: usize) -> (Vec<f64>, f64) {
        let Attention {
            scale,
            softcap,
            alibi,
            key_len,
            kv_heads,
            ..
        } = case.attention;
        let [q, k, v, _, _, slopes] = &case.memory;
        let row = |x: &[f32], index: usize| -> Vec<f64> {
            x[index * DIM..][..DIM]
                .iter()
                .map(|x| f64::from(*x))
                .collect()
        };
        let position = query as isize + key_len as isize - case.attention.query_len as isize;
        let (mut total, mut sums) = (0.0, vec![0.0; DIM]);
        for key in case.attention.seen(position) {
            let index = key * kv_heads + head / (HEADS / kv_heads);
            let products = row(q, query * HEADS + head).into_iter().zip(row(k, index));
            let mut score = f64::from(scale) * products.map(|(q, k)| q * k).sum::<f64>();
            if softcap > 0.0 {
                score = f64::from(softcap) * (score / f64::from(softcap)).tanh();
            }
            if alibi.is_some() {
                score -= f64::from(slopes[head]) * (position - key as isize).abs() as f64;
            }
            total += score.exp();
            for (sum, value) in sums.iter_mut().zip(row(v, index)) {
                *sum += score.exp() * value;
            }
        }
        if total == 0.0 {
            return (sums, f64::INFINITY);
        }
        (sums.iter().map(|sum| sum / total).collect(), total.ln())
    }

    /// Computes a case and checks it.
    #[derive(Clone, Copy)]
    struct Check {
        lens: [usize; 2],
        window: [usize; 2],
        softcap: f32,
        biased: bool,
    }

    impl Work for Check {
        type Output = ();

        fn run<S: Simd, const VECTORS: usize>(self, simd: S) {
            let mut case = Case::new(self.lens[0], self.lens[1]);
            let slopes = Slopes {
                data: case.memory[5].as_ptr(),
                batch_stride: 0,
            };
            let attention = &mut case.attention;
            attention.window = self.window;
            attention.softcap = self.softcap;
            attention.alibi = self.biased.then_some(slopes);
            let rows = attention.query_len * HEADS / attention.kv_heads;
            for kv_head in 0..attention.kv_heads {
                for first in (0..rows).step_by(ROWS) {
                    let rows = first..rows.min(first + ROWS);
                    // SAFETY: `Case::new` has memory of these sizes.
                    let block = unsafe { Block::<f32>::new(attention, 0, kv_head, rows) };
                    block.run::<S, VECTORS>(simd);
                }
            }
            check(&case);
        }
    }

    /// The tests in Python run on the widest vectors of the processor, these on all that it has.
    #[test]
    fn attention_on_all_vectors() {
        for lens in [[1, 1], [5, 70], [70, 5], [70, 150], [9, 0]] {
            for window in [[1000, 1000], [1000, 0], [20, 7]] {
                for (softcap, biased) in [(0.0, false), (2.0, false), (0.0, true)] {
                    run_each(Check {
                        lens,
                        window,
                        softcap,
                        biased,
                    });
                }
            }
        }
    }

    fn check(case: &Case) {
        let Attention { query_len, .. } = case.attention;
        for query in 0..query_len {
            for head in 0..HEADS {
                let (out, lse) = expected(case, query, head);
                let row = &case.memory[3][(query * HEADS + head) * DIM..][..DIM];
                for (x, expected) in row.iter().zip(out) {
                    assert!(
                        (f64::from(*x) - expected).abs() < 1e-5,
                        "{x}, not {expected}"
                    );
                }
                let log = f64::from(case.memory[4][head * query_len + query]);
                assert!(log == lse || (log - lse).abs() < 1e-5, "{log}, not {lse}");
            }
        }
    }
}
