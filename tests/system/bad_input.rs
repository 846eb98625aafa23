//! Errors before, during and after the traced command: each gives a clear message, and no data is lost.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{FLOWTRACE, Scratch, need_fuse, need_root, run_in};

#[test]
fn command_that_does_not_exist() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    for name in [
        "no-such-program-anywhere",
        "./no-such-file",
        "/no/such/file",
    ] {
        let mut command = run_in(&scratch.dir("job"), &scratch.join("trace.db"));
        let finished = finish(command.args(["--force", "--", name])).expect(127);
        assert!(finished.stderr.contains(name), "{}", finished.stderr);
    }
}

#[test]
fn command_that_cannot_be_executed() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("job");
    fs::write(work.join("text"), "no program\n").unwrap();
    fs::create_dir(work.join("directory")).unwrap();
    for name in ["./text", "./directory"] {
        let mut command = run_in(&work, &scratch.join("trace.db"));
        let finished = finish(command.args(["--force", "--", name])).expect(126);
        assert!(finished.stderr.contains(name), "{}", finished.stderr);
    }
}

/// The command must not run if its trace cannot be written.
#[test]
fn output_in_a_missing_directory() {
    let scratch = Scratch::new();
    let work = scratch.dir("job");
    let mut command = run_in(&work, &scratch.join("missing/trace.db"));
    let finished = finish(command.args(["--", "touch", "ran"])).expect(125);
    assert!(
        finished.stderr.contains("missing/trace.db"),
        "{}",
        finished.stderr
    );
    assert!(!work.join("ran").exists(), "the command ran");
}

#[test]
fn output_in_a_directory_of_somebody_else() {
    if !(need_fuse() && need_root()) {
        return;
    }
    let scratch = Scratch::new();
    let user = User::new(&scratch);
    let mut command = user.command(&user.flowtrace);
    command.args(["run", "-o"]).arg(scratch.join("trace.db"));
    let finished = finish(command.args(["--", "touch", "ran"])).expect(125);
    assert!(finished.stderr.contains("trace.db"), "{}", finished.stderr);
    assert!(!user.home.join("ran").exists(), "the command ran");
}

#[test]
fn an_older_trace_is_kept_unless_forced() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (work, trace) = (scratch.dir("job"), scratch.join("trace.db"));
    finish(run_in(&work, &trace).args(["--", "echo", "first"])).expect(0);
    let command_of =
        |trace: &Path| -> String { Trace::open_complete(trace).one("SELECT command FROM runs") };
    let kept = scratch.join("trace.db.old");
    for (command, older) in [("second", "echo first"), ("third", "echo second")] {
        let mut run = Command::new(FLOWTRACE);
        run.args(["run", "--no-summary", "-o", "../trace.db"])
            .current_dir(&work);
        let run = finish(run.args(["--", "echo", command])).expect(0);
        assert!(run.stderr.contains("trace.db.old"), "{}", run.stderr);
        assert_eq!(command_of(&kept), older);
        assert_eq!(command_of(&trace), format!("echo {command}"));
    }
    // A file of that name that is no trace is left alone, and the run refused.
    fs::write(&kept, "mine").unwrap();
    let refused = finish(run_in(&work, &trace).args(["--", "touch", "ran"])).expect(125);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    assert_eq!(command_of(&trace), "echo third");
    assert_eq!(fs::read(&kept).unwrap(), b"mine");
    assert!(!work.join("ran").exists(), "the command ran");
    fs::remove_file(&kept).unwrap();
    // Nor does a trace give way that is being recorded.
    let within = format!("{FLOWTRACE} run -q -o ../trace.db -- touch ran");
    let outer =
        finish(run_in(&work, &trace).args(["--force", "--", "sh", "-c", &within])).expect(0);
    assert!(!kept.exists(), "{}", outer.stderr);
    fs::remove_file(work.join("ran")).unwrap();
    finish(run_in(&work, &trace).args(["--force", "--", "touch", "ran"])).expect(0);
    let command: String = Trace::open_complete(&trace).one("SELECT command FROM runs");
    assert_eq!(command, "touch ran");

    // A program that exists and cannot be executed replaces no trace.
    fs::write(work.join("broken"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(work.join("broken"), fs::Permissions::from_mode(0o755)).unwrap();
    for options in [&["--force"][..], &["--force", "--no-mount"], &[]] {
        let mut run = run_in(&work, &trace);
        let run = run.args(options).args(["--", "./broken"]);
        finish(run).expect(127);
        let command: String = Trace::open_complete(&trace).one("SELECT command FROM runs");
        assert_eq!(command, "touch ran");
    }
    let beside = fs::read_dir(trace.parent().unwrap()).unwrap();
    let beside = beside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let beside: Vec<String> = beside.filter(|name| name.contains("trace.db")).collect();
    assert_eq!(beside, ["trace.db"]);
    // In a mount the command sees no file of the trace, new or old.
    for _ in 0..3 {
        let mut run = run_in(&work, &work.join("within.db"));
        let listed = finish(run.args(["--layer", "fuse", "--", "ls", "-A"])).expect(0);
        assert_eq!(listed.stdout, b"broken\nran\n");
    }

    // A file that is not a trace is never replaced.
    let letter = scratch.join("letter.txt");
    fs::write(&letter, "Dear reader, this is not a database. ".repeat(10)).unwrap();
    for options in [&["--force"][..], &[]] {
        let mut run = run_in(&work, &letter);
        finish(run.args(options).args(["--", "true"])).expect(125);
    }
    assert!(
        fs::read_to_string(&letter)
            .unwrap()
            .starts_with("Dear reader")
    );
}

#[test]
fn hostile_names() {
    if !need_fuse() {
        return;
    }
    let names: Vec<OsString> = vec![
        "new\nline".into(),
        "quote'\"`$(touch pwned)".into(),
        "tab\tand \x1b[31mcolour".into(),
        "-rf".into(),
        " leading and trailing ".into(),
        "ünïcödé 文件 🦀".into(),
        "'; DROP TABLE call; --".into(),
        OsString::from_vec(b"invalid \xff\xfe utf-8".to_vec()),
    ];
    let scratch = Scratch::new();
    let (work, path) = (scratch.dir("job"), scratch.join("trace.db"));
    let mut command = run_in(&work, &path);
    command.args([
        "--",
        "sh",
        "-c",
        "for n in \"$@\"; do cat \"./$n.in\" > \"./$n\" || exit 1; done",
        "sh",
    ]);
    for name in &names {
        let input = [name.as_bytes(), b".in"].concat();
        fs::write(work.join(OsString::from_vec(input)), name.as_bytes()).unwrap();
        command.arg(name);
    }
    finish(&mut command).expect(0);
    let trace = Trace::open_complete(&path);
    let stored = trace.blobs(
        "SELECT DISTINCT COALESCE(n.path_raw, CAST(n.path AS BLOB)) FROM file_names AS n
           JOIN file_access AS a USING (file_id) WHERE a.creates > 0",
    );
    for name in &names {
        let file = work.join(name);
        assert!(file.exists(), "{name:?} was not made");
        let found = stored.iter().any(|p| p == file.as_os_str().as_bytes());
        assert!(found, "{name:?} is not in the trace");
    }
    // Control characters would reach the shell of the user who reads the output.
    for reader in [&["summary"][..], &["tree"], &["dag"]] {
        let mut command = Command::new(FLOWTRACE);
        let shown = finish(command.args(reader).arg(&path)).expect(0);
        let control = |b: &u8| b.is_ascii_control() && *b != b'\n' && *b != b'\t';
        assert!(
            !shown.stdout.iter().any(control),
            "{reader:?} prints control characters"
        );
    }
}

#[test]
fn longest_name_and_deep_path() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (work, path) = (scratch.dir("job"), scratch.join("trace.db"));
    let long = "x".repeat(255);
    let deep = ["d".repeat(200).as_str(); 12].join("/");
    let script = format!("echo 1 > {long}; mkdir -p {deep} && cd {deep} && echo 2 > {long}");
    finish(run_in(&work, &path).args(["--", "bash", "-c", &script])).expect(0);
    let trace = Trace::open_complete(&path);
    for directory in [work.clone(), work.join(deep)] {
        let file = directory.join(&long);
        let found: i64 = trace.one(&format!(
            "SELECT COUNT(DISTINCT file_id) FROM file_names AS n JOIN files AS f USING (file_id)
             WHERE f.kind = 'file' AND n.path = '{}'",
            file.display()
        ));
        assert_eq!(found, 1, "a path of {} bytes", file.as_os_str().len());
    }
}

#[test]
fn a_megabyte_of_arguments() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("trace.db");
    let mut command = run_in(&scratch.dir("job"), &path);
    command.args(["--", "sh", "-c", "printf %s \"$@\" | wc -c; exit $#", "sh"]);
    // The kernel takes at most 128 KiB in one argument.
    let finished = finish(command.args(vec!["y".repeat(100_000); 10])).expect(10);
    assert_eq!(finished.stdout_text().trim(), "1000000");
    let trace = Trace::open_complete(&path);
    // The stored command line has space for one of them.
    let length: i64 = trace.one("SELECT MAX(LENGTH(command)) FROM processes");
    assert!(
        (100_000..131_072).contains(&length),
        "{length} characters of arguments are stored"
    );
}

/// Environments contain passwords.
#[test]
fn environment_is_not_stored() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("trace.db");
    let secret = "correct-horse-battery-staple-7391";
    let mut command = run_in(&scratch.dir("job"), &path);
    command.args([
        "--",
        "sh",
        "-c",
        "test ${#API_TOKEN} -gt 20 && ls / > listing",
    ]);
    finish(command.env("API_TOKEN", secret)).expect(0);
    Trace::open_complete(&path);
    for entry in fs::read_dir(&*scratch).unwrap() {
        let file = entry.unwrap().path();
        if file.is_file() {
            let bytes = fs::read(&file).unwrap();
            let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
            assert!(!found, "the secret is in {}", file.display());
        }
    }
}

/// The workflow is more important than its trace: it goes on and succeeds, and the loss is reported.
#[test]
fn disk_of_the_trace_is_full() {
    if !(need_fuse() && need_root()) {
        return;
    }
    let scratch = Scratch::new();
    let (work, small, kept) = (
        scratch.dir("job"),
        scratch.dir("small"),
        scratch.dir("kept"),
    );
    // In a mount namespace of its own, so that nothing stays mounted; the script copies the trace out.
    let script = "mount -t tmpfs -o size=6m tmpfs \"$1\" || exit 99
        \"$2\" run --no-summary -o \"$1/trace.db\" -- \\
          sh -c 'dd if=/dev/zero of=out bs=1 count=400000 2> /dev/null && echo done > last'
        status=$?; cp \"$1\"/trace.db* \"$3\" || exit 98; exit $status";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .args([small.as_os_str(), OsStr::new(FLOWTRACE), kept.as_os_str()])
        .current_dir(&work);
    let finished = finish(&mut command).expect(0);
    assert_eq!(fs::metadata(work.join("out")).unwrap().len(), 400_000);
    assert_eq!(fs::read_to_string(work.join("last")).unwrap(), "done\n");
    let said = finished.stderr.to_lowercase();
    assert!(
        said.contains("full") || said.contains("no space"),
        "{}",
        finished.stderr
    );
    let trace = Trace::open(&kept.join("trace.db"));
    let full: i64 = trace.one(
        "SELECT COALESCE(SUM(value), 0) FROM losses
         WHERE source = 'store' AND counter = 'disk_full'",
    );
    assert!(full > 0, "the trace does not say that the disk was full");
    let calls: i64 = trace.one("SELECT COUNT(*) FROM calls");
    assert!(calls > 1000, "only {calls} calls were kept");
    let ran = "SELECT COUNT(*) FROM processes WHERE end_ns IS NOT NULL";
    assert!(trace.one::<i64>(ran) >= 3, "the processes are kept");
    let ended: Option<i64> = trace.one("SELECT exit_code FROM runs WHERE end_ns IS NOT NULL");
    assert_eq!(ended, Some(0), "the end of the run is kept");
    let mut summary = Command::new(FLOWTRACE);
    let summary = finish(summary.arg("summary").arg(kept.join("trace.db"))).expect(0);
    let text = summary.stdout_text();
    let (headline, rest) = text.split_once("\n  incomplete ").expect(&text);
    let words: Vec<&str> = headline.split_whitespace().collect();
    assert!(words.join(" ").contains("recorded in part"), "{text}");
    assert!(!rest.contains("incomplete"), "{text}");
    assert!(!text.contains("every process"), "{text}");
}

/// Without space for a report of what is missing there is no trace, and without a trace the command does not
/// run.
#[test]
fn disk_of_the_trace_is_full_already() {
    if !(need_fuse() && need_root()) {
        return;
    }
    let scratch = Scratch::new();
    let (work, small) = (scratch.dir("job"), scratch.dir("small"));
    let script = "mount -t tmpfs -o size=256k tmpfs \"$1\" || exit 99
        \"$2\" run -o \"$1/trace.db\" -- touch ran
        status=$?; ls -A \"$1\"; exit $status";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .args([small.as_os_str(), OsStr::new(FLOWTRACE)])
        .current_dir(&work);
    let finished = finish(&mut command).expect(125);
    assert!(finished.stderr.contains("hint:"), "{}", finished.stderr);
    assert_eq!(finished.stdout_text(), "", "something was left behind");
    assert!(!work.join("ran").exists(), "the command ran");
}

/// The trace is found even if the directory to which its name is relative is removed.
#[test]
fn working_directory_removed_during_the_run() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let (work, traced) = (scratch.dir("job"), scratch.dir("traced"));
    let mut command = Command::new(FLOWTRACE);
    command
        .args(["run", "-o", "../trace.db", "--dir"])
        .arg(&traced)
        .args(["--", "rmdir"])
        .arg(&work)
        .current_dir(&work);
    let finished = finish(&mut command).expect(0);
    assert!(finished.stderr.contains("exit 0"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("cannot"), "{}", finished.stderr);
    Trace::open_complete(&scratch.join("trace.db"));
}

#[test]
fn trace_deleted_or_moved_during_the_run() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let trace = scratch.join("trace.db");
    let renamed = scratch.join("renamed.db");
    for (program, word) in [("rm", "deleted"), ("mv", "moved")] {
        let mut command = Command::new(FLOWTRACE);
        command
            .args(["run", "-o"])
            .arg(&trace)
            .args(["--", program])
            .arg(&trace)
            .current_dir(scratch.dir("job"));
        if program == "mv" {
            command.arg(&renamed);
        }
        let finished = finish(&mut command).expect(0);
        let said = finished.stderr;
        assert!(
            said.contains(&format!("was {word} while it was written")),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        let mut log = trace.clone().into_os_string();
        log.push("-wal");
        assert!(!trace.exists() && !fs::exists(log).unwrap());
    }
    let command: String = Trace::open(&renamed).one("SELECT command FROM runs");
    assert!(command.starts_with("mv "), "{command}");
}

/// An error says what to do.
#[test]
fn errors_have_hints() {
    if !need_fuse() {
        return;
    }
    let scratch = Scratch::new();
    let work = scratch.dir("job");
    std::os::unix::fs::symlink("nowhere/t.db", work.join("link.db")).unwrap();
    for (options, said) in [
        (["--dir", "/no/such/dir"], "cannot trace /no/such/dir"),
        (["--dir", "/proc"], "cannot trace /proc"),
        (
            ["-o", "/no/such/dir/t.db"],
            "cannot create /no/such/dir/t.db",
        ),
        (["-o", "link.db"], "symbolic link to nowhere/t.db"),
    ] {
        let mut command = Command::new(FLOWTRACE);
        command
            .arg("run")
            .args(options)
            .args(["--", "touch", "ran"]);
        let refused = finish(command.current_dir(&work)).expect(125).stderr;
        assert!(refused.contains(said), "{refused}");
        assert!(refused.contains("\n  hint: "), "{refused}");
    }
    assert!(!work.join("ran").exists(), "the command ran");
}
