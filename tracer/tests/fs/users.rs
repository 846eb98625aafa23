//! Several users.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use crate::child;
use crate::mounted::{Mounted, Options};

#[test]
fn what_a_user_makes_is_the_users() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    // The test directory itself is for root only.
    let top = mounted.source.parent().unwrap();
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    let user = mounted.source.join("user");
    fs::create_dir(&user).unwrap();
    let path = |name: &str| user.join(name);
    let mode = |name: &str, mode| {
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(path("setgid")).unwrap();
    chown(path("setgid"), Some(12345), Some(777)).unwrap();
    mode("setgid", 0o2775);
    fs::create_dir(path("closed")).unwrap();
    mode("closed", 0o755);
    fs::write(path("secret"), "secret").unwrap();
    mode("secret", 0o600);
    for name in ["suid_write", "suid_open", "suid_truncate", "suid_chown"] {
        fs::write(path(name), "x").unwrap();
        chown(path(name), Some(12345), Some(12345)).unwrap();
        mode(name, 0o6777);
    }
    chown(&user, Some(12345), Some(12345)).unwrap();

    child::run("as_user", &[&mounted.path("user")]);

    for name in ["file", "directory", "link", "fifo"] {
        let found = fs::symlink_metadata(path(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (12345, 12345), "{name}");
    }
    let bits = |name: &str| fs::symlink_metadata(path(name)).unwrap().mode() & 0o7777;
    assert_eq!(bits("file"), 0o640);
    assert_eq!(bits("directory"), 0o750);
    assert_eq!(bits("fifo"), 0o640);
    for name in ["setgid/file", "setgid/directory"] {
        let found = fs::metadata(path(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (12345, 777), "{name}");
    }
    assert_eq!(bits("setgid/directory") & 0o2000, 0o2000);
    for name in ["suid_write", "suid_open", "suid_truncate", "suid_chown"] {
        assert_eq!(bits(name) & 0o6000, 0, "{name} {:o}", bits(name));
    }
}

/// Not a test of its own: see `child`.
pub(crate) fn unprivileged(_directory: &Path) {}
