//! Each signal reaches the command once, whichever processes of its group got it.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Case, LIMIT};
use crate::support::process::{Running, start};
use crate::support::trace::Trace;
use crate::support::{PATIENCE, PYTHON, need_python, run_in, wait_for};

/// `timeout` and `kill` of a group send the same signal to the command and to flowtrace. A signal to
/// flowtrace alone is passed on to the command. In both cases the command gets it once.
#[test]
fn each_signal_comes_once() {
    let counting = "trap 'echo caught' USR1; echo ready; while [ ! -e over ]; do sleep 0.02; done";
    let count = |running: &Running| running.stdout_so_far().matches("caught").count();
    Case::each(|case| {
        for detach in [&[][..], &["--detach"]] {
            let over = case.scratch.dir("job").join("over");
            let _ = std::fs::remove_file(&over);
            let mut command = run_in(&case.scratch.dir("job"), &case.trace);
            command.args(case.options).args(detach);
            command.args(["--force", "--", "sh", "-c", counting]);
            let running = start(&mut command);
            running.wait_for_output("ready");
            for sent in 1..=8 {
                match sent % 2 {
                    0 => running.signal(Signal::SIGUSR1),
                    _ => running.signal_group(Signal::SIGUSR1),
                }
                wait_for("the signal", PATIENCE, || {
                    (count(&running) >= sent).then_some(())
                });
                // Long enough for a second signal of the same kind.
                std::thread::sleep(Duration::from_millis(80));
                assert_eq!(count(&running), sent, "{:?} {detach:?}", case.options);
            }
            std::fs::write(over, "").unwrap();
            running.wait(LIMIT).expect(0);
            Trace::open_complete(&case.trace);
        }
    });
}

/// Several signals to the group in quick succession from one of its processes, and the signals of batch
/// systems to flowtrace alone.
#[test]
fn signals_in_quick_succession_come_once_each() {
    if !need_python("signal") {
        return;
    }
    let to_group = "
import os, signal, time
signals = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2]
counts = dict.fromkeys(signals, 0)
def count(number, _): counts[number] += 1
for one in signals: signal.signal(one, count)
for _ in range(5):
    for one in signals: os.kill(0, one)
    time.sleep(0.06)
time.sleep(0.1)
print(list(counts.values()))";
    let to_flowtrace = "
import os, signal, time
signals = [signal.SIGXCPU, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGTTIN, signal.SIGCONT]
came = []
for one in signals: signal.signal(one, lambda number, _: came.append(number))
print('ready', flush=True)
while len(came) < len(signals): time.sleep(0.01)
print(sorted(came) == sorted(signals))";
    Case::each(|case| {
        let python = |program: &str| {
            let mut command = run_in(&case.scratch.dir("job"), &case.trace);
            command.args(case.options);
            command.args(["--force", "--", PYTHON, "-c", program]);
            start(&mut command)
        };
        let finished = python(to_group).wait(LIMIT).expect(0);
        assert_eq!(
            finished.stdout_text(),
            "[5, 5, 5, 5]\n",
            "{:?}",
            case.options
        );
        let running = python(to_flowtrace);
        running.wait_for_output("ready");
        for signal in [
            Signal::SIGXCPU,
            Signal::SIGURG,
            Signal::SIGWINCH,
            Signal::SIGPIPE,
            Signal::SIGTTIN,
            Signal::SIGCONT,
        ] {
            running.signal(signal);
            std::thread::sleep(Duration::from_millis(30));
        }
        let finished = running.wait(LIMIT).expect(0);
        assert_eq!(
            finished.stdout_text(),
            "ready\nTrue\n",
            "{:?}",
            case.options
        );
    });
}
