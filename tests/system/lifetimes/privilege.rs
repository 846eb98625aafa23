//! Programs that gain privilege, and programs that trace others.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{need_process_tracepoints, need_program, need_root};

use super::Stage;

/// A copy of `id`, in a traced directory, that runs as root for every user.
fn set_user_id(stage: &Stage) -> std::path::PathBuf {
    let id = stage.scratch.dir("job").join("id");
    fs::copy("/usr/bin/id", &id).unwrap();
    fs::set_permissions(&id, fs::Permissions::from_mode(0o4755)).unwrap();
    id
}

/// Traced by root, set-user-id programs keep their privilege, even if another user runs them.
#[test]
fn root_lets_set_user_id_programs_be() {
    let Some(stage) = Stage::new() else { return };
    if !(need_root() && need_program("setpriv")) {
        return;
    }
    set_user_id(&stage);
    let user = "setpriv --reuid 54321 --regid 54321 --clear-groups";
    let played = stage.shell(&format!("{user} ./id -u; {user} ./id -ru"), 0);
    assert_eq!(played.finished.stdout_text(), "0\n54321\n");
    assert_eq!(played.lost("setuid_not_granted"), 0);
}

/// Traced by a user, a program with file capabilities runs without them, and the run reports that. A program
/// without any to lose is not counted.
#[test]
fn lost_file_capabilities_are_reported_to_a_user() {
    let Some(stage) = Stage::new() else { return };
    if !(need_root() && need_program("setcap")) {
        return;
    }
    let able = stage.scratch.join("able");
    fs::copy("/usr/bin/true", &able).unwrap();
    finish(Command::new("setcap").arg("cap_net_raw+ep").arg(&able)).expect(0);
    let user = User::new(&stage.scratch);
    let trace = user.home.join("trace.db");
    let mut command = user.command(&user.flowtrace);
    command
        .args(["run", "--quiet", "--no-summary", "-o"])
        .arg(&trace);
    finish(command.args(["--", "sh", "-c", "$0 && true"]).arg(&able)).expect(0);
    let noted: i64 = Trace::open_complete(&trace)
        .one("SELECT SUM(value) FROM losses WHERE counter = 'setuid_not_granted'");
    assert_eq!(noted, 1);
}

/// A tracer inside of the run fails as it does inside of any tracer; the run goes on, and prints what to do.
#[test]
fn a_tracer_inside_is_noticed() {
    let Some(stage) = Stage::new() else { return };
    let by_ptrace = |command: &[&str]| {
        let mut run = stage.run(&["--ptrace"]);
        run.args(command);
        run
    };
    let mut scene = by_ptrace(&[]);
    let played = stage.finish(scene.arg(&stage.program).arg("trace-child"), 1);
    assert_eq!(
        played.lost("tracer_refused"),
        0,
        "not known as a tracer by its name"
    );
    if !need_program("strace") {
        return;
    }
    let script = "strace -V > /dev/null; strace -o log true; exit 3";
    let played = stage.finish(&mut by_ptrace(&["sh", "-c", script]), 3);
    assert_eq!(played.lost("tracer_refused"), 1);
    let meaning: String = played
        .trace
        .one("SELECT meaning FROM losses WHERE counter = 'tracer_refused'");
    assert!(meaning.contains("--no-ptrace"), "{meaning}");
}

/// Without ptrace, a tracer inside of the run works as it does untraced.
#[test]
fn a_tracer_inside_is_not_in_the_way() {
    if !need_process_tracepoints() {
        return;
    }
    let Some(stage) = Stage::new() else { return };
    let mut scene = stage.run(&["--no-ptrace"]);
    stage.finish(scene.arg(&stage.program).arg("trace-child"), 0);
    if need_program("strace") {
        let script =
            "strace -f -o log sh -c '/bin/true; exit 4'; test $? = 4 && grep -q execve log";
        let mut traced = stage.run(&["--no-ptrace"]);
        let played = stage.finish(traced.args(["sh", "-c", script]), 0);
        assert_eq!(played.lost("tracer_refused"), 0);
    }
}
