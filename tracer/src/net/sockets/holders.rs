//! Which processes hold a socket, where no process tracer knows: a look at the descriptors of all
//! processes that may be looked at.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use flowtrace_schema::{HostId, Origin, ProcessStart, Record, Recorder, Upid};

use crate::clock::Clock;
use crate::proc::Upids;
use crate::proc::reading::{Image, ProcessStat, tick_ns};

/// Images that are remembered; then the dead ones are forgotten.
const REMEMBERED: usize = 1 << 14;

/// The processes of the machine, as far as they hold sockets of interest.
#[derive(Debug)]
pub(crate) struct Holders {
    host: HostId,
    clock: Clock,
    recorder: Recorder,
    upids: Arc<Upids>,
    /// By process id, begin, and address of the program, which is another one after most execs.
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

    /// Who holds each of the sockets with these inodes now.
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
            let held = sockets(pid, inodes);
            if held.is_empty() || pid == std::process::id() {
                continue;
            }
            let Some(upid) = self.image(pid, &mut alive) else {
                continue;
            };
            for inode in held {
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

/// Those of the sockets that process `pid` holds, each once.
fn sockets(pid: u32, inodes: &HashSet<u64>) -> HashSet<u64> {
    let links = fs::read_dir(format!("/proc/{pid}/fd"));
    links
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            let text = target.to_str()?;
            let inode = text.strip_prefix("socket:[")?.strip_suffix(']')?;
            inode.parse().ok().filter(|inode| inodes.contains(inode))
        })
        .collect()
}

fn number(name: &[u8]) -> Option<u32> {
    str::from_utf8(name).ok()?.parse().ok()
}
