//! One block of rows of an attention: reads its queries, then the keys that they see, block by block, then writes its
//! results.
//!
//! A *row* is a query of one head. Query heads that share a head of k and v are rows of the same block: row r is query
//! r / group of the head r % group. Tiles are float32 for all dtypes.

use std::cell::Cell;
use std::f32::consts::{LN_2, LOG2_E};
use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

use crate::attention::{Attention, Heads};
use crate::half::Float;
use crate::matrix::transpose;
use crate::panel::{Keys, Panel};
use crate::simd::{Simd, Work};

/// Rows of a block: the lanes of a panel or a multiple of them.
pub const ROWS: usize = 64;
/// Keys of a block. All tiles of a block of rows fit in the second-level cache.
const KEYS: usize = 64;

/// 16 numbers at a multiple of 64 bytes, from where vectors are read fastest.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read as numbers")] [f32; 16]);

thread_local! {
    /// Memory for tiles, kept from block to block.
    static MEMORY: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Rows that share a head of k and v.
pub struct Block<'a, T> {
    attention: &'a Attention,
    batch: usize,
    kv_head: usize,
    rows: Range<usize>,
    /// Query heads that share the head.
    group: usize,
    dtype: PhantomData<T>,
}

impl<'a, T: Float> Block<'a, T> {
    /// Rows `rows` of head `kv_head` of k and v in batch entry `batch`.
    ///
    /// # Safety
    /// The addresses of `attention` must be those of tensors of `T`, as it describes them, and nobody else may write
    /// these rows of its results.
    pub unsafe fn new(
        attention: &'a Attention,
        batch: usize,
        kv_head: usize,
        rows: Range<usize>,
    ) -> Self {
        Self {
            attention,
            batch,
            kv_head,
            rows,
            group: attention.heads / attention.kv_heads,
            dtype: PhantomData,
        }
    }

    /// Query and head of a row.
    fn query_and_head(&self, row: usize) -> (usize, usize) {
        let head = self.kv_head * self.group + row % self.group;
        (row / self.group, head)
    }

    /// A row of q, k or v, at a place of the sequence.
    fn row(&self, tensor: Heads, place: usize, head: usize) -> &[T] {
        let [batch, position, of_head] = tensor.strides;
        let offset =
            self.batch as isize * batch + place as isize * position + head as isize * of_head;
        let data = tensor.data.cast::<T>();
        // SAFETY: by the promise of `new`, there are `dim` elements at this index, which no one changes.
        unsafe { slice::from_raw_parts(data.offset(offset), self.attention.dim) }
    }

    /// Reads keys and their values.
    #[inline(always)]
    fn read_keys(&self, range: Range<usize>, keys: &mut Keys) {
        let &Attention { dim, k, v, .. } = self.attention;
        for (tensor, tile) in [(k, &mut *keys.keys), (v, &mut *keys.values)] {
            for (place, to) in range.clone().zip(tile.chunks_exact_mut(dim)) {
                T::widen(self.row(tensor, place, self.kv_head), to);
            }
        }
        keys.range = range;
    }

    /// Reads the queries of a panel that begins with row `first` of the block; the block's last row is repeated in
    /// lanes that are left. `rows` is memory for (lanes, dim).
    #[inline(always)]
    fn begin(&self, first: usize, panel: Panel, rows: &mut [f32]) {
        let &Attention {
            scale,
            softcap,
            dim,
            q,
            alibi,
            ..
        } = self.attention;
        let past = self.attention.key_len as isize - self.attention.query_len as isize;
        let last = self.rows.len() - 1;
        for (lane, to) in rows.chunks_exact_mut(dim).take(panel.lanes).enumerate() {
            let (query, head) = self.query_and_head(self.rows.start + last.min(first + lane));
            T::widen(self.row(q, query, head), to);
            panel.positions[lane] = query as isize + past;
            panel.slopes[lane] = alibi.map_or(0.0, |alibi| {
                // SAFETY: by the promise of `new`, there is a slope for each batch entry and head.
                LOG2_E * unsafe { *alibi.data.add(self.batch * alibi.batch_stride + head) }
            });
        }
        transpose(rows, dim, panel.queries, panel.lanes);
        let factor = if softcap > 0.0 {
            scale / softcap
        } else {
            scale * LOG2_E
        };
        panel.queries.iter_mut().for_each(|x| *x *= factor);
        panel.sums.fill(0.0);
        panel.tops.fill(f32::NEG_INFINITY);
        panel.totals.fill(0.0);
    }

    /// Writes the results of a panel that begins with row `first` of the block. `rows` is memory for (lanes, dim).
    #[inline(always)]
    fn end(&self, first: usize, panel: Panel, rows: &mut [f32]) {
        let &Attention {
            query_len,
            heads,
            dim,
            out,
            lse,
            ..
        } = self.attention;
        transpose(panel.sums, panel.lanes, rows, dim);
        let count = panel.lanes.min(self.rows.len() - first);
        for (lane, sums) in rows.chunks_exact_mut(dim).take(count).enumerate() {
            let (query, head) = self.query_and_head(self.rows.start + first + lane);
            let (top, total) = (panel.tops[lane], panel.totals[lane]);
            // Without a key, the sums are 0, too.
            let no_key = total == 0.0;
            let factor = if no_key { 1.0 } else { 1.0 / total };
            sums.iter_mut().for_each(|sum| *sum *= factor);
            let row = (self.batch * query_len + query) * heads + head;
            // SAFETY: by the promise of `new`, this row of the result has `dim` elements, which are no one else's.
            let result = unsafe { slice::from_raw_parts_mut(out.cast::<T>().add(row * dim), dim) };
            T::narrow(sums, result);
            if !lse.is_null() {
                let place = (self.batch * heads + head) * query_len + query;
                let log = if no_key {
                    f32::INFINITY
                } else {
                    (top + total.log2()) * LN_2
                };
                // SAFETY: as above.
                unsafe { lse.add(place).write(log) };
            }
        }
    }
}

/// The rows of a block, panel by panel; see [`Panel`].
struct Rows<'a> {
    queries: &'a mut [f32],
    sums: &'a mut [f32],
    tops: [f32; ROWS],
    totals: [f32; ROWS],
    slopes: [f32; ROWS],
    positions: [isize; ROWS],
}

impl Rows<'_> {
    /// The panel of so many lanes that begins with a row of the block.
    #[inline(always)]
    fn panel(&mut self, first: usize, lanes: usize, dim: usize) -> Panel<'_> {
        let (numbers, range) = (first * dim..(first + lanes) * dim, first..first + lanes);
        Panel {
            lanes,
            queries: &mut self.queries[numbers.clone()],
            sums: &mut self.sums[numbers],
            tops: &mut self.tops[range.clone()],
            totals: &mut self.totals[range.clone()],
            slopes: &mut self.slopes[range.clone()],
            positions: &mut self.positions[range],
        }
    }
}

impl<T: Float> Work for Block<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const VECTORS: usize>(self, simd: S) {
        let (attention, dim, count) = (self.attention, self.attention.dim, self.rows.len());
        let widest = VECTORS * S::LANES;
        let mut memory = MEMORY.take();
        let size = 2 * (ROWS + KEYS) * dim + KEYS * widest;
        memory.resize(memory.len().max(size.div_ceil(16)), Line([0.0; 16]));
        // SAFETY: a `Line` is 16 numbers without gaps.
        let floats = unsafe { slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), size) };
        let (queries, floats) = floats.split_at_mut(ROWS * dim);
        let (sums, floats) = floats.split_at_mut(ROWS * dim);
        let (keys, floats) = floats.split_at_mut(KEYS * dim);
        let (values, scores) = floats.split_at_mut(KEYS * dim);
        let mut keys = Keys {
            range: 0..0,
            keys,
            values,
            scores,
        };
        let [tops, totals, slopes] = [[0.0; ROWS]; 3];
        let positions = [0; ROWS];
        let mut rows = Rows {
            queries,
            sums,
            tops,
            totals,
            slopes,
            positions,
        };

        // A panel is one vector where that is enough for the rows that are left.
        let lanes = |first| {
            if count - first <= S::LANES {
                S::LANES
            } else {
                widest
            }
        };
        for first in (0..count).step_by(widest) {
            self.begin(first, rows.panel(first, lanes(first), dim), keys.values);
        }
        let first = attention.seen(rows.positions[0]).start;
        let end = attention.seen(rows.positions[count - 1]).end;
        for start in (first..end).step_by(KEYS) {
            self.read_keys(start..end.min(start + KEYS), &mut keys);
            for first in (0..count).step_by(widest) {
                let mut panel = rows.panel(first, lanes(first), dim);
                if panel.lanes == widest {
                    panel.add::<S, VECTORS>(simd, attention, &mut keys);
                } else {
                    panel.add::<S, 1>(simd, attention, &mut keys);
                }
            }
        }
        for first in (0..count).step_by(widest) {
            self.end(first, rows.panel(first, lanes(first), dim), keys.values);
        }
        MEMORY.set(memory);
    }
}
