//! Sixteen processes make, change, rename and remove the same few names. There must be no error that a plain
//! directory does not give, no resource left, and a trace with the final names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};

use crate::child;
use crate::long;
use crate::mounted::{Mounted, Options, Trace, Way};

mod errors;
mod worker;

pub(crate) use worker::work;

const PROCESSES: usize = 16;
/// Duration of each storm in s, unless `FLOWTRACE_STORM_SECONDS` is set.
const SHORT: u64 = 4;
/// Bytes by which the memory may grow between a quarter of the time and the end. Nodes and handles of removed
/// files take none; fragments of the heap, the page cache of SQLite and the names that were looked up in vain
/// (at most 65536) take some. A leak of 16 bytes for each file of the long form would be more.
const GROWTH: u64 = 32 << 20;

#[test]
fn a_storm_in_direct_passthrough() {
    blow(Way::Passthrough);
}

#[test]
fn a_storm_in_direct_mmap() {
    blow(Way::Mmap);
}

#[test]
fn a_storm_in_cached() {
    blow(Way::Cached);
}

fn blow(way: Way) {
    let output = child::run("storm", &[Path::new(&format!("{way:?}"))]);
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
}

/// Entered through `child`: descriptors and memory are those of the whole process.
pub(crate) fn storm(way: &Path) {
    let mut ways = Way::ALL.into_iter();
    let named = |one: &Way| format!("{one:?}") == way.to_string_lossy();
    let Some(mounted) = Mounted::new(Options {
        threads: 4,
        ..ways.find(named).unwrap().options()
    }) else {
        return;
    };
    let plain = mounted.trace.with_file_name("plain");
    fs::create_dir(&plain).unwrap();
    let length = long::number("FLOWTRACE_STORM_SECONDS", SHORT);

    // The results of a plain directory must be expected, too: the list of errors is made from them.
    let answers = run(&plain, length.min(20).div_ceil(4), 1);
    errors::check(&answers, "the plain directory");

    let before = run(&mounted.seen, length.div_ceil(4), 2);
    let (warm, others) = (resident(), descriptors(&mounted.source).1);
    let mut answers = run(&mounted.seen, length - length / 4, 3);
    for (answer, count) in before {
        *answers.entry(answer).or_default() += count;
    }
    errors::check(&answers, "the mount");
    let grown = resident().saturating_sub(warm);

    let (seen, real) = (tree(&mounted.seen), tree(&mounted.source));
    assert!(
        seen == real,
        "the mount and what is behind it: {seen:#?} {real:#?}"
    );
    forget_all(&mounted);
    let left = descriptors(&mounted.source);
    assert_eq!(
        left,
        (1, others),
        "descriptors: the root, and those of a quarter of the time"
    );
    assert!(grown < GROWTH, "{grown} bytes more than at a quarter");
    eprintln!(
        "{:?}: {} operations, {} failed; {} bytes resident, {grown} grown",
        mounted.layer(),
        answers.values().sum::<u64>(),
        answers
            .iter()
            .filter(|((_, errno), _)| *errno != 0)
            .map(|(_, n)| n)
            .sum::<u64>(),
        resident(),
    );
    let top = mounted.seen.clone();
    check_names(&mounted.finish(), &top, &real);
}

/// Operations and errnos, with their numbers.
type Answers = BTreeMap<(String, i32), u64>;

/// Lets all processes work in a directory.
fn run(directory: &Path, seconds: u64, storm: u64) -> Answers {
    let start = |process: usize| -> Child {
        let seed = (storm * 1000 + process as u64).to_string();
        let length = seconds.to_string();
        child::command(
            "storm_worker",
            &[directory, Path::new(&seed), Path::new(&length)],
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
    };
    let workers: Vec<Child> = (0..PROCESSES).map(start).collect();
    let mut answers = Answers::new();
    for worker in workers {
        let output = worker.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}");
        for line in text.lines().filter_map(|line| line.strip_prefix("answer ")) {
            let mut parts = line.split(' ');
            let mut part = || parts.next().unwrap();
            let key = (part().to_owned(), part().parse().unwrap());
            *answers.entry(key).or_default() += part().parse::<u64>().unwrap();
        }
    }
    answers
}

/// Path, kind, size, links and content of everything below a directory.
fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(top.join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            let there = top.join(&path);
            let metadata = fs::symlink_metadata(&there).unwrap();
            let content = if metadata.is_file() {
                format!("{:?}", fs::read(&there).unwrap())
            } else if metadata.is_symlink() {
                format!("{:?}", fs::read_link(&there).unwrap())
            } else {
                waiting.push(path.clone());
                String::new()
            };
            let (mode, links, ino) = (metadata.mode(), metadata.nlink(), metadata.ino());
            found.insert(path, format!("{mode:o} {links} {ino} {content}"));
        }
    }
    found
}

/// Makes the kernel drop the unused names of a mount, as it does under memory pressure.
pub(crate) fn drop_names(seen: &Path) {
    let flags = MsFlags::MS_REMOUNT;
    mount(None::<&str>, seen, None::<&str>, flags, None::<&str>).unwrap();
}

/// Makes the kernel forget all unused names of the mount, and waits until the daemon has got these messages:
/// a node that is left has a descriptor in the source.
pub(crate) fn forget_all(mounted: &Mounted) {
    drop_names(&mounted.seen);
    let patience = Instant::now() + Duration::from_secs(60);
    while descriptors(&mounted.source).0 > 1 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Number of descriptors of this process in a directory, removed files included, and of all others.
pub(crate) fn descriptors(source: &Path) -> (usize, usize) {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    let (inside, others): (Vec<_>, Vec<_>) = targets.partition(|to| to.starts_with(source));
    (inside.len(), others.len())
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
    pages * 4096
}

/// Checks that the names in force at the end of the trace are those of the directory.
fn check_names(trace: &Trace, top: &Path, real: &BTreeMap<PathBuf, String>) {
    let named = trace.texts(
        "SELECT DISTINCT n.path FROM file_names AS n JOIN files AS f USING (file_id)
         WHERE n.to_ns IS NULL AND f.kind != 'absent'",
    );
    let named: BTreeSet<PathBuf> = named
        .iter()
        .filter_map(|path| Path::new(path).strip_prefix(top).ok())
        .filter(|path| !path.as_os_str().is_empty())
        .map(Path::to_owned)
        .collect();
    let real: BTreeSet<PathBuf> = real.keys().cloned().collect();
    let gone: Vec<_> = named.difference(&real).collect();
    let unknown: Vec<_> = real.difference(&named).collect();
    assert!(
        gone.is_empty() && unknown.is_empty(),
        "only in the trace: {gone:#?}, only in the directory: {unknown:#?}"
    );
    let twice = "SELECT COUNT(*) FROM (
        SELECT 1 FROM file_names AS n JOIN files AS f USING (file_id)
        WHERE n.to_ns IS NULL AND f.kind != 'absent' GROUP BY n.path HAVING COUNT(*) > 1)";
    assert_eq!(trace.number(twice), 0, "names of two files at once");
}
