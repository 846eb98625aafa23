//! A buffer over the bytes of a file, from which records are taken without copying them.

use std::io::{self, ErrorKind, Read};

/// Bytes read at once, and most that one record may have.
const CAPACITY: usize = 4 << 20;
/// Bytes asked for at once, so that the first record of a slow source is available early.
const CHUNK: usize = 256 << 10;

/// A file that is read from beginning to end.
pub(super) struct Input {
    source: Box<dyn Read>,
    buffer: Vec<u8>,
    /// Bytes in the buffer that are not taken yet.
    start: usize,
    end: usize,
    /// Bytes before `start`.
    offset: u64,
    is_over: bool,
}

impl Input {
    pub(super) fn new(source: Box<dyn Read>) -> Self {
        Input {
            source,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            offset: 0,
            is_over: false,
        }
    }

    /// Bytes taken so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// True if everything that has been read is taken.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The next `count` bytes, which stay; `None` if there are fewer, or if they do not fit the buffer.
    pub(super) fn peek(&mut self, count: usize) -> io::Result<Option<&[u8]>> {
        if self.end - self.start < count && !self.fill(count)? {
            return Ok(None);
        }
        Ok(Some(&self.buffer[self.start..self.start + count]))
    }

    /// Takes `count` bytes that [`Input::peek`] has returned.
    pub(super) fn take(&mut self, count: usize) {
        self.start += count;
        self.offset += count as u64;
    }

    /// The last `count` bytes that were taken.
    pub(super) fn taken(&self, count: usize) -> &[u8] {
        &self.buffer[self.start - count..self.start]
    }

    /// Leaves out `count` bytes; false if there were fewer.
    pub(super) fn skip(&mut self, mut count: u64) -> io::Result<bool> {
        while count > 0 {
            if self.is_empty() && !self.fill(1)? {
                return Ok(false);
            }
            let now = count.min((self.end - self.start) as u64);
            self.take(now as usize);
            count -= now;
        }
        Ok(true)
    }

    #[cold]
    fn fill(&mut self, count: usize) -> io::Result<bool> {
        if count > CAPACITY {
            return Ok(false);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() < count {
            self.buffer.resize(count.next_power_of_two(), 0);
        }
        while self.end < count && !self.is_over {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_over = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.end >= count)
    }
}
