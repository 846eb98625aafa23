//! Cleanup if flowtrace is killed: traced processes lose their files then, and are ended, as those under
//! ptrace are; and the mounts are ended, though a thread of flowtrace may just be waiting for an answer from
//! one.

#![expect(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use crate::bpf::traced_pids::{self, TracedPids};
use crate::descriptor_table::spawn_apart;
use crate::helper_process::{Group, HelperProcess, is_silent_end};

/// Time for which processes that are still there are killed.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// A helper process that waits for the end of flowtrace. If it is dropped, the traced processes go on.
#[derive(Debug)]
pub(crate) struct Guard {
    over: Sender<()>,
    /// The helper process, which is waited for once it was asked to end.
    _helper: HelperProcess,
}

impl Guard {
    /// Starts the helper process. `processes` are the traced ones at the time of flowtrace's end, as the
    /// `programs`, kept open, know them; `views` the devices of flowtrace's mounts.
    ///
    /// # Errors
    /// When no process can be started.
    pub(super) fn start(
        processes: &TracedPids,
        programs: &[OwnedFd],
        views: &[u64],
    ) -> io::Result<Guard> {
        let (ours, other) = UnixStream::pair()?;
        let (over, is_over) = channel();
        let leave = move |ours| {
            let _ = is_over.recv();
            let _ = UnixStream::from(ours).write_all(&[0]);
        };
        // The end of this channel shows ours, at once: a channel among the others would be closed after
        // programs, which takes 200 ms.
        // SAFETY: `leave` has the end of a channel, which is memory.
        unsafe { spawn_apart(ours.as_fd(), leave) }?;
        drop(ours);
        let mut kept: Vec<RawFd> = programs.iter().map(AsRawFd::as_raw_fd).collect();
        kept.extend([other.as_raw_fd(), processes.map().as_raw_fd()]);
        kept.sort_unstable();
        let views: Vec<CString> = views.iter().filter_map(|&view| end_of(view)).collect();
        // SAFETY: it makes nothing but system calls, on what was made before.
        let helper = unsafe {
            HelperProcess::begin(c"flowtrace-guard", Group::Own, &kept, || {
                if is_silent_end(other.as_raw_fd()) {
                    end(processes, &views);
                }
            })
        }?;
        Ok(Guard {
            over,
            _helper: helper,
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.over.send(());
    }
}

/// Kills the traced processes and ends the mounts.
fn end(processes: &TracedPids, views: &[CString]) {
    let rounds = PATIENCE.as_millis() / PAUSE.as_millis();
    for round in 0..rounds {
        let any = end_all(processes);
        if round == 0 {
            end_views(views);
        }
        if !any {
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// Directory of the kernel's controls of FUSE mounts (Documentation/filesystems/fuse/fuse.rst, "The control
/// filesystem").
const CONTROL: &CStr = c"/sys/fs/fuse/connections";

/// The file that ends the mount with this device when it is written to, even if calls wait for its answers.
fn end_of(view: u64) -> Option<CString> {
    let control = CONTROL.to_str().ok()?;
    CString::new(format!("{control}/{}/abort", libc::minor(view))).ok()
}

/// Ends the mounts, whose servers are being killed.
fn end_views(views: &[CString]) {
    for view in views {
        // SAFETY: plain system calls, on arguments that outlive them. Where the control filesystem is not
        // mounted, it is mounted for this process alone, which does nothing else any more.
        unsafe {
            let open = || libc::open(view.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            let mut end = open();
            if end < 0 && libc::unshare(libc::CLONE_NEWNS) == 0 {
                let (none, nothing) = (c"none".as_ptr(), std::ptr::null());
                let private = libc::MS_REC | libc::MS_PRIVATE;
                libc::mount(none, c"/".as_ptr(), nothing, private, nothing.cast());
                let kind = c"fusectl".as_ptr();
                libc::mount(none, CONTROL.as_ptr(), kind, 0, nothing.cast());
                end = open();
            }
            if end >= 0 {
                libc::write(end, c"1".as_ptr().cast(), 1);
                libc::close(end);
            }
        }
    }
}

/// Kills all traced processes. Returns true if there was one.
fn end_all(processes: &TracedPids) -> bool {
    let (mut any, mut key) = (false, None);
    for _ in 0..traced_pids::MOST {
        let Some(pid) = processes.next(key.as_ref()) else {
            break;
        };
        key = Some(pid);
        // Processes that are over are not removed from the map any more.
        if processes.is_alive(pid) {
            // SAFETY: a plain system call.
            any |= unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) } == 0;
        }
    }
    any
}
