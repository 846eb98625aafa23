//! Sets of CPUs as text, in the list format of cpuset(7): `0-3,8`.

use std::collections::BTreeSet;

/// A number above that of any CPU.
const MOST: u32 = 1 << 16;

/// A set of CPUs in the list format.
pub fn cpu_list(cpus: &BTreeSet<u32>) -> String {
    let cpus: Vec<u32> = cpus.iter().copied().collect();
    let runs = cpus.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// The CPUs of a text in the list format; parts that are no number or range are left out.
pub fn cpus_of_list(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse().ok()?..=to.trim().parse::<u32>().ok()?.min(MOST))
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_make_ranges() {
        let list = |cpus: &[u32]| cpu_list(&cpus.iter().copied().collect());
        assert_eq!(list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(list(&[5]), "5");
        assert_eq!(list(&[]), "");
    }

    #[test]
    fn lists_of_cpus_are_read_and_written() {
        assert_eq!(cpu_list(&cpus_of_list("0-3,8, 10-11")), "0-3,8,10-11");
        assert_eq!(cpus_of_list("x,3-1,"), BTreeSet::new());
        assert_eq!(cpus_of_list("0-4294967295").len(), (1 << 16) + 1);
    }
}
