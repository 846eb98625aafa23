//! Locks: the rules of `fcntl(2)` and `flock(2)`, and the time spent in waiting.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};

use crate::mounted::{Mounted, Options};

fn range(kind: i32, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

/// A Python process that runs `script` in `directory` and prints "ready" where it calls `ready()`.
fn python(directory: &Path, script: &str) -> Child {
    let prelude = "import fcntl, os, signal, struct, sys, time
def ready(): print('ready', flush=True)
f = open('file', 'r+b')
";
    Command::new("/usr/bin/python3")
        .args(["-c", &format!("{prelude}{script}")])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_until_ready(child: &mut Child) {
    use std::io::{BufRead, BufReader};
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
}

/// Waits until a thread of `child` sleeps in a request, which is where a process waits for a lock.
fn wait_until_blocked(child: &Child) {
    let stack = format!("/proc/{}/wchan", child.id());
    let mut samples = 0;
    for _ in 0..1000 {
        let place = fs::read_to_string(&stack).unwrap_or_default();
        let is_asleep = place.contains("request_wait") || place.contains("fuse");
        // The thread must sleep for so long that the request has arrived: over io_uring another one may
        // overtake it.
        samples = if is_asleep { samples + 1 } else { 0 };
        if samples == 40 {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("never waited for the lock");
}

fn mounted() -> Option<Mounted> {
    if !Path::new("/usr/bin/python3").exists() {
        crate::mounted::skip("no /usr/bin/python3");
        return None;
    }
    let mounted = Mounted::new(Options::default())?;
    fs::write(mounted.source.join("file"), [0; 100]).unwrap();
    Some(mounted)
}

/// Opens the file, and finds the lock of another process that conflicts with a lock of the whole file.
fn in_the_way(mounted: &Mounted) -> (File, libc::flock) {
    let file = File::options()
        .read(true)
        .write(true)
        .open(mounted.path("file"))
        .unwrap();
    let mut asked = range(libc::F_WRLCK, 0, 0);
    fcntl(&file, FcntlArg::F_GETLK(&mut asked)).unwrap();
    (file, asked)
}

#[test]
fn records_exclude_other_processes_and_say_who_holds_them() {
    let Some(mounted) = mounted() else { return };
    let script = "fcntl.lockf(f, fcntl.LOCK_EX, 10, 20); ready(); sys.stdin.read()";
    let mut holder = python(&mounted.seen, script);
    wait_until_ready(&mut holder);
    let (file, asked) = in_the_way(&mounted);
    assert_eq!(asked.l_pid, holder.id() as i32);
    assert_eq!((asked.l_start, asked.l_len), (20, 10));
    let set = |kind, start, length| fcntl(&file, FcntlArg::F_SETLK(&range(kind, start, length)));
    assert_eq!(
        set(libc::F_RDLCK, 29, 1),
        Err(nix::errno::Errno::EAGAIN),
        "the last byte is locked"
    );
    set(libc::F_WRLCK, 30, 0).unwrap();
    set(libc::F_WRLCK, 0, 20).unwrap();
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    // The locks of a process are released when it has ended.
    set(libc::F_WRLCK, 0, 0).unwrap();
    drop(file);
    let trace = mounted.finish();
    assert_eq!(trace.of("getlk", "file").len(), 1);
    assert_eq!(trace.of("setlk", "file").len(), 5);
}

#[test]
fn closing_any_descriptor_gives_the_records_of_a_process_up() {
    let Some(mounted) = mounted() else { return };
    let script = "fcntl.lockf(f, fcntl.LOCK_EX); open('file').close(); ready(); sys.stdin.read()";
    let mut holder = python(&mounted.seen, script);
    wait_until_ready(&mut holder);
    let file = File::options()
        .write(true)
        .open(mounted.path("file"))
        .unwrap();
    fcntl(&file, FcntlArg::F_SETLK(&range(libc::F_WRLCK, 0, 0))).unwrap();
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

#[test]
fn locks_of_an_open_file_end_with_it() {
    let Some(mounted) = mounted() else { return };
    let open = || {
        File::options()
            .read(true)
            .write(true)
            .open(mounted.path("file"))
            .unwrap()
    };
    let (one, other) = (open(), open());
    let lock = range(libc::F_WRLCK, 0, 0);
    fcntl(&one, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    assert_eq!(
        fcntl(&other, FcntlArg::F_OFD_SETLK(&lock)),
        Err(nix::errno::Errno::EAGAIN)
    );
    drop(one);
    // The kernel releases a file shortly after its descriptor is closed.
    fcntl(&other, FcntlArg::F_OFD_SETLKW(&lock)).unwrap();
    let whole = Flock::lock(open(), FlockArg::LockExclusiveNonblock).unwrap();
    assert!(Flock::lock(open(), FlockArg::LockSharedNonblock).is_err());
    whole.unlock().unwrap();
    Flock::lock(open(), FlockArg::LockSharedNonblock).unwrap();
}

#[test]
fn the_time_spent_waiting_is_the_duration_of_the_call() {
    let Some(mounted) = mounted() else { return };
    let file = File::open(mounted.path("file")).unwrap();
    let lock = Flock::lock(file, FlockArg::LockExclusive).unwrap();
    let script = "ready(); fcntl.flock(f, fcntl.LOCK_EX)";
    let mut waiter = python(&mounted.seen, script);
    wait_until_ready(&mut waiter);
    wait_until_blocked(&waiter);
    let pause = Duration::from_millis(50);
    thread::sleep(pause);
    drop(lock);
    assert!(waiter.wait().unwrap().success());
    let trace = mounted.finish();
    let longest = trace.number("SELECT MAX(duration_ns) FROM calls WHERE op = 'flock'");
    assert!(longest >= pause.as_nanos() as i64, "{longest}");
}

#[test]
fn who_waits_can_be_interrupted_and_killed() {
    let Some(mounted) = mounted() else { return };
    let lock = File::options()
        .write(true)
        .open(mounted.path("file"))
        .unwrap();
    fcntl(lock.as_fd(), FcntlArg::F_SETLK(&range(libc::F_WRLCK, 0, 0))).unwrap();
    let script = "def tick(*_): raise TimeoutError
signal.signal(signal.SIGALRM, tick); signal.setitimer(signal.ITIMER_REAL, 0.2)
try: fcntl.lockf(f, fcntl.LOCK_EX)
except TimeoutError: sys.exit(7)";
    let mut interrupted = python(&mounted.seen, script);
    assert_eq!(interrupted.wait().unwrap().code(), Some(7));
    let mut killed = python(&mounted.seen, "ready(); fcntl.lockf(f, fcntl.LOCK_EX)");
    wait_until_ready(&mut killed);
    wait_until_blocked(&killed);
    killed.kill().unwrap();
    assert_eq!(killed.wait().unwrap().signal(), Some(libc::SIGKILL));
    drop(lock);
    // Neither of them has the lock now.
    let file = File::options()
        .write(true)
        .open(mounted.path("file"))
        .unwrap();
    fcntl(&file, FcntlArg::F_SETLK(&range(libc::F_WRLCK, 0, 0))).unwrap();
}

/// Includes a signal that comes before flowtrace has got the request, which the kernel does not report over
/// io_uring.
#[test]
fn a_signal_at_any_instant_ends_the_wait() {
    let Some(mounted) = mounted() else { return };
    let lock = File::options()
        .write(true)
        .open(mounted.path("file"))
        .unwrap();
    fcntl(lock.as_fd(), FcntlArg::F_SETLK(&range(libc::F_WRLCK, 0, 0))).unwrap();
    // The signal comes 1 to 200 us after the timer is set: before, in and after the begin of the call. Python
    // may get a signal right before its call and handle it only after the call; therefore more signals
    // follow. They do not help if the first was lost on the way to flowtrace.
    let script = "
class Alarm(Exception): pass
waiting = False
def tick(*_):
    global waiting
    if waiting:
        waiting = False
        raise Alarm
signal.signal(signal.SIGALRM, tick)
for i in range(2000):
    try:
        waiting = True
        signal.setitimer(signal.ITIMER_REAL, (1 + i % 200) / 1e6, 0.02)
        fcntl.lockf(f, fcntl.LOCK_EX)
        sys.exit('has the lock of another')
    except Alarm: pass
# Python gives the signal back its effect when it ends.
signal.setitimer(signal.ITIMER_REAL, 0)";
    let mut waiter = python(&mounted.seen, script);
    let end = Instant::now() + Duration::from_secs(120);
    let status = loop {
        if let Some(status) = waiter.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            // The release of the lock would hide the error.
            waiter.kill().unwrap();
            panic!("it waits although it was interrupted");
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn a_circle_of_waiting_is_refused() {
    let Some(mounted) = mounted() else { return };
    let script =
        "fcntl.lockf(f, fcntl.LOCK_EX, 1, 1); ready(); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0)";
    let file = File::options()
        .write(true)
        .open(mounted.path("file"))
        .unwrap();
    fcntl(&file, FcntlArg::F_SETLK(&range(libc::F_WRLCK, 0, 1))).unwrap();
    let mut other = python(&mounted.seen, script);
    wait_until_ready(&mut other);
    wait_until_blocked(&other);
    assert_eq!(
        fcntl(&file, FcntlArg::F_SETLKW(&range(libc::F_WRLCK, 1, 1))),
        Err(nix::errno::Errno::EDEADLK)
    );
    fcntl(&file, FcntlArg::F_SETLK(&range(libc::F_UNLCK, 0, 1))).unwrap();
    assert!(other.wait().unwrap().success());
}

/// Processes that use the directory itself, or another mount of it, see the locks of this one.
#[test]
fn locks_hold_in_all_mounts_of_a_directory_and_outside() {
    const ROUNDS: usize = 40;
    let Some(mounted) = mounted() else { return };
    let other = Mounted::new(Options {
        source: Some(mounted.source.clone()),
        ..Options::default()
    });
    let other = other.expect("the first could be mounted");
    let count = mounted.source.join("count");
    let places = [&mounted.seen, &other.seen, &mounted.source];
    for lock in [
        "fcntl.flock(f, fcntl.LOCK_EX)",
        "fcntl.lockf(f, fcntl.LOCK_EX, 10, 5)",
    ] {
        fs::write(&count, "0").unwrap();
        let script = format!(
            "for _ in range({ROUNDS}):
    with open('file', 'r+b') as f:
        {lock}
        n = int(open('count').read())
        time.sleep(0.0005)
        open('count', 'w').write(str(n + 1))"
        );
        let counting = places
            .iter()
            .chain(&places)
            .map(|place| python(place, &script));
        for mut child in counting.collect::<Vec<_>>() {
            assert!(child.wait().unwrap().success());
        }
        let counted = fs::read_to_string(&count).unwrap();
        assert_eq!(counted, (ROUNDS * 2 * places.len()).to_string(), "{lock}");
    }
}

#[test]
fn who_waits_for_somebody_outside_can_be_interrupted() {
    let Some(mounted) = mounted() else { return };
    let outside = "fcntl.lockf(f, fcntl.LOCK_EX); ready(); sys.stdin.read()";
    let mut holder = python(&mounted.source, outside);
    wait_until_ready(&mut holder);
    let (file, asked) = in_the_way(&mounted);
    assert_eq!(asked.l_pid, holder.id() as i32);
    let script = "ready(); fcntl.lockf(f, fcntl.LOCK_EX)";
    let mut killed = python(&mounted.seen, script);
    wait_until_ready(&mut killed);
    wait_until_blocked(&killed);
    killed.kill().unwrap();
    assert_eq!(killed.wait().unwrap().signal(), Some(libc::SIGKILL));
    let mut waiter = python(&mounted.seen, script);
    wait_until_ready(&mut waiter);
    wait_until_blocked(&waiter);
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert!(waiter.wait().unwrap().success());
    // Once no process waits any more, no lock conflicts outside.
    drop(file);
    let real = File::options()
        .write(true)
        .open(mounted.source.join("file"))
        .unwrap();
    // Locks of this open file description: others of this process, which serves the mount, may be closed at
    // any time.
    let all = range(libc::F_WRLCK, 0, 0);
    fcntl(&real, FcntlArg::F_OFD_SETLKW(&all)).unwrap();
    let lines = fs::read_to_string("/proc/locks").unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&real.metadata().unwrap());
    let ours = lines
        .lines()
        .filter(|line| line.contains(&format!(":{inode} ")));
    assert_eq!(ours.count(), 1, "{lines}");
}
