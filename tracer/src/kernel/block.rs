//! Decoding of the records of `block:block_rq_insert`, `block_rq_issue` and `block_rq_complete`: the stages
//! of requests to storage devices.

use std::io;

use super::sample::{Sample, Stage, TIME, What, bytes, raw};
use super::tracefs::{Field, Format, TraceFs};

/// The tracepoints, in the order of [`Stage`].
const TRACEPOINTS: [&str; 3] = [
    "block/block_rq_insert",
    "block/block_rq_issue",
    "block/block_rq_complete",
];

/// Offsets of the fields.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    tracepoints: [Tracepoint; 3],
}

#[derive(Clone, Copy, Debug)]
struct Tracepoint {
    id: u64,
    stage: Stage,
    kind: Field,
    by: Field,
    device: Field,
    sector: Field,
}

impl Decoder {
    /// # Errors
    /// When the kernel has no such tracepoints, or their fields differ from those of all kernels so far.
    pub(super) fn open(tracefs: &TraceFs) -> io::Result<Decoder> {
        let [queued, issued, done] = TRACEPOINTS.map(|name| tracefs.format(name));
        Decoder::new(&[queued?, issued?, done?])
    }

    fn new(formats: &[Format; 3]) -> io::Result<Decoder> {
        let [queued, issued, done] = formats;
        let tracepoint = |format: &Format, stage| -> io::Result<Tracepoint> {
            Ok(Tracepoint {
                id: format.id,
                stage,
                kind: format.field("common_type", 2)?,
                by: format.field("common_pid", 4)?,
                device: format.field("dev", 4)?,
                sector: format.field("sector", 8)?,
            })
        };
        Ok(Decoder {
            tracepoints: [
                tracepoint(queued, Stage::Queued)?,
                tracepoint(issued, Stage::Issued)?,
                tracepoint(done, Stage::Done)?,
            ],
        })
    }

    /// Numbers of the tracepoints.
    pub(super) fn ids(&self) -> [u64; 3] {
        self.tracepoints.map(|one| one.id)
    }

    /// Decodes the part after the header of a sample. `None`: another event, or truncated.
    pub(super) fn decode(&self, body: &[u8]) -> Option<Sample> {
        let at = u64::from_ne_bytes(bytes(body, TIME)?);
        let raw = raw(body)?;
        let kind = self.tracepoints.first()?.kind;
        let kind = u64::from(u16::from_ne_bytes(bytes(raw, kind.offset)?));
        let found = self.tracepoints.iter().find(|one| one.id == kind)?;
        let half = |field: Field| bytes(raw, field.offset).map(u32::from_ne_bytes);
        Some(Sample {
            at,
            tid: half(found.by)?,
            number: 0,
            what: What::Request {
                stage: found.stage,
                device: half(found.device)?,
                sector: u64::from_ne_bytes(bytes(raw, found.sector.offset)?),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_of_a_request_are_distinguished() {
        let format = |id: u32| {
            let text = format!(
                "ID: {id}\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                 \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
                 \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
                 \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n"
            );
            Format::parse(&text).unwrap()
        };
        let decoder = Decoder::new(&[format(5), format(6), format(7)]).unwrap();
        let body = |kind: u16| {
            let mut body = Vec::new();
            body.extend([1u32, 2].map(u32::to_ne_bytes).concat());
            body.extend(1_000u64.to_ne_bytes());
            body.extend(24u32.to_ne_bytes());
            body.extend([kind, 0].map(u16::to_ne_bytes).concat());
            body.extend([41u32, 8, 0].map(u32::to_ne_bytes).concat());
            body.extend(77u64.to_ne_bytes());
            body
        };
        for (kind, stage) in [(5, Stage::Queued), (6, Stage::Issued), (7, Stage::Done)] {
            let sample = decoder.decode(&body(kind)).unwrap();
            assert_eq!((sample.at, sample.tid), (1_000, 41));
            let (device, sector) = (8, 77);
            let request = What::Request {
                stage,
                device,
                sector,
            };
            assert_eq!(sample.what, request);
        }
        assert_eq!(decoder.decode(&body(8)), None);
        let whole = body(5);
        for length in 0..whole.len() {
            assert_eq!(decoder.decode(&whole[..length]), None, "{length}");
        }
    }
}
