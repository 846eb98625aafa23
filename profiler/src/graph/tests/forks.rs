//! The forks that the graph of rules draws.

use super::*;
use crate::model::{Stream, Way};

/// `echo | xargs sh -c 'cc …'`: 0 makes a pipe and starts 1, which writes, and 2, which reads and starts 3; 3 starts 4, which
/// makes a file. 5 is started by 0 and makes another.
fn started_by_a_reader(is_piped: bool) -> Workflow {
    let processes = [
        (None, 0),
        (Some(0), 1),
        (Some(0), 2),
        (Some(2), 20),
        (Some(3), 21),
        (Some(0), 22),
    ];
    let mut accesses = vec![
        access(4, 0, None, Some((30, 31))),
        access(5, 1, None, Some((30, 31))),
    ];
    accesses.push(access(1, 2, Some((3, 4)), None));
    let mut workflow = workflow(&processes, 3, accesses);
    for (image, rule) in workflow
        .images
        .iter_mut()
        .zip(["sh", "echo", "xargs", "sh -c", "expr", "touch"])
    {
        image.rule = rule.into();
    }
    if is_piped {
        workflow.streams.push(Stream {
            from: ProcessId(1),
            to: ProcessId(2),
            is_socket: false,
            way: Way::Forth,
            moved: None,
            at_most_bytes: Some(3),
            is_exact: false,
            captured: None,
            first_ns: 3,
            last_ns: 40,
        });
    }
    workflow
}

fn forks(workflow: &Workflow) -> Vec<String> {
    let rules = by_rule(workflow, &lineage(workflow));
    let fork = |e: petgraph::graph::EdgeReference<'_, crate::graph::groups::GroupEdge>| {
        let (from, to) = (rules.name(e.source()), rules.name(e.target()));
        (e.weight().kind == EdgeKind::Fork).then(|| format!("{from} > {to}"))
    };
    let mut forks: Vec<String> = rules.graph.edge_references().filter_map(fork).collect();
    forks.sort();
    forks
}

#[test]
fn a_process_that_reads_a_pipe_and_starts_others_passes_the_data_on() {
    let drawn = forks(&started_by_a_reader(true));
    assert_eq!(drawn, ["sh -c > expr", "xargs > sh -c"]);
}

#[test]
fn without_a_pipe_only_those_are_drawn_that_nothing_else_connects() {
    let drawn = forks(&started_by_a_reader(false));
    assert_eq!(drawn, ["sh > xargs", "xargs > sh -c"]);
}
