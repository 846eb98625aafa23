//! Headers of packets on their way from a ring to the thread that makes rows.

use std::sync::{Arc, Mutex, PoisonError};

use flowtrace_schema::{CaptureId, Way};

use crate::net::ring;

/// Headers of packets on their way from a ring.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The capture of the counters; `None`: its ring has none yet.
    pub(super) capture: Option<CaptureId>,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: Vec<Copied>,
    /// Packets that earlier batches should have had.
    pub(super) unstored: u64,
    /// Time when the interface was found to be gone.
    pub(super) gone_ns: Option<i64>,
    /// Captures that ended because their interface is gone, while those of others went on, with the time of
    /// the end.
    pub(super) ended: Vec<(CaptureId, i64)>,
    pub(super) counts: ring::Counts,
}

/// A packet in a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    pub(super) capture: CaptureId,
    pub(super) t_ns: i64,
    pub(super) length: u32,
    pub(super) wire_bytes: u32,
    pub(super) way: Way,
    pub(super) marks: u8,
}

/// Memory of a batch: bytes of its packets, and the facts about each.
type Memory = (Vec<u8>, Vec<Copied>);

/// Memory of batches that are done, for the next ones: the kernel would have to allocate, and clear, new
/// memory each time.
#[derive(Clone, Debug, Default)]
pub(super) struct Spares(Arc<Mutex<Vec<Memory>>>);

impl Spares {
    /// Most batches whose memory is kept.
    const MOST: usize = 8;

    /// Gives the memory of a batch back.
    pub(super) fn give(&self, batch: Batch) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < Spares::MOST {
            let (mut bytes, mut frames) = (batch.bytes, batch.frames);
            bytes.clear();
            frames.clear();
            spares.push((bytes, frames));
        }
    }

    pub(super) fn take(&self) -> Option<Memory> {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spares.pop()
    }
}
