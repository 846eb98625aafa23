//! The times of the bulk of the packets.
//!
//! A trace covers some years at most. A machine without a battery for its clock captures its first packets in
//! 1970, and some tools write packets without a time: neither may decide which packets are left out. So the
//! times of all frames are read before.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::Path;

use super::super::files::{Capture, Event, FileError};
use super::super::sink::FURTHEST_NS;

/// Times are counted in buckets of two weeks, of which there are no more than sixteen thousand.
const BUCKET_BITS: u32 = 50;
/// Bytes that are read ahead of input that can be read only once: its bulk is that of its begin.
const AHEAD: u64 = 16 << 20;

/// Frames of one bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    frames: u64,
    first_ns: i64,
    last_ns: i64,
}

/// The times of frames, ns since 1970.
#[derive(Debug, Default)]
pub(super) struct Times(BTreeMap<i64, Bucket>);

impl Times {
    /// Opens a file, and adds its times.
    pub(super) fn open(&mut self, path: &Path) -> Result<Capture, FileError> {
        let mut source = Capture::source(path)?;
        if path.metadata().is_ok_and(|metadata| metadata.is_file()) {
            self.add(source);
            return Capture::open(path);
        }
        let mut ahead = Vec::new();
        source.by_ref().take(AHEAD).read_to_end(&mut ahead)?;
        self.add(Box::new(Cursor::new(ahead.clone())));
        Capture::read(Box::new(Cursor::new(ahead).chain(source)))
    }

    /// Adds the times of readable frames; errors are reported when the file is read again.
    fn add(&mut self, source: Box<dyn Read>) {
        let Ok(mut capture) = Capture::read(source) else {
            return;
        };
        loop {
            match capture.next() {
                Ok(Event::Frame(frame)) => self.count(frame.unix_ns),
                Ok(Event::End) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    fn count(&mut self, unix_ns: i64) {
        let bucket = self.0.entry(unix_ns >> BUCKET_BITS).or_insert(Bucket {
            frames: 0,
            first_ns: unix_ns,
            last_ns: unix_ns,
        });
        bucket.frames += 1;
        bucket.first_ns = bucket.first_ns.min(unix_ns);
        bucket.last_ns = bucket.last_ns.max(unix_ns);
    }

    /// Begin of the time, as long as a trace allows, with the most frames; the latest of equal ones, for
    /// wrong clocks are mostly behind. `None`: there are no frames.
    pub(super) fn bulk_ns(&self) -> Option<i64> {
        let buckets: Vec<Bucket> = self.0.values().copied().collect();
        let (mut most, mut next, mut within) = (None, 0, 0);
        for (at, bucket) in buckets.iter().enumerate() {
            let until = bucket.first_ns.saturating_add(FURTHEST_NS);
            while buckets
                .get(next)
                .is_some_and(|other| other.last_ns <= until)
            {
                within += buckets[next].frames;
                next += 1;
            }
            most = most.max(Some((within, bucket.first_ns)));
            // A bucket is no longer than a trace.
            debug_assert!(next > at);
            within -= bucket.frames;
        }
        most.map(|(_, first_ns)| first_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000_000_000;

    fn bulk(times: &[(i64, usize)]) -> Option<i64> {
        let mut all = Times::default();
        for &(at, count) in times {
            for number in 0..count {
                all.count(at + number as i64);
            }
        }
        all.bulk_ns()
    }

    #[test]
    fn most_frames_decide_where_a_trace_begins() {
        let today = 19_700 * DAY;
        assert_eq!(bulk(&[]), None);
        assert_eq!(bulk(&[(30, 5), (today, 1000)]), Some(today));
        assert_eq!(bulk(&[(30, 1000), (today, 5)]), Some(30));
        assert_eq!(
            bulk(&[(30, 5), (today, 5)]),
            Some(today),
            "of equals the later one"
        );
        // Neither the first nor the last, and in several buckets.
        let parts = [
            (0, 3),
            (today, 4),
            (today + 90 * DAY, 4),
            (today + 3000 * DAY, 7),
        ];
        assert_eq!(bulk(&parts), Some(today));
        // A near time is no other time.
        assert_eq!(bulk(&[(today, 1), (today + 100 * DAY, 50)]), Some(today));
        assert_eq!(
            bulk(&[(i64::MIN, 1), (i64::MAX - 9, 2)]),
            Some(i64::MAX - 9)
        );
    }
}
