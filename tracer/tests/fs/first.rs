//! The filesystem works at all.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::mounted::{Mounted, Options, hidden};

#[test]
fn files_are_seen_and_recorded() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    eprintln!("{:?}", mounted.layer());
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
    fs::metadata(mounted.path("nowhere")).unwrap_err();
    let trace = mounted.finish();
    for call in trace.calls() {
        eprintln!("{call:?}");
    }
    for text in trace.texts("SELECT file_id || ' ' || kind || ' ' || coalesce(path,'-') FROM files")
    {
        eprintln!("{text}");
    }
    for text in
        trace.texts("SELECT file_id || ' ' || path || ' ' || from_ns || ' ' || coalesce(to_ns, '-') FROM file_names")
    {
        eprintln!("{text}");
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
