//! A parallel run: every rank has a trace of its own, and all of them become one.

use std::process::Command;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::{FLOWTRACE, Scratch, need_fuse};

#[test]
fn every_rank_has_a_file_and_all_become_one() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let job = scratch.dir("job");
    let traces = scratch.dir("traces");
    // The second uses what the first wrote.
    for (rank, script) in [("0", "echo one > data"), ("1", "cat data"), ("1", "true")] {
        let mut run = Command::new(FLOWTRACE);
        run.args(["run", "--quiet", "--no-summary", "--out-dir"])
            .arg(&traces)
            .args(["--", "sh", "-c", script])
            .env("OMPI_COMM_WORLD_RANK", rank)
            .env("PMIX_NAMESPACE", "job-7")
            .current_dir(&job);
        finish(&mut run).expect(0);
    }
    let mut names: Vec<String> = std::fs::read_dir(&traces)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0].ends_with(".0.db"), "{names:?}");
    assert!(
        names[1].ends_with(".1.2.db") && names[2].ends_with(".1.db"),
        "{names:?}"
    );
    let mut merge = Command::new(FLOWTRACE);
    merge.args(["merge", "-o", "../all.db"]).args(&names);
    let said = finish(merge.current_dir(&traces)).expect(0).stderr;
    assert!(said.contains("all of one boot: exact"), "{said}");
    let merged = Trace::open_complete(&scratch.join("all.db"));
    let ranks: String = merged.one("SELECT GROUP_CONCAT(job || ' ' || rank, ', ') FROM runs");
    assert_eq!(ranks, "job-7 0, job-7 1, job-7 1");
    let ordered: i64 = merged.one(
        "SELECT COUNT(*) FROM runs AS a JOIN runs AS b ON b.run_id = a.run_id + 1
         WHERE b.start_ns > a.start_ns",
    );
    assert_eq!(ordered, 1, "the names are in another order than the runs");
    let moved: String = merged.one(
        "SELECT GROUP_CONCAT(DISTINCT r.rank || ' ' || a.relation) FROM file_access AS a
         JOIN files AS f USING (file_id) JOIN processes AS p USING (upid)
         JOIN runs AS r USING (run_id)
         WHERE f.path LIKE '%/job/data' AND a.relation <> 'none'",
    );
    assert_eq!(
        moved, "0 create,1 read",
        "one file, written by one rank and read by the other"
    );
    let files: i64 =
        merged.one("SELECT COUNT(*) FROM files WHERE path LIKE '%/job/data' AND kind = 'file'");
    assert_eq!(files, 1);
}
