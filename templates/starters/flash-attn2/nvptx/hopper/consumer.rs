//! The warpgroups that compute.

use super::place::Place;
use super::rows::Rows;
use super::tile::Tile;
use super::{BOX_BYTES, COLUMNS, KEYS, Maps, ROW_BYTES, ROWS, Scores, Sizes, Tiling, Weights};
use crate::compiler;
use crate::shared::Shared;
use crate::tensor_core::Fragment;
use crate::tma::{self, TensorMap};
use crate::warpgroup;
use crate::wgmma::{self, Accumulator, Matrix, Operand};

/// Rounds every eight elements of an accumulator to a factor of 16 columns.
#[inline(always)]
fn round<T: Operand, const S: usize, const P: usize>(elements: &[f32; S]) -> [Fragment; P] {
    let mut fragments = [[0; 4]; P];
    for (fragment, eight) in fragments.iter_mut().zip(elements.as_chunks::<8>().0) {
        for (pair, two) in fragment.iter_mut().zip(eight.as_chunks::<2>().0) {
            *pair = T::pack(two[0], two[1]);
        }
    }
    fragments
}

/// This thread's place among the consumers.
pub struct Consumer {
    /// Number of the consumer.
    pub index: u32,
    /// Thread of the warpgroup.
    pub thread: u32,
}

impl Consumer {
    /// Waits for this consumer's turn at the tensor cores.
    #[inline(always)]
    fn take_turn(&self) {
        warpgroup::synchronise(1 + self.index, 2 * warpgroup::THREADS);
    }

    /// Lets the next consumer have its turn.
    #[inline(always)]
    fn pass_turn<G: Tiling>(&self) {
        let next = if self.index + 1 == G::CONSUMERS {
            0
        } else {
            self.index + 1
        };
        warpgroup::arrive(1 + next, 2 * warpgroup::THREADS);
    }

    /// Waits for the other threads of this consumer.
    #[inline(always)]
    fn synchronise<G: Tiling>(&self) {
        warpgroup::synchronise(1 + G::CONSUMERS + self.index, warpgroup::THREADS);
    }

    /// Leaves a place, once for each warp.
    ///
    /// # Safety
    /// The barriers must have been made.
    #[inline(always)]
    unsafe fn leave(&self, place: Place) {
        if self.thread.is_multiple_of(32) {
            // SAFETY: the caller's promise.
            unsafe { place.empty.arrive() };
        }
    }

    /// Begins the scores with the tile of keys number `count`.
    ///
    /// # Safety
    /// All threads of the consumer must call this. Queries and keys must be there, and stay until the end.
    #[inline(always)]
    unsafe fn begin_scores<T: Operand, G: Tiling>(&self, scores: &mut Scores, count: u32) {
        let queries = Shared::dynamic().add(self.index * G::QUERY_BYTES);
        let keys = G::tile(G::KEYS_AT, count);
        wgmma::fence();
        for step in 0..G::DIM / 16 {
            let (column, bytes) = (step * 16 / COLUMNS, step * 32 % ROW_BYTES);
            let a = Matrix::rows(queries.add(column * BOX_BYTES)).add(bytes);
            let b = Matrix::rows(keys.add(column * KEYS * ROW_BYTES)).add(bytes);
            // SAFETY: the caller's promise.
            unsafe {
                if step == 0 {
                    scores.product::<T>(a, b);
                } else {
                    scores.add_product::<T>(a, b);
                }
            }
        }
        wgmma::commit();
    }

    /// Begins to add the tile of values number `count`, weighted.
    ///
    /// # Safety
    /// All threads of the consumer must call this. The values must be there, and stay until the end.
    #[inline(always)]
    unsafe fn begin_sums<T: Operand, G: Tiling>(
        &self,
        sums: &mut impl Accumulator,
        weights: &Weights,
        count: u32,
    ) {
        let values = Matrix::columns(G::tile(G::VALUES_AT, count), KEYS * ROW_BYTES);
        wgmma::fence();
        for (step, weights) in weights.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { sums.add_fragment::<T>(*weights, values.add(step as u32 * 16 * ROW_BYTES)) };
        }
        wgmma::commit();
    }

    /// Hides what the rows do not see of the keys from `key` on. `query` is the consumer's first one.
    #[inline(always)]
    fn hide(&self, scores: &mut Scores, query: i32, key: i32, sizes: &Sizes) {
        let last_query = query + ROWS as i32 - 1;
        let start = (last_query + sizes.first).max(0);
        if key >= start && key + KEYS as i32 - 1 <= query + sizes.last {
            return;
        }
        // This is rare, and its numbers are to take no registers from the rest.
        let thread = compiler::opaque(self.thread as i32);
        let (warp, lane) = (thread / 32, thread % 32);
        let row = query + 16 * warp + lane / 4;
        let column = key + lane % 4 * 2;
        let seen = [row, row + 8].map(|row| {
            let first = (row + sizes.first).max(0);
            [first - column, row + sizes.last - column]
        });
        for (i, four) in scores.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            for (j, score) in four.iter_mut().enumerate() {
                let (key, [first, last]) = ((8 * i + j % 2) as i32, seen[j / 2]);
                if key < first || key > last {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
    }

    /// Writes the results of the consumer's queries, of which `query` is the first.
    ///
    /// # Safety
    /// `maps` must be the kernel's parameter.
    #[inline(always)]
    unsafe fn write<T: Operand, G: Tiling, const O: usize>(
        &self,
        sums: &[f32; O],
        maps: *const Maps,
        tile: &Tile,
        query: i32,
    ) {
        let at = Shared::dynamic().add(G::OUT_AT + self.index * G::QUERY_BYTES);
        let (warp, lane) = (self.thread / 32, self.thread % 32);
        // The thread that begins the stores knows when the last ones have read shared memory.
        if self.thread == 0 {
            tma::wait_stores();
        }
        self.synchronise::<G>();
        let row = at.add((16 * warp + lane % 16) * ROW_BYTES);
        for (i, eight) in sums.as_chunks::<8>().0.iter().enumerate() {
            let [fragment] = round::<T, 8, 1>(eight);
            let (column, part) = (i as u32 / 4, i as u32 % 4 * 2 + lane / 16);
            // SAFETY: the row is this lane's to name, in memory that is this consumer's. The swizzle is that of the
            // map.
            unsafe {
                row.add(column * BOX_BYTES + (part ^ lane % 8) * 16)
                    .store_tile(fragment)
            };
        }
        tma::publish();
        self.synchronise::<G>();
        if self.thread == 0 {
            for i in 0..G::DIM / COLUMNS {
                let to = [
                    (i * COLUMNS) as i32,
                    query,
                    tile.head as i32,
                    tile.batch as i32,
                ];
                // SAFETY: a field of the parameter; the memory is not written to before the stores have read it.
                unsafe { TensorMap::store(&raw const (*maps).out, to, at.add(i * BOX_BYTES)) };
            }
            tma::end_stores();
        }
    }

    /// Writes the rows' logarithms of the sums of exponentials.
    ///
    /// # Safety
    /// `sizes` must be those of the launch.
    #[inline(always)]
    unsafe fn write_lse(&self, lse: [f32; 2], sizes: &Sizes, tile: &Tile, query: i32) {
        let (warp, lane) = (self.thread / 32, self.thread % 32);
        if sizes.lse.is_null() || !lane.is_multiple_of(4) {
            return;
        }
        let head = (tile.batch * sizes.heads.get() + tile.head) as usize * sizes.query_len as usize;
        for (i, lse) in lse.into_iter().enumerate() {
            let row = query + (16 * warp + lane / 4) as i32 + 8 * i as i32;
            if row < sizes.query_len {
                // SAFETY: there is one for each query of each head.
                unsafe { *sizes.lse.add(head + row as usize) = lse };
            }
        }
    }

    /// Does nothing, in step with the other consumers: the tile has no queries for this one.
    ///
    /// # Safety
    /// The barriers must have been made, and the queries must be there.
    #[inline(always)]
    unsafe fn stand_by<G: Tiling>(&self, tile: &Tile, count: &mut u32) {
        // SAFETY: the caller's promise.
        unsafe {
            self.leave(Place::queries::<G>());
            for _ in 0..tile.count {
                let (keys, values) = (Place::keys::<G>(*count), Place::values::<G>(*count));
                keys.full.wait(G::parity(*count));
                self.take_turn();
                self.pass_turn::<G>();
                self.leave(keys);
                values.full.wait(G::parity(*count));
                self.leave(values);
                *count += 1;
            }
        }
    }

    /// Computes the results of all the block's tiles. All threads of the consumer do.
    ///
    /// # Safety
    /// `maps` must be the kernel's parameter, `sizes` those of the launch, and the barriers must have been made.
    #[inline(always)]
    pub unsafe fn run<T: Operand, G: Tiling, const O: usize>(
        &self,
        maps: *const Maps,
        sizes: &Sizes,
    ) where
        [f32; O]: Accumulator,
    {
        if self.index + 1 == G::CONSUMERS {
            self.pass_turn::<G>();
        }
        let (mut count, mut parity) = (0, 0);
        let mut scores: Scores = [0.0; _];
        for tile in (0..sizes.turns).filter_map(|turn| Tile::of_turn::<G>(turn, sizes)) {
            let query = tile.query + (self.index * ROWS) as i32;
            let queries = Place::queries::<G>();
            // SAFETY: the barriers have been made.
            unsafe { queries.full.wait(parity) };
            parity ^= 1;
            if query >= tile.query_end {
                // SAFETY: the same.
                unsafe { self.stand_by::<G>(&tile, &mut count) };
                continue;
            }
            let mut rows = Rows {
                sums: [0.0; O],
                greatest: [f32::NEG_INFINITY; 2],
                total: [0.0; 2],
            };
            // SAFETY: products read places that are full and not left yet.
            unsafe {
                if tile.count > 0 {
                    Place::keys::<G>(count).full.wait(G::parity(count));
                    self.take_turn();
                    self.begin_scores::<T, G>(&mut scores, count);
                    self.pass_turn::<G>();
                    scores.wait::<0>();
                    self.leave(Place::keys::<G>(count));
                    self.hide(&mut scores, query, tile.key(0), sizes);
                    rows.weigh(&mut scores, sizes.scale);
                    let mut weights: Weights = round::<T, _, _>(&scores);

                    for i in 1..tile.count {
                        let values = Place::values::<G>(count);
                        let keys = Place::keys::<G>(count + 1);
                        keys.full.wait(G::parity(count + 1));
                        self.take_turn();
                        self.begin_scores::<T, G>(&mut scores, count + 1);
                        values.full.wait(G::parity(count));
                        self.begin_sums::<T, G>(&mut rows.sums, &weights, count);
                        self.pass_turn::<G>();
                        scores.wait::<1>();
                        self.leave(keys);
                        self.hide(&mut scores, query, tile.key(i), sizes);
                        let factors = rows.weigh(&mut scores, sizes.scale);
                        if G::AFTER {
                            wgmma::after(rows.total[0] + rows.total[1]);
                        }
                        rows.sums.wait::<0>();
                        self.leave(values);
                        rows.scale(factors);
                        weights = round::<T, _, _>(&scores);
                        count += 1;
                    }

                    let values = Place::values::<G>(count);
                    values.full.wait(G::parity(count));
                    self.begin_sums::<T, G>(&mut rows.sums, &weights, count);
                    rows.sums.wait::<0>();
                    self.leave(values);
                    count += 1;
                }
                self.leave(queries);
                let lse = rows.finish(sizes.scale);
                self.write_lse(lse, sizes, &tile, query);
                self.write::<T, G, O>(&rows.sums, maps, &tile, query);
            }
        }
        if self.thread == 0 {
            tma::wait_stores();
        }
    }
}
