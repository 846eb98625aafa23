//! The changes to a machine or container by which flowtrace would record more there.

use std::fs;
use std::io;
use std::path::Path;

use crate::{linux, mounting, proc};

/// A part of the system that flowtrace could not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The FUSE device.
    Device,
    /// Mounts in a namespace of one's own.
    Mounts,
    /// ptrace.
    Ptrace,
    /// eBPF programs.
    Ebpf,
}

impl Missing {
    /// The parts without which nothing can be mounted over a directory, where that was refused.
    pub(crate) fn for_mounts() -> Vec<Missing> {
        match mounting::open_device() {
            // A container without the device rarely allows mounts.
            Err(_) if is_container() => vec![Missing::Device, Missing::Mounts],
            Err(_) => vec![Missing::Device],
            Ok(_) => vec![Missing::Mounts],
        }
    }
}

/// What to do so that flowtrace can use these parts, in a few words.
pub(crate) fn remedy(missing: &[Missing]) -> String {
    let remedies = missing.iter().map(|part| one(*part));
    let (options, changes): (Vec<_>, Vec<_>) = remedies.partition(|remedy| remedy.is_option);
    let texts = |remedies: Vec<Remedy>| remedies.into_iter().map(|remedy| remedy.text);
    let options = texts(options).collect::<Vec<_>>().join(" ");
    let container = (!options.is_empty()).then(|| format!("start the container with {options}"));
    let all = container.into_iter().chain(texts(changes));
    all.collect::<Vec<_>>().join(", and ")
}

struct Remedy {
    /// True for options of `docker run` and `podman run`; else it is a change of the machine, or of the way in which
    /// flowtrace is started.
    is_option: bool,
    text: String,
}

impl Remedy {
    fn option(text: &str) -> Self {
        Remedy {
            is_option: true,
            text: text.to_owned(),
        }
    }

    fn change(text: impl Into<String>) -> Self {
        Remedy {
            is_option: false,
            text: text.into(),
        }
    }
}

fn one(missing: Missing) -> Remedy {
    match missing {
        Missing::Ebpf if linux::release().1 < (6, 9) => Remedy::change("use Linux 6.9 or newer"),
        Missing::Ebpf if !Path::new("/sys/kernel/btf/vmlinux").exists() => {
            Remedy::change("use a kernel with BTF (CONFIG_DEBUG_INFO_BTF)")
        }
        Missing::Ptrace if proc::tracer_of(std::process::id()).is_some() => {
            Remedy::change("start flowtrace outside of the tracer that traces it")
        }
        Missing::Ptrace if setting("kernel/yama/ptrace_scope") >= Some(2) => {
            Remedy::change("sysctl kernel.yama.ptrace_scope=1 (3 forbids it until reboot)")
        }
        Missing::Device if is_container() => Remedy::option("--device /dev/fuse"),
        Missing::Mounts if is_container() && is_confined() => {
            Remedy::option("--cap-add SYS_ADMIN --security-opt apparmor=unconfined")
        }
        Missing::Mounts if is_container() => Remedy::option("--cap-add SYS_ADMIN"),
        Missing::Ptrace if is_container() => Remedy::option("--cap-add SYS_PTRACE"),
        Missing::Ebpf if is_container() => Remedy::option("--privileged --pid=host"),
        Missing::Device => match mounting::open_device() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Remedy::change("modprobe fuse")
            }
            _ => Remedy::change("sudo chmod 666 /dev/fuse (as the package fuse3 does)"),
        },
        Missing::Mounts => namespaces(),
        Missing::Ptrace => {
            Remedy::change("start flowtrace outside of the sandbox that forbids ptrace")
        }
        Missing::Ebpf if nix::unistd::geteuid().is_root() => {
            Remedy::change("run as root outside of a user namespace or sandbox")
        }
        Missing::Ebpf => Remedy::change("run as root"),
    }
}

/// The settings of the kernel that forbid user namespaces here.
fn namespaces() -> Remedy {
    let settings = [
        ("kernel/unprivileged_userns_clone", 0, 1),
        ("user/max_user_namespaces", 0, 10_000),
        ("kernel/apparmor_restrict_unprivileged_userns", 1, 0),
    ];
    let forbidding = settings
        .iter()
        .filter(|(name, value, _)| setting(name) == Some(*value));
    let changes: Vec<_> = forbidding
        .map(|(name, _, better)| format!("{}={better}", name.replace('/', ".")))
        .collect();
    Remedy::change(match changes.is_empty() {
        true => "start flowtrace outside of the sandbox that forbids user namespaces".to_owned(),
        false => format!("sysctl {}", changes.join(" ")),
    })
}

fn setting(name: &str) -> Option<u32> {
    let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
    text.trim().parse().ok()
}

/// True in a container, as far as can be seen from inside.
fn is_container() -> bool {
    // Files such as /.dockerenv are also on machines that were made of an image.
    linux::in_first_pid_namespace().is_err()
}

/// True if a profile of AppArmor applies to this process; those of containers forbid mounts.
fn is_confined() -> bool {
    let profile = fs::read_to_string("/proc/self/attr/apparmor/current").unwrap_or_default();
    !matches!(profile.trim(), "" | "unconfined")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_part_has_a_remedy_of_its_own() {
        let all = [
            Missing::Device,
            Missing::Mounts,
            Missing::Ptrace,
            Missing::Ebpf,
        ];
        let together = remedy(&all);
        for part in all {
            let text = one(part).text;
            assert!(!text.is_empty() && together.contains(&text), "{together}");
        }
    }
}
