//! Hosts as network namespaces on one bridge, without root where user namespaces are allowed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{FLOWTRACE, missing, need_program, succeeds};

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

/// Whether hosts can be made here; skips the test when they cannot.
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

/// Runs a shell script with `hosts` hosts h1…, 10.9.0.1…; FLOWTRACE and PATTERNS are programs.
pub(crate) fn run(directory: &Path, hosts: usize, script: &str) -> Output {
    let file = directory.join("lab.sh");
    fs::write(&file, format!("{SETUP}\n{script}")).unwrap();
    Command::new("timeout")
        .args(["--kill-after=10", "120", "unshare", flags(), "bash"])
        .arg(&file)
        .current_dir(directory)
        .env("HOSTS", hosts.to_string())
        .env("FLOWTRACE", FLOWTRACE)
        .env("PATTERNS", patterns())
        .output()
        .unwrap()
}

/// The example `patterns`, which cargo builds with the tests.
pub(crate) fn patterns() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(2).unwrap();
    target.join("examples/patterns")
}
