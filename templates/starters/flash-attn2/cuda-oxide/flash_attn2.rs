//! FlashAttention-2, forward (Dao 2023, arXiv:2307.08691): attention without its matrix of scores in memory.
//!
//! A block of 4 warps takes `64 * TALL` queries of one head: each warp has `TALL` tiles of 16 queries, whose results it
//! sums in registers. Keys and values come through shared memory, 64 at a time and the last ones first. While the warps
//! multiply by some, the next ones are being copied.
//!
//! What isn't there is stored as zeros: queries behind the last, keys that none of the block's queries sees and their
//! values, and the elements from `dim` to the next size that there is a kernel for.

use core::f32::consts::LOG2_E;

use cuda_device::float::{ex2_approx_ftz_f32, fma_rn_f32, rcp_approx_ftz_f32};
use cuda_device::{kernel, launch_bounds, thread, warp};

use crate::attention::{Block, Parameters};
use crate::compiler;
use crate::float::Bf16;
use crate::shared::{Rows, Shared, Source, Tiles, end_copies, wait_copies};
use crate::softmax::Softmax;
use crate::tensor_core::{Fragment, Half, Sums};
use crate::unroll;

/// Keys that a block takes at a time.
const KEYS: usize = 64;
/// Tiles of so many keys.
const KEY_TILES: usize = KEYS / 16;

/// A warp's scores: of `TALL` tiles of 16 queries with `KEYS` keys.
type Scores<const TALL: usize> = [[Sums; KEY_TILES]; TALL];

/// Turns products of queries and keys into exponents of 2, as softcap and ALiBi (with a slope other than 0) want them.
///
/// `distance` is the position of this thread's first query less that of its first key.
#[inline(always)]
fn adjust<const TALL: usize>(
    scores: &mut Scores<TALL>,
    parameters: &Parameters,
    slope: f32,
    distance: i32,
) {
    let mut scale = parameters.scale * LOG2_E;
    let softcap = f32::from_bits(compiler::opaque(parameters.softcap.to_bits() as i32) as u32);
    if softcap > 0.0 {
        // tanh(x) = 1 - 2 / (1 + exp(2x)); tanh.approx would be wrong by up to 2^-11 of the softcap.
        let (factor, softcap) = (scale / softcap * 2.0, softcap * LOG2_E);
        for_each(scores, |_, _, score| {
            let power = ex2_approx_ftz_f32(*score * factor);
            *score = fma_rn_f32(-2.0 * softcap, rcp_approx_ftz_f32(1.0 + power), softcap);
        });
        scale = 1.0;
    }
    let distance = compiler::opaque(distance);
    for_each(scores, |row, column, score| {
        let distance = (distance + row - column).unsigned_abs() as f32;
        *score = fma_rn_f32(*score, scale, -slope * LOG2_E * distance);
    });
}

/// Hides keys from queries that don't see them. `query` is the position among the keys of this thread's first query,
/// `key` its first key.
#[inline(always)]
fn hide<const TALL: usize>(
    scores: &mut Scores<TALL>,
    parameters: &Parameters,
    query: i32,
    key: i32,
) {
    let query = compiler::opaque(query);
    for_each(scores, |row, column, score| {
        let first = query + row - parameters.left - key;
        let last = (query + row + parameters.right).min(parameters.key_len - 1) - key;
        if column < first || column > last {
            *score = f32::NEG_INFINITY;
        }
    });
}

/// Calls `f` with the row and the column of each score of this thread, counted from its first ones.
#[inline(always)]
fn for_each<const TALL: usize>(scores: &mut Scores<TALL>, f: impl Fn(i32, i32, &mut f32)) {
    unroll!(for tall in 0..TALL {
        unroll!(for key in 0..KEY_TILES {
            unroll!(for side in 0..2 {
                unroll!(for i in 0..4 {
                    let (row, column) = (tall * 16 + i / 2 * 8, key * 16 + side * 8 + i % 2);
                    f(row as i32, column as i32, &mut scores[tall][key][side][i]);
                });
            });
        });
    });
}

/// A warp's queries, in shared memory, and in registers where these are enough.
struct Queries<const PARTS: usize, const TALL: usize> {
    tiles: Tiles<PARTS>,
    held: [[Fragment; PARTS]; TALL],
}

impl<const PARTS: usize, const TALL: usize> Queries<PARTS, TALL> {
    const HELD: bool = PARTS <= 4;

    /// # Safety
    /// All lanes of the warp must call this; the queries must have arrived, to stay.
    #[inline(always)]
    unsafe fn new(tiles: Tiles<PARTS>) -> Self {
        let mut queries = Self {
            tiles,
            held: [[[0; 4]; PARTS]; TALL],
        };
        if Self::HELD {
            unroll!(for tall in 0..TALL {
                unroll!(for part in 0..PARTS {
                    // SAFETY: the caller's promise.
                    let tile = unsafe { tiles.tile(tall * 16, part).load_tile() };
                    queries.held[tall][part] = tile;
                });
            });
        }
        queries
    }

    #[inline(always)]
    fn tile(&self, tall: usize, part: usize) -> Fragment {
        if Self::HELD {
            self.held[tall][part]
        } else {
            // SAFETY: what `new` was promised.
            unsafe { self.tiles.tile(tall * 16, part).load_tile() }
        }
    }

    /// Scores of the queries with the keys in shared memory.
    ///
    /// # Safety
    /// All lanes of the warp must call this, and no thread may write to the keys.
    #[inline(always)]
    unsafe fn scores<T: Half>(&self, keys: &Tiles<PARTS>) -> Scores<TALL> {
        let mut scores = [[[[0.0; 4]; 2]; KEY_TILES]; TALL];
        unroll!(for part in 0..PARTS {
            let mut left = [[0; 4]; TALL];
            unroll!(for tall in 0..TALL {
                left[tall] = self.tile(tall, part);
            });
            unroll!(for key in 0..KEY_TILES {
                // SAFETY: the caller's promise.
                let right = unsafe { keys.tile(key * 16, part).load_tile() };
                unroll!(for tall in 0..TALL {
                    // SAFETY: the same.
                    unsafe { T::multiply(&mut scores[tall][key], left[tall], right) };
                });
            });
        });
        scores
    }
}

/// Adds the values in shared memory, times their weights, to the results.
///
/// # Safety
/// All lanes of the warp must call this, and no thread may write to the values.
#[inline(always)]
unsafe fn add_values<T: Half, const PARTS: usize, const TALL: usize>(
    results: &mut [[Sums; PARTS]; TALL],
    weights: &Scores<TALL>,
    values: &Tiles<PARTS>,
) {
    unroll!(for key in 0..KEY_TILES {
        let mut left = [[0; 4]; TALL];
        unroll!(for tall in 0..TALL {
            left[tall] = T::round(&weights[tall][key]);
        });
        unroll!(for part in 0..PARTS {
            // SAFETY: the caller's promise.
            let right = unsafe { values.tile(key * 16, part).load_tile_transposed() };
            unroll!(for tall in 0..TALL {
                // SAFETY: the same.
                unsafe { T::multiply(&mut results[tall][part], left[tall], right) };
            });
        });
    });
}

/// Attention of a block's queries, for dims up to `16 * PARTS`, with `SLOTS` times 64 keys or values in shared memory.
///
/// # Safety
/// As for the kernels.
#[inline(always)]
unsafe fn attend<T: Half, const PARTS: usize, const TALL: usize, const SLOTS: usize>(
    parameters: &Parameters,
) {
    let block = Block::new(parameters, 64 * TALL as i32);
    let (lane, warp) = (thread::threadIdx_x() % 32, thread::threadIdx_x() / 32);
    let first_row = warp * 16 * TALL as u32;
    let memory = Shared::dynamic();
    let own_rows = memory.at(first_row * Rows::<PARTS>::BYTES);

    let group = block.head / parameters.group;
    let q = parameters.source::<PARTS>(
        &parameters.q,
        block.batch,
        block.head,
        [0, block.queries[1]],
    );
    let k = parameters.source::<PARTS>(&parameters.k, block.batch, group, block.keys);
    let v = parameters.source::<PARTS>(&parameters.v, block.batch, group, block.keys);

    // Steps 0, 2, 4 and so on need 64 keys, steps 1, 3, 5 ... their values. The last keys come first.
    let [first, end] = block.keys;
    let first = first / KEYS as i32;
    let rounds = ((end + KEYS as i32 - 1) / KEYS as i32 - first).max(0) as u32;
    let key = |round: u32| (first + (rounds - 1 - round) as i32) * KEYS as i32;
    let slot = |step: u32| {
        let rows = 64 * TALL as u32 + step % SLOTS as u32 * KEYS as u32;
        memory.at(rows * Rows::<PARTS>::BYTES)
    };
    let begin = |step: u32| {
        if step < 2 * rounds {
            let source = if step.is_multiple_of(2) { &k } else { &v };
            // SAFETY: rows of the tensors. All threads are past the step that the slot was for.
            unsafe { source.copy::<KEYS>(slot(step), key(step / 2)) };
        }
        end_copies();
    };

    for tall in 0..TALL as u32 {
        let to = memory.at(tall * 64 * Rows::<PARTS>::BYTES);
        // SAFETY: rows of the tensor; nothing has used the memory yet.
        unsafe { q.copy::<64>(to, block.queries[0] + tall as i32 * 64) };
    }
    for step in 0..SLOTS as u32 - 1 {
        begin(step);
    }

    // SAFETY: one of the heads.
    let slope = unsafe { parameters.slope(block.batch, block.head) };
    let adjusted = parameters.softcap > 0.0 || slope != 0.0;
    let mut softmax = Softmax::new(if adjusted {
        1.0
    } else {
        parameters.scale * LOG2_E
    });
    let mut results = [[[[0.0; 4]; 2]; PARTS]; TALL];
    let first_query = block.queries[0] + (first_row + lane / 4) as i32;
    wait::<SLOTS>();
    // SAFETY: the queries have arrived with the first keys.
    let queries = unsafe { Queries::<PARTS, TALL>::new(Tiles::by_row(own_rows, lane)) };
    for round in 0..rounds {
        wait::<SLOTS>();
        begin(2 * round + SLOTS as u32 - 1);
        // SAFETY: the keys have arrived.
        let mut scores = unsafe { queries.scores::<T>(&Tiles::by_column(slot(2 * round), lane)) };

        wait::<SLOTS>();
        begin(2 * round + SLOTS as u32);
        let hides = block.hides(parameters, key(round), KEYS as i32);
        if adjusted || hides {
            let query = block.position + first_query;
            let key = key(round) + (lane % 4 * 2) as i32;
            if adjusted {
                adjust(&mut scores, parameters, slope, query - key);
            }
            if hides {
                hide(&mut scores, parameters, query, key);
            }
        }
        softmax.add(&mut scores, &mut results);
        let values = Tiles::by_row(slot(2 * round + 1), lane);
        // SAFETY: the values have arrived.
        unsafe { add_values::<T, PARTS, TALL>(&mut results, &scores, &values) };
    }

    // SAFETY: the warp has no more use for its queries, whose memory the results go through.
    unsafe { store::<T, PARTS, TALL>(parameters, &block, &softmax, &results, first_row, own_rows) };
}

/// Waits until the copies for the next step have arrived, those of all threads.
#[inline(always)]
fn wait<const SLOTS: usize>() {
    match SLOTS {
        2 => wait_copies::<0>(),
        3 => wait_copies::<1>(),
        _ => wait_copies::<2>(),
    }
    thread::sync_threads();
}

/// Stores a warp's results and logarithms. The results go through shared memory, so that whole rows are stored.
///
/// # Safety
/// All lanes of the warp must call this. The `16 * TALL` rows at `memory` must be the warp's alone, and the outputs
/// writable.
#[inline(always)]
#[expect(
    clippy::manual_is_multiple_of,
    reason = "lane % 4 is used otherwise too"
)]
unsafe fn store<T: Half, const PARTS: usize, const TALL: usize>(
    parameters: &Parameters,
    block: &Block,
    softmax: &Softmax<TALL>,
    results: &[[Sums; PARTS]; TALL],
    first_row: u32,
    memory: Shared,
) {
    let lane = thread::threadIdx_x() % 32;
    let heads = u64::from(parameters.heads.get());
    let query = |row: u32| block.queries[0] + (first_row + row) as i32;
    let head = u64::from(block.batch) * heads + u64::from(block.head);
    warp::sync_mask(u32::MAX);
    unroll!(for tall in 0..TALL {
        unroll!(for half in 0..2 {
            let (factor, lse) = softmax.finish(tall, half);
            let row = (tall * 16 + half * 8) as u32 + lane / 4;
            unroll!(for part in 0..PARTS {
                unroll!(for side in 0..2 {
                    let four = results[tall][part][side];
                    let two = T::pack(four[half * 2] * factor, four[half * 2 + 1] * factor);
                    let bytes = (part * 2 + side) as u32 * 16;
                    let column = memory.at(Rows::<PARTS>::offset(row, bytes));
                    // SAFETY: the caller's promise; the four threads of a row store the four parts of 16 bytes.
                    unsafe { column.at(lane % 4 * 4).store(two) };
                });
            });
            if lane % 4 == 0 && query(row) < block.queries[1] && !parameters.lse.is_null() {
                let index = head * parameters.query_len as u64 + query(row) as u64;
                // SAFETY: the caller's promise.
                unsafe { *parameters.lse.add(index as usize) = lse };
            }
        });
    });
    warp::sync_mask(u32::MAX);
    let across = Source::<PARTS>::ACROSS;
    for i in 0..TALL as u32 * 16 * across / 32 {
        let row = (i * 32 + lane) / across;
        let token = u64::from(block.batch) * parameters.query_len as u64 + query(row) as u64;
        let start = (token * heads + u64::from(block.head)) * u64::from(parameters.dim);
        for j in 0..PARTS as u32 * 2 / across {
            let column = j * across + lane % across;
            if query(row) < block.queries[1] && column * 8 < parameters.dim {
                let eight = memory.at(Rows::<PARTS>::offset(row, column * 16));
                let index = start as usize + column as usize * 8;
                // SAFETY: the caller's promise.
                unsafe { *parameters.out.add(index * 2).cast::<u128>() = eight.load() };
            }
        }
    }
}

macro_rules! kernels {
    ($($name:ident: $element:ty, $parts:literal, $tall:literal, $slots:literal, $blocks:literal;)*) => {$(
        #[doc = concat!("Attention for dims up to 16 * ", $parts, ": a block of 128 threads has 64 * ", $tall)]
        /// queries, and a multiprocessor has registers for
        #[doc = concat!($blocks, " blocks.")]
        ///
        /// The grid has a block for each so many queries of each head and batch entry. The dynamic shared memory of a
        #[doc = concat!("block is that of its queries and 64 * ", $slots, " keys.")]
        ///
        /// # Safety
        /// The tensors must be as [`Parameters`] says, q, k and v readable and in multiples of 16 bytes, out and lse
        /// writable and apart from all others.
        #[kernel]
        #[launch_bounds(128, $blocks)]
        pub unsafe fn $name(parameters: Parameters) {
            // SAFETY: the caller's promise.
            unsafe { attend::<$element, $parts, $tall, $slots>(&parameters) }
        }
    )*};
}

kernels! {
    flash_attn2_f16_32: f16, 2, 2, 4, 3;
    flash_attn2_f16_64: f16, 4, 2, 4, 2;
    flash_attn2_f16_96: f16, 6, 2, 3, 2;
    flash_attn2_f16_128: f16, 8, 2, 3, 2;
    flash_attn2_f16_192: f16, 12, 1, 2, 2;
    flash_attn2_f16_256: f16, 16, 1, 2, 2;
    flash_attn2_bf16_32: Bf16, 2, 2, 4, 3;
    flash_attn2_bf16_64: Bf16, 4, 2, 4, 2;
    flash_attn2_bf16_96: Bf16, 6, 2, 3, 2;
    flash_attn2_bf16_128: Bf16, 8, 2, 3, 2;
    flash_attn2_bf16_192: Bf16, 12, 1, 2, 2;
    flash_attn2_bf16_256: Bf16, 16, 1, 2, 2;
}
