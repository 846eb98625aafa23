use petgraph::algo::is_cyclic_directed;
use petgraph::visit::EdgeRef;
use proptest::prelude::*;

use super::*;
use crate::graph::groups::by_rule;
use crate::model::{Access, File, Image, Process, Workflow};
use crate::{load, montage};

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
        let dag = build(&workflow);
        let rules = by_rule(&workflow, &dag);
        prop_assert!(!is_cyclic_directed(&rules.graph));
        let edges: i64 = rules.graph.edge_weights().map(|e| e.count).sum();
        prop_assert_eq!(
            edges as usize + rules.hidden_forks + rules.inner_edges,
            dag.graph.edge_count()
        );
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
        Node::Process(_) => false,
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
    let [(Node::Process(awk), EdgeKind::Create, 700)] = writers[..] else {
        panic!("one writer expected: {writers:?}");
    };
    assert_eq!(workflow.rule(awk).as_ref(), "awk");
}
