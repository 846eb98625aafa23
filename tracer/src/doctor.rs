//! Tries each mechanism on this machine, and names a remedy if one is missing.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, geteuid, pause};

use crate::remedies::{Missing, remedy};
use crate::session::transport;
use crate::{kernel, linux, mounting, proc, stacks};

/// Availability of a facility.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Works,
    /// A substitute is used, or only a refinement is missing.
    Limited,
    /// It does not work.
    Missing,
}

/// One facility.
#[derive(Clone, Debug)]
pub struct Check {
    /// Purpose of the facility.
    pub facility: &'static str,
    /// Availability.
    pub verdict: Verdict,
    /// Result of the trial.
    pub found: String,
    /// Remedy, if it is missing or limited.
    pub remedy: Option<String>,
}

/// Tries all facilities. Forks, so it must be called while the process has one thread.
pub fn examine() -> Vec<Check> {
    vec![
        device(),
        namespace(),
        helper(),
        processes(),
        reported_processes(),
        announcements(),
        costs(),
        exact_mappings(),
        calls_by_ebpf(),
        call_stacks(),
        packets(),
        namespaces_of_others(),
        io_uring(),
        descriptors(),
    ]
}

fn check(
    facility: &'static str,
    verdict: Verdict,
    found: impl Into<String>,
    remedy: Option<&str>,
) -> Check {
    Check {
        facility,
        verdict,
        found: found.into(),
        remedy: remedy.map(str::to_owned),
    }
}

fn call_stacks() -> Check {
    const WHAT: &str = "call stacks (--stacks)";
    match stacks::Opened::for_command(std::process::id()) {
        Ok(opened) if opened.sees_all() => check(
            WHAT,
            Verdict::Works,
            "sampled by the CPU clock, in the kernel, too",
            None,
        ),
        Ok(_) => check(
            WHAT,
            Verdict::Works,
            "sampled by the CPU clock, outside of the kernel",
            None,
        ),
        Err(error) => check(
            WHAT,
            Verdict::Missing,
            format!("perf_event_open: {error}"),
            Some(
                "sysctl kernel.perf_event_paranoid=2, or root; in Docker: --cap-add PERFMON --security-opt seccomp=unconfined",
            ),
        ),
    }
}

fn device() -> Check {
    const WHAT: &str = "file calls (FUSE)";
    match mounting::open_device() {
        Ok(_) => check(WHAT, Verdict::Works, "/dev/fuse can be opened", None),
        Err(error) => check(
            WHAT,
            Verdict::Missing,
            format!("/dev/fuse: {error}"),
            Some(&remedy(&[Missing::Device])),
        ),
    }
}

fn namespace() -> Check {
    const WHAT: &str = "files at their own path";
    let privileged = in_child(|| unshare(CloneFlags::CLONE_NEWNS).is_ok());
    if privileged {
        return check(
            WHAT,
            Verdict::Works,
            "private mount namespace, as root",
            None,
        );
    }
    if in_child(|| unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).is_ok()) {
        return check(
            WHAT,
            Verdict::Works,
            "private mount namespace in a user namespace",
            None,
        );
    }
    check(
        WHAT,
        Verdict::Limited,
        "no mount namespace is allowed here",
        Some(&remedy(&[Missing::Mounts])),
    )
}

fn helper() -> Check {
    const WHAT: &str = "mounting without namespaces";
    if geteuid().is_root() {
        return check(WHAT, Verdict::Works, "as root", None);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let helper = std::env::split_paths(&path)
        .map(|d| d.join("fusermount3"))
        .find(|p| p.is_file());
    let setuid = |p: &Path| fs::metadata(p).is_ok_and(|m| m.permissions().mode() & 0o4000 != 0);
    match helper {
        Some(path) if setuid(&path) && !is_listed() => check(
            WHAT,
            Verdict::Limited,
            format!("{} serves only users that have a name", path.display()),
            Some("add this user id to /etc/passwd"),
        ),
        Some(path) if setuid(&path) => {
            check(WHAT, Verdict::Works, format!("{}", path.display()), None)
        }
        Some(path) => check(
            WHAT,
            Verdict::Limited,
            format!("{} is not set-user-id", path.display()),
            Some("sudo chmod u+s $(command -v fusermount3)"),
        ),
        None => check(
            WHAT,
            Verdict::Limited,
            "there is no fusermount3: flowtrace mount needs it, flowtrace run does not",
            Some("apt-get install fuse3"),
        ),
    }
}

/// Returns true if the user has an entry in the list of users.
fn is_listed() -> bool {
    nix::unistd::User::from_uid(geteuid()).is_ok_and(|user| user.is_some())
}

fn processes() -> Check {
    const WHAT: &str = "every process (ptrace)";
    match seize_a_child() {
        Ok(()) => check(WHAT, Verdict::Works, "a child can be followed", None),
        Err(error) => check(
            WHAT,
            Verdict::Missing,
            error.to_string(),
            Some(&remedy(&[Missing::Ptrace])),
        ),
    }
}

/// Events of every process, without ptrace.
fn reported_processes() -> Check {
    works_or_limits(
        "processes without ptrace (tracepoints)",
        proc::try_tracepoints(),
        "eBPF programs report every process, no process waits",
        "flowtrace run uses ptrace; mount and run --no-ptrace miss the programs of short processes",
        "root or CAP_BPF and CAP_PERFMON, outside of containers; a kernel with \
         CONFIG_DEBUG_INFO_BTF, 5.18 or newer",
    )
}

/// Forks, execs and exits without ptrace.
fn announcements() -> Check {
    works_or_limits(
        "processes without ptrace (proc connector)",
        proc::try_connector(),
        "the kernel announces processes",
        "flowtrace mount and run --no-ptrace miss short processes",
        "Linux 6.6 or newer, or root; outside of containers and network namespaces; a \
         kernel with CONFIG_PROC_EVENTS",
    )
}

/// Costs of processes without ptrace.
fn costs() -> Check {
    works_or_limits(
        "costs without ptrace (taskstats)",
        proc::try_taskstats(),
        "the kernel reports the usage of each thread",
        "flowtrace mount and run --no-ptrace read costs from /proc",
        "root or CAP_NET_ADMIN, outside of containers; a kernel with CONFIG_TASKSTATS, \
         CONFIG_TASK_DELAY_ACCT and CONFIG_TASK_XACCT, 5.19 or newer",
    )
}

/// Result for a facility that was tried, with what is missing without it.
fn works_or_limits(
    what: &'static str,
    tried: std::io::Result<()>,
    works: &str,
    without: &str,
    remedy: &str,
) -> Check {
    match tried {
        Ok(()) => check(what, Verdict::Works, works, None),
        Err(error) => check(
            what,
            Verdict::Limited,
            format!("{error}: {without}"),
            Some(remedy),
        ),
    }
}

fn calls_by_ebpf() -> Check {
    const WHAT: &str = "calls on files by eBPF (--layer kernel)";
    match kernel::try_calls() {
        Ok(()) => check(
            WHAT,
            Verdict::Works,
            "run uses it, and mounts nothing",
            None,
        ),
        Err(error) => check(
            WHAT,
            Verdict::Limited,
            format!("{error}: file calls go through FUSE, as exact"),
            Some(&remedy(&[Missing::Ebpf])),
        ),
    }
}

fn packets() -> Check {
    const WHAT: &str = "packets (AF_PACKET)";
    match crate::net::live::check() {
        Ok(()) => {
            let all = crate::net::interfaces::Interface::all().unwrap_or_default();
            let names: Vec<String> = all.into_iter().map(|interface| interface.name).collect();
            let found = match names.is_empty() {
                true => "no interface is up".to_owned(),
                false => format!("on {}", names.join(", ")),
            };
            check(WHAT, Verdict::Works, found, None)
        }
        Err(reason) => check(
            WHAT,
            Verdict::Missing,
            reason,
            Some(
                "root, or sudo setcap cap_net_raw+ep on a copy of flowtrace; for programs that talk \
                 among themselves, a network namespace of one's own needs no right: unshare -Urn",
            ),
        ),
    }
}

fn namespaces_of_others() -> Check {
    const WHAT: &str = "packets in network namespaces of a workflow";
    let inside = in_child(|| {
        unshare(CloneFlags::CLONE_NEWNET).is_ok()
            && std::fs::File::open("/proc/self/ns/net")
                .is_ok_and(|own| nix::sched::setns(own, CloneFlags::CLONE_NEWNET).is_ok())
    });
    if inside {
        return check(WHAT, Verdict::Works, "run --net captures them", None);
    }
    check(
        WHAT,
        Verdict::Limited,
        "entering another namespace is not allowed: only that of flowtrace itself is captured",
        Some("root or CAP_SYS_ADMIN, or all of it inside unshare -Urn"),
    )
}

fn exact_mappings() -> Check {
    const WHAT: &str = "exact reads and writes with shared mappings";
    let (release, version) = linux::release();
    if version >= (6, 9) && geteuid().is_root() {
        return check(
            WHAT,
            Verdict::Works,
            format!("kernel {release}, FUSE passthrough"),
            None,
        );
    }
    if version >= (6, 6) {
        return check(
            WHAT,
            Verdict::Works,
            format!("kernel {release}, direct I/O with mappings"),
            None,
        );
    }
    check(
        WHAT,
        Verdict::Limited,
        format!("kernel {release}: programs that map a file shared will fail on it"),
        Some("Linux 6.6 or newer"),
    )
}

fn io_uring() -> Check {
    const WHAT: &str = "file calls over io_uring";
    let Some(is_on) = crate::fs::io_uring_is_on() else {
        let found = "the kernel has none: Linux 6.14 has, if configured";
        return check(WHAT, Verdict::Limited, found, None);
    };
    // For the moment of the test it is on for mounts of other programs, too, which does them no harm.
    match crate::fs::IoUring::turn_on() {
        Ok(_) if !transport::is_proven() => check(
            WHAT,
            Verdict::Limited,
            "read from /dev/fuse unless --transport io-uring: not tested on this kernel, or with so many CPUs",
            None,
        ),
        Ok(_) if is_on => check(WHAT, Verdict::Works, "used, fuse.enable_uring is on", None),
        Ok(_) => check(
            WHAT,
            Verdict::Works,
            "used, fuse.enable_uring is on while mounting",
            None,
        ),
        Err(error) => check(
            WHAT,
            Verdict::Limited,
            format!(
                "read from /dev/fuse instead: io_uring or fuse.enable_uring cannot be used: {error}"
            ),
            Some("root, outside of containers"),
        ),
    }
}

fn descriptors() -> Check {
    const WHAT: &str = "many files at once";
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    match limit {
        Ok((_, hard)) if hard < 65536 => check(
            WHAT,
            Verdict::Limited,
            format!("{hard} files open at most, by all programs in a mount together"),
            Some("ulimit -Hn 1048576, or LimitNOFILE= of the service"),
        ),
        Ok((_, hard)) => check(WHAT, Verdict::Works, format!("{hard} open files"), None),
        Err(errno) => check(WHAT, Verdict::Limited, errno.to_string(), None),
    }
}

fn seize_a_child() -> io::Result<()> {
    // SAFETY: this process has one thread, as `examine` requires.
    #[expect(unsafe_code)]
    match unsafe { fork() }? {
        ForkResult::Child => loop {
            pause();
        },
        ForkResult::Parent { child } => {
            let seized = proc::seize(child.as_raw() as u32);
            kill(child, Signal::SIGKILL)?;
            // A traced child may report a last stop before its end.
            while let Ok(WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..)) =
                waitpid(child, None)
            {
                let _ = nix::sys::ptrace::cont(child, None);
            }
            seized
        }
    }
}

/// Runs `attempt` in a child, which then ends.
fn in_child(attempt: impl FnOnce() -> bool) -> bool {
    // SAFETY: this process has one thread, as `examine` requires.
    #[expect(unsafe_code)]
    match unsafe { fork() } {
        // SAFETY: ends the child without running the exit handlers of the parent.
        Ok(ForkResult::Child) => unsafe { libc::_exit(i32::from(!attempt())) },
        Ok(ForkResult::Parent { child }) => {
            waitpid(child, None) == Ok(WaitStatus::Exited(child, 0))
        }
        Err(_) => false,
    }
}
