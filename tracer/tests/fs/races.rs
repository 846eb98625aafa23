//! Many processes at once on the same names: the one that succeeds, and the results of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::unistd::{Whence, lseek};

use crate::mounted::{Mounted, Options, Way};
use crate::storm::{descriptors, drop_names, forget_all};
use crate::{calls, child, long};

const PROCESSES: usize = 16;

fn all_ways(test: impl Fn(&Mounted, Way)) {
    for way in Way::ALL {
        let mounted = Mounted::new(Options {
            threads: 4,
            ..way.options()
        });
        if let Some(mounted) = mounted {
            test(&mounted, way);
        }
    }
}

/// Runs the same function of `child` in all processes at once, and returns their outputs.
fn in_all_processes(
    function: &str,
    arguments: impl Fn(usize) -> Vec<std::path::PathBuf>,
) -> Vec<String> {
    let start = |process| -> Child {
        let arguments = arguments(process);
        let arguments: Vec<&Path> = arguments.iter().map(|path| &**path).collect();
        child::command(function, &arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let processes: Vec<_> = (0..PROCESSES).map(start).collect();
    let finished = processes.into_iter().map(|process| {
        let output = process.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        text
    });
    finished.collect()
}

/// Lookups may cross with the kernel's messages that it has forgotten the nodes that they found.
#[test]
fn lookups_and_forgets_may_cross() {
    let rounds = long::number("FLOWTRACE_RACE_ROUNDS", 300);
    all_ways(|mounted, way| {
        let names = ["a", "b", "c", "d"].map(|name| mounted.path(name));
        let over = AtomicBool::new(false);
        let expect = |result: std::io::Result<()>, expected: &[ErrorKind]| match result {
            Ok(()) => {}
            Err(error) => assert!(expected.contains(&error.kind()), "{error}"),
        };
        // The other threads must end, even if one panics.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let repeat = |act: &dyn Fn(usize)| {
            let _ends = Ends(&over);
            let rounds = (0..).take_while(|_| !over.load(Ordering::Relaxed));
            rounds.for_each(act);
        };
        let missing = [ErrorKind::NotFound];
        std::thread::scope(|scope| {
            scope.spawn(|| repeat(&|n| expect(fs::write(&names[n % 4], "content"), &[])));
            scope.spawn(|| repeat(&|n| expect(fs::remove_file(&names[n % 3]), &missing)));
            scope.spawn(|| {
                repeat(&|n| expect(fs::rename(&names[n % 4], &names[(n + 1) % 4]), &missing));
            });
            scope.spawn(|| {
                repeat(&|n| {
                    let there = fs::hard_link(&names[n % 4], &names[(n + 2) % 4]);
                    expect(there, &[ErrorKind::NotFound, ErrorKind::AlreadyExists]);
                });
            });
            scope.spawn(|| repeat(&|n| expect(fs::metadata(&names[n % 4]).map(drop), &missing)));
            scope.spawn(|| {
                repeat(&|n| {
                    let read = fs::read(&names[n % 4]);
                    if let Ok(content) = &read {
                        // The file may be read before it is written. With a page cache over FUSE the kernel
                        // may return the old page, which was empty, with the new size.
                        let stale = way == Way::Cached && *content == [0; 7];
                        let right = content.is_empty() || content == b"content";
                        assert!(right || stale, "{way:?}: {content:?}");
                    }
                    expect(read.map(drop), &missing);
                });
            });
            let _ends = Ends(&over);
            for _ in 0..rounds {
                drop_names(&mounted.seen);
                fs::read_dir(&mounted.seen)
                    .unwrap()
                    .for_each(|entry| drop(entry.unwrap()));
            }
        });
        forget_all(mounted);
        assert_eq!(descriptors(&mounted.source).0, 1, "nodes besides the root");
    });
}

/// Entered through `child`: prints the number of names that this process made.
pub(crate) fn make_exclusively(directory: &Path) {
    let made = |round: &u32| match File::create_new(directory.join(round.to_string())) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            false
        }
    };
    println!("\nmade {}", (0..400).filter(made).count());
}

#[test]
fn one_of_sixteen_makes_a_file_exclusively() {
    all_ways(|mounted, _| {
        let printed = in_all_processes("make_exclusively", |_| vec![mounted.seen.clone()]);
        let made = |text: &String| -> usize {
            let made = text.lines().find_map(|line| line.strip_prefix("made "));
            made.unwrap().parse().unwrap()
        };
        let made: Vec<_> = printed.iter().map(made).collect();
        assert_eq!(made.iter().sum::<usize>(), 400, "{made:?}");
    });
}

#[test]
fn sixteen_append_without_loss() {
    all_ways(|mounted, _| {
        let path = mounted.path("log");
        File::create(&path).unwrap();
        // From a few bytes to more than a page.
        let line = |process: usize| format!("{process:x}").repeat(1 + process * 400) + "\n";
        in_all_processes("append", |process| vec![path.clone(), line(process).into()]);
        let text = fs::read_to_string(mounted.source.join("log")).unwrap();
        let mut counts = BTreeMap::<&str, usize>::new();
        for line in text.split_inclusive('\n') {
            *counts.entry(line).or_default() += 1;
        }
        let expected: Vec<String> = (0..PROCESSES).map(line).collect();
        let expected: BTreeMap<&str, usize> = expected.iter().map(|line| (&**line, 1000)).collect();
        assert!(counts == expected, "lines were torn or lost");
    });
}

/// A file that is replaced by renaming always exists and is always whole.
#[test]
fn a_replaced_file_is_never_missing() {
    all_ways(|mounted, _| {
        let target = mounted.path("target");
        let version = |n: u32| vec![n as u8; 5000 + n as usize % 5000];
        fs::write(&target, version(0)).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let read = || {
                while !over.load(Ordering::Relaxed) {
                    let file = File::open(&target).unwrap();
                    let mut bytes = vec![0; 20_000];
                    // Size and content belong to one version, even if another one has replaced it.
                    let length = file.metadata().unwrap().len() as usize;
                    let read = file.read_at(&mut bytes, 0).unwrap();
                    assert_eq!(read, length);
                    assert!(bytes[..read].iter().all(|byte| *byte == bytes[0]));
                }
            };
            let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
            for n in 1..400 {
                let new = mounted.path(format!("new{}", n % 3));
                fs::write(&new, version(n)).unwrap();
                fs::rename(&new, &target).unwrap();
            }
            over.store(true, Ordering::Relaxed);
            readers
                .into_iter()
                .for_each(|reader| reader.join().unwrap());
        });
        assert_eq!(fs::read(&target).unwrap(), version(399));
    });
}

#[test]
fn files_without_a_name_stay_what_they_are() {
    all_ways(|mounted, _| {
        let open = |n: u8| {
            let path = mounted.path("name");
            let mut options = File::options();
            let file = options
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)
                .unwrap();
            file.write_all_at(&[n; 100], 0).unwrap();
            fs::remove_file(&path).unwrap();
            file
        };
        let files: Vec<_> = (0..50).map(open).collect();
        drop_names(&mounted.seen);
        for (n, file) in (0..).zip(&files) {
            let metadata = file.metadata().unwrap();
            assert_eq!((metadata.nlink(), metadata.len()), (0, 100));
            file.set_len(50).unwrap();
            file.write_all_at(&[n], 60).unwrap();
            let mut bytes = [1; 70];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 61);
            assert_eq!((bytes[49], bytes[55], bytes[60]), (n, 0, n));
        }
        drop(files);
        forget_all(mounted);
        assert_eq!(descriptors(&mounted.source).0, 1, "nodes besides the root");
    });
}

/// A listing returns each entry that stays in a directory exactly once, while others come and go, and
/// positions in it stay valid.
#[test]
fn a_directory_may_change_while_it_is_read() {
    all_ways(|mounted, _| {
        let directory = mounted.path("changing");
        fs::create_dir(&directory).unwrap();
        let stays: BTreeSet<Vec<u8>> = (0..1500)
            .map(|n| format!("stays{n}").into_bytes())
            .collect();
        for name in &stays {
            File::create(directory.join(std::ffi::OsStr::from_bytes(name))).unwrap();
        }
        let over = AtomicBool::new(false);
        let listed = std::thread::scope(|scope| {
            let change = |offset: usize| {
                for n in (offset..).take_while(|_| !over.load(Ordering::Relaxed)) {
                    let path = |n: usize| directory.join(format!("comes{}", n % 700));
                    fs::write(path(n), "").unwrap();
                    let _ = fs::remove_file(path(n + 350));
                }
            };
            let changers = [0, 350].map(|offset| scope.spawn(move || change(offset)));
            let listed = list(&File::open(&directory).unwrap());
            for _ in 0..10 {
                let names = list(&File::open(&directory).unwrap());
                check(&names, &stays);
            }
            over.store(true, Ordering::Relaxed);
            changers
                .into_iter()
                .for_each(|changer| changer.join().unwrap());
            listed
        });
        check(&listed, &stays);
        let stream = File::open(&directory).unwrap();
        let listed = list(&stream);
        for (at, (_, position)) in listed.iter().enumerate().step_by(97) {
            lseek(&stream, *position as i64, Whence::SeekSet).unwrap();
            assert_eq!(list(&stream), listed[at + 1..], "after entry {at}");
        }
    });
}

fn check(listed: &[(Vec<u8>, u64)], stays: &BTreeSet<Vec<u8>>) {
    let names = listed
        .iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with(b"stays"));
    let mut seen = BTreeSet::new();
    for name in names {
        assert!(seen.insert(name.clone()), "{} twice", name.escape_ascii());
    }
    assert!(
        seen == *stays,
        "{:?} missed",
        stays.difference(&seen).next()
    );
}

/// All names from a position of the directory on, each with the position after it. They are read in small
/// pieces, so that much may happen in between.
fn list(directory: &File) -> Vec<(Vec<u8>, u64)> {
    let mut listed = Vec::new();
    loop {
        let more = calls::entries(directory, 600);
        if more.is_empty() {
            return listed;
        }
        listed.extend(more);
    }
}
