//! The disk, past the page cache: a file that is written, read, and has no name from the start, so that
//! nothing of the file stays whatever happens.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use crate::failure::Failure;

const PIECE: usize = 4 << 20;
const SMALL: usize = 4096;
/// A round of random accesses lasts this long at most, seconds.
const RANDOM_SECONDS: f64 = 0.7;
/// A sequential round stops after this, even if the file is not complete.
const SEQUENTIAL_SECONDS: f64 = 4.0;
/// Smallest file that gives a meaningful rate, bytes.
const LEAST: u64 = 32 << 20;

/// Free space of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FreeSpace {
    /// Bytes that an ordinary user may still take.
    free: u64,
    /// Bytes that stay free for others, see [`kept`].
    kept: u64,
}

impl FreeSpace {
    /// The bytes that may be written, at most `wanted`; `None`: too few to measure with.
    fn allows(self, wanted: u64) -> Option<u64> {
        let bytes = self.free.saturating_sub(self.kept).min(wanted) / PIECE as u64 * PIECE as u64;
        (bytes >= LEAST).then_some(bytes)
    }
}

/// The free space on the disk of a directory.
fn free_space(directory: &Path) -> io::Result<FreeSpace> {
    let stat = nix::sys::statvfs::statvfs(directory)?;
    let unit = stat.fragment_size() as u64;
    let total = stat.blocks() as u64 * unit;
    Ok(FreeSpace {
        free: stat.blocks_available() as u64 * unit,
        kept: kept(total),
    })
}

/// The bytes that stay free on a disk of so many bytes: a tenth, 1 GB at least, and no more than 4 GB of a
/// large disk.
fn kept(total: u64) -> u64 {
    (total / 10).clamp(1_000_000_000, 4_000_000_000)
}

#[derive(Debug, Default)]
pub(super) struct Rounds {
    pub(super) is_direct: bool,
    pub(super) write: Vec<f64>,
    pub(super) read: Vec<f64>,
    pub(super) random_write: Vec<f64>,
    pub(super) random_read: Vec<f64>,
}

/// Measures the disk below `directory` with a file of at most `most_bytes`, `rounds` times.
pub(super) fn measure(
    directory: &Path,
    most_bytes: u64,
    rounds_wanted: usize,
) -> Result<Rounds, Failure> {
    let shown = directory.display();
    let cannot = |what: &str, error: io::Error| {
        Failure::new(1, format!("cannot {what} in {shown}: {error}"))
            .hint("name a directory that can be written with --dir")
    };
    let space =
        free_space(directory).map_err(|error| cannot("read the free space of the disk", error))?;
    let Some(size) = space.allows(most_bytes) else {
        return Err(Failure::new(
            1,
            format!(
                "the disk of {shown} is too full to measure: {} free, of which {} stay free",
                flowtrace_render::units::bytes(space.free as i64),
                flowtrace_render::units::bytes(space.kept as i64)
            ),
        )
        .hint("name a directory on another disk with --dir"));
    };
    let mut rounds = Rounds::default();
    let mut buffer = Aligned::new(PIECE);
    fill(buffer.bytes());
    for _ in 0..rounds_wanted {
        let error = |error| cannot("measure the disk", error);
        // A new file each time, as workflows write: overwriting a file is faster on some filesystems.
        let (file, is_direct) =
            nameless(directory).map_err(|error| cannot("make a file", error))?;
        rounds.is_direct = is_direct;
        let (written, rate) = write(&file, &mut buffer, size).map_err(error)?;
        rounds.write.push(rate);
        forget(&file);
        // Read in sequence later: a disk that has taken data faster than it can store them is busy for a
        // while.
        rounds
            .random_read
            .push(random(&file, written, false).map_err(error)?);
        rounds
            .read
            .push(read(&file, &mut buffer, written).map_err(error)?);
        rounds
            .random_write
            .push(random(&file, written, true).map_err(error)?);
    }
    Ok(rounds)
}

/// A file without a name, past the page cache where the filesystem can.
fn nameless(directory: &Path) -> io::Result<(File, bool)> {
    let name = directory.join(format!(".flowtrace-calibrate.{}", std::process::id()));
    for is_direct in [true, false] {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        if is_direct {
            options.custom_flags(libc::O_DIRECT);
        }
        match options.open(&name) {
            Ok(file) => {
                std::fs::remove_file(&name)?;
                return Ok((file, is_direct));
            }
            Err(error) if is_direct && error.raw_os_error() == Some(libc::EINVAL) => {
                // Some filesystems make the file before they refuse.
                let _ = std::fs::remove_file(&name);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// Removes the cached pages of the file from the page cache, as far as the kernel does that.
fn forget(file: &File) {
    let _ = file.sync_data();
    let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED;
    let _ = nix::fcntl::posix_fadvise(file, 0, 0, advice);
}

fn write(file: &File, buffer: &mut Aligned, size: u64) -> io::Result<(u64, f64)> {
    let begin = Instant::now();
    let mut at = 0;
    while at < size && begin.elapsed().as_secs_f64() < SEQUENTIAL_SECONDS {
        // No two pieces are equal, for disks that compress or deduplicate.
        buffer.bytes()[..8].copy_from_slice(&at.to_le_bytes());
        file.write_all_at(buffer.bytes(), at)?;
        at += PIECE as u64;
    }
    file.sync_data()?;
    Ok((at, at as f64 / begin.elapsed().as_secs_f64()))
}

fn read(file: &File, buffer: &mut Aligned, size: u64) -> io::Result<f64> {
    let begin = Instant::now();
    let mut at = 0;
    while at < size && begin.elapsed().as_secs_f64() < SEQUENTIAL_SECONDS {
        file.read_exact_at(buffer.bytes(), at)?;
        at += PIECE as u64;
    }
    Ok(at as f64 / begin.elapsed().as_secs_f64())
}

fn random(file: &File, size: u64, is_write: bool) -> io::Result<f64> {
    let places = size / SMALL as u64;
    let mut buffer = Aligned::new(SMALL);
    fill(buffer.bytes());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let begin = Instant::now();
    let mut count = 0_u64;
    while begin.elapsed().as_secs_f64() < RANDOM_SECONDS {
        state = next(state);
        let at = state % places.max(1) * SMALL as u64;
        if is_write {
            file.write_all_at(buffer.bytes(), at)?;
        } else {
            file.read_exact_at(buffer.bytes(), at)?;
        }
        count += 1;
    }
    if is_write {
        file.sync_data()?;
    }
    Ok((count * SMALL as u64) as f64 / begin.elapsed().as_secs_f64())
}

/// Bytes that do not compress.
fn fill(bytes: &mut [u8]) {
    let mut state = 0x1234_5678_9abc_def1_u64;
    for chunk in bytes.chunks_mut(8) {
        state = next(state);
        let value = state.to_le_bytes();
        chunk.copy_from_slice(&value[..chunk.len()]);
    }
}

pub(super) fn next(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}

/// A buffer that begins at a multiple of a page, as direct access requires.
struct Aligned {
    all: Vec<u8>,
    from: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Aligned {
        let all = vec![0; length + SMALL];
        let from = all.as_ptr().align_offset(SMALL).min(SMALL);
        Aligned { all, from, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.all[self.from..self.from + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_or_a_few_gigabytes_stay_free() {
        let gigabyte = 1_000_000_000;
        assert_eq!(kept(gigabyte / 2), gigabyte);
        assert_eq!(kept(20 * gigabyte), 2 * gigabyte);
        assert_eq!(kept(250 * gigabyte), 4 * gigabyte);
        let space = |free, kept| FreeSpace { free, kept };
        assert_eq!(space(10 << 30, 1 << 30).allows(256 << 20), Some(256 << 20));
        assert_eq!(
            space((1 << 30) + (64 << 20), 1 << 30).allows(256 << 20),
            Some(64 << 20)
        );
        assert_eq!(space((1 << 30) + 1000, 1 << 30).allows(256 << 20), None);
        assert_eq!(space(0, 1 << 30).allows(256 << 20), None);
    }
}
