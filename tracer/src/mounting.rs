//! Mounting of a FUSE filesystem, by mount(2) where that is allowed and through fusermount3 otherwise.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};

/// Type of flowtrace's mounts in `/proc/self/mountinfo`.
pub const FILESYSTEM_TYPE: &str = "fuse.flowtrace";
/// Begin of the source of flowtrace's mounts; the process id of the daemon follows.
pub(crate) const SOURCE_PREFIX: &str = "flowtrace#";
/// Path of the kernel's FUSE device.
pub const DEVICE: &str = "/dev/fuse";

/// Opens the FUSE device. The kernel requires that this happens in the user namespace of the mount.
pub fn open_device() -> io::Result<OwnedFd> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(DEVICE)?;
    Ok(device.into())
}

/// Properties of a mount to make.
#[derive(Clone, Debug)]
pub(crate) struct NewMount {
    /// Mount point.
    pub(crate) at: PathBuf,
    /// Mode of the root directory.
    pub(crate) root_mode: u32,
    /// `noexec`, `nosuid` and similar flags of the directory below.
    pub(crate) flags: MsFlags,
    /// Let the kernel check permissions, which is needed if one daemon serves several users.
    pub(crate) default_permissions: bool,
}

/// Makes the mount that `device` will serve. Succeeds at once; the first access waits for the daemon.
pub(crate) fn mount(device: &OwnedFd, mount: &NewMount, uid: u32, gid: u32) -> io::Result<()> {
    let mut options = format!(
        "fd={},rootmode={:o},user_id={uid},group_id={gid},allow_other",
        device.as_raw_fd(),
        mount.root_mode
    );
    if mount.default_permissions {
        options.push_str(",default_permissions");
    }
    let source = source();
    let options = Some(options.as_str());
    nix::mount::mount(
        Some(source.as_str()),
        &mount.at,
        Some(FILESYSTEM_TYPE),
        mount.flags,
        options,
    )?;
    Ok(())
}

/// Mounts through the set-user-id helper of the fuse3 package.
pub(crate) fn mount_by_helper(at: &Path) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    // The helper must inherit its end, under a number that it gets as an argument.
    let theirs = nix::unistd::dup(&theirs)?;
    let output = Command::new("fusermount3")
        .args([
            "-o",
            &format!("fsname={},subtype=flowtrace", source()),
            "--",
        ])
        .arg(at)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(|e| io::Error::new(e.kind(), format!("fusermount3: {e}")))?;
    drop(theirs);
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(message.trim().to_owned()));
    }
    receive_descriptor(&ours)
}

fn source() -> String {
    format!("{SOURCE_PREFIX}{}", std::process::id())
}

/// Sends a descriptor with a byte over a socket.
///
/// # Errors
/// If the other end is closed.
pub(crate) fn send_descriptor(
    socket: BorrowedFd<'_>,
    descriptor: BorrowedFd<'_>,
) -> io::Result<()> {
    let rights = [descriptor.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&rights)];
    let byte = [IoSlice::new(b"d")];
    let send = || sendmsg::<()>(socket.as_raw_fd(), &byte, &control, MsgFlags::empty(), None);
    while let Err(errno) = send() {
        if errno != Errno::EINTR {
            return Err(errno.into());
        }
    }
    Ok(())
}

/// Receives one descriptor over a UNIX socket.
pub(crate) fn receive_descriptor(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut buffers = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(i32);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    // The kernel does not restart a call with a time limit after an interruption, even one by a stop
    // (signal(7)).
    let message = loop {
        match recvmsg::<()>(socket.as_raw_fd(), &mut buffers, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            result => break result?,
        }
    };
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control
            && let Some(&fd) = descriptors.first()
        {
            // SAFETY: the kernel just made this descriptor for us, and no one else knows it.
            #[expect(unsafe_code)]
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    Err(io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the message has no descriptor",
    ))
}

/// Unmounts. `Err` with `EBUSY` if a process uses the mount.
pub fn unmount(at: &Path) -> io::Result<()> {
    unmount_with(at, MntFlags::empty(), "-u")
}

/// Removes a mount from its path at once; it ends when its last user does.
pub fn unmount_lazily(at: &Path) -> io::Result<()> {
    unmount_with(at, MntFlags::MNT_DETACH, "-uz")
}

fn unmount_with(at: &Path, flags: MntFlags, helper_flags: &str) -> io::Result<()> {
    match nix::mount::umount2(at, flags | MntFlags::UMOUNT_NOFOLLOW) {
        Err(nix::errno::Errno::EPERM) => {}
        result => return Ok(result?),
    }
    let output = Command::new("fusermount3")
        .args([helper_flags, "--"])
        .arg(at)
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if message.contains("busy") {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    Err(io::Error::other(message))
}

/// A line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u32,
    /// Number of the mount that it is mounted on.
    pub parent: u32,
    /// Its device, equal to `st_dev` of the files in it.
    pub device: u64,
    /// Mount point.
    pub point: PathBuf,
    /// Type of filesystem.
    pub kind: String,
    /// Source of the mount, as given to mount(2).
    pub source: String,
}

/// The mounts that this process sees, oldest first.
pub fn mounts() -> io::Result<Vec<Mount>> {
    fs::read("/proc/self/mountinfo").map(|text| parse_mounts(&text))
}

/// True if something is mounted on a flowtrace mount, as far as thread `tid` sees; also if that cannot be
/// determined.
pub(crate) fn is_mounted_on(tid: u32) -> bool {
    let Some(mounts) = seen_by(tid) else {
        return true;
    };
    let mut ours = mounts.iter().filter(|mount| mount.kind == FILESYSTEM_TYPE);
    ours.any(|own| mounts.iter().any(|mount| mount.parent == own.id))
}

/// The devices of the mounts at these places, as thread `tid` sees them: the topmost mount of each.
pub(crate) fn devices_at<'a>(tid: u32, places: impl Iterator<Item = &'a Path>) -> Vec<u64> {
    let mounts = seen_by(tid).unwrap_or_default();
    let device = |place: &Path| Some(mounts.iter().rfind(|mount| mount.point == place)?.device);
    places.filter_map(device).collect()
}

fn seen_by(tid: u32) -> Option<Vec<Mount>> {
    let text = fs::read(format!("/proc/{tid}/mountinfo")).ok()?;
    Some(parse_mounts(&text))
}

fn parse_mounts(text: &[u8]) -> Vec<Mount> {
    let lines = text.split(|&b| b == b'\n');
    lines.filter_map(parse_mount).collect()
}

/// The topmost mount that contains `path`, which must be absolute and without symbolic links.
pub fn mount_of(path: &Path) -> io::Result<Option<Mount>> {
    let mounts = mounts()?;
    let longest = mounts.iter().filter(|m| path.starts_with(&m.point));
    let longest = longest.map(|m| m.point.as_os_str().len()).max();
    Ok(mounts
        .into_iter()
        .rfind(|m| path.starts_with(&m.point) && Some(m.point.as_os_str().len()) == longest))
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let mut number = || str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let (major, minor) = str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = libc::makedev(major.parse().ok()?, minor.parse().ok()?);
    let point = unescape(fields.nth(1)?);
    fields.find(|&field| field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?).to_string_lossy().into_owned();
    Some(Mount {
        id,
        parent,
        device,
        point: PathBuf::from(point),
        kind,
        source,
    })
}

/// Reverts the escapes of mountinfo: space, tab, newline and backslash are three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail
            .get(..3)
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match (byte, code) {
            (b'\\', Some(code)) => {
                bytes.push(code);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// The flags of the filesystem below `directory` that a mount over it must keep.
pub(crate) fn kept_flags(directory: &File) -> io::Result<MsFlags> {
    use nix::sys::statvfs::{FsFlags, fstatvfs};
    let flags = fstatvfs(directory)?.flags();
    let kept = [
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
    ];
    Ok(kept
        .into_iter()
        .filter(|(has, _)| flags.contains(*has))
        .map(|(_, keep)| keep)
        .collect())
}

/// A path as a C string; paths from the kernel never contain a NUL.
pub(crate) fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "text contains a NUL byte"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::os::unix::thread::JoinHandleExt;
    use std::thread;
    use std::time::Duration;

    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

    extern "C" fn nothing(_: libc::c_int) {}

    /// As on a socket with a time limit, whose calls the kernel does not restart.
    #[test]
    fn a_descriptor_comes_though_its_receiver_is_interrupted() {
        let handler = SigHandler::Handler(nothing);
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing, and this process has no other handler for this signal.
        #[expect(unsafe_code)]
        unsafe { sigaction(Signal::SIGURG, &action) }.unwrap();
        let (ours, other) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let receiver = thread::spawn(move || receive_descriptor(&ours.into()));
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(2));
            // SAFETY: the thread is not joined yet.
            #[expect(unsafe_code)]
            let sent = unsafe { libc::pthread_kill(receiver.as_pthread_t(), libc::SIGURG) };
            assert_eq!(sent, 0);
        }
        let null = File::open("/dev/null").unwrap();
        send_descriptor(other.as_fd(), null.as_fd()).unwrap();
        receiver.join().unwrap().unwrap();
    }

    #[test]
    fn mountinfo_lines_parse() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402\134x rw,noatime master:1 - ext3 /dev/root rw";
        let expected = Mount {
            id: 36,
            parent: 35,
            device: libc::makedev(98, 0),
            point: "/mnt 2\\x".into(),
            kind: "ext3".into(),
            source: "/dev/root".into(),
        };
        assert_eq!(parse_mount(line), Some(expected));
        assert_eq!(parse_mount(b""), None);
        assert_eq!(parse_mount(b"1 2 3:4"), None);
        assert_eq!(unescape(br"a\9zz\04"), OsStr::new(r"a\9zz\04"));
    }

    #[test]
    fn every_path_is_on_some_mount() {
        assert_eq!(
            mount_of(Path::new("/proc/self")).unwrap().unwrap().kind,
            "proc"
        );
        assert!(mount_of(Path::new("/")).unwrap().is_some());
    }
}
