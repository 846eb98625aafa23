//! From frames to rows: headers are read, the flow is found, and left out frames are counted.

use flowtrace_schema::{CaptureEnd, CaptureId, CaptureRecord, Loss, Record, Recorder, Way, marks};

use super::filter::Filter;
use super::flows::{FlowTable, Seen};
use super::fragments::Fragments;
use super::packet::{self, Link, Skip};

/// Packets further from time 0 than this have a wrong timestamp (about 1.1 years).
pub(crate) const FURTHEST_NS: i64 = 1 << 55;

/// State of a capture whose frames are being recorded.
#[derive(Debug)]
pub struct Place {
    /// Its id in the trace.
    pub id: CaptureId,
    /// Number of the host, or of its network namespace.
    pub scope: u32,
    /// Link layer of its frames; `None`: unknown.
    pub link: Option<Link>,
    /// `LINKTYPE_` number of the link layer.
    pub link_type: u16,
    /// Time of its first frame, ns since time 0 of the trace.
    pub from_ns: Option<i64>,
    /// Time of its last frame, likewise.
    pub to_ns: Option<i64>,
    /// Frames read.
    pub frames: u64,
    /// Frames read that are not recorded.
    pub ignored: u64,
    /// Of the ignored ones, those whose time is too far from the others'.
    pub out_of_time: u64,
    /// Frames that the kernel counted.
    pub received: Option<u64>,
    /// Frames that the kernel dropped.
    pub dropped: Option<u64>,
    /// Frames that the recorder could not keep up with.
    pub unstored: u64,
}

impl Place {
    pub(crate) fn end(&self) -> CaptureEnd {
        CaptureEnd {
            id: self.id,
            from_ns: self.from_ns,
            to_ns: self.to_ns,
            received: self.received,
            dropped: self.dropped,
            unstored: self.unstored,
            ignored: self.ignored,
        }
    }
}

/// A frame on its way into the trace.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Time since time 0 of the trace, ns.
    pub t_ns: i64,
    /// Its first bytes, as many as were captured.
    pub bytes: &'a [u8],
    /// Its length on the wire.
    pub wire_bytes: u32,
    /// Way by the capture; a way in the frame itself comes first.
    pub way: Way,
    /// Marks that the kernel gives, see [`marks`].
    pub marks: u8,
}

/// Losses of frames.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    not_ip: u64,
    broken: u64,
    cut: u64,
    link: u64,
    time: u64,
}

/// Takes the frames of all captures of a trace.
#[derive(Debug)]
pub struct Sink {
    recorder: Recorder,
    /// The flows so far.
    pub flows: FlowTable,
    fragments: Fragments,
    filter: Filter,
    lost: Lost,
    packets: u64,
}

impl Sink {
    /// A sink for all frames.
    pub(crate) fn new(recorder: &Recorder) -> Self {
        Sink::filtered(recorder, Filter::default())
    }

    /// A sink for the frames that the filter wants.
    pub fn filtered(recorder: &Recorder, filter: Filter) -> Self {
        Sink {
            filter,
            recorder: recorder.clone(),
            flows: FlowTable::new(),
            fragments: Fragments::default(),
            lost: Lost::default(),
            packets: 0,
        }
    }

    /// Packets recorded so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Records a capture.
    pub fn begin(&self, record: CaptureRecord, scope: u32) -> Place {
        let place = Place {
            id: record.id,
            scope,
            link: record.link_type.and_then(Link::of),
            link_type: record.link_type.unwrap_or(0),
            from_ns: record.from_ns,
            to_ns: None,
            frames: 0,
            ignored: 0,
            out_of_time: 0,
            received: None,
            dropped: None,
            unstored: 0,
        };
        self.recorder.record(Record::Capture(Box::new(record)));
        place
    }

    /// Records a frame, or counts the reason why not.
    pub fn frame(&mut self, place: &mut Place, frame: Incoming<'_>) {
        place.frames += 1;
        if frame.t_ns.unsigned_abs() > FURTHEST_NS.unsigned_abs() {
            self.lost.time += 1;
            place.ignored += 1;
            place.out_of_time += 1;
            return;
        }
        place.from_ns = Some(
            place
                .from_ns
                .map_or(frame.t_ns, |from| from.min(frame.t_ns)),
        );
        place.to_ns = Some(place.to_ns.map_or(frame.t_ns, |to| to.max(frame.t_ns)));
        let Some(link) = place.link else {
            self.lost.link += 1;
            place.ignored += 1;
            return;
        };
        let mut parsed = match packet::parse(link, frame.bytes, frame.wire_bytes) {
            Ok(parsed) => parsed,
            Err(skip) => {
                place.ignored += 1;
                match skip {
                    Skip::NotIp => self.lost.not_ip += 1,
                    Skip::Cut => self.lost.cut += 1,
                    Skip::Broken => self.lost.broken += 1,
                }
                return;
            }
        };
        self.fragments.complete(&mut parsed, place.id, frame.t_ns);
        if !self.filter.wants(&parsed) {
            return;
        }
        if parsed.way == Way::Unknown {
            parsed.way = frame.way;
        }
        parsed.marks |= frame.marks;
        if parsed.marks & marks::CUT != 0 {
            self.lost.cut += 1;
        }
        let seen = Seen {
            capture: place.id,
            scope: place.scope,
            t_ns: frame.t_ns,
            wire_bytes: frame.wire_bytes,
        };
        let packet = self.flows.place(&parsed, seen, &self.recorder);
        self.recorder.packet(&packet);
        self.packets += 1;
    }

    /// Counts a record of a file that could not be read.
    pub(crate) fn broken(&mut self) {
        self.lost.broken += 1;
    }

    /// Records the totals at the end.
    pub fn finish<'a>(mut self, places: impl Iterator<Item = &'a Place>) {
        for place in places {
            self.recorder
                .record(Record::CaptureEnd(Box::new(place.end())));
            self.recorder
                .lost(Loss::PacketsDropped, place.dropped.unwrap_or(0));
            self.recorder.lost(Loss::PacketsUnstored, place.unstored);
            self.recorder
                .lost(Loss::DropsUnknown, u64::from(place.dropped.is_none()));
        }
        self.flows.finish(&self.recorder);
        let lost = self.lost;
        for (loss, count) in [
            (Loss::FramesNotIp, lost.not_ip),
            (Loss::FramesBroken, lost.broken),
            (Loss::HeadersCut, lost.cut),
            (Loss::LinkUnknown, lost.link),
            (Loss::TimesImplausible, lost.time),
        ] {
            self.recorder.lost(loss, count);
        }
    }
}
