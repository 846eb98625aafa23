//! Text of files of /proc, and the numbers in it.

use std::fs::File;
use std::io::{self, Read};

/// Content of a file of `/proc`. Nearly all fit in one page, and then one read gives all: the kernel makes
/// the content anew for each file that is opened, and reports no length before.
pub(in super::super) fn contents(path: &str) -> io::Result<Vec<u8>> {
    first(path, usize::MAX)
}

/// The first `most` bytes of a file of `/proc`.
pub(super) fn first(path: &str, most: usize) -> io::Result<Vec<u8>> {
    const PAGE: usize = 4096;
    let mut file = File::open(path)?;
    let mut page = [0; PAGE];
    let length = file.read(&mut page)?;
    let mut all = page[..length].to_vec();
    if length == PAGE {
        file.take((most - PAGE) as u64).read_to_end(&mut all)?;
    }
    Ok(all)
}

/// The numbers after `names` at the begin of lines, as in `/proc/PID/status` and `io`, found in one
/// pass.
pub(super) fn fields_after<const N: usize>(text: &[u8], names: [&[u8]; N]) -> [Option<u64>; N] {
    let mut found = [None; N];
    for line in text.split(|byte| *byte == b'\n') {
        for (name, found) in names.iter().zip(&mut found) {
            if found.is_none()
                && let Some(rest) = line.strip_prefix(*name)
            {
                *found = number_in(rest);
            }
        }
    }
    found
}

/// The rest of the line that begins with `name`.
pub(super) fn line_after<'text>(text: &'text [u8], name: &[u8]) -> Option<&'text [u8]> {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.find_map(|line| line.strip_prefix(name))
}

fn number_in(text: &[u8]) -> Option<u64> {
    let text = str::from_utf8(text).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The number after `name` at the begin of a line.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_whole_names() {
        let status = "Name:\tVmHWM:\nVmHWM:\t    1234 kB\nnonvoluntary_ctxt_switches:\t5\n\
                      voluntary_ctxt_switches:\t7\n";
        assert_eq!(field(status, "VmHWM:"), Some(1234));
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some(7));
        assert_eq!(field(status, "VmPeak:"), None);
        assert_eq!(field("rchar: x\n", "rchar:"), None);
        let names: [&[u8]; 3] = [b"voluntary_ctxt_switches:", b"VmHWM:", b"VmPeak:"];
        let found = fields_after(status.as_bytes(), names);
        assert_eq!(found, [Some(7), Some(1234), None]);
    }
}
