//! Names of signals.

/// `SIGKILL` for 9, as on Linux for x86-64, Arm and RISC-V.
pub fn signal_name(signal: i64) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let name = usize::try_from(signal)
        .ok()
        .and_then(|n| NAMES.get(n.checked_sub(1)?));
    match name {
        Some(name) => format!("SIG{name}"),
        None => format!("signal {signal}"),
    }
}
