//! The start of the command: a child makes its own mount namespace with the traced mounts in it, passes their
//! devices to the tracer, and runs the command on request.
//!
//! The tracer stays outside: it must reach the real directories, and the kernel must not let a mount's daemon
//! depend on the mount. The child forks from a process with one thread, so it may use the whole library until
//! it runs the command.

use std::convert::Infallible;
use std::env;
use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, Whence, fork, getegid, geteuid, lseek};

use super::apart::Apart;
use super::signals::Before;
use super::{Error, Result, origin};
use crate::mounting::{self, NewMount};
use crate::proc::topology::{self, Picked};

/// Time that the child may take to make its namespace; it only makes system calls.
const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

/// Privileges that made the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    /// `CAP_SYS_ADMIN`: the kernel checks permissions, all users are served.
    Privileged,
    /// A user namespace of its own that maps the caller alone.
    User,
}

/// Plan of the child.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) mounts: Vec<NewMount>,
    pub(super) signals: Before,
    /// Variables that the command gets in addition.
    pub(super) environment: Vec<(&'static str, &'static str)>,
}

/// Treatment of the command's system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// The filter selects some calls. A tracer must be there for those: without one they fail.
    Picked(Picked),
    /// None is stopped.
    Free,
}

/// Initial state of the command.
#[derive(Debug)]
pub(super) struct Start {
    /// Its working directory.
    pub(super) directory: PathBuf,
    /// Its standard streams that it has to open again.
    pub(super) streams: Vec<Reopen>,
}

/// An inherited descriptor that gets the same file, opened through a mount.
#[derive(Debug)]
pub(super) struct Reopen {
    /// The descriptor.
    pub(super) number: RawFd,
    /// Flags to open it with.
    pub(super) flags: OFlag,
    /// Its path in the mount.
    pub(super) path: PathBuf,
}

/// A child that waits for requests.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: Pid,
    socket: UnixStream,
    /// Thread that reads the child's last messages, if there is one.
    last: Option<JoinHandle<Vec<u8>>>,
}

/// Mounts that the child made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) namespace: Namespace,
    /// Devices of the mounts.
    pub(super) devices: Vec<OwnedFd>,
    /// A descriptor of the namespace, which keeps it even if it has no process left.
    pub(super) namespace_fd: Option<OwnedFd>,
}

/// Outcome of starting the command.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It ran.
    Ran,
    /// The system refused to run it.
    Refused(io::Error),
    /// A signal ended it before.
    Never,
}

/// Order to run the command without a filter. Smaller numbers are sets of what the filter picks.
const FREE: u8 = b'f';
/// Last message of the child: it is about to run the command.
const READY: u8 = b'r';
/// Message: the command could not be run; the number of the error follows.
const REFUSED: u8 = b'e';

impl Child {
    /// Forks the child, which then waits. Call it before any thread is started.
    pub(super) fn fork(plan: &Plan) -> Result<Child> {
        let (ours, theirs) = UnixStream::pair().map_err(Error::system("make a socket pair"))?;
        // SAFETY: this process has one thread, as the doc comment requires; then a child of fork is an
        // ordinary process.
        #[expect(unsafe_code)]
        match unsafe { fork() }.map_err(Error::errno("start a process"))? {
            ForkResult::Parent { child } => {
                ours.set_read_timeout(Some(SETUP_TIMEOUT))
                    .map_err(Error::system("set up a socket pair"))?;
                Ok(Child {
                    pid: child,
                    socket: ours,
                    last: None,
                })
            }
            ForkResult::Child => {
                drop(ours);
                be_the_child(plan, theirs)
            }
        }
    }

    /// Makes the child make its namespace with the mounts; returns their devices and a descriptor of the
    /// namespace.
    ///
    /// `Err` has the reason of a failure; the child then waits on without a namespace.
    pub(super) fn make_mounts(
        &mut self,
        count: usize,
    ) -> io::Result<std::result::Result<Made, String>> {
        self.socket.write_all(b"m")?;
        let mut answer = [0];
        self.socket.read_exact(&mut answer)?;
        let namespace = match answer[0] {
            b'p' => Namespace::Privileged,
            b'u' => Namespace::User,
            _ => {
                let mut length = [0; 2];
                self.socket.read_exact(&mut length)?;
                let mut reason = vec![0; u16::from_le_bytes(length).into()];
                self.socket.read_exact(&mut reason)?;
                return Ok(Err(String::from_utf8_lossy(&reason).into_owned()));
            }
        };
        let socket = self.socket.as_fd().try_clone_to_owned()?;
        let devices = (0..count).map(|_| mounting::receive_descriptor(&socket));
        let devices = devices.collect::<io::Result<_>>()?;
        Ok(Ok(Made {
            namespace,
            devices,
            namespace_fd: mounting::receive_descriptor(&socket).ok(),
        }))
    }

    /// Makes the child enter its working directory and open its streams, which are then kept in a separate
    /// descriptor table. `None` if there are no streams, or no thread for them; the child then goes on with
    /// its inherited ones.
    pub(super) fn prepare(&mut self, start: &Start) -> io::Result<Option<Apart>> {
        let (streams, apart) = match &*start.streams {
            [] => (&[][..], None),
            streams => match Apart::receive(self.socket.as_fd(), streams.len()) {
                Ok(apart) => (streams, Some(apart)),
                Err(_) => (&[][..], None),
            },
        };
        self.socket.write_all(b"g")?;
        self.send_path(&start.directory)?;
        self.socket.write_all(&[streams.len() as u8])?;
        for stream in streams {
            self.socket.write_all(&stream.number.to_le_bytes())?;
            self.socket.write_all(&stream.flags.bits().to_le_bytes())?;
            self.send_path(&stream.path)?;
        }
        Ok(apart)
    }

    /// Makes the child run the command.
    pub(super) fn go(&mut self, calls: Calls) -> io::Result<()> {
        let order = match calls {
            Calls::Free => FREE,
            Calls::Picked(more) => u8::from(more.datagrams) | u8::from(more.gcc_opens) << 1,
        };
        self.socket.write_all(&[order])
    }

    fn send_path(&mut self, path: &Path) -> io::Result<()> {
        let path = path.as_os_str().as_bytes();
        self.socket.write_all(&(path.len() as u32).to_le_bytes())?;
        self.socket.write_all(path)
    }

    /// Calls `then` on a thread of its own when the child runs the command, unless it never does.
    pub(super) fn when_it_runs(&mut self, then: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut socket = self.socket.try_clone()?;
        let wait = move || {
            let last = hear_out(&mut socket);
            if last == [READY] {
                then();
            }
            last
        };
        let thread = std::thread::Builder::new().name("exec".into());
        self.last = Some(thread.spawn(wait)?);
        Ok(())
    }

    /// Outcome of starting the command; waits until it is known.
    pub(super) fn outcome(&mut self) -> Outcome {
        let last = match self.last.take() {
            Some(last) => last.join().unwrap_or_default(),
            None => hear_out(&mut self.socket),
        };
        match last.strip_prefix(&[READY]).unwrap_or(&last) {
            &[REFUSED, a, b, c, d] => {
                let errno = i32::from_le_bytes([a, b, c, d]);
                Outcome::Refused(io::Error::from_raw_os_error(errno))
            }
            // A successful exec closes the other end. So does the end of a child that was not ready.
            [] if !last.is_empty() => Outcome::Ran,
            _ => Outcome::Never,
        }
    }

    /// Ends a child that is not needed. It must not be traced yet.
    pub(super) fn abandon(self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// All messages until the other end is closed.
fn hear_out(socket: &mut UnixStream) -> Vec<u8> {
    let mut heard = Vec::new();
    // A timeout is no end; the messages until then are kept.
    while let Err(error) = socket.read_to_end(&mut heard)
        && error.kind() == io::ErrorKind::WouldBlock
    {}
    heard
}

fn be_the_child(plan: &Plan, mut socket: UnixStream) -> ! {
    let failure = match child(plan, &mut socket) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let errno = failure.raw_os_error().unwrap_or(libc::EIO);
    let _ = socket.write_all(&[REFUSED]);
    let _ = socket.write_all(&errno.to_le_bytes());
    // SAFETY: ends this process without running the exit handlers of the parent.
    #[expect(unsafe_code)]
    unsafe {
        libc::_exit(if errno == libc::ENOENT { 127 } else { 126 })
    }
}

fn child(plan: &Plan, socket: &mut UnixStream) -> io::Result<Infallible> {
    loop {
        let mut order = [0];
        // The parent's death closes the socket, and this process has nothing to do any more.
        socket.read_exact(&mut order)?;
        if order[0] == b'g' {
            break;
        }
        match make_mounts(&plan.mounts) {
            Ok((namespace, devices)) => {
                let answer = if namespace == Namespace::Privileged {
                    b"p"
                } else {
                    b"u"
                };
                socket.write_all(answer)?;
                devices.iter().try_for_each(|device| {
                    mounting::send_descriptor(socket.as_fd(), device.as_fd())
                })?;
                match fs::File::open("/proc/self/ns/mnt") {
                    Ok(own) => mounting::send_descriptor(socket.as_fd(), own.as_fd())?,
                    // A byte without a descriptor.
                    Err(_) => socket.write_all(b"n")?,
                }
            }
            Err(reason) => {
                let reason = &reason.as_bytes()[..reason.len().min(1000)];
                socket.write_all(b"f")?;
                socket.write_all(&(reason.len() as u16).to_le_bytes())?;
                socket.write_all(reason)?;
            }
        }
    }
    let start = receive_start(socket)?;
    env::set_current_dir(&start.directory)?;
    for mount in &plan.mounts {
        // Until the kernel has requested the owner of a mount's root it takes user 0 for that. A user
        // namespace does not map user 0, so the kernel refuses every change there.
        let _ = fs::metadata(&mount.at);
    }
    for stream in &start.streams {
        match stream.open() {
            Ok(file) => {
                mounting::send_descriptor(socket.as_fd(), file.as_fd())?;
                // SAFETY: the number is that of an inherited descriptor, which nothing here owns.
                #[expect(unsafe_code)]
                Errno::result(unsafe { libc::dup2(file.as_raw_fd(), stream.number) })?;
            }
            // The command goes on with its inherited stream.
            Err(_) => socket.write_all(b"n")?,
        }
    }
    // Waits until the mounts expect no more of this process.
    let mut calls = [0];
    socket.read_exact(&mut calls)?;
    for (name, value) in &plan.environment {
        // SAFETY: this process has one thread.
        #[expect(unsafe_code)]
        unsafe {
            env::set_var(name, value);
        }
    }
    plan.signals.restore()?;
    origin::restore();
    // Without the filter fewer calls are seen, which the tracer notices at the exec and counts.
    if let [more @ ..FREE] = calls {
        let _ = topology::install(Picked {
            datagrams: more & 1 != 0,
            gcc_opens: more & 2 != 0,
        });
    }
    // After the signals that had to wait: one of them may have ended this process.
    socket.write_all(&[READY])?;
    execute(&plan.program, &plan.arguments)
}

fn receive_start(socket: &mut UnixStream) -> io::Result<Start> {
    let directory = receive_path(socket)?;
    let mut count = [0];
    socket.read_exact(&mut count)?;
    let mut streams = Vec::new();
    for _ in 0..count[0] {
        let (mut number, mut flags) = ([0; 4], [0; 4]);
        socket.read_exact(&mut number)?;
        socket.read_exact(&mut flags)?;
        streams.push(Reopen {
            number: RawFd::from_le_bytes(number),
            flags: OFlag::from_bits_retain(i32::from_le_bytes(flags)),
            path: receive_path(socket)?,
        });
    }
    Ok(Start { directory, streams })
}

fn receive_path(socket: &mut UnixStream) -> io::Result<PathBuf> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut path = vec![0; u32::from_le_bytes(length) as usize];
    socket.read_exact(&mut path)?;
    Ok(OsString::from_vec(path).into())
}

impl Reopen {
    /// Opens the file in the mount, at the position of the inherited one.
    fn open(&self) -> io::Result<OwnedFd> {
        let flags = self.flags | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file = open(&self.path, flags, Mode::empty())?;
        // SAFETY: the number is that of an inherited descriptor, which nothing here closes.
        #[expect(unsafe_code)]
        let inherited = unsafe { BorrowedFd::borrow_raw(self.number) };
        let at = lseek(inherited, 0, Whence::SeekCur)?;
        lseek(&file, at, Whence::SeekSet)?;
        Ok(file)
    }
}

fn make_mounts(mounts: &[NewMount]) -> std::result::Result<(Namespace, Vec<OwnedFd>), String> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let step = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let namespace = match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => Namespace::Privileged,
        Err(_) => {
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
                .map_err(|e| format!("a user namespace: {}", io::Error::from(e)))?;
            fs::write("/proc/self/setgroups", "deny").map_err(step("/proc/self/setgroups"))?;
            fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))
                .map_err(step("/proc/self/uid_map"))?;
            fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
                .map_err(step("/proc/self/gid_map"))?;
            Namespace::User
        }
    };
    // Later mounts outside still appear here; mounts made here never appear outside.
    let private = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .map_err(|e| format!("a private mount namespace: {}", io::Error::from(e)))?;
    let mut devices = Vec::with_capacity(mounts.len());
    for mount in mounts {
        let device = mounting::open_device().map_err(step(mounting::DEVICE))?;
        let mount = NewMount {
            default_permissions: mount.default_permissions && namespace == Namespace::Privileged,
            ..mount.clone()
        };
        mounting::mount(&device, &mount, uid, gid)
            .map_err(|e| format!("a mount over {}: {e}", mount.at.display()))?;
        devices.push(device);
    }
    Ok((namespace, devices))
}

/// As execv(3), and as execvp(3) runs a script without an interpreter by a shell.
fn execute(program: &Path, arguments: &[OsString]) -> io::Result<Infallible> {
    let path = mounting::c_string(program.as_os_str())?;
    let arguments: Vec<CString> = arguments
        .iter()
        .map(|a| mounting::c_string(a))
        .collect::<io::Result<_>>()?;
    let Err(errno) = nix::unistd::execv(&path, &arguments);
    if errno != Errno::ENOEXEC {
        return Err(errno.into());
    }
    let mut shell = vec![c"sh".to_owned(), path];
    shell.extend(arguments.into_iter().skip(1));
    let Err(errno) = nix::unistd::execv(c"/bin/sh", &shell);
    Err(errno.into())
}
