//! Several users.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flowtrace_tracer::fs::Permission;

use nix::mount::{MsFlags, mount};

use crate::backing::in_own_namespace;
use crate::child;
use crate::mounted::{Mounted, Options};

#[test]
fn what_a_user_makes_is_the_users() {
    for (permission, ttl) in [
        (Permission::Caller, Duration::ZERO),
        (Permission::Kernel, Duration::ZERO),
        (Permission::Kernel, Duration::from_secs(1)),
    ] {
        makes_as_user(Options {
            permission,
            ttl,
            ..Options::default()
        });
    }
}

fn makes_as_user(options: Options) {
    let Some(mounted) = Mounted::new(options) else {
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

/// Actions that an ordinary user in a user namespace of its own may take, and some that it may not.
const SCRIPT: &str = r#"
    stat . >/dev/null
    echo more >>own; echo x >new; mkdir d; echo hi >d/f; mv d/f d/g; ln d/g d/h
    [ "$(stat -c %u own)" = 12345 ]
    echo more >>open_to_all
    if (echo x >>roots) 2>/dev/null; then exit 11; fi
    if (cat secret) 2>/dev/null; then exit 12; fi
    if chmod 777 roots 2>/dev/null; then exit 13; fi
    [ "$(cat roots)" = roots ]
    rm -f foreign
    mv foreign2 moved
    if rm -f sticky/roots 2>/dev/null; then exit 14; fi
    echo x >sticky/mine; rm sticky/mine
    echo x >>other_group
    [ ! -w roots ] && [ -w open_to_all ] && [ ! -x own ]
    [ "$(ls | wc -l)" = 9 ]
"#;

#[test]
fn an_unprivileged_user_may_do_what_it_may_without_the_mount() {
    if let Some(obstacle) = crate::mounted::obstacle() {
        return crate::mounted::skip(&obstacle);
    }
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let top = directory.path();
    fs::set_permissions(top, fs::Permissions::from_mode(0o777)).unwrap();
    // The device file of a test machine may be for root only.
    let kind = nix::sys::stat::SFlag::S_IFCHR;
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
    let fuse = nix::sys::stat::makedev(10, 229);
    nix::sys::stat::mknod(&top.join("fuse"), kind, mode, fuse).unwrap();
    fs::set_permissions(top.join("fuse"), fs::Permissions::from_mode(0o666)).unwrap();
    for name in ["plain", "source"] {
        fill(&top.join(name));
    }
    fs::create_dir(top.join("seen")).unwrap();
    child::run("unprivileged", &[top]);
    let state = |name: &str| {
        let output = Command::new("sh")
            .args([
                "-c",
                "ls -lnR --time-style=+ . | grep -v ^total; cat own d/h",
            ])
            .current_dir(top.join(name))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(state("source"), state("plain"));
}

fn fill(directory: &Path) {
    let make = |name: &str, mode, owner: (u32, u32)| {
        let path = directory.join(name);
        fs::write(&path, name).unwrap();
        chown(&path, Some(owner.0), Some(owner.1)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(directory).unwrap();
    chown(directory, Some(12345), Some(12345)).unwrap();
    make("own", 0o644, (12345, 12345));
    make("open_to_all", 0o666, (0, 0));
    make("roots", 0o644, (0, 0));
    make("secret", 0o600, (0, 0));
    make("foreign", 0o600, (0, 0));
    make("foreign2", 0o600, (0, 0));
    make("other_group", 0o644, (12345, 777));
    fs::create_dir(directory.join("sticky")).unwrap();
    make("sticky/roots", 0o644, (0, 0));
    fs::set_permissions(directory.join("sticky"), fs::Permissions::from_mode(0o1777)).unwrap();
}

/// Entered through `child`: becomes the user, serves the mount, and runs the script without the mount and
/// with it.
pub(crate) fn unprivileged(top: &Path) {
    crate::calls::become_user(12345, 12345);
    let run = |directory: &Path| {
        let mut shell = Command::new("sh");
        shell.args(["-ec", &format!("cd {}\n{SCRIPT}", directory.display())]);
        shell
    };
    let status = run(&top.join("plain")).status().unwrap();
    assert!(status.success(), "{status} without the mount");

    let (ours, theirs) = crate::mounted::socket_pair();
    let (fuse, seen) = (top.join("fuse"), top.join("seen"));
    let mut command = run(&seen);
    crate::mounted::mount_in_namespace(&mut command, fuse, seen.clone(), theirs);
    let mut child = command.spawn().unwrap();
    let device = crate::mounted::receive_device(&ours);
    let (session, writer, recorder) =
        crate::mounted::serve_as_user(device, &top.join("source"), &seen, (12345, 12345));
    let status = child.wait().unwrap();
    session.join().unwrap();
    let trace = crate::mounted::finish_trace(writer, &recorder, seen);
    assert!(status.success(), "{status}: {:#?}", trace.calls());
}

/// The kernel keeps names of directories for a short time, and must forget them when a directory is closed to
/// users; mounts on those names stay.
#[test]
fn a_directory_that_is_shut_keeps_its_mounts() {
    in_own_namespace(|| {
        let mounted = Mounted::new(Options::default()).unwrap();
        let top = mounted.source.parent().unwrap();
        fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
        let user = |path: &Path| {
            let mut stat = Command::new("stat");
            stat.arg(path).uid(65534).gid(65534).output().unwrap()
        };
        let shut = |name: &str| {
            let inner = mounted.path(name).join("inner");
            fs::create_dir_all(&inner).unwrap();
            assert!(user(&inner).status.success());
            let mode = fs::Permissions::from_mode(0o700);
            fs::set_permissions(mounted.path(name), mode).unwrap();
            let seen = user(&inner.join("."));
            let text = String::from_utf8_lossy(&seen.stderr).into_owned();
            assert!(text.contains("Permission denied"), "{name}: {text}");
        };
        shut("first");

        let on = mounted.path("on");
        fs::create_dir(&on).unwrap();
        mount(
            Some("tmpfs"),
            &on,
            Some("tmpfs"),
            MsFlags::empty(),
            None::<&str>,
        )
        .unwrap();
        fs::write(on.join("file"), "there").unwrap();
        shut("second");
        shut("third");
        assert_eq!(fs::read_to_string(on.join("file")).unwrap(), "there");
        nix::mount::umount(&on).unwrap();
    });
}
