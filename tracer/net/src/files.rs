//! Captures that other programs wrote: pcap and pcapng, plain or compressed by gzip or zstd.
//!
//! Files are read from beginning to end, with memory that does not grow. An error in a file ends its reading,
//! and earlier frames stay.

use std::io;
use std::path::Path;

mod compressed;
mod event;
mod input;
mod pcap;
mod pcapng;

pub use event::FileError;
pub(crate) use event::{Event, Frame, Interface};
use input::Input;

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
    /// Opens a file and detects its format.
    pub(crate) fn open(path: &Path) -> Result<Capture, FileError> {
        Self::read(Self::source(path)?)
    }

    /// Opens a file; the bytes read from it are decompressed.
    pub(crate) fn source(path: &Path) -> io::Result<Box<dyn io::Read>> {
        compressed::open(path)
    }

    /// Reads a capture from `source`.
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
            [0x0a, 0x0d, 0x0d, 0x0a] => Format::Pcapng(pcapng::Reader::begin(&mut input)?),
            _ => Format::Pcap(pcap::Reader::begin(magic, &mut input)?),
        };
        Ok(Capture { input, format })
    }

    /// Next event of the file. After an error there is none.
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
