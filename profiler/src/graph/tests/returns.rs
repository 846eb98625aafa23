//! Processes that read data in a file which others wrote there after they had.

use super::lineage::{ancestors, edges};
use super::*;
use crate::model::Return;

fn back(process: u32, file: u32, wrote_until_ns: i64, read_ns: (i64, i64)) -> Return {
    Return {
        process: ProcessId(process),
        file: FileIndex(file),
        wrote_until_ns,
        read_ns,
        reads: 1,
        read_bytes: 1,
        ..Return::default()
    }
}

/// A script that makes a file which its child fills from another one, reads it and writes a third.
fn filled_by_a_child() -> Workflow {
    let accesses = vec![
        access(0, 1, Some((40, 41)), Some((10, 11))),
        access(1, 0, Some((21, 22)), None),
        access(1, 1, None, Some((23, 24))),
        access(0, 2, None, Some((60, 61))),
    ];
    let mut script = workflow(&[(None, 0), (Some(0), 20)], 3, accesses);
    script.returns = vec![back(0, 1, 11, (40, 41))];
    script
}

#[test]
fn what_a_child_wrote_into_its_parents_file_goes_back_to_it() {
    let dag = lineage(&filled_by_a_child());
    assert_eq!(
        edges(&dag),
        [
            "f0 v1 > p1 read",
            "f1 v1 > f1 v2 update",
            "f1 v2 > p0 2/2 read",
            "p0 1/2 > f1 v1 write",
            "p0 1/2 > p0 2/2 update",
            "p0 1/2 > p1 fork",
            "p0 2/2 > f2 v1 write",
            "p1 > f1 v2 write",
        ]
    );
    assert!(ancestors(&dag, "f2 v1").contains(&"f0 v1".to_owned()));
}

#[test]
fn what_it_adds_afterwards_is_a_version_that_comes_after_the_answer() {
    let mut script = filled_by_a_child();
    script.returns[0].write_ns = Some((50, 51));
    let own = script
        .accesses
        .iter_mut()
        .find(|a| a.write_ns == Some((10, 11)));
    own.unwrap().write_ns = Some((10, 51));
    let dag = lineage(&script);
    let found = edges(&dag);
    for edge in [
        "f1 v2 > f1 v3 update",
        "p0 1/2 > f1 v1 write",
        "p0 2/2 > f1 v3 write",
    ] {
        assert!(found.contains(&edge.to_owned()), "{found:?}");
    }
    assert!(dag.graph.edge_weights().all(|edge| !edge.is_narrowed));
}

#[test]
fn an_older_writer_is_read_and_the_own_version_is_another() {
    // The child began to write first and goes on; the parent writes, too, and reads the whole file.
    let accesses = vec![
        access(0, 0, Some((40, 41)), Some((30, 31))),
        access(1, 0, None, Some((21, 35))),
    ];
    let mut script = workflow(&[(None, 0), (Some(0), 20)], 1, accesses);
    script.returns = vec![back(0, 0, 31, (40, 41))];
    let found = edges(&lineage(&script));
    for edge in ["p1 > f0 v1 write", "f0 v1 > f0 v2 update"] {
        assert!(found.contains(&edge.to_owned()), "{found:?}");
    }
    assert!(
        found.iter().any(|e| e.starts_with("f0 v1 > p0")),
        "{found:?}"
    );
}

#[test]
fn whoever_only_may_have_stored_through_a_mapping_reads_and_writes() {
    let mapped = |process, at| Access {
        read_opens: 1,
        write_opens: 1,
        blind_opens: 1,
        first_open_ns: Some(at),
        span_ns: (at, at + 5),
        ..access(process, 0, None, None)
    };
    let accesses = vec![
        access(0, 0, None, Some((1, 2))),
        mapped(1, 10),
        mapped(2, 20),
        access(3, 0, Some((30, 31)), None),
    ];
    let chain = workflow(&[(None, 0), (None, 5), (None, 15), (None, 25)], 1, accesses);
    let found = edges(&lineage(&chain));
    for edge in [
        "f0 v1 > p1 read",
        "p1 > f0 v2 write",
        "f0 v2 > p2 read",
        "p2 > f0 v3 write",
        "f0 v3 > p3 read",
    ] {
        assert!(found.contains(&edge.to_owned()), "{found:?}");
    }
}

proptest! {
    #[test]
    fn returns_close_no_cycle_and_lose_no_byte(
        mut workflow in random(),
        more in prop::collection::vec((0i64..40, 0i64..20, prop::option::of(0i64..20)), 60),
        blind in prop::collection::vec(any::<bool>(), 60),
    ) {
        for (access, is_blind) in workflow.accesses.iter_mut().zip(blind) {
            if is_blind && access.changes == 0 && access.reads == 0 {
                (access.blind_opens, access.read_opens) = (1, 1);
            }
        }
        let returns = workflow.accesses.iter().zip(more).filter_map(|(access, (at, long, again))| {
            let (first, _) = access.write_ns?;
            let at = first + 1 + at;
            Some(Return {
                read_bytes: access.read_bytes / 2,
                write_bytes: again.map_or(0, |_| access.write_bytes / 2),
                write_ns: again.map(|again| (at + again + 1, at + again + 2)),
                ..back(access.process.0, access.file.0, first, (at, at + long))
            })
        });
        workflow.returns = returns.collect();
        let whole = build(&workflow);
        let cut = lineage(&workflow);
        for dag in [&whole, &cut] {
            prop_assert!(!is_cyclic_directed(&dag.graph));
            let kept = dag.graph.edge_references().map(|edge| *edge.weight());
            let all: Vec<Edge> = kept.chain(dag.dropped.iter().map(|d| d.edge)).collect();
            let moved = all.iter().fold((0, 0), |sum, e| (sum.0 + e.read_bytes, sum.1 + e.write_bytes));
            let accesses = workflow.accesses.iter();
            let expected = accesses.fold((0, 0), |sum, a| (sum.0 + a.read_bytes, sum.1 + a.write_bytes));
            prop_assert_eq!(moved, expected);
        }
        prop_assert!(cut.dropped.iter().all(|d| !d.edge.kind.is_data()));
    }
}
