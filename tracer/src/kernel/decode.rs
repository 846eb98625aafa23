//! Decoding of the records of a ring, by kind of ring.

use super::sample::{Decoder, Sample};
use super::{block, sched};

/// Decoder of a ring.
#[derive(Clone, Debug)]
pub(super) enum Decode {
    Calls(Decoder),
    /// Records of the scheduler, and of requests to devices where these are recorded.
    Scheduler(sched::Decoder, Option<Box<block::Decoder>>),
}

impl Decode {
    /// Decodes the part after the header of a sample. `None`: another event, or truncated.
    pub(super) fn decode(&self, body: &[u8]) -> Option<Sample> {
        match self {
            Decode::Calls(decoder) => decoder.decode(body),
            Decode::Scheduler(decoder, requests) => {
                let request = || requests.as_ref()?.decode(body);
                decoder.decode(body).or_else(request)
            }
        }
    }
}
