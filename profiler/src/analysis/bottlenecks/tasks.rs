//! Groups processes into the tasks of Battré et al., and pipes, sockets and files into the edges between
//! them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use petgraph::Direction;
use petgraph::algo::toposort;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::graph::rounds::rounds;
use crate::graph::{Dag, Edge, EdgeKind, Node};
use crate::model::{Access, FileIndex, ProcessId, Relation, Stream, Way, Workflow};
use crate::timeline::{Part, State, Timeline};

/// Most files named for an edge; more are only counted.
const NAMED: usize = 3;
/// Most places of one group that are tasks of their own.
const MOST_PLACES: usize = 64;

/// The instances of one task: programs that processes ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Name of the group.
    pub group: String,
    /// Number of this part of its group, from 1. A group has parts if it stands at several places of the
    /// graph: the two `sort` of `sort | uniq | sort`.
    pub part: usize,
    /// Number of parts of the group.
    pub parts: usize,
    /// Its instances in the order of discovery.
    pub members: Vec<Part>,
}

impl Task {
    /// Name shown to people: `sort (stage 1 of 2)`, unlike `sort [1/2]` in the graph, which is a version of
    /// a process.
    pub fn name(&self) -> String {
        match self.parts {
            0 | 1 => self.group.clone(),
            parts => format!("{} (stage {} of {parts})", self.group, self.part),
        }
    }
}

/// Channels and files that lead from one task to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskEdge {
    /// Writing task; of two tasks that write to each other, the one that asks first.
    pub from: usize,
    /// Reading task.
    pub to: usize,
    /// Direction of the data; files and pipes lead forth.
    pub way: Way,
    /// Time that processes of `from` and of `to` waited until they could write to the other task, ns.
    pub full_ns: (f64, f64),
    /// Pipes and sockets: places in the timeline.
    pub channels: Vec<u32>,
    /// The first few of the files.
    pub files: Vec<FileIndex>,
    /// Number of files.
    pub file_count: usize,
}

impl TaskEdge {
    /// The task that writes and the task that reads. If data went both ways, the writer is the task that
    /// waited longer to write.
    pub fn ends(&self) -> (usize, usize) {
        match self.is_back() {
            true => (self.to, self.from),
            false => (self.from, self.to),
        }
    }

    /// The arrow from the first of these ends to the other.
    pub fn arrow(&self) -> &'static str {
        match self.way {
            Way::Both if self.full_ns != (0.0, 0.0) => Way::Forth.arrow(),
            way => way.arrow(),
        }
    }

    /// The tasks in whose lives the edge carries data: the writer, and for a network connection also the
    /// reader, because data is on its way.
    pub fn carriers(&self, timeline: &Timeline) -> Vec<usize> {
        let (from, to) = self.ends();
        match self.is_network(timeline) {
            true => vec![from, to],
            false => vec![from],
        }
    }

    /// True if some of the data leaves the machine, or may.
    pub fn is_network(&self, timeline: &Timeline) -> bool {
        let mut channels = self.channels.iter();
        channels.any(|&at| timeline.channels[at as usize].is_network())
    }

    fn is_back(&self) -> bool {
        self.way != Way::Forth && self.full_ns.1 > self.full_ns.0
    }
}

/// The graph of tasks.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Every program of every process and its task; `None`: the program only runs others, or is a pause
    /// between two polls.
    pub parts: Vec<(Part, Option<usize>)>,
    /// Task that the data of each process counts for; `None`: the process only runs others.
    pub of: Vec<Option<usize>>,
    /// The edges, by their ends.
    pub edges: Vec<TaskEdge>,
}

/// Groups the programs of processes by `names`, one for each. With `split`, a group that stands at several
/// places of the graph becomes several tasks, so that few cycles have to be contracted.
pub fn tasks(
    workflow: &Workflow,
    dag: &Dag,
    timeline: &Timeline,
    names: &[String],
    split: bool,
) -> Tasks {
    let part = data_part(dag);
    let moves = with_data(workflow, timeline);
    let of_process: Vec<&str> = moves
        .iter()
        .map(|&program| names[program].as_str())
        .collect();
    let place = if split {
        few_places(places(workflow, &part, &of_process), &of_process)
    } else {
        vec![(0, 0); of_process.len()]
    };
    let mut tasks = Tasks {
        of: vec![None; of_process.len()],
        ..Tasks::default()
    };
    let mut at: HashMap<(&str, (u32, u32)), usize> = HashMap::new();
    let pollers: HashSet<ProcessId> = workflow.polls.iter().map(|poll| poll.poller).collect();
    for (program, name) in names.iter().enumerate() {
        let part = timeline.part(program);
        let is_pause = || {
            let parent = workflow.process(part.process).parent;
            parent.is_some_and(|parent| pollers.contains(&parent)) && is_pause(timeline, part)
        };
        if timeline.only_runs[program] || is_pause() {
            tasks.parts.push((part, None));
            continue;
        }
        let process = part.process.0 as usize;
        let is_place = moves[process] == program;
        let place = if is_place { place[process] } else { (0, 0) };
        let task = *at.entry((name.as_str(), place)).or_insert_with(|| {
            tasks.tasks.push(Task {
                group: name.clone(),
                part: 1,
                parts: 1,
                members: Vec::new(),
            });
            tasks.tasks.len() - 1
        });
        tasks.tasks[task].members.push(part);
        tasks.parts.push((part, Some(task)));
        if is_place {
            tasks.of[process] = Some(task);
        }
    }
    number_parts(&mut tasks.tasks, &at);
    tasks.edges = edges(workflow, &part, timeline, &tasks.of);
    tasks
}

/// True for a pause between two polls: a program that mostly waits. Such a program shares no work with
/// others of its name, for example with one that makes the file polled for.
fn is_pause(timeline: &Timeline, part: Part) -> bool {
    let pieces = timeline.pieces_within(part.process, part.from, part.to);
    let waits = pieces
        .iter()
        .filter(|piece| piece.state == State::In && piece.channel.is_none());
    let waited: i64 = waits.map(|piece| piece.overlap(part.from, part.to)).sum();
    2 * waited > part.to - part.from
}

/// For each process, the program that its data counts for: the graph has one node for all its programs. The
/// choice is the program that used most files written in the run, for only such files lead from step to step.
/// If no program used any, it is the longest one that did not only run others.
fn with_data(workflow: &Workflow, timeline: &Timeline) -> Vec<usize> {
    let programs = &timeline.programs;
    let is_written = |access: &&Access| access.relation() >= Relation::Write;
    let written = workflow.accesses.iter().filter(is_written);
    let written: HashSet<FileIndex> = written.map(|access| access.file).collect();
    let mut uses = vec![0_usize; programs.stints.len()];
    let accesses = workflow.accesses.iter();
    for access in accesses.filter(|access| written.contains(&access.file)) {
        uses[programs.at(access.process, access.span_ns.0)] += 1;
    }
    let of_process = |id| {
        let places = programs.of_process(id);
        let last = places.end - 1;
        let steps = places.filter(|&place| !timeline.only_runs[place]);
        steps
            .max_by_key(|&place| {
                let part = timeline.part(place);
                (uses[place], part.to - part.from)
            })
            .unwrap_or(last)
    };
    workflow.process_ids().map(of_process).collect()
}

/// The edges along which data moves.
fn data_part(dag: &Dag) -> DiGraph<Node, Edge> {
    dag.graph.filter_map(
        |_, node| Some(*node),
        |_, edge| edge.kind.is_data().then_some(*edge),
    )
}

/// The place of each process among those of its name in the graph: the number of processes with the same
/// name before it in its pipeline, and the number of times that a path through files comes back to it.
fn places(workflow: &Workflow, part: &DiGraph<Node, Edge>, names: &[&str]) -> Vec<(u32, u32)> {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let name: Vec<u32> = names
        .iter()
        .map(|name| {
            let next = numbers.len() as u32;
            *numbers.entry(name).or_insert(next)
        })
        .collect();
    let streams = streams(workflow, part);
    let mut stage = vec![0; names.len()];
    let mut before: Vec<HashMap<u32, u32>> = vec![HashMap::new(); names.len()];
    for node in toposort(&streams, None).unwrap_or_default() {
        let at = node.index();
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for source in streams.neighbors_directed(node, Direction::Incoming) {
            for (&name, &count) in &before[source.index()] {
                let kept = counts.entry(name).or_insert(0);
                *kept = count.max(*kept);
            }
        }
        let is_end = streams.neighbors(node).next().is_none();
        stage[at] = counts.get(&name[at]).copied().unwrap_or(0);
        if !is_end {
            *counts.entry(name[at]).or_insert(0) += 1;
            before[at] = counts;
        }
    }
    let mut groups: HashMap<(u32, u32), u32> = HashMap::new();
    let mut group: Vec<u32> = Vec::with_capacity(part.node_count());
    for at in 0..names.len() {
        let next = groups.len() as u32;
        group.push(*groups.entry((name[at], stage[at])).or_insert(next));
    }
    let first_file = groups.len() as u32;
    group.extend((0..part.node_count().saturating_sub(names.len())).map(|i| first_file + i as u32));
    // An answer is no way back to an earlier round either.
    let asked = part.filter_map(
        |_, node| Some(*node),
        |edge, weight| {
            let (from, to) = part.edge_endpoints(edge)?;
            let is_answer = is_stream(weight)
                && from.index() < names.len()
                && to.index() < names.len()
                && !streams.contains_edge(from, to);
            (!is_answer).then_some(*weight)
        },
    );
    let round = rounds(&asked, &group).of;
    (0..names.len()).map(|at| (stage[at], round[at])).collect()
}

/// Makes a group that stands at very many places one task. Such a group is a loop: its rounds all show the
/// same, and each would have an edge from all rounds before it.
fn few_places(mut places: Vec<(u32, u32)>, names: &[&str]) -> Vec<(u32, u32)> {
    let mut of: HashMap<&str, BTreeSet<(u32, u32)>> = HashMap::new();
    for (name, &place) in names.iter().zip(&places) {
        of.entry(name).or_default().insert(place);
    }
    for (name, place) in names.iter().zip(&mut places) {
        if of[name].len() > MOST_PLACES {
            *place = (0, 0);
        }
    }
    places
}

fn is_stream(edge: &Edge) -> bool {
    matches!(edge.kind, EdgeKind::Pipe | EdgeKind::Socket)
}

/// The graph of processes that wrote to each other through pipes and sockets. Of two that wrote in both
/// directions, the older process is taken as the one that asks, even if the graph had to leave out one of
/// the directions: the workers of a pool are no pipeline.
fn streams(workflow: &Workflow, part: &DiGraph<Node, Edge>) -> DiGraph<(), ()> {
    let count = workflow.processes.len();
    let writes_to = |from: ProcessId, to: ProcessId| {
        let key = |stream: &Stream| (stream.from, stream.to);
        workflow
            .streams
            .binary_search_by_key(&(from, to), key)
            .is_ok()
    };
    let id = |node: NodeIndex| (node.index() < count).then(|| ProcessId(node.index() as u32));
    let mut ends = BTreeSet::new();
    for edge in part.edge_references() {
        if let Some((from, to)) = id(edge.source()).zip(id(edge.target()))
            && is_stream(edge.weight())
            && !writes_to(to, from)
        {
            ends.insert((from, to));
        }
    }
    let start = |id: ProcessId| (workflow.process(id).start_ns, id);
    for stream in &workflow.streams {
        if start(stream.from) < start(stream.to) && writes_to(stream.to, stream.from) {
            ends.insert((stream.from, stream.to));
        }
    }
    let mut graph = DiGraph::with_capacity(count, ends.len());
    (0..count).for_each(|_| {
        graph.add_node(());
    });
    for (from, to) in ends {
        graph.add_edge(
            NodeIndex::new(from.0 as usize),
            NodeIndex::new(to.0 as usize),
            (),
        );
    }
    graph
}

fn number_parts(tasks: &mut [Task], at: &HashMap<(&str, (u32, u32)), usize>) {
    // In the order of the data: a reader may begin before its writer.
    let mut parts: BTreeMap<&str, BTreeSet<(u32, u32, usize)>> = BTreeMap::new();
    for (&(name, (stage, round)), &task) in at {
        parts.entry(name).or_default().insert((round, stage, task));
    }
    for places in parts.values() {
        for (i, &(_, _, task)) in places.iter().enumerate() {
            tasks[task].part = i + 1;
            tasks[task].parts = places.len();
        }
    }
}

fn edges(
    workflow: &Workflow,
    part: &DiGraph<Node, Edge>,
    timeline: &Timeline,
    of: &[Option<usize>],
) -> Vec<TaskEdge> {
    let mut edges: BTreeMap<(usize, usize), TaskEdge> = BTreeMap::new();
    let mut connect = |from: usize, to: usize| -> Option<()> {
        let ends = (of.get(from).copied()??, of.get(to).copied()??);
        edges.entry(ends).or_insert_with(|| TaskEdge {
            from: ends.0,
            to: ends.1,
            ..TaskEdge::default()
        });
        Some(())
    };
    for one in part.edge_references() {
        connect(one.source().index(), one.target().index());
    }
    let files = file_edges(part, of);
    for (ends, list) in files {
        let entry = edges.entry(ends).or_insert_with(|| TaskEdge {
            from: ends.0,
            to: ends.1,
            ..TaskEdge::default()
        });
        entry.file_count = list.len();
        entry.files = list.into_iter().take(NAMED).collect();
    }
    add_channels(workflow, timeline, of, &mut edges);
    edges
        .into_values()
        .filter(|edge| edge.from != edge.to)
        .collect()
}

/// The files through which data went from task to task. A reader of a file version also counts as a reader
/// of the older versions that it builds on.
fn file_edges(
    part: &DiGraph<Node, Edge>,
    of: &[Option<usize>],
) -> BTreeMap<(usize, usize), BTreeSet<FileIndex>> {
    let mut files: BTreeMap<(usize, usize), BTreeSet<FileIndex>> = BTreeMap::new();
    let mut writers: HashMap<NodeIndex, BTreeSet<usize>> = HashMap::new();
    for node in toposort(part, None).unwrap_or_default() {
        let Node::File { file, .. } = part[node] else {
            continue;
        };
        let mut tasks = BTreeSet::new();
        for before in part.neighbors_directed(node, Direction::Incoming) {
            match part[before] {
                Node::Process { id, .. } => tasks.extend(of[id.0 as usize]),
                Node::File { .. } => tasks.extend(writers.get(&before).into_iter().flatten()),
            }
        }
        for after in part.neighbors(node) {
            if let Node::Process { id, .. } = part[after]
                && let Some(to) = of[id.0 as usize]
            {
                for &from in &tasks {
                    files.entry((from, to)).or_default().insert(file);
                }
            }
        }
        writers.insert(node, tasks);
    }
    files
}

/// Adds the channels. A channel belongs to an edge if the graph has a stream between two processes that had
/// its ends open.
fn add_channels(
    workflow: &Workflow,
    timeline: &Timeline,
    of: &[Option<usize>],
    edges: &mut BTreeMap<(usize, usize), TaskEdge>,
) {
    let stream = |from: ProcessId, to: ProcessId| {
        let key = |stream: &Stream| (stream.from, stream.to);
        let at = workflow
            .streams
            .binary_search_by_key(&(from, to), key)
            .ok()?;
        Some(&workflow.streams[at])
    };
    // Direction of the data between tasks, from their sockets.
    let mut ways: BTreeMap<(usize, usize), Option<Way>> = BTreeMap::new();
    let mut written: BTreeMap<(usize, usize), BTreeSet<(u32, ProcessId)>> = BTreeMap::new();
    for (at, channel) in timeline.channels.iter().enumerate() {
        if channel.writers.len().saturating_mul(channel.readers.len()) > 10_000 {
            continue;
        }
        for &(from, _, _) in &channel.writers {
            for &(to, _, _) in &channel.readers {
                // One socket of two between the same processes may lead the other way.
                let back = || stream(to, from).filter(|stream| stream.is_socket);
                let Some(known) = stream(from, to).or_else(back) else {
                    continue;
                };
                let task = |id: ProcessId| of[id.0 as usize];
                let Some(ends) = task(known.from).zip(task(known.to)) else {
                    continue;
                };
                let Some(edge) = edges.get_mut(&ends) else {
                    continue;
                };
                let way = ways.entry(ends).or_default();
                *way = Some(way.map_or(known.way, |way| way.and(known.way)));
                written.entry(ends).or_default().insert((at as u32, from));
                if edge.channels.last() != Some(&(at as u32)) {
                    edge.channels.push(at as u32);
                }
            }
        }
    }
    for (ends, way) in ways {
        if let (Some(edge), Some(way)) = (edges.get_mut(&ends), way) {
            edge.way = if edge.file_count > 0 {
                way.and(Way::Forth)
            } else {
                way
            };
        }
    }
    for (ends, written) in written {
        let Some(edge) = edges.get_mut(&ends).filter(|edge| edge.way != Way::Forth) else {
            continue;
        };
        for (channel, process) in written {
            let full_ns = full_ns(timeline, process, channel);
            match of[process.0 as usize] == Some(ends.0) {
                true => edge.full_ns.0 += full_ns,
                false => edge.full_ns.1 += full_ns,
            }
        }
    }
}

/// Time that a process waited until it could write into a channel, ns.
fn full_ns(timeline: &Timeline, process: ProcessId, channel: u32) -> f64 {
    let pieces = &timeline.instance(process).pieces;
    let full = pieces
        .iter()
        .filter(|piece| piece.state == State::Out && piece.channel == Some(channel));
    let share = |piece| timeline.shares(piece)[State::Out as usize];
    full.map(|piece| share(piece) * (piece.to - piece.from) as f64)
        .sum()
}
