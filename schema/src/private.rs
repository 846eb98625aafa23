//! Files that only their owner may read: a trace contains command lines, and names below directories that
//! others cannot list.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::Path;

/// Makes a file, mode 0600 less the umask. Root through sudo gives the file to the user who called sudo.
///
/// # Errors
/// As [`File::create_new`].
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(path)?;
    if let Some((user, group)) = caller() {
        // A user who may not give files away is not root, whatever the environment says: the file stays as it
        // is.
        let _ = fchown(&file, Some(user), Some(group));
    }
    Ok(file)
}

/// The user and group who called sudo, as sudo says in the environment.
fn caller() -> Option<(u32, u32)> {
    let id = |name: &str| std::env::var(name).ok()?.parse().ok();
    Some((id("SUDO_UID")?, id("SUDO_GID")?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn only_the_owner_may_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        let file = create_new(&path).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o077, 0);
        assert!(create_new(&path).is_err());
    }
}
