//! Captures in the format of Wireshark.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_net::fuzzing::pcapng(bytes));
