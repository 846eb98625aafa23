//! fio: how fast data moves. Each job reads or writes its own file from end to end, pass after
//! pass for a fixed time, and reports its bandwidth.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;

/// Bytes of the file of one job.
const SIZE: usize = 64 << 20;
/// Most jobs at once.
const MOST_JOBS: usize = 4;
/// Where there is a filesystem in memory, if there is.
const MEMORY: &str = "/dev/shm";

/// One kind of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// fio's name of the pattern.
    pattern: &'static str,
    block: Block,
    jobs: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Small,
    Large,
}

impl Block {
    fn name(self) -> &'static str {
        match self {
            Block::Small => "4k",
            Block::Large => "1m",
        }
    }
}

impl Job {
    pub(crate) fn name(self) -> String {
        format!("fio-{}-{}-{}", self.pattern, self.block.name(), self.jobs)
    }

    /// The command line. Without `time_based` a pass ends with the file and the next one opens it
    /// again, so every pass finds the page cache of a mount empty, as the first use of a file in a
    /// workflow does. `invalidate=0` leaves alone the page cache of the real filesystem.
    pub(crate) fn argv(self, quick: bool) -> Vec<String> {
        let runtime = if quick { "200ms" } else { "1s" };
        let line = format!(
            "fio --name=data --ioengine=psync --rw={} --bs={} --numjobs={} --size={SIZE} \
             --filename_format=data.$jobnum --loops=1000000 --runtime={runtime} --invalidate=0 \
             --fallocate=none --group_reporting --output-format=json",
            self.pattern,
            self.block.name(),
            self.jobs,
        );
        line.split_ascii_whitespace().map(str::to_owned).collect()
    }

    /// Seconds per byte, from fio's report.
    pub(crate) fn cost(self, report: &[u8]) -> Result<f64, String> {
        // fio puts warnings before the report.
        let start = report.iter().position(|&byte| byte == b'{').unwrap_or(0);
        let report: serde_json::Value = serde_json::from_slice(&report[start..])
            .map_err(|e| format!("fio's report cannot be read: {e}"))?;
        let direction = if self.pattern.ends_with("read") {
            "read"
        } else {
            "write"
        };
        let bandwidth = report["jobs"][0][direction]["bw_bytes"].as_f64();
        match bandwidth {
            Some(bandwidth) if bandwidth > 0.0 => Ok(1.0 / bandwidth),
            _ => Err("fio's report has no bandwidth".to_owned()),
        }
    }

    /// A cost as people read it.
    pub(crate) fn show(self, cost: f64) -> String {
        match self.block {
            Block::Small => format!("{:.0} kIOPS", 1.0 / cost / 4096.0 / 1e3),
            Block::Large => format!("{:.2} GB/s", 1.0 / cost / 1e9),
        }
    }
}

/// Every kind; of a quick run two.
pub(crate) fn jobs(quick: bool) -> Vec<Job> {
    let mut all = Vec::new();
    for block in [Block::Small, Block::Large] {
        for pattern in ["read", "randread", "write", "randwrite"] {
            for jobs in [1, MOST_JOBS] {
                all.push(Job {
                    pattern,
                    block,
                    jobs,
                });
            }
        }
    }
    if quick {
        all.retain(|job| {
            matches!(
                (job.pattern, job.block, job.jobs),
                ("randread", Block::Small, 1) | ("write", Block::Large, MOST_JOBS)
            )
        });
    }
    all
}

/// Memory, so that the cost of the filesystem on top is seen and not that of a disk; a temporary
/// directory where there is none, or too little.
pub(crate) fn default_parent() -> PathBuf {
    let needed = (2 * MOST_JOBS * SIZE) as u64;
    let room = statvfs(MEMORY).map(|v| v.blocks_available() * v.fragment_size());
    if room.is_ok_and(|room| room >= needed) {
        PathBuf::from(MEMORY)
    } else {
        std::env::temp_dir()
    }
}

/// Makes the files.
pub(crate) fn prepare(directory: &Path) -> Result<(), String> {
    let content: Vec<u8> = (0..SIZE as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    for job in 0..MOST_JOBS {
        let path = directory.join(format!("data.{job}"));
        fs::write(&path, &content).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// What to know of the figures.
pub(crate) fn conditions(directory: &Path) -> String {
    let memory = statfs(directory).is_ok_and(|s| s.filesystem_type() == TMPFS_MAGIC);
    let medium = if memory {
        "in memory (tmpfs)"
    } else {
        "on a disk"
    };
    format!(
        "fio in {}, {medium}: psync, a file of {} MiB per job, ratios of bandwidths",
        directory.display(),
        SIZE >> 20
    )
}
