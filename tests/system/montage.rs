//! The reference workflow, an astronomical mosaic of 181 processes and 282 execs: the result is the same with
//! and without tracing, the facts are those of strace, and other programs can read the graph.

use std::path::PathBuf;
use std::process::Command;

use crate::support::process::finish;
use crate::support::shape::{self, Process};
use crate::support::trace::Trace;
use crate::support::{self, Scratch, need_fuse, need_program, need_python, strace, tree};

/// The workload and one data directory, which can be copied.
struct Montage {
    scratch: Scratch,
    input: PathBuf,
    script: PathBuf,
}

impl Montage {
    fn prepare() -> Option<Self> {
        let source = support::shared("workloads/montage")?;
        let here = need_fuse()
            && need_program("make")
            && need_program("mProjectPP")
            && need_program("mDiffFit")
            && need_python("astropy");
        if !here {
            return None;
        }
        let scratch = Scratch::new();
        let workload = scratch.join("workload");
        tree::copy(&source, &workload);
        let input = scratch.dir("input");
        let mut data = Command::new(workload.join("data.sh"));
        finish(data.arg(&input).env("PYTHON", support::PYTHON)).expect(0);
        Some(Montage {
            input,
            script: workload.join("run.sh"),
            scratch,
        })
    }

    fn data(&self, name: &str) -> PathBuf {
        let data = self.scratch.join(name);
        tree::copy(&self.input, &data);
        data
    }

    /// The workflow with two jobs at a time and relative names, so that all runs have the same arguments.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.script);
        command.args([".", "2"]).env("PROJECT", "mProjectPP");
        command
    }

    /// Runs the workflow under flowtrace; returns its data directory and its trace.
    fn traced(&self) -> (PathBuf, PathBuf) {
        let (data, path) = (self.data("traced"), self.scratch.join("trace.db"));
        let mut command = support::run_in(&data, &path);
        command.arg("--").arg(&self.script).args([".", "2"]);
        finish(command.env("PROJECT", "mProjectPP")).expect(0);
        (data, path)
    }
}

#[test]
fn result_is_bit_identical() {
    let Some(montage) = Montage::prepare() else {
        return;
    };
    let native = montage.data("native");
    finish(montage.command().current_dir(&native)).expect(0);
    let (traced, _) = montage.traced();
    let files = tree::assert_same(&native, &traced);
    assert_eq!(files, 18 + 210, "files in in/ and out/");
}

#[test]
fn agrees_with_strace() {
    let Some(montage) = Montage::prepare() else {
        return;
    };
    if !need_program("strace") {
        return;
    }
    let (traced, path) = montage.traced();
    let trace = Trace::open_complete(&path);
    let native = montage.data("strace");
    let log = montage.scratch.join("strace.log");
    let observed = strace::observe(&montage.command(), &native, &log);

    let execs: i64 = trace.one("SELECT COUNT(*) FROM processes WHERE origin = 'exec'");
    assert_eq!(execs, i64::try_from(observed.execs()).unwrap(), "execs");
    let processes: i64 = trace.one("SELECT COUNT(*) FROM processes WHERE prev_upid IS NULL");
    assert_eq!(
        processes,
        i64::try_from(observed.processes.len()).unwrap(),
        "processes"
    );
    assert_eq!((processes, execs), (181, 282), "as the workload says");
    let threads: i64 = trace.one("SELECT COUNT(*) FROM threads");
    assert_eq!(threads, i64::try_from(observed.threads).unwrap(), "threads");
    shape::assert_same(
        "flowtrace",
        forget_races(trace.shape(&traced)),
        "strace",
        forget_races(observed.processes),
    );
    let files_read: i64 = trace.one(&format!(
        "SELECT COUNT(DISTINCT a.file_id) FROM file_access AS a JOIN files AS f USING (file_id)
         WHERE a.read_opens > 0 AND f.path LIKE '{}/%'",
        traced.display()
    ));
    assert_eq!(
        files_read, 228,
        "different files read, as the workload says"
    );
}

/// mDiffFit reads one line of the output of mDiff and mFitplane and closes the pipe. Their end, by themselves
/// or by SIGPIPE, differs from run to run, traced or not.
fn forget_races(mut processes: Vec<Process>) -> Vec<Process> {
    for process in &mut processes {
        let last = process.execs.last().map_or("", String::as_str);
        if last.starts_with("mDiff ") || last.starts_with("mFitplane ") {
            process.end.clear();
        }
    }
    processes
}

#[test]
fn expected_tasks_and_dependencies() {
    let Some(montage) = Montage::prepare() else {
        return;
    };
    let (_, path) = montage.traced();
    let trace = Trace::open_complete(&path);
    let first: i64 = trace.one("SELECT MIN(pid) FROM processes WHERE parent_upid IS NULL");
    // Images of one pid are one task: pids are not reused within two seconds.
    let tasks: i64 = trace.one(&format!(
        "SELECT COUNT(DISTINCT p.pid) FROM processes AS p JOIN processes AS parent
           ON parent.upid = p.parent_upid
         WHERE parent.pid = {first}"
    ));
    assert_eq!(tasks, 105, "tasks, the children of make");
    // Pairs of a process that wrote a file and another one that read it: 292 between tasks and 3 to make.
    // mDiff and mFitplane run for mDiffFit, and the processes under a shell for that shell.
    let pairs: i64 = trace.one(&format!(
        "WITH RECURSIVE task(upid, pid) AS (
           SELECT p.upid, p.pid FROM processes AS p JOIN processes AS parent
             ON parent.upid = p.parent_upid WHERE parent.pid = {first}
           UNION
           SELECT p.upid, task.pid FROM task JOIN processes AS p
             ON p.parent_upid = task.upid OR p.prev_upid = task.upid)
         SELECT COUNT(*) FROM (
           SELECT DISTINCT w.pid, r.pid
           FROM file_access AS fw JOIN task AS w ON w.upid = fw.upid
           JOIN files AS f ON f.file_id = fw.file_id AND f.kind = 'file'
           JOIN file_access AS fr ON fr.file_id = fw.file_id
           JOIN task AS r ON r.upid = fr.upid
           WHERE fw.write_opens > 0 AND fr.read_opens > 0 AND w.pid <> r.pid)"
    ));
    assert_eq!(pairs, 292, "dependencies between tasks through files");
}

/// The graph as a file, by `flowtrace dag`.
fn export(montage: &Montage, trace: &PathBuf, by: &str, format: &str) -> PathBuf {
    let file = montage.scratch.join(format!("{by}.{format}"));
    let mut dag = Command::new(support::FLOWTRACE);
    dag.arg("dag").arg(trace);
    dag.args(["--by", by, "--format", format, "-o"]);
    finish(dag.arg(&file)).expect(0);
    file
}

#[test]
fn graph_is_the_same_for_networkx_and_graphviz() {
    let Some(montage) = Montage::prepare() else {
        return;
    };
    if !(need_python("networkx") && need_program("gc")) {
        return;
    }
    let (_, trace) = montage.traced();
    let (nodes, edges) = same_counts(&montage, &trace, "process");
    assert!(nodes > 300, "{nodes} nodes");
    assert!(edges > 500, "{edges} edges");
    let (nodes, _) = same_counts(&montage, &trace, "rule");
    assert!((12..150).contains(&nodes), "{nodes} nodes by rule");
}

/// Number of nodes and edges; checks that they are the same in GraphML and DOT and form no cycle.
fn same_counts(montage: &Montage, trace: &PathBuf, by: &str) -> (u32, u32) {
    let (dot, graphml) = (
        export(montage, trace, by, "dot"),
        export(montage, trace, by, "graphml"),
    );
    let script = "import sys, networkx\n\
                  g = networkx.read_graphml(sys.argv[1])\n\
                  print(g.number_of_nodes(), g.number_of_edges(), g.is_directed(),\n\
                        networkx.is_directed_acyclic_graph(g))";
    let mut python = Command::new(support::PYTHON);
    let seen = finish(python.args(["-c", script]).arg(&graphml)).expect(0);
    let seen = seen.stdout_text();
    let [nodes, edges, directed, acyclic] = seen.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("networkx printed {seen:?}");
    };
    assert_eq!(
        (directed, acyclic),
        ("True", "True"),
        "a directed graph without cycles"
    );
    let counted = finish(Command::new("gc").args(["-n", "-e"]).arg(&dot)).expect(0);
    assert_eq!(counted.stderr, "", "complaints of graphviz");
    let counted = counted.stdout_text();
    let counted: Vec<&str> = counted.split_whitespace().take(2).collect();
    assert_eq!(counted, [nodes, edges], "nodes and edges by graphviz");
    (nodes.parse().unwrap(), edges.parse().unwrap())
}

#[test]
fn graph_renders() {
    let Some(montage) = Montage::prepare() else {
        return;
    };
    if !need_program("dot") {
        return;
    }
    let (_, trace) = montage.traced();
    for by in ["rule", "process"] {
        let graph = export(&montage, &trace, by, "dot");
        let picture = finish(Command::new("dot").arg("-Tsvg").arg(&graph)).expect(0);
        assert_eq!(picture.stderr, "", "complaints of graphviz");
        let picture = picture.stdout_text();
        assert!(picture.contains("<svg") && picture.contains("mProjectPP"));
    }
}
