//! A log of strace as an independent observation. It is read without any code of flowtrace but the quoting of
//! arguments.

pub(crate) mod acts;
pub(crate) mod data;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process;
use super::shape::Process;
use text::{annotated, join, number, parts, path, strings, whole_lines, with_interpreter};

/// The system calls that make processes, change what they run and where, and open or move files.
const CALLS: &str = "trace=execve,execveat,fork,vfork,clone,clone3,chdir,fchdir,open,openat,\
                     openat2,creat,rename,renameat,renameat2,unlink,unlinkat";

/// The observations of strace.
pub(crate) struct Observed {
    pub(crate) processes: Vec<Process>,
    pub(crate) threads: usize,
    pub(crate) failed_execs: usize,
    /// The processes by pid.
    pub(crate) by_pid: BTreeMap<u32, Process>,
    /// Parent of each process that was created.
    pub(crate) parents: BTreeMap<u32, u32>,
    /// Uses of files below the directory, in order.
    pub(crate) uses: Vec<Use>,
    /// The files of `uses`, by the last name of each.
    pub(crate) files: Vec<String>,
}

/// A file was opened or executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) pid: u32,
    /// Place in [`Observed::files`].
    pub(crate) file: usize,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Observed {
    /// Successful execs.
    pub(crate) fn execs(&self) -> usize {
        self.processes.iter().map(|p| p.execs.len()).sum()
    }
}

/// Runs a command in `cwd` under strace, which writes to `log`; files below `cwd` count.
#[track_caller]
pub(crate) fn observe(command: &Command, cwd: &Path, log: &Path) -> Observed {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-q", "-y", "-s", "131072", "--seccomp-bpf", "-e"])
        .args([CALLS, "-o"])
        .arg(log)
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(cwd);
    for (name, value) in command.get_envs() {
        strace.env(name, value.expect("no variable is removed"));
    }
    process::finish(&mut strace).expect(0);
    let bytes = fs::read(log).expect("the log of strace");
    read(&String::from_utf8_lossy(&bytes), cwd)
}

fn read(log: &str, directory: &Path) -> Observed {
    let lines = whole_lines(log);
    // A child's first line may come before the end of the call that made it, so the creator of each process
    // is found first.
    let mut creator = BTreeMap::new();
    let mut threads = BTreeSet::new();
    for (pid, text) in &lines {
        let Some((name @ ("fork" | "vfork" | "clone" | "clone3"), arguments, result)) = parts(text)
        else {
            continue;
        };
        // clone3 shows the values that the kernel wrote back behind "=>".
        if let Some(child) = number(result).filter(|&n| n > 0) {
            creator.insert(child, *pid);
            if name.starts_with("clone") && arguments.contains("CLONE_THREAD") {
                threads.insert(child);
            }
        }
    }
    let leader = |mut pid: u32| {
        while threads.contains(&pid) {
            pid = creator[&pid];
        }
        pid
    };

    let mut state = State {
        directory,
        cwd: BTreeMap::new(),
        processes: BTreeMap::new(),
        failed_execs: 0,
        uses: Vec::new(),
        files: Vec::new(),
        named: BTreeMap::new(),
    };
    for (pid, text) in &lines {
        let owner = leader(*pid);
        state.processes.entry(owner).or_default();
        if !state.cwd.contains_key(&owner) {
            let inherited = creator.get(&owner).and_then(|p| state.cwd.get(&leader(*p)));
            let cwd = inherited.cloned().unwrap_or_else(|| directory.to_owned());
            state.cwd.insert(owner, cwd);
        }
        if let Some(end) = text.strip_prefix("+++ ") {
            if *pid == owner {
                state.end(owner, end);
            }
        } else if let Some((name, arguments, result)) = parts(text) {
            state.call(owner, name, arguments, result);
        }
    }
    let is_process = |pid: &u32| !threads.contains(pid);
    Observed {
        processes: state.processes.values().cloned().collect(),
        threads: threads.len(),
        failed_execs: state.failed_execs,
        by_pid: state.processes,
        parents: creator
            .iter()
            .filter(|(pid, _)| is_process(pid))
            .map(|(&pid, &parent)| (pid, leader(parent)))
            .collect(),
        uses: state.uses,
        files: state.files,
    }
}

struct State<'a> {
    directory: &'a Path,
    cwd: BTreeMap<u32, PathBuf>,
    processes: BTreeMap<u32, Process>,
    failed_execs: usize,
    uses: Vec<Use>,
    files: Vec<String>,
    /// The file that has each name now.
    named: BTreeMap<String, usize>,
}

impl State<'_> {
    fn file(&mut self, name: &str) -> usize {
        let next = self.files.len();
        let file = *self.named.entry(name.to_owned()).or_insert(next);
        if file == next {
            self.files.push(name.to_owned());
        }
        file
    }

    fn used(&mut self, pid: u32, name: &str, reads: bool, writes: bool) {
        let file = self.file(name);
        self.uses.push(Use {
            pid,
            file,
            reads,
            writes,
        });
    }

    /// A name is removed from a file; a rename gives the file another name.
    fn moved(&mut self, from: &str, to: Option<String>) {
        let file = self.named.remove(from);
        if let (Some(file), Some(to)) = (file, to) {
            self.files[file] = to.clone();
            self.named.insert(to, file);
        }
    }

    /// `exited with 0 +++`, `killed by SIGPIPE +++`, `killed by SIGSEGV (core dumped) +++`.
    fn end(&mut self, pid: u32, text: &str) {
        let words: Vec<&str> = text.split(' ').collect();
        let end = match words[..] {
            ["exited", "with", code, ..] => format!("exit {code}"),
            ["killed", "by", name, ..] => {
                let signal: nix::sys::signal::Signal = name.parse().expect("a signal");
                format!("signal {}", signal as i32)
            }
            _ => return,
        };
        self.processes.entry(pid).or_default().end = end;
    }

    fn call(&mut self, pid: u32, name: &str, arguments: &str, result: &str) {
        let failed = number(result).is_none();
        if name.starts_with("execve") && failed {
            self.failed_execs += 1;
        }
        if failed {
            return;
        }
        let cwd = self.cwd[&pid].clone();
        let process = self.processes.entry(pid).or_default();
        let below = |p: &Path| {
            let relative = p.strip_prefix(self.directory).ok()?;
            Some(relative.to_string_lossy().into_owned())
        };
        match name {
            "execve" | "execveat" => {
                // The environment is shown by its address, so all strings behind "[" are arguments.
                let argv = arguments.split_once(", [").map_or("", |(_, rest)| rest);
                let argv = strings(argv);
                let file = strings(arguments).swap_remove(0);
                let argv = with_interpreter(&join(&cwd, &path(file.clone())), file, argv);
                let line = flowtrace_schema::quote_argv(argv);
                process.execs.push(line.text().into_owned());
                let program = join(&cwd, &path(strings(arguments).swap_remove(0)));
                if let Some(program) = below(&program) {
                    self.used(pid, &program, true, false);
                }
            }
            "chdir" => {
                let to = strings(arguments).swap_remove(0);
                self.cwd.insert(pid, join(&cwd, &path(to)));
            }
            "fchdir" => {
                let to = annotated(arguments).expect("strace -y");
                self.cwd.insert(pid, PathBuf::from(to));
            }
            "open" | "openat" | "openat2" | "creat" => {
                let Some(file) = annotated(result).and_then(|p| below(Path::new(p))) else {
                    return;
                };
                // A directory can be opened without O_DIRECTORY.
                let directory =
                    arguments.contains("O_DIRECTORY") || self.directory.join(&file).is_dir();
                if directory || arguments.contains("O_PATH") {
                    return;
                }
                let write_only = name == "creat" || arguments.contains("O_WRONLY");
                if write_only || arguments.contains("O_RDWR") {
                    process.written.insert(file.clone());
                }
                if !write_only {
                    process.read.insert(file.clone());
                }
                let writes = write_only || arguments.contains("O_RDWR");
                // A process that opens a file for both is the one that makes it, such as a linker. Only a
                // process that opens it read-only counts as its reader.
                self.used(pid, &file, !writes, writes);
            }
            "unlink" | "unlinkat" if arguments.contains("AT_REMOVEDIR") => {}
            "unlink" | "unlinkat" | "rename" | "renameat" | "renameat2" => {
                // The first name decides; "-y" shows the directory to which it is relative.
                let base = arguments
                    .split(['<', '>'])
                    .nth(1)
                    .filter(|_| name.contains("at"));
                let base = base.map_or(cwd, PathBuf::from);
                let mut names = strings(arguments);
                let first = names.remove(0);
                if let Some(first) = below(&join(&base, &path(first))) {
                    let renamed = name.starts_with("rename");
                    process.renames += usize::from(renamed);
                    process.unlinks += usize::from(!renamed);
                    // The second directory of renameat is that of the first in all that is traced here.
                    let second = (renamed && !names.is_empty()).then(|| names.remove(0));
                    let second = second.and_then(|to| below(&join(&base, &path(to))));
                    self.moved(&first, second);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn a_log_is_read() {
    let log = r#"10 execve("/w/a.sh", ["./a.sh", "two words", "q\"\303\274\n"], 0x7f /* 3 vars */) = 0
10 execve("/bin/none", ["none"], 0x7f /* 3 vars */) = -1 ENOENT (No such file or directory)
10 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f) = 11
11 chdir("sub" <unfinished ...>
10 openat(AT_FDCWD</w>, "in", O_RDONLY) = 3</w/in>
11 <... chdir resumed>)             = 0
11 unlink("../old")     = 0
11 openat(AT_FDCWD</w/sub>, "out", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3</w/sub/out>
11 openat(AT_FDCWD</w/sub>, ".", O_RDONLY|O_DIRECTORY) = 4</w/sub>
11 openat(AT_FDCWD</w/sub>, "/etc/passwd", O_RDONLY) = 4</etc/passwd>
11 renameat2(AT_FDCWD</w/sub>, "out", 5</w>, "new", RENAME_NOREPLACE) = 0
11 clone3({flags=CLONE_VM|CLONE_THREAD, stack=0x7f} => {parent_tid=[12]}, 88) = 12
12 openat(AT_FDCWD</w/sub>, "x", O_RDWR) = 6</w/sub/x>
12 +++ exited with 0 +++
11 --- SIGPIPE {si_signo=SIGPIPE, si_code=SI_USER, si_pid=11, si_uid=0} ---
11 +++ killed by SIGPIPE +++
10 +++ exited with 2 +++
"#;
    let seen = read(log, Path::new("/w"));
    let set = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|&n| n.into()).collect() };
    let shell = Process {
        execs: vec!["./a.sh 'two words' $'q\"ü\\n'".into()],
        end: "exit 2".into(),
        read: set(&["in"]),
        ..Process::default()
    };
    let child = Process {
        end: "signal 13".into(),
        read: set(&["sub/x"]),
        written: set(&["sub/out", "sub/x"]),
        renames: 1,
        unlinks: 1,
        ..Process::default()
    };
    super::shape::assert_same("the log", seen.processes, "the test", vec![shell, child]);
    assert_eq!((seen.threads, seen.failed_execs), (1, 1));
}
