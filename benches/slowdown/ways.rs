//! The ways to run a workload.

use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use crate::{LeftOut, WAYS, in_path, stops};

const FLOWTRACE: &str = env!("CARGO_BIN_EXE_flowtrace");
const CACHED: [&str; 4] = ["--fidelity", "cached", "--stat", "cached"];
const DEVICE: [&str; 2] = ["--transport", "device"];

/// Mounts bindfs over `$1` and runs the rest there. It runs in namespaces of its own, of which
/// it is the first process: whatever happens to it, the mount and its daemon end with it.
const BINDFS: &str = r#"
directory=$1; shift
bindfs --multithreaded "$directory" "$directory" && cd "$directory" || exit 125
"$@"
status=$?
cd / && umount "$directory"
exit $status
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Native,
    Bare,
    Unlogged,
    Fuse,
    Flowtrace,
    Cached,
    Device,
    CachedDevice,
    Stops,
    Ptrace,
    Reported,
    Bindfs,
    Strace,
    StraceProcesses,
    PerfTrace,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Native => "native",
            Way::Bare => "bare",
            Way::Unlogged => "unlogged",
            Way::Fuse => "fuse",
            Way::Flowtrace => "flowtrace",
            Way::Cached => "cached",
            Way::Device => "device",
            Way::CachedDevice => "cached-device",
            Way::Stops => "stops",
            Way::Ptrace => "ptrace",
            Way::Reported => "reported",
            Way::Bindfs => "bindfs",
            Way::Strace => "strace",
            Way::StraceProcesses => "strace-processes",
            Way::PerfTrace => "perf-trace",
        }
    }

    /// The beginning of a command line that runs, in `directory`, what is appended to it.
    pub(crate) fn command(self, directory: &Path, trace: &Path) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let traced = |options: &[&str]| {
            let mut line = vec![FLOWTRACE.to_owned(), "run".to_owned()];
            line.extend(options.iter().map(|&option| option.to_owned()));
            line
        };
        let recorded = |options: &[&str]| {
            let mut line = traced(&["--quiet", "--no-summary"]);
            line.extend(options.iter().map(|&option| option.to_owned()));
            line.extend(["-o".to_owned(), text(trace), "--".to_owned()]);
            line
        };
        let unmounted = |options: &[&str]| recorded(&[options, &["--no-mount"]].concat());
        match self {
            Way::Native => Vec::new(),
            Way::Bare => traced(&["--bare", "--"]),
            Way::Unlogged => recorded(&["--without-calls"]),
            Way::Flowtrace => recorded(&[]),
            Way::Fuse => recorded(&["--layer", "fuse"]),
            Way::Cached => recorded(&CACHED),
            Way::Device => recorded(&DEVICE),
            Way::CachedDevice => recorded(&[&CACHED[..], &DEVICE].concat()),
            Way::Ptrace => unmounted(&["--ptrace"]),
            Way::Reported => unmounted(&["--no-ptrace", "--no-topology"]),
            Way::Bindfs => {
                let namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
                let script = ["sh", "-c", BINDFS, "bindfs"];
                let mut line = vec!["unshare".to_owned()];
                line.extend(namespaces.iter().chain(&script).map(|&s| s.to_owned()));
                line.push(text(directory));
                line
            }
            Way::Stops => stops::argv(&own()),
            Way::Strace => words("strace -f -o /dev/null --"),
            Way::StraceProcesses => {
                words("strace -f --seccomp-bpf -e trace=process -o /dev/null --")
            }
            Way::PerfTrace => words("perf trace -o /dev/null --"),
        }
    }

    /// Why this way does not exist here.
    fn missing(self) -> Option<String> {
        let no = |program: &str| Some(format!("no program {program}"));
        match self {
            Way::Native
            | Way::Bare
            | Way::Unlogged
            | Way::Fuse
            | Way::Flowtrace
            | Way::Device
            | Way::Stops
            | Way::Ptrace
            | Way::Reported => None,
            Way::Cached | Way::CachedDevice => {
                let help = Command::new(FLOWTRACE).args(["run", "--help"]).output();
                let knows =
                    help.is_ok_and(|h| String::from_utf8_lossy(&h.stdout).contains("--fidelity"));
                (!knows).then(|| "flowtrace run does not know --fidelity".to_owned())
            }
            Way::Bindfs if !nix::unistd::geteuid().is_root() => {
                Some("needs root to mount in a private namespace".to_owned())
            }
            Way::Bindfs if !in_path("bindfs") => no("bindfs (package bindfs)"),
            Way::Bindfs if !in_path("unshare") => no("unshare (package util-linux)"),
            Way::Strace | Way::StraceProcesses if !in_path("strace") => {
                no("strace (package strace)")
            }
            Way::PerfTrace if !in_path("perf") => no("perf (package linux-perf)"),
            Way::Bindfs | Way::Strace | Way::StraceProcesses | Way::PerfTrace => None,
        }
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// This program, which is a way by itself.
fn own() -> String {
    let own = std::env::current_exe().unwrap_or_default();
    own.to_string_lossy().into_owned()
}

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Way, String> {
        let way = WAYS.into_iter().find(|way| way.name() == name);
        way.ok_or_else(|| {
            let known = WAYS.map(Way::name).join(", ");
            format!("no way {name}; there are {known}")
        })
    }
}

/// Those of `wanted` that exist here, in the order of the table.
pub(crate) fn find(wanted: &[Way], left_out: &mut LeftOut) -> Vec<Way> {
    let mut found = Vec::new();
    for way in WAYS.into_iter().filter(|way| wanted.contains(way)) {
        match way.missing() {
            None => found.push(way),
            Some(why) => left_out.push((way.name().to_owned(), why)),
        }
    }
    found
}
