//! The table with events in the orders in which they may come.

use std::path::{Path, PathBuf};

use flowtrace_schema::{RunEnd, RunId, Text, Writer};
use rusqlite::Connection;

use super::reading::Reading;
use super::*;
use crate::proc::costs::Costs;
use crate::proc::taskstats::ThreadRecord;

/// Ids that no process can have: /proc has nothing of them.
const SHELL: u32 = 5_000_001;
const CHILD: u32 = 5_000_002;
const THREAD: u32 = 5_000_003;
const OTHER: u32 = 5_000_004;

struct Case {
    table: Table,
    writer: Writer,
    path: PathBuf,
    _directory: tempfile::TempDir,
    began_ns: u64,
}

fn image(argv: &[u8]) -> Image {
    Image {
        exe: Some(Text::from(Path::new("/bin/program"))),
        argv: Some(argv.to_vec()),
        cwd: Some(Text::from(Path::new("/"))),
        ..Image::default()
    }
}

impl Case {
    /// A shell is followed, as if it had used a mount.
    fn new() -> Case {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.db");
        let (writer, recorder) = Writer::create(&path, false).unwrap();
        let (clock, _) = Clock::start();
        let mut case = Case {
            table: Table::new(HostId(1), clock, recorder, Wanted::default()),
            writer,
            path,
            _directory: directory,
            began_ns: clock.monotonic_now(),
        };
        case.table.forked(OTHER, SHELL, None, case.at(0));
        case.table.caller(SHELL, SHELL).unwrap();
        case.read(SHELL, image(b"shell\0"));
        case
    }

    /// Time that many µs after the begin.
    fn at(&self, us: u64) -> u64 {
        self.began_ns + us * 1000
    }

    fn executed(&mut self, pid: u32, us: u64, argv: &[u8]) {
        let at = self.at(us);
        self.table.executed(pid, at, &Costs::default());
        self.read(pid, image(argv));
    }

    /// The image of process `pid` was read, if that was asked for.
    fn read(&mut self, pid: u32, image: Image) {
        if let Some(task) = self.table.task_of(pid) {
            self.table.fill(&task, Case::reading(image));
        }
    }

    fn reading(image: Image) -> Reading {
        Reading {
            image,
            costs: None,
            ancestors: Some(Vec::new()),
        }
    }

    fn exited(&mut self, pid: u32, tid: u32, us: u64, status: i32) {
        let at = self.at(us);
        self.table.thread_ended((pid, tid), at, status, None);
    }

    /// Ends the recording; each process image as origin, parent, previous, command, µs from start
    /// to end, code and signal.
    fn rows(mut self) -> Vec<String> {
        self.table.finish();
        let end = RunEnd {
            id: RunId(1),
            end_ns: self.table.clock.now(),
            exit_code: None,
            exit_signal: None,
        };
        self.writer.finish(&self.table.recorder, end);
        let db = Connection::open(&self.path).unwrap();
        let mut statement = db
            .prepare(
                "SELECT printf('%s %d %d %s %d %s %s', origin, COALESCE(parent_upid, 0),
                   COALESCE(prev_upid, 0), COALESCE(command, '-'),
                   COALESCE((end_ns - start_ns) / 1000, -1),
                   COALESCE(exit_code, '-'), COALESCE(exit_signal, '-'))
                 FROM process ORDER BY upid",
            )
            .unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }
}

const SHELL_ROW: &str = "fork 0 0 shell -1 - -";

#[test]
fn a_child_is_two_images() {
    let mut case = Case::new();
    case.table.forked(SHELL, CHILD, None, case.at(100));
    case.executed(CHILD, 300, b"child\0");
    case.exited(CHILD, CHILD, 1300, 7 << 8);
    let child = ["fork 1 0 shell 200 - -", "exec 1 2 child 1000 7 -"];
    assert_eq!(case.rows(), [&[SHELL_ROW], &child[..]].concat());
}

#[test]
fn what_is_forked_by_others_is_not_recorded_before_it_uses_a_view() {
    let mut case = Case::new();
    case.table.forked(OTHER, CHILD, None, case.at(100));
    case.executed(CHILD, 300, b"not read\0");
    case.exited(CHILD, CHILD, 500, 0);
    assert_eq!(case.table.caller(CHILD, CHILD), None, "it is over");
    case.table.forked(OTHER, CHILD, None, case.at(1100));
    case.executed(CHILD, 1300, b"not read\0");
    case.table.record(CHILD);
    case.read(CHILD, image(b"user\0"));
    case.exited(CHILD, CHILD, 1500, 9);
    assert_eq!(case.rows(), [SHELL_ROW, "exec 0 0 user 200 - 9"]);
}

/// Trap 2: the thread that runs the program takes the id of the process; the first one's end is
/// announced before.
#[test]
fn an_exec_by_another_thread_is_one_process() {
    let mut case = Case::new();
    case.table.forked(SHELL, CHILD, None, case.at(100));
    case.table.thread_began(CHILD, THREAD, case.at(200));
    case.table.thread_began(CHILD, OTHER, case.at(250));
    assert_eq!(case.table.process_of(THREAD), Some(CHILD));
    case.exited(CHILD, CHILD, 300, 0);
    case.executed(CHILD, 400, b"child\0");
    assert_eq!(case.table.process_of(THREAD), None);
    // The end of a thread that the exec ended may come late.
    case.exited(CHILD, OTHER, 450, 0);
    assert!(case.table.is_recorded(CHILD));
    case.exited(CHILD, CHILD, 600, 3 << 8);
    let child = ["fork 1 0 shell 300 - -", "exec 1 2 child 200 3 -"];
    assert_eq!(case.rows(), [&[SHELL_ROW], &child[..]].concat());
}

/// Trap 3: the first thread may end long before the process does.
#[test]
fn a_process_ends_with_its_last_thread() {
    let mut case = Case::new();
    case.table.forked(SHELL, CHILD, None, case.at(100));
    case.table.thread_began(CHILD, THREAD, case.at(200));
    case.exited(CHILD, CHILD, 300, 0);
    case.exited(CHILD, THREAD, 1100, 5 << 8);
    assert_eq!(case.rows(), [SHELL_ROW, "fork 1 0 shell 1000 5 -"]);
}

/// Trap 5: the end of the first owner was dropped.
#[test]
fn a_recycled_pid_is_another_process() {
    let mut case = Case::new();
    case.table.forked(SHELL, CHILD, None, case.at(100));
    case.table.forked(SHELL, CHILD, None, case.at(600));
    case.exited(CHILD, CHILD, 700, 0);
    let rows = ["fork 1 0 shell 500 - -", "fork 1 0 shell 100 0 -"];
    assert_eq!(case.rows(), [&[SHELL_ROW], &rows[..]].concat());
}

#[test]
fn a_record_of_costs_stands_for_dropped_events() {
    let mut case = Case::new();
    let record = |pid| ThreadRecord {
        pid,
        parent: SHELL,
        last: true,
        wait_status: Some(4 << 8),
        lived_us: 0,
        name: b"brief".to_vec(),
        costs: Costs::default(),
    };
    // Of one process nothing was announced, of the other the end was not.
    let total = Costs::default();
    case.table.ended_by_record(CHILD, &record(CHILD), &total);
    let at = case.table.clock.monotonic_now();
    case.table.forked(SHELL, THREAD, None, at);
    case.table.executed(THREAD, at, &total);
    case.table.ended_by_record(THREAD, &record(THREAD), &total);
    // The record of a thread of an unknown process.
    let other = ThreadRecord {
        parent: OTHER,
        ..record(OTHER)
    };
    case.table.ended_by_record(OTHER, &other, &total);
    let rows = case.rows();
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert_eq!(rows[1], "seen 1 0 brief 0 4 -");
    assert!(
        rows[3].starts_with("exec 1 3 brief") && rows[3].ends_with(" 4 -"),
        "{rows:?}"
    );
}

#[test]
fn a_command_that_was_never_announced_is_recorded() {
    let mut case = Case::new();
    case.table.launch(CHILD, None, image(b"planned\0"), true);
    case.table
        .ended(CHILD, Some(0), case.table.clock.now(), None);
    let rows = case.rows();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[1].starts_with("exec 0 0 planned"), "{rows:?}");
}

/// A process that is gone from /proc without an announcement ends now, with unknown status.
#[test]
fn what_is_gone_from_proc_has_ended() {
    let mut case = Case::new();
    case.table.forked(SHELL, CHILD, None, case.at(0));
    let seen = Snapshot::of_all(case.table.known());
    case.table.scan(&seen, false);
    let rows = case.rows();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(
        !rows[1].contains(" -1 ") && rows[1].ends_with("- -"),
        "{rows:?}"
    );
}

/// The image is read after the children that have it were forked, and one of them is over.
#[test]
fn children_wait_for_the_image_of_their_parent() {
    let mut case = Case::new();
    case.table.forked(SHELL, CHILD, None, case.at(100));
    case.table.executed(CHILD, case.at(300), &Costs::default());
    case.table.forked(CHILD, OTHER, None, case.at(400));
    case.table.forked(CHILD, THREAD, None, case.at(500));
    case.exited(OTHER, OTHER, 600, 0);
    case.read(CHILD, image(b"late\0"));
    case.exited(THREAD, THREAD, 700, 0);
    case.exited(CHILD, CHILD, 1300, 0);
    let of_child = ["fork 1 0 shell 200 - -", "exec 1 2 late 1000 0 -"];
    let forked = ["fork 3 0 late 200 0 -", "fork 3 0 late 200 0 -"];
    assert_eq!(
        case.rows(),
        [&[SHELL_ROW], &of_child[..], &forked[..]].concat()
    );
}

/// A second exec was announced while the first one was read.
#[test]
fn what_was_read_too_late_is_of_nobody() {
    let mut case = Case::new();
    case.table.forked(SHELL, CHILD, None, case.at(100));
    case.table.executed(CHILD, case.at(300), &Costs::default());
    let task = case.table.task_of(CHILD).unwrap();
    case.table.executed(CHILD, case.at(400), &Costs::default());
    case.table.fill(&task, Case::reading(image(b"second\0")));
    case.table.name(CHILD, b"named");
    case.exited(CHILD, CHILD, 1400, 0);
    let rows = case.rows();
    let child = [
        "fork 1 0 shell 200 - -",
        "exec 1 2 - 100 - -",
        "exec 1 3 named 1000 0 -",
    ];
    assert_eq!(rows, [&[SHELL_ROW], &child[..]].concat());
}

#[test]
fn an_image_that_was_not_brief_has_what_it_used() {
    let mut case = Case::new();
    case.table.forked(SHELL, CHILD, None, case.at(0));
    case.table
        .executed(CHILD, case.at(50_000), &Costs::default());
    let task = case.table.task_of(CHILD).unwrap();
    let costs = Costs {
        user_ns: 7,
        ..Costs::default()
    };
    let reading = Reading {
        costs: Some(costs),
        ..Case::reading(image(b"next\0"))
    };
    case.table.fill(&task, reading);
    let before = case.table.processes[&CHILD].before;
    assert_eq!(before, costs);
    assert_eq!(case.rows()[1], "fork 1 0 shell 50000 - -");
}
