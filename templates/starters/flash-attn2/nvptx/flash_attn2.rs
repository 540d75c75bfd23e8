//! FlashAttention-2, forward (Dao 2023, arXiv:2307.08691): attention without its matrix of scores in memory.
//!
//! A block of 4 warps takes `64 * TALL` queries of one head: each warp has `TALL` tiles of 16 queries, whose results it
//! sums in registers. Keys and values come through shared memory, 64 at a time and the last ones first. While the warps
//! multiply by some, the next ones are being copied.
//!
//! What isn't there is stored as zeros: queries behind the last, keys that none of the block's queries sees and their
//! values, and the elements from `dim` to the next size that there is a kernel for.

use core::f32::consts::LOG2_E;
use core::f32::math::mul_add;

use crate::attention::{Block, Parameters};
use crate::block;
use crate::compiler;
use crate::float::Bf16;
use crate::math;
use crate::shared::{Rows, Shared, Source, Tiles, end_copies, wait_copies};
use crate::softmax::Softmax;
use crate::tensor_core::{Fragment, Half, Sums};
use crate::warp;

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
            let power = math::exp2(*score * factor);
            *score = mul_add(-2.0 * softcap, math::reciprocal(1.0 + power), softcap);
        });
        scale = 1.0;
    }
    let distance = compiler::opaque(distance);
    for_each(scores, |row, column, score| {
        let distance = (distance + row - column).unsigned_abs() as f32;
        *score = mul_add(*score, scale, -slope * LOG2_E * distance);
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
    for (tall, tiles) in scores.iter_mut().enumerate() {
        for (i, four) in tiles.as_flattened_mut().iter_mut().enumerate() {
            for (j, score) in four.iter_mut().enumerate() {
                f(
                    (tall * 16 + j / 2 * 8) as i32,
                    (i * 8 + j % 2) as i32,
                    score,
                );
            }
        }
    }
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
            for (tall, held) in queries.held.iter_mut().enumerate() {
                for (part, tile) in held.iter_mut().enumerate() {
                    // SAFETY: the caller's promise.
                    *tile = unsafe { tiles.tile(tall * 16, part).load_tile() };
                }
            }
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
        for part in 0..PARTS {
            let mut left = [[0; 4]; TALL];
            for (tall, left) in left.iter_mut().enumerate() {
                *left = self.tile(tall, part);
            }
            for key in 0..KEY_TILES {
                // SAFETY: the caller's promise.
                let right = unsafe { keys.tile(key * 16, part).load_tile() };
                for tall in 0..TALL {
                    T::multiply(&mut scores[tall][key], left[tall], right);
                }
            }
        }
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
    for key in 0..KEY_TILES {
        let mut left = [[0; 4]; TALL];
        for tall in 0..TALL {
            left[tall] = T::round(&weights[tall][key]);
        }
        for part in 0..PARTS {
            // SAFETY: the caller's promise.
            let right = unsafe { values.tile(key * 16, part).load_tile_transposed() };
            for tall in 0..TALL {
                T::multiply(&mut results[tall][part], left[tall], right);
            }
        }
    }
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
    let (lane, warp) = (block::thread() % 32, block::thread() / 32);
    let first_row = warp * 16 * TALL as u32;
    let memory = Shared::dynamic();
    let own_rows = memory.add(first_row * Rows::<PARTS>::BYTES);

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
        memory.add(rows * Rows::<PARTS>::BYTES)
    };
    let begin = |step: u32| {
        if step < 2 * rounds {
            let source = if step % 2 == 0 { &k } else { &v };
            // SAFETY: rows of the tensors. All threads are past the step that the slot was for.
            unsafe { source.copy::<KEYS>(slot(step), key(step / 2)) };
        }
        end_copies();
    };

    for tall in 0..TALL as u32 {
        let to = memory.add(tall * 64 * Rows::<PARTS>::BYTES);
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
    let queries = unsafe { Queries::<PARTS, TALL>::new(Tiles::by_row(lane).at(own_rows)) };
    for round in 0..rounds {
        wait::<SLOTS>();
        begin(2 * round + SLOTS as u32 - 1);
        // SAFETY: the keys have arrived.
        let mut scores =
            unsafe { queries.scores::<T>(&Tiles::by_column(lane).at(slot(2 * round))) };

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
        let values = Tiles::by_row(lane).at(slot(2 * round + 1));
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
    block::barrier();
}

/// Stores a warp's results and logarithms. The results go through shared memory, so that whole rows are stored.
///
/// # Safety
/// All lanes of the warp must call this. The `16 * TALL` rows at `memory` must be the warp's alone, and the outputs
/// writable.
#[inline(always)]
unsafe fn store<T: Half, const PARTS: usize, const TALL: usize>(
    parameters: &Parameters,
    block: &Block,
    softmax: &Softmax<TALL>,
    results: &[[Sums; PARTS]; TALL],
    first_row: u32,
    memory: Shared,
) {
    let lane = block::thread() % 32;
    let heads = u64::from(parameters.heads.get());
    let query = |row: u32| block.queries[0] + (first_row + row) as i32;
    let head = u64::from(block.batch) * heads + u64::from(block.head);
    warp::synchronise();
    for (tall, tiles) in results.iter().enumerate() {
        for half in 0..2 {
            let (factor, lse) = softmax.finish(tall, half);
            let row = (tall * 16 + half * 8) as u32 + lane / 4;
            for (i, four) in tiles.as_flattened().iter().enumerate() {
                let two = T::pack(four[half * 2] * factor, four[half * 2 + 1] * factor);
                let column = memory.add(Rows::<PARTS>::offset(row, i as u32 * 16));
                // SAFETY: the caller's promise; the four threads of a row store the four parts of 16 bytes.
                unsafe { column.add(lane % 4 * 4).store(two) };
            }
            if lane % 4 == 0 && query(row) < block.queries[1] && !parameters.lse.is_null() {
                let index = head * parameters.query_len as u64 + query(row) as u64;
                // SAFETY: the caller's promise.
                unsafe { *parameters.lse.add(index as usize) = lse };
            }
        }
    }
    warp::synchronise();
    let across = Source::<PARTS>::ACROSS;
    for i in 0..TALL as u32 * 16 * across / 32 {
        let row = (i * 32 + lane) / across;
        let token = u64::from(block.batch) * parameters.query_len as u64 + query(row) as u64;
        let start = (token * heads + u64::from(block.head)) * u64::from(parameters.dim);
        for j in 0..PARTS as u32 * 2 / across {
            let column = j * across + lane % across;
            if query(row) < block.queries[1] && column * 8 < parameters.dim {
                let eight = memory.add(Rows::<PARTS>::offset(row, column * 16));
                let index = start as usize + column as usize * 8;
                // SAFETY: the caller's promise.
                unsafe {
                    *parameters.out.cast::<u16>().add(index).cast::<Eight>() = Eight(eight.load())
                };
            }
        }
    }
}

/// Eight elements of 2 bytes, which one instruction stores.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Eight([u32; 4]);

macro_rules! kernels {
    ($($name:ident: $element:ty, $parts:literal, $tall:literal, $slots:literal;)*) => {$(
        #[doc = concat!("Attention for dims up to 16 * ", $parts, ": a block of 128 threads has 64 * ", $tall, " queries.")]
        ///
        /// The grid has a block for each so many queries of each head and batch entry. The dynamic shared memory of a
        #[doc = concat!("block is that of its queries and 64 * ", $slots, " keys.")]
        ///
        /// # Safety
        /// The tensors must be as [`Parameters`] says, q, k and v readable and in multiples of 16 bytes, out and lse
        /// writable and apart from all others.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(parameters: Parameters) {
            // SAFETY: the caller's promise.
            unsafe { attend::<$element, $parts, $tall, $slots>(&parameters) }
        }
    )*};
}

kernels! {
    flash_attn2_f16_32: f16, 2, 2, 4;
    flash_attn2_f16_64: f16, 4, 2, 4;
    flash_attn2_f16_96: f16, 6, 2, 3;
    flash_attn2_f16_128: f16, 8, 2, 3;
    flash_attn2_f16_192: f16, 12, 1, 2;
    flash_attn2_f16_256: f16, 16, 1, 2;
    flash_attn2_bf16_32: Bf16, 2, 2, 4;
    flash_attn2_bf16_64: Bf16, 4, 2, 4;
    flash_attn2_bf16_96: Bf16, 6, 2, 3;
    flash_attn2_bf16_128: Bf16, 8, 2, 3;
    flash_attn2_bf16_192: Bf16, 12, 1, 2;
    flash_attn2_bf16_256: Bf16, 16, 1, 2;
}
