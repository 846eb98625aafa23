//! Deep directories, long paths, links to links, mounts within.

use std::fs::{self, File};
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use nix::fcntl::{OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::backing::{Backing, in_own_namespace, mount_tmpfs};
use crate::long;
use crate::mounted::{Mounted, Options};

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);

fn into(directory: &OwnedFd, name: &str) -> OwnedFd {
    openat(directory, name, DIRECTORY, Mode::empty()).unwrap()
}

#[test]
fn directories_may_be_thousands_deep() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let depth = long::number("FLOWTRACE_DEPTH", 1000) as i64;
    let top: OwnedFd = File::open(&mounted.seen).unwrap().into();
    let mode = Mode::from_bits_truncate(0o755);
    let mut at = top.try_clone().unwrap();
    for _ in 0..depth {
        mkdirat(&at, "d", mode).unwrap();
        at = into(&at, "d");
    }
    let flags = OFlag::O_CREAT | OFlag::O_RDWR;
    let file = openat(&at, "file", flags, mode).unwrap();
    nix::unistd::write(&file, b"deep").unwrap();
    drop(file);
    // The directories move with all entries, and are found again at their new place.
    renameat2(&top, "d", &top, "moved", RenameFlags::empty()).unwrap();
    let mut down = into(&top, "moved");
    for _ in 1..depth {
        down = into(&down, "d");
    }
    let mut read = [0; 10];
    let file = openat(&down, "file", OFlag::O_RDONLY, mode).unwrap();
    assert_eq!(nix::unistd::read(&file, &mut read), Ok(4));
    drop(file);
    unlinkat(&at, "file", UnlinkatFlags::NoRemoveDir).unwrap();
    for _ in 1..depth {
        at = into(&at, "..");
        unlinkat(&at, "d", UnlinkatFlags::RemoveDir).unwrap();
    }
    unlinkat(&top, "moved", UnlinkatFlags::RemoveDir).unwrap();
    drop((at, down, top));
    assert_eq!(fs::read_dir(&mounted.source).unwrap().count(), 0);
    let trace = mounted.finish();
    let made = "SELECT COUNT(*) FROM calls WHERE op = 'mkdir' AND result = 0";
    assert_eq!(trace.number(made), depth);
    let deepest = "SELECT COUNT(*) FROM file_names WHERE path LIKE '%/moved/d/%/file'";
    assert_eq!(trace.number(deepest), 1);
}

/// Result as text: a value or an errno.
fn shown<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("errno {:?}", error.raw_os_error()),
    }
}

/// Results of operations with long paths and many links, in a directory and nowhere else.
fn ways(top: &Path) -> Vec<String> {
    let path = |name: &str| top.join(name);
    fs::write(path("target"), "content").unwrap();
    symlink("loop2", path("loop1")).unwrap();
    symlink("loop1", path("loop2")).unwrap();
    symlink("target", path("link0")).unwrap();
    for n in 1..=45 {
        symlink(format!("link{}", n - 1), path(&format!("link{n}"))).unwrap();
    }
    symlink("/proc/sys/kernel/ostype", path("outside")).unwrap();
    symlink("../../../../../../../../etc/hostname", path("upwards")).unwrap();
    symlink("nowhere", path("dangling")).unwrap();
    let mut found: Vec<String> = [
        "loop1", "link39", "link40", "link45", "outside", "upwards", "dangling",
    ]
    .map(|name| format!("{name}: {}", shown(fs::read(path(name)))))
    .into();
    let nofollow = |name: &str| {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
        nix::fcntl::open(&path(name), flags, Mode::empty())
            .map(drop)
            .map_err(Error::from)
    };
    found.push(format!("nofollow: {}", shown(nofollow("link0"))));
    found.push(format!(
        "through dangling: {}",
        shown(fs::write(path("dangling"), "made"))
    ));
    found.push(format!("made: {}", shown(fs::read(path("nowhere")))));
    for length in [255, 256] {
        let name = "n".repeat(length);
        found.push(format!(
            "{length}: {}",
            shown(File::create(path(&name)).map(drop))
        ));
        found.push(format!(
            "mkdir {length}: {}",
            shown(fs::create_dir(path(&("m".to_owned() + &name[1..]))))
        ));
        found.push(format!(
            "link {length}: {}",
            shown(fs::hard_link(
                path("target"),
                path(&("l".to_owned() + &name[1..]))
            ))
        ));
        found.push(format!(
            "stat {length}: {}",
            shown(fs::metadata(path(&name)).map(drop))
        ));
    }
    for target in [1, 255, 4095, 4096] {
        let link = path(&format!("to{target}"));
        let made = symlink("t".repeat(target), &link);
        let read = fs::read_link(&link).map(|target| target.as_os_str().len());
        found.push(format!(
            "target of {target}: {} {}",
            shown(made),
            shown(read)
        ));
    }
    // Not one name but the whole path is too long.
    let long = "./".repeat(2048) + "target";
    let short = "./".repeat(1900) + "target";
    found.push(format!("long path: {}", shown(fs::read(path(&long)))));
    found.push(format!("short path: {}", shown(fs::read(path(&short)))));
    found.push(format!("empty name: {}", shown(symlink("", path("empty")))));
    found.push(format!(
        "file as directory: {}",
        shown(fs::read(path("target/x")))
    ));
    found.push(format!(
        "trailing slash: {}",
        shown(File::create(path("new/")).map(drop))
    ));
    found.push(format!(
        "rmdir dot: {}",
        shown(fs::remove_dir(path("link0/.")))
    ));
    found
}

#[test]
fn long_and_winding_ways_end_where_they_do_without_the_mount() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let plain = mounted.trace.with_file_name("plain");
    fs::create_dir(&plain).unwrap();
    assert_eq!(ways(&mounted.seen), ways(&plain));
}

/// Results of operations in and between mounts within a directory.
fn within(top: &Path) -> Vec<String> {
    let path = |name: &str| top.join(name);
    fs::write(path("outer"), "outer").unwrap();
    fs::write(path("inner/file"), "inner").unwrap();
    fs::create_dir(path("inner/directory")).unwrap();
    fs::write(path("inner/directory/below"), "below").unwrap();
    let mut list: Vec<_> = fs::read_dir(path("inner"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    list.sort();
    vec![
        format!("{list:?}"),
        format!("read {}", shown(fs::read(path("inner/directory/below")))),
        format!(
            "rename {}",
            shown(fs::rename(path("outer"), path("inner/outer")))
        ),
        format!(
            "back {}",
            shown(fs::rename(path("inner/file"), path("file")))
        ),
        format!(
            "link {}",
            shown(fs::hard_link(path("outer"), path("inner/outer")))
        ),
        format!(
            "within {}",
            shown(fs::rename(path("inner/file"), path("inner/directory/file")))
        ),
        format!(
            "copy {}",
            shown(fs::copy(path("inner/directory/file"), path("copy")))
        ),
        format!("rmdir {}", shown(fs::remove_dir(path("inner")))),
        format!("move {}", shown(fs::rename(path("inner"), path("moved")))),
        format!("bound {}", shown(fs::read(path("bound")))),
        format!("unlink bound {}", shown(fs::remove_file(path("bound")))),
        format!(
            "full {}",
            shown(fs::write(path("inner/large"), vec![0; 2 << 20]))
        ),
        format!(
            "remove {}",
            shown(fs::remove_dir_all(path("inner/directory")))
        ),
        format!("up {}", shown(fs::read(path("inner/../outer")))),
        format!(
            "blocks {}",
            shown(
                nix::sys::statvfs::statvfs(&path("inner"))
                    .map(|s| s.blocks())
                    .map_err(Error::from)
            )
        ),
    ]
}

#[test]
fn mounts_within_the_source_are_seen_and_work() {
    in_own_namespace(|| {
        let prepare = || {
            let backing = Backing::nothing();
            fs::create_dir(backing.path.join("inner")).unwrap();
            fs::write(backing.path.join("bound"), "hidden").unwrap();
            let outside = backing.path.with_file_name("outside");
            fs::write(&outside, "bound").unwrap();
            mount_tmpfs(&backing.path.join("inner"), "size=1m").unwrap();
            let flags = nix::mount::MsFlags::MS_BIND;
            let target = backing.path.join("bound");
            nix::mount::mount(Some(&outside), &target, None::<&str>, flags, None::<&str>).unwrap();
            backing
        };
        let (plain, source) = (prepare(), prepare());
        let mounted = Mounted::new(Options {
            source: Some(source.path.clone()),
            ..Options::default()
        });
        let mounted = mounted.unwrap();
        assert_eq!(within(&mounted.seen), within(&plain.path));
        // One inode number is one file, even if two filesystems use the same number.
        let number = |name: &str| fs::symlink_metadata(mounted.path(name)).unwrap().ino();
        fs::write(mounted.path("inner/other"), "x").unwrap();
        let numbers = ["outer", "inner", "inner/other", "bound", "copy"].map(number);
        let distinct: std::collections::BTreeSet<_> = numbers.iter().collect();
        assert_eq!(distinct.len(), numbers.len(), "{numbers:?}");
        for backing in [&plain, &source] {
            for name in ["inner", "bound"] {
                let flags = nix::mount::MntFlags::MNT_DETACH;
                nix::mount::umount2(&backing.path.join(name), flags).unwrap();
            }
        }
    });
}
