//! Records that the table passes to the writer: begins and ends of images, and threads.

use flowtrace_schema::{Loss, ProcessEnd, ProcessStart, Record, ThreadRecord, Tid, Upid, Usage};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::observations::What;
use super::process::{End, Process};
use super::table::Table;
use crate::proc::costs::Costs;
use crate::proc::observer::Tracee;

/// True if there is a process of this id.
fn lives(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else {
        return false;
    };
    !matches!(kill(Pid::from_raw(pid), None), Err(Errno::ESRCH))
}

impl Table {
    /// Records costs of processes that still live, or whose end was not seen.
    pub(super) fn finish(&mut self) {
        self.release_all();
        let (mut running, mut unseen) = (0, 0);
        for (pid, process) in std::mem::take(&mut self.processes) {
            let Some(row) = &process.row else {
                continue;
            };
            match lives(pid) {
                true => running += 1,
                false => unseen += 1,
            }
            let upid = row.upid;
            let end = ProcessEnd {
                upid,
                end_ns: None,
                exit_code: None,
                exit_signal: None,
                inner_pid: None,
                usage: process.usage(None),
            };
            self.recorder.record(Record::ProcessEnd(Box::new(end)));
        }
        self.recorder.lost(Loss::StillRunning, running);
        self.recorder.lost(Loss::ExitUnseen, unseen);
    }

    pub(super) fn end(
        &mut self,
        process: &mut Process,
        pid: u32,
        end: End,
        at: u64,
        total: Option<&Costs>,
    ) {
        let Some(row) = &process.row else {
            return;
        };
        let (upid, awaits) = (row.upid, row.awaits);
        let (mut exit_code, mut exit_signal) = (None, None);
        let mut usage = process.usage(total);
        match end {
            // The costs of an image that was too brief to be read are in the next one.
            End::Exec if total.is_none() => usage = Usage::default(),
            End::Exec => (usage.max_rss_bytes, usage.threads) = (None, None),
            End::Exit(status) => {
                self.living.ends(pid);
                // The begin of its program was not reported.
                if let Some(launching) = self.launching.take_if(|of| of.root == pid)
                    && !launching.begun
                {
                    self.begin(process, pid);
                }
                if total.is_none() {
                    self.recorder.lost(Loss::CostsSampled, 1);
                }
                if let Some(status) = status {
                    if libc::WIFSIGNALED(status) {
                        exit_signal = Some(libc::WTERMSIG(status));
                    } else {
                        exit_code = Some(libc::WEXITSTATUS(status));
                    }
                }
            }
        }
        let tracee = Tracee::first_of(pid, upid);
        let by_exec = matches!(end, End::Exec);
        let boxed = Box::new(usage);
        self.note(
            tracee,
            at,
            What::ImageOver {
                usage: boxed,
                exec: None,
                by_exec,
            },
        );
        if !by_exec {
            self.note(tracee, at, What::Ended);
        }
        let end = ProcessEnd {
            upid,
            end_ns: Some(at.max(process.start_ns)),
            exit_code,
            exit_signal,
            inner_pid: process.inner_pid,
            usage,
        };
        self.close(upid, awaits, end);
    }

    pub(super) fn begin(&mut self, process: &Process, pid: u32) {
        let Some(row) = &process.row else {
            return;
        };
        let start = ProcessStart {
            upid: row.upid,
            host: self.host,
            pid,
            parent: row.parent,
            prev: row.prev,
            origin: process.origin,
            exe: row.image.exe.clone(),
            argv: row.image.argv.clone(),
            cwd: row.image.cwd.clone(),
            environment: row.environment,
            start_ns: process.start_ns,
        };
        self.record_of(row.awaits, Record::ProcessStart(Box::new(start)));
    }

    /// All threads of process `pid` except one are over.
    pub(super) fn threads_over(&mut self, pid: u32, upid: Option<Upid>, at: u64) {
        let of_it = self.threads.extract_if(|_, thread| thread.pid == pid);
        for (tid, thread) in of_it.collect::<Vec<_>>() {
            if let Some(upid) = upid {
                self.thread_row(upid, tid, thread.start_ns, at);
            }
        }
    }

    pub(super) fn thread_row(&self, upid: Upid, tid: u32, start_ns: u64, at: u64) {
        self.recorder.record(Record::Thread(ThreadRecord {
            upid,
            tid: Tid(tid),
            start_ns,
            end_ns: Some(at.max(start_ns)),
        }));
    }
}
