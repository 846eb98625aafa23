//! The reader of supplementary groups.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_tracer::fuzzing::groups(bytes));
