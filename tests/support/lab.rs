//! Hosts as network namespaces on one bridge, without root where user namespaces are allowed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::support::{FLOWTRACE, missing, need_program, succeeds};

/// Time limit of a script.
const LIMIT: Duration = Duration::from_secs(120);

/// Builds the hosts and runs `$1` in the namespace that has the bridge.
const SETUP: &str = r#"
set -eu
mount -t tmpfs tmpfs /run && mkdir -p /run/netns
ip link set lo up
ip link add ftbr type bridge forward_delay 0 stp_state 0
ip link set ftbr up
for i in $(seq 1 "$HOSTS"); do
  ip netns add h$i
  ip link add port$i type veth peer name eth0 netns h$i
  ip link set port$i master ftbr up
  ip -n h$i addr add 10.9.0.$i/24 dev eth0
  ip -n h$i link set lo up
  ip -n h$i link set eth0 up
done
"#;

/// Returns true if hosts can be made here; otherwise skips the test.
pub(crate) fn need_lab() -> bool {
    need_program("ip")
        && (succeeds(
            "unshare",
            &[
                flags(),
                "sh",
                "-c",
                "mount -t tmpfs t /run && mkdir /run/netns && ip netns add n1 && ip link add ftbr type bridge && ip link add port1 type veth peer name eth0 netns n1",
            ],
        ) || missing("cannot make network namespaces, a bridge and veth pairs"))
}

fn flags() -> &'static str {
    match nix::unistd::geteuid().is_root() {
        true => "-nm",
        false => "-Urnm",
    }
}

/// Runs a shell script with `hosts` hosts h1…, 10.9.0.1…; FLOWTRACE and PATTERNS are programs. When this
/// returns, no process of the script is left, even if it failed or took two minutes.
pub(crate) fn run(directory: &Path, hosts: usize, script: &str) -> Output {
    let file = directory.join("lab.sh");
    fs::write(&file, format!("{SETUP}\n{script}")).unwrap();
    // Output goes to files, because a pipe ends only when all processes that have it open have closed it.
    let [stdout, stderr] = ["lab.stdout", "lab.stderr"].map(|name| directory.join(name));
    let mut command = Command::new("unshare");
    command
        .args([flags(), "bash"])
        .arg(&file)
        .current_dir(directory)
        .env("HOSTS", hosts.to_string())
        .env("FLOWTRACE", FLOWTRACE)
        .stdin(Stdio::null())
        .stdout(File::create(&stdout).unwrap())
        .stderr(File::create(&stderr).unwrap())
        .process_group(0);
    if script.contains("$PATTERNS") {
        command.env("PATTERNS", patterns());
    }
    let group = Group(command.spawn().unwrap());
    let is_over = group.ends_within(LIMIT);
    let status = group.end();
    let read = |path| fs::read(path).unwrap();
    let mut stderr = read(stderr);
    if !is_over {
        stderr.extend(format!("\nstill running after {LIMIT:?}\n").bytes());
    }
    Output {
        status,
        stdout: read(stdout),
        stderr,
    }
}

/// A process and all processes that it has started; dropping the value ends them. A capture that goes on in
/// the background keeps its network namespace alive.
struct Group(Child);

impl Group {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }

    /// Returns true if the first process ends in time. It is not reaped, so that no other process gets its
    /// pid before [`Group::end`].
    fn ends_within(&self, limit: Duration) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        let deadline = Instant::now() + limit;
        while matches!(
            waitid(Id::Pid(self.pid()), flags),
            Ok(WaitStatus::StillAlive)
        ) {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Ends all processes that are left; returns the status of the first process.
    fn end(mut self) -> ExitStatus {
        self.signal(Some(Signal::SIGKILL));
        let status = self.0.wait().unwrap();
        // Their end takes some time. Where nobody reaps orphans, they stay as zombies.
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.signal(None) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        status
    }

    /// Sends a signal to all; returns true if there are any.
    fn signal(&self, signal: Option<Signal>) -> bool {
        kill(Pid::from_raw(-self.pid().as_raw()), signal).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // After it was reaped, the number may belong to another process.
        if let Ok(None) = self.0.try_wait() {
            self.signal(Some(Signal::SIGKILL));
            let _ = self.0.wait();
        }
    }
}

/// The example `patterns`, built in the profile of the tests: cargo builds it by itself only when it builds
/// all of them.
fn patterns() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        let target = own.ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "--quiet", "--offline", "--example", "patterns"])
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        match target.file_name().and_then(OsStr::to_str) {
            Some("debug") | None => {}
            Some(profile) => {
                build.args(["--profile", profile]);
            }
        }
        let output = build.output();
        let built = target.join("examples/patterns");
        let said = match &output {
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        let is_built = output.is_ok_and(|output| output.status.success());
        assert!(
            is_built && built.is_file(),
            "no {}, which the tests need; {build:?} says: {said}",
            built.display()
        );
        built
    })
}
