//! Places in a block's shared memory that the producer fills and the consumers leave.

use super::{STAGES, Tiling};
use crate::mbarrier::Barrier;
use crate::shared::Shared;

/// What a place in shared memory is waited for: that it is full or that it is empty.
#[derive(Clone, Copy)]
pub struct Place {
    /// The producer arrives, and the bytes of its copies.
    pub full: Barrier,
    /// Each warp of the consumers arrives.
    pub empty: Barrier,
}

impl Place {
    /// That of the queries.
    #[inline(always)]
    pub fn queries<G: Tiling>() -> Self {
        Self::number::<G>(0)
    }

    /// That of the tile of keys number `count` of the block.
    #[inline(always)]
    pub fn keys<G: Tiling>(count: u32) -> Self {
        Self::number::<G>(1 + count % STAGES)
    }

    /// That of the tile of values number `count` of the block.
    #[inline(always)]
    pub fn values<G: Tiling>(count: u32) -> Self {
        Self::number::<G>(1 + STAGES + count % STAGES)
    }

    #[inline(always)]
    fn number<G: Tiling>(number: u32) -> Self {
        let full = Shared::dynamic().add(G::BARRIERS_AT + number * 2 * Barrier::BYTES);
        Self {
            full: Barrier(full),
            empty: Barrier(full.add(Barrier::BYTES)),
        }
    }

    /// Makes all barriers.
    ///
    /// # Safety
    /// One thread of the block must do so, before any other uses them.
    #[inline(always)]
    pub unsafe fn init<G: Tiling>() {
        for number in 0..1 + 2 * STAGES {
            let place = Self::number::<G>(number);
            // SAFETY: this is where shared memory has the barriers.
            unsafe {
                place.full.init(1);
                place.empty.init(4 * G::CONSUMERS);
            }
        }
    }
}
