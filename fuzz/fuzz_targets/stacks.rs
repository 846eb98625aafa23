//! The readers of the files of `/proc` about the machine.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_tracer::fuzzing::stacks(bytes));
