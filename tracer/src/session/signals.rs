//! Signals that reach flowtrace while a command runs belong to the command.
//!
//! The terminal sends its signals (Ctrl-C, Ctrl-\, Ctrl-Z) to the whole foreground group, so the command has
//! them already. The same is true for `timeout` and other programs that end a group. A signal sent to
//! flowtrace alone, as by `kill` or a batch system, is passed on. A hangup of the terminal reaches only the
//! leader of its session, which flowtrace may be (`ssh -t host flowtrace run …`). When job control stops the
//! command, flowtrace stops itself too, so that the shell sees its job stopped.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender as Reports};
use std::time::Duration;

use crate::proc::Living;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, killpg, pthread_sigmask, raise};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid};

use super::halt::{halt_with, is_halted};
use super::pending_signals::pending;
use super::signal_group_probe::SignalGroupProbe;
use super::timers::Timers;

const HANDLED: &[Signal] = &[
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGCONT,
    // Signals that batch systems send, and the rest of those that a command can handle.
    Signal::SIGXCPU,
    Signal::SIGURG,
    Signal::SIGWINCH,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGABRT,
    Signal::SIGPIPE,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGSTKFLT,
];

/// The signals of job control that can be handled.
const STOPS: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// The signals that are passed on.
pub(super) fn handled() -> SigSet {
    HANDLED.iter().copied().collect()
}

/// Signal mask and timers as this process was started with them, for the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    mask: SigSet,
    timers: Timers,
}

/// Blocks the signals that will be passed on, in this thread and in those that it will start, and stops the
/// timers that would send signals.
pub(super) fn block() -> Result<Before, Errno> {
    let mut mask = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&handled()), Some(&mut mask))?;
    let timers = Timers::stop();
    Ok(Before { mask, timers })
}

impl Before {
    /// Restores signal mask and timers, in this process. It may be called between fork and exec.
    pub(super) fn restore(&self) -> Result<(), Errno> {
        self.timers.start();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)
    }
}

/// A signal that this process got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) signal: Signal,
    pub(super) sender: Sender,
}

/// Sender of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The kernel itself: the terminal, which signals the whole group.
    Kernel,
    /// A process, by kill(2) or similar calls.
    Process(Pid),
}

/// Decides which signals only this process got, so that they are passed on to the command.
#[derive(Debug)]
pub(super) enum SignalForwarder {
    /// The shell waits for this process: a probe in its group sees the signals to the group.
    InFront(SignalGroupProbe),
    /// Another process is in front of this one and decides; its signals are for the command.
    Behind {
        /// Our parent, until it ends.
        front: Pid,
    },
}

impl SignalForwarder {
    /// Forwarder of the process that the shell waits for.
    ///
    /// # Errors
    /// If the system allows no further process.
    pub(super) fn in_front() -> std::io::Result<SignalForwarder> {
        SignalGroupProbe::begin().map(SignalForwarder::InFront)
    }

    /// Forwarder of a child of that process.
    pub(super) fn behind() -> SignalForwarder {
        SignalForwarder::Behind { front: getppid() }
    }

    /// The command has ended.
    pub(super) fn end(&self) {
        if let SignalForwarder::InFront(probe) = self {
            probe.end();
        }
    }

    /// True if no other process of the group got the signal. Ask about every signal.
    pub(super) fn is_for_us_alone(&self, got: Got) -> bool {
        match self {
            // SIGPIPE of a pipe to which this process itself writes.
            _ if got.sender == Sender::Process(Pid::this()) => false,
            SignalForwarder::InFront(probe) => {
                let all_got_it = probe.saw(got.signal);
                // A continue makes a stopped process, and the probe, forget pending stops.
                let is_void = STOPS.contains(&got.signal) && pending().contains(Signal::SIGCONT);
                got.sender != Sender::Kernel && !all_got_it && !is_void
            }
            SignalForwarder::Behind { front } => match got.sender {
                Sender::Kernel => false,
                Sender::Process(sender) => sender == *front || getppid() != *front,
            },
        }
    }
}

/// Reports to the thread that passes signals on that the command has ended.
#[derive(Debug)]
pub(super) struct CommandEnd(Reports<Reports<()>>);

impl CommandEnd {
    /// Returns when the thread has taken all signals that came until now: the command has got those to the
    /// group, and what survived them lives on.
    pub(super) fn report(&self) {
        let (taken, all_taken) = mpsc::channel();
        // Linux delivers pending signals by their numbers, so those that ask to end come before this one.
        if self.0.send(taken).is_ok() && kill(Pid::this(), Signal::SIGURG).is_ok() {
            let _ = all_taken.recv();
        }
    }
}

/// Passes signals on to process `root` while this process lives.
///
/// If `root` has ended and processes that it left behind have not, a later signal that asks flowtrace to end
/// is for those: a hangup is passed on, another signal asks them to end too, and the next one kills them.
pub(super) fn pass_on(
    root: Pid,
    living: Option<Arc<Living>>,
    forwarder: Arc<SignalForwarder>,
) -> std::io::Result<CommandEnd> {
    let (reports, ended) = mpsc::channel::<Reports<()>>();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let handled = handled();
            let mut ends = [Signal::SIGTERM, Signal::SIGKILL].into_iter();
            let mut hung_up = false;
            let mut is_over = false;
            loop {
                let got = match hung_up {
                    true => wait_at_most(&handled, POLL),
                    false => match wait_for(&handled) {
                        Ok(got) => Some(got),
                        Err(_) => break,
                    },
                };
                let alone = got.is_some_and(|got| forwarder.is_for_us_alone(got));
                let left = living
                    .as_ref()
                    .filter(|l| !l.contains(root.as_raw() as u32));
                if hung_up && left.is_some() {
                    hung_up = false;
                    hang_up_group(&forwarder);
                }
                let Some(Got { signal, sender }) = got else {
                    continue;
                };
                match signal {
                    Signal::SIGURG if let Ok(taken) = ended.try_recv() => {
                        is_over = true;
                        let _ = taken.send(());
                    }
                    Signal::SIGHUP
                        if sender == Sender::Kernel && leads_session() && left.is_none() =>
                    {
                        hung_up = true;
                        let _ = kill(root, signal);
                    }
                    Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT
                        if let Some(left) = left.filter(|_| alone || is_over) =>
                    {
                        left.signal(match signal {
                            Signal::SIGHUP => signal,
                            _ => ends.next().unwrap_or(Signal::SIGKILL),
                        });
                        // A stopped process gets the signal when it is continued.
                        left.signal(Signal::SIGCONT);
                    }
                    Signal::SIGCONT if !alone => continue_if_stopped(root),
                    signal if alone => {
                        // The command may just have ended; then no process is there to get the signal.
                        let _ = kill(root, signal);
                    }
                    _ => {}
                }
            }
        })?;
    Ok(CommandEnd(reports))
}

/// Interval of the checks, after a hangup, for the end of the command.
const POLL: Duration = Duration::from_millis(50);

fn leads_session() -> bool {
    getsid(None) == Ok(Pid::this())
}

/// Does what the kernel does when the leader of a session ends, because the command would have been the
/// leader.
fn hang_up_group(forwarder: &SignalForwarder) {
    let _ = killpg(getpgrp(), Signal::SIGHUP);
    let own: SigSet = [Signal::SIGHUP].into_iter().collect();
    if let Some(got) = wait_at_most(&own, Duration::ZERO) {
        forwarder.is_for_us_alone(got);
    }
}

/// Unmounts `mountpoint` when this process is asked to end; its daemon then ends by itself.
pub(super) fn unmount_on_request(mountpoint: std::path::PathBuf) {
    let watch = move || {
        let handled = handled();
        while let Ok(Got { signal, .. }) = wait_for(&handled) {
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP) {
                let _ = crate::mounting::unmount_lazily(&mountpoint);
            }
        }
    };
    // Without this thread the session can still be ended with `flowtrace unmount`.
    let _ = std::thread::Builder::new()
        .name("signals".into())
        .spawn(watch);
}

/// `fg` continues the whole group, a plain `kill -CONT` only this process.
fn continue_if_stopped(root: Pid) {
    std::thread::sleep(Duration::from_millis(20));
    if fs::read(format!("/proc/{root}/status")).is_ok_and(|status| is_halted(&status)) {
        let _ = kill(root, Signal::SIGCONT);
    }
}

/// Job control stopped process `root`: this process stops too, if the shell regards both as one job.
pub(super) fn stop_with(root: Pid, signal: i32) {
    if getpgid(Some(root)) != Ok(getpgrp()) {
        return;
    }
    if STOPS.iter().any(|&s| s as i32 == signal) {
        stop_by(signal);
    } else if signal == Signal::SIGSTOP as i32 {
        halt_with(root);
    }
}

/// Stops this process by the signal of job control that stopped another one: the process that waits for it
/// sees which signal it was.
pub(super) fn stop_by(signal: i32) {
    let Ok(signal) = Signal::try_from(signal) else {
        return;
    };
    let own = SigSet::from(signal);
    let was_blocked = SigSet::thread_get_mask().is_ok_and(|mask| mask.contains(signal));
    // The signal goes to this thread, because another one takes the signals to the process. It is raised
    // before it is unblocked: the group may have got the same signal, and a continue makes a process forget
    // all pending stops, so that it stops once.
    let _ = raise(signal);
    let _ = own.thread_unblock();
    if was_blocked {
        let _ = own.thread_block();
    }
}

/// Waits for a signal of `set`.
#[expect(unsafe_code)]
pub(super) fn wait_for(set: &SigSet) -> Result<Got, Errno> {
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: both pointers are valid for the call, which fills `info`; all zero is a valid
        // siginfo_t in any case.
        let (number, info) = unsafe {
            let number = libc::sigwaitinfo(set.as_ref(), info.as_mut_ptr());
            (number, info.assume_init())
        };
        match Errno::result(number) {
            Ok(number) => return got(number, &info),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// As [`wait_for`], with a time limit; `None` if no signal came.
#[expect(unsafe_code)]
pub(super) fn wait_at_most(set: &SigSet, limit: Duration) -> Option<Got> {
    let limit = nix::sys::time::TimeSpec::from(limit);
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: all pointers are valid for the call, which fills `info`; all zero is a valid
    // siginfo_t in any case.
    let (number, info) = unsafe {
        let number = libc::sigtimedwait(set.as_ref(), info.as_mut_ptr(), limit.as_ref());
        (number, info.assume_init())
    };
    got(Errno::result(number).ok()?, &info).ok()
}

fn got(number: i32, info: &libc::siginfo_t) -> Result<Got, Errno> {
    let sender = match info.si_code {
        libc::SI_KERNEL => Sender::Kernel,
        _ => {
            // SAFETY: for a signal sent by a process these bytes are its pid (sigaction(2)); for others they
            // are some number.
            #[expect(unsafe_code)]
            let pid = unsafe { info.si_pid() };
            Sender::Process(Pid::from_raw(pid))
        }
    };
    let signal = Signal::try_from(number)?;
    Ok(Got { signal, sender })
}
