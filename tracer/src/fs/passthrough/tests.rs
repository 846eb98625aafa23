//! The passthrough without a mount.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flowtrace_schema::{HostId, HostRecord, Record, Recorder, RunEnd, RunId, Writer};
use nix::errno::Errno;
use proptest::prelude::*;
use rusqlite::Connection;

use super::*;
use crate::fs::credentials::Requester;
use crate::fs::handle::Opener;
use crate::fs::{Hidden, Permission};

/// A passthrough of a new directory, with a trace.
struct Bench {
    passthrough: Arc<Passthrough>,
    source: PathBuf,
    writer: Writer,
    recorder: Recorder,
    trace: PathBuf,
    _directory: tempfile::TempDir,
}

const NOBODY: Opener = Opener {
    caller: None,
    tid: 0,
};
const ME: Requester = Requester {
    uid: 0,
    gid: 0,
    tid: 0,
};

impl Bench {
    fn new(hidden: Vec<Hidden>) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        fs::create_dir(&source).unwrap();
        let trace = directory.path().join("trace.db");
        let (writer, recorder) = Writer::create(&trace, false).unwrap();
        recorder.record(Record::Host(Box::new(HostRecord {
            id: HostId(1),
            name: "test".into(),
            boot_id: None,
            system: "Linux".into(),
            cpus: None,
            memory_bytes: None,
            epoch_unix_ns: 0,
        })));
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let config = Config {
            root: open(&source, flags, Mode::empty()).unwrap(),
            seen_path: "/seen".into(),
            host: HostId(1),
            kernel_passthrough: false,
            log: true,
            cached: false,
            filter: Filter::default(),
            attribute_ttl: std::time::Duration::ZERO,
            threads: 1,
            clone_fd: false,
            io_uring: false,
            permission: Permission::Process,
            owner: None,
            hidden,
            offers: Arc::default(),
            rings: Arc::default(),
        };
        let files = Arc::new(FileTable::new(recorder.clone()));
        let passthrough = Passthrough::new(config, files, Clock::start().0).unwrap();
        Bench {
            passthrough: Arc::new(passthrough),
            source,
            writer,
            recorder,
            trace,
            _directory: directory,
        }
    }

    fn root(&self) -> Arc<Node> {
        self.passthrough.node(ROOT).unwrap()
    }

    /// The node at a path; its lookup stays counted.
    fn walk(&self, path: &str) -> Result<Arc<Node>> {
        let mut node = self.root();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            node = self.passthrough.lookup(ME, &node, OsStr::new(part)).0?.node;
        }
        Ok(node)
    }

    fn split<'a>(&self, path: &'a str) -> Result<(Arc<Node>, &'a OsStr)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.walk(parent)?, OsStr::new(name)))
    }

    fn write(&self, path: &str, data: &[u8]) -> Result<()> {
        let (parent, name) = self.split(path)?;
        let new = NewFile {
            name: Some(name),
            mode: 0o644,
            mask: 0o022,
            flags: libc::O_WRONLY,
        };
        let created = self.passthrough.create(ME, NOBODY, &parent, new);
        let (_, (number, open)) = created.0?;
        let write = Write {
            offset: 0,
            data,
            by_cache: false,
            appends: false,
            strip_privilege: false,
        };
        self.passthrough.write(ME, &open, write)?;
        self.passthrough.release(number).map(drop)
    }

    fn make(&self, path: &str, new: NewNode<'_>) -> Result<()> {
        let (parent, name) = self.split(path)?;
        self.passthrough.make(ME, &parent, name, new).0.map(drop)
    }

    fn rename(&self, from: &str, to: &str, flags: u32) -> Result<()> {
        let (from, to) = (self.split(from)?, self.split(to)?);
        self.passthrough
            .rename(ME, (&from.0, from.1), (&to.0, to.1), flags)
            .map(drop)
    }

    fn remove(&self, path: &str, directory: bool) -> Result<()> {
        let (parent, name) = self.split(path)?;
        self.passthrough.remove(ME, &parent, name, directory)
    }

    /// Ends the trace and opens it.
    fn finish(self) -> (Connection, tempfile::TempDir) {
        let end = RunEnd {
            id: RunId(1),
            end_ns: 0,
            exit_code: None,
            exit_signal: None,
        };
        let summary = self.writer.finish(&self.recorder, end);
        assert_eq!(summary.write_error, None);
        (Connection::open(&self.trace).unwrap(), self._directory)
    }
}

const DIRECTORY: NewNode<'_> = NewNode::Directory {
    mode: 0o755,
    mask: 0o022,
};

#[test]
fn attributes_and_data_are_those_of_the_source() {
    let bench = Bench::new(Vec::new());
    bench.write("file", b"content").unwrap();
    let real = fs::metadata(bench.source.join("file")).unwrap();
    assert_eq!(real.permissions().mode() & 0o7777, 0o644);
    let node = bench.walk("file").unwrap();
    assert_eq!(bench.passthrough.number(&node.key), real.ino());
    let attributes = bench.passthrough.getattr(&node).unwrap();
    assert_eq!((attributes.size, attributes.ino), (7, real.ino()));
    let (number, open) = bench
        .passthrough
        .open(ME, NOBODY, node, libc::O_RDONLY)
        .unwrap();
    let mut buffer = [0; 100];
    assert_eq!(bench.passthrough.read(&open, 3, &mut buffer), Ok(4));
    assert_eq!(&buffer[..4], b"tent");
    bench.passthrough.release(number).unwrap();
    assert_eq!(bench.passthrough.release(number).err(), Some(Errno::EBADF));
}

#[test]
fn the_errno_is_that_of_the_source() {
    let bench = Bench::new(Vec::new());
    bench.write("file", b"").unwrap();
    bench.make("directory", DIRECTORY).unwrap();
    bench.write("directory/inner", b"").unwrap();
    assert_eq!(bench.walk("nothing").err(), Some(Errno::ENOENT));
    assert_eq!(bench.walk("file/below").err(), Some(Errno::ENOTDIR));
    assert_eq!(bench.make("file", DIRECTORY), Err(Errno::EEXIST));
    assert_eq!(bench.remove("directory", true), Err(Errno::ENOTEMPTY));
    assert_eq!(bench.remove("directory", false), Err(Errno::EISDIR));
    assert_eq!(bench.remove("file", true), Err(Errno::ENOTDIR));
    assert_eq!(bench.rename("file", "directory", 1), Err(Errno::EEXIST));
    assert_eq!(bench.rename("file", "file2", 1 << 20), Err(Errno::EINVAL));
    assert_eq!(bench.passthrough.node(4711).err(), Some(Errno::ESTALE));
    let fifo = NewNode::Special {
        mode: libc::S_IFIFO | 0o600,
        mask: 0,
        device: (0, 0),
    };
    bench.make("fifo", fifo).unwrap();
    let fifo = bench.walk("fifo").unwrap();
    let opened = bench.passthrough.open(ME, NOBODY, fifo, libc::O_RDONLY);
    assert_eq!(opened.err(), Some(Errno::ENXIO));
}

#[test]
fn hidden_names_are_not_there() {
    let hide = |directory: &str, name: &str| Hidden {
        directory: directory.into(),
        name: name.into(),
    };
    let bench = Bench::new(vec![hide("", "trace.db"), hide("not/there", "x")]);
    fs::write(bench.source.join("trace.db"), "").unwrap();
    fs::write(bench.source.join("shown"), "").unwrap();
    let denied = Err(Errno::EACCES);
    assert_eq!(bench.walk("trace.db").err(), Some(Errno::ENOENT));
    assert_eq!(bench.write("trace.db", b""), denied);
    assert_eq!(bench.make("trace.db", DIRECTORY), denied);
    assert_eq!(bench.rename("shown", "trace.db", 0), denied);
    assert_eq!(bench.rename("trace.db", "seen", 0), Err(Errno::ENOENT));
    assert_eq!(bench.remove("trace.db", false), Err(Errno::ENOENT));
    let shown = bench.walk("shown").unwrap();
    let linked = bench
        .passthrough
        .link(ME, &shown, &bench.root(), OsStr::new("trace.db"));
    assert_eq!(linked.err(), Some(Errno::EACCES));
    let number = bench.passthrough.opendir(ME, NOBODY, bench.root()).unwrap();
    let open = bench.passthrough.directory(number).unwrap();
    let mut names = Vec::new();
    bench
        .passthrough
        .readdir(&open, 0, |entry| {
            names.push(entry.name.to_owned());
            true
        })
        .unwrap();
    names.sort();
    assert_eq!(names, [".", "..", "shown"]);
}

#[test]
fn a_listing_goes_on_where_it_stopped() {
    let bench = Bench::new(Vec::new());
    for number in 0..2000 {
        fs::write(bench.source.join(number.to_string()), "").unwrap();
    }
    let number = bench.passthrough.opendir(ME, NOBODY, bench.root()).unwrap();
    let open = bench.passthrough.directory(number).unwrap();
    let mut names = Vec::new();
    let mut position = 0;
    loop {
        // Seven at a time; the eighth is refused and must come again.
        let before = names.len();
        bench
            .passthrough
            .readdirplus(&open, position, |found| {
                if names.len() - before == 7 {
                    return false;
                }
                position = found.listed.next;
                names.push(found.listed.name.to_owned());
                if let Some(entry) = found.entry {
                    bench.passthrough.forget(entry.node.id, 1);
                }
                true
            })
            .unwrap();
        if names.len() == before {
            break;
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 2002);
    assert_eq!(bench.passthrough.nodes.some(usize::MAX, |_| true).len(), 0);
}

#[test]
fn lookups_and_forgets_race() {
    let bench = Bench::new(Vec::new());
    let names: Vec<String> = (0..8).map(|number| number.to_string()).collect();
    let storm = |seed: u64| {
        let (passthrough, names, root) = (&bench.passthrough, &names, bench.root());
        let source = &bench.source;
        move || {
            let mut seed = seed;
            for _ in 0..20_000 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                let name = &names[(seed >> 33) as usize % names.len()];
                match (seed >> 40) % 8 {
                    0 => drop(fs::write(source.join(name), "x")),
                    1 => drop(passthrough.remove(ME, &root, OsStr::new(name), false)),
                    _ => {
                        let Ok(entry) = passthrough.lookup(ME, &root, OsStr::new(name)).0 else {
                            continue;
                        };
                        assert_eq!(passthrough.node(entry.node.id).unwrap().id, entry.node.id);
                        passthrough.forget(entry.node.id, 1);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            scope.spawn(storm(seed));
        }
    });
    assert_eq!(bench.passthrough.nodes.some(usize::MAX, |_| true).len(), 0);
}

/// One step of a random workload; names are numbers into a small set.
#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    MakeDirectory(usize),
    Symlink(usize),
    Remove(usize, bool),
    Rename(usize, usize, u32),
    Link(usize, usize),
    Lookup(usize),
}

const PATHS: [&str; 12] = [
    "a", "b", "c", "a/a", "a/b", "b/a", "b/b", "c/a", "a/a/a", "a/a/b", "b/a/a", "c/a/b",
];

fn step() -> impl Strategy<Value = Step> {
    let path = || 0..PATHS.len();
    prop_oneof![
        path().prop_map(Step::Write),
        path().prop_map(Step::MakeDirectory),
        path().prop_map(Step::MakeDirectory),
        path().prop_map(Step::Symlink),
        (path(), any::<bool>()).prop_map(|(path, directory)| Step::Remove(path, directory)),
        (path(), path(), 0u32..3).prop_map(|(from, to, flags)| Step::Rename(from, to, flags)),
        (path(), path()).prop_map(|(from, to)| Step::Link(from, to)),
        path().prop_map(Step::Lookup),
    ]
}

fn walk_real(directory: &Path, seen: &Path, found: &mut BTreeMap<PathBuf, u64>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.path().symlink_metadata().unwrap();
        let seen = seen.join(entry.file_name());
        found.insert(seen.clone(), metadata.ino());
        if metadata.is_dir() {
            walk_real(&entry.path(), &seen, found);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The names in force at the end of a trace are the names in the directory, each with the right inode,
    /// and no name is in force twice.
    #[test]
    fn names_in_force_are_the_names_there(steps in prop::collection::vec(step(), 0..60)) {
        let bench = Bench::new(Vec::new());
        for step in &steps {
            // Most steps fail because a parent or a target is missing; that is part of the test.
            let _ = match *step {
                Step::Write(path) => bench.write(PATHS[path], b"x"),
                Step::MakeDirectory(path) => bench.make(PATHS[path], DIRECTORY),
                Step::Symlink(path) => {
                    let target = OsStr::new("target");
                    bench.make(PATHS[path], NewNode::Symlink { target })
                }
                Step::Remove(path, directory) => bench.remove(PATHS[path], directory),
                Step::Rename(from, to, flags) => bench.rename(PATHS[from], PATHS[to], flags),
                Step::Link(from, to) => bench.walk(PATHS[from]).and_then(|node| {
                    let (parent, name) = bench.split(PATHS[to])?;
                    bench.passthrough.link(ME, &node, &parent, name).map(drop)
                }),
                Step::Lookup(path) => bench.walk(PATHS[path]).map(drop),
            };
        }
        let mut real = BTreeMap::new();
        walk_real(&bench.source, Path::new("/seen"), &mut real);
        let (db, _directory) = bench.finish();
        let mut statement = db.prepare(
            "SELECT n.path, f.ino FROM file_names AS n JOIN file AS f USING (file_id)
             WHERE n.to_ns IS NULL AND f.ino IS NOT NULL AND n.path != '/seen'",
        ).unwrap();
        let rows = statement.query_map([], |row| {
            Ok((PathBuf::from(row.get::<_, String>(0)?), row.get::<_, i64>(1)? as u64))
        }).unwrap();
        let rows: Vec<_> = rows.map(std::result::Result::unwrap).collect();
        let traced: BTreeMap<_, _> = rows.iter().cloned().collect();
        prop_assert_eq!(traced.len(), rows.len());
        prop_assert_eq!(traced, real);
    }
}
