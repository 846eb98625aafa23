//! The places and paths of directories.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_tracer::fuzzing::directory_tree(bytes));
