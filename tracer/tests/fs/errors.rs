//! Every error of the real filesystem reaches the caller with the same errno.

use std::fs::{self, File};
use std::io::{Error, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::Ordering;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::mount::{MsFlags, mount};

use crate::backing::failing::{self, DIRECTORY, FILE, LINK};
use crate::backing::{Backing, in_own_namespace};
use crate::mounted::{Mounted, Options, Way, skip_here};
use crate::{child, operations};

/// Mounts over a directory, in each mode.
fn over(source: &Path, mut test: impl FnMut(&Mounted)) {
    for way in Way::EXACT {
        let mounted = Mounted::new(Options {
            source: Some(source.to_owned()),
            ..way.options()
        });
        test(&mounted.expect("a mount is possible"));
    }
}

#[test]
fn errors_of_the_source_are_those_of_the_mount() {
    in_own_namespace(|| {
        let (source, errno) = failing::failing();
        for code in [
            libc::EIO,
            libc::EDQUOT,
            libc::ENOSPC,
            libc::EUCLEAN,
            libc::ETIMEDOUT,
        ] {
            errno.store(code, Ordering::Relaxed);
            let expected = operations::all(&source.path);
            let failed = expected
                .iter()
                .filter(|(_, shown)| *shown == format!("{:?}", Some(code)));
            assert!(failed.count() > 25, "{expected:?}");
            over(&source.path, |mounted| {
                assert_eq!(operations::all(&mounted.seen), expected);
            });
        }
    });
}

#[test]
fn a_read_only_source_is_read_only() {
    in_own_namespace(|| {
        let source = Backing::tmpfs("size=1m").unwrap();
        fs::write(source.path.join(FILE), "content").unwrap();
        fs::create_dir(source.path.join(DIRECTORY)).unwrap();
        symlink(FILE, source.path.join(LINK)).unwrap();
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        mount(
            None::<&str>,
            &source.path,
            None::<&str>,
            flags,
            None::<&str>,
        )
        .unwrap();
        let expected = operations::all(&source.path);
        let refused = format!("{:?}", Some(libc::EROFS));
        let refusals = expected.iter().filter(|(_, shown)| *shown == refused);
        assert!(refusals.count() > 15, "{expected:?}");
        over(&source.path, |mounted| {
            assert_eq!(operations::all(&mounted.seen), expected);
        });
    });
}

/// Operations until a small filesystem is full: sizes and errnos.
fn fill(top: &Path) -> Vec<String> {
    let mut happened = Vec::new();
    let mut say = |what: &str, result: std::io::Result<u64>| {
        let errno = |error: Error| format!("{:?}", error.raw_os_error());
        happened.push(format!(
            "{what} {}",
            result.map_or_else(errno, |value| value.to_string())
        ));
    };
    let file = File::create(top.join("data")).unwrap();
    let allocated = fallocate(&file, FallocateFlags::empty(), 0, 16 << 20);
    say("allocate", allocated.map(|()| 0).map_err(Error::from));
    for block in 0..40 {
        // A write of which only a part fits is short.
        let written = file.write_at(&[1; 50_000], block * 50_000);
        say("write", written.map(|written| written as u64));
    }
    say("synced", file.sync_all().map(|()| 0));
    let mut last = Ok(());
    let mut made = 0;
    while last.is_ok() && made < 1000 {
        last = fs::create_dir(top.join(made.to_string()));
        made += 1;
    }
    say("directories", Ok(made));
    say("mkdir", last.map(|()| 0));
    say("create", File::create(top.join("more")).map(|_| 0));
    say(
        "symlink",
        symlink("x".repeat(3000), top.join("link")).map(|()| 0),
    );
    say(
        "rename",
        fs::rename(top.join("0"), top.join("renamed")).map(|()| 0),
    );
    say("size", file.metadata().map(|metadata| metadata.len()));
    drop(file);
    fs::remove_file(top.join("data")).unwrap();
    // The mount gets the release of the file shortly after its last close.
    let anew = || fs::write(top.join("renamed/data"), "x");
    let again = |_| std::thread::sleep(std::time::Duration::from_millis(10));
    let freed = (0..500).any(|attempt| anew().map_err(|_| again(attempt)).is_ok());
    say("anew", Ok(u64::from(freed)));
    happened
}

#[test]
fn a_full_source_is_full() {
    in_own_namespace(|| {
        let options = "size=1m,nr_inodes=64";
        let expected = fill(&Backing::tmpfs(options).unwrap().path);
        let full = format!("{:?}", Some(libc::ENOSPC));
        assert!(expected.iter().filter(|line| line.ends_with(&full)).count() > 10);
        for way in Way::EXACT {
            let source = Backing::tmpfs(options).unwrap();
            let mounted = Mounted::new(Options {
                source: Some(source.path.clone()),
                ..way.options()
            });
            assert_eq!(fill(&mounted.unwrap().seen), expected);
        }
    });
}

/// An ordinary user fills both: the blocks that are reserved for root stay free.
#[test]
fn what_is_reserved_for_root_is_not_for_others() {
    in_own_namespace(|| {
        let make = || Backing::ext4(16, &["-m", "20"]);
        match (make(), make()) {
            (Ok(plain), Ok(source)) => fills_as_user(&plain, &source, libc::ENOSPC),
            (Err(reason), _) | (_, Err(reason)) => skip_here(&reason),
        }
    });
}

#[test]
fn quotas_hold() {
    in_own_namespace(|| {
        let options = "size=16m,usrquota,usrquota_block_hardlimit=1m,usrquota_inode_hardlimit=50";
        match (Backing::tmpfs(options), Backing::tmpfs(options)) {
            (Ok(plain), Ok(source)) => fills_as_user(&plain, &source, libc::EDQUOT),
            _ => skip_here("this kernel has no quotas on tmpfs (CONFIG_TMPFS_QUOTA)"),
        }
    });
}

fn fills_as_user(plain: &Backing, source: &Backing, errno: i32) {
    let mounted = Mounted::new(Options {
        source: Some(source.path.clone()),
        ..Options::default()
    });
    let mounted = mounted.unwrap();
    let top = mounted.seen.parent().unwrap();
    for directory in [&plain.path, &source.path] {
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(directory, open.clone()).unwrap();
        fs::set_permissions(directory.parent().unwrap(), open).unwrap();
    }
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    let fill = |directory: &Path| {
        let output = child::run("fill_as_user", &[directory]);
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("filled "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = fill(&plain.path);
    let refused = format!("{:?}", Some(errno));
    assert!(
        expected.iter().any(|line| line.ends_with(&refused)),
        "{expected:?}"
    );
    assert_eq!(fill(&mounted.seen), expected);
}

/// Entered through `child`.
pub(crate) fn fill_as_user(directory: &Path) {
    crate::calls::become_user(12345, 12345);
    println!();
    let mut file = File::create(directory.join("data")).unwrap();
    let mut written = 0;
    let error = loop {
        match file.write(&[1; 65536]) {
            Ok(more) => written += more,
            Err(error) => break error,
        }
    };
    // The exact limit depends on the space that the filesystem needs besides the data.
    println!(
        "filled {} of 256 KiB: {:?}",
        written >> 18,
        error.raw_os_error()
    );
    let more = fallocate(&file, FallocateFlags::empty(), 0, 15 << 20);
    println!("filled allocate {:?}", more.err().map(|errno| errno as i32));
    let mut numbers = (0..5000).map(|number| fs::create_dir(directory.join(number.to_string())));
    let refused = numbers.find_map(Result::err);
    println!(
        "filled mkdir {:?}",
        refused.and_then(|error| error.raw_os_error())
    );
}
