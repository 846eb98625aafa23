//! The CPUs of this machine, as sysfs lists them.

use std::io;

/// Numbers of the CPUs that are online.
pub(crate) fn online() -> io::Result<Vec<u32>> {
    read("online")
}

/// Number of CPUs that may come online while the machine runs.
pub(crate) fn possible() -> io::Result<usize> {
    Ok(read("possible")?.len())
}

/// Length of an array with an element for each online CPU by its number.
pub(crate) fn array_length() -> io::Result<u32> {
    Ok(online()?.last().map_or(1, |last| last + 1))
}

fn read(name: &str) -> io::Result<Vec<u32>> {
    let path = format!("/sys/devices/system/cpu/{name}");
    let text = std::fs::read_to_string(&path)?;
    list(text.trim()).ok_or_else(|| io::Error::other(format!("{path} is not a list of CPUs")))
}

/// `0-3,8` as numbers.
fn list(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let numbers = first.parse::<u32>().ok()?..=last.parse().ok()?;
        if numbers.is_empty() {
            return None;
        }
        all.extend(numbers);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed() {
        assert_eq!(list("0").unwrap(), [0]);
        assert_eq!(list("0-2,5,7-8").unwrap(), [0, 1, 2, 5, 7, 8]);
        for text in ["", "-", "0-", "3-1", "a"] {
            assert_eq!(list(text), None, "{text}");
        }
        assert!(!online().unwrap().is_empty());
        assert!(possible().unwrap() >= online().unwrap().len());
    }
}
