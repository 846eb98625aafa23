//! Execs: one image ends, the next begins.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use flowtrace_schema::{Loss, Origin, ProcessEnd, Record, Text, Upid};
use nix::unistd::{getegid, geteuid};

use super::super::environment::stands_for;
use super::super::near::{self, Found};
use super::super::observer::Tracee;
use super::super::ptrace::{self, Stop};
use super::super::reading::{self, Account, Image, ProcessStat, Status};
use super::super::snapshot::LiveSnapshot;
use super::Lifetimes;
use super::process::Process;

/// Programs that trace others and cannot do so under ptrace. Each ends with an exit code other than 0 when
/// ptrace(2) is refused.
const TRACERS: &[&str] = &[
    "strace",
    "ltrace",
    "gdb",
    "gdbserver",
    "lldb",
    "lldb-server",
    "rr",
    "proot",
    "reprozip",
    "tracexec",
    "lurk",
];

/// Most living processes with which files are kept open for each: descriptors are limited.
const MOST_WITH_FILES: usize = 64;

impl Lifetimes {
    /// Process `pid`, which has used `used` so far, runs a new program; all its threads but one
    /// are gone, and that one has the process's id now whatever it had before.
    pub(super) fn exec(&mut self, pid: u32, used: Account, now: u64) {
        // The task was killed in this stop and will never run the program.
        let Some(former) = ptrace::event_message(pid, Stop::Exec) else {
            self.tasks
                .retain(|&tid, task| task.process != pid || tid == pid);
            return;
        };
        if former != pid
            && let Some(mut task) = self.tasks.remove(&former)
        {
            self.table.clear(former);
            if let Some(upid) = self.processes.get(&pid).map(|p| p.upid) {
                self.thread_over(upid, former, task.start_ns, now);
            }
            task.counted = false;
            self.tasks.insert(pid, task);
        }
        let Some(task) = self.tasks.get_mut(&pid) else {
            return;
        };
        let are_few = self.processes.len() <= MOST_WITH_FILES;
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };

        // The peak of memory of the former image is not known any more.
        process.max_rss_before = 0;
        let (cost, status) = process.read_cost(pid, pid, &used).unwrap_or_default();
        process.cost += cost - task.before;
        task.before = cost;
        process.time.read(pid, pid, &mut task.life);
        process.time.next_image(&mut task.life, now);
        process.total = match process.childless {
            true => Some(used.cost),
            false => ProcessStat::of(pid).as_ref().map(ProcessStat::cost),
        };
        let started = !process.launcher;
        if process.launcher {
            let filters = |pid| reading::filters_of(pid).unwrap_or(0);
            self.calls_seen = filters(pid) > filters(std::process::id());
        }
        let before = Tracee::first_of(pid, process.upid);
        let usage = process.usage();
        if started {
            let end = ProcessEnd {
                upid: process.upid,
                end_ns: Some(now),
                exit_code: None,
                exit_signal: None,
                inner_pid: status.inner_pid,
                usage,
            };
            self.recorder.record(Record::ProcessEnd(Box::new(end)));
        }

        let (image, environ) = Image::at_exec(pid, &self.wanted);
        let image = Arc::new(image);
        let (prev, upid) = if started {
            (Some(process.upid), self.upids.next())
        } else {
            (None, process.upid)
        };
        let parent = process.parent;
        let of_before = (&process.image.environment, process.environment);
        let (environment, variables_are_new) = stands_for(upid, &image.environment, of_before);
        *process = Process {
            environment,
            before: process.total.unwrap_or_default(),
            childless: process.childless,
            lone: process.lone,
            umask: process.umask,
            numbered_as_here: process.numbered_as_here,
            numbers_children: process.numbers_children,
            max_rss_before: used.max_rss_bytes,
            readable: image.is_complete(),
            files: process.files.take().filter(|_| are_few),
            traces: traces(&image),
            status: Status {
                inner_pid: status.inner_pid,
                ..Status::default()
            },
            ..Process::new(upid, parent, Arc::clone(&image))
        };
        self.table.set(pid, upid, true);
        self.start(
            upid,
            pid,
            parent,
            prev,
            Origin::Exec,
            &image,
            environment,
            now,
        );
        if variables_are_new {
            self.record_variables(upid, &image);
        }
        let umask = self.processes.get(&pid).and_then(|process| process.umask);
        let environ = environ.map(|environ| self.inherited.digest(&environ, &self.wanted));
        let snapshot = LiveSnapshot(pid);
        self.inherited
            .record(&self.recorder, pid, upid, umask, environ, &snapshot);
        if self.unprivileged && wants_privilege(&image) {
            self.recorder.lost(Loss::SetuidExec, 1);
        }
        let tracee = Tracee::first_of(pid, upid);
        if started {
            self.report(|observer| observer.image_over(before, &usage, Some(&snapshot), now));
        }
        self.report(|observer| observer.executed(tracee, prev, &snapshot, now));
        self.report(|observer| observer.began_with(tracee, &snapshot, now));
    }

    fn record_variables(&self, upid: Upid, image: &Image) {
        for (name, value) in image.environment.iter() {
            self.recorder.record(Record::Environment {
                upid,
                name: name.clone(),
                value: value.clone(),
            });
        }
    }
}

fn traces(image: &Image) -> bool {
    let name = image
        .exe
        .as_ref()
        .and_then(|exe| Path::new(exe.as_os_str()).file_name());
    name.is_some_and(|name| TRACERS.iter().any(|tracer| name == OsStr::new(tracer)))
}

/// True if the program would get another user, group or capabilities than the process has.
pub(in crate::proc) fn wants_privilege(image: &Image) -> bool {
    const GROUP_EXECUTES: u32 = 0o010;
    let Some(exe) = image.exe.as_ref().map(Text::as_os_str) else {
        return false;
    };
    let Found::Is(there) = near::behind(Path::new(exe)) else {
        return false;
    };
    let file = &there.attributes;
    let set_user = file.mode & libc::S_ISUID != 0 && file.uid != geteuid().as_raw();
    let set_group = file.mode & libc::S_ISGID != 0
        && file.mode & GROUP_EXECUTES != 0
        && file.gid != getegid().as_raw();
    set_user || set_group || there.usable().is_some_and(|exe| has_capabilities(&exe))
}

/// True if a program has file capabilities (capabilities(7)).
fn has_capabilities(exe: &Path) -> bool {
    let Ok(path) = crate::mounting::c_string(exe.as_os_str()) else {
        return false;
    };
    let name = c"security.capability".as_ptr();
    // SAFETY: both strings end in NUL; without a buffer the call only returns the size.
    #[expect(unsafe_code)]
    let size = unsafe { libc::getxattr(path.as_ptr(), name, std::ptr::null_mut(), 0) };
    size > 0
}
