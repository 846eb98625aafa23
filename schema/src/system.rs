//! Distinguishes the files of the machine and its programs from those of the workflow. No other place decides that.

/// Directories of the machine itself. `/usr/local` is among them: programs are installed there.
const DIRECTORIES: &[&[u8]] = &[
    b"/usr/",
    b"/lib/",
    b"/lib32/",
    b"/lib64/",
    b"/libx32/",
    b"/bin/",
    b"/sbin/",
    b"/etc/",
    b"/proc/",
    b"/sys/",
    b"/run/",
    b"/boot/",
    b"/var/lib/",
    b"/var/cache/",
    b"/opt/",
    b"/snap/",
    b"/nix/store/",
    b"/gnu/store/",
];

/// The directories of the machine itself, each with the slash at its end.
pub fn system_directories() -> impl Iterator<Item = &'static [u8]> {
    DIRECTORIES.iter().copied()
}

/// Directories and settings of installed packages, wherever their tree begins (pyenv, conda, a venv, a user's
/// library of R).
const PACKAGES: &[&[u8]] = &[
    b"/lib/python",
    b"/site-packages/",
    b"/dist-packages/",
    b"/node_modules/",
    b"-linux-gnu-library/",
    b"/pyvenv.cfg",
    b"/.pyenv/",
    b"/.rustup/",
    b"/lib/R/",
    b"/lib/perl5/",
];

/// True if the file at this absolute path is part of the machine: a program, a library, a setting, a device.
/// A workflow reads such files by the hundred, and they say nothing about the workflow. Decided by the path
/// alone.
pub fn is_system_path(path: &[u8]) -> bool {
    if let Some(device) = path.strip_prefix(b"/dev/") {
        // Shared memory has data of the workflow, but for the semaphores of sem_open, which have no data.
        return !device.starts_with(b"shm/") || device.starts_with(b"shm/sem.");
    }
    DIRECTORIES
        .iter()
        .any(|directory| path.starts_with(directory))
        || PACKAGES.iter().any(|part| contains(path, part))
        || is_shared_library(path)
}

/// True if a file is the workflow's own in case it made or wrote the file, though the path is one of the
/// machine: a result in `/opt`, an installed program. Files of the kernel are not, nor the caches that Python
/// writes for modules it has read.
pub fn may_be_made(path: &[u8]) -> bool {
    let is_kernels = [&b"/proc/"[..], b"/sys/", b"/dev/"]
        .iter()
        .any(|directory| path.starts_with(directory));
    !(is_kernels && is_system_path(path) || contains(path, b"/__pycache__/"))
}

/// `libx.so`, `libx.so.1.2`.
fn is_shared_library(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let Some(at) = name.windows(3).rposition(|part| part == b".so") else {
        return false;
    };
    let version = &name[at + 3..];
    version.is_empty()
        || version[0] == b'.' && version.iter().all(|b| b.is_ascii_digit() || *b == b'.')
}

fn contains(path: &[u8], part: &[u8]) -> bool {
    path.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_workflow_makes_is_its_own() {
        for path in ["/opt/out/x.csv", "/usr/local/lib/libx.so", "/dev/shm/job"] {
            assert!(may_be_made(path.as_bytes()), "{path}");
        }
        for path in [
            "/dev/null",
            "/proc/self/x",
            "/usr/lib/python3/__pycache__/a.pyc",
        ] {
            assert!(!may_be_made(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn the_machine_and_the_workflow() {
        for system in [
            "/usr/include/stdio.h",
            "/etc/passwd",
            "/dev/null",
            "/dev/shm/sem.mp-1x",
            "/home/me/miniconda3/lib/python3.12/os.py",
            "/home/me/x/.venv/lib64/site-packages/numpy/core.py",
            "/home/me/x/.venv/pyvenv.cfg",
            "/home/me/R/x86_64-pc-linux-gnu-library/4.2/dplyr/R/dplyr.rdb",
            "/data/lib/libm.so",
            "/data/lib/libm.so.6.1",
        ] {
            assert!(is_system_path(system.as_bytes()), "{system}");
        }
        for own in [
            "/home/me/reads.fastq",
            "/tmp/ccX1.s",
            "/dev/shm/job",
            "/data/usr/bin",
            "/data/a.sorted",
            "/data/x.so.old",
            "/libre/a",
        ] {
            assert!(!is_system_path(own.as_bytes()), "{own}");
        }
    }
}
