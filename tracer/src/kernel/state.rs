//! Bits of the state in which a thread leaves its CPU (`prev_state` of `sched_switch`): the reason why; none: it was
//! preempted.

/// Blocked, but not by a signal.
pub(super) const UNINTERRUPTIBLE: u16 = 0x02;
/// Stopped by job control.
pub(super) const STOPPED: u16 = 0x04;
/// Stopped for its tracer.
pub(super) const TRACED: u16 = 0x08;
/// Over.
pub(super) const DEAD: u16 = 0x10 | 0x20;
/// All reasons.
pub(super) const BLOCKED: u16 = 0xff;

/// The value that the tracepoint reports for a thread in these states (`__trace_sched_switch_state` of
/// trace/events/sched.h).
pub(super) fn reported(state: u32, exit_state: u32) -> u16 {
    const REPORTED: u32 = 0x7f;
    const IDLE: u32 = 0x402;
    const IDLE_IS_REPORTED_AS: u16 = 0x80;
    const WAITS_FOR_LOCK: u32 = 0x1000;
    const FROZEN: u32 = 0x8000;
    match (state | exit_state) & REPORTED {
        _ if state & IDLE == IDLE => IDLE_IS_REPORTED_AS,
        0 if state & (WAITS_FOR_LOCK | FROZEN) != 0 => UNINTERRUPTIBLE,
        bits => bits as u16,
    }
}
