//! Whether an open made its file, where the name means something else than to us: in another mount namespace, or
//! below another root.
//!
//! At its begin nobody can say whether the file is there without a look at the program's own paths, which may lead through
//! our views and wait for ourselves. Afterwards the file tells: one that was just made has the moment of its
//! birth as all its times, and the trace has not seen it before.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::stat::Attributes;

/// The times of files are those of the last tick of the kernel, which may lie before the call.
const TICK: Duration = Duration::from_millis(20);

/// From where paths are looked up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Home {
    namespace: PathBuf,
    root: PathBuf,
}

impl Home {
    /// That of a task, as long as it lives.
    pub(super) fn of(tid: u32) -> Option<Home> {
        let link = |name: &str| fs::read_link(format!("/proc/{tid}/{name}")).ok();
        Some(Home {
            namespace: link("ns/mnt")?,
            root: link("root")?,
        })
    }
}

/// Whether a file, which was empty when it had been opened, was made no longer than this ago.
pub(super) fn is_fresh(attributes: &Attributes, ago_ns: u64) -> bool {
    let born = attributes.birth.unwrap_or(attributes.changed);
    // Without a birth one that was emptied is known by having been read before.
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
    // A birth that lies ahead is that of another clock.
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
