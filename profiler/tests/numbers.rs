//! Every number of a summary is also a query on the views.

use flowtrace_profiler::load::load;
use flowtrace_profiler::rules;
use flowtrace_profiler::text::{summary, tree};
use flowtrace_schema::{Loss, Table, Trace, Value};

#[path = "support/montage.rs"]
mod montage;

struct Rows(Vec<Vec<Value>>);

impl Table for Rows {
    fn columns(&mut self, _: &[String]) -> std::io::Result<()> {
        Ok(())
    }

    fn row(&mut self, values: Vec<Value>) -> std::io::Result<()> {
        self.0.push(values);
        Ok(())
    }
}

fn rows(trace: &Trace, sql: &str) -> Vec<Vec<Value>> {
    let mut rows = Rows(Vec::new());
    trace.query(sql, &mut rows).unwrap();
    rows.0
}

fn integers(trace: &Trace, sql: &str) -> Vec<i64> {
    let integer = |value| match value {
        Value::Integer(n) => n,
        other => panic!("{other:?} from {sql}"),
    };
    rows(trace, sql)
        .remove(0)
        .into_iter()
        .map(integer)
        .collect()
}

fn check(is_cut: bool) {
    let (_directory, path) = montage::montage_file(5, is_cut);
    let trace = Trace::open_to_store(&path).unwrap();
    trace.store_rules(rules::infer(&trace).unwrap()).unwrap();
    let facts = summary::facts(&load(&trace).unwrap());

    let counts = integers(
        &trace,
        "SELECT SUM(prev_upid IS NULL), SUM(origin = 'exec') FROM processes",
    );
    assert_eq!(counts, [facts.processes, facts.execs]);
    let failed = integers(
        &trace,
        "SELECT COUNT(*) FROM processes WHERE exit_signal IS NOT NULL OR exit_code <> 0",
    );
    assert_eq!(
        failed,
        [facts.failures.iter().map(|f| f.count).sum::<i64>()]
    );

    let d = facts.data;
    let sums = "SELECT SUM(read_bytes), SUM(reads), SUM(write_bytes), SUM(writes) FROM file_access";
    assert_eq!(
        integers(&trace, sums),
        [d.read_bytes, d.reads, d.write_bytes, d.writes]
    );
    let files = "
        SELECT COUNT(DISTINCT CASE WHEN reads > 0 OR relation = 'read' THEN file_id END),
          COUNT(DISTINCT CASE WHEN relation IN ('write', 'create') THEN file_id END),
          COUNT(DISTINCT CASE WHEN relation = 'create' THEN file_id END)
        FROM file_access JOIN files USING (file_id) WHERE kind = 'file'";
    assert_eq!(
        integers(&trace, files),
        [d.files_read, d.files_written, d.files_created]
    );
    let unread = "
        SELECT SUM(bytes), COUNT(*) FROM (
          SELECT SUM(write_bytes) AS bytes FROM file_access JOIN files USING (file_id)
          WHERE kind = 'file' GROUP BY file_id
          HAVING SUM(write_bytes) > 0 AND SUM(reads > 0 OR relation = 'read') = 0)";
    // Of a run that was cut short it is not known what would have been read later.
    let expected = match is_cut {
        true => vec![0, 0],
        false => integers(&trace, unread),
    };
    assert_eq!(expected, [facts.never_read_bytes, facts.never_read_files]);
    let hottest = "
        SELECT file_id, SUM(read_bytes + write_bytes), SUM(calls) FROM file_access
        GROUP BY file_id ORDER BY 2 DESC, 1 LIMIT 1";
    let hot = &facts.hottest_by_bytes[0];
    assert_eq!(
        integers(&trace, hottest),
        [hot.file_id, hot.moved_bytes, hot.calls]
    );

    let by_rule = rows(
        &trace,
        "SELECT rule, SUM(upid NOT IN (SELECT prev_upid FROM processes WHERE prev_upid IS NOT NULL)),
           COALESCE(SUM(COALESCE(on_cpu_ns, user_ns + sys_ns)), 0)
         FROM processes GROUP BY rule ORDER BY 3 DESC, 1",
    );
    let ours: Vec<_> = facts
        .rules
        .iter()
        .map(|r| {
            vec![
                Value::Text(r.rule.as_ref().into()),
                Value::Integer(r.processes),
                Value::Integer(r.cpu_ns),
            ]
        })
        .collect();
    assert_eq!(by_rule, ours);
}

#[test]
fn a_summary_says_what_the_views_say() {
    check(false);
}

#[test]
fn so_does_that_of_a_run_cut_short() {
    check(true);
}

#[test]
fn a_run_cut_short_is_said_to_be() {
    let (_directory, path) = montage::montage_file(3, true);
    let workflow = load(&Trace::open(&path).unwrap()).unwrap();
    let style = summary::Style {
        width: 100,
        is_coloured: false,
    };
    let text = summary::text(&workflow, &path, style);
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("flowtrace: make -j2 was cut short after "),
        "{first}"
    );
    let style = tree::Style {
        width: 100,
        is_full: false,
    };
    assert!(tree::text(&workflow, style).contains("[no end seen] make -j2"));
}

/// The text of a summary of a made-up run that ended with exit 3 after a second, its lines joined.
fn summary_of(losses: &[(Loss, u64)]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let mut script = montage::Script::new(&path, "work");
    // This process is not the command, whose rows are missing.
    let image = script.root(("/bin/sh", &["sh", "-c", "part"]), 0);
    script.end(image, 1, Some(0), None, 1);
    for &(loss, count) in losses {
        script.lost(loss, count);
    }
    script.finish(1000, 3);
    let workflow = load(&Trace::open(&path).unwrap()).unwrap();
    let style = summary::Style {
        width: 100,
        is_coloured: false,
    };
    let text = summary::text(&workflow, &path, style);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_incomplete_trace_is_said_to_be_before_anything_else() {
    let text = summary_of(&[(Loss::StoreFull, 2), (Loss::RowsDropped, 512)]);
    let head = "flowtrace: work ended with exit 3, recorded in part for 1.0 s · at least 1 process, \
                1 exec incomplete 512 rows could not be stored: the disk of the trace was full";
    assert!(text.starts_with(head), "{text}");
    for claim in ["finished", "left behind", "every", "nothing"] {
        assert!(!text.contains(claim), "{claim:?} is not known: {text}");
    }
    let whole = summary_of(&[]);
    assert!(
        whole.contains("finished in 1.0 ms") && whole.contains("every process"),
        "{whole}"
    );
}

#[test]
fn files_that_no_call_moved_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let mut script = montage::Script::new(&path, "work");
    let image = script.root(("/bin/work", &["work"]), 0);
    let mut file = |name: &str, size| {
        script.file(
            &format!("/w/{name}"),
            flowtrace_schema::FileKind::File,
            size,
            0,
        )
    };
    let (mapped, read, empty) = (file("mapped", 1000), file("read", 500), file("empty", 0));
    let _unused = file("unused", 70);
    script.read(image, mapped, 0, 0, 1);
    script.read(image, read, 1, 500, 2);
    script.read(image, empty, 0, 0, 3);
    script.end(image, 9, Some(0), None, 1);
    script.finish(10, 0);
    let data = summary::facts(&load(&Trace::open(&path).unwrap()).unwrap()).data;
    assert_eq!((data.files_not_moved, data.not_moved_bytes), (1, 1000));
}

#[test]
fn patterns_that_leave_out_everything_are_named() {
    let text = summary_of(&[(Loss::Excluded, 1200)]);
    assert!(
        text.contains("no file call was recorded: --include and --exclude left out all 1 200"),
        "{text}"
    );
}

#[test]
fn the_full_tree_has_every_process_once() {
    let (_directory, path) = montage::montage_file(5, false);
    let workflow = load(&Trace::open(&path).unwrap()).unwrap();
    let style = tree::Style {
        width: 200,
        is_full: true,
    };
    let lines = tree::text(&workflow, style).lines().count();
    // The other two lines are a heading and the longest chain.
    assert_eq!(lines, workflow.processes.len() + 2);
    assert_eq!(tree::rows(&workflow).len(), workflow.processes.len());
}

#[test]
fn a_hundred_thousand_nested_forks_are_no_problem() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep.db");
    let mut script = montage::Script::new(&path, "deep");
    let mut image = script.root(("/bin/sh", &["sh", "deep.sh"]), 0);
    for at in 1..100_000 {
        image = script.fork(image, ("/bin/sh", &["sh", "deep.sh"]), at);
    }
    // The deepest process answers the first: a cycle as long as it can be.
    let file = script.file("/w/answer", flowtrace_schema::FileKind::File, 1, 0);
    script.create(image, file, 1, 1, 100_000);
    script.read(1, file, 1, 1, 100_010);
    script.finish(100_100, 0);
    let workflow = load(&Trace::open(&path).unwrap()).unwrap();
    let style = tree::Style {
        width: 100,
        is_full: false,
    };
    let text = tree::text(&workflow, style);
    assert_eq!(text.lines().count(), 100_002);
    assert!(text.len() < 20_000_000);
    let dag = flowtrace_profiler::graph::build(&workflow);
    assert_eq!((dag.graph.edge_count(), dag.dropped.len()), (100_000, 1));
    let rules = flowtrace_profiler::graph::groups::by_rule(&workflow, &dag);
    assert_eq!(rules.graph.node_count(), 3, "writer, file, reader");
}

#[test]
fn an_empty_trace_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("empty.db");
    montage::Script::new(&path, "true").cut();
    let workflow = load(&Trace::open(&path).unwrap()).unwrap();
    let style = summary::Style {
        width: 100,
        is_coloured: false,
    };
    assert!(summary::text(&workflow, &path, style).contains("0 processes"));
    assert_eq!(
        flowtrace_profiler::graph::build(&workflow)
            .graph
            .node_count(),
        0
    );
}
