//! Captures in the classic format of tcpdump.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_net::fuzzing::pcap(bytes));
