//! Which queries a block takes, and in which order.

use core::num::NonZeroU32;

use super::{KEYS, ROWS, Sizes, Tiling};
use crate::block;

/// The queries that a block takes in a turn, and the keys that they see.
pub struct Tile {
    /// Batch entry.
    pub batch: u32,
    /// Query head.
    pub head: u32,
    /// First query.
    pub query: i32,
    /// The one after the last.
    pub query_end: i32,
    /// The key after the last one that any of the queries sees.
    key_end: i32,
    /// Tiles of keys.
    pub count: u32,
}

impl Tile {
    /// This block's tile of a turn; in the last turn of a section, it may have none.
    ///
    /// Sections of heads come one after the other. Where a mask lets the last queries take longest, a section has those
    /// of all its heads first. The order of the blocks is reversed from turn to turn, so that all get their share of
    /// long tiles.
    ///
    /// Where the last turn has few tiles, each is shared by as many blocks as there are consumers: they take 64 queries
    /// each.
    #[inline(always)]
    pub fn of_turn<G: Tiling>(turn: u32, sizes: &Sizes) -> Option<Self> {
        let (section, turn) = (turn / sizes.section_turns, turn % sizes.section_turns);
        let forwards = (section + turn).is_multiple_of(2);
        let place = if forwards {
            block::index()
        } else {
            block::count() - 1 - block::index()
        };
        let whole = G::CONSUMERS * ROWS;
        let (place, part, queries) = if turn == sizes.shared_turn {
            (place / G::CONSUMERS, place % G::CONSUMERS * ROWS, ROWS)
        } else {
            (place, 0, whole)
        };
        let index = turn * block::count() + place;

        let first_head = section * sizes.section_heads.get();
        let heads = NonZeroU32::new(sizes.section_heads.get().min(sizes.all_heads - first_head))?;
        let (head, tile) = if sizes.by_head {
            (index / sizes.tiles, index % sizes.tiles)
        } else {
            (index % heads, index / heads)
        };
        if head >= heads.get() || tile >= sizes.tiles.get() {
            return None;
        }
        let head = first_head + head;
        let query = ((sizes.tiles.get() - 1 - tile) * whole + part) as i32;
        let query_end = sizes.query_len.min(query + queries as i32);
        let key = (query + sizes.first).max(0);
        let key_end = (query_end + sizes.last).min(sizes.key_len);
        Some(Self {
            batch: head / sizes.heads,
            head: head % sizes.heads,
            query,
            query_end,
            key_end,
            count: ((key_end - key).max(0) as u32).div_ceil(KEYS),
        })
    }

    /// The first key of tile number `i` of them, which may be negative: the last keys come first. They end with the
    /// last one that is seen, for a product with those behind may not be 0: they can be infinite or NaN.
    #[inline(always)]
    pub fn key(&self, i: u32) -> i32 {
        self.key_end - ((i + 1) * KEYS) as i32
    }
}
