//! The graph of real workflows has the dependencies that strace implies, and the programs that load its
//! exports find them there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use flowtrace_profiler::graph::{self, Dag, EdgeKind, Node};
use flowtrace_profiler::load::load;
use flowtrace_profiler::model::{ProcessId, Workflow};
use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use crate::support::process::finish;
use crate::support::strace::{self, Observed};
use crate::support::{self, Scratch, need_fuse, need_program, need_python, tree};

/// Writer, file, reader. Tasks are named by all programs that they ran.
type Dependency = (String, String, String);

/// A command line without the parts that differ between two runs: the directory, and the temporary files of
/// gcc.
fn common(line: &str, directory: &Path) -> String {
    let line = line.replace(&*directory.to_string_lossy(), ".");
    let temporary = std::env::temp_dir().join("cc");
    let temporary = temporary.to_string_lossy();
    let word = |word: &str| match word.find(&*temporary) {
        Some(at) => format!("{}TEMPORARY", &word[..at]),
        None => word.to_owned(),
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Processes as a forest: the programs that each ran, and its creator.
struct Forest<K> {
    execs: BTreeMap<K, Vec<String>>,
    parents: BTreeMap<K, K>,
}

impl<K: Ord + Copy> Forest<K> {
    /// True if a process only runs tasks: the first one, and every make.
    fn is_driver(&self, id: K) -> bool {
        let last = self.execs.get(&id).and_then(|execs| execs.last());
        let program = last.and_then(|line| line.split(' ').next()).unwrap_or("");
        !self.parents.contains_key(&id) || program.rsplit('/').next() == Some("make")
    }

    /// The task that a process is a part of: its highest ancestor below a driver.
    fn task(&self, mut id: K) -> K {
        while !self.is_driver(id) && !self.is_driver(self.parents[&id]) {
            id = self.parents[&id];
        }
        id
    }

    /// The name of each task.
    fn names(&self) -> BTreeMap<K, String> {
        let mut execs: BTreeMap<K, Vec<&str>> = BTreeMap::new();
        for (&id, lines) in &self.execs {
            let lines = lines.iter().map(String::as_str);
            execs.entry(self.task(id)).or_default().extend(lines);
        }
        let name = |(id, mut lines): (K, Vec<&str>)| {
            lines.sort_unstable();
            (id, lines.join("; "))
        };
        execs.into_iter().map(name).collect()
    }

    fn dependencies(&self, pairs: impl Iterator<Item = (K, String, K)>) -> BTreeSet<Dependency> {
        let names = self.names();
        pairs
            .map(|(writer, file, reader)| (self.task(writer), file, self.task(reader)))
            .filter(|(writer, _, reader)| writer != reader)
            .map(|(writer, file, reader)| (names[&writer].clone(), file, names[&reader].clone()))
            .collect()
    }
}

/// Dependencies by a file that one task opened for writing before another opened it for reading, or ran it.
fn by_strace(observed: &Observed, directory: &Path) -> BTreeSet<Dependency> {
    let execs = |lines: &[String]| lines.iter().map(|line| common(line, directory)).collect();
    let forest = Forest {
        execs: observed
            .by_pid
            .iter()
            .map(|(&pid, p)| (pid, execs(&p.execs)))
            .collect(),
        parents: observed.parents.clone(),
    };
    let mut writers: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
    let mut pairs = Vec::new();
    for used in &observed.uses {
        if used.writes {
            writers.entry(used.file).or_default().insert(used.pid);
        }
        if used.reads {
            let file = &observed.files[used.file];
            let of_file = writers.get(&used.file).into_iter().flatten();
            pairs.extend(of_file.map(|&writer| (writer, file.clone(), used.pid)));
        }
    }
    forest.dependencies(pairs.into_iter())
}

/// The processes that wrote a version of a file, or one that it builds on.
fn writers(dag: &Dag, version: NodeIndex) -> Vec<ProcessId> {
    let mut found = Vec::new();
    let mut versions = vec![version];
    while let Some(version) = versions.pop() {
        for edge in dag.graph.edges_directed(version, Direction::Incoming) {
            match (dag.graph[edge.source()], edge.weight().kind) {
                (Node::Process { id, .. }, EdgeKind::Write | EdgeKind::Create) => found.push(id),
                (Node::File { .. }, EdgeKind::Update) => versions.push(edge.source()),
                other => panic!("an edge to a file: {other:?}"),
            }
        }
    }
    found
}

fn by_graph(workflow: &Workflow, dag: &Dag, directory: &Path) -> BTreeSet<Dependency> {
    let execs = |id: ProcessId| {
        let images = workflow.images(id).iter().filter(|image| image.is_exec);
        let lines = images.filter_map(|image| image.command.as_deref());
        lines.map(|line| common(line, directory)).collect()
    };
    let forest = Forest {
        execs: workflow.process_ids().map(|id| (id, execs(id))).collect(),
        parents: workflow
            .process_ids()
            .filter_map(|id| Some((id, workflow.process(id).parent?)))
            .collect(),
    };
    let mut pairs = Vec::new();
    // The graph leaves out edges that close cycles; they are dependencies, too.
    let kept = dag
        .graph
        .edge_references()
        .map(|e| (e.source(), e.target()));
    let dropped = dag
        .dropped
        .iter()
        .filter(|d| d.edge.kind.is_data())
        .map(|d| (d.from, d.to));
    for (from, to) in kept.chain(dropped) {
        let (Node::File { file, .. }, Node::Process { id: reader, .. }) =
            (dag.graph[from], dag.graph[to])
        else {
            continue;
        };
        let path = workflow.file(file).path.as_deref().expect("a name");
        let Ok(path) = Path::new(path).strip_prefix(directory) else {
            continue;
        };
        let path = path.to_string_lossy().into_owned();
        pairs.extend(
            writers(dag, from)
                .into_iter()
                .map(|writer| (writer, path.clone(), reader)),
        );
    }
    forest.dependencies(pairs.into_iter())
}

/// A workload with its input, which can be run repeatedly.
struct Workload {
    scratch: Scratch,
    script: PathBuf,
}

impl Workload {
    fn prepare(name: &str, programs: &[&str]) -> Option<Workload> {
        let source = support::shared(&format!("workloads/{name}"))?;
        let here = need_fuse()
            && need_program("strace")
            && programs.iter().all(|program| need_program(program))
            && (name != "montage" || need_python("astropy"));
        if !here {
            return None;
        }
        let scratch = Scratch::new();
        let workload = scratch.join("workload");
        tree::copy(&source, &workload);
        let mut data = Command::new(workload.join("data.sh"));
        finish(
            data.arg(scratch.dir("input"))
                .env("PYTHON", support::PYTHON),
        )
        .expect(0);
        Some(Workload {
            script: workload.join("run.sh"),
            scratch,
        })
    }

    fn data(&self, name: &str) -> PathBuf {
        let data = self.scratch.join(name);
        tree::copy(&self.scratch.join("input"), &data);
        data
    }

    /// Compares the graph with strace, then the graph's exports with the graph.
    fn agrees(&self, least: usize) {
        let trace = self.scratch.join("trace.db");
        let data = self.data("traced");
        let mut run = support::run_in(&data, &trace);
        run.arg("--").arg(&self.script).args([".", "2"]);
        finish(run.env("PROJECT", "mProjectPP")).expect(0);

        let native = self.data("native");
        let mut command = Command::new(&self.script);
        command.args([".", "2"]).env("PROJECT", "mProjectPP");
        let observed = strace::observe(&command, &native, &self.scratch.join("strace.log"));

        let opened = flowtrace_schema::Trace::open(&trace).unwrap();
        let workflow = load(&opened).unwrap();
        let dag = graph::lineage(&workflow);
        assert!(
            petgraph::algo::toposort(&dag.graph, None).is_ok(),
            "a cycle"
        );
        let (ours, theirs) = (
            by_graph(&workflow, &dag, &data),
            by_strace(&observed, &native),
        );
        let only = |a: &BTreeSet<Dependency>, b: &BTreeSet<Dependency>| {
            let only: Vec<_> = a.difference(b).cloned().collect();
            (only.len(), only.into_iter().take(5).collect::<Vec<_>>())
        };
        assert!(
            ours == theirs,
            "{} dependencies by the graph, {} by strace\nonly by the graph: {:#?}\nonly by strace: {:#?}",
            ours.len(),
            theirs.len(),
            only(&ours, &theirs),
            only(&theirs, &ours),
        );
        assert!(ours.len() >= least, "only {} dependencies", ours.len());
        self.exports(&trace, &dag);
    }

    /// Every export is loaded by the programs it is for, with the nodes, edges and attributes of the graph.
    fn exports(&self, trace: &Path, dag: &Dag) {
        let files = ["dot", "graphml", "gml", "cyjs"].map(|ending| {
            let file = self.scratch.join(format!("graph.{ending}"));
            let mut write = Command::new(support::FLOWTRACE);
            write.arg("dag").arg(trace).args(["--by", "process", "-o"]);
            finish(write.arg(&file)).expect(0);
            file
        });
        // A drawing also has forks against the data, and waits of the critical path. These are not part of
        // the order.
        let drawn: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&files[3]).expect("a graph")).expect("JSON");
        let edges = drawn["elements"]["edges"].as_array().expect("edges");
        let beside = edges.iter().filter(|edge| edge["data"]["constraint"] == 0);
        let beside = beside.count();
        assert_eq!(edges.len() - beside, dag.graph.edge_count());
        let counts = [dag.graph.node_count(), edges.len()].map(|n| n.to_string());
        if let Some(script) = support::shared("validators/graph_check.py") {
            for file in &files {
                let mut check = Command::new(support::PYTHON);
                check
                    .arg(&script)
                    .args(["--nodes", &counts[0], "--edges", &counts[1]]);
                validated(check.arg(file));
            }
        }
        if need_python("networkx") {
            let compare = support::checkout("tests/truth/same_graph.py");
            let said = finish(Command::new(support::PYTHON).arg(compare).args(&files)).expect(0);
            let expected = format!("{} nodes, {} edges, acyclic", counts[0], counts[1]);
            assert_eq!(said.stdout_text().trim(), expected);
        }
        if let Some(script) = support::shared("validators/wfformat_check.py") {
            let file = self.scratch.join("run.json");
            let mut write = Command::new(support::FLOWTRACE);
            write.arg("export").arg(trace).args(["wfformat", "-o"]);
            finish(write.arg(&file)).expect(0);
            let mut check = Command::new(support::PYTHON);
            validated(
                check
                    .arg(script)
                    .args(["--own-only", "--strict"])
                    .arg(&file),
            );
        }
    }
}

/// A validator accepts the export, or reports that it lacks a dependency.
fn validated(check: &mut Command) {
    let done = check.output().expect("python");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    match done.status.code() {
        Some(0) => {}
        Some(2) => support::skip(&said),
        _ => panic!("{check:?}: {said}{}", String::from_utf8_lossy(&done.stderr)),
    }
}

#[test]
fn of_map_and_reduce() {
    if let Some(workload) = Workload::prepare("mapreduce", &["awk"]) {
        workload.agrees(15);
    }
}

#[test]
fn of_a_build_of_c() {
    if let Some(workload) = Workload::prepare("cbuild", &["make", "gcc", "ar"]) {
        workload.agrees(170);
    }
}

#[test]
#[ignore = "takes a minute: tests/long dependencies"]
fn of_variant_calling() {
    let programs = ["make", "bwa", "samtools", "bcftools", "freebayes"];
    if let Some(workload) = Workload::prepare("variant-calling", &programs) {
        workload.agrees(15);
    }
}

#[test]
#[ignore = "as long as the other tests of it together: tests/long dependencies"]
fn of_montage() {
    if let Some(workload) = Workload::prepare("montage", &["make", "mProjectPP", "mDiffFit"]) {
        workload.agrees(290);
    }
}
