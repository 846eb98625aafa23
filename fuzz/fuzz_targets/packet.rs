//! Frames of every kind of link.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_net::fuzzing::packets(bytes));
