//! The readers of `/proc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_tracer::fuzzing::proc_files(bytes));
