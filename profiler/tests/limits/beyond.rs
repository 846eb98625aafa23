//! Time of a run beyond the ideal, on hand-made machines.

use flowtrace_profiler::analysis::ideal::{self, Beyond, Capacities};

use crate::play::Doing::{Cpu, Queue};
use crate::run;

const SECOND: i64 = 1_000_000_000;

#[test]
fn other_work_on_the_machine_is_distinguished_from_what_is_not_explained() {
    let run = run(|mut play| {
        play.process("compute", None, 0, &[(4000, Cpu), (8000, Queue)]);
        play.busy(2, 90, 8000);
        play.finish(8000);
    });
    let capacities = Capacities {
        disk_read: 1e9,
        disk_write: 1e9,
        network: None,
        memory: None,
    };
    let phases = ideal::phases(&run.timeline, &[]);
    let found = ideal::ideal(&run.workflow, &run.timeline, &capacities, &phases, &[]).unwrap();
    // It used 4 s of the 16 s of two CPUs; others 90 % of 16 s less these.
    assert_eq!(found.ideal_ns, 2 * SECOND);
    let expected = Beyond {
        other_work: 5_200_000_000,
        unexplained: 800_000_000,
        ..Beyond::default()
    };
    assert_eq!(found.beyond, expected);
    assert_eq!(found.beyond.sum(), found.measured_ns - found.ideal_ns);
}
