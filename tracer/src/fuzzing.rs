//! Readers of bytes that other programs wrote: they must accept any bytes, and the invariants of their
//! results must hold. `fuzz/` calls these functions by libFuzzer, the tests here by proptest.

pub use crate::file_table::directory_tree;
pub use crate::fs::fuzzing::{directory_entries, groups};

use crate::proc::channels::sockets::{address_in, diag};
use crate::proc::descriptors;
use crate::proc::environment::Wanted;
pub use crate::proc::fuzzing::announcements;
use crate::proc::reading::{self, ProcessCost, ProcessStat, ThreadCost, Traffic};
use crate::proc::topology;

/// The files of `/proc/PID`, which contain the name that a process gave itself.
pub fn proc_files(bytes: &[u8]) {
    // Parts that stand for the files that are read together.
    let mut files = bytes.splitn(3, |byte| *byte == 0);
    let mut file = || files.next().unwrap_or_default();
    if let Some((cost, _)) = ThreadCost::parse(file(), file(), file()) {
        let mut sum = cost;
        sum += cost;
        assert_eq!(cost - sum, ThreadCost::default());
    }
    if let Some(stat) = ProcessStat::parse(bytes) {
        let cost = stat.cost();
        let same = cost;
        assert_eq!(cost - same, ProcessCost::default());
    }
    if let Some(traffic) = Traffic::parse(bytes) {
        let same = traffic;
        assert_eq!(traffic - same, Traffic::default());
    }
    let _ = Wanted::default().of(bytes);
    let _ = reading::group_in(bytes);
    let _ = reading::block_io_in(bytes);
    crate::proc::sampler::text::fuzz(bytes);
    assert_ne!(reading::tracer_in(bytes), Some(0));
}

/// What sampling of call stacks reads: records of the kernel, ELF files with their unwind and debug
/// information, and maps of symbols.
pub fn stacks(bytes: &[u8]) {
    crate::stacks::fuzzing::records(bytes);
    crate::stacks::fuzzing::elf(bytes);
    crate::stacks::fuzzing::symbols(bytes);
}

/// The files of `/proc` about the machine.
pub fn host_files(bytes: &[u8]) {
    crate::host::files::fuzz(bytes);
}

/// Descriptions of descriptors and sockets: links, answers of the kernel, a program's memory and code.
pub fn descriptions(bytes: &[u8]) {
    // An entry of a directory is at least its header.
    assert!(descriptors::entries_in(bytes).count() <= bytes.len() / 19);
    let _ = diag::parse(bytes);
    if let Some(address) = address_in(bytes) {
        assert_eq!(address.ip(), address.ip().to_canonical());
    }
    let _ = reading::parse_stack(bytes, 0x7000);
    for at in topology::opens_in(bytes) {
        assert_eq!(bytes[at - 2..at], [0x0f, 0x05]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Real files with some bytes changed.
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

    /// Real files with some digits changed: numbers of any size, and signs.
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

    /// Answers of sock_diag, with attributes of any length.
    fn answer() -> impl Strategy<Value = Vec<u8>> {
        let attribute = (0u16..20, 0u16..4, prop::collection::vec(any::<u8>(), 0..12));
        (0u32..120, prop::collection::vec(attribute, 0..5)).prop_map(|(length, attributes)| {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend(20u16.to_ne_bytes());
            bytes.resize(32, 0);
            for (length, kind, value) in attributes {
                bytes.extend(length.to_ne_bytes());
                bytes.extend(kind.to_ne_bytes());
                bytes.extend(value);
            }
            bytes
        })
    }

    /// Machine code with system calls in it.
    fn code() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just(vec![0xb8, 0x01, 0x01, 0x00, 0x00]),
            Just(vec![0x0f, 0x05]),
            prop::collection::vec(any::<u8>(), 0..12),
        ];
        prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    /// A small ELF file with unwind information and symbols, with some bytes changed.
    fn spoilt_program() -> impl Strategy<Value = Vec<u8>> {
        let change = (any::<prop::sample::Index>(), any::<u8>());
        let cut = any::<prop::sample::Index>();
        (prop::collection::vec(change, 0..12), cut).prop_map(|(changes, cut)| {
            let mut bytes = std::fs::read("/bin/true").unwrap();
            for (at, new) in changes {
                let at = at.index(bytes.len());
                bytes[at] = new;
            }
            // Mostly whole.
            let length = cut.index(bytes.len() * 4);
            bytes.truncate(length.max(64));
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn spoilt_programs(bytes in spoilt_program()) {
            stacks(&bytes);
        }
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
            spoilt("syscall"), numbers("syscall"), spoilt("schedstat"), numbers("schedstat"),
            joined((spoilt("schedstat"), spoilt("io"), spoilt("status"))),
            joined((numbers("schedstat"), numbers("io"), numbers("status"))),
        ]) {
            proc_files(&bytes);
        }

        #[test]
        fn spoilt_host_files(bytes in prop_oneof![
            spoilt("../stat"), spoilt("../meminfo"), spoilt("../vmstat"), spoilt("../diskstats"),
            spoilt("net/dev"), numbers("../stat"), numbers("../diskstats"), numbers("net/dev"),
            prop::collection::vec(any::<u8>(), 0..200),
        ]) {
            host_files(&bytes);
        }

        #[test]
        fn any_bytes_as_descriptions(bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "pipe:\\[[0-9-]{0,30}\\]?".prop_map(String::into_bytes),
            answer(),
            code(),
        ]) {
            descriptions(&bytes);
        }

        #[test]
        fn any_bytes_as_records_and_symbols(bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..500),
            "([0-9a-f]{1,17} [0-9a-fTt]{1,3} [a-z:]{1,9}\n){0,9}".prop_map(String::into_bytes),
        ]) {
            stacks(&bytes);
        }

        #[test]
        fn any_bytes_as_announcements(bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..500),
            // Lengths and types that lead from one part to the next.
            prop::collection::vec(prop_oneof![0u8..5, 0u8..80], 0..500),
        ]) {
            announcements(&bytes);
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
