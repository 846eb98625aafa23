//! One process of the storm.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{AT_FDCWD, FallocateFlags, RenameFlags, fallocate, renameat2};

use crate::calls;
use crate::random::Random;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Number of files that a process keeps open while their names come and go.
const KEPT: usize = 6;

/// Works until the time is over, then prints the results.
pub(crate) fn work(directory: &Path, seed: &Path, seconds: &Path) {
    let number = |text: &Path| text.to_str().unwrap().parse::<u64>().unwrap();
    let end = Instant::now() + Duration::from_secs(number(seconds));
    let mut worker = Worker {
        top: directory,
        random: Random(number(seed)),
        kept: Vec::new(),
        answers: BTreeMap::new(),
    };
    while Instant::now() < end {
        for _ in 0..100 {
            worker.step();
        }
    }
    println!();
    for ((operation, errno), count) in worker.answers {
        println!("answer {operation} {errno} {count}");
    }
}

struct Worker<'a> {
    top: &'a Path,
    random: Random,
    kept: Vec<File>,
    answers: BTreeMap<(&'static str, i32), u64>,
}

impl Worker<'_> {
    /// A path of one to three components of the same few names: any may be a file, a directory or a link.
    fn path(&mut self) -> PathBuf {
        let mut path = self.top.to_owned();
        for _ in 0..self.random.one_of(&[1, 2, 2, 2, 3]) {
            path.push(self.random.one_of(&NAMES));
        }
        path
    }

    fn answer<T>(&mut self, operation: &'static str, result: Result<T>) -> Option<T> {
        let (errno, value) = match result {
            Ok(value) => (0, Some(value)),
            Err(error) => match error.raw_os_error() {
                Some(errno) => (errno, None),
                None => panic!("{operation}: {error}"),
            },
        };
        *self.answers.entry((operation, errno)).or_default() += 1;
        value
    }

    fn step(&mut self) {
        let (path, other) = (self.path(), self.path());
        match self.random.below(25) {
            0..=4 => self.open(&path),
            5..=8 => self.use_kept(),
            9 => self.unit("mkdir", fs::create_dir(path)),
            10 => self.unit("rmdir", fs::remove_dir(path)),
            11 | 12 => self.unit("unlink", nix::unistd::unlink(&path).map_err(Error::from)),
            13 => self.unit("link", fs::hard_link(path, other)),
            14 => {
                let target = self.random.one_of(&NAMES);
                self.unit("symlink", symlink(target, path));
            }
            15 | 16 => self.rename("rename", RenameFlags::empty(), &path, &other),
            17 => self.rename("noreplace", RenameFlags::RENAME_NOREPLACE, &path, &other),
            18 => self.rename("exchange", RenameFlags::RENAME_EXCHANGE, &path, &other),
            19 => {
                let length = self.random.below(20_000) as i64;
                let result = nix::unistd::truncate(&path, length).map_err(Error::from);
                self.unit("truncate", result);
            }
            // Otherwise the tree would only grow.
            23 => self.unit("sweep", fs::remove_dir_all(path)),
            20 => self.list(&path),
            21 => self.unit("stat", fs::symlink_metadata(path).map(drop)),
            22 => match self.random.below(2) {
                0 => self.unit("readlink", fs::read_link(path).map(drop)),
                _ => self.unit("follow", fs::metadata(path).map(drop)),
            },
            _ => match self.random.below(2) {
                0 => self.unit(
                    "chmod",
                    fs::set_permissions(path, Permissions::from_mode(0o755)),
                ),
                _ => self.unit("xattr", calls::set_xattr(&path, "user.storm", b"value")),
            },
        }
    }

    fn unit(&mut self, operation: &'static str, result: Result<()>) {
        self.answer(operation, result);
    }

    fn rename(&mut self, operation: &'static str, flags: RenameFlags, from: &Path, to: &Path) {
        let result = renameat2(AT_FDCWD, from, AT_FDCWD, to, flags).map_err(Error::from);
        self.unit(operation, result);
    }

    /// Opens a file in one of many ways and keeps it.
    fn open(&mut self, path: &Path) {
        let (operation, flags) = self.random.one_of(&[
            ("create", libc::O_CREAT),
            ("create", libc::O_CREAT | libc::O_TRUNC),
            ("append", libc::O_CREAT | libc::O_APPEND),
            ("exclusive", libc::O_CREAT | libc::O_EXCL),
            ("open", 0),
        ]);
        let mut options = OpenOptions::new();
        // A directory can be opened for reading.
        let writes = operation != "open";
        let result = options
            .read(true)
            .write(writes)
            .custom_flags(flags)
            .mode(0o644)
            .open(path);
        if let Some(file) = self.answer(operation, result)
            && writes
        {
            if self.kept.len() == KEPT {
                self.kept.remove(0);
            }
            self.kept.push(file);
        }
    }

    /// An open file works, whatever happened to its name.
    fn use_kept(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let which = self.random.below(self.kept.len() as u64) as usize;
        let (offset, length) = (self.random.below(20_000), self.random.below(9000) as usize);
        let mut file = &self.kept[which];
        match self.random.below(6) {
            0 => {
                let result = file.write_all_at(&vec![b'x'; length], offset);
                self.unit("write", result);
            }
            1 => {
                let result = file.read_at(&mut vec![0; length], offset).map(drop);
                self.unit("read", result);
            }
            2 => {
                let result = file.set_len(offset);
                self.unit("ftruncate", result);
            }
            3 => {
                let result = file
                    .metadata()
                    .map(|metadata| assert!(metadata.nlink() < 1000));
                self.unit("fstat", result);
            }
            4 => {
                let mode = FallocateFlags::FALLOC_FL_KEEP_SIZE;
                let mode = mode | FallocateFlags::FALLOC_FL_PUNCH_HOLE;
                let result = fallocate(file, mode, offset as i64, 4096).map_err(Error::from);
                self.unit("punch", result);
            }
            _ => {
                let result = file
                    .write_all(b"at the position")
                    .and_then(|()| file.sync_data());
                self.unit("sync", result);
            }
        }
    }

    /// Lists a directory; no name may appear twice.
    fn list(&mut self, path: &Path) {
        let listed = fs::read_dir(path).and_then(|entries| {
            let mut names = BTreeSet::new();
            for entry in entries {
                let name = entry?.file_name();
                if !names.insert(name.clone()) {
                    let twice = format!("{} twice in {}", name.display(), path.display());
                    return Err(Error::new(ErrorKind::AlreadyExists, twice));
                }
            }
            Ok(())
        });
        self.unit("list", listed);
    }
}
