//! The program of a command.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use super::{Error, Result};

/// Finds the program that the shell would run for `command`.
///
/// # Errors
/// [`Error::NotFound`] and [`Error::NotExecutable`], which a shell distinguishes as 127 and 126.
pub(super) fn find_program(command: &OsStr) -> Result<PathBuf> {
    let shown = || command.to_string_lossy().into_owned();
    let denied = |errno: Errno| Error::NotExecutable {
        program: shown(),
        source: errno.into(),
    };
    let usable = |path: &Path| -> std::result::Result<(), Errno> {
        if path.is_dir() {
            return Err(Errno::EISDIR);
        }
        access(path, AccessFlags::X_OK)
    };
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match usable(&path) {
            Ok(()) => Ok(path),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Err(Error::NotFound(shown())),
            Err(errno) => Err(denied(errno)),
        };
    }
    if command.is_empty() {
        return Err(Error::NotFound("''".into()));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for directory in env::split_paths(&path) {
        let candidate = directory.join(command);
        match usable(&candidate) {
            // An empty entry of PATH is the current directory.
            Ok(()) if directory.as_os_str().is_empty() => {
                return Ok(Path::new(".").join(command));
            }
            Ok(()) => return Ok(candidate),
            Err(errno @ (Errno::EACCES | Errno::ETXTBSY | Errno::EISDIR)) => {
                refused = Some(errno);
            }
            Err(_) => {}
        }
    }
    Err(refused.map_or_else(|| Error::NotFound(shown()), denied))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find_program(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(
            find_program(OsStr::new("/bin/sh")).unwrap(),
            Path::new("/bin/sh")
        );
        for missing in ["", "no-such-program-here", "./no-such-program", "/bin/sh/x"] {
            assert!(matches!(
                find_program(OsStr::new(missing)),
                Err(Error::NotFound(_))
            ));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        for refused in [Path::new("/"), file.path()] {
            let found = find_program(refused.as_os_str());
            assert!(
                matches!(found, Err(Error::NotExecutable { .. })),
                "{refused:?}: {found:?}"
            );
        }
    }
}
