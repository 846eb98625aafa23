//! A trace from captures that other programs wrote.
//!
//! Several files are read side by side in the order of their timestamps, so that the packets of all of them
//! reach the trace about in the order of time, whatever their sizes. Their times are read before that, for
//! the bulk of the packets decides which times a trace covers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::{Path, PathBuf};

use flowtrace_schema::{
    CaptureId, CaptureRecord, CaptureSource, FileLayer, HostId, HostRecord, Loss, ProcessLayer,
    Record, Recorder, RunEnd, RunId, RunRecord, Summary, Text, Writer,
};

mod bulk;

pub use super::files::FileError;
use super::files::{Capture, Event, Frame, Interface};
use super::sink::{Incoming, Place, Sink};

/// A file to import.
#[derive(Clone, Debug)]
pub struct Input {
    /// Path of the file.
    pub path: PathBuf,
    /// The host of the capture; `None`: as the file says, or named after the file.
    pub host: Option<String>,
}

/// Reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read, or is no capture.
    #[error("cannot import {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: FileError,
    },
    /// The trace cannot be made.
    #[error(transparent)]
    Store(#[from] flowtrace_schema::Error),
}

/// Result of importing one file.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The file.
    pub path: PathBuf,
    /// Its hosts: one, or those of its interfaces.
    pub hosts: Vec<String>,
    /// Frames in it, as far as it could be read.
    pub frames: u64,
    /// Ignored frames: no packets of IP, or unreadable.
    pub ignored: u64,
    /// Of the ignored ones, those whose time is more than a year from that of the bulk.
    pub out_of_time: u64,
    /// Of the ignored ones, those of link layers that are not read.
    pub foreign: u64,
    /// The numbers of these link layers.
    pub foreign_links: Vec<u16>,
    /// Reason why it was not read to its end.
    pub damage: Option<String>,
}

/// Result of an import.
#[derive(Debug)]
pub struct Report {
    /// The files, in the order in which they were given.
    pub files: Vec<Imported>,
    /// Files of which nothing could be read, with the reason.
    pub refused: Vec<(PathBuf, FileError)>,
    /// Hosts.
    pub hosts: u32,
    /// Packets in the trace.
    pub packets: u64,
    /// Flows in the trace.
    pub flows: u32,
    /// Summary of the trace.
    pub summary: Summary,
}

/// Makes a trace at `output` of the packets in `inputs`; an older trace is replaced if `replace`.
///
/// # Errors
/// If none of the files is a capture, one is given twice or is the output, or the trace cannot be made; then
/// nothing is left. The report has a file that is no capture beside others, and damage behind the beginning
/// of a file.
pub fn import(inputs: &[Input], output: &Path, replace: bool) -> Result<Report, Error> {
    for (at, input) in inputs.iter().enumerate() {
        if inputs[..at]
            .iter()
            .any(|other| is_same(&other.path, &input.path))
        {
            return Err(Error::File {
                path: input.path.clone(),
                source: FileError::NotACapture("it is given twice".into()),
            });
        }
        if is_same(&input.path, output) {
            return Err(Error::File {
                path: input.path.clone(),
                source: FileError::NotACapture("it is the trace that is to be written".into()),
            });
        }
    }
    let (mut files, mut refused) = (Vec::new(), Vec::new());
    let mut times = bulk::Times::default();
    for input in inputs {
        match File::open(input, &mut times) {
            Ok(file) => files.push(file),
            Err(source) => refused.push((input.path.clone(), source)),
        }
    }
    if files.is_empty() && !refused.is_empty() {
        let (path, source) = refused.swap_remove(0);
        return Err(Error::File { path, source });
    }
    let (writer, recorder) = Writer::create(output, replace)?;
    let mut import = Import {
        sink: Sink::new(&recorder),
        recorder: recorder.clone(),
        epoch_unix_ns: times.bulk_ns().unwrap_or(0),
        hosts: BTreeMap::new(),
        captures: 0,
        latest_ns: 0,
    };
    recorder.lost(Loss::CaptureDamaged, refused.len() as u64);
    import.all(&mut files);
    let report = files.iter().map(File::report).collect();
    let (hosts, packets) = (import.hosts.len() as u32, import.sink.packets());
    let flows = import.sink.flows.count();
    let end_ns = import.latest_ns.max(0) as u64;
    import.finish(&files);
    let end = RunEnd {
        id: RunId(1),
        end_ns,
        exit_code: None,
        exit_signal: None,
    };
    Ok(Report {
        files: report,
        refused,
        hosts,
        packets,
        flows,
        summary: writer.finish(&recorder, end),
    })
}

/// A file that is being read.
struct File {
    input: Input,
    capture: Capture,
    /// Its interfaces, until they are recorded.
    unrecorded: Vec<Interface>,
    /// Its captures, by the number of the interface.
    places: Vec<Place>,
    /// The host of the interface that was read last.
    host: String,
    /// The hosts of all interfaces, in their order.
    hosts: Vec<String>,
    /// The frame that comes next.
    next: Option<Frame>,
    damage: Option<String>,
    broken: u64,
}

impl File {
    /// Opens a file, and adds its times to `times`.
    fn open(input: &Input, times: &mut bulk::Times) -> Result<File, FileError> {
        let mut file = File {
            capture: times.open(&input.path)?,
            host: input.host.clone().unwrap_or_else(|| name_of(&input.path)),
            input: input.clone(),
            hosts: Vec::new(),
            unrecorded: Vec::new(),
            places: Vec::new(),
            next: None,
            damage: None,
            broken: 0,
        };
        file.advance();
        Ok(file)
    }

    /// Reads up to the next frame.
    fn advance(&mut self) {
        self.next = None;
        loop {
            match self.capture.next() {
                Ok(Event::Frame(frame)) => {
                    self.next = Some(frame);
                    return;
                }
                Ok(Event::Interface(interface)) => self.unrecorded.push(interface),
                Ok(Event::Statistics(interface, statistics)) => {
                    // Counts before the first frame of an interface belong to no capture.
                    if let Some(place) = self.places.get_mut(interface) {
                        place.received = statistics.received.or(place.received);
                        place.dropped = statistics.dropped.or(place.dropped);
                    }
                }
                Ok(Event::Broken) => self.broken += 1,
                Ok(Event::End) => return,
                Err(error) => {
                    self.damage = Some(error.to_string());
                    return;
                }
            }
        }
    }

    fn report(&self) -> Imported {
        let sum = |of: fn(&Place) -> u64| self.places.iter().map(of).sum::<u64>();
        let is_foreign = |place: &&Place| place.link.is_none() && place.frames > 0;
        let foreign = || self.places.iter().filter(is_foreign);
        let mut foreign_links: Vec<u16> = foreign().map(|place| place.link_type).collect();
        foreign_links.sort_unstable();
        foreign_links.dedup();
        Imported {
            path: self.input.path.clone(),
            hosts: match self.hosts.is_empty() {
                true => vec![self.host.clone()],
                false => self.hosts.clone(),
            },
            frames: sum(|place| place.frames) + self.broken,
            ignored: sum(|place| place.ignored) + self.broken,
            out_of_time: sum(|place| place.out_of_time),
            foreign: foreign()
                .map(|place| place.ignored - place.out_of_time)
                .sum(),
            foreign_links,
            damage: self.damage.clone(),
        }
    }
}

/// The trace that is being made.
struct Import {
    sink: Sink,
    recorder: Recorder,
    epoch_unix_ns: i64,
    hosts: BTreeMap<String, HostId>,
    captures: u32,
    latest_ns: i64,
}

impl Import {
    fn all(&mut self, files: &mut [File]) {
        for file in files.iter_mut() {
            self.places(file);
            if self.hosts.is_empty() {
                self.host(&file.host.clone());
            }
        }
        self.run();
        let mut heads: BinaryHeap<_> = files
            .iter()
            .enumerate()
            .filter_map(|(at, file)| Some(Reverse((file.next?.unix_ns, at))))
            .collect();
        while let Some(Reverse((_, at))) = heads.pop() {
            // Frames of one file as long as it is the first in time.
            let until = heads.peek().map_or(i64::MAX, |Reverse((t_ns, _))| *t_ns);
            let file = &mut files[at];
            while let Some(frame) = file.next {
                if frame.unix_ns > until {
                    heads.push(Reverse((frame.unix_ns, at)));
                    break;
                }
                self.frame(file, frame);
                file.advance();
                self.places(file);
            }
        }
    }

    fn frame(&mut self, file: &mut File, frame: Frame) {
        let incoming = Incoming {
            t_ns: frame.unix_ns.saturating_sub(self.epoch_unix_ns),
            bytes: file.capture.bytes(&frame),
            wire_bytes: frame.wire_bytes,
            way: frame.way,
            marks: 0,
        };
        let place = &mut file.places[frame.interface];
        self.sink.frame(place, incoming);
        self.latest_ns = self.latest_ns.max(place.to_ns.unwrap_or(0));
    }

    /// Records the interfaces of a file that were read since the last call.
    fn places(&mut self, file: &mut File) {
        for interface in std::mem::take(&mut file.unrecorded) {
            if let (None, Some(host)) = (&file.input.host, &interface.host) {
                file.host.clone_from(host);
            }
            let host = self.host(&file.host.clone());
            if !file.hosts.contains(&file.host) {
                file.hosts.push(file.host.clone());
            }
            self.captures += 1;
            let record = CaptureRecord {
                id: CaptureId(self.captures),
                host,
                interface: interface.name.unwrap_or_else(|| name_of(&file.input.path)),
                source: CaptureSource::File,
                file: Some(Text::from(file.input.path.as_path())),
                link_type: Some(interface.link_type),
                namespace: None,
                snap_length: interface.snap_length,
                from_ns: None,
            };
            file.places.push(self.sink.begin(record, host.0));
        }
    }

    fn host(&mut self, name: &str) -> HostId {
        let next = HostId(self.hosts.len() as u32 + 1);
        let epoch_unix_ns = self.epoch_unix_ns;
        let recorder = &self.recorder;
        *self.hosts.entry(name.to_owned()).or_insert_with(|| {
            recorder.record(Record::Host(Box::new(HostRecord {
                id: next,
                name: name.to_owned(),
                boot_id: None,
                system: "unknown".into(),
                cpus: None,
                memory_bytes: None,
                epoch_unix_ns,
            })));
            next
        })
    }

    fn run(&self) {
        let cwd = std::env::current_dir().unwrap_or_default();
        self.recorder.record(Record::Run(Box::new(RunRecord {
            id: RunId(1),
            host: HostId(1),
            command: None,
            cwd: Text::from(cwd.as_path()),
            version: env!("CARGO_PKG_VERSION"),
            file_layer: FileLayer::None,
            process_layer: ProcessLayer::None,
        })));
    }

    fn finish(mut self, files: &[File]) {
        for file in files {
            (0..file.broken).for_each(|_| self.sink.broken());
            self.recorder
                .lost(Loss::CaptureDamaged, u64::from(file.damage.is_some()));
        }
        self.sink.finish(files.iter().flat_map(|file| &file.places));
    }
}

/// The name of a file without the endings of its format.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut name: &str = &name;
    for suffix in [".gz", ".zst", ".pcap", ".pcapng", ".cap"] {
        name = name.strip_suffix(suffix).unwrap_or(name);
    }
    name.to_owned()
}

fn is_same(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    inode(a).is_some() && inode(a) == inode(b)
}
