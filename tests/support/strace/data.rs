//! Reads and writes as strace shows them, with the offsets at which they happened: positions of
//! open files are followed through `open`, `dup`, `fork`, `lseek` and every call that moves them.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::process;
use super::text::{Halves, annotated, arguments, numbered, parts};

/// The system calls that move data of files, and those that decide the offset.
const CALLS: &str = "trace=read,pread64,readv,preadv,preadv2,write,pwrite64,writev,pwritev,\
                     pwritev2,sendfile,splice,copy_file_range,lseek,open,openat,openat2,creat,dup,\
                     dup2,dup3,fcntl,clone,clone3,fork,vfork,ftruncate,fallocate";

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// Writes as part of a `sendfile` or `splice`, which may write in several pieces.
    Fill,
    CopyFrom,
    CopyTo,
}

/// A call that moves data of a file.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) tid: u32,
    pub(crate) file: i64,
    pub(crate) kind: Kind,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// A number, or the name of an error.
    pub(crate) result: String,
}

/// The files below a directory, identified by a source other than strace.
pub(crate) struct Files<'a> {
    pub(crate) directory: &'a Path,
    /// Finds the file with this path that a thread opened.
    pub(crate) opened: &'a mut dyn FnMut(u32, &str) -> Option<i64>,
    /// Sizes at the beginning, by path.
    pub(crate) sizes: &'a HashMap<String, u64>,
    /// True if the reads of `sendfile` and `splice` count. No filesystem sees them as the calls that they
    /// are.
    pub(crate) sent: bool,
}

/// Runs a command under strace, which writes to `log`.
pub(crate) fn record(command: &Command, cwd: &Path, log: &Path) {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-y", "-v", "-s", "0"])
        .args(["--seccomp-bpf", "-e", CALLS, "-o"])
        .arg(log)
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(cwd);
    for (name, value) in command.get_envs() {
        strace.env(name, value.expect("no variable is removed"));
    }
    process::finish(&mut strace).expect(0);
}

/// The calls in a log that moved data of files, in the order of their ends. Calls that end before any
/// filesystem sees them are left out: those of no bytes, on directories, or with impossible arguments.
pub(crate) fn read(log: &Path, files: Files<'_>) -> Vec<Call> {
    let log = fs::read(log).expect("the log of strace");
    let mut reader = Reader::new(files);
    reader.read(&String::from_utf8_lossy(&log));
    reader.calls
}

/// An open file, shared by all descriptors that were duplicated from one.
struct Open {
    file: i64,
    position: u64,
    appends: bool,
}

/// Open files by descriptor.
type Table = HashMap<u32, usize>;

struct Reader<'a> {
    files: Files<'a>,
    opens: Vec<Open>,
    tables: Vec<Table>,
    /// Table of each thread.
    table_of: HashMap<u32, usize>,
    sizes: HashMap<i64, u64>,
    calls: Vec<Call>,
}

/// A line, split into its parts.
struct Line<'a> {
    tid: u32,
    name: &'a str,
    arguments: Vec<&'a str>,
    result: &'a str,
}

impl<'a> Reader<'a> {
    fn new(files: Files<'a>) -> Self {
        Reader {
            files,
            opens: Vec::new(),
            tables: Vec::new(),
            table_of: HashMap::new(),
            sizes: HashMap::new(),
            calls: Vec::new(),
        }
    }

    fn read(&mut self, log: &str) {
        let creators = creators(log);
        let mut halves = Halves::default();
        for (tid, text) in log.lines().filter_map(numbered) {
            // A child may appear before the end of the call that made it.
            if !self.table_of.contains_key(&tid) {
                self.enter(tid, creators.get(&tid));
            }
            let Some(text) = halves.whole(tid, text) else {
                continue;
            };
            let Some((name, list, result)) = parts(&text) else {
                continue;
            };
            self.line(&Line {
                tid,
                name,
                arguments: arguments(list),
                result,
            });
            if let Some(child) = created(name, result)
                && !self.table_of.contains_key(&child)
            {
                self.enter(child, creators.get(&child));
            }
        }
    }

    /// A thread begins, with the table of its creator or a copy of that table.
    fn enter(&mut self, tid: u32, creator: Option<&(u32, bool)>) {
        let theirs = creator.and_then(|(by, shares)| Some((*self.table_of.get(by)?, *shares)));
        let table = match theirs {
            Some((table, true)) => table,
            other => {
                let copy = other.map(|(table, _)| self.tables[table].clone());
                self.tables.push(copy.unwrap_or_default());
                self.tables.len() - 1
            }
        };
        self.table_of.insert(tid, table);
    }

    fn table(&mut self, tid: u32) -> &mut Table {
        &mut self.tables[self.table_of[&tid]]
    }

    fn line(&mut self, line: &Line<'_>) {
        let failed = line.result.starts_with('-');
        match line.name {
            "open" | "openat" | "openat2" | "creat" if !failed => self.open(line),
            "dup" | "dup2" | "dup3" if !failed => self.duplicate(line),
            "fcntl" if !failed && line.arguments[1].starts_with("F_DUPFD") => self.duplicate(line),
            "lseek" if !failed => {
                let position = leading(line.result);
                if let (Some(position), Some(open)) = (position, self.opened(line, 0)) {
                    self.opens[open].position = position;
                }
            }
            "ftruncate" if !failed => {
                if let Some(open) = self.opened(line, 0) {
                    let file = self.opens[open].file;
                    self.sizes
                        .insert(file, leading(line.arguments[1]).unwrap_or(0));
                }
            }
            "fallocate" if !failed && line.arguments[1] == "0" => {
                let end = |at: usize| leading(line.arguments[at]).unwrap_or(0);
                if let Some(open) = self.opened(line, 0) {
                    let file = self.opens[open].file;
                    self.extend(file, end(2) + end(3));
                }
            }
            "read" | "readv" | "pread64" | "preadv" | "preadv2" => self.data(line, Kind::Read),
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => {
                self.data(line, Kind::Write);
            }
            "sendfile" => {
                self.send(line, 1, Some(2), Kind::Read);
                self.send(line, 0, None, Kind::Fill);
            }
            "splice" => {
                self.send(line, 0, Some(1), Kind::Read);
                self.send(line, 2, Some(3), Kind::Fill);
            }
            "copy_file_range" => {
                self.send(line, 0, Some(1), Kind::CopyFrom);
                self.send(line, 2, Some(3), Kind::CopyTo);
            }
            _ => {}
        }
    }

    fn open(&mut self, line: &Line<'_>) {
        let Some(fd) = leading(line.result).map(|fd| fd as u32) else {
            return;
        };
        let path = annotated(line.result).unwrap_or_default();
        let flags = line.arguments.join(" ");
        let ours = Path::new(path).starts_with(self.files.directory) && !flags.contains("O_PATH");
        let file = ours.then(|| (self.files.opened)(line.tid, path)).flatten();
        let Some(file) = file else {
            self.table(line.tid).remove(&fd);
            return;
        };
        let first = self.files.sizes.get(path).copied().unwrap_or(0);
        self.sizes.entry(file).or_insert(first);
        if line.name == "creat" || flags.contains("O_TRUNC") {
            self.sizes.insert(file, 0);
        }
        self.opens.push(Open {
            file,
            position: 0,
            appends: flags.contains("O_APPEND"),
        });
        let open = self.opens.len() - 1;
        self.table(line.tid).insert(fd, open);
    }

    fn duplicate(&mut self, line: &Line<'_>) {
        let (from, to) = (leading(line.arguments[0]), leading(line.result));
        let (Some(from), Some(to)) = (from, to) else {
            return;
        };
        let table = self.table(line.tid);
        match table.get(&(from as u32)).copied() {
            Some(open) => table.insert(to as u32, open),
            None => table.remove(&(to as u32)),
        };
    }

    /// The open file of the descriptor in an argument, if strace says that the file is below the directory.
    fn opened(&mut self, line: &Line<'_>, argument: usize) -> Option<usize> {
        let text = line.arguments[argument];
        let path = Path::new(annotated(text)?);
        if !path.starts_with(self.files.directory) {
            return None;
        }
        let fd = leading(text)? as u32;
        let open = self.table(line.tid).get(&fd).copied();
        assert!(open.is_some(), "nobody opened it: {} {text}", line.tid);
        open
    }

    /// A call that only reads or only writes.
    fn data(&mut self, line: &Line<'_>, kind: Kind) {
        let Some(open) = self.opened(line, 0) else {
            return;
        };
        let length = match line.name {
            "read" | "pread64" | "write" | "pwrite64" => leading(line.arguments[2]),
            _ => Some(lengths(line.arguments[1])),
        };
        let given = match line.name {
            "pread64" | "pwrite64" | "preadv" | "pwritev" | "preadv2" | "pwritev2" => {
                leading(line.arguments[3])
            }
            _ => None,
        };
        let length = length.expect("a length");
        self.call(line, open, kind, given, length);
    }

    /// One side of a call that moves data between two descriptors. The offset, if there is one, is shown as
    /// `[before] => [after]` or `[before]`.
    fn send(&mut self, line: &Line<'_>, fd: usize, offset: Option<usize>, kind: Kind) {
        let Some(open) = self.opened(line, fd) else {
            return;
        };
        let given = offset.and_then(|at| leading(line.arguments[at].strip_prefix('[')?));
        let length = match line.name {
            "sendfile" => line.arguments[3],
            _ => line.arguments[4],
        };
        let length = leading(length).expect("a length");
        self.call(line, open, kind, given, length);
    }

    fn call(&mut self, line: &Line<'_>, open: usize, kind: Kind, given: Option<u64>, length: u64) {
        let result = line
            .result
            .split(' ')
            .nth(usize::from(line.result.starts_with('-')));
        let result = result.unwrap_or_default().to_owned();
        let moved: u64 = result.parse().unwrap_or(0);
        let Open {
            file,
            position,
            appends,
        } = self.opens[open];
        let writes = matches!(kind, Kind::Write | Kind::Fill | Kind::CopyTo);
        let offset = match given {
            _ if writes && appends => self.sizes[&file],
            Some(offset) => offset,
            None => position,
        };
        if given.is_none() {
            self.opens[open].position = offset + moved;
        }
        if writes {
            self.extend(file, offset + moved);
        }
        const UNHEARD: [&str; 5] = ["EBADF", "EISDIR", "EINVAL", "EFAULT", "ESPIPE"];
        // For sendfile and splice the kernel itself reads.
        let by_kernel =
            !self.files.sent && kind == Kind::Read && matches!(line.name, "sendfile" | "splice");
        if length == 0 || by_kernel || UNHEARD.contains(&result.as_str()) {
            return;
        }
        self.calls.push(Call {
            tid: line.tid,
            file,
            kind,
            offset,
            length,
            result,
        });
    }

    fn extend(&mut self, file: i64, end: u64) {
        let size = self.sizes.entry(file).or_insert(0);
        *size = (*size).max(end);
    }
}

/// Creator of each thread, and true if both share their descriptors.
fn creators(log: &str) -> BTreeMap<u32, (u32, bool)> {
    let mut halves = Halves::default();
    let mut creators = BTreeMap::new();
    for (tid, text) in log.lines().filter_map(numbered) {
        let Some(whole) = halves.whole(tid, text) else {
            continue;
        };
        if let Some((name, arguments, result)) = parts(&whole)
            && let Some(child) = created(name, result)
        {
            creators.insert(child, (tid, arguments.contains("CLONE_FILES")));
        }
    }
    creators
}

fn created(name: &str, result: &str) -> Option<u32> {
    let makes = matches!(name, "fork" | "vfork" | "clone" | "clone3");
    let child = leading(result).filter(|&child| makes && child > 0)?;
    u32::try_from(child).ok()
}

/// The number at the start of a text such as `3</dir/file>`.
fn leading(text: &str) -> Option<u64> {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Sum of the lengths of buffers.
fn lengths(text: &str) -> u64 {
    let each = text.split("iov_len=").skip(1);
    each.filter_map(leading).sum()
}

#[test]
fn positions_are_followed() {
    let log = r#"10 openat(AT_FDCWD</w>, "a", O_RDWR) = 3</w/a>
10 read(3</w/a>, ""..., 100) = 100
10 dup2(3</w/a>, 7</etc/x, y>) = 7</w/a>
10 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>
11 read(7</w/a>, ""..., 5) = 5
10 <... clone resumed>, child_tidptr=0x7f) = 11
11 openat(AT_FDCWD</w>, "/etc/passwd", O_RDONLY) = 3</etc/passwd>
11 read(3</etc/passwd>, ""..., 5) = 5
10 pread64(3</w/a>, ""..., 10, 1) = 10
10 readv(3</w/a>, [{iov_base=""..., iov_len=4}, {iov_base=""..., iov_len=8}], 2) = 9
10 lseek(7</w/a>, -4, SEEK_END) = 996
10 read(3</w/a>, "", 5 <unfinished ...>
11 openat(AT_FDCWD</w>, "log", O_WRONLY|O_CREAT|O_APPEND, 0666) = 4</w/log>
10 <... read resumed>)                   = 4
11 write(4</w/log>, ""..., 6) = 6
11 write(4</w/log>(deleted), ""..., 6) = -1 ENOSPC (No space left on device)
11 write(4</w/log>, ""..., 0) = 0
11 copy_file_range(7</w/a>, [2], 4</w/log>, NULL, 50, 0) = 40
11 sendfile(4</w/log>, 7</w/a>, NULL, 70) = 60
11 read(4</w/log>, 0x7f, 5) = -1 EBADF (Bad file descriptor)
"#;
    let sizes = HashMap::from([("/w/a".to_owned(), 1000), ("/w/log".to_owned(), 30)]);
    let mut opened = |_, path: &str| Some(i64::from(path == "/w/log"));
    let mut reader = Reader::new(Files {
        directory: Path::new("/w"),
        opened: &mut opened,
        sizes: &sizes,
        sent: false,
    });
    reader.read(log);
    let seen: Vec<_> = reader
        .calls
        .iter()
        .map(|c| (c.tid, c.file, c.kind, c.offset, c.length, c.result.as_str()))
        .collect();
    let expected = [
        (10, 0, Kind::Read, 0, 100, "100"),
        (11, 0, Kind::Read, 100, 5, "5"),
        (10, 0, Kind::Read, 1, 10, "10"),
        (10, 0, Kind::Read, 105, 12, "9"),
        (10, 0, Kind::Read, 996, 5, "4"),
        (11, 1, Kind::Write, 30, 6, "6"),
        (11, 1, Kind::Write, 36, 6, "ENOSPC"),
        (11, 0, Kind::CopyFrom, 2, 50, "40"),
        (11, 1, Kind::CopyTo, 36, 50, "40"),
        (11, 1, Kind::Fill, 76, 70, "60"),
    ];
    assert_eq!(seen, expected);
}
