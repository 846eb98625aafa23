//! WfFormat 1.6, the format of WfCommons: one JSON document with the workflow's structure and the
//! measured values.
//!
//! A task is a process that data connects to others: it read, wrote, or used a pipe. Each version of a
//! process that is cut is a task. Dependencies are those of data; forks are not among them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Write};

use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;
use serde_json::{Map, Value, json};

use crate::argv::unquote;
use crate::graph::{Dag, EdgeKind, Node};
use crate::model::{FileIndex, ProcessId, Workflow};

/// The exact names of files whose names are not UTF-8.
pub type RawNames = HashMap<FileIndex, Vec<u8>>;

/// Writes the workflow. Ids of files are made from the bytes of their names. `raw_names` has the names
/// that are not UTF-8.
///
/// # Errors
/// When `out` fails.
pub fn write(
    workflow: &Workflow,
    dag: &Dag,
    raw_names: &RawNames,
    out: &mut impl Write,
) -> io::Result<()> {
    let tasks = Tasks::of(workflow, dag, raw_names);
    let run = workflow.runs.first();
    let name = run
        .and_then(|run| run.command.as_deref())
        .unwrap_or("recording");
    let started = run.and_then(|run| run.started_unix_ns).unwrap_or(0);
    let instance = json!({
        "name": name,
        "schemaVersion": "1.6",
        "createdAt": iso_time(started),
        "runtimeSystem": {
            "name": "flowtrace",
            "version": run.map_or("unknown", |run| run.version.as_str()),
        },
        "workflow": {
            "specification": tasks.specification(workflow),
            "execution": tasks.execution(workflow, started),
        },
        "flowtrace": {
            "cutShort": workflow.is_cut_short(),
            "edgesLeftOutOfCycles": dag.dropped.len(),
        },
    });
    serde_json::to_writer_pretty(&mut *out, &instance)?;
    writeln!(out)
}

/// A process, or a version of a process that is cut.
struct Task {
    node: NodeIndex,
    process: ProcessId,
    /// Number of the version, and number of versions.
    version: (u32, u32),
    /// Begin and end, ns; `None` if the end was not recorded.
    lived: (i64, Option<i64>),
    id: String,
}

struct Tasks<'a> {
    dag: &'a Dag,
    /// The tasks in the order of their begin.
    tasks: Vec<Task>,
    place_of: HashMap<NodeIndex, usize>,
    /// The ids of files, by node.
    files: BTreeMap<NodeIndex, String>,
    parents: Vec<BTreeSet<usize>>,
    children: Vec<BTreeSet<usize>>,
}

impl Task {
    fn of(
        workflow: &Workflow,
        dag: &Dag,
        node: NodeIndex,
        process: ProcessId,
        version: (u32, u32),
    ) -> Task {
        let upid = workflow.images(process)[0].upid;
        let name = workflow.rule(process).replace(" → ", "-");
        let mut id = format!("{}_{upid}", escaped(&name, "_-."));
        if version.0 > 1 {
            id += &format!(":{}", version.0);
        }
        Task {
            node,
            process,
            version,
            lived: dag.version_ns(workflow, process, version.0),
            id,
        }
    }
}

impl<'a> Tasks<'a> {
    fn of(workflow: &Workflow, dag: &'a Dag, raw_names: &RawNames) -> Self {
        let is_data = |kind: EdgeKind| kind.is_data() && kind != EdgeKind::Exec;
        let has_data = |node: NodeIndex| {
            [Direction::Incoming, Direction::Outgoing]
                .into_iter()
                .flat_map(|direction| dag.graph.edges_directed(node, direction))
                .any(|edge| is_data(edge.weight().kind))
        };
        let mut found: Vec<NodeIndex> = dag.graph.node_indices().collect();
        found.retain(|&node| has_data(node));
        if !found
            .iter()
            .any(|&node| matches!(dag.graph[node], Node::Process { .. }))
        {
            // The format wants at least one task.
            found.extend(workflow.root().map(|id| NodeIndex::new(id.0 as usize)));
        }
        let mut tasks: Vec<Task> = found
            .into_iter()
            .filter_map(|node| match dag.graph[node] {
                Node::Process {
                    id,
                    version,
                    versions,
                } => Some(Task::of(workflow, dag, node, id, (version, versions))),
                Node::File { .. } => None,
            })
            .collect();
        tasks.sort_by_key(|task| (task.lived.0, task.process, task.version));
        let place_of = tasks.iter().enumerate().map(|(i, t)| (t.node, i)).collect();
        let mut tasks = Tasks {
            dag,
            place_of,
            files: BTreeMap::new(),
            parents: vec![BTreeSet::new(); tasks.len()],
            children: vec![BTreeSet::new(); tasks.len()],
            tasks,
        };
        tasks.name_files(workflow, raw_names);
        tasks.connect();
        tasks
    }

    /// Gives each file an id: its path. Further versions, and other files of the same path, have a
    /// number after `:`.
    fn name_files(&mut self, workflow: &Workflow, raw_names: &RawNames) {
        let mut seen: HashMap<&[u8], u32> = HashMap::new();
        for node in self.dag.graph.node_indices() {
            let Node::File { file, .. } = self.dag.graph[node] else {
                continue;
            };
            let is_used = self
                .dag
                .graph
                .neighbors_undirected(node)
                .any(|other| self.task(other).is_some());
            let is_only_program = [Direction::Incoming, Direction::Outgoing]
                .into_iter()
                .flat_map(|direction| self.dag.graph.edges_directed(node, direction))
                .all(|edge| edge.weight().kind == EdgeKind::Exec);
            if !is_used || is_only_program {
                continue;
            }
            let path = match raw_names.get(&file) {
                Some(bytes) => bytes.as_slice(),
                None => {
                    let path = workflow.file(file).path.as_deref();
                    path.unwrap_or("unknown").as_bytes()
                }
            };
            let number = seen.entry(path).or_default();
            *number += 1;
            let id = escaped_bytes(path, "_-./");
            let id = if *number == 1 {
                id
            } else {
                format!("{id}:{number}")
            };
            self.files.insert(node, id);
        }
    }

    fn task(&self, node: NodeIndex) -> Option<usize> {
        self.place_of.get(&node).copied()
    }

    fn connect(&mut self) {
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        let mut writers: HashMap<NodeIndex, BTreeSet<usize>> = HashMap::new();
        for edge in self.dag.graph.edge_references() {
            let Some(to) = self.task(edge.target()) else {
                continue;
            };
            match (edge.weight().kind, self.task(edge.source())) {
                (EdgeKind::Fork, _) => {}
                (_, Some(from)) => pairs.push((from, to)),
                (_, None) => {
                    let file = edge.source();
                    let writers = writers.entry(file).or_insert_with(|| self.writers(file));
                    pairs.extend(writers.iter().map(|&from| (from, to)));
                }
            }
        }
        for (from, to) in pairs.into_iter().filter(|(from, to)| from != to) {
            self.parents[to].insert(from);
            self.children[from].insert(to);
        }
    }

    /// The tasks that wrote a version of a file, or versions on which it builds. A task that wrote a
    /// version and read the one before depends on all writers of that one, so the search ends there.
    fn writers(&self, file: NodeIndex) -> BTreeSet<usize> {
        let graph = &self.dag.graph;
        let mut found = BTreeSet::new();
        let mut version = Some(file);
        while let Some(node) = version.take() {
            let mut before = None;
            let mut wrote = Vec::new();
            for edge in graph.edges_directed(node, Direction::Incoming) {
                match self.task(edge.source()) {
                    Some(task) => wrote.push((task, edge.source())),
                    None if edge.weight().kind == EdgeKind::Update => before = Some(edge.source()),
                    None => {}
                }
            }
            version = before.filter(|&before| {
                let readers: HashSet<NodeIndex> = graph.neighbors(before).collect();
                !wrote.iter().any(|(_, task)| readers.contains(task))
            });
            found.extend(wrote.into_iter().map(|(task, _)| task));
        }
        found
    }

    fn specification(&self, workflow: &Workflow) -> Value {
        let ids = |tasks: &BTreeSet<usize>| -> Vec<&str> {
            tasks
                .iter()
                .map(|&task| self.tasks[task].id.as_str())
                .collect()
        };
        let mut sizes = 0_i64;
        let files: Vec<Value> = self
            .files
            .iter()
            .map(|(&node, id)| {
                let Node::File { file, version, .. } = self.dag.graph[node] else {
                    return Value::Null;
                };
                let path = workflow.file(file).path.as_deref();
                // The format demands a size. Where it is unknown, the document says so.
                let size = self.dag.graph[node].size_bytes(workflow);
                sizes = sizes.saturating_add(size.unwrap_or(0));
                json!({"id": id, "sizeInBytes": size.unwrap_or(0),
                    "flowtrace": {"path": path, "version": version,
                        "sizeIsKnown": size.is_some()}})
            })
            .collect();
        let tasks: Vec<Value> = self
            .tasks
            .iter()
            .enumerate()
            .map(|(i, task)| {
                let files = |direction: Direction| -> Vec<&str> {
                    let neighbours = self.dag.graph.neighbors_directed(task.node, direction);
                    let names: BTreeSet<&str> = neighbours
                        .filter_map(|other| self.files.get(&other).map(String::as_str))
                        .collect();
                    names.into_iter().collect()
                };
                json!({"name": workflow.rule(task.process).as_ref(), "id": task.id,
                    "parents": ids(&self.parents[i]), "children": ids(&self.children[i]),
                    "inputFiles": files(Direction::Incoming),
                    "outputFiles": files(Direction::Outgoing)})
            })
            .collect();
        let (levels, narrowest, widest) = self.levels();
        json!({
            "metrics": {"numberOfTasks": tasks.len(), "numberOfFiles": files.len(),
                "sumOfFileSizesInBytes": sizes, "numberOfLevels": levels,
                "minimumWidth": narrowest, "maximumWidth": widest},
            "tasks": tasks,
            "files": files,
        })
    }

    /// Number of levels, and the fewest and most tasks on one level.
    fn levels(&self) -> (usize, usize, usize) {
        let mut missing: Vec<usize> = self.parents.iter().map(BTreeSet::len).collect();
        let mut level = vec![0; self.tasks.len()];
        let mut ready: Vec<usize> = (0..missing.len()).filter(|&i| missing[i] == 0).collect();
        while let Some(task) = ready.pop() {
            for &child in &self.children[task] {
                level[child] = level[child].max(level[task] + 1);
                missing[child] -= 1;
                if missing[child] == 0 {
                    ready.push(child);
                }
            }
        }
        let mut widths = vec![0; level.iter().max().map_or(0, |&last| last + 1)];
        for level in level {
            widths[level] += 1;
        }
        let narrowest = widths.iter().min().copied().unwrap_or(0);
        (
            widths.len(),
            narrowest,
            widths.iter().max().copied().unwrap_or(0),
        )
    }

    fn execution(&self, workflow: &Workflow, started: i64) -> Value {
        let mut hosts = BTreeSet::new();
        let tasks: Vec<Value> = self
            .tasks
            .iter()
            .map(|task| execution(workflow, task, started, &mut hosts))
            .collect();
        let machines: Vec<Value> = hosts
            .iter()
            .map(|host| json!({"nodeName": host, "system": "linux"}))
            .collect();
        json!({
            "makespanInSeconds": seconds(workflow.duration_ns()),
            "executedAt": iso_time(started),
            "tasks": tasks,
            "machines": machines,
        })
    }
}

fn execution(workflow: &Workflow, of: &Task, started: i64, hosts: &mut BTreeSet<String>) -> Value {
    let id = of.process;
    let process = workflow.process(id);
    let image = workflow.last_image(id);
    let (begin, end) = of.lived;
    let life = (end.unwrap_or(workflow.last_ns) - begin).max(0);
    let whole = process
        .duration_ns()
        .unwrap_or(workflow.last_ns - process.start_ns);
    let mut task = Map::new();
    task.insert("id".into(), json!(of.id));
    task.insert("runtimeInSeconds".into(), json!(seconds(life)));
    task.insert(
        "executedAt".into(),
        json!(iso_time(started.saturating_add(begin))),
    );
    let mut arguments = image.command.as_deref().map(unquote).unwrap_or_default();
    arguments.retain(|argument| !argument.is_empty());
    if !arguments.is_empty() {
        let program = arguments.remove(0);
        task.insert(
            "command".into(),
            json!({"program": program, "arguments": arguments}),
        );
    }
    if let Some(cpu) = process.cpu_ns.filter(|_| whole > 0) {
        task.insert("avgCPU".into(), json!(cpu as f64 * 100.0 / whole as f64));
    }
    // Amounts moved by the whole process are given once, in its last version.
    let is_last = of.version.0 == of.version.1;
    let moved = |bytes: Option<i64>| bytes.filter(|_| is_last);
    let peak = workflow
        .images(id)
        .iter()
        .filter_map(|i| i.max_rss_bytes)
        .max();
    for (key, value) in [
        ("readBytes", moved(process.read_bytes)),
        ("writtenBytes", moved(process.write_bytes)),
        ("memoryInBytes", peak),
    ] {
        if let Some(value) = value {
            task.insert(key.into(), json!(value));
        }
    }
    if let Some(host) = &image.host {
        let host = escaped(host, "-.").replace('#', "-");
        task.insert("machines".into(), json!([host]));
        hosts.insert(host);
    }
    let upids: Vec<i64> = workflow.images(id).iter().map(|image| image.upid).collect();
    let commands: Vec<_> = workflow
        .named_images(id)
        .map(|i| i.command.as_deref())
        .collect();
    let extra = json!({"upids": upids, "command": image.command.as_deref(), "commands": commands,
        "version": of.version.0, "versions": of.version.1,
        "exitCode": process.exit_code, "endIsKnown": process.end_ns.is_some()});
    task.insert("flowtrace".into(), extra);
    Value::Object(task)
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// Escapes a text so that this can be undone: letters, digits and `allowed` stay, other bytes become
/// `#XX`.
fn escaped(text: &str, allowed: &str) -> String {
    escaped_bytes(text.as_bytes(), allowed)
}

fn escaped_bytes(bytes: &[u8], allowed: &str) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for &byte in bytes {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || allowed.contains(c) {
            escaped.push(c);
        } else {
            escaped += &format!("#{byte:02X}");
        }
    }
    escaped
}

/// A time as ISO 8601 in UTC.
fn iso_time(unix_ns: i64) -> String {
    let seconds = unix_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01 in eras of 400 years (Howard Hinnant, "chrono-compatible low-level date
    // algorithms").
    let z = days + 719_468;
    let (era, of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let millis = unix_ns.rem_euclid(1_000_000_000) / 1_000_000;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{millis:03}+00:00",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(iso_time(0), "1970-01-01T00:00:00.000+00:00");
        assert_eq!(
            iso_time(1_709_210_096_789_000_000),
            "2024-02-29T12:34:56.789+00:00"
        );
    }

    #[test]
    fn names_that_differ_stay_different() {
        assert_eq!(escaped("a b", "_"), "a#20b");
        assert_ne!(escaped("a b", "_"), escaped("a#20b", "_"));
        assert_eq!(escaped("ü:", "_./"), "#C3#BC#3A");
        assert_eq!(escaped_bytes(b"b\xff.t", "."), "b#FF.t");
    }
}
