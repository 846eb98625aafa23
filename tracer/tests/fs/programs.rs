//! Real programs on the mount.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::mounted::{Mounted, Way};

fn shell(directory: &Path, script: &str) -> String {
    let output = Command::new("sh")
        .args(["-euc", script])
        .current_dir(directory)
        .env("HOME", directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns true if an optional program is installed.
fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .unwrap()
        .success();
    let required = std::env::var_os("FLOWTRACE_REQUIRE_SYSTEM") == Some("1".into());
    assert!(found || !required, "no {program}");
    if !found {
        eprintln!("skipped: no {program}");
    }
    found
}

fn both_modes(test: impl Fn(&Mounted)) {
    for way in Way::ALL {
        if let Some(mounted) = Mounted::new(way.options()) {
            test(&mounted);
        }
    }
}

#[test]
fn sqlite_in_both_journal_modes() {
    if !has("sqlite3") {
        return;
    }
    both_modes(|mounted| {
        for mode in ["wal", "delete"] {
            let script = format!(
                "sqlite3 {mode}.db 'PRAGMA journal_mode={mode}; CREATE TABLE t (a);' >/dev/null
                 for i in 1 2; do
                   (for j in $(seq 20); do
                      sqlite3 -cmd '.timeout 20000' {mode}.db 'INSERT INTO t VALUES (1);'
                    done) &
                 done; wait
                 sqlite3 {mode}.db 'PRAGMA integrity_check; SELECT count(*) FROM t;'"
            );
            let found = shell(&mounted.seen, &script);
            assert_eq!(found, "ok\n40", "{mode}, {:?}", mounted.layer());
        }
    });
}

#[test]
fn git_works() {
    if !has("git") {
        return;
    }
    both_modes(|mounted| {
        let script = "git init -q r && cd r
            git config user.email a@b && git config user.name n
            for i in $(seq 50); do echo $i >file$i; done
            git add . && git commit -qm one
            git mv file1 moved && echo changed >file2 && git commit -qam two
            git checkout -q -b other HEAD~1 && git checkout -q -
            git gc -q && git fsck --strict 2>&1
            git status --porcelain; git log --oneline | wc -l";
        assert_eq!(shell(&mounted.seen, script), "2");
    });
}

#[test]
fn a_compiler_and_its_linker_work() {
    if !has("cc") {
        return;
    }
    both_modes(|mounted| {
        let script = "printf '#include <stdio.h>\nint main(){puts(\"built\");return 0;}' >a.c
            cc -g -c a.c -o a.o && cc a.o -o a && ./a";
        assert_eq!(shell(&mounted.seen, script), "built");
    });
}

#[test]
fn executables_run_inside_and_outside() {
    both_modes(|mounted| {
        let program = mounted.source.join("sleeper");
        let sleep = ["/bin/sleep", "/usr/bin/sleep"];
        let sleep = sleep.iter().find(|path| Path::new(path).exists()).unwrap();
        fs::copy(sleep, &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        // A program that was opened through the mount, earlier also for writing, still runs outside.
        drop(
            fs::OpenOptions::new()
                .append(true)
                .open(mounted.path("sleeper")),
        );
        let open = fs::File::open(mounted.path("sleeper")).unwrap();
        let run = |path: &Path| Command::new(path).arg("0").status();
        // A release comes after its close, and a child that another test forks at that instant has the file
        // open for writing until its exec.
        let patience = Instant::now() + Duration::from_secs(60);
        while run(&program).is_err_and(|e| e.kind() == std::io::ErrorKind::ExecutableFileBusy) {
            assert!(Instant::now() < patience, "busy for ever");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(run(&program).unwrap().success());
        // The program runs through the mount, twice at once, while it is open and while it runs outside.
        let mut outside = Command::new(&program).arg("5").spawn().unwrap();
        let mut inside = Command::new(mounted.path("sleeper"))
            .arg("5")
            .spawn()
            .unwrap();
        assert!(run(&mounted.path("sleeper")).unwrap().success());
        let busy = fs::OpenOptions::new()
            .append(true)
            .open(mounted.path("sleeper"))
            .unwrap_err();
        assert_eq!(busy.raw_os_error(), Some(libc::ETXTBSY));
        outside.kill().unwrap();
        inside.kill().unwrap();
        outside.wait().unwrap();
        inside.wait().unwrap();
        drop(open);
    });
}

#[test]
fn locks_work_among_the_users_of_the_mount() {
    if !has("flock") {
        return;
    }
    both_modes(|mounted| {
        let script = "(flock 9; sleep 0.3; echo first) 9>lock &
            sleep 0.1; (flock 9; echo second) 9>lock; wait";
        assert_eq!(shell(&mounted.seen, script), "first\nsecond");
    });
}
