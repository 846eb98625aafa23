//! Memory and CPUs.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes per second that one core copies, of memory that does not fit a cache.
pub(super) fn memory() -> f64 {
    const SIZE: usize = 64 << 20;
    let from = vec![1_u8; SIZE];
    let mut to = vec![0_u8; SIZE];
    // The first copy also makes the pages.
    to.copy_from_slice(&from);
    let begin = Instant::now();
    let mut copies = 0;
    while begin.elapsed() < Duration::from_millis(300) {
        black_box(&mut to).copy_from_slice(black_box(&from));
        copies += 1;
    }
    (copies * SIZE) as f64 / begin.elapsed().as_secs_f64()
}

/// Steps of a simple generator per second that this many threads make together.
pub(super) fn cpu(threads: usize) -> f64 {
    let one = || {
        let begin = Instant::now();
        let mut state = 88_172_645_463_325_252;
        let mut steps = 0_u64;
        while begin.elapsed() < Duration::from_millis(300) {
            for _ in 0..10_000 {
                state = super::disk::next(state);
            }
            steps += 10_000;
            black_box(state);
        }
        steps as f64 / begin.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(one)).collect();
        running
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .sum()
    })
}
