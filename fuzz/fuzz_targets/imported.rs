//! Captures that others wrote, imported and explained: every analysis of what they say.
#![no_main]

use std::path::{Path, PathBuf};

use flowtrace_net::import::{Input, import};
use flowtrace_profiler::clocks;
use flowtrace_profiler::fuzzing::analyses;

thread_local! {
    static DIRECTORY: tempfile::TempDir = tempfile::tempdir().unwrap();
}

/// Headers, of which the first byte chooses one: an input need not find them.
const HEADERS: [&[u8]; 3] = [
    b"",
    b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x01\x00\x00\x00",
    b"\x0a\x0d\x0d\x0a\x1c\x00\x00\x00\x4d\x3c\x2b\x1a\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x1c\x00\x00\x00\
      \x01\x00\x00\x00\x14\x00\x00\x00\x01\x00\x00\x00\xff\xff\x00\x00\x14\x00\x00\x00",
];

fn explain(directory: &Path, capture: &[u8]) {
    let path: PathBuf = directory.join("c.pcap");
    let trace = directory.join("c.db");
    std::fs::write(&path, capture).unwrap();
    let input = Input { path, host: None };
    if import(&[input], &trace, true).is_ok() {
        let _ = clocks::align(&trace);
        analyses(&trace);
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    let header = HEADERS[usize::from(first) % HEADERS.len()];
    DIRECTORY.with(|directory| explain(directory.path(), &[header, rest].concat()));
});
