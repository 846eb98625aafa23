//! Environment variables: those of workflow managers and those of `--env`, for every image.

use super::Stage;

#[test]
fn job_ids_and_what_is_asked_for_are_kept() {
    let Some(stage) = Stage::new() else { return };
    let script = "sh -c 'exit 1'; SLURM_ARRAY_TASK_ID=7 sh -c '(exit 2); sh -c \"exit 3\"; exit 4';
        env -i /bin/sh -c 'exit 5'; exit 6";
    let mut command = stage.run(&["--env", "MY_*"]);
    command
        .args(["sh", "-c", script])
        .env("SLURM_JOB_ID", "17")
        .env("MY_SAMPLE", "a=b c");
    command
        .env("AWS_SECRET_ACCESS_KEY", "hunter2")
        .env("SLURM_JWT", "hunter2");
    // The locale is recorded, too.
    for name in [
        "LANG",
        "LC_ALL",
        "LC_COLLATE",
        "LC_CTYPE",
        "LC_NUMERIC",
        "LC_TIME",
        "TZ",
    ] {
        command.env_remove(name);
    }
    let played = stage.finish(&mut command, 6);
    let of = |code: i32| {
        played.trace.rows(&format!(
            "SELECT name, value FROM environment JOIN processes USING (upid)
             WHERE exit_code = {code} AND origin = 'exec' ORDER BY name"
        ))
    };
    let outer = [["MY_SAMPLE", "a=b c"], ["SLURM_JOB_ID", "17"]];
    let inner = [outer[0], ["SLURM_ARRAY_TASK_ID", "7"], outer[1]];
    assert_eq!(of(6), outer);
    assert_eq!(of(1), outer);
    assert_eq!(of(3), inner);
    assert_eq!(of(4), inner);
    assert!(of(5).is_empty(), "an empty environment");
    let subshell = played.trace.rows(
        "SELECT value FROM environment JOIN processes USING (upid)
         WHERE exit_code = 2 AND name = 'SLURM_ARRAY_TASK_ID'",
    );
    assert_eq!(subshell, [["7"]], "a fork has its parent's");
    // Variables are stored only where they change.
    let stored: i64 = played
        .trace
        .one("SELECT COUNT(*) FROM environment_variable");
    assert_eq!(stored, 5);
    let database = std::fs::read(stage.trace_path()).unwrap();
    let secret = b"hunter2";
    assert!(!database.windows(secret.len()).any(|part| part == secret));
}

#[test]
fn a_wrong_pattern_is_refused() {
    let Some(stage) = Stage::new() else { return };
    let mut command = stage.run(&["--env", "A["]);
    let refused = crate::support::process::finish(command.arg("true")).expect(125);
    assert!(refused.stderr.contains("--env"), "{}", refused.stderr);
}
