//! Files of /proc about descriptors and sockets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowtrace_tracer::fuzzing::descriptions(bytes));
