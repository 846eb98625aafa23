//! Filesystems of the tests themselves as source: small ones, read-only ones, ones that fail.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

pub(crate) mod failing;

/// Runs a test in a mount namespace that ends with it, even if it panics. Prints a message if mounting is not
/// possible.
pub(crate) fn in_own_namespace(test: impl FnOnce() + Send) {
    if let Some(obstacle) = crate::mounted::obstacle() {
        return crate::mounted::skip(&obstacle);
    }
    let name = std::thread::current()
        .name()
        .unwrap_or("unnamed")
        .to_owned();
    std::thread::scope(|scope| {
        let inside = move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            test();
        };
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn_scoped(scope, inside);
        if let Err(panic) = thread.unwrap().join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// A directory with a filesystem of its own.
pub(crate) struct Backing {
    pub(crate) path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Backing {
    /// An empty directory on which something may be mounted.
    pub(crate) fn nothing() -> Backing {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let path = directory.path().join("source");
        std::fs::create_dir(&path).unwrap();
        Backing {
            path,
            _directory: directory,
        }
    }

    /// A filesystem in memory; `Err` if this kernel does not have the options.
    pub(crate) fn tmpfs(options: &str) -> nix::Result<Backing> {
        let backing = Backing::nothing();
        mount_tmpfs(&backing.path, options)?;
        Ok(backing)
    }

    /// An ext4 filesystem in a file of `mebibytes`; `Err` has the reason why it cannot be made.
    pub(crate) fn ext4(mebibytes: u64, options: &[&str]) -> Result<Backing, String> {
        let backing = Backing::nothing();
        let image = backing.path.with_file_name("image");
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(mebibytes << 20)
            .map_err(|error| error.to_string())?;
        let mut make = Command::new("mkfs.ext4");
        succeed(make.arg("-q").args(options).arg(&image))?;
        succeed(
            Command::new("mount")
                .args(["-o", "loop"])
                .arg(&image)
                .arg(&backing.path),
        )?;
        Ok(backing)
    }
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    output
        .status
        .success()
        .then_some(())
        .ok_or(format!("{command:?}: {errors}"))
}

pub(crate) fn mount_tmpfs(at: &Path, options: &str) -> nix::Result<()> {
    mount(
        Some("tmpfs"),
        at,
        Some("tmpfs"),
        MsFlags::empty(),
        Some(options),
    )
}

impl Drop for Backing {
    fn drop(&mut self) {
        // Fails if nothing is mounted.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}
