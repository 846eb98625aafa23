//! A child process, and what it used.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// What a process used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) wall_s: f64,
    pub(crate) cpu_s: f64,
    /// Peak of resident memory.
    pub(crate) peak_bytes: u64,
    pub(crate) succeeded: bool,
}

pub(crate) struct Process {
    child: Child,
    started: Instant,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        Process {
            started: Instant::now(),
            child: command
                .stderr(Stdio::piped())
                .spawn()
                .expect("the program can be started"),
        }
    }

    /// Waits until it says `word`.
    pub(crate) fn wait_for(&mut self, word: &str) -> BufReader<std::process::ChildStderr> {
        let stderr = self.child.stderr.take().expect("standard error is a pipe");
        let mut lines = BufReader::new(stderr);
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            let read = lines.read_line(&mut line).expect("standard error is text");
            assert!(read > 0, "it ended before it said {word}");
        }
        lines
    }

    pub(crate) fn interrupt(&self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT);
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Used {
        let pid = self.child.id();
        let mut used = Used::default();
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        loop {
            used.peak_bytes = used.peak_bytes.max(peak(pid));
            match waitid(Id::Pid(Pid::from_raw(pid as i32)), flags) {
                Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_millis(10)),
                _ => break,
            }
        }
        used.wall_s = self.started.elapsed().as_secs_f64();
        used.cpu_s = cpu(pid).unwrap_or(0.0);
        used.succeeded = self.child.wait().is_ok_and(|status| status.success());
        used
    }
}

fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// CPU time of a process that has ended and was not waited for, s.
fn cpu(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let behind = stat.rsplit_once(')')?.1;
    let mut fields = behind.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    let sum = ticks()? + ticks()?;
    let a_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    Some(sum / a_second as f64)
}
