//! Attributes: times, owners, links, special files, extended attributes.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;

use crate::calls;
use crate::mounted::{Mounted, Options};

#[test]
fn times_survive_a_round_trip() {
    for ttl in [0, 60] {
        let Some(mounted) = Mounted::new(Options {
            ttl: std::time::Duration::from_secs(ttl),
            ..Options::default()
        }) else {
            return;
        };
        File::create(mounted.path("file")).unwrap();
        symlink("nowhere", mounted.path("link")).unwrap();
        for name in ["file", "link"] {
            // 1938 and 1960 with fractions: within the range of ext4.
            for (seconds, nanoseconds) in [
                (0, 1),
                (1_700_000_000, 123_456_789),
                (-1, 999_999_999),
                (-1, 0),
                (-315_619_200, 250_000_000),
                (-1_000_000_000, 1),
            ] {
                let time = TimeSpec::new(seconds, nanoseconds);
                let flags = UtimensatFlags::NoFollowSymlink;
                utimensat(AT_FDCWD, &mounted.path(name), &time, &time, flags).unwrap();
                for path in [mounted.path(name), mounted.source.join(name)] {
                    let found = fs::symlink_metadata(&path).unwrap();
                    let found = (found.mtime(), found.mtime_nsec(), found.atime());
                    assert_eq!(found, (seconds, nanoseconds, seconds), "{path:?}");
                }
            }
        }
        let before = fs::metadata(mounted.path("file")).unwrap();
        let omit = TimeSpec::UTIME_OMIT;
        let time = TimeSpec::new(5, 5);
        utimensat(
            AT_FDCWD,
            &mounted.path("file"),
            &omit,
            &time,
            UtimensatFlags::FollowSymlink,
        )
        .unwrap();
        let after = fs::metadata(mounted.path("file")).unwrap();
        assert_eq!((after.atime(), after.mtime()), (before.atime(), 5));
    }
}

#[test]
fn changes_are_distinguished() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let path = mounted.path("file");
    fs::write(&path, "content").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(&path, Some(1), Some(2)).unwrap();
    calls::truncate(&path, 3);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(5)
        .unwrap();
    let now = std::time::SystemTime::now();
    File::open(&path).unwrap().set_modified(now).unwrap();
    let found = fs::metadata(mounted.source.join("file")).unwrap();
    assert_eq!(
        (found.mode() & 0o7777, found.uid(), found.gid(), found.len()),
        (0o640, 1, 2, 5)
    );
    let trace = mounted.finish();
    for (op, count) in [("chmod", 1), ("chown", 1), ("truncate", 2), ("utimens", 1)] {
        assert_eq!(trace.of(op, "file").len(), count, "{op}");
    }
    let size = "SELECT size_bytes FROM files WHERE path LIKE '%/file' AND kind = 'file'";
    assert_eq!(trace.number(size), 5);
}

#[test]
fn special_files_are_not_opened() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    calls::make_fifo(&mounted.path("fifo"));
    let socket = std::os::unix::net::UnixListener::bind(mounted.path("socket")).unwrap();
    let kind = nix::sys::stat::SFlag::S_IFCHR;
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
    let null = nix::sys::stat::makedev(1, 3);
    nix::sys::stat::mknod(&mounted.path("null"), kind, mode, null).unwrap();
    let found = |name| fs::symlink_metadata(mounted.path(name)).unwrap();
    assert!(found("fifo").file_type().is_fifo());
    assert!(found("socket").file_type().is_socket());
    assert_eq!(found("null").rdev(), null);
    let value = calls::get_xattr(&mounted.path("fifo"), "trusted.none");
    assert_eq!(value.unwrap_err().raw_os_error(), Some(libc::ENODATA));
    calls::set_xattr(&mounted.path("fifo"), "trusted.some", b"1").unwrap();
    // The kernel has both ends of the FIFO: if the daemon opened it, it would block here for ever.
    let reader = std::thread::spawn({
        let path = mounted.path("fifo");
        move || fs::read(path).unwrap()
    });
    fs::write(mounted.path("fifo"), "through").unwrap();
    assert_eq!(reader.join().unwrap(), b"through");
    let accepted = std::thread::spawn(move || socket.accept().is_ok());
    std::os::unix::net::UnixStream::connect(mounted.path("socket")).unwrap();
    assert!(accepted.join().unwrap());
    fs::write(mounted.path("null"), "gone").unwrap();
    let trace = mounted.finish();
    assert!(trace.of("open", "fifo").is_empty());
    let kinds = "SELECT kind FROM files WHERE kind NOT IN ('absent', 'directory') ORDER BY kind";
    assert_eq!(trace.texts(kinds), ["char", "fifo", "socket"]);
}

#[test]
fn links_and_their_attributes() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let target = "x".repeat(4000);
    symlink(&target, mounted.path("link")).unwrap();
    assert_eq!(
        fs::read_link(mounted.path("link")).unwrap(),
        Path::new(&target)
    );
    calls::set_xattr(&mounted.path("link"), "trusted.of_link", b"v").unwrap();
    let real = calls::get_xattr(&mounted.source.join("link"), "trusted.of_link");
    assert_eq!(real.unwrap(), b"v");
    std::os::unix::fs::lchown(mounted.path("link"), Some(7), Some(8)).unwrap();
    let found = fs::symlink_metadata(mounted.source.join("link")).unwrap();
    assert_eq!((found.uid(), found.gid()), (7, 8));
    fs::hard_link(mounted.path("link"), mounted.path("other")).unwrap();
    assert_eq!(
        fs::symlink_metadata(mounted.path("other")).unwrap().nlink(),
        2
    );
}

#[test]
fn extended_attributes_behave_as_on_the_source() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    fs::write(mounted.path("file"), "x").unwrap();
    let long = vec![b'v'; 200];
    calls::set_xattr(&mounted.path("file"), "user.one", &long).unwrap();
    assert_eq!(
        calls::get_xattr(&mounted.path("file"), "user.one").unwrap(),
        long
    );
    assert_eq!(
        calls::get_xattr(&mounted.source.join("file"), "user.one").unwrap(),
        long
    );
    for (path, name) in [("file", "user.none"), ("file", "nonsense")] {
        let seen = calls::get_xattr(&mounted.path(path), name).unwrap_err();
        let real = calls::get_xattr(&mounted.source.join(path), name).unwrap_err();
        assert_eq!(seen.raw_os_error(), real.raw_os_error(), "{name}");
    }
}

/// Results of setting and reading extended attributes of many sizes.
fn sizes_of_attributes(file: &Path) -> Vec<String> {
    fs::write(file, "x").unwrap();
    let mut found = Vec::new();
    let mut say = |what: String, result: std::io::Result<usize>| {
        found.push(format!(
            "{what}: {:?}",
            result.map_err(|error| error.raw_os_error())
        ));
    };
    for size in [0, 1, 3000, 4096, 65_535, 65_536, 65_537, 1 << 20] {
        let value = vec![b'v'; size];
        let set = calls::set_xattr(file, "user.size", &value);
        say(format!("set {size}"), set.map(|()| 0));
        say(
            format!("size {size}"),
            calls::xattr_into(file, "user.size", &mut []),
        );
        for size in [1, size.saturating_sub(1).max(1), size + 1, 1 << 17] {
            let mut buffer = vec![0; size];
            say(
                format!("into {size}"),
                calls::xattr_into(file, "user.size", &mut buffer),
            );
        }
    }
    for length in [249, 250, 251, 300] {
        let name = format!("user.{}", "n".repeat(length));
        say(
            format!("name {length}"),
            calls::set_xattr(file, &name, b"1").map(|()| 0),
        );
    }
    for name in [
        "",
        "user.",
        "none",
        "nonsense.name",
        "trusted.t",
        "user.\u{fc}\n",
    ] {
        say(
            format!("name {name:?}"),
            calls::set_xattr(file, name, b"1").map(|()| 0),
        );
    }
    say("list".into(), calls::list_xattrs(file));
    // As many attributes as there is space for.
    for number in 0..600 {
        let name = format!("user.{number}{}", "n".repeat(200));
        if let Err(error) = calls::set_xattr(file, &name, b"1") {
            say(format!("attribute {number}"), Err(error));
            break;
        }
    }
    say("long list".into(), calls::list_xattrs(file));
    say(
        "remove none".into(),
        calls::remove_xattr(file, "user.none").map(|()| 0),
    );
    found
}

#[test]
fn attributes_of_any_size_end_as_on_the_source() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let plain = mounted.trace.with_file_name("plain");
    assert_eq!(
        sizes_of_attributes(&mounted.path("file")),
        sizes_of_attributes(&plain)
    );
    crate::backing::in_own_namespace(|| {
        let make = || crate::backing::Backing::tmpfs("size=64m").unwrap();
        let (plain, source) = (make(), make());
        let mounted = Mounted::new(Options {
            source: Some(source.path.clone()),
            ..Options::default()
        });
        let expected = sizes_of_attributes(&plain.path.join("file"));
        assert_eq!(
            sizes_of_attributes(&mounted.unwrap().path("file")),
            expected
        );
    });
}

#[test]
fn a_long_ttl_hides_stats() {
    let Some(mounted) = Mounted::new(Options {
        ttl: std::time::Duration::from_secs(60),
        ..Options::default()
    }) else {
        return;
    };
    fs::write(mounted.source.join("file"), "x").unwrap();
    for _ in 0..10 {
        fs::metadata(mounted.path("file")).unwrap();
    }
    let trace = mounted.finish();
    assert_eq!(trace.of("lookup", "file").len(), 1);
    // For the time of birth, which a lookup does not return.
    assert!(trace.of("getattr", "file").len() <= 1);
}
