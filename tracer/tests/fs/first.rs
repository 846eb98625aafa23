//! The basic operations of the filesystem.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::mounted::{Mounted, Options, Way, hidden};

#[test]
fn files_are_seen_and_recorded() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    fs::write(mounted.path("a"), "hello").unwrap();
    assert_eq!(fs::read(mounted.source.join("a")).unwrap(), b"hello");
    assert_eq!(fs::read(mounted.path("a")).unwrap(), b"hello");
    fs::create_dir(mounted.path("d")).unwrap();
    fs::rename(mounted.path("a"), mounted.path("d/b")).unwrap();
    let names: Vec<_> = fs::read_dir(mounted.path("d"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["b"]);
    let real = fs::metadata(mounted.source.join("d/b")).unwrap();
    let seen = fs::metadata(mounted.path("d/b")).unwrap();
    assert_eq!(
        (real.ino(), real.size(), real.mode(), real.mtime_nsec()),
        (seen.ino(), seen.size(), seen.mode(), seen.mtime_nsec())
    );
    fs::remove_file(mounted.path("d/b")).unwrap();
    fs::remove_dir(mounted.path("d")).unwrap();
    let trace = mounted.finish();
    let calls = trace
        .calls()
        .into_iter()
        .filter(|call| !["lookup", "getattr"].contains(&call.op.as_str()))
        .map(|call| (call.op, call.path.unwrap(), call.result))
        // The kernel does not wait for a release, and may make other calls before.
        .partition(|(op, _, _)| op.starts_with("release"));
    let (mut releases, mut ops): (Vec<_>, Vec<_>) = calls;
    releases.sort();
    // A child that another test starts at this instant has the same files open until its exec, which flushes
    // them, too.
    let is_flush = |op: &(String, String, i64)| op.0 == "flush";
    let flushes = ops.iter().filter(|op| is_flush(op)).count();
    assert!(flushes >= 2, "{ops:?}");
    ops.retain(|op| !is_flush(op));
    let name = |(op, path, result): (&str, &str, i64)| (op.to_owned(), path.to_owned(), result);
    let expected = [
        ("release", "d/b", 0),
        ("release", "d/b", 0),
        ("releasedir", "d", 0),
    ];
    assert_eq!(releases, expected.map(name));
    let expected = [
        ("create", "d/b", 0),
        ("write", "d/b", 5),
        ("open", "d/b", 0),
        ("read", "d/b", 5),
        ("read", "d/b", 0),
        ("mkdir", "d", 0),
        ("rename", "d/b", 0),
        ("opendir", "d", 0),
        ("readdir", "d", 3),
        ("readdir", "d", 0),
        ("unlink", "d/b", 0),
        ("rmdir", "d", 0),
    ];
    assert_eq!(ops, expected.map(name));
}

#[test]
fn without_a_log_nothing_is_recorded() {
    let Some(mounted) = Mounted::new(Options {
        log: false,
        ..Options::default()
    }) else {
        return;
    };
    fs::write(mounted.path("a"), "hello").unwrap();
    assert_eq!(fs::read(mounted.path("a")).unwrap(), b"hello");
    let trace = mounted.finish();
    assert!(trace.calls().is_empty());
    assert_eq!(trace.number("SELECT COUNT(*) FROM files"), 0);
}

/// Runs any command on a mount, such as a conformance suite:
/// `FLOWTRACE_TEST_COMMAND='fsx file' cargo test --test fs run_a_command -- --ignored --nocapture`
#[test]
#[ignore = "needs FLOWTRACE_TEST_COMMAND"]
fn run_a_command() {
    let command = std::env::var("FLOWTRACE_TEST_COMMAND").unwrap();
    for way in Way::ALL {
        let Some(mounted) = Mounted::new(Options {
            threads: 4,
            ..way.options()
        }) else {
            return;
        };
        let top = mounted.source.parent().unwrap();
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(top, everyone).unwrap();
        let status = Command::new("sh")
            .args(["-c", &command])
            .current_dir(&mounted.seen)
            .status()
            .unwrap();
        eprintln!("{:?}: {status}", mounted.layer());
        let calls = mounted.finish().number("SELECT COUNT(*) FROM calls");
        eprintln!("{calls} calls");
        assert!(status.success());
    }
}

#[test]
fn hidden_names_do_not_exist() {
    let Some(mounted) = Mounted::new(Options {
        hidden: vec![hidden("trace.db")],
        ..Options::default()
    }) else {
        return;
    };
    fs::write(mounted.source.join("trace.db"), "secret").unwrap();
    assert_eq!(
        fs::read(mounted.path("trace.db"))
            .unwrap_err()
            .raw_os_error(),
        Some(libc::ENOENT)
    );
    assert_eq!(
        fs::write(mounted.path("trace.db"), "x")
            .unwrap_err()
            .raw_os_error(),
        Some(libc::EACCES)
    );
    assert_eq!(fs::read_dir(&mounted.seen).unwrap().count(), 0);
}
