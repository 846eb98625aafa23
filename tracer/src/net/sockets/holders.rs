//! The processes that have a socket open, if no process tracer knows: read from the descriptors of all
//! processes that may be read.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use flowtrace_schema::{HostId, Origin, ProcessStart, Record, Recorder, Upid};
use nix::dir::Dir;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::Mode;

use crate::clock::Clock;
use crate::linux::tick_ns;
use crate::proc::Upids;
use crate::proc::reading::{Image, ProcessStat};

/// Images that are remembered; beyond that the dead ones are forgotten.
const REMEMBERED: usize = 1 << 14;

/// The processes of the machine that have sockets of interest open.
#[derive(Debug)]
pub(crate) struct Holders {
    host: HostId,
    clock: Clock,
    recorder: Recorder,
    upids: Arc<Upids>,
    /// Images by process id, begin, and address of the program, which is another one after most execs.
    images: HashMap<(u32, u64, u64), Upid>,
}

impl Holders {
    pub(crate) fn new(host: HostId, clock: Clock, recorder: &Recorder) -> Holders {
        Holders {
            host,
            clock,
            recorder: recorder.clone(),
            upids: Arc::new(Upids::new()),
            images: HashMap::new(),
        }
    }

    /// Processes that have the sockets with these inodes open now.
    pub(crate) fn of(&mut self, inodes: &HashSet<u64>) -> HashMap<u64, Vec<Upid>> {
        let mut found: HashMap<u64, Vec<Upid>> = HashMap::new();
        if inodes.is_empty() {
            return found;
        }
        let mut alive = HashSet::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = number(entry.file_name().as_bytes()) else {
                continue;
            };
            let opened = sockets(pid, inodes);
            if opened.is_empty() || pid == std::process::id() {
                continue;
            }
            let Some(upid) = self.image(pid, &mut alive) else {
                continue;
            };
            for inode in opened {
                found.entry(inode).or_default().push(upid);
            }
        }
        if self.images.len() > REMEMBERED {
            self.images.retain(|key, _| alive.contains(key));
        }
        found
    }

    /// The image that process `pid` runs, which is recorded when it is met first.
    fn image(&mut self, pid: u32, alive: &mut HashSet<(u32, u64, u64)>) -> Option<Upid> {
        let stat = ProcessStat::of(pid)?;
        let key = (pid, stat.start_ticks, stat.start_code);
        alive.insert(key);
        if let Some(upid) = self.images.get(&key) {
            return Some(*upid);
        }
        let image = Image::of(pid);
        let upid = self.upids.next();
        let start_ns = self
            .clock
            .at_boot(stat.start_ticks.saturating_mul(tick_ns()));
        self.recorder
            .record(Record::ProcessStart(Box::new(ProcessStart {
                upid,
                host: self.host,
                pid,
                parent: None,
                prev: None,
                origin: Origin::Seen,
                exe: image.exe,
                argv: image.argv,
                cwd: image.cwd,
                environment: None,
                start_ns,
            })));
        self.images.insert(key, upid);
        Some(upid)
    }
}

/// Those of the sockets that process `pid` has open, each once. Reads links relative to its directory: the
/// full path takes longer than the reading.
fn sockets(pid: u32, inodes: &HashSet<u64>) -> HashSet<u64> {
    let path = format!("/proc/{pid}/fd");
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Ok(mut directory) = Dir::open(path.as_str(), flags, Mode::empty()) else {
        return HashSet::new();
    };
    let names = directory.iter().flatten();
    let names: Vec<CString> = names.map(|entry| entry.file_name().to_owned()).collect();
    let target = |name: &CString| readlinkat(&directory, name.as_c_str()).ok();
    let sockets = names.iter().filter_map(|name| {
        let target = target(name)?;
        let inode = target.as_bytes().strip_prefix(b"socket:[")?;
        let inode = str::from_utf8(inode.strip_suffix(b"]")?).ok()?;
        inode.parse().ok().filter(|inode| inodes.contains(inode))
    });
    sockets.collect()
}

fn number(name: &[u8]) -> Option<u32> {
    str::from_utf8(name).ok()?.parse().ok()
}
