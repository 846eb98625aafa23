//! Costs of processes, compared with the numbers that the kernel gives the programs themselves.

use super::Stage;

/// A few ticks of /proc, and the time from the program's reading of its own costs to its end, which has no
/// bound on a busy machine.
const SLACK_US: i64 = 50_000;

/// User and system time of a process are those that the process reads itself.
#[test]
fn a_process_is_charged_what_it_was_charged() {
    let Some(stage) = Stage::new() else { return };
    for seconds in ["0", "0.03", "0.5"] {
        let played = stage.play(&["print-usage", seconds], 0);
        let row = &played
            .trace
            .rows("SELECT user_ns / 1000, sys_ns / 1000 FROM processes")[0];
        for (column, name) in row.iter().zip(["user_us", "sys_us"]) {
            let (traced, said) = (column.parse::<i64>().unwrap(), played.said(name));
            assert!(
                (traced - said).abs() <= SLACK_US,
                "{name}: {traced}, the program says {said}"
            );
        }
    }
}

/// A shell is not charged for its children. The sum of all processes is what the kernel charges to the parent
/// of the whole tree.
#[test]
fn children_are_charged_once() {
    let Some(stage) = Stage::new() else { return };
    let script = "$0 print-usage 0.2 | cat > /dev/null; for i in 1 2 3 4 5; do
        (dd if=/dev/zero bs=64k count=2000 2> /dev/null | gzip -1 | wc -c) > /dev/null; done; times";
    let played = stage.shell(script, 0);
    let text = played.finished.stdout_text();
    // `times` of sh: one line for the shell, one for the children that it has waited for.
    let seconds = |line: &str| -> f64 {
        let parts = line.split_whitespace().map(|time| {
            let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
            minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
        });
        parts.sum()
    };
    let kernel: f64 = text.lines().map(seconds).sum();
    let own: i64 = played.trace.one("SELECT SUM(on_cpu_ns) FROM processes");
    let own = own as f64 / 1e9;
    // Four times with a granularity of 10 ms, and the work of the shell after it has printed them.
    assert!(
        (own - kernel).abs() < 0.05 * kernel + 0.1,
        "{own} s, the kernel says {kernel} s"
    );

    let shell: i64 = played
        .trace
        .one("SELECT read_bytes FROM processes WHERE upid = 1");
    assert!(
        shell < 1_000_000,
        "the shell is charged {shell} B of its children's reads"
    );
    let dd: i64 = played
        .trace
        .one("SELECT MIN(read_bytes) FROM processes WHERE origin = 'exec' AND command LIKE 'dd %'");
    assert!((131_072_000..132_072_000).contains(&dd), "{dd}");
}

/// Time on a CPU, in the queue and in stops is part of the life of a process of one thread.
#[test]
fn no_life_is_shorter_than_its_parts() {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["storm", "vfork", "300"], 0);
    // The clock of the scheduler is not that of the events: a life begins when the tracer, which waits for a
    // CPU as well, gets the event, and the process may have waited before that.
    let rows = played.trace.rows(
        "SELECT upid, duration_ns, on_cpu_ns, run_queue_ns, tracer_ns FROM processes
         WHERE threads = 1 AND on_cpu_ns + tracer_ns > duration_ns + 100000000",
    );
    assert!(rows.is_empty(), "{rows:?}");
    let rows = played.trace.rows(
        "SELECT upid, on_cpu_ns, run_queue_ns, tracer_ns, thread_ns FROM processes
         WHERE on_cpu_ns + run_queue_ns + tracer_ns > thread_ns + 100000000",
    );
    assert!(rows.is_empty(), "{rows:?}");
    let unknown = played
        .count("user_ns IS NULL OR sys_ns IS NULL OR on_cpu_ns IS NULL OR run_queue_ns IS NULL");
    assert_eq!(unknown, 0);
}

/// An exec with very many arguments takes long. Its time belongs to the old image, even if other processes
/// run on its CPU meanwhile, and no process is charged for the time of another.
#[test]
fn a_long_exec_is_charged_to_nobody_else() {
    let Some(stage) = Stage::new() else { return };
    let script = "many=$(yes y | head -60000 | tr '\\n' ' ')
        for i in $(seq 30); do /bin/true $many; done";
    let played = stage.shell(script, 0);
    let rows = played.trace.rows(
        "SELECT on_cpu_ns / 1000, run_queue_ns / 1000, duration_ns / 1000 FROM processes
         WHERE exe LIKE '%/true' AND origin = 'exec'",
    );
    assert_eq!(rows.len(), 30);
    for row in rows {
        let [on_cpu, run_queue, life] = [0, 1, 2].map(|n| row[n].parse::<i64>().unwrap());
        // The dynamic linker takes more than that.
        assert!(on_cpu > 100, "{row:?}");
        assert!(on_cpu + run_queue <= life + 200, "{row:?}");
    }
}
