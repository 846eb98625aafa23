use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::proc::pipe_content::begin_with_unread;
use crate::proc::snapshot::ProcessSnapshot;
use crate::proc::topology::CallKind;
use crate::stat;

/// `None`, with a message: this process may not load programs.
fn below(root: u32) -> Option<Tracepoints> {
    let opened =
        TracedPids::below(root).and_then(|all| Tracepoints::open(Some(all), Reported::Files));
    match opened {
        Ok(tracepoints) => Some(tracepoints),
        Err(error) => {
            eprintln!("skipped: programs at the scheduler's tracepoints: {error}");
            None
        }
    }
}

/// Collects events until `enough` returns true.
fn events(tracepoints: &mut Tracepoints, enough: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut all = Vec::new();
    while !enough(&all) {
        assert!(Instant::now() < deadline, "{all:#?}");
        tracepoints.receive(|event| all.push(event));
    }
    all
}

fn end_of(pid: u32) -> impl Fn(&[Event]) -> bool {
    move |events| {
        let mut events = events.iter();
        events.any(|event| matches!(&event.what, What::Ended(end) if end.tid == pid))
    }
}

#[test]
fn a_program_is_reported_with_what_it_runs_and_used() {
    let Some(mut tracepoints) = below(std::process::id()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let long = "x".repeat(9_000);
    let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; echo $i; exit 7";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, &long]).current_dir(&directory);
    command.env_clear().env("A", "1").env("B", "2");
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let events = events(&mut tracepoints, end_of(pid));
    let own = std::process::id();
    let forked = |event: &Event| matches!(event.what, What::Forked { by, child, inner: None, .. } if (by, child) == (own, pid));
    assert!(events.iter().any(forked));
    let executed = events.iter().find_map(|event| match &event.what {
        What::Executed(executed) if executed.pid == pid => Some(executed),
        _ => None,
    });
    let executed = executed.expect("the exec");
    let exe = std::fs::canonicalize("/bin/sh").unwrap();
    assert_eq!(executed.exe.as_ref().unwrap().as_os_str(), exe.as_os_str());
    let cwd = executed.cwd.as_ref().unwrap();
    assert_eq!(cwd.as_os_str(), directory.as_os_str());
    let argv =
        ["/bin/sh", "-c", script, &long].map(|argument| [argument.as_bytes(), b"\0"].concat());
    assert_eq!(executed.argv, Some(argv.concat()));
    assert_eq!(executed.environ.as_deref(), Some(&b"A=1\0B=2\0"[..]));
    assert_eq!(executed.former, pid);
    let end = events.iter().find_map(|event| match &event.what {
        What::Ended(end) if end.tid == pid => Some(end),
        _ => None,
    });
    let end = end.expect("the end");
    assert_eq!(end.wait_status >> 8, 7);
    assert_eq!(end.pid, pid);
    let (before, used) = (executed.used.costs, end.used.costs);
    assert!(used.on_cpu_ns > before.on_cpu_ns);
    assert!(used.minor_faults > 0 && used.voluntary_switches > 0 && used.max_rss_bytes > 0);
    assert_eq!(
        used.io.unwrap().write_bytes - before.io.unwrap().write_bytes,
        6
    );
}

#[test]
fn a_signal_and_a_removed_program_are_reported() {
    let Some(mut tracepoints) = below(std::process::id()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let program = directory.join("program");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut child = Command::new(&program)
        .arg0("odd name")
        .arg("60")
        .spawn()
        .unwrap();
    std::fs::remove_file(&program).unwrap();
    child.kill().unwrap();
    let pid = child.id();
    let status = child.wait().unwrap();
    let events = events(&mut tracepoints, end_of(pid));
    for event in &events {
        match &event.what {
            What::Executed(executed) if executed.pid == pid => {
                let exe = executed.exe.as_ref().unwrap().as_os_str().as_bytes();
                assert!(exe.starts_with(program.as_os_str().as_bytes()));
                assert_eq!(executed.argv.as_deref(), Some(&b"odd name\x0060\0"[..]));
            }
            What::Ended(end) if end.pid == pid => {
                assert_eq!(end.wait_status & 0x7f, status.signal().unwrap());
            }
            _ => {}
        }
    }
}

#[test]
fn each_thread_is_reported() {
    let Some(mut tracepoints) = below(std::process::id()) else {
        return;
    };
    let tid = std::thread::spawn(|| nix::unistd::gettid().as_raw() as u32);
    let tid = tid.join().unwrap();
    let events = events(&mut tracepoints, end_of(tid));
    let pid = std::process::id();
    let began = Event {
        at_ns: 0,
        what: What::ThreadBegan { pid, tid },
    };
    assert!(events.iter().any(|event| event.what == began.what));
    assert_eq!(tracepoints.dropped(), 0);
}

#[test]
fn other_processes_are_not_reported_unless_all_are() {
    let Some(mut none) = below(1) else {
        return;
    };
    let mut all = Tracepoints::open(None, Reported::Lifetimes).unwrap();
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    events(&mut all, end_of(pid));
    let mut reported = Vec::new();
    none.receive(|event| reported.push(event));
    assert!(!end_of(pid)(&reported), "{reported:?}");
}

#[test]
fn open_files_are_reported_at_forks_execs_and_exits() {
    use crate::proc::descriptors::Object;
    use crate::proc::snapshot::ProcessSnapshot;

    let Some(mut tracepoints) = below(std::process::id()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let (input, output) = (directory.join("in"), directory.join("out"));
    std::fs::write(&input, "0123456789").unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"four").unwrap();
    drop(writer);
    let mut file = std::fs::File::open(&input).unwrap();
    file.seek(std::io::SeekFrom::Start(3)).unwrap();
    // The shell runs no program, so that its exit is that of the image.
    let script = "exec 4>>out; echo longer >&4; read x <&5; kill -9 $$";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).current_dir(&directory);
    command.stdin(file).stdout(Stdio::null());
    let fd = reader.as_raw_fd();
    // SAFETY: dup2 may be called between fork and exec.
    #[expect(unsafe_code)]
    unsafe {
        command.pre_exec(move || match libc::dup2(fd, 5) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut child = command.spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let events = events(&mut tracepoints, end_of(pid));
    let mut snapshots = events.iter().filter_map(|event| match &event.what {
        What::Forked { child, maker, .. } if *child == pid => Some(maker.as_deref().unwrap()),
        What::Executed(executed) if executed.pid == pid => {
            Some(executed.snapshot.as_deref().unwrap())
        }
        What::Exiting(snapshot) if snapshot.pid == pid => Some(snapshot),
        _ => None,
    });
    let [fork, exec, end] = [(); 3].map(|()| snapshots.next().unwrap());
    let channels = |snapshot: &BpfSnapshot| snapshot.channels().unwrap();
    let pipe = |snapshot: &BpfSnapshot, fd: i32| {
        let of_it = channels(snapshot).into_iter().find(|one| one.fd == fd);
        of_it.map(|one| (one.object, one.direction))
    };
    let ours = crate::proc::descriptors::one(std::process::id(), fd).unwrap();
    assert!(matches!(ours.object, Object::Pipe { .. }));
    let expected = (ours.object, ours.direction);
    assert_eq!(pipe(fork, fd), Some(expected));
    assert_eq!(pipe(exec, 5), Some(expected));
    let capacities: Vec<_> = channels(exec).iter().map(|one| one.capacity).collect();
    assert!(capacities.contains(&Some(65_536)), "{capacities:?}");
    assert!(exec.left(5).is_some() && exec.left(0).is_none());
    let targets = exec.targets();
    assert_eq!(targets[&0], input.as_os_str());
    assert_eq!(targets[&1], *"/dev/null");
    assert_eq!(exec.state(0), Some((0, 3)));
    let extent = |snapshot: &BpfSnapshot, fd| snapshot.extent(fd).unwrap();
    assert_eq!(extent(exec, 0).1, 10);
    let attributes = exec.attributes(0).unwrap();
    assert_eq!(extent(exec, 0).0.1, attributes.ino);
    assert_eq!(exec.state(4), None);
    assert_eq!(
        end.state(4).unwrap().0 as i32,
        libc::O_WRONLY | libc::O_APPEND
    );
    assert_eq!(
        extent(end, 4),
        (
            (
                std::fs::metadata(&output).unwrap().dev(),
                std::fs::metadata(&output).unwrap().ino()
            ),
            7
        )
    );
    let moved = end.traffic().unwrap() - exec.traffic().unwrap();
    assert_eq!(moved.write_bytes, 7);
    assert!(exec.arguments().ends_with(b"$$\0"));
}

#[test]
fn what_an_exec_reads_itself_is_known() {
    use crate::proc::exec_reads::Programs;
    use crate::proc::snapshot::ProcessSnapshot;

    let Some(mut tracepoints) = below(std::process::id()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let short = directory.path().join("short");
    std::fs::write(&short, "#!/bin/sh -e\n:\n").unwrap();
    std::fs::set_permissions(&short, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let programs = [
        "/bin/sh",
        "/bin/cat",
        "/usr/bin/env",
        "/usr/bin/perl",
        "/bin/bash",
    ];
    let programs = programs.into_iter().map(std::path::PathBuf::from);
    for program in programs.chain([short]).filter(|program| program.exists()) {
        let mut child = Command::new(&program).stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let events = events(&mut tracepoints, end_of(pid));
        let exec = events.iter().find_map(|event| match &event.what {
            What::Executed(executed) if executed.pid == pid => executed.snapshot.as_deref(),
            _ => None,
        });
        let exec = exec.unwrap();
        let read = exec.read_by_exec(&mut Programs::default()).unwrap();
        let in_all = exec.traffic().unwrap().read_bytes;
        assert_eq!(
            read.before(in_all),
            Some(0),
            "{}: {read:?} of {in_all}",
            program.display()
        );
        assert_eq!(read.before(in_all + 3), Some(3));
    }
}

/// The run waits until the kernel has checked the programs, which takes a microsecond for an instruction or
/// more.
#[test]
fn the_kernel_checks_the_programs_soon() {
    const MOST: usize = 8_000;
    let Some(tracepoints) = below(std::process::id()) else {
        return;
    };
    let checked = |program: &OwnedFd| {
        let info = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
        let info = std::fs::read_to_string(info).unwrap();
        let lines = info.lines();
        let reported = lines.filter_map(|line| line.strip_prefix("verified_insns:"));
        reported
            .map(|count| count.trim().parse::<usize>().unwrap())
            .sum::<usize>()
    };
    let all: usize = tracepoints.owned.iter().map(checked).sum();
    assert!(all < MOST, "{all}");
}

/// Calls are reported with their descriptors, names and addresses.
#[test]
fn calls_are_reported_with_what_they_did() {
    let Some(mut tracepoints) = below(std::process::id()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let same = directory.join("same");
    let script =
        "exec 3> new; exec 4< new; mv new kept; rm kept; echo x | cat > /dev/null; : > same";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).current_dir(&directory);
    let mut child = command.spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let events = events(&mut tracepoints, end_of(pid));
    // Of the shell and its children: other tests have children, too.
    let mut own = HashSet::from([pid]);
    let mut calls: Vec<&Called> = Vec::new();
    for event in &events {
        match &event.what {
            What::Forked { by, child, .. } if own.contains(by) => {
                own.insert(*child);
            }
            What::Called(called) if own.contains(&called.tid) => calls.push(called),
            _ => {}
        }
    }
    let opens = |name: &str| {
        let path = directory.join(name);
        let mut found = Vec::new();
        for called in &calls {
            let fd = called.result as i32;
            if let Some(made) = &called.made
                && made.paths.get(&fd).is_some_and(|opened| *opened == path)
            {
                found.push(made.is_created(fd));
            }
        }
        found
    };
    assert_eq!(opens("new"), [true, false]);
    // The reported generation is that of the filesystem, if it has one.
    let opened = calls
        .iter()
        .filter_map(|called| called.made.as_ref()?.as_reported(called.result as i32));
    let own = fs::metadata(&same).unwrap().ino();
    let reported = opened
        .filter(|reported| reported.ino == own)
        .map(|reported| reported.generation);
    let reported: Vec<Option<u32>> = reported.collect();
    let asked = stat::generation(&CString::new(same.as_os_str().as_bytes()).unwrap(), own);
    assert!(!reported.is_empty());
    assert!(
        reported
            .iter()
            .all(|reported| reported.is_none() || asked.is_none() || *reported == asked),
        "{reported:?}, {asked:?}"
    );
    let names = |kinds: &[CallKind]| -> Vec<_> {
        let of = calls
            .iter()
            .filter(|called| kinds.contains(&called.call.kind));
        of.map(|called| {
            called
                .names
                .clone()
                .map(|name| name.map(|path| directory.join(path)))
        })
        .collect()
    };
    let path = |name: &str| Some(directory.join(name));
    let renames = names(&[CallKind::Rename, CallKind::RenameAt]);
    assert_eq!(renames, [[path("new"), path("kept")]]);
    let removals = names(&[CallKind::Unlink, CallKind::UnlinkAt]);
    assert_eq!(removals, [[path("kept"), None]]);
    let pipe = calls
        .iter()
        .find(|called| called.call.kind == CallKind::Pipe);
    let made = pipe.expect("a pipe").made.as_ref();
    let ends = made.expect("its ends").channels().unwrap();
    let directions: Vec<_> = ends.iter().map(|end| end.direction).collect();
    use flowtrace_schema::Direction::{Read, Write};
    assert_eq!(directions, [Read, Write]);
    assert_eq!(ends[0].object, ends[1].object);
}

/// Content that cannot be read any more, because the program has read it and is over: from little to as much
/// as a pipe holds.
#[test]
fn unread_bytes_of_pipes_are_reported() {
    let Some(mut tracepoints) = below(std::process::id()) else {
        return;
    };
    for round in 0..40 {
        let text = "a line\n".repeat(1 + round * 237);
        let mut command = Command::new("/bin/cat");
        begin_with_unread(&mut command, &text, false);
        let mut child = command.spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let events = events(&mut tracepoints, end_of(pid));
        let snapshot = events.iter().find_map(|event| match &event.what {
            What::Executed(executed) if executed.pid == pid => executed.snapshot.as_ref(),
            _ => None,
        });
        let snapshot = snapshot.expect("what the program has open");
        snapshot.keep_contents();
        let left = snapshot.left(0).expect("a pipe without writers");
        let content = left.content().expect("its content");
        assert!(content == text, "{} bytes of {}", content.len(), text.len());
    }
}
