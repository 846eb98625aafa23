//! Tests of the whole: the binary, the kernel and real workflows.
//!
//! They need `/dev/fuse` and private mount namespaces; some also need root, strace, graphviz, networkx, or
//! the reference workloads in `../shared`. A test that cannot run reports that (see `tests/support`).
//! `tests/run` installs what can be installed and lists what was skipped.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod calls_equal_strace;
mod check;
mod closing_execs;
mod compare;
mod dependencies;
mod directions;
mod execs;
mod exit_status;
mod fallback;
mod first_contact;
mod generate;
mod growing;
mod habits;
mod hints;
mod io_uring;
mod kernel_equals_strace;
mod kernel_int80;
mod kernel_layer;
mod kernel_traffic;
mod kernel_waits;
mod killed;
mod lifetimes;
mod managers;
mod many_hosts;
mod memory;
mod montage;
mod mount;
mod names_equal_strace;
mod nested;
mod own_behaviour;
mod recorder_killed;
mod redirections;
mod replay;
mod returns;
mod secrets;
mod seeing;
mod served;
mod spawn_storm;
mod stacks;
mod transport;
mod unmounted;
mod user;
mod waiting;
mod wiring;
mod without_ptrace;
