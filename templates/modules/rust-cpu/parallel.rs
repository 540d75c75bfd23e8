//! Work on all cores.

use std::ops::Range;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::openmp;

/// Calls `work` with ranges that together are `0..count`, each of `piece` numbers (the last may be shorter), on all
/// cores: on the threads of torch, as many as torch has, or without torch on those of rayon, of which
/// `RAYON_NUM_THREADS` is the number. One piece stays on the calling thread.
pub fn ranges(count: usize, piece: usize, work: impl Fn(Range<usize>) + Sync) {
    let pieces = count.div_ceil(piece);
    let work = &|i| work(i * piece..count.min((i + 1) * piece));
    if pieces <= 1 || !has_threads() {
        (0..pieces).for_each(work);
    } else if let Some(library) = openmp::library() {
        let parts = Parts::new(pieces, library.threads());
        library.run(&|thread| parts.take(thread, work));
    } else {
        let parts = &Parts::new(pieces, rayon::current_num_threads());
        rayon::in_place_scope(|scope| {
            for thread in 1..parts.next.len() {
                scope.spawn(move |_| parts.take(thread, work));
            }
            parts.take(0, work);
        });
    }
}

/// Whether there are other threads in this process. There are none after a fork, as in Python's `multiprocessing`:
/// waiting for them would take for ever.
fn has_threads() -> bool {
    static STARTED_BY: OnceLock<u32> = OnceLock::new();
    *STARTED_BY.get_or_init(process::id) == process::id()
}

/// Pieces of work, in a part for each thread.
struct Parts {
    pieces: usize,
    /// The next piece of each part.
    next: Vec<Next>,
}

/// In a cache line of its own.
#[repr(align(64))]
struct Next(AtomicUsize);

impl Parts {
    fn new(pieces: usize, threads: usize) -> Self {
        let count = threads.min(pieces);
        let next = (0..count).map(|part| Next((part * pieces / count).into()));
        Self {
            pieces,
            next: next.collect(),
        }
    }

    /// Does the pieces of a thread's own part, the same in every call, as its core may have that in its cache; then
    /// what is left of the others.
    fn take(&self, thread: usize, work: impl Fn(usize)) {
        let count = self.next.len();
        for part in (0..count).map(|i| (thread + i) % count) {
            let end = (part + 1) * self.pieces / count;
            loop {
                let i = self.next[part].0.fetch_add(1, Ordering::Relaxed);
                if i >= end {
                    break;
                }
                work(i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_one_range() {
        for (count, piece) in [(0, 1), (1, 1), (5, 8), (8, 8), (9, 8), (1000, 7)] {
            let seen: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            ranges(count, piece, |range| {
                assert!(range.len() <= piece);
                for i in range {
                    seen[i].fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        }
    }

    /// Whoever comes does all that is left.
    #[test]
    fn every_piece_is_taken_once_by_any_threads() {
        for (pieces, threads) in [(1, 1), (2, 5), (7, 3), (8, 4)] {
            for thread in 0..threads {
                let parts = Parts::new(pieces, threads);
                let seen: Vec<_> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                for thread in [thread, threads + 1] {
                    parts.take(thread, |i| {
                        seen[i].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
            }
        }
    }
}
