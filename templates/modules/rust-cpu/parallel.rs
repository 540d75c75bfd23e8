//! Work on all cores.

use std::ops::Range;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` with ranges that together are `0..count`, each of `piece` numbers (the last may be shorter), on all
/// cores. Each takes the next piece when it is done with one; the calling thread does so, too. One piece wakes nobody.
pub fn ranges(count: usize, piece: usize, work: impl Fn(Range<usize>) + Sync) {
    let pieces = count.div_ceil(piece);
    let next = AtomicUsize::new(0);
    let take_pieces = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= pieces {
                break;
            }
            work(i * piece..count.min((i + 1) * piece));
        }
    };
    if pieces <= 1 || !has_threads() {
        return take_pieces();
    }
    rayon::in_place_scope(|scope| {
        for _ in 1..rayon::current_num_threads().min(pieces) {
            scope.spawn(|_| take_pieces());
        }
        take_pieces();
    });
}

/// Whether rayon's threads are in this process. They are not after a fork, as in Python's `multiprocessing`: waiting
/// for them would take for ever.
fn has_threads() -> bool {
    static STARTED_BY: OnceLock<u32> = OnceLock::new();
    *STARTED_BY.get_or_init(process::id) == process::id()
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
}
