//! Decides if an open made its file, for processes in another mount namespace or below another root, whose
//! names mean other files than ours.
//!
//! At its begin this is unknown without a lookup of the program's own path, which may lead through mounts of
//! flowtrace and wait for ourselves. Afterwards the file shows it: all times of a file that was just made are
//! its birth time, and the trace has not seen it before.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::stat::Attributes;

/// Times of files are those of the last tick of the kernel, which may lie before the call.
const TICK: Duration = Duration::from_millis(20);

/// Root and mount namespace in which paths are looked up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Home {
    namespace: PathBuf,
    root: PathBuf,
}

impl Home {
    /// Those of a task, as long as it lives.
    pub(super) fn of(tid: u32) -> Option<Home> {
        let link = |name: &str| fs::read_link(format!("/proc/{tid}/{name}")).ok();
        Some(Home {
            namespace: link("ns/mnt")?,
            root: link("root")?,
        })
    }
}

/// True if a file, which was empty when it had been opened, was made at most `ago_ns` ago.
pub(super) fn is_fresh(attributes: &Attributes, ago_ns: u64) -> bool {
    let born = attributes.birth.unwrap_or(attributes.changed);
    // Without a birth time, a file that was only truncated is recognised by an older time of reading.
    let accessed = attributes.birth.map_or(attributes.accessed, |_| born);
    let is_untouched = [attributes.modified, attributes.changed, accessed]
        .iter()
        .all(|time| *time == born);
    let age = UNIX_EPOCH
        .checked_add(Duration::new(
            born.seconds.try_into().unwrap_or(0),
            born.nanoseconds,
        ))
        .and_then(|born| SystemTime::now().duration_since(born).ok());
    // A birth time in the future is of another clock.
    is_untouched && age.is_some_and(|age| age <= Duration::from_nanos(ago_ns) + TICK)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::stat;

    #[test]
    fn a_file_that_was_just_made_is_distinguished_from_one_that_was_there() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("x");
        let file = fs::File::create(&path).unwrap();
        let found = stat::of(file.as_fd()).unwrap();
        assert!(is_fresh(&found, 1_000_000_000));
        std::thread::sleep(2 * TICK);
        assert!(!is_fresh(&found, 0), "it was there before");
        let again = fs::File::create(&path).unwrap();
        let emptied = stat::of(again.as_fd()).unwrap();
        assert!(!is_fresh(&emptied, 1_000_000_000), "only emptied");
    }

    #[test]
    fn home_is_the_same_for_all_threads() {
        let own = std::process::id();
        assert!(Home::of(own).is_some());
        assert_eq!(
            Home::of(own),
            Home::of(nix::unistd::gettid().as_raw() as u32)
        );
        assert_eq!(Home::of(u32::MAX), None);
    }
}
