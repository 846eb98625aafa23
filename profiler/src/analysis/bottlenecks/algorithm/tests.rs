//! Algorithms 1 to 3 on graphs small enough to work out by hand.

use proptest::prelude::*;

use super::*;

/// Bottlenecks among `tasks` tasks by their names, a to z: of CPU as `b`, of I/O as `a>b`, members
/// of a contracted vertex joined by `+`.
fn run(edges: &str, pt: &[f64], st: &[f64]) -> String {
    run_with(edges, pt, st, 0.9, 0.9)
}

fn run_with(edges: &str, pt: &[f64], st: &[f64], alpha: f64, beta: f64) -> String {
    let task = |c: u8| usize::from(c - b'a');
    let edges: Vec<(usize, usize)> = edges
        .split_whitespace()
        .map(|e| (task(e.as_bytes()[0]), task(e.as_bytes()[1])))
        .collect();
    let graph = contract(pt.len(), &edges);
    let mut vertices = vec![Load::default(); graph.members.len()];
    for (task, &share) in pt.iter().enumerate() {
        // A negative share: no instance is alive.
        if share >= 0.0 {
            vertices[graph.vertex_of[task]].add(Load::of(share));
        }
    }
    let mut channels = vec![Load::default(); graph.edges.len()];
    for (edge, &share) in st.iter().enumerate() {
        if let Some(edge) = graph.edge_of[edge].filter(|_| share >= 0.0) {
            channels[edge].add(Load::of(share));
        }
    }
    let found = detect(&graph, &vertices, &vertices, &channels, (alpha, beta));
    let name = |vertex: usize| {
        let names: Vec<String> = graph.members[vertex]
            .iter()
            .map(|&task| char::from(b'a' + task as u8).to_string())
            .collect();
        names.join("+")
    };
    let mut names: Vec<String> = (0..graph.members.len())
        .filter(|&v| found.cpu[v])
        .map(name)
        .collect();
    names.extend(
        (0..graph.edges.len())
            .filter(|&e| found.io[e])
            .map(|e| format!("{}>{}", name(graph.edges[e].0), name(graph.edges[e].1))),
    );
    names.sort();
    names.join(" ")
}

#[test]
fn one_task_alone() {
    assert_eq!(run("", &[0.95], &[]), "a");
    assert_eq!(run("", &[0.5], &[]), "");
}

#[test]
fn a_threshold_hit_exactly_is_no_bottleneck() {
    assert_eq!(run("", &[0.9], &[]), "");
    assert_eq!(run("", &[0.900_001], &[]), "a");
    assert_eq!(run("ab", &[0.1, 0.1], &[0.9]), "");
    assert_eq!(run("ab", &[0.1, 0.1], &[0.900_001]), "a>b");
}

#[test]
fn a_mean_that_is_the_threshold_but_for_rounding_does_not_exceed_it() {
    // 0.9 × 3 / 3 is a little more than 0.9 in floating point.
    let mut load = Load::default();
    for _ in 0..3 {
        load.add(Load::of(0.9));
    }
    let graph = contract(1, &[]);
    assert!(!detect(&graph, &[load], &[load], &[], (0.9, 0.9)).cpu[0]);
}

/// Of four workers only one has work; the source waits for that one.
#[test]
fn a_single_instance_is_asked_for_where_the_mean_of_all_blames_nobody() {
    let graph = contract(2, &[(0, 1)]);
    let vertex = |task: usize| graph.vertex_of[task];
    let (mut pt, mut single) = ([Load::default(); 2], [Load::default(); 2]);
    pt[vertex(0)].add(Load::of(0.1));
    for share in [1.0, 0.0, 0.0, 0.0] {
        pt[vertex(1)].add(Load::of(share));
    }
    let empty = [Load::of(0.0)];
    let of = |pt: &[Load], single: &[Load]| detect(&graph, pt, single, &empty, (0.9, 0.9));
    assert!(of(&pt, &single).is_nothing());
    single[vertex(1)].add(Load::of(1.0));
    let found = of(&pt, &single);
    assert!(found.by_single && found.cpu[vertex(1)] && !found.cpu[vertex(0)]);
    // A slow source gives the workers too little: one worker has all of the work by chance.
    pt[vertex(0)].add(Load::of(1.0));
    pt[vertex(0)].sum = 2.0;
    let found = of(&pt, &single);
    assert!(!found.by_single && found.cpu[vertex(0)] && !found.cpu[vertex(1)]);
}

#[test]
fn other_thresholds() {
    assert_eq!(run_with("", &[0.6], &[], 0.5, 0.9), "a");
    assert_eq!(run_with("ab", &[0.1, 0.1], &[0.6], 0.9, 0.5), "a>b");
    assert_eq!(run_with("", &[1.0], &[], 1.0, 1.0), "");
    assert_eq!(run_with("", &[0.01], &[], 0.0, 0.9), "a");
}

#[test]
fn the_slow_one_of_a_chain_at_each_place() {
    assert_eq!(run("ab bc", &[0.99, 0.1, 0.1], &[0.0, 0.0]), "a");
    assert_eq!(run("ab bc", &[0.1, 0.99, 0.1], &[0.95, 0.0]), "b");
    assert_eq!(run("ab bc", &[0.1, 0.1, 0.99], &[0.95, 0.95]), "c");
}

#[test]
fn of_two_on_a_path_the_later_one_counts() {
    assert_eq!(run("ab bc", &[0.99, 0.99, 0.1], &[0.0, 0.0]), "b");
    assert_eq!(run("ab bc", &[0.99, 0.1, 0.99], &[0.0, 0.0]), "c");
    assert_eq!(
        run("ab bc cd de", &[0.99, 0.1, 0.1, 0.1, 0.99], &[0.0; 4]),
        "e"
    );
}

/// Bottlenecks of a chain of tasks, each with its share in processing and the part of that in waits for a CPU.
fn chain(loads: &[(f64, f64)]) -> Vec<usize> {
    let edges: Vec<(usize, usize)> = (1..loads.len()).map(|to| (to - 1, to)).collect();
    let graph = contract(loads.len(), &edges);
    let mut pt = vec![Load::default(); loads.len()];
    for (task, &(share, queued)) in loads.iter().enumerate() {
        pt[graph.vertex_of[task]] = Load::with(share, queued);
    }
    let empty = vec![Load::of(0.0); graph.edges.len()];
    let found = detect(&graph, &pt, &pt, &empty, (0.9, 0.9));
    let is_found = |task: &usize| found.cpu[graph.vertex_of[*task]];
    (0..loads.len()).filter(is_found).collect()
}

#[test]
fn a_task_that_only_waits_for_a_cpu_gives_way_to_one_before_it_that_works_more() {
    assert_eq!(chain(&[(0.99, 0.0), (0.95, 0.75)]), [0]);
    assert_eq!(
        chain(&[(0.99, 0.2), (0.1, 0.0), (0.95, 0.6), (0.95, 0.9)]),
        [0]
    );
    assert_eq!(chain(&[(0.99, 0.4), (0.99, 0.0), (0.95, 0.5)]), [1]);
    // All take turns on the CPUs: the paper's choice, as if each had one.
    assert_eq!(chain(&[(0.99, 0.5), (0.99, 0.55)]), [1]);
    assert_eq!(chain(&[(0.99, 0.0), (0.99, 0.05)]), [1]);
}

#[test]
fn a_bottleneck_suppresses_through_tasks_that_are_none() {
    // c suppresses a although b between them waits.
    assert_eq!(run("ab bc", &[1.0, 0.0, 1.0], &[0.0, 0.0]), "c");
}

#[test]
fn parallel_branches_may_have_one_each() {
    assert_eq!(
        run("ab ac bd cd", &[0.1, 0.95, 0.95, 0.1], &[0.0; 4]),
        "b c"
    );
}

#[test]
fn the_join_of_a_diamond_suppresses_both_branches() {
    assert_eq!(run("ab ac bd cd", &[0.1, 0.95, 0.95, 0.95], &[0.0; 4]), "d");
}

#[test]
fn one_branch_of_a_diamond() {
    assert_eq!(run("ab ac bd cd", &[0.95, 0.95, 0.1, 0.1], &[0.0; 4]), "b");
}

#[test]
fn an_edge_counts_only_where_no_task_does() {
    assert_eq!(run("ab bc", &[0.1, 0.1, 0.95], &[0.99, 0.99]), "c");
    assert_eq!(run("ab bc", &[0.1, 0.1, 0.5], &[0.99, 0.1]), "a>b");
}

#[test]
fn a_task_elsewhere_keeps_edges_from_being_examined() {
    // Two parts without connection: line 5 of Algorithm 1 asks for no CPU bottleneck at all.
    assert_eq!(run("ab", &[0.1, 0.1, 0.95], &[0.99]), "c");
}

#[test]
fn of_two_edges_on_a_path_the_later_one_counts() {
    assert_eq!(run("ab bc", &[0.1; 3], &[0.99, 0.99]), "b>c");
    assert_eq!(run("ab bc cd", &[0.1; 4], &[0.99, 0.1, 0.99]), "c>d");
}

#[test]
fn edges_beside_each_other_do_not_suppress_each_other() {
    assert_eq!(run("ab ac", &[0.1; 3], &[0.99, 0.99]), "a>b a>c");
    assert_eq!(run("ab cb", &[0.1; 3], &[0.99, 0.99]), "a>b c>b");
}

#[test]
fn an_edge_suppresses_those_on_all_paths_to_it() {
    assert_eq!(
        run("ab ac bd cd de", &[0.1; 5], &[0.99, 0.99, 0.1, 0.1, 0.99]),
        "d>e"
    );
}

#[test]
fn a_task_without_an_instance_says_nothing() {
    assert_eq!(run("ab bc", &[0.99, -1.0, 0.1], &[0.0, 0.0]), "a");
    assert_eq!(run("ab", &[-1.0, -1.0], &[-1.0]), "");
}

#[test]
fn a_cycle_is_one_vertex_with_the_mean_of_its_members() {
    assert_eq!(run("ab ba", &[0.95, 0.93], &[0.0, 0.0]), "a+b");
    assert_eq!(run("ab ba", &[1.0, 0.7], &[0.0, 0.0]), "");
    assert_eq!(run("ab ba", &[1.0, 0.8], &[0.0, 0.0]), "", "0.9 exactly");
}

#[test]
fn what_follows_a_cycle_suppresses_it() {
    assert_eq!(run("ab ba bc", &[1.0, 1.0, 0.95], &[0.0; 3]), "c");
    assert_eq!(run("ca ab ba", &[1.0, 1.0, 0.95], &[0.0; 3]), "a+b");
}

#[test]
fn an_edge_within_a_cycle_is_none() {
    assert_eq!(run("ab ba bc", &[0.1; 3], &[1.0, 1.0, 0.0]), "");
    assert_eq!(run("ab ba bc", &[0.1; 3], &[1.0, 1.0, 1.0]), "a+b>c");
}

#[test]
fn two_edges_that_contraction_makes_one_are_averaged() {
    assert_eq!(
        run("ab ba ac bc", &[0.1; 3], &[0.0, 0.0, 1.0, 0.85]),
        "a+b>c"
    );
    assert_eq!(run("ab ba ac bc", &[0.1; 3], &[0.0, 0.0, 1.0, 0.7]), "");
}

#[test]
fn a_task_that_feeds_itself_is_no_cycle_with_others() {
    assert_eq!(run("aa ab", &[0.95, 0.1], &[1.0, 0.0]), "a");
}

#[test]
fn longer_cycles_with_an_entry_and_an_exit() {
    assert_eq!(
        run("ab bc cd db de", &[0.1, 0.95, 0.95, 0.95, 0.1], &[0.0; 5]),
        "b+c+d"
    );
}

#[test]
fn the_papers_four_stages() {
    // File Reader, OCR, PDF Creator, PDF Writer, Index, Index Writer (Figure 4).
    let edges = "ab bc cd be ef";
    let idle = 0.05;
    assert_eq!(
        run(
            edges,
            &[0.2, 0.99, 0.25, idle, 0.1, idle],
            &[0.95, 0.0, 0.0, 0.0, 0.0]
        ),
        "b"
    );
    assert_eq!(
        run(
            edges,
            &[0.5, 0.95, 0.99, 0.1, 0.2, idle],
            &[0.95, 0.9, 0.0, 0.0, 0.0]
        ),
        "c"
    );
    assert_eq!(
        run(
            edges,
            &[0.6, 0.8, 0.8, 0.3, 0.3, idle],
            &[0.99, 0.0, 0.0, 0.0, 0.0]
        ),
        "a>b"
    );
}

#[test]
fn instances_are_averaged_and_not_added() {
    let mut load = Load::of(1.0);
    load.add(Load::of(0.5));
    assert_eq!(load.mean(), Some(0.75));
    assert_eq!(Load::default().mean(), None);
}

#[test]
fn no_task_at_all() {
    assert_eq!(run("", &[], &[]), "");
}

proptest! {
    /// The definition, word for word, against the one pass above.
    #[test]
    fn agrees_with_the_definition(
        edges in prop::collection::vec((0usize..9, 0usize..9), 0..24),
        pt in prop::collection::vec(0u8..=10, 9),
        st in prop::collection::vec(0u8..=10, 24),
    ) {
        let graph = contract(9, &edges);
        let mut vertices = vec![Load::default(); graph.members.len()];
        for (task, &share) in pt.iter().enumerate() {
            vertices[graph.vertex_of[task]].add(Load::of(f64::from(share) / 10.0));
        }
        let mut channels = vec![Load::default(); graph.edges.len()];
        for (edge, to) in graph.edge_of.iter().enumerate() {
            if let Some(to) = *to {
                channels[to].add(Load::of(f64::from(st[edge]) / 10.0));
            }
        }
        let found = detect(&graph, &vertices, &vertices, &channels, (0.7, 0.7));
        let reach = |from: usize| {
            let mut reached = vec![from];
            let mut at = 0;
            while let Some(&vertex) = reached.get(at) {
                at += 1;
                for &(a, b) in &graph.edges {
                    if a == vertex && !reached.contains(&b) {
                        reached.push(b);
                    }
                }
            }
            reached
        };
        for (vertex, load) in vertices.iter().enumerate() {
            let below = reach(vertex);
            prop_assert!(below.iter().skip(1).all(|&next| next < vertex), "reverse topological");
            let suppressed = below.iter().skip(1).any(|&next| found.cpu[next]);
            prop_assert_eq!(found.cpu[vertex], load.exceeds(0.7) && !suppressed);
        }
        let any_cpu = found.cpu.contains(&true);
        for (edge, &(_, to)) in graph.edges.iter().enumerate() {
            let below = reach(to);
            let suppressed = (0..graph.edges.len())
                .any(|next| below.contains(&graph.edges[next].0) && found.io[next]);
            let expected = !any_cpu && channels[edge].exceeds(0.7) && !suppressed;
            prop_assert_eq!(found.io[edge], expected);
        }
    }
}
