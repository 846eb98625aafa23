//! Headers of packets on their way from a ring to the thread that makes rows.

use std::sync::{Arc, Mutex, PoisonError};

use flowtrace_schema::{CaptureId, Way};

use crate::net::ring;

/// Headers of packets on their way from a ring.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The capture that the counters belong to; `None`: its ring has none yet.
    pub(super) capture: Option<CaptureId>,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: Vec<Copied>,
    /// Packets that earlier batches should have had.
    pub(super) unstored: u64,
    /// When the interface was found to be gone.
    pub(super) gone_ns: Option<i64>,
    /// Captures that ended because their interface is gone, while those of others went on, and when.
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
type Room = (Vec<u8>, Vec<Copied>);

/// Room of batches that have been made rows of, for the next ones: new memory would have to be
/// given, and cleared, by the kernel each time.
#[derive(Clone, Debug, Default)]
pub(super) struct Spares(Arc<Mutex<Vec<Room>>>);

impl Spares {
    /// Most that are kept.
    const MOST: usize = 8;

    /// Gives the room of a batch back.
    pub(super) fn give(&self, batch: Batch) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < Spares::MOST {
            let (mut bytes, mut frames) = (batch.bytes, batch.frames);
            bytes.clear();
            frames.clear();
            spares.push((bytes, frames));
        }
    }

    pub(super) fn take(&self) -> Option<Room> {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spares.pop()
    }
}
