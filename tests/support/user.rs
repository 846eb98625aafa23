//! Running a command as an ordinary user.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{FLOWTRACE, Scratch};

/// A user id that no machine uses.
const UID: u32 = 54_321;

/// An ordinary user with a home directory, a copy of flowtrace that it may execute (the checkout may not be
/// accessible), and no capability.
pub(crate) struct User<'a> {
    scratch: &'a Scratch,
    /// The home directory, the only place where the user may write.
    pub(crate) home: PathBuf,
    /// The binary under test.
    pub(crate) flowtrace: PathBuf,
}

impl<'a> User<'a> {
    pub(crate) fn new(scratch: &'a Scratch) -> Self {
        let home = scratch.dir("home");
        if nix::unistd::geteuid().is_root() {
            chown(&home, Some(UID), Some(UID)).expect("can give a directory away");
        }
        let flowtrace = scratch.join("flowtrace");
        fs::copy(FLOWTRACE, &flowtrace).expect("a copy of the binary");
        fs::set_permissions(&flowtrace, fs::Permissions::from_mode(0o755)).unwrap();
        User {
            scratch,
            home,
            flowtrace,
        }
    }

    /// A command as this user; where the tests do not run as root, as the user who runs them.
    ///
    /// On some machines only root may open `/dev/fuse`. The command therefore gets a mount namespace with a
    /// device of mode 0666 in its place, which changes nothing for the machine.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = if nix::unistd::geteuid().is_root() {
            let script = r#"
                set -e
                mount -t tmpfs -o mode=755 tmpfs "$1"
                mknod -m 666 "$1/fuse" c 10 229
                mount --bind "$1/fuse" /dev/fuse
                uid=$2; shift 2
                exec setpriv --reuid "$uid" --regid "$uid" --clear-groups --inh-caps=-all "$@""#;
            let mut command = Command::new("unshare");
            command
                .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
                .arg(self.scratch.dir("devices"))
                .arg(UID.to_string())
                .arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(&self.home).env("HOME", &self.home);
        command
    }

    /// Copies a file or tree into the home and gives it to the user.
    pub(crate) fn give(&self, from: &Path, name: &str) -> PathBuf {
        let to = self.home.join(name);
        if from.is_dir() {
            super::tree::copy(from, &to);
        } else {
            fs::copy(from, &to).unwrap();
        }
        if nix::unistd::geteuid().is_root() {
            own(&to);
        }
        to
    }
}

fn own(path: &Path) {
    chown(path, Some(UID), Some(UID)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            own(&entry.unwrap().path());
        }
    }
}
