//! The warpgroup that loads.

use super::place::Place;
use super::tile::Tile;
use super::{BOX_BYTES, COLUMNS, KEYS, Maps, ROW_BYTES, ROWS, Sizes, Tiling};
use crate::mbarrier::Barrier;
use crate::shared::Shared;
use crate::tma::TensorMap;

/// Loads what the consumers want. One thread does.
///
/// # Safety
/// `maps` must be the kernel's parameter, and the barriers must have been made.
#[inline(always)]
pub unsafe fn run<G: Tiling>(maps: *const Maps, sizes: &Sizes) {
    // SAFETY: these are fields of the parameter.
    let (q, k, v) = unsafe {
        (
            &raw const (*maps).q,
            &raw const (*maps).k,
            &raw const (*maps).v,
        )
    };
    // SAFETY: as above. Places are filled when they are empty.
    unsafe {
        for map in [q, k, v] {
            TensorMap::prefetch(map);
        }
        let (mut count, mut parity) = (0, 1);
        for tile in (0..sizes.turns).filter_map(|turn| Tile::of_turn::<G>(turn, sizes)) {
            let (head, batch) = (tile.head as i32, tile.batch as i32);
            let kv_head = (tile.head / sizes.group) as i32;
            let place = Place::queries::<G>();
            place.empty.wait(parity);
            parity ^= 1;
            place.full.expect(G::CONSUMERS * G::QUERY_BYTES);
            for consumer in 0..G::CONSUMERS {
                let to = Shared::dynamic().add(consumer * G::QUERY_BYTES);
                let query = tile.query + (consumer * ROWS) as i32;
                load::<G>(q, [query, head, batch], to, BOX_BYTES, place.full);
            }
            for i in 0..tile.count {
                let at = [tile.key(i), kv_head, batch];
                for (map, place, from) in [
                    (k, Place::keys::<G>(count), G::KEYS_AT),
                    (v, Place::values::<G>(count), G::VALUES_AT),
                ] {
                    place.empty.wait(G::parity(count) ^ 1);
                    place.full.expect(G::TILE_BYTES);
                    load::<G>(map, at, G::tile(from, count), KEYS * ROW_BYTES, place.full);
                }
                count += 1;
            }
        }
    }
}

/// Begins to load the boxes at `[row, head, batch]` that lie side by side, each of so many bytes.
///
/// # Safety
/// As for [`TensorMap::load`].
#[inline(always)]
unsafe fn load<G: Tiling>(
    map: *const TensorMap,
    at: [i32; 3],
    to: Shared,
    bytes: u32,
    full: Barrier,
) {
    for i in 0..G::DIM / COLUMNS {
        let at = [(i * COLUMNS) as i32, at[0], at[1], at[2]];
        // SAFETY: the caller's promise.
        unsafe { TensorMap::load(map, at, to.add(i * bytes), full) };
    }
}
