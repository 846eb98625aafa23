//! The size of a trace, everything included.

mod workloads;

use workloads::{Play, WORKLOADS};

/// Most bytes of a finished file for each call in it.
const BYTES: u64 = 40;

#[test]
fn a_call_takes_at_most_forty_bytes_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    for (name, run) in WORKLOADS {
        let path = directory.path().join(name);
        let mut play = Play::new(&path);
        // Enough calls that the fixed size of a trace, its tables and views with their comments, does not
        // count.
        run(&mut play, 2);
        let calls = play.calls;
        assert_eq!(play.finish(), 0, "{name}: rows were dropped");
        let size = std::fs::metadata(&path).unwrap().len();
        assert!(
            size <= BYTES * calls,
            "{name}: {size} bytes for {calls} calls, {:.1} each",
            size as f64 / calls as f64
        );
    }
}
