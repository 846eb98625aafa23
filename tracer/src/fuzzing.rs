//! What reads bytes that others wrote: any bytes are survived, and what must hold of the result
//! does. `fuzz/` calls these functions by libFuzzer, the tests here with what proptest makes up.

pub use crate::fs::fuzzing::{directory_entries, directory_tree, groups};

use crate::proc::environment::Wanted;
use crate::proc::reading::{self, ProcessCost, ProcessStat, ThreadCost};
use crate::proc::requests::start_in;

/// The files of `/proc/PID`, which hold the name that a process gave itself.
pub fn proc_files(bytes: &[u8]) {
    // Parts as the files that are read together.
    let mut files = bytes.splitn(3, |byte| *byte == 0);
    let mut file = || files.next().unwrap_or_default();
    if let Some((cost, _)) = ThreadCost::parse(file(), file(), file()) {
        let mut sum = cost;
        sum += cost;
        assert_eq!(cost - sum, ThreadCost::default());
    }
    if let Some(stat) = ProcessStat::parse(bytes) {
        let cost = ProcessCost::from_stat(&stat);
        let same = cost;
        assert_eq!(cost - same, ProcessCost::default());
        assert!(start_in(bytes).is_some());
    }
    let _ = Wanted::default().of(bytes);
    let _ = reading::group_in(bytes);
    assert_ne!(reading::tracer_in(bytes), Some(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Real files, of which some bytes are others.
    fn spoilt(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
        let change = (
            any::<prop::sample::Index>(),
            0usize..20,
            prop::collection::vec(any::<u8>(), 0..24),
        );
        prop::collection::vec(change, 0..4).prop_map(move |changes| {
            let mut bytes = std::fs::read(format!("/proc/self/{name}")).unwrap();
            for (at, removed, new) in changes {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..(at + removed).min(bytes.len()), new);
            }
            bytes
        })
    }

    /// The same with digits: numbers of any size, and signs.
    fn numbers(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
        let number = "[-+]?[0-9]{1,22}";
        prop::collection::vec((any::<prop::sample::Index>(), number), 1..6).prop_map(
            move |changes| {
                let text =
                    String::from_utf8_lossy(&std::fs::read(format!("/proc/self/{name}")).unwrap())
                        .into_owned();
                let mut words: Vec<&str> = text.split(' ').collect();
                for (at, number) in &changes {
                    let at = at.index(words.len());
                    words[at] = number;
                }
                words.join(" ").into_bytes()
            },
        )
    }

    fn joined(
        parts: impl Strategy<Value = (Vec<u8>, Vec<u8>, Vec<u8>)>,
    ) -> impl Strategy<Value = Vec<u8>> {
        parts.prop_map(|(a, b, c)| [a, b, c].join(&0))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_bytes_as_proc_files(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            proc_files(&bytes);
        }

        #[test]
        fn spoilt_proc_files(bytes in prop_oneof![
            spoilt("stat"), spoilt("status"), numbers("stat"), numbers("status"),
            joined((spoilt("schedstat"), spoilt("io"), spoilt("status"))),
            joined((numbers("schedstat"), numbers("io"), numbers("status"))),
        ]) {
            proc_files(&bytes);
        }

        #[test]
        fn any_bytes_as_directory_entries(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            directory_entries(&bytes);
        }

        /// Lengths that lead from one entry to the next.
        #[test]
        fn small_numbers_as_directory_entries(bytes in prop::collection::vec(0u8..40, 0..500)) {
            directory_entries(&bytes);
        }

        #[test]
        fn any_changes_of_a_tree(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            directory_tree(&bytes);
        }

        #[test]
        fn any_bytes_as_groups(bytes in prop_oneof![
            spoilt("status"),
            "Groups:[ \t0-9-]{0,60}".prop_map(String::into_bytes),
        ]) {
            groups(&bytes);
        }
    }
}
