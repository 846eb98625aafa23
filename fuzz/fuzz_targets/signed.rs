//! Messages to the collector that have the key.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_monitor::fuzzing::signed_messages(bytes));
