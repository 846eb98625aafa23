//! Captures that other programs wrote: pcap and pcapng, plain or compressed by gzip or zstd.
//!
//! Files are read from beginning to end, with memory that does not grow. Whatever is wrong
//! in one ends it there, and what came before stays.

use std::io;
use std::path::Path;

use flowtrace_schema::Way;

mod compressed;
mod input;
mod pcap;
mod pcapng;

use input::Input;

/// Longest frame that is read. Loopback frames of large segments have 65 549 bytes, BIG TCP has
/// more; libpcap stops at 262 144.
const LONGEST_FRAME: usize = 1 << 20;

/// Where frames of a file were captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its name, when the file has it.
    pub(crate) name: Option<String>,
    /// The host, when the file has it: flowtrace writes it, nobody else does.
    pub(crate) host: Option<String>,
    /// LINKTYPE_ number.
    pub(crate) link_type: u16,
    pub(crate) snap_length: Option<u32>,
}

/// What a file says about the packets that it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    pub(crate) received: Option<u64>,
    pub(crate) dropped: Option<u64>,
}

/// A frame, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Since 1970.
    pub(crate) unix_ns: i64,
    /// Which of [`Event::Interface`], counted from 0 in the whole file.
    pub(crate) interface: usize,
    /// Bytes on the wire.
    pub(crate) wire_bytes: u32,
    pub(crate) way: Way,
    /// How many of them the file has.
    length: usize,
    /// What follows them in the record.
    behind: usize,
}

/// What comes next in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Another interface, the next in number.
    Interface(Interface),
    /// A frame; its bytes are those of [`Capture::bytes`].
    Frame(Frame),
    /// An interface's statistics.
    Statistics(usize, Statistics),
    /// A record that cannot be read, while those behind it can.
    Broken,
    /// The end.
    End,
}

/// Why a file is not read, or not read on.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("{0}")]
    NotACapture(String),
    /// It ends amid a record, or a record contradicts itself.
    #[error("{what} at byte {offset}")]
    Damaged {
        /// What is wrong.
        what: String,
        /// Where, in the file as it is without compression.
        offset: u64,
    },
}

enum Format {
    Pcap(pcap::Reader),
    Pcapng(pcapng::Reader),
}

/// A file that is being read.
pub(crate) struct Capture {
    input: Input,
    format: Format,
}

impl Capture {
    /// Opens a file and looks what it is.
    pub(crate) fn open(path: &Path) -> Result<Capture, FileError> {
        Self::read(Self::source(path)?)
    }

    /// Opens a file; what is read of it is no longer compressed.
    pub(crate) fn source(path: &Path) -> io::Result<Box<dyn io::Read>> {
        compressed::open(path)
    }

    /// Reads what comes from `source`.
    pub(crate) fn read(source: Box<dyn io::Read>) -> Result<Capture, FileError> {
        let mut input = Input::new(source);
        let Some(magic) = input.peek(4)? else {
            return Err(FileError::NotACapture(match input.is_empty() {
                true => "it is empty".into(),
                false => "it is shorter than the header of a capture".into(),
            }));
        };
        let magic: [u8; 4] = magic.try_into().expect("four bytes");
        let format = match magic {
            [0x0a, 0x0d, 0x0d, 0x0a] => Format::Pcapng(pcapng::Reader::default()),
            _ => Format::Pcap(pcap::Reader::begin(magic, &mut input)?),
        };
        Ok(Capture { input, format })
    }

    /// What comes next. After an error there is nothing more.
    pub(crate) fn next(&mut self) -> Result<Event, FileError> {
        match &mut self.format {
            Format::Pcap(reader) => reader.next(&mut self.input),
            Format::Pcapng(reader) => reader.next(&mut self.input),
        }
    }

    /// The bytes of the frame that came last.
    pub(crate) fn bytes(&self, frame: &Frame) -> &[u8] {
        &self.input.taken(frame.length + frame.behind)[..frame.length]
    }
}
