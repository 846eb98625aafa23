//! Messages between agents and the collector.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_monitor::fuzzing::messages(bytes));
