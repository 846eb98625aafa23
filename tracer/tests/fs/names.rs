//! Names: a file stays one file through all of its names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::mounted::{Mounted, Options};

/// Paths of a file in order of time, relative to the mount; `*` marks those still in force.
fn names_of(trace: &crate::mounted::Trace, last_path: &str) -> Vec<String> {
    trace.texts(&format!(
        "SELECT substr(n.path, instr(n.path, '/seen/') + 6) || iif(n.to_ns IS NULL, '*', '')
         FROM file_names AS n JOIN files AS f USING (file_id)
         WHERE f.path LIKE '%/seen/{last_path}' AND f.kind != 'absent' ORDER BY n.from_ns"
    ))
}

#[test]
fn an_open_file_survives_rename_and_unlink() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let path = |name| mounted.path(name);
    fs::write(path("a"), "first").unwrap();
    let file = File::options()
        .read(true)
        .write(true)
        .open(path("a"))
        .unwrap();
    fs::create_dir(path("d")).unwrap();
    fs::rename(path("a"), path("d/b")).unwrap();
    file.write_all_at(b"FIRST", 0).unwrap();
    fs::write(path("c"), "second").unwrap();
    let over = File::open(path("d/b")).unwrap();
    fs::rename(path("c"), path("d/b")).unwrap();
    let mut bytes = [0; 5];
    over.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"FIRST");
    assert_eq!(fs::read(path("d/b")).unwrap(), b"second");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    fs::remove_file(path("d/b")).unwrap();
    file.write_all_at(b"still", 0).unwrap();
    drop((file, over));
    let trace = mounted.finish();
    let files = "SELECT COUNT(*) FROM files WHERE kind = 'file'";
    assert_eq!(trace.number(files), 2);
    let intervals = trace.texts(
        "SELECT substr(n.path, instr(n.path, '/seen/') + 6) || iif(n.to_ns IS NULL, '*', '')
         FROM file_names AS n JOIN files AS f USING (file_id)
         WHERE f.kind = 'file' ORDER BY file_id, from_ns",
    );
    assert_eq!(intervals, ["a", "d/b", "c", "d/b"]);
}

#[test]
fn hard_links_are_one_file() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let path = |name| mounted.path(name);
    fs::write(path("one"), "x").unwrap();
    fs::hard_link(path("one"), path("two")).unwrap();
    assert_eq!(fs::metadata(path("two")).unwrap().nlink(), 2);
    assert_eq!(
        fs::metadata(path("one")).unwrap().ino(),
        fs::metadata(path("two")).unwrap().ino()
    );
    fs::remove_file(path("one")).unwrap();
    assert_eq!(fs::read(path("two")).unwrap(), b"x");
    let trace = mounted.finish();
    assert_eq!(names_of(&trace, "two"), ["one", "two*"]);
}

#[test]
fn a_renamed_directory_takes_its_files_along() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let path = |name| mounted.path(name);
    fs::create_dir_all(path("a/b/c")).unwrap();
    fs::write(path("a/b/c/file"), "x").unwrap();
    fs::rename(path("a/b"), path("moved")).unwrap();
    assert_eq!(fs::read(path("moved/c/file")).unwrap(), b"x");
    let trace = mounted.finish();
    assert_eq!(names_of(&trace, "moved"), ["a/b", "moved*"]);
    assert_eq!(names_of(&trace, "moved/c"), ["a/b/c", "moved/c*"]);
    assert_eq!(trace.of("read", "moved/c/file").len(), 2);
}

#[test]
fn rename_flags_are_honoured() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let path = |name: &str| mounted.path(name);
    let rename =
        |from: &str, to: &str, flags| renameat2(AT_FDCWD, &path(from), AT_FDCWD, &path(to), flags);
    fs::write(path("a"), "a").unwrap();
    fs::create_dir(path("b")).unwrap();
    fs::write(path("b/inner"), "inner").unwrap();
    let noreplace = RenameFlags::RENAME_NOREPLACE;
    assert_eq!(rename("a", "b", noreplace), Err(Errno::EEXIST));
    assert_eq!(rename("a", "b", RenameFlags::RENAME_EXCHANGE), Ok(()));
    assert_eq!(fs::read(path("b")).unwrap(), b"a");
    assert_eq!(fs::read(path("a/inner")).unwrap(), b"inner");
    let trace = mounted.finish();
    assert_eq!(names_of(&trace, "a"), ["b", "a*"]);
    assert_eq!(names_of(&trace, "b"), ["a", "b*"]);
}

#[test]
fn a_reused_inode_number_is_another_file() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    for round in 0..200 {
        let path = mounted.path(format!("file{round}"));
        fs::write(&path, "x").unwrap();
        fs::remove_file(&path).unwrap();
    }
    let trace = mounted.finish();
    let files = "SELECT COUNT(*) FROM files WHERE kind = 'file'";
    assert_eq!(trace.number(files), 200);
    let inodes = trace.number(
        "SELECT COUNT(DISTINCT ino) FROM file JOIN files USING (file_id)
         WHERE files.kind = 'file'",
    );
    eprintln!("{inodes} inode numbers for 200 files");
}

#[test]
fn any_name_is_a_name() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let long = "n".repeat(255);
    let names: [&[u8]; 5] = [
        b"not\xffutf8",
        b" leading\nnewline",
        long.as_bytes(),
        "ünïcode".as_bytes(),
        b"-rf *",
    ];
    for name in names {
        fs::write(mounted.path(OsStr::from_bytes(name)), name).unwrap();
    }
    let too_long = fs::write(mounted.path("n".repeat(256)), "").unwrap_err();
    assert_eq!(too_long.raw_os_error(), Some(libc::ENAMETOOLONG));
    let listed: BTreeSet<_> = fs::read_dir(&mounted.seen)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().as_bytes().to_vec())
        .collect();
    assert_eq!(listed, names.iter().map(|name| name.to_vec()).collect());
    for name in names {
        let path = mounted.source.join(OsStr::from_bytes(name));
        assert_eq!(fs::read(path).unwrap(), name);
    }
    let trace = mounted.finish();
    let raw = "SELECT hex(name_raw) FROM file_name JOIN files USING (file_id)
               WHERE name_raw IS NOT NULL AND kind = 'file'";
    assert_eq!(trace.texts(raw), ["6E6F74FF75746638"]);
}

#[test]
fn any_byte_but_two_may_be_in_a_name() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let bytes = (1..=255u8).filter(|byte| *byte != b'/');
    let names: BTreeSet<Vec<u8>> = bytes
        .flat_map(|byte| [vec![byte], vec![b'x', byte, 0x80, byte]])
        .filter(|name| name != b".")
        .collect();
    for name in &names {
        fs::write(mounted.path(OsStr::from_bytes(name)), name).unwrap();
    }
    for directory in [&mounted.seen, &mounted.source] {
        let entries = fs::read_dir(directory).unwrap();
        let listed = entries.map(|entry| entry.unwrap().file_name().as_bytes().to_vec());
        assert!(listed.collect::<BTreeSet<_>>() == names);
    }
    for name in &names {
        let path = mounted.path(OsStr::from_bytes(name));
        assert_eq!(&fs::read(&path).unwrap(), name);
        fs::rename(&path, mounted.path("renamed")).unwrap();
        fs::remove_file(mounted.path("renamed")).unwrap();
    }
    let trace = mounted.finish();
    let named = trace.number(
        "SELECT COUNT(DISTINCT COALESCE(name_raw, name)) FROM file_name JOIN files USING (file_id)
         WHERE kind = 'file' AND name != 'renamed'",
    );
    assert_eq!(named, names.len() as i64);
}

#[test]
fn paths_may_be_longer_than_one_call_takes() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let part = "p".repeat(200);
    let mut at = nix::dir::Dir::open(
        &mounted.seen,
        nix::fcntl::OFlag::O_DIRECTORY,
        nix::sys::stat::Mode::empty(),
    )
    .unwrap();
    for _ in 0..30 {
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o755);
        nix::sys::stat::mkdirat(&at, part.as_str(), mode).unwrap();
        at = nix::dir::Dir::openat(&at, part.as_str(), nix::fcntl::OFlag::O_DIRECTORY, mode)
            .unwrap();
    }
    drop(at);
    let trace = mounted.finish();
    let longest = trace.number("SELECT MAX(length(path)) FROM files WHERE kind = 'directory'");
    assert!(longest > 30 * 201);
}

#[test]
fn large_directories_are_listed_once_and_whole() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    let count = crate::long::number("FLOWTRACE_LARGE_DIRECTORY", 20_000) as usize;
    fs::create_dir(mounted.source.join("large")).unwrap();
    for number in 0..count {
        File::create(mounted.source.join(format!("large/{number}"))).unwrap();
    }
    let listed: Vec<PathBuf> = fs::read_dir(mounted.path("large"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(listed.len(), count);
    assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), count);
    // Each entry is read with stat while others are removed: no existing entry is skipped.
    let mut removed = 0;
    for entry in fs::read_dir(mounted.path("large")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, count);
    fs::remove_dir(mounted.path("large")).unwrap();
}

#[test]
fn absent_names_are_one_file_until_made() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    for _ in 0..3 {
        fs::metadata(mounted.path("wanted")).unwrap_err();
    }
    fs::write(mounted.path("wanted"), "x").unwrap();
    fs::remove_file(mounted.path("wanted")).unwrap();
    fs::metadata(mounted.path("wanted")).unwrap_err();
    let trace = mounted.finish();
    let kinds = "SELECT kind FROM files WHERE path LIKE '%/wanted' ORDER BY file_id";
    assert_eq!(trace.texts(kinds), ["absent", "file", "absent"]);
    let failed = "SELECT COUNT(*) FROM calls WHERE op = 'lookup' AND result = -2";
    assert_eq!(trace.number(failed), 5);
}
