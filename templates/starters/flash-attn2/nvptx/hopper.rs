//! FlashAttention-2's forward pass on Hopper, for dims up to 128, in the arrangement of FlashAttention-3 (Shah et al.
//! 2024, arXiv:2407.08608, sections 3.1 and 3.2).
//!
//! A block consists of warpgroups. The first one, the producer, only loads tiles. The others, the consumers, take 64
//! queries each and the same keys: all of them in turn, so that one uses the tensor cores while another computes
//! exponentials. A consumer also begins the scores of its next keys together with the sums of its last ones.
//!
//! There are as many blocks as multiprocessors, and each takes one tile of queries after the other: while the results
//! of one are written, the keys of the next are loaded.

mod consumer;
mod place;
mod producer;
mod rows;
mod tile;

use core::num::NonZeroU32;

use consumer::Consumer;
use place::Place;

use crate::block;
use crate::float::Bf16;
use crate::mbarrier;
use crate::shared::Shared;
use crate::tensor_core::Fragment;
use crate::tma::TensorMap;
use crate::warpgroup;
use crate::wgmma::{Accumulator, Operand};
use crate::{directive, parameter};

/// Queries of a consumer: what a product of a warpgroup has rows.
const ROWS: u32 = 64;
/// Keys that a block takes at a time. The same as in src/hopper.rs.
const KEYS: u32 = 128;
/// Tiles of keys, and of values, that a block has room for. The same as in src/hopper.rs.
const STAGES: u32 = 2;
/// Elements of a row of a box, and their bytes.
const COLUMNS: u32 = 64;
const ROW_BYTES: u32 = 2 * COLUMNS;
/// Bytes of a consumer's box of queries or results.
const BOX_BYTES: u32 = ROWS * ROW_BYTES;

/// Tensor maps, all for boxes of 64 elements. The same as `Maps` in src/hopper.rs.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Maps {
    /// Boxes of 64 queries.
    q: TensorMap,
    /// Boxes of as many keys as a block takes at a time.
    k: TensorMap,
    v: TensorMap,
    /// Boxes of 64 queries.
    out: TensorMap,
}

/// The numbers of a launch. The same as `Sizes` in src/hopper.rs.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sizes {
    /// Contiguous float32 (batch, head, query), or null.
    lse: *mut f32,
    /// Turns of a block: in each it takes a tile of queries, or none.
    turns: u32,
    /// Turns and heads of a section, see [`Tile::of_turn`].
    section_turns: NonZeroU32,
    section_heads: NonZeroU32,
    /// The turn in which several blocks share a tile, if any.
    shared_turn: u32,
    /// Whether one head's tiles come after the other's.
    by_head: bool,
    /// Tiles of queries of a head.
    tiles: NonZeroU32,
    heads: NonZeroU32,
    /// `heads` of all the batch.
    all_heads: u32,
    /// Query heads that share a head of keys and values.
    group: NonZeroU32,
    query_len: i32,
    key_len: i32,
    /// Query `i` sees key `j` where `first <= j - i <= last`.
    first: i32,
    last: i32,
    /// Factor of a score, to be an exponent of 2.
    scale: f32,
}

/// A thread's part of the scores of 64 queries with a tile of keys.
type Scores = [f32; KEYS as usize / 2];
/// The same as factors of a product with a tile of values: 16 keys in each.
type Weights = [Fragment; KEYS as usize / 16];

/// How a kernel cuts its work.
trait Tiling {
    /// Columns of a tile: 64 or 128.
    const DIM: u32;
    /// Warpgroups that compute.
    const CONSUMERS: u32;
    /// Whether a consumer ends its exponentials before it asks for the sums that are computed at the same time.
    const AFTER: bool;

    /// Gives the registers of the producer's threads to those of the consumers.
    fn release_registers();
    fn take_registers();

    /// Bytes of the queries of a consumer, and of a tile of keys.
    const QUERY_BYTES: u32 = Self::DIM / COLUMNS * BOX_BYTES;
    const TILE_BYTES: u32 = Self::DIM / COLUMNS * KEYS * ROW_BYTES;

    /// Where the block's shared memory has what, after the queries.
    const KEYS_AT: u32 = Self::CONSUMERS * Self::QUERY_BYTES;
    const VALUES_AT: u32 = Self::KEYS_AT + STAGES * Self::TILE_BYTES;
    const OUT_AT: u32 = Self::VALUES_AT + STAGES * Self::TILE_BYTES;
    const BARRIERS_AT: u32 = Self::OUT_AT + Self::CONSUMERS * Self::QUERY_BYTES;

    /// Where the tile of keys number `count` of the block is, or the values behind them.
    #[inline(always)]
    fn tile(at: u32, count: u32) -> Shared {
        Shared::dynamic().add(at + count % STAGES * Self::TILE_BYTES)
    }

    /// Parity of the phases in which the tile number `count` comes and goes.
    #[inline(always)]
    fn parity(count: u32) -> u32 {
        count / STAGES % 2
    }
}

/// What a kernel does: the first warpgroup is the producer.
///
/// # Safety
/// `maps` must be the kernel's parameter, and both what src/hopper.rs makes for this tiling.
#[inline(always)]
unsafe fn forward<T: Operand, G: Tiling, const O: usize>(maps: *const Maps, sizes: &Sizes)
where
    [f32; O]: Accumulator,
{
    let thread = block::thread();
    // SAFETY: the caller's promise; the barriers are made before anyone passes `synchronise`.
    unsafe {
        if thread == 0 {
            Place::init::<G>();
            mbarrier::publish();
        }
        block::barrier();
        let index = warpgroup::index();
        if index == 0 {
            G::release_registers();
            if thread == 0 {
                producer::run::<G>(maps, sizes);
            }
        } else {
            G::take_registers();
            let consumer = Consumer {
                index: index - 1,
                thread: thread % warpgroup::THREADS,
            };
            consumer.run::<T, G, O>(maps, sizes);
        }
    }
}

/// `registers` are those of a thread of the producer and of a consumer: together what `threads` have at the launch.
macro_rules! kernel {
    ($name:ident: $element:ty, dim $dim:literal, $consumers:literal consumers, $threads:literal threads,
     registers $producer:literal and $consumer:literal, after $after:literal) => {
        /// The kernel for this element type, and for dims up to this size.
        ///
        /// # Safety
        /// src/hopper.rs makes the parameters, and says how many threads and how much shared memory there must be.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(_maps: Maps, sizes: Sizes) {
            struct Cut;

            impl Tiling for Cut {
                const DIM: u32 = $dim;
                const CONSUMERS: u32 = $consumers;
                const AFTER: bool = $after;

                #[inline(always)]
                fn release_registers() {
                    warpgroup::release_registers::<$producer>();
                }

                #[inline(always)]
                fn take_registers() {
                    warpgroup::take_registers::<$consumer>();
                }
            }

            directive!(concat!(".maxntid ", $threads));
            directive!(".minnctapersm 1");
            let maps = parameter!(stringify!($name), 0) as *const Maps;
            // SAFETY: the caller's promise.
            unsafe {
                forward::<$element, Cut, { $dim / 2 }>(maps, &sizes);
            }
        }
    };
}

kernel!(hopper_f16_64: f16, dim 64, 3 consumers, 512 threads, registers 32 and 160, after false);
kernel!(hopper_bf16_64: Bf16, dim 64, 3 consumers, 512 threads, registers 32 and 160, after false);
kernel!(hopper_f16_128: f16, dim 128, 2 consumers, 384 threads, registers 24 and 240, after true);
kernel!(hopper_bf16_128: Bf16, dim 128, 2 consumers, 384 threads, registers 24 and 240, after true);
