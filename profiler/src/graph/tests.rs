use petgraph::algo::is_cyclic_directed;
use petgraph::visit::EdgeRef;
use proptest::prelude::*;

use super::*;
use crate::graph::groups::{Group, by_rule};
use crate::model::{Access, File, Image, Process, Workflow};
use crate::{load, montage};

mod forks;
mod lineage;
mod returns;

/// A process for each (parent, start), `files` files, and the accesses.
fn workflow(processes: &[(Option<u32>, i64)], files: u32, mut accesses: Vec<Access>) -> Workflow {
    accesses.sort_by_key(|a| (a.process, a.file));
    accesses.dedup_by_key(|a| (a.process, a.file));
    let rules = ["make", "cc", "ld"];
    Workflow {
        processes: (0..processes.len())
            .map(|i| Process {
                images: i..i + 1,
                pid: i as i64,
                parent: processes[i].0.map(ProcessId),
                start_ns: processes[i].1,
                ..Process::default()
            })
            .collect(),
        images: (0..processes.len())
            .map(|i| Image {
                upid: i as i64 + 1,
                process: ProcessId(i as u32),
                is_exec: true,
                rule: rules[i % rules.len()].into(),
                start_ns: processes[i].1,
                ..Image::default()
            })
            .collect(),
        files: (0..files)
            .map(|i| File {
                file_id: i64::from(i) + 1,
                path: Some(format!("/w/{i}.o").into()),
                is_regular: true,
                ..File::default()
            })
            .collect(),
        accesses,
        ..Workflow::default()
    }
}

fn access(process: u32, file: u32, read: Option<(i64, i64)>, write: Option<(i64, i64)>) -> Access {
    Access {
        process: ProcessId(process),
        file: FileIndex(file),
        reads: i64::from(read.is_some()),
        read_bytes: read.map_or(0, |(at, _)| at + 1),
        read_ns: read,
        writes: i64::from(write.is_some()),
        changes: i64::from(write.is_some()),
        write_bytes: write.map_or(0, |(at, _)| at + 2),
        write_ns: write,
        calls: 2,
        ..Access::default()
    }
}

fn random() -> impl Strategy<Value = Workflow> {
    let span = || prop::option::of((0i64..60, 0i64..30).prop_map(|(at, long)| (at, at + long)));
    let accesses = prop::collection::vec((0u32..10, 0u32..6, span(), span()), 0..60);
    let processes = prop::collection::vec((any::<u32>(), 0i64..60), 10);
    (processes, accesses).prop_map(|(processes, accesses)| {
        let processes: Vec<_> = (0u32..)
            .zip(&processes)
            .map(|(i, &(parent, start))| ((i > 0).then(|| parent % i.max(1)), start))
            .collect();
        let accesses = accesses
            .into_iter()
            .map(|(p, f, r, w)| access(p, f, r, w))
            .collect();
        workflow(&processes, 6, accesses)
    })
}

proptest! {
    #[test]
    fn any_accesses_give_an_acyclic_graph_that_conserves_bytes(workflow in random()) {
        let dag = build(&workflow);
        prop_assert!(!is_cyclic_directed(&dag.graph));
        let kept = dag.graph.edge_references().map(|edge| *edge.weight());
        let all: Vec<Edge> = kept.chain(dag.dropped.iter().map(|d| d.edge)).collect();
        let moved: (i64, i64) = all
            .iter()
            .fold((0, 0), |sum, e| (sum.0 + e.read_bytes, sum.1 + e.write_bytes));
        let expected = workflow
            .accesses
            .iter()
            .fold((0, 0), |sum, a| (sum.0 + a.read_bytes, sum.1 + a.write_bytes));
        prop_assert_eq!(moved, expected);
        let forks = all.iter().filter(|e| e.kind == EdgeKind::Fork).count();
        prop_assert_eq!(forks, workflow.processes.iter().filter(|p| p.parent.is_some()).count());
        for edge in dag.graph.edge_references() {
            prop_assert!(!dag.graph.contains_edge(edge.target(), edge.source()));
        }
    }

    #[test]
    fn the_rule_graph_is_acyclic_too_and_loses_nothing(workflow in random()) {
        rules_lose_nothing(&workflow, &build(&workflow))?;
    }
}

/// The graph of rules is acyclic, and every edge is in it or counted.
fn rules_lose_nothing(workflow: &Workflow, dag: &Dag) -> Result<(), TestCaseError> {
    let rules = by_rule(workflow, dag);
    prop_assert!(!is_cyclic_directed(&rules.graph));
    let edges: i64 = rules.graph.edge_weights().map(|e| e.count).sum();
    prop_assert_eq!(
        edges as usize + rules.hidden_forks + rules.inner_edges,
        dag.graph.edge_count()
    );
    Ok(())
}

/// A graph by the properties of its nodes, not by their places.
fn canonical(workflow: &Workflow, dag: &Dag) -> (Vec<String>, Vec<String>) {
    let name = |node: NodeIndex| match dag.graph[node] {
        Node::Process { id, .. } => format!("pid {}", workflow.process(id).pid),
        Node::File {
            file,
            version,
            versions,
        } => {
            let path = workflow.file(file).path.as_deref().unwrap_or("?");
            format!("{path} {version}/{versions}")
        }
    };
    let edge = |from, to, edge: &Edge| format!("{} > {} {edge:?}", name(from), name(to));
    let mut nodes: Vec<String> = dag.graph.node_indices().map(name).collect();
    let kept = dag.graph.edge_references();
    let kept = kept.map(|e| edge(e.source(), e.target(), e.weight()));
    let dropped = dag
        .dropped
        .iter()
        .map(|d| format!("dropped {}", edge(d.from, d.to, &d.edge)));
    let mut edges: Vec<String> = kept.chain(dropped).collect();
    nodes.sort();
    edges.sort();
    (nodes, edges)
}

/// The same run with its processes and files discovered in another order.
fn renumbered(workflow: &Workflow, processes: &[usize], files: &[usize]) -> Workflow {
    let place = |order: &[usize]| {
        let mut place = vec![0; order.len()];
        for (to, &from) in order.iter().enumerate() {
            place[from] = to as u32;
        }
        place
    };
    let (to_process, to_file) = (place(processes), place(files));
    let mut other = workflow.clone();
    other.processes = processes
        .iter()
        .enumerate()
        .map(|(to, &from)| Process {
            images: to..to + 1,
            parent: workflow.processes[from]
                .parent
                .map(|p| ProcessId(to_process[p.0 as usize])),
            ..workflow.processes[from].clone()
        })
        .collect();
    other.images = (0u32..)
        .zip(processes)
        .map(|(to, &from)| Image {
            process: ProcessId(to),
            ..workflow.images[from].clone()
        })
        .collect();
    other.files = files
        .iter()
        .map(|&from| workflow.files[from].clone())
        .collect();
    for access in &mut other.accesses {
        access.process = ProcessId(to_process[access.process.0 as usize]);
        access.file = FileIndex(to_file[access.file.0 as usize]);
    }
    other.accesses.sort_by_key(|a| (a.process, a.file));
    other
}

/// Like `random`, but no two events have the same time: then the order of discovery decides nothing.
fn random_apart() -> impl Strategy<Value = Workflow> {
    random().prop_map(|mut workflow| {
        let apart = |at: i64, n: usize| at * 1000 + n as i64;
        for (n, process) in workflow.processes.iter_mut().enumerate() {
            process.start_ns = apart(process.start_ns, n);
        }
        for (n, access) in workflow.accesses.iter_mut().enumerate() {
            let (read, write) = (access.read_ns, access.write_ns);
            access.read_ns = read.map(|(a, b)| (apart(a, 100 + 4 * n), apart(b, 101 + 4 * n)));
            access.write_ns = write.map(|(a, b)| (apart(a, 102 + 4 * n), apart(b, 103 + 4 * n)));
            // Distinct sizes, too: of two edges that close one cycle the smaller one goes.
            access.read_bytes *= 1000 + n as i64;
            access.write_bytes *= 1000 + n as i64;
        }
        workflow
    })
}

/// A directed graph of steps: for each the earlier ones that it depends on.
fn random_steps() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(
        prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        1..25,
    )
    .prop_map(|steps| {
        let mut found: Vec<Vec<usize>> = Vec::new();
        for (n, before) in steps.iter().enumerate() {
            let mut before: Vec<usize> = match n {
                0 => Vec::new(),
                n => before.iter().map(|i| i.index(n)).collect(),
            };
            before.sort_unstable();
            before.dedup();
            found.push(before);
        }
        found
    })
}

proptest! {
    #[test]
    fn the_order_of_discovery_does_not_matter(
        (workflow, processes, files) in random_apart().prop_flat_map(|workflow| {
            let processes: Vec<usize> = (0..workflow.processes.len()).collect();
            let files: Vec<usize> = (0..workflow.files.len()).collect();
            (Just(workflow), Just(processes).prop_shuffle(), Just(files).prop_shuffle())
        })
    ) {
        let other = renumbered(&workflow, &processes, &files);
        prop_assert_eq!(
            canonical(&workflow, &build(&workflow)),
            canonical(&other, &build(&other))
        );
    }

    /// Steps that each write a file and read those of earlier steps, also where they overlap in time.
    #[test]
    fn the_graph_of_random_steps_is_that_of_their_data(steps in random_steps()) {
        let processes: Vec<_> = (0..steps.len()).map(|n| (None, n as i64)).collect();
        let mut accesses = Vec::new();
        for (n, before) in steps.iter().enumerate() {
            let at = n as i64 * 10;
            accesses.push(access(n as u32, n as u32, None, Some((at + 5, at + 9))));
            for &b in before {
                accesses.push(access(n as u32, b as u32, Some((at, at + 4)), None));
            }
        }
        let workflow = workflow(&processes, steps.len() as u32, accesses);
        let dag = build(&workflow);
        prop_assert!(dag.dropped.is_empty());
        let mut found = vec![Vec::new(); steps.len()];
        for node in dag.graph.node_indices() {
            let Node::Process { id, .. } = dag.graph[node] else { continue };
            for file in dag.graph.neighbors_directed(node, petgraph::Direction::Incoming) {
                for writer in dag.graph.neighbors_directed(file, petgraph::Direction::Incoming) {
                    found[id.0 as usize].push(writer.index());
                }
            }
            found[id.0 as usize].sort_unstable();
        }
        prop_assert_eq!(found, steps);
    }

    /// Contracting by rule never makes a cycle silently: each is listed with the groups on it, no group is on
    /// two, and no others were split.
    #[test]
    fn contraction_lists_the_cycles_that_it_split(workflow in random()) {
        let rules = by_rule(&workflow, &build(&workflow));
        let on_cycles: Vec<NodeIndex> = rules.cycles.iter().flatten().copied().collect();
        let mut once = on_cycles.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), on_cycles.len());
        for node in rules.graph.node_indices() {
            let group = &rules.graph[node];
            if group.rounds > 1 && group.round == 1 {
                prop_assert!(on_cycles.contains(&node));
            }
        }
        for cycle in &rules.cycles {
            prop_assert!(cycle.len() > 1);
            // At least one group on it had to be split, or the cycle would still be there.
            prop_assert!(cycle.iter().any(|&node| rules.graph[node].rounds > 1));
        }
    }
}

#[test]
fn data_wins_over_the_fork_that_contradicts_it() {
    // make forks awk, awk writes diffs.mk, make reads it.
    let accesses = vec![
        access(1, 0, None, Some((10, 11))),
        access(0, 0, Some((20, 21)), None),
    ];
    let dag = build(&workflow(&[(None, 0), (Some(0), 5)], 1, accesses));
    assert_eq!(dag.graph.edge_count(), 2);
    let dropped: Vec<_> = dag.dropped.iter().map(|d| d.edge.kind).collect();
    assert_eq!(dropped, [EdgeKind::Fork]);
}

#[test]
fn feedback_to_a_long_lived_engine_is_dropped_and_listed() {
    // The engine writes a script, the job reads it and writes its exit code for the engine.
    let accesses = vec![
        access(0, 0, None, Some((10, 11))),
        access(1, 0, Some((20, 21)), None),
        access(1, 1, None, Some((30, 31))),
        access(0, 1, Some((40, 41)), None),
    ];
    let dag = build(&workflow(&[(None, 0), (None, 15)], 2, accesses));
    assert_eq!(dag.graph.edge_count(), 3);
    assert_eq!(dag.dropped.len(), 1);
    assert_eq!(
        (dag.dropped[0].edge.kind, dag.dropped[0].edge.read_bytes),
        (EdgeKind::Read, 41)
    );
}

#[test]
fn a_redirection_belongs_to_the_process_not_to_an_image() {
    let (_directory, path) = montage::montage_file(3, false);
    let trace = flowtrace_schema::Trace::open(&path).unwrap();
    let workflow = load::load(&trace).unwrap();
    let dag = build(&workflow);
    let is_rules = |node: NodeIndex| match dag.graph[node] {
        Node::File { file, .. } => workflow.file(file).path.as_deref() == Some("/w/out/diffs.mk"),
        Node::Process { .. } => false,
    };
    let rules = dag
        .graph
        .node_indices()
        .find(|&node| is_rules(node))
        .unwrap();
    let writers: Vec<_> = dag
        .graph
        .edges_directed(rules, petgraph::Direction::Incoming)
        .map(|edge| {
            (
                dag.graph[edge.source()],
                edge.weight().kind,
                edge.weight().write_bytes,
            )
        })
        .collect();
    let [(Node::Process { id: awk, .. }, EdgeKind::Create, 700)] = writers[..] else {
        panic!("one writer expected: {writers:?}");
    };
    assert_eq!(workflow.rule(awk).as_ref(), "awk");
}
