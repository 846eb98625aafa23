//! Compressed files, which are recognised by their first bytes, not by their names.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Opens a file; the bytes read from it are decompressed.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let mut file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    // A pipe cannot be rewound: the first bytes are put in front again.
    let mut head = [0; 4];
    let mut length = 0;
    while length < head.len() {
        match file.read(&mut head[length..])? {
            0 => break,
            read => length += read,
        }
    }
    let head = head[..length].to_vec();
    let is = |magic: &[u8]| head.starts_with(magic);
    let (is_gzip, is_zstd) = (is(GZIP), is(ZSTD));
    let whole = BufReader::with_capacity(256 << 10, Cursor::new(head).chain(file));
    Ok(if is_gzip {
        Box::new(MultiGzDecoder::new(whole))
    } else if is_zstd {
        Box::new(Zstd {
            source: Some(whole),
            frame: None,
        })
    } else {
        // The reader has a buffer of its own.
        let buffered = whole.buffer().to_vec();
        Box::new(Cursor::new(buffered).chain(whole.into_inner()))
    })
}

/// A file of any number of frames of zstd.
struct Zstd<R: BufRead> {
    /// The rest of the file, between two frames.
    source: Option<R>,
    frame: Option<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                match frame.read(bytes)? {
                    0 if bytes.is_empty() => return Ok(0),
                    0 => {}
                    read => return Ok(read),
                }
                self.source = self.frame.take().map(StreamingDecoder::into_inner);
            }
            let Some(mut source) = self.source.take() else {
                return Ok(0);
            };
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let frame = StreamingDecoder::new(source).map_err(io::Error::other)?;
            self.frame = Some(frame);
        }
    }
}
