//! Processes cut into versions.

use petgraph::Direction;

use super::*;
use crate::model::{Stream, Way};

fn pipe(from: u32, to: u32, span: (i64, i64)) -> Stream {
    Stream {
        from: ProcessId(from),
        to: ProcessId(to),
        is_socket: false,
        way: Way::Forth,
        moved: None,
        at_most_bytes: Some(3),
        is_exact: false,
        captured: None,
        first_ns: span.0,
        last_ns: span.1,
    }
}

/// `2/3` behind the number of a process that is cut, else only the number; files by their names.
fn name(dag: &Dag, node: NodeIndex) -> String {
    match dag.graph[node] {
        Node::Process {
            id, versions: 1, ..
        } => format!("p{}", id.0),
        Node::Process {
            id,
            version,
            versions,
        } => format!("p{} {version}/{versions}", id.0),
        Node::File { file, version, .. } => format!("f{} v{version}", file.0),
    }
}

pub(super) fn edges(dag: &Dag) -> Vec<String> {
    let edge = |e: petgraph::graph::EdgeReference<'_, Edge>| {
        let (from, to) = (name(dag, e.source()), name(dag, e.target()));
        format!("{from} > {to} {}", e.weight().kind.name())
    };
    let mut edges: Vec<String> = dag.graph.edge_references().map(edge).collect();
    edges.sort();
    edges
}

/// The nodes whose data a node depends on.
pub(super) fn ancestors(dag: &Dag, of: &str) -> Vec<String> {
    let start = dag.graph.node_indices().find(|&n| name(dag, n) == of);
    let mut found = vec![start.expect("a node of that name")];
    for at in 0.. {
        let Some(&node) = found.get(at) else { break };
        for edge in dag.graph.edges_directed(node, Direction::Incoming) {
            if edge.weight().kind.is_data() && !found.contains(&edge.source()) {
                found.push(edge.source());
            }
        }
    }
    let mut names: Vec<String> = found[1..].iter().map(|&n| name(dag, n)).collect();
    names.sort();
    names
}

#[test]
fn what_a_script_got_from_its_child_comes_after_what_it_gave() {
    // printf > in; sort in > out; n=$(wc -l < out); echo $n > count
    let accesses = vec![
        access(0, 0, None, Some((10, 11))),
        access(1, 0, Some((20, 25)), None),
        access(1, 1, None, Some((26, 28))),
        access(2, 1, Some((40, 45)), None),
        access(0, 2, None, Some((60, 61))),
    ];
    let mut script = workflow(&[(None, 0), (Some(0), 15), (Some(0), 35)], 3, accesses);
    script.streams = vec![pipe(2, 0, (35, 50))];
    let dag = lineage(&script);
    assert_eq!(
        edges(&dag),
        [
            "f0 v1 > p1 read",
            "f1 v1 > p2 read",
            "p0 1/2 > f0 v1 write",
            "p0 1/2 > p0 2/2 update",
            "p0 1/2 > p1 fork",
            "p0 1/2 > p2 fork",
            "p0 2/2 > f2 v1 write",
            "p1 > f1 v1 write",
            "p2 > p0 2/2 pipe",
        ]
    );
    assert_eq!(
        ancestors(&dag, "f2 v1"),
        ["f0 v1", "f1 v1", "p0 1/2", "p0 2/2", "p1", "p2"]
    );
    assert_eq!(dag.version_ns(&script, ProcessId(0), 1), (0, Some(35)));
    assert_eq!(dag.version_ns(&script, ProcessId(0), 2), (35, None));
    // As one node the process closes a cycle, and an edge is left out.
    let merged = dag.merged(&script);
    assert_eq!(
        canonical(&script, &merged),
        canonical(&script, &build(&script))
    );
    assert_eq!(
        merged
            .dropped
            .iter()
            .filter(|d| d.edge.kind.is_data())
            .count(),
        1
    );
}

#[test]
fn what_a_script_asks_at_its_end_is_not_the_source_of_all() {
    // Writes a file that sort reads; at last `ls | wc -l`.
    let accesses = vec![
        access(0, 0, None, Some((10, 11))),
        access(1, 0, Some((20, 25)), None),
        access(1, 1, None, Some((26, 28))),
    ];
    let mut script = workflow(
        &[(None, 0), (Some(0), 15), (Some(0), 30), (Some(0), 31)],
        2,
        accesses,
    );
    script.streams = vec![pipe(2, 3, (31, 40)), pipe(3, 0, (31, 50))];
    let dag = lineage(&script);
    assert_eq!(ancestors(&dag, "f1 v1"), ["f0 v1", "p0 1/2", "p1"]);
    assert_eq!(ancestors(&dag, "p0 2/2"), ["p0 1/2", "p2", "p3"]);
    let rules = by_rule(&script, &dag);
    assert!(!is_cyclic_directed(&rules.graph));
    let first = rules.graph.node_weights().find(|g| g.versions == 2);
    assert_eq!(first.map(Group::mark).as_deref(), Some(" [1/2]"));
    assert_eq!(first.map(|g| g.goes_on.clone()), Some(vec![ProcessId(0)]));
}

#[test]
fn an_engine_is_cut_once_for_each_result_that_it_used() {
    // Two jobs, one after the other: a script out, an exit code back.
    let mut accesses = Vec::new();
    for job in 0..2u32 {
        let at = i64::from(job) * 100;
        accesses.push(access(0, 2 * job, None, Some((at + 10, at + 11))));
        accesses.push(access(1 + job, 2 * job, Some((at + 20, at + 21)), None));
        accesses.push(access(1 + job, 2 * job + 1, None, Some((at + 30, at + 31))));
        accesses.push(access(0, 2 * job + 1, Some((at + 40, at + 41)), None));
    }
    let engine = workflow(&[(None, 0), (None, 15), (None, 115)], 4, accesses);
    let dag = lineage(&engine);
    assert!(dag.dropped.is_empty());
    assert_eq!(dag.cuts[&ProcessId(0)], [40, 140]);
    assert_eq!(
        ancestors(&dag, "f2 v1"),
        ["f0 v1", "f1 v1", "p0 1/3", "p0 2/3", "p1"]
    );
}

#[test]
fn a_filter_on_a_cycle_stays_whole() {
    // n=$(cat | sort): a process that reads and writes over the same time passes on what it got.
    let mut script = workflow(
        &[(None, 0), (Some(0), 10), (Some(0), 11)],
        1,
        vec![access(0, 0, None, Some((5, 6)))],
    );
    script.streams = vec![pipe(1, 2, (11, 50)), pipe(2, 0, (11, 60))];
    let dag = lineage(&script);
    assert_eq!(dag.cuts.keys().collect::<Vec<_>>(), [&ProcessId(0)]);
    assert_eq!(ancestors(&dag, "p0 2/2"), ["p0 1/2", "p1", "p2"]);
}

#[test]
fn who_gives_and_gets_at_once_is_cut_where_it_must_be_and_marked() {
    // x=$(sort <<< "$data" | uniq): all three have their pipes open over the same time.
    let mut script = workflow(&[(None, 0), (Some(0), 10), (Some(0), 11)], 0, vec![]);
    script.streams = vec![
        pipe(0, 1, (10, 50)),
        pipe(1, 2, (11, 50)),
        pipe(2, 0, (11, 60)),
    ];
    let dag = lineage(&script);
    assert!(dag.dropped.iter().all(|d| d.edge.kind == EdgeKind::Fork));
    assert_eq!(ancestors(&dag, "p0 2/2"), ["p0 1/2", "p1", "p2"]);
    let narrowed = dag.graph.edge_weights().filter(|e| e.is_narrowed).count();
    assert!(narrowed > 0);
}

/// `mkdir d; x=$(perl …); echo $x > d/o`.
fn script_with_mkdir() -> Workflow {
    let accesses = vec![access(0, 0, None, Some((60, 61)))];
    let mut script = workflow(&[(None, 0), (Some(0), 10), (Some(0), 40)], 1, accesses);
    script.streams = vec![pipe(2, 0, (40, 50))];
    script
}

#[test]
fn no_fork_leads_from_an_answer_to_a_child_that_was_there_before() {
    let script = script_with_mkdir();
    let dag = lineage(&script);
    assert_eq!(
        edges(&dag),
        [
            "p0 1/2 > p0 2/2 update",
            "p0 1/2 > p1 fork",
            "p0 1/2 > p2 fork",
            "p0 2/2 > f0 v1 write",
            "p2 > p0 2/2 pipe",
        ]
    );
    // If the script is one node, both forks would lead back in time.
    for whole in [build(&script), dag.merged(&script)] {
        assert_eq!(edges(&whole), ["p0 > f0 v1 write", "p2 > p0 pipe"]);
        assert_eq!(whole.dropped.len(), 2);
    }
}

#[test]
fn a_child_after_the_answer_is_one_of_the_same_version() {
    // x=$(perl …); mkdir $x
    let mut script = workflow(&[(None, 0), (Some(0), 10), (Some(0), 40)], 0, vec![]);
    script.streams = vec![pipe(1, 0, (10, 20))];
    let dag = lineage(&script);
    assert_eq!(edges(&dag), ["p0 > p2 fork", "p1 > p0 pipe"]);
}

#[test]
fn what_was_written_later_by_a_sibling_is_not_before_a_child() {
    // The first forks a child at 10, then reads at 40 what the second wrote at 30: no cycle, and cut.
    let accesses = vec![
        access(1, 0, None, Some((30, 31))),
        access(0, 0, Some((40, 41)), None),
        access(0, 1, None, Some((50, 51))),
    ];
    let script = workflow(&[(None, 0), (None, 5), (Some(0), 10)], 2, accesses.clone());
    let dag = lineage(&script);
    assert_eq!(dag.cuts[&ProcessId(0)], [40]);
    assert!(dag.dropped.is_empty());
    // Written before it was forked: the file that it read later was there.
    let mut accesses = accesses;
    accesses[0] = access(1, 0, None, Some((6, 7)));
    let dag = lineage(&workflow(
        &[(None, 0), (None, 5), (Some(0), 10)],
        2,
        accesses,
    ));
    assert!(dag.cuts.is_empty() && dag.dropped.is_empty());
}

#[test]
fn what_a_dialog_wrote_meanwhile_comes_after_its_answers() {
    // coproc bc; for i in 1 2 3; do echo $i >&bc; read r <&bc; echo $r; done > out
    let accesses = vec![access(0, 0, None, Some((20, 60)))];
    let mut script = workflow(&[(None, 0), (Some(0), 10)], 1, accesses);
    script.streams = vec![pipe(0, 1, (10, 70)), pipe(1, 0, (10, 80))];
    let dag = lineage(&script);
    assert_eq!(
        edges(&dag),
        [
            "p0 1/2 > p0 2/2 update",
            "p0 1/2 > p1 fork",
            "p0 1/2 > p1 pipe",
            "p0 2/2 > f0 v1 write",
            "p1 > p0 2/2 pipe"
        ]
    );
    // Data written before any answer depends on none.
    script.accesses = vec![access(0, 0, None, Some((2, 9)))];
    assert_eq!(ancestors(&lineage(&script), "f0 v1"), ["p0 1/3"]);
}

/// `for i in …; do x=$(perl …); mkdir $x; done`.
fn loop_of(rounds: u32) -> Workflow {
    let mut processes = vec![(None, 0)];
    let mut streams = Vec::new();
    for round in 0..rounds {
        let at = i64::from(round) * 10 + 1;
        processes.extend([(Some(0), at), (Some(0), at + 5)]);
        streams.push(pipe(2 * round + 1, 0, (at, at + 3)));
    }
    let mut script = workflow(&processes, 0, vec![]);
    script.streams = streams;
    script
}

#[test]
fn a_loop_makes_few_versions_or_none() {
    let few = lineage(&loop_of(5));
    assert_eq!(few.cuts[&ProcessId(0)].len(), 4);
    // Only the first perl gave its answer to the version that had started it.
    assert_eq!((few.most_versions(), few.dropped.len()), (5, 1));
    let many = lineage(&loop_of(1000));
    assert_eq!(many.most_versions(), 1);
    // Each mkdir but the last came before a later answer, each perl before its own.
    assert_eq!(many.dropped.len(), 2 * 1000 - 1);
}

fn random_with_pipes() -> impl Strategy<Value = Workflow> {
    let pipes = prop::collection::vec((0u32..10, 0u32..10, 0i64..90, 0i64..30), 0..12);
    (random(), pipes).prop_map(|(mut workflow, pipes)| {
        workflow.streams = pipes
            .into_iter()
            .filter(|(from, to, ..)| from != to)
            .map(|(from, to, at, long)| pipe(from, to, (at, at + long)))
            .collect();
        workflow
    })
}

proptest! {
    /// There is no cycle, no edge of data is left out, none leads back in time, and each transfer is there
    /// once.
    #[test]
    fn time_goes_forward_and_nothing_is_lost(workflow in random_with_pipes()) {
        let dag = lineage(&workflow);
        prop_assert!(!is_cyclic_directed(&dag.graph));
        prop_assert!(dag.dropped.iter().all(|d| d.edge.kind == EdgeKind::Fork));
        let (whole, _) = super::super::build::raw(&workflow);
        let sum = |graph: &DiGraph<Node, Edge>| {
            let data = graph.edge_weights().filter(|e| !matches!(e.kind, EdgeKind::Update | EdgeKind::Fork));
            data.fold((0, 0, 0), |sum, e| (sum.0 + 1, sum.1 + e.read_bytes, sum.2 + e.write_bytes))
        };
        prop_assert_eq!(sum(&dag.graph), sum(&whole));
        for edge in dag.graph.edge_references() {
            let e = edge.weight();
            if e.kind == EdgeKind::Fork || e.kind == EdgeKind::Update {
                continue;
            }
            // Cuts count, not the process's begin: a random process may use files before it starts.
            let cut = |id, version: u32| {
                let cuts: &[i64] = dag.cuts.get(&id).map_or(&[], Vec::as_slice);
                let at = |n: Option<u32>| n.and_then(|n| cuts.get(n as usize)).copied();
                (at(version.checked_sub(2)), at(Some(version - 1)))
            };
            if let Node::Process { id, version, .. } = dag.graph[edge.source()] {
                // A version passed data on after it had begun, or while it got the data that it is the
                // version of.
                let is_got = |got: petgraph::graph::EdgeReference<'_, Edge>| {
                    got.weight().kind.is_data() && got.weight().first_ns < e.last_ns
                };
                let mut got = dag.graph.edges_directed(edge.source(), Direction::Incoming);
                prop_assert!(
                    cut(id, version).0.is_none_or(|begin| begin <= e.last_ns) || got.any(is_got)
                );
            }
            if let Node::Process { id, version, .. } = dag.graph[edge.target()] {
                prop_assert!(cut(id, version).1.is_none_or(|end| e.first_ns < end));
            }
        }
    }

    /// Every process before another, by data and forks, began before it.
    #[test]
    fn no_fork_leads_back_in_time(workflow in random_with_pipes()) {
        for dag in [lineage(&workflow), build(&workflow)] {
            for edge in dag.graph.edge_references().filter(|e| e.weight().kind == EdgeKind::Fork) {
                let Node::Process { id: child, .. } = dag.graph[edge.target()] else { continue };
                let mut before = vec![edge.source()];
                for at in 0.. {
                    let Some(&node) = before.get(at) else { break };
                    if let Node::Process { id, .. } = dag.graph[node] {
                        prop_assert!(workflow.process(id).start_ns <= workflow.process(child).start_ns);
                    }
                    for edge in dag.graph.edges_directed(node, Direction::Incoming) {
                        if !before.contains(&edge.source()) {
                            before.push(edge.source());
                        }
                    }
                }
            }
        }
    }

    /// Data that came in before data went out reaches it, except where an edge is marked as narrowed; and a
    /// process on no cycle is not cut, unless for a child of its own.
    #[test]
    fn no_dependency_within_a_process_is_lost(workflow in random_with_pipes()) {
        let dag = lineage(&workflow);
        let mut ends: Vec<(ProcessId, bool, u32, Edge)> = Vec::new();
        for edge in dag.graph.edge_references() {
            let e = *edge.weight();
            if !e.kind.is_data() || e.kind == EdgeKind::Update || e.is_narrowed {
                continue;
            }
            if let Node::Process { id, version, .. } = dag.graph[edge.source()] {
                ends.push((id, false, version, e));
            }
            if let Node::Process { id, version, .. } = dag.graph[edge.target()] {
                ends.push((id, true, version, e));
            }
        }
        for (id, _, given, out) in ends.iter().filter(|end| !end.1) {
            for (_, _, got, into) in ends.iter().filter(|end| end.1 && end.0 == *id) {
                prop_assert!(into.first_ns > out.last_ns || got <= given);
            }
        }
        let (whole, _) = super::super::build::raw(&workflow);
        let cycles = petgraph::algo::kosaraju_scc(&whole);
        for id in dag.cuts.keys() {
            let node = NodeIndex::new(id.0 as usize);
            let forked = whole.edges(node).any(|e| e.weight().kind == EdgeKind::Fork);
            prop_assert!(forked || cycles.iter().any(|c| c.len() > 1 && c.contains(&node)));
        }
        if dag.cuts.is_empty() && cycles.iter().all(|c| c.len() == 1) {
            prop_assert_eq!(canonical(&workflow, &dag), canonical(&workflow, &build(&workflow)));
        }
    }

    #[test]
    fn versions_make_no_cycle_of_rules(workflow in random_with_pipes()) {
        let dag = lineage(&workflow);
        rules_lose_nothing(&workflow, &dag)?;
        prop_assert!(!is_cyclic_directed(&dag.merged(&workflow).graph));
    }
}

#[test]
fn levels_go_on_from_the_answer() {
    // sort in > out; n=$(wc -l < out); echo $n > count; cat count > copy
    let accesses = vec![
        access(0, 2, None, Some((60, 61))),
        access(1, 1, None, Some((26, 28))),
        access(2, 1, Some((40, 45)), None),
        access(3, 2, Some((70, 75)), None),
        access(3, 3, None, Some((76, 78))),
    ];
    let parents = [(None, 0), (Some(0), 15), (Some(0), 35), (Some(0), 65)];
    let mut script = workflow(&parents, 4, accesses);
    script.streams = vec![pipe(0, 1, (10, 20)), pipe(2, 0, (35, 50))];
    let levels = |dag: &Dag| crate::analysis::statistics::phases::levels(&script, dag);
    // Data went from the script to sort, from wc to the script, and from it to cat; an uncut script would
    // send nothing to wc.
    assert_eq!(levels(&steps(&script)), [0, 1, 2, 3]);
    assert_eq!(levels(&build(&script)), [0, 1, 2, 1]);
}
