//! Throttles threads that make more calls than can be joined to files, where ptrace does not trace processes:
//! they are seized for a short time (ptrace(2), `PTRACE_SEIZE`), which neither they nor their parents notice.

use std::collections::HashMap;
use std::time::Instant;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::backpressure::PATIENCE;
use super::sample::Sample;
use crate::proc;

/// One sample in this many is counted.
const STEP: usize = 64;
/// Threads count as busy that made this part of the samples, in percent, together; but no more than [`BUSY`]
/// at a time.
const MOST: usize = 90;
const BUSY: usize = 256;
/// With fewer samples at a time no thread is stopped.
const STORM: usize = 10_000;

/// The stopped threads. All calls must come from one thread, which is their tracer; they go on when it ends.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// The threads that made most of the last calls.
    busy: Vec<Pid>,
    stopped: Vec<Pid>,
    since: Option<Instant>,
}

impl Throttle {
    /// These samples came out of the rings at one time.
    pub(super) fn saw(&mut self, samples: &[Sample]) {
        self.busy.clear();
        if samples.len() < STORM {
            return;
        }
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for sample in samples.iter().step_by(STEP) {
            *counts.entry(sample.tid).or_default() += 1;
        }
        let mut counts: Vec<(usize, u32)> = counts.into_iter().map(|(tid, n)| (n, tid)).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let enough = samples.len() / STEP * MOST / 100;
        let mut seen = 0;
        for (count, tid) in counts.into_iter().take(BUSY) {
            if seen >= enough {
                break;
            }
            seen += count;
            self.busy.push(Pid::from_raw(tid.cast_signed()));
        }
    }

    /// Stops the busy threads, unless some are stopped for too long. A thread that is traced already, or
    /// gone, is left out.
    pub(super) fn stop(&mut self) {
        if self.since.is_some_and(|since| since.elapsed() > PATIENCE) {
            return self.release();
        }
        for tid in std::mem::take(&mut self.busy) {
            if ptrace::seize(tid, ptrace::Options::empty()).is_ok() {
                // Fails for a thread that ends meanwhile.
                let _ = ptrace::interrupt(tid);
                self.stopped.push(tid);
                self.since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Resumes all stopped threads. Those that have not come to their stop yet are resumed by a later call.
    pub(super) fn release(&mut self) {
        self.stopped.retain(|&tid| !let_go(tid));
        if self.stopped.is_empty() {
            self.since = None;
        }
    }
}

/// Resumes thread `tid`; returns true if it is not stopped any more. A signal that was about to be delivered
/// is delivered.
fn let_go(tid: Pid) -> bool {
    /// `PTRACE_EVENT_STOP` of include/uapi/linux/ptrace.h: the stop of an interrupted thread.
    const INTERRUPTED: i32 = 128;
    let info = ptrace::getsiginfo(tid).ok();
    let signal = info.filter(|info| info.si_code >> 8 != INTERRUPTED);
    let signal = signal.and_then(|info| Signal::try_from(info.si_signo).ok());
    // The tracer is this thread, not the process. A thread that has not come to its stop yet stays in the
    // list.
    let own = || nix::unistd::gettid().as_raw().cast_unsigned();
    let is_ours = || proc::tracer_of(tid.as_raw().cast_unsigned()) == Some(own());
    ptrace::detach(tid, signal).is_ok() || !is_ours()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::super::sample::What;
    use super::*;

    fn calls_of(tid: u32, count: usize) -> Vec<Sample> {
        let sample = Sample {
            at: 0,
            tid,
            number: 0,
            what: What::Moved(1),
        };
        vec![sample; count]
    }

    fn state(pid: u32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }

    fn becomes(pid: u32, is: impl Fn(char) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is(state(pid)) {
            assert!(Instant::now() < deadline, "{}", state(pid));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn whoever_is_busy_stops_and_goes_on() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut throttle = Throttle::default();
        throttle.saw(&calls_of(child.id(), STORM / 2));
        throttle.stop();
        assert!(throttle.stopped.is_empty(), "no storm");
        let mut samples = calls_of(child.id(), STORM);
        samples.extend(calls_of(1, STEP));
        throttle.saw(&samples);
        throttle.stop();
        if throttle.stopped.is_empty() {
            eprintln!("skipped: ptrace is not allowed here");
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        }
        assert_eq!(throttle.stopped.len(), 1, "the first process does nothing");
        becomes(child.id(), |state| state == 't');
        // A signal is not lost meanwhile, and a stopped thread is not stopped twice.
        throttle.saw(&samples);
        throttle.stop();
        assert_eq!(throttle.stopped.len(), 1);
        while !throttle.stopped.is_empty() {
            throttle.release();
        }
        becomes(child.id(), |state| state != 't');
        drop(child.stdin.take());
        let mut rest = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty() && child.wait().unwrap().success());
    }

    /// A thread may come to its stop when it is already to be resumed.
    #[test]
    fn whoever_is_let_go_at_once_goes_on() {
        let mut child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let samples = calls_of(child.id(), STORM);
        for _ in 0..300 {
            let mut throttle = Throttle::default();
            throttle.saw(&samples);
            throttle.stop();
            while !throttle.stopped.is_empty() {
                throttle.release();
            }
            assert_eq!(proc::tracer_of(child.id()), None);
        }
        becomes(child.id(), |state| state == 'R');
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_is_not_stopped() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut throttle = Throttle::default();
        throttle.saw(&calls_of(child.id(), STORM));
        throttle.stop();
        child.kill().unwrap();
        child.wait().unwrap();
        while !throttle.stopped.is_empty() {
            throttle.release();
        }
        throttle.saw(&calls_of(child.id(), STORM));
        throttle.stop();
        assert!(throttle.stopped.is_empty());
    }
}
