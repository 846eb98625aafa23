//! The reader of directory entries.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_tracer::fuzzing::directory_entries(bytes));
