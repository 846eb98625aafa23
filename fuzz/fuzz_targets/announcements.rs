//! The reader of what the kernel announces of processes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_tracer::fuzzing::announcements(bytes));
