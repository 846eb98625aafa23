//! Ten thousand short programs, started in different ways: none is missing, none has a wrong parent, none a
//! wrong exit code.

use super::Stage;

const PROGRAMS: i64 = 10_000;

fn storm(how: &str) {
    let Some(stage) = Stage::new() else { return };
    let played = stage.play(&["storm", how, &PROGRAMS.to_string()], 0);
    let program = &played.program;
    let ran = format!("origin = 'exec' AND command LIKE '{program} exit %'");
    assert_eq!(played.count(&ran), PROGRAMS, "programs");
    assert_eq!(
        played.count(&format!("{ran} AND parent_upid = 1")),
        PROGRAMS,
        "parents"
    );
    let right = "exit_code = CAST(SUBSTR(command, INSTR(command, ' exit ') + 6) AS INTEGER)";
    assert_eq!(
        played.count(&format!("{ran} AND {right}")),
        PROGRAMS,
        "exit codes"
    );
    for code in 0..251 {
        let due = (0..PROGRAMS).filter(|number| number % 251 == code).count() as i64;
        assert_eq!(
            played.count(&format!("{ran} AND exit_code = {code}")),
            due,
            "exit {code}"
        );
    }
    assert_eq!(played.count("prev_upid IS NULL"), PROGRAMS + 1, "processes");
    assert_eq!(played.lost("proc_unreadable"), 0);

    // The kernel's CPU time of all of them together, compared with the sum of theirs.
    let own: i64 = played
        .trace
        .one("SELECT SUM(on_cpu_ns) FROM processes WHERE upid <> 1");
    let (own, kernel) = (own as f64 / 1e3, played.said("children_us") as f64);
    // The kernel's sum lacks the cost of waiting, that of processes that leave their CPU in the middle of an
    // exec.
    assert!(
        (0.95..1.1).contains(&(own / kernel)),
        "{how}: {own} us against the kernel's {kernel}"
    );
}

#[test]
fn by_posix_spawn() {
    storm("posix_spawn");
}

#[test]
fn by_fork_and_exec() {
    storm("fork");
}

#[test]
fn by_vfork() {
    storm("vfork");
}

#[test]
fn from_32_threads() {
    storm("threads");
}
