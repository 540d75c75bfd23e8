//! An attention problem, and a block's share of it.

use core::num::NonZeroU32;

use cuda_device::thread;

use crate::shared::Source;

/// A tensor (batch, position, head, dim).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Heads {
    /// Address of the first element.
    data: *const u8,
    /// In elements; that of the last dimension is 1.
    strides: [i64; 3],
}

/// What the kernels compute: their parameter. The same as `Parameters` in src/flash_attn2.rs.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Parameters {
    pub q: Heads,
    pub k: Heads,
    pub v: Heads,
    /// Contiguous (batch, query, head, dim).
    pub out: *mut u8,
    /// Contiguous (batch, head, query), or null.
    pub lse: *mut f32,
    /// ALiBi's slope of each head, or null; those of the next batch entry begin so many further.
    pub slopes: *const f32,
    pub slopes_stride: u64,
    /// Queries, and keys and values, of each head.
    pub query_len: i32,
    pub key_len: i32,
    pub heads: NonZeroU32,
    /// Query heads that share a head of keys and values.
    pub group: NonZeroU32,
    /// Blocks that share the queries of a head.
    pub blocks: NonZeroU32,
    pub dim: u32,
    /// How many keys a query sees before and behind its own position.
    pub left: i32,
    pub right: i32,
    /// Factor of the products of queries and keys.
    pub scale: f32,
    /// Scores become softcap * tanh(score / softcap) where it is above 0.
    pub softcap: f32,
}

impl Parameters {
    /// Rows of one head, of which those from `first` on and before `last` are there.
    #[inline(always)]
    pub fn source<const PARTS: usize>(
        &self,
        heads: &Heads,
        batch: u32,
        head: u32,
        rows: [i32; 2],
    ) -> Source<PARTS> {
        let [batch_stride, stride, head_stride] = heads.strides;
        let elements = i64::from(batch) * batch_stride + i64::from(head) * head_stride;
        let data = heads.data.wrapping_offset(elements as isize * 2);
        Source::new(data, stride * 2, rows, self.dim)
    }

    /// ALiBi's slope of a head, or 0.
    ///
    /// # Safety
    /// The slopes must be readable.
    #[inline(always)]
    pub unsafe fn slope(&self, batch: u32, head: u32) -> f32 {
        if self.slopes.is_null() {
            return 0.0;
        }
        let index = u64::from(batch) * self.slopes_stride + u64::from(head);
        // SAFETY: the caller's promise.
        unsafe { *self.slopes.add(index as usize) }
    }
}

/// The queries of a block, and the keys that they see.
#[derive(Clone, Copy)]
pub struct Block {
    pub batch: u32,
    pub head: u32,
    /// First query, and the one after the last.
    pub queries: [i32; 2],
    /// Position of query 0 among the keys.
    pub position: i32,
    /// First key that any of the queries sees, and the one after the last.
    pub keys: [i32; 2],
}

impl Block {
    /// This block, which has so many queries.
    #[inline(always)]
    pub fn new(parameters: &Parameters, count: i32) -> Self {
        let &Parameters {
            query_len,
            key_len,
            left,
            right,
            heads,
            blocks,
            ..
        } = parameters;
        let (index, others) = (thread::blockIdx_x() % blocks, thread::blockIdx_x() / blocks);
        // Blocks start in the order of their numbers. Where queries see no later keys, the last ones see the most: they
        // go first, and what is left in the end is short.
        let start = (blocks.get() - 1 - index) as i32 * count;
        let end = query_len.min(start + count);
        let position = key_len - query_len;
        Self {
            batch: others / heads,
            head: others % heads,
            queries: [start, end],
            position,
            keys: [
                (position + start - left).max(0),
                (position + end + right).min(key_len),
            ],
        }
    }

    /// Whether there is a query that does not see all of `count` keys from `key` on.
    #[inline(always)]
    pub fn hides(&self, parameters: &Parameters, key: i32, count: i32) -> bool {
        let [first, end] = self.queries.map(|query| self.position + query);
        let last_seen = (first + parameters.right).min(parameters.key_len - 1);
        key + count - 1 > last_seen || key < end - 1 - parameters.left
    }
}
