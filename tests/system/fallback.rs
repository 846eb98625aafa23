//! Systems without mount namespaces, and systems where file calls cannot be seen at all.

use std::process::Command;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{Scratch, flowtrace, need_fuse, need_program, need_root};

/// A command as user nobody, whom fusermount3 must find in the list of users, below a root directory other
/// than that of its namespace: the kernel allows no user namespace there.
fn in_a_jail(scratch: &Scratch, script: &str) -> Command {
    let jail = r#"
        set -e
        jail=$1/jail; mkdir "$jail"; mount --rbind / "$jail"
        mount -t tmpfs -o mode=755 tmpfs "$1/devices"
        mknod -m 666 "$1/devices/fuse" c 10 229
        mount --bind "$1/devices/fuse" "$jail/dev/fuse"
        cd "$jail/$2"
        exec chroot "$jail" setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all \
            env -u XDG_RUNTIME_DIR HOME="$2" FLOWTRACE="$3" sh -ec "cd \"\$HOME\"; $4""#;
    let user = User::new(scratch);
    scratch.dir("devices");
    std::os::unix::fs::chown(&user.home, Some(65534), Some(65534)).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "private", "sh", "-c", jail, "sh"])
        .arg(scratch.join(""))
        .arg(&user.home)
        .arg(&user.flowtrace)
        .arg(script);
    command
}

#[test]
fn without_namespaces_the_command_runs_in_a_mount_elsewhere() {
    if !(need_root() && need_fuse() && need_program("fusermount3")) {
        return;
    }
    let scratch = Scratch::new();
    let script = "mkdir sub; cd sub; \"$FLOWTRACE\" run -o ../trace.db --dir .. -- \
                  sh -c 'echo hello > ../file; pwd; exit 3'";
    let run = finish(&mut in_a_jail(&scratch, script)).expect(3);
    let seen_in = run.stdout_text();
    assert!(seen_in.contains("/flowtrace-") && seen_in.trim_end().ends_with("/home/sub"));
    assert!(
        run.stderr.contains("no private mount here"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("for more: "), "{}", run.stderr);
    let home = scratch.join("home");
    assert_eq!(std::fs::read(home.join("file")).unwrap(), b"hello\n");
    let trace = Trace::open(&home.join("trace.db"));
    let written: i64 = trace.one("SELECT SUM(result) FROM calls WHERE op = 'write'");
    assert_eq!(written, 6);
    let lost: String = trace.one("SELECT counter FROM losses");
    assert_eq!(lost, "own_path_not_seen");
    let left: Vec<_> = std::fs::read_dir("/tmp")
        .unwrap()
        .filter(|e| seen_in.contains(e.as_ref().unwrap().path().to_str().unwrap_or("?")))
        .collect();
    assert!(left.is_empty(), "a mount point is left: {left:?}");
}

#[test]
fn without_fuse_processes_are_still_traced() {
    if !need_root() {
        return;
    }
    let scratch = Scratch::new();
    let user = User::new(&scratch);
    let device = scratch.join("no-device");
    std::fs::write(&device, "").unwrap();
    let script = r#"mount --bind "$1" /dev/fuse; cd "$2"
        exec setpriv --reuid 54321 --regid 54321 --clear-groups \
            "$3" run -o trace.db -- sh -c 'echo hello > file; exit 4'"#;
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "private", "sh", "-ec", script, "sh"])
        .args([&device, &user.home, &user.flowtrace]);
    let run = finish(&mut command).expect(4);
    assert!(
        run.stderr.contains("no reads and writes (/dev/fuse: "),
        "{}",
        run.stderr
    );
    // Opens were seen, but no reads and writes.
    let data = "how much was read and written was not seen";
    assert!(run.stderr.contains(data), "{}", run.stderr);
    let trace = Trace::open(&user.home.join("trace.db"));
    let (processes, layer): (i64, String) = (
        trace.one("SELECT COUNT(*) FROM processes WHERE origin = 'exec' AND exit_code = 4"),
        trace.one("SELECT file_layer FROM runs"),
    );
    assert_eq!((processes, layer.as_str()), (1, "none"));
    let lost: String = trace.one("SELECT counter FROM losses");
    assert_eq!(lost, "not_traced");
    // Another recording like this one would have no more.
    for question in ["check", "generate"] {
        let refused = flowtrace(&user.home, &[question, "trace.db"]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("no reads and writes"), "{said}");
        assert!(
            said.contains("flowtrace doctor says what /dev/fuse"),
            "{said}"
        );
    }
}

/// A layer that is certain to be refused is refused before an older trace is replaced.
#[test]
fn a_layer_that_is_refused_replaces_no_trace() {
    if !need_root() {
        return;
    }
    let scratch = Scratch::new();
    let user = User::new(&scratch);
    let run = |options: &[&str]| {
        let mut command = user.command(&user.flowtrace);
        command.current_dir(&user.home).arg("run").args(options);
        finish(command.args(["-o", "trace.db", "--", "sh", "-c", "exit 3"]))
    };
    run(&["--no-mount"]).expect(3);
    let before = std::fs::read(user.home.join("trace.db")).unwrap();
    for options in [
        &["--force", "--layer", "kernel"][..],
        &["--force", "--layer", "kernel", "--no-mount"],
    ] {
        let refused = run(options).expect(125);
        let says = refused.stderr.trim_start_matches("flowtrace: ");
        assert!(says.starts_with("no kernel layer here"), "{says}");
        let after = std::fs::read(user.home.join("trace.db")).unwrap();
        assert!(after == before, "the trace is as it was");
    }
}
