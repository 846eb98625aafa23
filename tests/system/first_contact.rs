//! The first run on systems that allow little: it says in one line what it records and what would make it record
//! more, and the command never fails.

use std::fs;
use std::process::Command;

use crate::support::process::finish;
use crate::support::trace::Trace;
use crate::support::user::User;
use crate::support::{
    FLOWTRACE, Scratch, need_announcements, need_fuse, need_kernel_layer, need_program, need_root,
};

/// The work: 21 bytes through a pipe and two files.
const WORK: &str = "seq 10 | sort > a; cat a > b; exit 3";

/// Runs the work with `command`, a prefix that ends in the system to test, and returns the notices at its start.
fn first_run(scratch: &Scratch, command: &mut Command, flowtrace: &str) -> (Vec<String>, Trace) {
    let output = scratch.join("out/trace.db");
    command.args([flowtrace, "run", "-o"]).arg(&output);
    let work = format!("cd {}; {WORK}", scratch.join("work").display());
    let run = finish(command.args(["--", "/bin/sh", "-c", &work])).expect(3);
    assert_eq!(run.stdout_text(), "");
    assert_eq!(
        fs::read_to_string(scratch.join("work/b")).unwrap().len(),
        21
    );
    let notices = run
        .stderr
        .lines()
        .take_while(|line| !line.contains(" finished in "));
    (notices.map(str::to_owned).collect(), Trace::open(&output))
}

/// Makes the directories that a run may write to.
fn place() -> Scratch {
    let scratch = Scratch::new();
    for name in ["work", "out"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(scratch.dir(name), mode).unwrap();
    }
    scratch
}

#[track_caller]
fn expect(notices: &[String], trace: &Trace, layers: [&str; 2], says: &[&str]) {
    let [line] = notices else {
        panic!("not one line: {notices:#?}");
    };
    for words in says {
        assert!(line.contains(words), "{words}: {line}");
    }
    let found = trace.rows("SELECT process_layer, file_layer FROM runs");
    assert_eq!(found, [layers.map(str::to_owned)]);
}

/// The calls that the default seccomp profile of Docker refuses to a container without capabilities for them, as far as
/// flowtrace makes them.
const REFUSED_BY_DOCKER: [i64; 16] = [
    libc::SYS_bpf,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
];

/// A seccomp filter (seccomp(2)) that refuses these calls with EPERM.
fn filter(refused: &[i64]) -> Vec<u8> {
    const LOAD_NUMBER: (u16, u8, u8, u32) = (0x20, 0, 0, 0);
    const ALLOW: (u16, u8, u8, u32) = (0x06, 0, 0, libc::SECCOMP_RET_ALLOW);
    const REFUSE: (u16, u8, u8, u32) = (0x06, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let skip_unless_equal = |call: &i64| [(0x15, 0, 1, *call as u32), REFUSE];
    let refusals = refused.iter().flat_map(skip_unless_equal);
    let program = [LOAD_NUMBER].into_iter().chain(refusals).chain([ALLOW]);
    let bytes = |(code, then, otherwise, value): (u16, u8, u8, u32)| {
        let [a, b] = code.to_ne_bytes();
        let [c, d, e, f] = value.to_ne_bytes();
        [a, b, then, otherwise, c, d, e, f]
    };
    program.flat_map(bytes).collect()
}

/// A container as Docker makes it for root: namespaces of its own, some capabilities, no FUSE device, a seccomp filter.
fn container(scratch: &Scratch, refused: &[i64]) -> Option<Command> {
    if !(need_root() && need_program("bwrap")) {
        return None;
    }
    fs::write(scratch.join("filter"), filter(refused)).unwrap();
    let capabilities = [
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_RAW",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec 9< \"$0\"; exec bwrap \"$@\""])
        .arg(scratch.join("filter"));
    command.args(
        "--seccomp 9 --ro-bind / / --dev /dev --proc /proc --tmpfs /sys --unshare-pid".split(' '),
    );
    command.args("--unshare-ipc --unshare-uts --unshare-net --cap-drop ALL".split(' '));
    for name in capabilities {
        command.args(["--cap-add", &format!("CAP_{name}")]);
    }
    command
        .arg("--bind")
        .args([scratch.join(""), scratch.join("")]);
    command.arg("--chdir").arg(scratch.join("work")).arg("--");
    Some(command)
}

#[test]
fn in_a_container_of_docker() {
    let scratch = place();
    let Some(mut command) = container(&scratch, &REFUSED_BY_DOCKER) else {
        return;
    };
    let (notices, trace) = first_run(&scratch, &mut command, FLOWTRACE);
    let says = [
        "records every process, and opens and names of files, no reads and writes",
        "Operation not permitted",
        "start the container with --device /dev/fuse --cap-add SYS_ADMIN",
    ];
    expect(&notices, &trace, ["ptrace", "none"], &says);
    let opened = "SELECT COUNT(*) FROM files WHERE path LIKE '%/work/a'";
    assert_eq!(trace.one::<i64>(opened), 1);
}

#[test]
fn in_a_container_without_ptrace() {
    let scratch = place();
    let refused = [&REFUSED_BY_DOCKER[..], &[libc::SYS_ptrace]].concat();
    let Some(mut command) = container(&scratch, &refused) else {
        return;
    };
    let (notices, trace) = first_run(&scratch, &mut command, FLOWTRACE);
    let says = [
        "records processes that live longer than some 50 ms, and no file calls",
        "ptrace: Operation not permitted",
        "start the container with --cap-add SYS_PTRACE --device /dev/fuse --cap-add SYS_ADMIN",
    ];
    expect(&notices, &trace, ["scan", "none"], &says);
}

#[test]
fn as_an_ordinary_user() {
    if !need_fuse() {
        return;
    }
    let scratch = place();
    let user = User::new(&scratch);
    let mut command = user.command("env");
    command.args(["-C", scratch.join("work").to_str().unwrap()]);
    let (notices, trace) = first_run(&scratch, &mut command, user.flowtrace.to_str().unwrap());
    let below = format!("every file call below {}", scratch.join("work").display());
    let layer: String = trace.one("SELECT file_layer FROM runs");
    let says = [
        "records every process, and ",
        &below,
        "exact waits: run as root",
    ];
    expect(&notices, &trace, ["ptrace", &layer], &says);
    assert!(layer.starts_with("direct"), "{layer}");
}

/// Only root can trace everything, but nobody asked for that: it is the working directory.
#[test]
fn in_the_root_directory() {
    if !need_fuse() {
        return;
    }
    let scratch = place();
    let user = User::new(&scratch);
    let mut command = user.command("env");
    command.args(["-C", "/"]);
    let (notices, trace) = first_run(&scratch, &mut command, user.flowtrace.to_str().unwrap());
    let says = [
        "records every process, and opens and names of files, no reads and writes",
        "(cannot trace /: only root can trace everything; name the directories that matter",
        "run as root",
    ];
    expect(&notices, &trace, ["ptrace", "none"], &says);
    let lost: i64 = trace.one("SELECT value FROM losses WHERE counter = 'not_traced'");
    assert_eq!(lost, 1);
}

/// As of a service of a forge, or by ssh without a terminal.
#[test]
fn without_a_terminal_and_a_home() {
    if !need_fuse() {
        return;
    }
    let scratch = place();
    let user = User::new(&scratch);
    let mut command = user.command("setsid");
    command.args([
        "-w",
        "env",
        "-i",
        "-C",
        scratch.join("work").to_str().unwrap(),
    ]);
    let (notices, trace) = first_run(&scratch, &mut command, user.flowtrace.to_str().unwrap());
    assert_eq!(notices.len(), 1, "{notices:#?}");
    let written: i64 = trace.one("SELECT SUM(result) FROM calls WHERE op IN ('write', 'copy_to')");
    assert_eq!(written, 42);
}

#[test]
fn without_the_fuse_device() {
    if !need_root() {
        return;
    }
    let scratch = place();
    let user = User::new(&scratch);
    // Of the devices there are only those that every system has.
    let script = r#"mount -t tmpfs tmpfs "$1"; touch "$1/null" "$1/zero" "$1/random" "$1/urandom"
        for name in null zero random urandom; do mount --bind "/dev/$name" "$1/$name"; done
        mount --rbind "$1" /dev; cd "$2"; shift 2
        exec setpriv --reuid 54321 --regid 54321 --clear-groups --inh-caps=-all "$@""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-ec", script, "sh"]);
    command.args([scratch.dir("devices"), scratch.join("work")]);
    let (notices, trace) = first_run(&scratch, &mut command, user.flowtrace.to_str().unwrap());
    let says = [
        "records every process, and opens and names of files, no reads and writes (/dev/fuse: No such file",
        "for more: modprobe fuse",
    ];
    expect(&notices, &trace, ["ptrace", "none"], &says);
}

#[test]
fn as_root_of_a_user_namespace() {
    if !(need_root() && need_fuse()) {
        return;
    }
    let scratch = place();
    let mut command = Command::new("unshare");
    command.args(["-Ur", "env", "-C"]).arg(scratch.join("work"));
    let (notices, trace) = first_run(&scratch, &mut command, FLOWTRACE);
    let layer: String = trace.one("SELECT file_layer FROM runs");
    let says = [
        "records every process, and every file call below",
        "outside of a user namespace",
    ];
    expect(&notices, &trace, ["ptrace", &layer], &says);
    assert!(layer.starts_with("direct"), "{layer}");
}

#[test]
fn on_a_kernel_without_btf() {
    if !(need_root() && need_fuse() && need_kernel_layer()) {
        return;
    }
    let scratch = place();
    let script = r#"mount -t tmpfs tmpfs /sys/kernel/btf; cd "$1"; shift; exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-ec", script, "sh"]);
    command.arg(scratch.join("work"));
    let (notices, trace) = first_run(&scratch, &mut command, FLOWTRACE);
    let layer: String = trace.one("SELECT file_layer FROM runs");
    let says = [
        "records every process, and every file call below",
        "exact waits: use a kernel with BTF",
    ];
    expect(&notices, &trace, ["ptrace", &layer], &says);
    assert!(layer.starts_with("direct"), "{layer}");
}

/// Where everything is recorded, or as the options ask, nothing is said.
#[test]
fn nothing_is_said_where_nothing_is_missing() {
    if !(need_root() && need_fuse() && need_kernel_layer() && need_announcements()) {
        return;
    }
    for options in [&[][..], &["--ptrace"], &["--layer", "fuse"]] {
        let scratch = place();
        let mut command = Command::new(FLOWTRACE);
        command
            .current_dir(scratch.join("work"))
            .arg("run")
            .args(options);
        command.arg("-o").arg(scratch.join("out/trace.db"));
        let run = finish(command.args(["--", "/bin/sh", "-c", WORK])).expect(3);
        assert!(
            !run.stderr.contains("flowtrace: records "),
            "{options:?}: {}",
            run.stderr
        );
    }
}
