//! Decoding of the records of a ring, by what it has.

use super::sample::{Decoder, Sample};
use super::{block, sched};

/// How records are decoded.
#[derive(Clone, Debug)]
pub(super) enum Decode {
    Calls(Decoder),
    /// And of requests to devices, where these are told.
    Scheduler(sched::Decoder, Option<Box<block::Decoder>>),
}

impl Decode {
    /// What follows the header of a sample. `None`: another event, or cut short.
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
