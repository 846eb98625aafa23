//! A FUSE filesystem in which nearly every request fails with a chosen errno.
//!
//! It has a file, a directory and a symbolic link, which have attributes and can be opened, and a name that
//! is listed but cannot be looked up.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::Backing;
use crate::mounted::mount_fuse;

pub(crate) const FILE: &str = "file";
pub(crate) const DIRECTORY: &str = "directory";
pub(crate) const LINK: &str = "link";
pub(crate) const BROKEN: &str = "broken";

/// From this errno on, writing works, but written data cannot be flushed.
pub(crate) const WRITABLE_FROM: u64 = 1 << 20;

const ENTRIES: [(u64, &str, u32); 4] = [
    (2, FILE, libc::S_IFREG | 0o644),
    (3, DIRECTORY, libc::S_IFDIR | 0o755),
    (4, LINK, libc::S_IFLNK | 0o777),
    (5, BROKEN, libc::S_IFREG | 0o644),
];

// Requests of include/uapi/linux/fuse.h.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const STATX: u32 = 52;
/// `FOPEN_DIRECT_IO`: the page cache does not swallow errors.
const DIRECT_IO: u64 = 1;

/// Mounts the filesystem; the errno may be changed at any time.
pub(crate) fn failing() -> (Backing, Arc<AtomicI32>) {
    let backing = Backing::nothing();
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    mount_fuse(&device, &backing.path, "user_id=0,group_id=0,allow_other");
    let errno = Arc::new(AtomicI32::new(libc::EIO));
    let server = Server {
        device,
        errno: Arc::clone(&errno),
        wrote: AtomicBool::new(false),
    };
    std::thread::spawn(move || server.serve());
    (backing, errno)
}

struct Server {
    device: File,
    errno: Arc<AtomicI32>,
    wrote: AtomicBool,
}

impl Server {
    /// Answers requests until the mount is gone.
    fn serve(&self) {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(length) = (&self.device).read(&mut buffer) {
            let request = &buffer[..length];
            let (code, id) = (u32_at(request, 4), &request[8..16]);
            let node = u64_at(request, 16);
            if [FORGET, INTERRUPT, BATCH_FORGET].contains(&code) {
                continue;
            }
            let (error, answer) = match self.answer(code, node, &request[40..]) {
                Ok(answer) => (0, answer),
                Err(errno) => (-errno, Vec::new()),
            };
            let length = 16 + answer.len() as u32;
            let reply = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), id, &answer].concat();
            // Fails if the process that sent the request has ended.
            let _ = (&self.device).write(&reply);
        }
    }

    fn answer(&self, code: u32, node: u64, argument: &[u8]) -> Result<Vec<u8>, i32> {
        let errno = Err(self.errno.load(Ordering::Relaxed));
        match code {
            INIT => Ok(init()),
            LOOKUP => {
                let named = |entry: &&(u64, &str, u32)| {
                    argument.strip_suffix(b"\0") == Some(entry.1.as_bytes())
                };
                match ENTRIES.iter().find(named) {
                    None => Err(libc::ENOENT),
                    Some(&(_, BROKEN, _)) => errno,
                    // Node, generation, and the times for which name and attributes are valid.
                    Some(&(node, ..)) => Ok(words(&[node, 0, 0, 0, 0], attributes(node))),
                }
            }
            GETATTR => Ok(words(&[0, 0], attributes(node))),
            OPEN | OPENDIR => Ok(words(&[0, DIRECT_IO], Vec::new())),
            READDIR if node == 1 => Ok(listing(u64_at(argument, 8))),
            RELEASE | RELEASEDIR => Ok(Vec::new()),
            STATX => Err(libc::ENOSYS),
            WRITE if u64_at(argument, 8) >= WRITABLE_FROM => {
                self.wrote.store(true, Ordering::Relaxed);
                Ok(words(&[u64::from(u32_at(argument, 16))], Vec::new()))
            }
            FLUSH if !self.wrote.swap(false, Ordering::Relaxed) => Ok(Vec::new()),
            _ => errno,
        }
    }
}

/// `struct fuse_init_out` of version 7.31: no options, requests of at most 64 KiB.
fn init() -> Vec<u8> {
    let words: [u32; 16] = [7, 31, 0, 0, 0, 1 << 16, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let entry = ENTRIES.iter().find(|entry| entry.0 == node);
    let mode = entry.map_or(libc::S_IFDIR | 0o755, |entry| entry.2);
    let size = 4096;
    let mut bytes = words(&[node, size, 8, 0, 0, 0], Vec::new());
    // Fractions of times, mode, links, owner, group, device, block size, flags.
    for word in [0, 0, 0, mode, 2, 0, 0, 0, 4096, 0] {
        bytes.extend_from_slice(&u32::to_ne_bytes(word));
    }
    bytes
}

fn listing(from: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (next, (node, name, mode)) in (1..).zip(ENTRIES).skip(from as usize) {
        let kind = u64::from(mode >> 12);
        let head = [node, next, name.len() as u64 | kind << 32];
        bytes.extend_from_slice(&words(&head, name.as_bytes().to_vec()));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    bytes
}

fn words(words: &[u64], rest: Vec<u8>) -> Vec<u8> {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    bytes.chain(rest).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}
