//! A traced mount for one test.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flowtrace_schema::{
    FileLayer, HostId, HostRecord, Record, Recorder, RunEnd, RunId, Tid, Upid, Writer,
};
use flowtrace_tracer::callers::{Caller, Callers, Effort};
use flowtrace_tracer::clock::Clock;
use flowtrace_tracer::fs::{
    Config, FileTable, Filter, Hidden, IoUring, Permission, Session, serve,
};
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockType, recvmsg, sendmsg,
};
use nix::sys::stat::Mode;
use rusqlite::Connection;

/// Ways in which files are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Exactly; the kernel serves mappings from the file itself.
    Passthrough,
    /// Exactly; mappings are served by requests.
    Mmap,
    /// Through the page cache, names and attributes too.
    Cached,
}

impl Way {
    pub(crate) const EXACT: [Way; 2] = [Way::Passthrough, Way::Mmap];
    pub(crate) const ALL: [Way; 3] = [Way::Passthrough, Way::Mmap, Way::Cached];

    pub(crate) fn options(self) -> Options {
        let (ttl, permission) = match self {
            Way::Passthrough | Way::Mmap => (Duration::ZERO, Permission::Caller),
            Way::Cached => (Duration::from_secs(10), Permission::Kernel),
        };
        Options {
            source: None,
            way: self,
            log: true,
            ttl,
            threads: 2,
            hidden: Vec::new(),
            io_uring: std::env::var_os("FLOWTRACE_TEST_TRANSPORT") != Some("device".into()),
            permission,
        }
    }
}

/// Options of a mount.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The directory to serve; a new one if `None`.
    pub(crate) source: Option<PathBuf>,
    pub(crate) way: Way,
    pub(crate) log: bool,
    pub(crate) ttl: Duration,
    pub(crate) threads: usize,
    pub(crate) hidden: Vec<Hidden>,
    /// True if requests come over io_uring, if the kernel has that.
    pub(crate) io_uring: bool,
    pub(crate) permission: Permission,
}

impl Default for Options {
    fn default() -> Self {
        Way::Passthrough.options()
    }
}

/// A directory `source` that is served, traced, at `seen`.
pub(crate) struct Mounted {
    pub(crate) source: PathBuf,
    pub(crate) seen: PathBuf,
    pub(crate) trace: PathBuf,
    session: Option<Session>,
    writer: Option<(Writer, Recorder)>,
    _directory: tempfile::TempDir,
}

/// Every thread is its own process image here: upid = tid.
struct ByThread;

impl Callers for ByThread {
    fn resolve(&self, tid: u32, _effort: Effort) -> Option<Caller> {
        Some(Caller {
            upid: Upid(tid),
            tid: Some(Tid(tid)),
        })
    }
}

/// Reason why tests with a mount cannot run here, if any.
pub(crate) fn obstacle() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("needs root".into());
    }
    match File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => None,
        Err(error) => Some(format!("/dev/fuse: {error}")),
    }
}

/// Reports that a test is skipped; fails if skips are not allowed.
pub(crate) fn skip(obstacle: &str) {
    let required = std::env::var_os("FLOWTRACE_REQUIRE_SYSTEM") == Some("1".into());
    assert!(!required, "{obstacle}");
    skip_here(obstacle);
}

/// Reports that a test is skipped for lack of a facility that not every system can have. The output of a test
/// that passes is not shown, so the report also goes to the file that `tests/run` prints.
pub(crate) fn skip_here(obstacle: &str) {
    let thread = std::thread::current();
    let line = format!(
        "skipped: {}: {obstacle}\n",
        thread.name().unwrap_or("unnamed")
    );
    eprint!("{line}");
    if let Some(log) = std::env::var_os("FLOWTRACE_SKIP_LOG") {
        let mut log = File::options().append(true).create(true).open(log).unwrap();
        log.write_all(line.as_bytes()).unwrap();
    }
}

impl Mounted {
    /// Mounts; `None`, with a message, if mounting is not possible.
    pub(crate) fn new(options: Options) -> Option<Mounted> {
        if let Some(obstacle) = obstacle() {
            skip(&obstacle);
            return None;
        }
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let source = options.source.unwrap_or_else(|| {
            let source = directory.path().join("source");
            std::fs::create_dir(&source).unwrap();
            source
        });
        let seen = directory.path().join("seen");
        std::fs::create_dir(&seen).unwrap();
        let trace = directory.path().join("trace.db");
        let (writer, recorder) = Writer::create(&trace, false).unwrap();
        let (clock, epoch_unix_ns) = Clock::start();
        recorder.record(Record::Host(Box::new(HostRecord {
            id: HostId(1),
            name: "test".into(),
            boot_id: None,
            system: "Linux".into(),
            cpus: None,
            memory_bytes: None,
            epoch_unix_ns,
        })));
        let root = open(
            &source,
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .unwrap();
        let device: OwnedFd = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .unwrap()
            .into();
        let checks = match options.permission {
            Permission::Kernel => ",default_permissions",
            Permission::Caller | Permission::Process => "",
        };
        let mount_options = format!("user_id=0,group_id=0,allow_other{checks}");
        let on = options.io_uring.then(|| IoUring::turn_on().ok());
        mount_fuse(&device, &seen, &mount_options);
        drop(on);
        let config = Config {
            root,
            seen_path: seen.clone(),
            host: HostId(1),
            kernel_passthrough: options.way == Way::Passthrough,
            log: options.log,
            cached: options.way == Way::Cached,
            filter: Filter::default(),
            attribute_ttl: options.ttl,
            threads: options.threads,
            clone_fd: true,
            io_uring: options.io_uring,
            permission: options.permission,
            owner: None,
            hidden: options.hidden,
            offers: Arc::default(),
            rings: Arc::default(),
        };
        let files = Arc::new(FileTable::new(recorder.clone()));
        let session = serve(
            device,
            config,
            files,
            recorder.clone(),
            clock,
            Arc::new(ByThread),
        );
        let session = session.inspect_err(|_| unmount(&seen)).unwrap();
        Some(Mounted {
            source,
            seen,
            trace,
            session: Some(session),
            writer: Some((writer, recorder)),
            _directory: directory,
        })
    }

    pub(crate) fn layer(&self) -> FileLayer {
        self.session.as_ref().unwrap().layer()
    }

    pub(crate) fn granted_flags(&self) -> u64 {
        self.session.as_ref().unwrap().granted_flags()
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.seen.join(name)
    }

    /// Unmounts, and opens the trace.
    pub(crate) fn finish(mut self) -> Trace {
        self.stop();
        let (writer, recorder) = self.writer.take().unwrap();
        let trace = finish_trace(writer, &recorder, self.seen.clone());
        Trace {
            _mounted: Some(self),
            ..trace
        }
    }

    fn stop(&mut self) {
        if let Some(session) = self.session.take() {
            unmount(&self.seen);
            session.join().unwrap();
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        unmount(&self.seen);
        // Files that a failed test still has open would keep the session for ever.
        let patience = std::time::Instant::now() + Duration::from_secs(5);
        while !session.is_finished() && std::time::Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Otherwise the trace would be written into a directory that is being removed.
        if let Some((writer, recorder)) = self.writer.take() {
            writer.finish(&recorder, NO_END);
        }
    }
}

pub(crate) fn mount_fuse(device: &impl AsRawFd, at: &Path, options: &str) {
    let data = format!("fd={},rootmode=40000,{options}", device.as_raw_fd());
    mount(
        Some("flowtrace"),
        at,
        Some("fuse.flowtrace"),
        MsFlags::empty(),
        Some(data.as_str()),
    )
    .unwrap();
}

/// Makes `command` run in a user and a mount namespace of its own, with a mount at `seen` whose device is
/// sent through the socket.
#[expect(unsafe_code)]
pub(crate) fn mount_in_namespace(
    command: &mut std::process::Command,
    fuse: PathBuf,
    seen: PathBuf,
    socket: OwnedFd,
) {
    use nix::sched::{CloneFlags, unshare};
    use std::os::unix::process::CommandExt;
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    let enter = move || {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
        let device: OwnedFd = File::options().read(true).write(true).open(&fuse)?.into();
        mount_fuse(&device, &seen, &format!("user_id={uid},group_id={gid}"));
        let descriptors = [device.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let data = [std::io::IoSlice::new(b"x")];
        sendmsg::<()>(socket.as_raw_fd(), &data, &rights, MsgFlags::empty(), None)?;
        Ok(())
    };
    // SAFETY: between fork and exec in the one thread of the new process; the few allocations
    // are at risk only if another thread allocated at that instant.
    unsafe { command.pre_exec(enter) };
}

pub(crate) fn socket_pair() -> (OwnedFd, OwnedFd) {
    let flags = nix::sys::socket::SockFlag::SOCK_CLOEXEC;
    nix::sys::socket::socketpair(AddressFamily::Unix, SockType::Stream, None, flags).unwrap()
}

#[expect(unsafe_code)]
pub(crate) fn receive_device(socket: &OwnedFd) -> OwnedFd {
    use std::os::fd::FromRawFd;
    let mut byte = [0];
    let mut data = [std::io::IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), flags).unwrap();
    for message in message.cmsgs().unwrap() {
        if let ControlMessageOwned::ScmRights(descriptors) = message {
            // SAFETY: the kernel made this descriptor for us just now.
            return unsafe { OwnedFd::from_raw_fd(descriptors[0]) };
        }
    }
    panic!("no descriptor came");
}

/// Serves a mount in a user namespace that maps only `owner`.
pub(crate) fn serve_as_user(
    device: OwnedFd,
    source: &Path,
    seen: &Path,
    owner: (u32, u32),
) -> (Session, Writer, Recorder) {
    let trace = seen.with_file_name("trace.db");
    let (writer, recorder) = Writer::create(&trace, false).unwrap();
    let (clock, _) = Clock::start();
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let config = Config {
        root: open(source, flags, Mode::empty()).unwrap(),
        seen_path: seen.to_owned(),
        host: HostId(1),
        kernel_passthrough: true,
        log: true,
        cached: false,
        filter: Filter::default(),
        attribute_ttl: Duration::ZERO,
        threads: 2,
        clone_fd: false,
        io_uring: false,
        permission: Permission::Process,
        owner: Some(owner),
        hidden: Vec::new(),
        offers: Arc::default(),
        rings: Arc::default(),
    };
    let files = Arc::new(FileTable::new(recorder.clone()));
    let session = serve(
        device,
        config,
        files,
        recorder.clone(),
        clock,
        Arc::new(ByThread),
    );
    let session = session.unwrap();
    assert_eq!(session.layer(), FileLayer::DirectMmap);
    (session, writer, recorder)
}

fn unmount(at: &Path) {
    let _ = umount2(at, MntFlags::MNT_DETACH);
}

const NO_END: RunEnd = RunEnd {
    id: RunId(1),
    end_ns: 0,
    exit_code: None,
    exit_signal: None,
};

/// The recorded trace of a test.
pub(crate) struct Trace {
    db: Connection,
    seen: PathBuf,
    _mounted: Option<Mounted>,
}

/// Ends a trace and opens it.
pub(crate) fn finish_trace(writer: Writer, recorder: &Recorder, seen: PathBuf) -> Trace {
    let path = writer.path().to_owned();
    let summary = writer.finish(recorder, NO_END);
    assert_eq!(summary.write_error, None);
    Trace {
        db: Connection::open(path).unwrap(),
        seen,
        _mounted: None,
    }
}

/// A row of `calls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallRow {
    pub(crate) op: String,
    pub(crate) path: Option<String>,
    pub(crate) offset: Option<i64>,
    pub(crate) length: Option<i64>,
    pub(crate) result: i64,
    pub(crate) fidelity: String,
    pub(crate) upid: Option<u32>,
    pub(crate) file: Option<u32>,
}

impl Trace {
    /// All calls in order of time; paths relative to the mount.
    pub(crate) fn calls(&self) -> Vec<CallRow> {
        let sql = "SELECT op, path, offset, length, result, fidelity, upid, file_id
                   FROM calls ORDER BY start_ns, call_id";
        let mut statement = self.db.prepare(sql).unwrap();
        let prefix = format!("{}/", self.seen.display());
        let rows = statement.query_map([], |row| {
            let path: Option<String> = row.get(1)?;
            Ok(CallRow {
                op: row.get(0)?,
                path: path.map(|path| path.strip_prefix(&prefix).unwrap_or(&path).to_owned()),
                offset: row.get(2)?,
                length: row.get(3)?,
                result: row.get(4)?,
                fidelity: row.get(5)?,
                upid: row.get(6)?,
                file: row.get(7)?,
            })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Calls of one operation on one path.
    pub(crate) fn of(&self, op: &str, path: &str) -> Vec<CallRow> {
        let mut calls = self.calls();
        calls.retain(|call| call.op == op && call.path.as_deref() == Some(path));
        calls
    }

    /// One number.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// One column of text.
    pub(crate) fn texts(&self, sql: &str) -> Vec<String> {
        let mut statement = self.db.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }
}

/// A name hidden in the root.
pub(crate) fn hidden(name: &str) -> Hidden {
    Hidden {
        directory: PathBuf::new(),
        name: OsString::from(name),
    }
}
