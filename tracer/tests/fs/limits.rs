//! Behaviour when a resource is exhausted.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::child;
use crate::mounted::{Mounted, Options, Way};

#[test]
fn a_thousand_opens_at_once() {
    for way in Way::EXACT {
        let Some(mounted) = Mounted::new(way.options()) else {
            return;
        };
        fs::write(mounted.source.join("data"), "x").unwrap();
        let open = || {
            let open = |number| {
                File::options()
                    .read(true)
                    .write(number % 2 == 1)
                    .open(mounted.path("data"))
            };
            (0..250).map(|n| open(n).unwrap()).collect::<Vec<_>>()
        };
        // Twice, because the registration of the first time has ended.
        for _ in 0..2 {
            let files: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
                threads
                    .into_iter()
                    .flat_map(|thread| thread.join().unwrap())
                    .collect()
            });
            assert_eq!(files.len(), 1000);
        }
        let trace = mounted.finish();
        assert_eq!(trace.of("open", "data").len(), 2000);
        assert_eq!(trace.of("release", "data").len(), 2000);
    }
}

#[test]
fn running_out_of_descriptors_is_an_errno() {
    run_with_descriptors(300, "exhaust");
}

/// Runs a function in a process with a limit of `limit` descriptors, root or not.
#[expect(unsafe_code)]
fn run_with_descriptors(limit: u64, function: &str) {
    let mut command = child::command(function, &[]);
    // SAFETY: system calls only, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            const CAP_SYS_RESOURCE: libc::c_ulong = 24;
            setrlimit(Resource::RLIMIT_NOFILE, limit, limit)?;
            // Without that capability root cannot raise the limit again.
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0);
            Ok(())
        })
    };
    let output = command.output().unwrap();
    child::succeeded(function, &output);
}

/// Entered through `child`: the limit is that of the whole process.
pub(crate) fn exhaust() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    for number in 0..300 {
        fs::write(mounted.source.join(number.to_string()), "x").unwrap();
    }
    // The child has the same limit, but uses hardly any descriptors for itself.
    child::run("open_many", &[&mounted.seen, &mounted.source]);
    assert_eq!(fs::read(mounted.path("299")).unwrap(), b"x");
    let trace = mounted.finish();
    let refused = "SELECT COUNT(*) FROM calls WHERE result = -24";
    assert!(trace.number(refused) > 0);
}

/// Entered through `child`: opens more files than the daemon can.
pub(crate) fn open_many(directory: &Path, source: &Path) {
    let open = |number: usize| File::open(directory.join(number.to_string()));
    let mut opened: Vec<_> = (0..290).map(open).collect();
    let errno = |result: &std::io::Result<File>| {
        let error = result.as_ref().err();
        error.and_then(std::io::Error::raw_os_error)
    };
    assert!(opened[0].is_ok());
    assert_eq!(errno(&opened[289]), Some(libc::EMFILE));
    // A failed operation leaves nothing behind, with one descriptor left or none.
    for freed in 0..3 {
        let made = File::create_new(directory.join(format!("new{freed}")));
        let there = source.join(format!("new{freed}")).exists();
        assert_eq!(made.is_ok(), there, "{made:?}");
        let made = fs::create_dir(directory.join(format!("made{freed}")));
        let there = source.join(format!("made{freed}")).exists();
        assert_eq!(made.is_ok(), there, "{made:?}");
        drop(opened.remove(0));
    }
    drop(opened);
}

#[test]
fn an_open_file_takes_one_descriptor() {
    run_with_descriptors(300, "hold_open");
}

/// Entered through `child`.
pub(crate) fn hold_open() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    child::run("use_open", &[&mounted.seen]);
    assert_eq!(fs::read(mounted.source.join("moved0")).unwrap(), b"x");
    let refused = "SELECT COUNT(*) FROM calls WHERE result < 0 AND op <> 'lookup'";
    assert_eq!(mounted.finish().number(refused), 0);
}

/// Entered through `child`: opens many files, renames some, removes some, leaves some as they are, and uses
/// them all.
pub(crate) fn use_open(seen: &Path) {
    let path = |number: usize| seen.join(number.to_string());
    let open = |number| {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        options.open(path(number)).unwrap()
    };
    let opened: Vec<_> = (0..240).map(open).collect();
    for number in (0..240).step_by(3) {
        fs::rename(path(number), seen.join(format!("moved{number}"))).unwrap();
        fs::remove_file(path(number + 1)).unwrap();
    }
    for (number, mut file) in opened.iter().enumerate() {
        file.write_all(b"x").unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        let attributes = file.metadata().unwrap();
        let links = u64::from(number % 3 != 1);
        assert_eq!((attributes.len(), attributes.nlink()), (1, links));
    }
    // After their close they are found by name again.
    drop(opened);
    for number in (2..240).step_by(3) {
        assert_eq!(fs::read(path(number)).unwrap(), b"x");
    }
}

#[test]
fn a_walk_may_visit_more_files_than_descriptors() {
    run_with_descriptors(1000, "relieve");
}

/// Entered through `child`.
pub(crate) fn relieve() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    assert_eq!(getrlimit(Resource::RLIMIT_NOFILE), Ok((1000, 1000)));
    for directory in 0..8 {
        fs::create_dir(mounted.source.join(directory.to_string())).unwrap();
        for number in 0..1000 {
            File::create(mounted.source.join(format!("{directory}/{number}"))).unwrap();
        }
    }
    // A process that walks the tree needs descriptors of its own: here the mount may use all but the last.
    child::run("walk", &[&mounted.seen]);
    let files = "SELECT COUNT(*) FROM files WHERE kind = 'file'";
    assert_eq!(mounted.finish().number(files), 8000);
}

#[test]
fn more_files_than_descriptors_may_be_renamed_and_written() {
    run_with_descriptors(300, "rename_many");
}

/// Entered through `child`.
pub(crate) fn rename_many() {
    let Some(mounted) = Mounted::new(Options::default()) else {
        return;
    };
    for number in 0..1500 {
        fs::write(mounted.source.join(number.to_string()), "x").unwrap();
    }
    child::run("read_rename_write", &[&mounted.seen]);
    let trace = mounted.finish();
    let refused = "SELECT COUNT(*) FROM calls WHERE result = -24";
    assert_eq!(trace.number(refused), 0);
}

/// Entered through `child`: has one file open at a time.
pub(crate) fn read_rename_write(seen: &Path) {
    for number in 0..1500 {
        fs::read(seen.join(number.to_string())).unwrap();
    }
    for number in 0..1500 {
        let new = seen.join(format!("new{number}"));
        fs::rename(seen.join(number.to_string()), &new).unwrap();
        let log = File::options()
            .append(true)
            .create(true)
            .open(seen.join("log"));
        writeln!(log.unwrap(), "{number}").unwrap();
    }
    for number in 0..1500 {
        assert_eq!(fs::read(seen.join(format!("new{number}"))).unwrap(), b"x");
    }
}

/// Entered through `child`: reads the attributes of every file twice.
pub(crate) fn walk(seen: &Path) {
    for _ in 0..2 {
        let mut files = 0;
        for directory in 0..8 {
            for entry in fs::read_dir(seen.join(directory.to_string())).unwrap() {
                let path = entry.unwrap().path();
                fs::metadata(&path).unwrap();
                File::open(&path).unwrap();
                files += 1;
            }
        }
        assert_eq!(files, 8000);
    }
}
